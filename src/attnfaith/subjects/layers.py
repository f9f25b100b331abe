"""The layers of a model of transformers as modules: recorded, fed with other states, and written as sums over tokens.

A layer is the module in which one map is made and whose output is the next one's input: the outermost element of a list of
modules that makes one map a call. `first_chain` finds it and `is_chain` checks it. A module may serve as several layers.

With its attention weights and the scales of its norms held, a state after attention is a sum of one vector a token, and of
biases. No architecture is named here: the calls that follow a map show how a layer is made, and one of these forms is taken
only if the recorded numbers add up:

* the first call after a map is the linear one that projects the output of all heads;
* norms stand after: one of state plus attention, then one of that plus the rest of the layer (BERT);
* or they stand before, and the result is state plus attention plus the rest of the layer, whatever this reads (GPT-2,
  GPT-J); where attention is itself given to a norm before it is added, as in Gemma 2, that is held too;
* a decoder's layer has two blocks with attention: over the target so far, then over the source. Of the second, a state after
  it is a sum of one vector a source position, of the state before it, and of biases.

A `Prefix` is the part of a forward pass before one of its maps, stored so that later passes compute only what comes after.
One pass shows, from outside, which modules come before a map; a second pass from what was stored, with the texts in another
order, has to give the same logits.

Shapes: B instances, L input positions, R rows among them, H heads, E the size of a state, D that of a head's values, N
copies of an instance, S source positions.
"""

import copy
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from attnfaith.subjects.attention import Edit, Hook, Watching, nothing, widened
from attnfaith.subjects.base import tolerance_of
from attnfaith.subjects.protocol import Batch, Subject, SubjectError


IDLE = torch.nn.Dropout, torch.nn.Identity


@dataclass(frozen=True)
class Call:
    """A call of a module without parts."""

    module: torch.nn.Module
    input: torch.Tensor
    output: torch.Tensor


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


class Recorded(Watching):
    """A record of the layers of a forward pass; nothing is changed.

    numbers: those of the maps of layers. blocks: the name of each layer's module; () leaves states out. calls: whether to
    record the calls that follow a map.
    """

    def __init__(self, model, numbers: Sequence[int], blocks: Sequence[str] = (), *, calls: bool = True):
        self.model, self.numbers, self.blocks, self.calls = model, frozenset(numbers), frozenset(blocks), calls
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
            self._open = Layer(self._weights.detach(), self._values.detach(), output.detach(), self._state)
            self.layers.append(self._open)
        return output

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


class Fed(Watching):
    """N copies of an instance, in which each layer is given another state.

    blocks: the name of each layer's module. states: the state (L,E) of each layer. results: those (N,L,E) of the layers; of
    copies that are read in several passes, pass by pass.
    """

    def __init__(self, model, blocks: Sequence[str], states: Sequence[torch.Tensor]):
        self.model, self.blocks, self.states = model, frozenset(blocks), states
        self.results: list[torch.Tensor] = []

    def watch(self):
        for name in self.blocks:
            module = self.model.get_submodule(name)
            yield module.register_forward_pre_hook(self._begins, with_kwargs=True)
            yield module.register_forward_hook(self._ends)

    def _begins(self, module, args, kwargs):
        state = self.states[len(self.results) % len(self.states)]
        return with_state(args, kwargs, lambda own: state.to(own).expand(own.shape))

    def _ends(self, module, args, result):
        self.results.append(result_of(result).detach())


def state_of(args, kwargs) -> torch.Tensor | None:
    """The state among the arguments of a layer: the first tensor of three dimensions; None without such a tensor."""
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
    return next((value for value in tensors if value.dim() == 3 and value.is_floating_point()), None)


