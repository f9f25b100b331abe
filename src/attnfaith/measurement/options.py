"""Types of options that several measures share. A description completes "give …" in the message about a wrong value."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field


def at_least(least: int, meaning: str = "") -> object:
    """Return the type of a whole number from `least` on. meaning: of the number, for messages."""
    description = f"a whole number from {least} on{f': {meaning}' if meaning else ''}"
    return Annotated[int, Field(strict=True, ge=least, description=description)]


def number(description: str, **bounds: float) -> object:
    """Return the type of a finite number within bounds (gt, ge, lt, le)."""
    return Annotated[float, Field(strict=True, allow_inf_nan=False, description=description, **bounds)]


def increasing(values: list[float]) -> list[float]:
    """Return the list. Raise ValueError where it does not increase."""
    if sorted(set(values)) != list(values):
        raise ValueError("does not increase")
    return values


def different(values: list[float]) -> list[float]:
    """Return the list. Raise ValueError where a value comes twice."""
    if len(set(values)) < len(values):
        raise ValueError("a value comes twice")
    return values


Count = at_least(1)
Natural = at_least(0)
Positive = number("a positive number", gt=0)
Fraction = number("a number above 0 and below 1, such as 0.01", gt=0, lt=1)
Shares = Annotated[
    list[Fraction] | tuple[Fraction, ...],
    Field(min_length=1, description="increasing shares of the tokens, each above 0 and below 1, such as [0.1, 0.5]"),
    AfterValidator(increasing),
]
Epsilons = Annotated[
    list[Fraction] | tuple[Fraction, ...],
    Field(min_length=1, description="one or more different numbers above 0 and below 1, such as [0.01, 0.05]"),
    AfterValidator(different),
]
Draws = at_least(1, "how often to draw for each text")
Flag = Annotated[bool, Field(strict=True, description="True or False")]
Layer = Annotated[int, Field(strict=True, ge=0)]
Layers = Annotated[
    Literal["shown", "last", "all"] | list[Layer],
    Field(min_length=1, description="'shown', 'last', 'all' or a list of numbers of layers, from 0 on"),
]
StateLayer = Annotated[Literal["last"] | Layer, Field(description="'last' or the number of a layer, from 0 on")]
Inputs = Literal["layer", "table"]
Absent = Literal["deleted", "zero", "mask_token", "hidden"]
"""How tokens are taken away: from the ids, or by a zero embedding, the mask token, or masked attention."""
Baseline = Literal["zero", "padding", "mean"]
"""The embedding from which gradients are integrated: zeros, that of the padding token, the mean of the vocabulary's."""
Points = at_least(15, "the most points of a text; the smallest rule has 15")
Tolerance = number("the error that is allowed, as a share of the largest part: 0 or more", ge=0)
Output = Literal["logit", "probability", "log_odds"]
Class = Annotated[int, Field(strict=True, ge=0)]
Target = Annotated[
    Literal["predicted", "gold"] | Class | Mapping[Literal["of", "against"], Class],
    Field(description="'predicted', 'gold', the number of a class or {'of': class, 'against': another class}"),
]
