"""One hook that reads and edits the attention of any Hugging Face model, layer by layer, within the graph.

A forward pass of a model set to "eager" attention is watched from outside, function by function. The result of a softmax is
followed, through dropout, casts, masks and reshaping, to the product in which it weighs values. There the weights are read
as the model uses them, with the values, and there they can be replaced. No architecture is named here, and nothing of a
model is copied or patched. The file also holds the edits that subjects use, and attention times its gradient.

Shapes: B instances, L input positions, T places of attention, H heads, Q queries, K keys, D the size of a head's values, C
classes.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle


SOFTMAX = frozenset({torch.softmax, torch.nn.functional.softmax, torch.Tensor.softmax, torch.special.softmax})
PRODUCTS = frozenset({torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm})
ALL = slice(None)
FUSED = torch.nn.functional.scaled_dot_product_attention
"""One function from queries, keys and values to outputs: its weights are never there to be read."""


@dataclass
class Map:
    """The attention of one layer as the model used it.

    number: its place in the order of the forward pass. weights (B,H,Q,K): what weighed the values, after every edit; of a
    model with attention sinks a row sums to less than 1. values (B,H,K,D). output (B,H,Q,D): their product, of each head.
    scores: the input of the softmax, in the model's own shape; None of texts that were read apart.

    Of a recorded layer (`layers.Recorded`): state and result (B,L,E), the input and the output of its module, None where
    layers are no modules; and the calls that follow the map, up to the next one or the end of the layer.
    """

    number: int
    weights: torch.Tensor
    values: torch.Tensor
    output: torch.Tensor
    scores: torch.Tensor | None = None
    state: torch.Tensor | None = None
    result: torch.Tensor | None = None
    calls: list = field(default_factory=list)


class Edit:
    """A change of a forward pass; a subclass overrides the methods for what it changes, or `changes` are functions in their
    place. Numbers are those of `Map`, or those of a decoder's layers from 0 on.

    per_copy: its tensors that have one entry for each instance, with their other axes: S input positions, N others.
    """

    per_copy: Mapping[str, str] = {}

    def __init__(self, **changes: Callable[[int, torch.Tensor], torch.Tensor]):
        vars(self).update(changes)

    def scores(self, number: int, scores: torch.Tensor) -> torch.Tensor:
        """Other scores for the softmax; `number` is that of the softmax, as `Hook.softmaxes` counts them."""
        return scores

    def weights(self, number: int, weights: torch.Tensor, rows: slice = ALL) -> torch.Tensor:
        """Other weights (B,H,Q,K), of the queries `rows` where a decoder makes them step by step."""
        return weights

    def values(self, number: int, values: torch.Tensor) -> torch.Tensor:
        """Other values (B,H,K,D)."""
        return values

    def output(self, attention_map: Map) -> torch.Tensor:
        """Another output (B,H,Q,D) of the heads of a map."""
        return attention_map.output

    def take(self, chosen: torch.Tensor, length: int | None = None) -> "Edit":
        """The edit for the instances `chosen`, cut to so many input positions; itself, where it is the same for all."""
        edit = copy.copy(self) if self.per_copy else self
        for name, axes in self.per_copy.items():
            setattr(edit, name, getattr(self, name)[(chosen, *(slice(length if axis == "S" else None) for axis in axes))])
        return edit


class Hook(TorchFunctionMode):
    """A context around one forward pass: within, the attention of a model is read, and edited.

    count: the number of instances that the model reads. edit: see `Edit`. keep: the numbers of the maps to keep; None keeps
    all. watch: the number of the map whose output `rows` needs; a graph is made from there on. A function that replaces
    softmax is recognised by an attribute `is_attention` that is true.

    maps: those that were kept. number, softmaxes, fused: how many maps, softmaxes and attentions in one piece there were.
    """

    def __init__(self, count: int, edit: Edit | None = None, keep: Collection[int] | None = None, watch: int | None = None):
        super().__init__()
        self.count, self.edit, self.keep, self.watch = count, edit or Edit(), keep, watch
        self.watched: torch.Tensor | None = None
        self.maps: list[Map] = []
        self.number = self.softmaxes = self.fused = 0
        self._tracked: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # tensors made from a softmax, with its scores

    def __enter__(self):
        self._graph = torch.is_grad_enabled()
        return super().__enter__()

    def __exit__(self, *error):
        self._tracked.clear()
        torch.set_grad_enabled(self._graph)
        return super().__exit__(*error)

    def rows(self, logits: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """(B,Q) bool: the rows of the watched map whose output the logits depend on, see `rows_that_matter`."""
        return rows_that_matter(logits, self.watched, attended)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in SOFTMAX or getattr(function, "is_attention", False):
            return self._softmax(function, args, kwargs)
        self.fused += function is FUSED
        if not self._tracked:
            return function(*args, **kwargs)
        if function in PRODUCTS and len(args) == 2 and id(args[0]) in self._tracked:
            return self._product(function, args, kwargs)
        if function is torch.einsum and len(args) == 3 and id(args[1]) in self._tracked:
            return self._einsum(args)
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dim() > 2:
            source = next((value for value in args if isinstance(value, torch.Tensor) and id(value) in self._tracked), None)
            if source is not None:
                self._tracked[id(result)] = (result, self._tracked[id(source)][1])
        return result

    def _softmax(self, function, args, kwargs):
        scores = args[0] if args else kwargs["input"]
        if scores.dim() not in (3, 4):
            return function(*args, **kwargs)
        edited = self.edit.scores(self.softmaxes, scores)
        result = function(edited, *args[1:], **{name: value for name, value in kwargs.items() if name != "input"})
        self._tracked[id(result)] = (result, edited)
        self.softmaxes += 1
        return result

    def _product(self, function, args, kwargs):
        tracked, values = weights, _ = args
        flat = weights.dim() == 3 and weights.shape[0] % self.count == 0  # instances times heads
        if flat:
            shape = self.count, weights.shape[0] // self.count
            weights, values = weights.unflatten(0, shape), values.unflatten(0, shape)
        output = self._weighed(tracked, weights, values)
        if output is None:
            return function(*args, **kwargs)
        return output.flatten(0, 1) if flat else output

    def _einsum(self, args):
        equation, weights, values = args
        inputs, _, result = equation.replace(" ", "").partition("->")
        weight_axes, value_axes = inputs.split(",")
        keys = [axis for axis in weight_axes if axis in value_axes and axis not in result]
        queries = [axis for axis in weight_axes if axis not in value_axes]
        sizes = [axis for axis in value_axes if axis not in weight_axes]
        shared = [axis for axis in weight_axes if axis in value_axes and axis in result]
        if (len(keys), len(queries), len(sizes), len(shared)) != (1, 1, 1, 2):
            return torch.einsum(*args)
        if weights.shape[weight_axes.index(shared[0])] != self.count:
            shared.reverse()
        (key,), (query,), (size,), (instance, head) = keys, queries, sizes, shared
        ordered_weights = torch.einsum(f"{weight_axes}->{instance}{head}{query}{key}", weights)
        ordered_values = torch.einsum(f"{value_axes}->{instance}{head}{key}{size}", values)
        output = self._weighed(weights, ordered_weights, ordered_values)
        if output is None:
            return torch.einsum(*args)
        return torch.einsum(f"{instance}{head}{query}{size}->{result}", output)

    def _weighed(self, tracked, weights, values):
        """The product (B,H,Q,D), read and edited; None where it is no attention over values."""
        if weights.dim() != 4 or values.dim() != 4 or weights.shape[0] != self.count:
            return None
        scores = self._tracked[id(tracked)][1]
        weights = self.edit.weights(self.number, weights).to(weights.dtype)
        values = self.edit.values(self.number, values.expand(-1, weights.shape[1], -1, -1))  # heads may share theirs
        attention_map = Map(self.number, weights, values, torch.matmul(weights, values), scores)
        attention_map.output = self.edit.output(attention_map)
        if self.number == self.watch:
            torch.set_grad_enabled(True)
            output = attention_map.output
            self.watched = output if output.requires_grad else output.detach().requires_grad_()
            attention_map.output = self.watched.clone()  # what a model may add to in place
        if self.keep is None or self.number in self.keep:
            self.maps.append(attention_map)
        self.number += 1
        # the tensors made from this softmax are no longer needed: else they would be held to the end of the pass
        self._tracked = {key: pair for key, pair in self._tracked.items() if pair[1] is not scores}
        return attention_map.output


def widened(values: torch.Tensor) -> torch.Tensor:
    """The same numbers in float32 where they have 16 bits, so that their sums are rounded as those of float32."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


