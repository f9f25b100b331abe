"""What the generators of data with exact evidence share: arguments checked by their annotations, and splits of rows."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, validate_call

from attnfaith.data.registry import SPLITS
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


def checked(generate: Callable) -> Callable:
    """Check the arguments of a generator by its annotations. DatasetError names the first that is out of range."""
    names = list(inspect.signature(generate).parameters)
    validated = validate_call(generate, config=ConfigDict(allow_inf_nan=False))

    @functools.wraps(generate)
    def call(*arguments, **options):
        try:
            return validated(*arguments, **options)
        except ValidationError as refusal:
            error = refusal.errors(include_url=False)[0]
            place, *within = error["loc"]
            name = ".".join(map(str, [names[place] if isinstance(place, int) else place, *within]))
            raise DatasetError(f"data.arguments.{name}={error['input']!r}: {error['msg']}") from refusal

    return call


def check_sizes(key: str, sizes: Mapping[str, int]) -> None:
    """Raise DatasetError for sizes or limits of unknown splits, and for those that are no positive whole numbers."""
    for split, size in sizes.items():
        if split not in SPLITS:
            raise DatasetError(f"{key} names the split {split!r}; there are {', '.join(SPLITS)}.")
        if type(size) is not int or size < 1:
            raise DatasetError(f"{key}[{split!r}] must be a positive number of rows; {size!r} was given.")


def generate_splits(
    name: str, generator: Callable, task: tuple, seed: int, arguments: Mapping, sizes: Mapping[str, int]
) -> dict[str, list[dict]]:
    """Return {split: rows} of a generator.

    task: the positional arguments before the number of rows. arguments: keyword arguments of the generator, and perhaps
    sizes={"train": 2000}, which replace those of `sizes`. Raises DatasetError for an argument that the generator lacks.
    """
    options = {key: value for key, value in arguments.items() if key != "sizes"}
    sizes = {**sizes, **arguments.get("sizes", {})}
    check_sizes("sizes", sizes)
    parameters = inspect.signature(generator).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    names.remove("stream")
    wrong = sorted(set(options).difference(names))
    if wrong:
        raise DatasetError(f"{name!r} does not know {wrong}; its arguments are sizes, {', '.join(names)}.")
    return {split: generator(*task, sizes[split], seed, stream=stream, **options) for stream, split in enumerate(SPLITS)}


def generated_revision(version: int, seed: int, arguments: Mapping) -> str:
    """Return how generated rows were made, in place of a revision."""
    settings = ",".join(f"{key}={value}" for key, value in sorted({**arguments, "seed": seed}.items()))
    return f"generated-{version}({settings})"
