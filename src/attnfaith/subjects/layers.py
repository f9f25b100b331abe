"""The layers of a model of transformers as modules: what each is given and gives, and each fed with what one likes.

A layer is the module in which one map is made and whose output is the next one's input: the outermost element of a list of
modules that makes one map a call. That it is so is checked, see `blocks_of`. A module may serve as several layers.

Shapes: B instances, L input positions, H heads, E the size of a state, D that of a head's values, N copies of an instance.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from attnfaith.subjects.attention_hook import Edit, Hook


IDLE = torch.nn.Dropout, torch.nn.Identity


@dataclass(frozen=True)
class Call:
    """A module without parts, what it was given and what it made of it."""

    module: torch.nn.Module
    given: torch.Tensor
    made: torch.Tensor


@dataclass
class Layer:
    """One layer of a forward pass: its map's weights (B,H,L,L), values (B,H,L,D) and output (B,H,L,D); state and result
    (B,L,E), what its module was given and gave, None where layers are no modules; and the calls that follow the map, up to
    the next one or the end of the layer. Nothing has a gradient.
    """

    weights: torch.Tensor
    values: torch.Tensor
    output: torch.Tensor
    state: torch.Tensor | None = None
    result: torch.Tensor | None = None
    calls: list[Call] = field(default_factory=list)


class Recorded(Edit):
    """A context around one forward pass that changes nothing and keeps its layers.

    numbers: those of the maps of layers. blocks: the name of each layer's module; () leaves states out.
    """

    def __init__(self, model, numbers: Sequence[int], blocks: Sequence[str] = ()):
        self.model, self.numbers, self.blocks = model, frozenset(numbers), frozenset(blocks)
        self.layers: list[Layer] = []
        self._open: Layer | None = None
        self._state = self._weights = self._values = None

    def weights(self, number, weights):
        self._weights = weights
        return weights

    def values(self, number, values):
        self._values = values
        return values

    def output(self, number, output):
        self._open = None
        if number in self.numbers:
            kept = (one.detach() for one in (self._weights, self._values, output))
            self._open = Layer(*kept, state=self._state)
            self.layers.append(self._open)
        return output

    def __enter__(self):
        self._handles = []
        for name, module in self.model.named_modules():
            if name in self.blocks:
                self._handles.append(module.register_forward_pre_hook(self._begins, with_kwargs=True))
                self._handles.append(module.register_forward_hook(self._ends))
            elif not isinstance(module, IDLE) and not any(True for _ in module.children()):
                self._handles.append(module.register_forward_hook(self._called))
        return self

    def __exit__(self, *error):
        for handle in self._handles:
            handle.remove()

    def _begins(self, module, args, kwargs):
        self._state = state_of(args, kwargs).detach()

    def _ends(self, module, args, result):
        if self._open is not None:
            self._open.result = result_of(result).detach()
        self._open = self._state = None

    def _called(self, module, args, made):
        if self._open is not None and args and isinstance(args[0], torch.Tensor) and isinstance(made, torch.Tensor):
            self._open.calls.append(Call(module, args[0].detach(), made.detach()))


class Fed:
    """A context around one forward pass of N copies of an instance, in which each layer is given a state of one's choice.

    blocks: the name of each layer's module. states: one (L,E) for each layer. results: those (N,L,E) of the layers;
    of copies that are read in several passes, pass by pass.
    """

    def __init__(self, model, blocks: Sequence[str], states: Sequence[torch.Tensor]):
        self.model, self.blocks, self.states = model, frozenset(blocks), states
        self.results: list[torch.Tensor] = []

    def __enter__(self):
        self._handles = []
        for name in self.blocks:
            module = self.model.get_submodule(name)
            self._handles.append(module.register_forward_pre_hook(self._begins, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._ends))
        return self

    def __exit__(self, *error):
        for handle in self._handles:
            handle.remove()

    def _begins(self, module, args, kwargs):
        own, state = state_of(args, kwargs), self.states[len(self.results) % len(self.states)]
        other = state.expand(own.shape)
        return tuple(other if one is own else one for one in args), {
            name: other if one is own else one for name, one in kwargs.items()
        }

    def _ends(self, module, args, result):
        self.results.append(result_of(result).detach())


def state_of(args, kwargs) -> torch.Tensor | None:
    """Of the arguments of a layer the state: the first tensor of three dimensions; None where there is none."""
    given = [*args, *kwargs.values()]
    return next((one for one in given if isinstance(one, torch.Tensor) and one.dim() == 3 and one.is_floating_point()), None)


def result_of(result) -> torch.Tensor | None:
    """Of what a layer returns the state: the tensor, or the first of several things."""
    return result if isinstance(result, torch.Tensor) else next(iter(result))


def blocks_of(model, text, numbers: Sequence[int], names: Sequence[str], count: int) -> tuple[str, ...]:
    """The name of each layer's module, in the order of the forward pass; () where layers are none, or are no chain.

    text: one instance, as the model takes it. numbers: those of the maps of layers, of `count` maps. names: the module in
    which each map is made. Checked on the text: each module makes one map a call, its result is what the next is given, and
    with another attention in all layers but one, each given its own state, that one's result is as before.
    """
    if model.config.is_encoder_decoder or len(numbers) != count:
        return ()
    listed = [lists_around(model, name) for name in names]
    for depth in range(min(map(len, listed))):
        blocks = tuple(around[depth] for around in listed)
        try:
            if _is_chain(model, text, numbers, blocks):
                return blocks
        except (StopIteration, TypeError, AttributeError, IndexError, RuntimeError):  # what it is given is no state
            continue
    return ()


def lists_around(model, name: str) -> list[str]:
    """The elements of lists of modules that a module is in, outermost first."""
    parts = name.split(".")
    owners = [".".join(parts[:stop]) for stop in range(len(parts))]
    lists = torch.nn.ModuleList, torch.nn.Sequential
    listed = [isinstance(model.get_submodule(owner), lists) for owner in owners]
    return [f"{owner}.{part}" for owner, part, one in zip(owners, parts, listed, strict=True) if one]


def _is_chain(model, text, numbers, blocks) -> bool:
    whole = recorded_layers(model, text, numbers, blocks)
    if len(whole) != len(numbers) or not chained(whole, text["input_ids"].shape):
        return False
    fed = [_fed(model, text, blocks, whole, _Flat(parity)) for parity in (0, 1)]
    for place, one in enumerate(whole):
        own, others = fed[place % 2][place], fed[(place + 1) % 2][place]
        if not torch.allclose(others, one.result, rtol=1e-5, atol=1e-5) or torch.equal(own, one.result):
            return False
    return True


class _Flat(Edit):
    """Uniform rows in every other map."""

    def __init__(self, parity: int):
        self.parity = parity

    def weights(self, number, weights):
        if number % 2 != self.parity:
            return weights
        # unequal, so that it is no model's own attention
        other = (weights > 0) * torch.linspace(1, 2, weights.shape[-1], device=weights.device, dtype=weights.dtype)
        return other / other.sum(-1, keepdim=True).clamp(min=1e-9)


def recorded_layers(model, text, numbers, blocks) -> list[Layer]:
    """The layers of one forward pass."""
    with Recorded(model, numbers, blocks) as recorded, Hook(len(text["input_ids"]), recorded, lambda number: False):
        model(**text)
    return recorded.layers


def _fed(model, text, blocks, whole, edit) -> list[torch.Tensor]:
    states = [one.state[0] for one in whole]
    with Fed(model, blocks, states) as fed, Hook(len(text["input_ids"]), edit, lambda number: False):
        model(**text)
    return fed.results


def chained(layers: list[Layer], shape) -> bool:
    """Whether each layer gives what the next is given: a state (B,L,E), which it does not hand on as it is."""
    if any(one.state is None or one.result is None or one.state.shape != one.result.shape for one in layers):
        return False
    if any(one.state.shape[:2] != shape for one in layers):
        return False
    return all(torch.equal(one.result, after.state) for one, after in itertools.pairwise(layers))
