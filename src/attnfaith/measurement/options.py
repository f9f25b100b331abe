"""Types of options that several measures share; pydantic checks the values."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field


def at_least(least: int) -> object:
    """Return the type of a whole number from `least` on."""
    return Annotated[int, Field(strict=True, ge=least)]


def number(**bounds: float) -> object:
    """Return the type of a finite number within bounds (gt, ge, lt, le)."""
    return Annotated[float, Field(strict=True, allow_inf_nan=False, **bounds)]


def increasing(values: list[float]) -> list[float]:
    """Return the list. Raise ValueError where it does not increase."""
    if sorted(set(values)) != list(values):
        raise ValueError("the numbers should increase")
    return values


def different(values: list[float]) -> list[float]:
    """Return the list. Raise ValueError where a value comes twice."""
    if len(set(values)) < len(values):
        raise ValueError("a value comes twice")
    return values


Count = Draws = at_least(1)
Natural = at_least(0)
Positive = number(gt=0)
Fraction = number(gt=0, lt=1)
Shares = Annotated[list[Fraction] | tuple[Fraction, ...], Field(min_length=1), AfterValidator(increasing)]
"""Increasing shares of the tokens."""
Epsilons = Annotated[list[Fraction] | tuple[Fraction, ...], Field(min_length=1), AfterValidator(different)]
Layers = Annotated[Literal["shown", "last", "all"] | list[Natural], Field(min_length=1)]
StateLayer = Literal["last"] | Natural
Inputs = Literal["layer", "table"]
Absent = Literal["deleted", "zero", "mask_token", "hidden"]
"""How tokens are taken away: from the ids, or by a zero embedding, the mask token, or masked attention."""
Baseline = Literal["zero", "padding", "mean"]
"""The embedding from which gradients are integrated: zeros, that of the padding token, the mean of the vocabulary's."""
Points = at_least(15)
"""The most points of a text; the smallest rule has 15."""
Tolerance = number(ge=0)
"""The error that is allowed, as a share of the largest part."""
Output = Literal["logit", "probability", "log_odds"]
Target = Literal["predicted", "gold"] | Natural | Mapping[Literal["of", "against"], Natural]
