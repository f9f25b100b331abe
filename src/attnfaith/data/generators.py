"""What the generators of data with exact evidence share: types of their arguments, and splits of rows.

Each makes n rows. A row depends on `seed`, `stream` (which tells splits of one seed apart), its index and the other
arguments only: more rows never change the earlier ones. An argument out of range raises pydantic's ValidationError.
"""

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
checked = validate_call(config=ConfigDict(allow_inf_nan=False))
"""Decorator that checks the arguments of a generator by their types."""


def check_sizes(key: str, sizes: Mapping[str, int]) -> None:
    """Raise DatasetError for sizes or limits of unknown splits, and for those that are no positive whole numbers."""
    for split, size in sizes.items():
        if split not in SPLITS:
            raise DatasetError(f"{key} names the split {split!r}; there are {', '.join(SPLITS)}.")
        if type(size) is not int or size < 1:
            raise DatasetError(f"{key}[{split!r}] must be a positive number of rows; {size!r} was given.")


def generated(
    generator: Callable, version: int, seed: int, arguments: Mapping, sizes: Mapping[str, int]
) -> tuple[dict[str, list[dict]], str]:
    """Return {split: rows} of a generator, and how they were made, in place of a revision.

    arguments: of the generator, and perhaps sizes={"train": 2000}, which replace those of `sizes`. Raises DatasetError for
    an argument that the generator lacks or that is out of range.
    """
    options = dict(arguments)
    sizes = {**sizes, **options.pop("sizes", {})}
    check_sizes("sizes", sizes)
    settings = ",".join(f"{key}={value}" for key, value in sorted({**arguments, "seed": seed}.items()))
    try:
        rows = {split: generator(n=sizes[split], seed=seed, stream=place, **options) for place, split in enumerate(SPLITS)}
    except ValidationError as refusal:
        error = refusal.errors(include_url=False)[0]
        parameters = inspect.signature(generator).parameters.values()
        names = [entry.name for entry in parameters if entry.kind is entry.KEYWORD_ONLY and entry.name != "stream"]
        place = ".".join(map(str, error["loc"]))
        raise DatasetError(
            f"data.arguments.{place}={error['input']!r}: {error['msg']}; the arguments are sizes, {', '.join(names)}"
        ) from refusal
    return rows, f"generated-{version}({settings})"
