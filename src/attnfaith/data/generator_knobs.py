"""What the generators of data with known evidence share: their splits, and the checks of their knobs by annotations."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, validate_call

from attnfaith.errors import DatasetError


STREAMS = {"train": 0, "validation": 1, "test": 2}
"""The random stream of each split."""


def _ordered(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError("give the least number first")
    return bounds


def _splits(names: list[str]) -> list[str]:
    if not set(names) <= set(STREAMS):
        raise ValueError(f"splits are {', '.join(STREAMS)}")
    return names


Number = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Bounds = Annotated[tuple[Positive, Positive], AfterValidator(_ordered)]
"""Least and greatest number of something, both included."""
Removed = Annotated[list[str] | tuple[str, ...], AfterValidator(_splits)]
"""Names of splits whose evidence is left out."""


def knobs(generate: Callable) -> Callable:
    """Check the arguments of a generator by its annotations; DatasetError names the first that is out of range."""
    names = list(inspect.signature(generate).parameters)
    checked = validate_call(generate, config=ConfigDict(allow_inf_nan=False))

    @functools.wraps(generate)
    def call(*arguments, **more):
        try:
            return checked(*arguments, **more)
        except ValidationError as refusal:
            error = refusal.errors(include_url=False)[0]
            place, *within = error["loc"]
            name = ".".join(map(str, [names[place] if isinstance(place, int) else place, *within]))
            raise DatasetError(f"{name}={error['input']!r}: {error['msg']}") from refusal

    return call


def is_removed(removed: Sequence[str], stream: int) -> bool:
    """Whether the evidence of this stream is left out."""
    return stream in [STREAMS[name] for name in removed]
