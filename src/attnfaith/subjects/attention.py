"""One hook that reads and edits the attention of any Hugging Face model, layer by layer, within the graph.

A forward pass of a model set to "eager" attention is watched from outside, function by function. The result of a softmax is
followed, through dropout, casts, masks and reshaping, to the product in which it weighs values. There the weights are read
as the model uses them, with the values, and there they can be replaced. No architecture is named here, and nothing of a
model is copied or patched. The file also holds attention times its gradient, and reductions of all maps to the one vector
that a person is shown.

Shapes: B instances, L input positions, T places of attention, H heads, Q queries, K keys, D the size of a head's values, C
classes.
"""

import copy
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import pydantic.dataclasses
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from attnfaith.subjects.protocol import SubjectError


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
    scores: the input of the softmax, in the model's own shape; None where texts were read in groups. Of a recorded layer
    (`layers.Recorded`): state and result (B,L,E), the input and the output of its module, if it has one; and the calls that
    follow the map, up to the next one or the end of the layer.
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
    place. Numbers are those of `Map`; a recurrent decoder's attention is 0.

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


class Read(NamedTuple):
    """A forward pass of a batch: logits (B,C); maps over input positions, first layer first, 0 behind shorter texts; rows
    (B,L), those of the last layer that matter, None where they were not asked for; fused, the number of attentions that were
    computed in one piece.
    """

    logits: torch.Tensor
    maps: list[Map]
    rows: torch.Tensor | None = None
    fused: int = 0


class Hook(TorchFunctionMode):
    """A context around one forward pass: within, the attention of a model is read, and edited.

    count: the number of instances that the model reads. edit: see `Edit`. keep: the numbers of the maps to keep; None keeps
    all. watch: the number of the map whose output is `watched`; a graph is made from there on. start: the number of the
    first map. A function that replaces softmax is recognised by an attribute `is_attention` that is true.

    maps: those that were kept. number, softmaxes, fused: how many maps, softmaxes and attentions in one piece there were.
    """

    def __init__(
        self, count: int, edit: Edit | None = None, keep: Collection[int] | None = None, watch=None, start: int = 0
    ):
        super().__init__()
        self.count, self.edit, self.keep, self.watch = count, edit or Edit(), keep, watch
        self.watched: torch.Tensor | None = None
        self.maps: list[Map] = []
        self.number, self.softmaxes, self.fused = start, 0, 0
        self._tracked: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # tensors made from a softmax, with its scores

    def __enter__(self):
        self._graph = torch.is_grad_enabled()
        return super().__enter__()

    def __exit__(self, *error):
        self._tracked.clear()
        torch.set_grad_enabled(self._graph)
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in SOFTMAX or getattr(function, "is_attention", False):
            return self._softmax(function, args, kwargs)
        self.fused += function is FUSED
        if not self._tracked:
            return function(*args, **kwargs)
        result = None
        if function in PRODUCTS and len(args) == 2 and id(args[0]) in self._tracked:
            result = self._product(*args)
        elif function is torch.einsum and len(args) == 3 and id(args[1]) in self._tracked:
            result = self._einsum(*args)
        if result is not None:
            return result
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

    def _product(self, weights, values):
        """The product, read and edited; None where it is no attention over values."""
        if weights.dim() == 3 and weights.shape[0] % self.count == 0:  # instances times heads
            shape = self.count, weights.shape[0] // self.count
            output = self._weighed(weights, weights.unflatten(0, shape), values.unflatten(0, shape))
            return output if output is None else output.flatten(0, 1)
        return self._weighed(weights, weights, values)

    def _einsum(self, equation, weights, values):
        inputs, _, result = equation.replace(" ", "").partition("->")
        weight_axes, value_axes = inputs.split(",")
        key = "".join(axis for axis in weight_axes if axis in value_axes and axis not in result)
        query = "".join(axis for axis in weight_axes if axis not in value_axes)
        size = "".join(axis for axis in value_axes if axis not in weight_axes)
        shared = "".join(axis for axis in weight_axes if axis in value_axes and axis in result)
        if (len(key), len(query), len(size), len(shared)) != (1, 1, 1, 2):
            return None
        if weights.shape[weight_axes.index(shared[0])] != self.count:
            shared = shared[::-1]  # instance, head
        ordered_weights = torch.einsum(f"{weight_axes}->{shared}{query}{key}", weights)
        ordered_values = torch.einsum(f"{value_axes}->{shared}{key}{size}", values)
        output = self._weighed(weights, ordered_weights, ordered_values)
        return output if output is None else torch.einsum(f"{shared}{query}{size}->{result}", output)

    def _weighed(self, tracked, weights, values):
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
        self.model, self.calls, self._within = model, [], []

    def weights(self, number, weights):
        self.calls.append(self._within[-1])
        return weights

    def watch(self):
        count = itertools.count()
        for name, module in self.model.named_modules():
            yield module.register_forward_pre_hook(lambda *args, name=name: self._within.append((name, next(count))))
            yield module.register_forward_hook(lambda *args: self._within.__delitem__(-1), always_call=True)


