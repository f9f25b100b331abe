"""The knobs of generators of data with known evidence, checked by their annotations."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, validate_call

from attnfaith.support.errors import DatasetError


def _ordered(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError("give the least number first")
    return bounds


Number = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Bounds = Annotated[tuple[Positive, Positive], AfterValidator(_ordered)]
"""Least and greatest number of something, both included."""


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
            raise DatasetError(f"data.arguments.{name}={error['input']!r}: {error['msg']}") from refusal

    return call
