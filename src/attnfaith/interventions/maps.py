"""What experiments on attention maps share: which layers and rows are changed, which weights of a row, what is said then.

Shapes: B instances, N copies of instances, L input positions, H heads, C classes.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from attnfaith.subjects import Batch, Subject
from attnfaith.subjects.attention import Edit
from attnfaith.subjects.prefix import Prefix


LAYERS = ("shown", "last", "all")
ROWS = ("all", "matter")
MASKED = -5000.0
"""A score that is lower is a mask's: what models add for what must not be seen is -10,000 and less."""
PASSES = 3  # of a batch, from which on it pays to know what comes before the edits


def check_layers(layers: str | Sequence[int], rows: str = "all") -> None:
    """Raises ValueError unless layers is one of LAYERS or different numbers from 0 on, and rows one of ROWS."""
    numbers = isinstance(layers, list | tuple) and len(layers) > 0 and len(set(map(str, layers))) == len(layers)
    numbers = numbers and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in layers)
    if not numbers and not (isinstance(layers, str) and layers in LAYERS):
        raise ValueError(f"layers={layers!r}; give one of {', '.join(LAYERS)}, or a list of numbers of layers from 0 on")
    if rows not in ROWS:
        raise ValueError(f"rows={rows!r}; give one of {', '.join(ROWS)}")


def chosen_layers(subject: Subject, layers: str | Sequence[int]) -> list[int]:
    """The layers that are changed, first to last, by their numbers from 0 on; "shown": those that the reduction takes.

    Raises ValueError for one that the model does not have.
    """
    count = len(subject.sites.layers)
    if layers == "shown":
        return sorted(subject.reduction.chosen(count))
    if isinstance(layers, str):
        return [count - 1] if layers == "last" else list(range(count))
    if missing := [layer for layer in layers if layer >= count]:
        raise ValueError(f"layers={list(layers)}: there is no layer {missing[0]}; the model has {count}, counted from 0")
    return sorted(layers)


class Changed(Edit):
    """Other weights in the rows of some layers, of all their heads. Subclasses say which, by `row`.

    numbers: those of the maps. inside (N,L): places of the text's tokens. rows (N,L): the rows that are changed, None for
    all. per_copy: what else there is of each copy, (N,L) each.
    """

    per_copy: tuple[str, ...] = ()

    def __init__(self, numbers: Sequence[int], inside: torch.Tensor, rows: torch.Tensor | None = None):
        self.numbers, self.inside, self.rows = frozenset(numbers), inside, rows
        self._scores: torch.Tensor | None = None

    def take(self, chosen, length):
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        for name in ("inside", "rows", *self.per_copy):
            values = getattr(self, name)
            setattr(other, name, None if values is None else values[chosen, :length])
        return other

    def scores(self, number, scores):
        self._scores = scores
        return scores

    def weights(self, number, weights):
        if number not in self.numbers:
            return weights
        other = self.row(weights, self._reach(weights))
        return other if self.rows is None else torch.where(self.rows[:, None, :, None], other, weights)

    def row(self, weights: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
        """Other weights (N,H,Q,L) in place of these, for all rows; reach (N,1,Q,L): what a row may look at."""
        raise NotImplementedError

    def _reach(self, weights: torch.Tensor) -> torch.Tensor:
        """What no mask hides. A weight of 0 tells that alone where scores say nothing."""
        scores = self._scores
        if scores.numel() == weights.numel():
            scores = scores.reshape(weights.shape)
        elif scores.shape[:-1] == weights.shape[:-1]:  # a model with attention sinks
            scores = scores[..., : weights.shape[-1]]
        else:
            return (weights > 0).any(1, keepdim=True)
        return ((weights > 0) | (scores > MASKED)).any(1, keepdim=True)


class Asked:
    """A batch under edits of some layers; what comes before them is computed once, where much is asked.

    numbers: of the maps of these layers. inside (B,L): the tokens of the texts; rows (B,L): those that are changed, None for
    all.
    """

    def __init__(self, subject: Subject, batch: Batch, layers: str | Sequence[int], rows: str = "all"):
        chosen = chosen_layers(subject, layers)
        self.subject, self.batch, self.first = subject, batch, chosen[0]
        self.numbers = [subject.sites.layers[layer] for layer in chosen]
        self.inside = subject.attendable(batch)
        self.rows = subject.matter(batch) if rows == "matter" else None

    @cached_property
    def prefix(self) -> Prefix | None:
        """See `SelfAttention.prefix`."""
        return self.subject.prefix(self.batch, self.first)

    def edit(self, kind: type[Changed], owner: torch.Tensor, *given) -> Changed:
        """An edit of the copies `owner` (N,)."""
        rows = None if self.rows is None else self.rows[owner]
        return kind(self.numbers, self.inside[owner], rows, *given)

    @torch.no_grad()
    def logits(self, owner: torch.Tensor, edit: Edit) -> torch.Tensor:
        """Logits (N,C) in float64 of the copies `owner` (N,) under an edit of these."""
        several = len(owner) > PASSES * len(self.inside)
        return self.subject.edited(self.batch, owner, edit, self.prefix if several else None).double()

    def places(self, row: int) -> np.ndarray:
        """(T,): where the tokens of an instance are."""
        return np.flatnonzero(self.inside[row].cpu().numpy())
