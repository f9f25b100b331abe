"""The layers of a model of transformers as modules: recorded, fed with other states, and written as sums over tokens.

A layer is the module in which one map is made and whose output is the next one's input: the outermost element of a list of
modules that makes one map a call (`chain_of`). A module may serve as several layers.

With attention weights and scales of norms held, a state after attention is a sum of one vector a token, and of biases. The
calls that follow a map show how a layer is made, and a form is taken only if the recorded numbers add up: a linear call that
projects the output of all heads, then norms of state plus attention and of that plus the rest (BERT), or norms before, so
that the result is state plus attention, perhaps after a norm of its own, plus the rest (GPT-2, GPT-J, Gemma 2).

Shapes: B instances, L input positions, R rows among them, H heads, E the size of a state, D that of a head's values, N
copies of an instance, S source positions.
"""

import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from typing import NamedTuple

import torch

from attnfaith.subjects.attention import Map, Watching, widened
from attnfaith.subjects.protocol import SubjectError


IDLE = torch.nn.Dropout, torch.nn.Identity
NUMBERS_AT_ONCE = 2**20
"""The most numbers in the vectors of rows that are made together."""
ROUNDING = 2e-6
"""How far sums may be off, over the largest number; besides 1e-4 of the smallest part, so that no part is missing."""


class Call(NamedTuple):
    """A call of a module without parts."""

    module: torch.nn.Module
    input: torch.Tensor
    output: torch.Tensor


class Recorded(Watching):
    """A record of the maps of a forward pass, without gradient; nothing is changed.

    blocks: the name of each layer's module; () leaves states out. calls: whether to record the calls that follow a map.
    """

    def __init__(self, model, blocks: Sequence[str] = (), *, calls: bool = True):
        self.model, self.blocks, self.calls = model, frozenset(blocks), calls
        self.layers: list[Map] = []
        self._open: Map | None = None
        self._state: torch.Tensor | None = None

    def output(self, attention_map):
        tensors = {name: getattr(attention_map, name).detach() for name in ("weights", "values", "output")}
        self._open = Map(attention_map.number, **tensors, state=self._state)
        self.layers.append(self._open)
        return attention_map.output

    def watch(self):
        for name, module in self.model.named_modules():
            if name in self.blocks:
                yield module.register_forward_pre_hook(self._begins, with_kwargs=True)
                yield module.register_forward_hook(self._ends)
            elif self.calls and not isinstance(module, IDLE) and not any(True for _ in module.children()):
                yield module.register_forward_hook(self._called)

    def _begins(self, module, args, kwargs):
        self._state = state_of(args, kwargs).detach()

    def _ends(self, module, args, result):
        if self._open is not None:
            self._open.result = result_of(result).detach()
        self._open = self._state = None

    def _called(self, module, args, output):
        if self._open is not None and args and isinstance(args[0], torch.Tensor) and isinstance(output, torch.Tensor):
            self._open.calls.append(Call(module, args[0].detach(), output.detach()))


@contextmanager
def replaced(modules: Sequence[torch.nn.Module], method: str, call: Callable) -> Iterator[None]:
    """Within, call(own, *args, **kwargs) takes the place of a method of modules, their own being the first argument."""
    own = {module: vars(module).get(method) for module in modules}
    for module in own:
        setattr(module, method, partial(call, getattr(module, method)))
    try:
        yield
    finally:
        for module, function in own.items():
            delattr(module, method)
            if function is not None:
                setattr(module, method, function)


