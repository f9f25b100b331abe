"""Reductions of the attention of many layers and heads to the one vector that a person is shown.

Shapes: B instances, H heads, L input positions.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from attnfaith.subjects.protocol import SubjectError


NAMED = {"last": {}, "mean": {}, "all": {"layers": "all"}, "rollout": {"way": "rollout"}}
"""The fields of reductions that have a name."""
Number = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Reduction:
    """A named way from maps to weights over tokens, the mean of the rows that matter to the logits.

    way: "mean" of the chosen layers and heads; "rollout", the product over layers of (A + I) / 2, A the mean of a layer's
    heads (Abnar & Zuidema 2020). layers: "last", "all", or the number of one, counted from 0. head: the number of one, or
    None for the mean of them; both for "mean" alone.
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
            return value if isinstance(value, cls) else cls(**(NAMED[value] if isinstance(value, str) else value))
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
        if self.way == "mean":
            weights = sum(layers) / len(layers)
        else:
            identity = torch.eye(layers[0].shape[1], dtype=layers[0].dtype, device=layers[0].device)
            weights = functools.reduce(lambda whole, mixed: mixed @ whole, [(identity + layer) / 2 for layer in layers])
        return (weights * rows.unsqueeze(2)).sum(1) / rows.sum(1, keepdim=True)