class Embedded(TorchFunctionMode):
    """A context: within, a table of embeddings gives others (B,L,E) for these ids (B,L), and gradients reach them.

    table: the weight that is looked up. A module scales the others as it scales its rows. A decoder that reads the ids one
    place later reads the others one place later, behind the embedding of its start token.
    """

    def __init__(self, table: torch.Tensor, ids: torch.Tensor, embedded: torch.Tensor):
        super().__init__()
        self.table, self.ids, self.embedded = table, ids, embedded

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is not torch.nn.functional.embedding or len(args) < 2 or args[1] is not self.table:
            return result
        ids, embedded = args[0], self.embedded.to(result.dtype, copy=True)  # some scale it in place
        if torch.equal(ids, self.ids):
            return embedded
        if torch.equal(ids, self.ids.T):
            return embedded.transpose(0, 1)
        if ids.shape == self.ids.shape and torch.equal(ids[:, 1:], self.ids[:, :-1]):
            return torch.cat([result[:, :1], embedded[:, :-1]], 1)
        return result


def lengths_of(mask: torch.Tensor) -> torch.Tensor:
    """(B,): the places up to the last that is attended to, at least 1."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.bool() * places).amax(1).clamp(min=1)


class Read(NamedTuple):
    """A forward pass of a batch: logits (B,C); maps over input positions, first layer first, 0 behind shorter texts; rows
    (B,L), those of the last layer that matter, None where they were not asked for.
    """

    logits: torch.Tensor
    maps: list[Map]
    rows: torch.Tensor | None = None


HELD = Edit(weights=lambda number, weights: weights.detach())
"""Attention that no gradient flows through."""
LEAVES = Edit(weights=lambda number, weights: weights if weights.requires_grad else weights.detach().requires_grad_())
"""Weights that gradients can be taken of."""


def silence(layer: int) -> Edit:
    """All weights of a layer are 0: a change whatever they were, also where a row has a weight of 1."""
    return Edit(weights=lambda number, weights: torch.zeros_like(weights) if number == layer else weights)


class Watching(Edit):
    """An edit that is a context around one forward pass: within, modules have the hooks that `watch` registers."""

    watch: Callable[[], Iterator[RemovableHandle]]

    def __enter__(self):
        self._handles = [*self.watch()]
        return self

    def __exit__(self, *error):
        for handle in self._handles:
            handle.remove()


class Named(Watching):
    """`calls`: where each map is made, the name of a module and the number of its call among all calls."""

    def __init__(self, model):
        self.model, self.calls, self._within, self._count = model, [], [], 0

    def weights(self, number, weights):
        self.calls.append(self._within[-1])
        return weights

    def watch(self):
        for name, module in self.model.named_modules():
            yield module.register_forward_pre_hook(lambda *args, name=name: self._enter(name))
            yield module.register_forward_hook(self._leave, always_call=True)

    def _enter(self, name: str) -> None:
        self._count += 1
        self._within.append((name, self._count))

    def _leave(self, *args) -> None:
        self._within.pop()


def rows_that_matter(logits: torch.Tensor, output: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    """The rows (B,Q) bool of an attention's output (B,H,Q,D) from which a path leads to the logits (B,C).

    attended (B,Q): the mask that the model was given. Slopes of NaN go back from the logits and reach every row with a path
    to them, for no rounding, cancelling sum or tanh of exactly 1 stops NaN. A model may multiply what is not attended to by
    0, so such a row's own slope must not be 0 either.
    """
    weights = torch.linspace(1, 2, logits.shape[1], dtype=logits.dtype, device=logits.device)  # not all alike
    own, reached = (
        torch.autograd.grad([logits], [output], [seed], retain_graph=True, allow_unused=True, materialize_grads=True)[0]
        for seed in (weights.expand_as(logits), torch.full_like(logits, torch.nan))
    )
    return reached.isnan().any(3).any(1) & (attended.bool() | (own != 0).any(3).any(1))


def joined(parts: Sequence[Read], groups: Sequence[tuple[torch.Tensor, int]], width: int) -> Read:
    """Readings of the groups (rows, length) of a batch as one of the whole batch, `width` positions wide."""
    back = torch.cat([rows for rows, _ in groups]).argsort()

    def whole(tensors: Sequence[torch.Tensor], *ends: int) -> torch.Tensor:
        """Padded behind the axes, last axis first, that have a 1 in every second of `ends`."""
        missing = [width - length for _, length in groups]
        padded = [torch.nn.functional.pad(t, [end * m for end in ends]) for t, m in zip(tensors, missing, strict=True)]
        return torch.cat(padded)[back]

    maps = []
    for same in zip(*(part.maps for part in parts), strict=True):
        weights = whole([part.weights for part in same], 0, 1, 0, 1)
        values, outputs = (whole([getattr(part, name) for part in same], 0, 0, 0, 1) for name in ("values", "output"))
        maps.append(Map(same[0].number, weights, values, outputs))
    rows = None if parts[0].rows is None else whole([part.rows for part in parts], 0, 1)
    return Read(torch.cat([part.logits for part in parts])[back], maps, rows)


Target = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(logits (n,C), rows (n,)) → the number (n,) that is explained of each of the instances `rows`."""


