"""Reductions of the attention of many layers and heads to the one vector that a person is shown.

Shapes: B instances, H heads, L input positions.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from attnfaith.subjects.protocol import SubjectError


WAYS = ("mean", "rollout")


@dataclass(frozen=True)
class Reduction:
    """A named way from maps to weights over tokens, the mean of the rows that matter to the logits.

    way: "mean" of the chosen layers and heads; "rollout", the product over layers of (A + I) / 2, A the mean of a layer's
    heads (Abnar & Zuidema 2020). layers: "last", "all", or the number of one, counted from 0. head: the number of one, or
    None for the mean of them; both for "mean" alone.

    Raises SubjectError for another value.
    """

    way: str = "mean"
    layers: str | int = "last"
    head: int | None = None

    def __post_init__(self):
        if self.way not in WAYS:
            raise SubjectError(f"reduction {self.way!r} does not exist; choose one of {', '.join(WAYS)}")
        if self.layers not in ("last", "all") and not (type(self.layers) is int and self.layers >= 0):
            raise SubjectError(f"layers={self.layers!r}; give 'last', 'all', or the number of a layer from 0 on")
        if self.head is not None and not (type(self.head) is int and self.head >= 0):
            raise SubjectError(f"head={self.head!r}; give the number of a head from 0 on, or None for the mean of all")
        if self.way != "mean" and (self.layers, self.head) != ("last", None):
            raise SubjectError(f"reduction {self.way!r} takes all layers and heads: leave layers and head out")

    @classmethod
    def of(cls, value) -> "Reduction":
        """Return a Reduction as it is, or that of "last", "all", "rollout" or {"layers": …, "head": …, "way": …}."""
        names = {"last": cls(), "all": cls(layers="all"), "rollout": cls("rollout"), "mean": cls()}
        if isinstance(value, cls):
            return value
        if isinstance(value, dict) and set(value) <= {"way", "layers", "head"}:
            return cls(**value)
        if isinstance(value, str) and value in names:
            return names[value]
        raise SubjectError(
            f"attention={value!r} is no reduction; give 'last', 'all', 'rollout', or {{'layers': 'last', 'all' or a number, "
            "'head': a number}"
        )

    def chosen(self, count: int) -> list[int]:
        """The layers, of so many, that it reads. Raises SubjectError for a layer that does not exist."""
        if self.way != "mean" or self.layers == "all":
            return list(range(count))
        number = count - 1 if self.layers == "last" else self.layers
        if number >= count:
            raise SubjectError(f"there is no layer {number}; the model has {count}, counted from 0")
        return [number]

    def check(self, heads: Sequence[int], lacks: Mapping[str, str]) -> None:
        """Raise SubjectError for a layer or a head that a model does not have, and where its maps are not multiplied.

        heads: how many each layer has. lacks: the capabilities that the model does not have, and why.
        """
        for layer in self.chosen(len(heads)):
            if self.head is not None and self.head >= heads[layer]:
                raise SubjectError(f"there is no head {self.head}; layer {layer} has {heads[layer]}, counted from 0")
        if self.way != "mean" and "stacked maps" in lacks:
            raise SubjectError(
                f"'{self.way}' multiplies the attention of a layer with that of the next, and this model has no stack of "
                f"layers ({lacks['stacked maps']}): choose 'last', 'all' or one layer"
            )

    def __call__(self, maps: Sequence[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        """Weights (B,L) from the maps (B,H,L,L) of `chosen` layers, in order, and the rows (B,L) bool that matter.

        They are over all input positions, markers included; of an instance without a row that matters NaN.
        """
        layers = [heads.mean(1) if self.head is None else heads[:, self.head] for heads in maps]
        weights = sum(layers) / len(layers) if self.way == "mean" else rollout(layers)
        return (weights * rows.unsqueeze(2)).sum(1) / rows.sum(1, keepdim=True)


def rollout(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """The product over layers of (I + A) / 2, (B,L,L), of attentions A (B,L,L), the last one leftmost.

    Source: Abnar & Zuidema 2020, section 3.
    """
    identity = torch.eye(layers[0].shape[1], dtype=layers[0].dtype, device=layers[0].device)
    return functools.reduce(lambda whole, mixed: mixed @ whole, [(identity + layer) / 2 for layer in layers])