def rows_that_matter(logits: torch.Tensor, output: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    """The rows (B,Q) bool of an attention's output (B,H,Q,D) from which a path leads to the logits (B,C).

    Slopes of NaN go back from the logits and reach every row with a path to them, for no rounding, cancelling sum or tanh of
    exactly 1 stops NaN. A model may multiply what its mask `attended` (B,Q) hides by 0, so such a row's own slope must not
    be 0 either.
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
        pairs = zip(tensors, groups, strict=True)
        padded = [torch.nn.functional.pad(t, [end * (width - length) for end in ends]) for t, (_, length) in pairs]
        return torch.cat(padded)[back]

    ends = {"weights": (0, 1, 0, 1), "values": (0, 0, 0, 1), "output": (0, 0, 0, 1)}
    maps = []
    for same in zip(*(part.maps for part in parts), strict=True):
        tensors = {name: whole([getattr(part, name) for part in same], *axes) for name, axes in ends.items()}
        maps.append(Map(same[0].number, **tensors))
    rows = None if parts[0].rows is None else whole([part.rows for part in parts], 0, 1)
    return Read(torch.cat([part.logits for part in parts])[back], maps, rows)


def map_products(subject, batch, explain: Callable, layers: Sequence[int]) -> Iterator[tuple]:
    """The weights of some layers, counted from 0, times the slopes in them of explain(logits (n,C), rows (n,)) -> (n,).

    Yields, of instances that are read together: their numbers (n,), their length, the rows (n,length) bool of the last layer
    that the logits depend on, and the products (n,H,length,length) of each layer, in float64, one after the other.
    """
    numbers = {subject.sites.layers[layer] for layer in layers}
    for rows, length in subject.groups(batch):
        with torch.enable_grad():
            read = subject.read(batch.take(rows, length), LEAVES, keep=numbers, rows=True)
            weights = [attention_map.weights for attention_map in read.maps]
            value = explain(read.logits, rows).sum()
            slopes = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
        products = (weight.detach().double() * slope.double() for weight, slope in zip(weights, slopes, strict=True))
        yield rows, length, read.rows, products


REDUCTIONS = {"last": {}, "all": {"layers": "all"}, "rollout": {"way": "rollout"}}
"""The fields of reductions that have a name."""
Number = Annotated[int, pydantic.Field(strict=True, ge=0)]


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class Reduction:
    """A named way from maps to weights over tokens, the mean of the rows that matter to the logits.

    way: "mean" of the chosen layers and heads; "rollout", the product over layers of (A + I) / 2, A the mean of a layer's
    heads (Abnar & Zuidema 2020). layers: "last", "all", or a number from 0 on. head: a number from 0 on, or None for the
    mean of them; both for "mean" alone.
    """

    way: Literal["mean", "rollout"] = "mean"
    layers: Literal["last", "all"] | Number = "last"
    head: Number | None = None

    def __post_init__(self):
        if self.way == "rollout" and (self.layers, self.head) != ("last", None):
            raise ValueError("'rollout' takes all layers and heads")

    @classmethod
    def of(cls, value) -> "Reduction":
        """Return a Reduction as it is, or that of "last", "all", "rollout" or {"layers": …, "head": …, "way": …}."""
        try:
            return value if isinstance(value, cls) else cls(**(REDUCTIONS[value] if isinstance(value, str) else value))
        except (KeyError, TypeError, ValueError) as error:
            raise SubjectError(
                f"attention={value!r} is no reduction; give 'last', 'all', 'rollout', or {{'layers': 'last', 'all' or a "
                "number, 'head': a number}, both from 0 on"
            ) from error

    def chosen(self, count: int) -> list[int]:
        """The layers, of so many, that it reads. Raises SubjectError for a layer that does not exist."""
        if self.way != "mean" or self.layers == "all":
            return list(range(count))
        number = count - 1 if self.layers == "last" else self.layers
        if number >= count:
            raise SubjectError(f"there is no layer {number}; the model has {count}, counted from 0")
        return [number]

    def check(self, heads: Sequence[int], lacks: Mapping[str, str]) -> None:
        """Raise SubjectError for a layer, or one of so many `heads`, that a model does not have, and for what it `lacks`."""
        for layer in self.chosen(len(heads)):
            if self.head is not None and self.head >= heads[layer]:
                raise SubjectError(f"there is no head {self.head}; layer {layer} has {heads[layer]}, counted from 0")
        if self.way != "mean" and "stacked maps" in lacks:
            raise SubjectError(
                f"'{self.way}' multiplies the attention of a layer with that of the next, and this model has no stack of "
                f"layers ({lacks['stacked maps']}): choose 'last', 'all' or one layer"
            )

    def __call__(self, maps: Sequence[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        """Weights (B,L) over all input positions from the maps (B,H,L,L) of `chosen` layers, in order, and the rows (B,L)
        bool that matter; of an instance without such a row NaN.
        """
        layers = [heads.mean(1) if self.head is None else heads[:, self.head] for heads in maps]
        if self.way == "mean":
            weights = sum(layers) / len(layers)
        else:
            identity = torch.eye(layers[0].shape[1], dtype=layers[0].dtype, device=layers[0].device)
            weights = functools.reduce(lambda whole, mixed: mixed @ whole, [(identity + layer) / 2 for layer in layers])
        return (weights * rows.unsqueeze(2)).sum(1) / rows.sum(1, keepdim=True)