def map_products(subject, batch, target: Target, layers: Sequence[int]) -> Iterator[tuple]:
    """The weights of some layers, counted from 0, times the slopes in them of what is explained.

    Yields, of instances that are read together: their numbers (n,), their length, the rows (n,length) bool of the last layer
    that the logits depend on, and the products (n,H,length,length) of each layer, in float64, one after the other.
    """
    numbers = {subject.sites.layers[layer] for layer in layers}
    for rows, length in subject.groups(batch):
        with torch.enable_grad():
            read = subject.read(batch.take(rows, length), LEAVES, keep=numbers, rows=True)
            weights = [attention_map.weights for attention_map in read.maps]
            value = target(read.logits, rows).sum()
            slopes = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
        products = (weight.detach().double() * slope.double() for weight, slope in zip(weights, slopes, strict=True))
        yield rows, length, read.rows, products


def products_of_intervention(subject, batch, target: Target) -> torch.Tensor:
    """(B,T): a df/da of the subject's attention, states held fixed and each weight a free variable."""
    attention = subject.attention(batch)
    rows = torch.arange(len(attention), device=attention.device)
    with torch.enable_grad():
        weights = attention.detach().requires_grad_()
        f = target(subject.intervene(batch, weights), rows)
        slopes = torch.zeros_like(weights)
        if f.requires_grad:  # an empty batch of places depends on nothing
            slopes = torch.autograd.grad(f.sum(), [weights], materialize_grads=True)[0]
    return torch.where(attention == 0, 0.0, attention.double() * slopes.double()).detach()