@contextmanager
def fed(model, blocks: Sequence[str], states: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Within, each layer of N copies of an instance, a module of `blocks`, is given another state (L,E). Afterwards the list
    holds the results (N,L,E) of each layer, of copies that were read in several passes, too.
    """
    results, by_layer = [], []

    def call(forward, *args, **kwargs):
        state = states[len(results) % len(states)]
        args, kwargs = with_state(args, kwargs, lambda own: state.to(own).expand(own.shape))
        result = forward(*args, **kwargs)
        results.append(result_of(result).detach())
        return result

    with replaced([model.get_submodule(name) for name in blocks], "forward", call):
        yield by_layer
    by_layer += [torch.cat(results[layer :: len(states)]) for layer in range(len(states))]


def state_of(args, kwargs) -> torch.Tensor:
    """The state among the arguments of a layer: the first tensor of three dimensions. Raises StopIteration without one."""
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
    return next(value for value in tensors if value.dim() == 3 and value.is_floating_point())


def with_state(args, kwargs, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple:
    """The arguments of a layer with change(state) in place of its state."""
    own = state_of(args, kwargs)
    other = change(own)
    changed = {name: other if value is own else value for name, value in kwargs.items()}
    return tuple(other if value is own else value for value in args), changed


def result_of(result) -> torch.Tensor:
    """The state that a layer returns: its result, or the first of several results."""
    return result if isinstance(result, torch.Tensor) else next(iter(result))


def chain_of(model, names: Sequence[str], shape, record: Callable[[tuple[str, ...]], list[Map]]) -> tuple[str, ...]:
    """The name of each layer's module, an element of a list that has one of the modules `names` in it, outermost first: each
    makes one of the layers record(candidates), of states of this shape (B,L), and gives what the next is given; else ().
    """
    lists = torch.nn.ModuleList, torch.nn.Sequential
    elements = []
    for parts in (name.split(".") for name in names):
        prefixes = (".".join(parts[:stop]) for stop in range(len(parts)))
        owned = [isinstance(model.get_submodule(prefix), lists) for prefix in prefixes]
        elements.append([".".join(parts[: stop + 1]) for stop, is_owned in enumerate(owned) if is_owned])
    for blocks in zip(*elements, strict=False):
        try:
            layers = [layer for layer in record(blocks) if layer.result is not None]
            alike = all(layer.state.shape == layer.result.shape and layer.state.shape[:2] == shape for layer in layers)
            linked = all(torch.equal(layer.result, after.state) for layer, after in itertools.pairwise(layers))
        except (StopIteration, TypeError, AttributeError, IndexError, RuntimeError):  # what it is given is no state
            continue
        if alike and linked and len(layers) == len(names):
            return blocks
    return ()


def projected(layer: Map) -> torch.Tensor:
    """(H,L,E): what the projection makes of each head's values of one instance, without its bias; weighed by the heads'
    attention and summed, with the bias, these are what attention gives. Raises SubjectError without such a projection.
    """
    heads, size = layer.values.shape[1], layer.values.shape[3]
    joined, module = layer.output.transpose(1, 2).flatten(2), layer.calls[0].module if layer.calls else None
    is_linear = isinstance(module, torch.nn.Linear)
    if not (is_linear or type(module).__name__ == "Conv1D") or not adds_up(layer.calls[0].input, joined):
        raise SubjectError("what follows its attention is no linear module that reads the output of all heads alone")
    matrix = module.weight.detach().T if is_linear else module.weight.detach()
    return torch.einsum("hld,hde->hle", widened(layer.values[0]), widened(matrix).unflatten(0, (heads, size)))


def summands(layer: Map, values: torch.Tensor, rows: torch.Tensor, head: int | None = None) -> torch.Tensor:
    """(R,L,E): for rows, by number, what each source adds to what attention gives; values as `projected` gives them."""
    weights = widened(layer.weights[0][:, rows])
    if head is not None:
        return weights[head].unsqueeze(2) * values[head]
    return torch.bmm(weights.permute(2, 1, 0), values.transpose(0, 1)).transpose(0, 1)


def rows_at_once(rows: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Rows, by number, in as many as may be made together of values (L,E)."""
    return rows.split(max(1, NUMBERS_AT_ONCE // max(1, values.numel())))


@torch.no_grad()
def held_norm(call: Call) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The norm of a call on (1,L,E) with its scales held, so that it is linear: a function of vectors (R,L,E) and of their
    rows, by number, from u to gain (u - mean u) / scale, or to gain u / scale. Raises SubjectError for anything else.
    """
    module = copy.deepcopy(call.module).double()
    values = call.input.double().reshape(-1, call.input.shape[-1])
    probe = torch.ones_like(values[:1])
    shift = module(torch.zeros_like(probe))
    centred = torch.allclose(module(probe), shift, atol=1e-5)
    probe[:, ::2] = -1
    probe = 1e3 * (probe - probe.mean())  # large, so that no epsilon matters
    gain = ((module(probe) - shift) * probe.square().mean().sqrt() / probe)[0]
    inner, outer = gain * (values - values.mean(-1, keepdim=True) if centred else values), module(values) - shift
    scale = inner.square().sum(-1, keepdim=True) / (inner * outer).sum(-1, keepdim=True)
    scale = torch.where(scale.isfinite(), scale, 1.0)  # of a state that is constant nothing is left
    if not adds_up(outer, inner / scale):
        raise SubjectError(f"its {type(call.module).__name__} is no norm whose scale can be held")
    gain, scale = (values.to(widened(call.output).dtype) for values in (gain, scale))

    def norm(vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        factor = (gain / scale[rows]).unsqueeze(1)
        return (vectors - vectors.mean(-1, keepdim=True)).mul_(factor) if centred else vectors * factor

    return norm


class LayerParts:
    """Attention and the residual connection around it, in a layer of one instance, as a sum over tokens.

    whole (L,E): the states after both, and after the norm where it follows them. cross: attention is over a source, and the
    state before is a summand of its own, the last. target: this is a decoder's block with attention to the target so far.
    after: whether norms stand behind the sums ("post-norm"); None finds out. Raises SubjectError for another form.
    """

    def __init__(self, layer: Map, *, cross: bool = False, target: bool = False, after: bool | None = None):
        self.layer, self.values, self.cross = layer, projected(layer), cross
        self._inner = self._middle = self._outer = None  # norms: of what attention gives, of the sum, of the layer
        added, calls, state = layer.calls[0].output, layer.calls[1:], layer.state
        if calls and is_norm(calls[0].module) and adds_up(calls[0].input, added):
            self._inner, added, calls = held_norm(calls[0]), calls[0].output, calls[1:]
        norms = [call for call in calls if is_norm(call.module)]
        self.after = len(norms) > 1 and ends_in_norm(layer) if after is None else after
        if target:
            sound = bool(norms) and adds_up(norms[0].input, state, added)
        elif self.after:
            sound = adds_up(norms[0].input, state, added) and adds_up(calls[-1].input, norms[0].output, calls[-2].output)
        else:
            sound = bool(calls) and adds_up(layer.result, state, added, calls[-1].output)
        if not sound:
            raise SubjectError(
                "a layer's result is no plain sum of its state, of what attention gives and of the rest, nor norms of these"
            )
        if self.after:
            self._middle, self._outer = held_norm(norms[0]), None if target else held_norm(calls[-1])
        self.whole = widened(norms[0].output if self.after else state + added.reshape(state.shape))[0]

    def all(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All rows, by number and a few at a time, with the vector (R,L,E), or (R,S+1,E), that each token adds to them;
        biases belong to no token.
        """
        for rows in rows_at_once(torch.arange(len(self.whole), device=self.whole.device), self.values[0]):
            vectors, before = summands(self.layer, self.values, rows), widened(self.layer.state[0, rows])
            vectors = vectors if self._inner is None else self._inner(vectors, rows)
            if self.cross:
                vectors = torch.cat([vectors, before.unsqueeze(1)], 1)
            else:
                vectors[torch.arange(len(rows), device=rows.device), rows] += before
            yield rows, vectors if self._middle is None else self._middle(vectors, rows)

    def handed_on(self, parts: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(R,L,E): parts after the layer's last residual connection and norm, without what its rest adds."""
        return parts if self._outer is None else self._outer(parts, rows)


def decoder_parts(layers: list[Map]) -> list[tuple[LayerParts, LayerParts]]:
    """The two blocks of each layer of a decoder, over target and source, from its maps in their order, of one pair."""
    blocks = []
    for own, cross in zip(layers[::2], layers[1::2], strict=True):
        target = LayerParts(own, target=True, after=ends_in_norm(cross))
        blocks.append((target, LayerParts(replace(cross, state=target.whole.unsqueeze(0)), cross=True)))
    return blocks


def ends_in_norm(layer: Map) -> bool:
    """Whether a layer's result is what a norm gives."""
    last = layer.calls[-1] if layer.calls else None
    return last is not None and is_norm(last.module) and torch.equal(last.output, layer.result)


def is_norm(module) -> bool:
    """Whether a module is a norm by its name; `held_norm` checks whether its scale can be held."""
    return isinstance(module, torch.nn.LayerNorm) or type(module).__name__.endswith("Norm")


def adds_up(whole: torch.Tensor, *parts: torch.Tensor) -> bool:
    """Whether parts sum to a whole, and each of them is needed; numbers of 16 bits must sum to it exactly, in some order."""
    if any(part.numel() != whole.numel() for part in parts):
        return False
    if widened(whole).dtype != whole.dtype:
        parts = [part.reshape(whole.shape).to(whole.dtype) for part in parts]
        return any(torch.equal(reduce(torch.add, order), whole) for order in itertools.permutations(parts))
    off = (whole - sum(part.reshape(whole.shape) for part in parts)).abs().max()
    least = min(part.abs().max() for part in parts)
    return bool(off <= 1e-4 * least + ROUNDING * whole.abs().max())


class Prefix:
    """What the first layers of a model, `blocks`, gave of `count` instances, for later passes that compute no such layer."""

    def __init__(self, model, blocks: Sequence[str], count: int):
        self.modules, self.results, self.count = [model.get_submodule(name) for name in blocks], [], count

    @contextmanager
    def reused(self, rows: torch.Tensor | None = None) -> Iterator[None]:
        """Within, a forward pass of the copies `rows` (N,) of the instances computes only what comes after; one of the
        instances themselves, without `rows`, is recorded.
        """
        left = deque(self.results)

        def call(forward, *args, **kwargs):
            if left:
                return instances(left.popleft(), rows, self.count)
            result = forward(*args, **kwargs)
            if len(self.results) < len(self.modules):
                self.results.append(result)
            return result

        with replaced(self.modules, "forward", call):
            yield


def instances(output, rows: torch.Tensor, count: int):
    """The instances `rows` of an output for `count` ones: of its tensors whose first axis is that of instances."""
    if isinstance(output, torch.Tensor):
        return output[rows] if output.dim() and len(output) == count else output
    if isinstance(output, dict):
        return type(output)(**{name: instances(value, rows, count) for name, value in output.items()})
    if type(output) in (tuple, list):
        return type(output)(instances(value, rows, count) for value in output)
    return output