def with_state(args, kwargs, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple | None:
    """The arguments of a layer with change(state) in place of its state; None without a state."""
    own = state_of(args, kwargs)
    if own is None:
        return None
    other = change(own)
    changed = {name: other if value is own else value for name, value in kwargs.items()}
    return tuple(other if value is own else value for value in args), changed


def result_of(result) -> torch.Tensor | None:
    """The state that a layer returns: its result, or the first of several results."""
    return result if isinstance(result, torch.Tensor) else next(iter(result))


def first_chain(model, names: Sequence[str], is_right: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
    """The first of the `block_candidates` that is right: the name of each layer's module; () where none is."""
    for blocks in block_candidates(model, names):
        try:
            if is_right(blocks):
                return blocks
        except (StopIteration, TypeError, AttributeError, IndexError, RuntimeError):  # what it is given is no state
            continue
    return ()


def block_candidates(model, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Candidates for layers' modules: elements of lists, outermost first, each with one of the modules `names` in it."""
    return zip(*(_lists_around(model, name.split(".")) for name in names), strict=False)


def _lists_around(model, parts: list[str]) -> list[str]:
    owners, lists = [".".join(parts[:stop]) for stop in range(len(parts))], (torch.nn.ModuleList, torch.nn.Sequential)
    elements = zip(owners, parts, strict=True)
    return [f"{owner}.{part}" for owner, part in elements if isinstance(model.get_submodule(owner), lists)]


def is_chain(model, text: Mapping[str, torch.Tensor], numbers: Sequence[int], blocks: Sequence[str]) -> bool:
    """Whether modules are the layers of a model, seen on one text (1,L), as the model takes it; numbers: of their maps.

    Each makes one map a call, and its result is what the next is given; and when all layers but one have other attention,
    each given its own state, that one's result is as before.
    """
    with Recorded(model, numbers, blocks, calls=False) as recorded, Hook(1, recorded, nothing):
        model(**text)
    layers = recorded.layers
    if len(layers) != len(numbers) or not chained(layers, text["input_ids"].shape):
        return False
    results = []  # with other attention in layers of an even number, and in those of an odd number
    for parity in (0, 1):
        with Fed(model, blocks, [layer.state[0] for layer in layers]) as fed, Hook(1, _Uneven(parity), nothing):
            model(**text)
        results.append(fed.results)
    for number, layer in enumerate(layers):
        changed, unchanged = results[number % 2][number], results[(number + 1) % 2][number]
        if not torch.allclose(unchanged, layer.result, rtol=1e-5, atol=1e-5) or torch.equal(changed, layer.result):
            return False
    return True


class _Uneven(Edit):
    """Rows that rise evenly, and are so no model's own attention, in every other map."""

    def __init__(self, parity: int):
        self.parity = parity

    def weights(self, number, weights):
        if number % 2 != self.parity:
            return weights
        other = (weights > 0) * torch.linspace(1, 2, weights.shape[-1], device=weights.device, dtype=weights.dtype)
        return other / other.sum(-1, keepdim=True).clamp(min=1e-9)


def chained(layers: list[Layer], shape) -> bool:
    """Whether each layer gives what the next is given: a state (B,L,E), which it does not hand on as it is."""
    if any(layer.state is None or layer.result is None or layer.state.shape != layer.result.shape for layer in layers):
        return False
    if any(layer.state.shape[:2] != shape for layer in layers):
        return False
    return all(torch.equal(layer.result, after.state) for layer, after in itertools.pairwise(layers))


NUMBERS_AT_ONCE = 2**20
"""The most numbers in the vectors of rows that are made together."""
ROUNDING = 2e-6
"""How far sums may be off, over the largest number; besides 1e-4 of the smallest part, so that no part is missing."""


def projected(layer: Layer) -> torch.Tensor:
    """(H,L,E): what the projection makes of each head's values of one instance, without its bias; weighed by the heads'
    attention and summed, with the bias, these are what attention gives.

    Raises SubjectError where no linear module reads the output of all heads.
    """
    calls = layer.calls
    heads, sizes = layer.values.shape[1], layer.values.shape[3]
    joined = layer.output.transpose(1, 2).flatten(2)
    matrix = _matrix(calls[0].module) if calls else None
    if matrix is None or not adds_up(calls[0].input, joined):
        raise SubjectError("what follows its attention is no linear module that reads the output of all heads alone")
    return torch.einsum("hld,hde->hle", widened(layer.values[0]), widened(matrix).unflatten(0, (heads, sizes)))


def summands(layer: Layer, values: torch.Tensor, rows: torch.Tensor, head: int | None = None) -> torch.Tensor:
    """(R,L,E): for rows, by number, what each source adds to what attention gives; values as `projected` gives them."""
    weights = widened(layer.weights[0][:, rows])
    if head is not None:
        return weights[head].unsqueeze(2) * values[head]
    return torch.bmm(weights.permute(2, 1, 0), values.transpose(0, 1)).transpose(0, 1)


def rows_at_once(rows: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Rows, by number, in as many as may be made together of values (L,E)."""
    return rows.split(max(1, NUMBERS_AT_ONCE // max(1, values.numel())))


@dataclass(frozen=True)
class Norm:
    """A norm with its scales held, so that it is linear: u to gain (u - mean u) / scale, or gain u / scale.

    gain (E,); scale (L,1); centred: whether the mean is taken off.
    """

    gain: torch.Tensor
    scale: torch.Tensor
    centred: bool

    @classmethod
    @torch.no_grad()
    def of(cls, call: Call) -> "Norm":
        """The norm of a call on (1,L,E). Raises SubjectError for a module that computes something else."""
        coarse = call.output.dtype != widened(call.output).dtype
        module = copy.deepcopy(call.module).float() if coarse else call.module
        ones = widened(call.input.new_ones(1, 1, call.input.shape[-1]))
        shift = module(torch.zeros_like(ones))[0].double()
        centred = torch.allclose(module(ones)[0].double(), shift, atol=1e-5)
        probe = ones.clone()
        probe[..., ::2] = -1
        probe = 1e3 * (probe - probe.mean())  # large, so that no epsilon matters
        size = probe.double().square().mean().sqrt()
        gain = ((module(probe)[0].double() - shift) * size / probe[0].double())[0]
        values, outer = call.input.reshape(-1, len(gain)).double(), call.output.reshape(-1, len(gain)).double() - shift
        inner = gain * (values - values.mean(-1, keepdim=True) if centred else values)
        scale = inner.square().sum(-1, keepdim=True) / (inner * outer).sum(-1, keepdim=True)
        scale = torch.where(scale.isfinite(), scale, 1.0)  # of a state that is constant nothing is left
        rounding = torch.finfo(call.output.dtype).eps * outer.abs().max() if coarse else 0.0
        if not adds_up(outer, inner / scale) and float((outer - inner / scale).abs().max()) > rounding:
            raise SubjectError(f"its {type(call.module).__name__} is no norm whose scale can be held")
        kind = widened(call.output).dtype
        return cls(gain.to(kind), scale.to(kind), centred)

    def __call__(self, vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Vectors (R,L,E) of rows."""
        factor = (self.gain / self.scale[rows]).unsqueeze(1)
        return (vectors - vectors.mean(-1, keepdim=True)).mul_(factor) if self.centred else vectors * factor


class BlockParts:
    """Attention and the residual connection around it, in one instance, as a sum over tokens.

    whole (L,E): the states after both, and after the norm where it follows them. A subclass makes `whole`, and the norms
    that are held: inner, of what attention gives, and middle, of the sum.
    """

    inner: Norm | None = None
    middle: Norm | None = None
    whole: torch.Tensor

    def __init__(self, layer: Layer):
        self.layer, self.values = layer, projected(layer)
        self.added, self.calls = layer.calls[0].output, layer.calls[1:]  # what attention gives, and what is called after it
        if self.calls and is_norm(self.calls[0].module) and adds_up(self.calls[0].input, self.added):
            self.inner, self.added, self.calls = Norm.of(self.calls[0]), self.calls[0].output, self.calls[1:]

    def parts(self, rows: torch.Tensor) -> torch.Tensor:
        """(R,L,E): the vector that each token adds to rows, by number, of `whole`; biases belong to no token."""
        vectors = self._of_attention(rows)
        vectors[torch.arange(len(rows), device=rows.device), rows] += widened(self.layer.state[0, rows])
        return vectors if self.middle is None else self.middle(vectors, rows)

    def _of_attention(self, rows: torch.Tensor) -> torch.Tensor:
        vectors = summands(self.layer, self.values, rows)
        return vectors if self.inner is None else self.inner(vectors, rows)

    def all(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All rows, by number and a few at a time, with their `parts`."""
        for rows in rows_at_once(torch.arange(len(self.whole), device=self.whole.device), self.values[0]):
            yield rows, self.parts(rows)


class LayerParts(BlockParts):
    """A layer of one instance as a sum over tokens; after: whether norms stand behind the sums ("post-norm").

    Raises SubjectError for a layer of another form.
    """

    def __init__(self, layer: Layer):
        super().__init__(layer)
        added, calls, state = self.added, self.calls, layer.state
        norms = [call for call in calls if is_norm(call.module)]
        self._outer = None
        self.after = len(norms) > 1 and calls[-1] is norms[-1] and torch.equal(calls[-1].output, layer.result)
        if self.after:
            first, rest, last = norms[0], calls[-2], calls[-1]
            sound = adds_up(first.input, state, added) and adds_up(last.input, first.output, rest.output)
        else:
            sound = bool(calls) and adds_up(layer.result, state, added, calls[-1].output)
        if not sound:
            raise SubjectError(
                "a layer's result is no plain sum of its state, of what attention gives and of the rest, nor norms of these"
            )
        if self.after:
            self.middle, self._outer = Norm.of(first), Norm.of(last)
        self.whole = widened(first.output if self.after else state + added.reshape(state.shape))[0]

    def handed_on(self, parts: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(R,L,E): parts after the layer's last residual connection and norm, without what its rest adds."""
        return parts if self._outer is None else self._outer(parts, rows)


def is_norm(module) -> bool:
    """Whether a module is a norm by its name; `Norm.of` checks whether its scale can be held."""
    return isinstance(module, torch.nn.LayerNorm) or type(module).__name__.endswith("Norm")


def _matrix(module) -> torch.Tensor | None:
    """(in, out) of a linear module."""
    if isinstance(module, torch.nn.Linear):
        return module.weight.detach().T
    return module.weight.detach() if type(module).__name__ == "Conv1D" else None


def adds_up(whole: torch.Tensor, *parts: torch.Tensor) -> bool:
    """Whether parts sum to a whole, each of them being needed: of 16 bits exactly, in some order."""
    if any(part.numel() != whole.numel() for part in parts):
        return False
    if widened(whole).dtype != whole.dtype:
        parts = [part.reshape(whole.shape).to(whole.dtype) for part in parts]
        return any(torch.equal(functools.reduce(torch.add, order), whole) for order in itertools.permutations(parts))
    off = (whole - sum(part.reshape(whole.shape) for part in parts)).abs().max()
    least = min(part.abs().max() for part in parts)
    return bool(off <= 1e-4 * least + ROUNDING * whole.abs().max())


class CrossParts(LayerParts):
    """A decoder's block that attends to the source, whose layer.state is the state before this block."""

    def parts(self, rows: torch.Tensor) -> torch.Tensor:
        """(R,S+1,E): the vectors that source positions add to rows, by number, of `whole`; last that of the state before."""
        vectors = torch.cat([self._of_attention(rows), widened(self.layer.state[0, rows]).unsqueeze(1)], 1)
        return vectors if self.middle is None else self.middle(vectors, rows)


class TargetParts(BlockParts):
    """A decoder's block that attends to the target so far; after: whether a norm follows it.

    Raises SubjectError for a block of another form.
    """

    def __init__(self, layer: Layer, after: bool):
        super().__init__(layer)
        norm = next((call for call in self.calls if is_norm(call.module)), None)
        if norm is None or not adds_up(norm.input, layer.state, self.added):
            raise SubjectError(
                "a decoder's state after attention to the target is no plain sum of the state before and of what that gives"
            )
        if after:
            self.middle = Norm.of(norm)
        self.whole = widened(norm.output if after else norm.input)[0]


def decoder_parts(layers: list[Layer]) -> list[tuple[TargetParts, CrossParts]]:
    """The two blocks of each layer of a decoder, from its maps in their order, of one pair.

    Raises SubjectError where a layer is made in another way.
    """
    blocks = []
    for own, cross in zip(layers[::2], layers[1::2], strict=True):
        last = cross.calls[-1] if cross.calls else None
        after = last is not None and is_norm(last.module) and torch.equal(last.output, cross.result)
        target = TargetParts(own, after)
        blocks.append((target, CrossParts(replace(cross, state=target.whole.unsqueeze(0)))))
    return blocks


@dataclass(frozen=True)
class Stack:
    """The layers of a subject on one text, and how much of the answer is read from each position.

    text: a batch of one instance. layers: first layer first. reads (L,) in float64: the share of each position in what the
    logits read of the last layer's result; of `stack_of` they sum to 1. inside (L,) bool: positions of the text, without
    markers. source: the subject, or what has its `device` and `each_layer`. lacks: as of a subject.
    """

    text: Batch
    layers: Sequence[Layer]
    reads: torch.Tensor
    inside: torch.Tensor
    source: object
    lacks: Mapping[str, str] = field(default_factory=dict)


def stack_of(subject: Subject, text: Batch) -> Stack:
    """The stack of a subject on a batch of one instance without padding.

    Raises SubjectError for a subject without self-attention, and where the logits depend on no position.
    """
    stack = subject.stack(text) if hasattr(subject, "stack") else None
    if stack is None:
        encoder = getattr(getattr(subject, "config", None), "encoder", None)
        reason = f"its encoder is {encoder!r}" if hasattr(subject, "stack") and encoder != "transformer" else subject.kind
        raise SubjectError(
            f"this model has no self-attention to be seen ({reason}): give a text classifier of transformers, or one of "
            "this package with --encoder transformer"
        )
    total = stack.reads.sum()
    if not float(total) > 0:
        raise SubjectError("the logits of this text do not depend on the last layer: there is no answer to follow")
    return replace(stack, reads=stack.reads / total)


# ------------------------------------------------------------------------------------------------ what comes before a map


class Prefix:
    """The outputs of the outermost modules that were done before a map was made, of B instances.

    outputs: {module: those of its calls, in order}. skipped: how many maps were made in these calls. count: B.
    """

    def __init__(self, outputs: dict[torch.nn.Module, list], skipped: int, count: int):
        self.outputs, self.skipped, self.count = outputs, skipped, count

    @contextmanager
    def reused(self, rows: torch.Tensor) -> Iterator[None]:
        """Within, a forward pass of the copies `rows` (N,) of the instances computes only what comes after."""
        instance_forwards = {module: vars(module).get("forward") for module in self.outputs}
        for module, outputs in self.outputs.items():
            module.forward = self._instead(module.forward, deque(outputs), rows)
        try:
            yield
        finally:
            for module, forward in instance_forwards.items():
                del module.forward
                if forward is not None:
                    module.forward = forward

    def _instead(self, forward: Callable, left: deque, rows: torch.Tensor) -> Callable:
        return lambda *args, **kwargs: instances(left.popleft(), rows, self.count) if left else forward(*args, **kwargs)


def prefix_of(model, texts: dict[str, torch.Tensor], first: int) -> Prefix | None:
    """The prefix of texts (B,L) before map number `first`; None where a pass from it gives other logits.

    Costs a forward pass, and one of what comes after.
    """
    count = len(texts["input_ids"])
    with torch.no_grad():
        watch = _Watch(model, first)
        with watch, Hook(count, watch, keep=nothing):
            logits = model(**texts).logits
        prefix = watch.prefix(count)
        if prefix is None:
            return None
        rows = torch.cat([torch.arange(count - 1, -1, -1), torch.tensor([0])]).to(logits.device)
        copies = {name: values[rows] for name, values in texts.items()}
        try:
            with prefix.reused(rows), Hook(count + 1, keep=nothing) as hook:
                again = model(**copies).logits
        except Exception:  # what was stored has no axis of instances, or another one
            return None
    near = tolerance_of(model)
    same = again.shape == logits[rows].shape and torch.allclose(again, logits[rows], rtol=near, atol=near)
    return prefix if same and hook.number + prefix.skipped == watch.maps else None


class _Watch(Watching):
    """Which calls of modules are done before map `first` is made."""

    def __init__(self, model, first: int):
        self.model, self.first, self.maps = model, first, 0
        self._before, self._frames = None, []

    def weights(self, number, weights):
        if number == self.first:
            self._before = [done for _, _, frame in self._frames for done in frame]
        self.maps += 1
        return weights

    def prefix(self, count: int) -> Prefix | None:
        """The prefix of `count` instances; None where the map was not made, or nothing was done before it."""
        if not self._before:
            return None
        outputs: dict[torch.nn.Module, list] = {}
        for module, output, _ in self._before:
            outputs.setdefault(module, []).append(output)
        return Prefix(outputs, sum(maps for _, _, maps in self._before), count)

    def watch(self):
        for module in self.model.modules():
            yield module.register_forward_pre_hook(self._enter)
            yield module.register_forward_hook(self._leave)

    def _enter(self, module, args) -> None:
        self._frames.append((module, self.maps, []))

    def _leave(self, module, args, output) -> None:
        _, maps, _ = self._frames.pop()
        if self._before is None and self._frames:
            self._frames[-1][2].append((module, output, self.maps - maps))


def instances(output, rows: torch.Tensor, count: int):
    """The instances `rows` of an output for `count` ones: of its tensors whose first axis is that of instances."""
    if isinstance(output, torch.Tensor):
        return output[rows] if output.dim() and len(output) == count else output
    if isinstance(output, dict):
        return type(output)(**{name: instances(value, rows, count) for name, value in output.items()})
    if type(output) in (tuple, list):
        return type(output)(instances(value, rows, count) for value in output)
    return output
