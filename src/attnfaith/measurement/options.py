"""The types of options that several measures share. Each description completes "give …" in the message about a wrong
value.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field


def at_least(least: int, what: str = "") -> object:
    """The type of a whole number from `least` on. what: what it is the number of."""
    description = f"a whole number from {least} on{f': {what}' if what else ''}"
    return Annotated[int, Field(strict=True, ge=least, description=description)]


def number(description: str, **bounds: float) -> object:
    """The type of a finite number within bounds (gt, ge, lt, le)."""
    return Annotated[float, Field(strict=True, allow_inf_nan=False, description=description, **bounds)]


Draws = at_least(1, "how often to draw for each text")
Flag = Annotated[bool, Field(strict=True, description="True or False")]
Layer = Annotated[int, Field(strict=True, ge=0)]
Layers = Annotated[
    Literal["shown", "last", "all"] | list[Layer],
    Field(min_length=1, description="'shown', 'last', 'all' or a list of numbers of layers, from 0 on"),
]
Rows = Literal["all", "matter"]
Absent = Literal["deleted", "retokenised", "mask_token", "hidden"]
"""How a token is taken away: from the text, from its characters, by the mask token, or from attention."""
Output = Literal["logit", "probability", "log_odds"]
Class = Annotated[int, Field(strict=True, ge=0)]
Target = Annotated[
    Literal["predicted", "gold"] | Class | Mapping[Literal["of", "against"], Class],
    Field(description="'predicted', 'gold', the number of a class or {'of': class, 'against': another class}"),
]
