"""One hook that reads and edits the attention of any Hugging Face model, layer by layer, within the graph.

A forward pass of a model set to "eager" attention is watched from outside, function by function. What a softmax returns is
followed, through dropout, casts, masks and reshaping, to the product in which it weighs values: there the weights are read
as the model uses them, with the values that they weigh, and there they can be replaced. So nothing is known of any
architecture, and nothing of a model is copied or patched.

Shapes: B instances, H heads, Q queries, K keys, D the size of a head's values.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.overrides import TorchFunctionMode


SOFTMAX = frozenset({torch.softmax, torch.nn.functional.softmax, torch.Tensor.softmax, torch.special.softmax})
PRODUCTS = frozenset({torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm})
FUSED = torch.nn.functional.scaled_dot_product_attention
"""One function from queries, keys and values to outputs: its weights are never there to be read."""


@dataclass(frozen=True)
class Map:
    """The attention of one layer as the model used it.

    number: its place in the order of the forward pass. weights (B,H,Q,K): what weighed the values, after every edit; of a
    model with attention sinks a row sums to less than 1. values (B,H,K,D). output (B,H,Q,D): their product, what a head puts
    out. scores: what the softmax was given, in the model's own shape.
    """

    number: int
    weights: torch.Tensor
    values: torch.Tensor
    output: torch.Tensor
    scores: torch.Tensor


class Edit:
    """What is changed of a forward pass; a subclass overrides what it changes. Numbers are those of `Map`."""

    def scores(self, number: int, scores: torch.Tensor) -> torch.Tensor:
        """What the softmax is given instead; `number` is that of the softmax, as `Hook.softmaxes` counts them."""
        return scores

    def weights(self, number: int, weights: torch.Tensor) -> torch.Tensor:
        """Other weights (B,H,Q,K)."""
        return weights

    def values(self, number: int, values: torch.Tensor) -> torch.Tensor:
        """Other values (B,H,K,D)."""
        return values

    def output(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """Another output (B,H,Q,D) of the heads."""
        return output

    def take(self, rows: torch.Tensor, length: int) -> "Edit":
        """The edit of the instances `rows`, cut to `length` positions; itself, where it is of none in particular."""
        return self


class Hook(TorchFunctionMode):
    """A context: within, the forward pass of a model is read, and edited. One context for one pass.

    count: instances that the model reads. edit: see `Edit`. keep: which maps are kept, by number; all by default. A function
    that takes the place of softmax, called as it is, is known by an attribute `is_attention` that is true.

    maps: the maps that were kept, in order. number: how many maps there were. softmaxes, fused: how many calls of a softmax,
    and of attention in one piece, there were.
    """

    def __init__(self, count: int, edit: Edit | None = None, keep: Callable[[int], bool] = lambda number: True):
        super().__init__()
        self.count, self.edit, self.keep = count, edit or Edit(), keep
        self.maps: list[Map] = []
        self.number = self.softmaxes = self.fused = 0
        self._tracked: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # tensors that come of a softmax, with its scores

    def __exit__(self, *error):
        self._tracked.clear()
        return super().__exit__(*error)

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
            source = next((one for one in args if isinstance(one, torch.Tensor) and id(one) in self._tracked), None)
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
        weights, values = args
        if weights.dim() == 3 and weights.shape[0] % self.count == 0:  # instances times heads
            shape = self.count, weights.shape[0] // self.count
            output = self._weighed(weights, weights.unflatten(0, shape), values.unflatten(0, shape))
            return function(*args, **kwargs) if output is None else output.flatten(0, 1)
        output = self._weighed(weights, weights, values)
        return function(*args, **kwargs) if output is None else output

    def _einsum(self, args):
        equation, weights, values = args
        inputs, _, result = equation.replace(" ", "").partition("->")
        of_weights, of_values = inputs.split(",")
        summed = [letter for letter in of_weights if letter in of_values and letter not in result]
        own = [letter for letter in of_weights if letter not in of_values]
        size = [letter for letter in of_values if letter not in of_weights]
        shared = [letter for letter in of_weights if letter in of_values and letter in result]
        if not (len(summed) == len(own) == len(size) == 1 and len(shared) == 2):
            return torch.einsum(*args)
        if weights.shape[of_weights.index(shared[0])] != self.count:
            shared.reverse()
        (key,), (query,), (width,) = summed, own, size
        straight = "".join(shared)
        first = torch.einsum(f"{of_weights}->{straight}{query}{key}", weights)
        second = torch.einsum(f"{of_values}->{straight}{key}{width}", values)
        output = self._weighed(weights, first, second)
        if output is None:
            return torch.einsum(*args)
        return torch.einsum(f"{straight}{query}{width}->{result}", output)

    def _weighed(self, tracked, weights, values):
        """The product (B,H,Q,D), read and edited; None where it is no attention over values."""
        if weights.dim() != 4 or values.dim() != 4 or weights.shape[0] != self.count:
            return None
        scores = self._tracked[id(tracked)][1]
        weights = self.edit.weights(self.number, weights)
        values = self.edit.values(self.number, values.expand(-1, weights.shape[1], -1, -1))  # heads may share theirs
        output = self.edit.output(self.number, torch.matmul(weights, values))
        if self.keep(self.number):
            self.maps.append(Map(self.number, weights, values, output, scores))
        self.number += 1
        # what came of this softmax has served; so tensors are not held to the end of the pass
        self._tracked = {key: kept for key, kept in self._tracked.items() if kept[1] is not scores}
        return output


class Embedded(TorchFunctionMode):
    """A context: within, a table of embeddings gives others (B,L,E) for these ids (B,L), and gradients reach them.

    table: the weight that is looked up, by any module that shares it. What a module does to its rows, such as scaling, is
    done to the given ones too. A decoder that reads the ids one place later reads them so; what it puts before the first is
    looked up.
    """

    def __init__(self, table: torch.Tensor, ids: torch.Tensor, embedded: torch.Tensor):
        super().__init__()
        self.table, self.ids, self.embedded = table, ids, embedded

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is not torch.nn.functional.embedding or len(args) < 2 or args[1] is not self.table:
            return result
        asked, ids = args[0], self.ids
        if asked.shape == ids.shape and torch.equal(asked, ids):
            return self.embedded.to(result.dtype, copy=True)  # some scale it in place
        if asked.shape == ids.T.shape and torch.equal(asked, ids.T):
            return self.embedded.to(result.dtype, copy=True).transpose(0, 1)
        if asked.shape == ids.shape and torch.equal(asked[:, 1:], ids[:, :-1]):
            return torch.cat([result[:, :1], self.embedded[:, :-1].to(result.dtype)], 1)
        return result
