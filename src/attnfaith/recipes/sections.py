"""Sections of a recipe or a study: frozen dataclasses that pydantic checks, and the one line that says what is wrong."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from attnfaith.errors import AttnfaithError, cut, excerpt


class RecipeError(AttnfaithError):
    """A recipe that cannot be used. The message says where, what was given, what is allowed."""


MOST_LISTED = 420  # characters of all known names


def unknown(what: str, given: str, known: Sequence[str], place: str = "", command: str = "train") -> str:
    """The message for a name nobody has: the nearest known one, and all of them, unless they fill pages.

    place: what stands before a name, of those in the list too: "recipe.model.". command: whose help lists them.
    """
    near = difflib.get_close_matches(given, known, 1)
    hint = f"; did you mean {place}{near[0]}?" if near else "."
    listed = ", ".join(known)
    listed = f"Known: {listed}" if len(listed) <= MOST_LISTED else f"`attnfaith {command} --help` lists all"
    return f"unknown {what} {place}{cut(given, 60)}{hint} {listed}"


# A section of a recipe. strict: a text is no number, and 1 is not true. The text below a key is its line of help.
section = partial(
    dataclass,
    frozen=True,
    config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True),
)

LARGEST = 2**31 - 1  # what every library below takes as a number of things
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]  # what numpy takes
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


def make_section(kind: type, values: Mapping, place: str):
    """A section (`section`) of its keys; RecipeError names the place of the first mistake, the value and what is allowed."""
    if not isinstance(values, Mapping):
        raise RecipeError(f"{place} must hold keys and values, not {excerpt(values)}")
    known = [key.name for key in fields(kind)]
    for key in values:
        if key not in known:
            raise RecipeError(unknown("key", str(key), known, f"{place}."))
    try:
        return kind(**values)
    except ValidationError as refusal:
        raise _mistake(refusal, place) from refusal


# what a value must be, by pydantic's name of the mistake
MUST = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "keys and values",
    "literal_error": "{expected}",
    "finite_number": "a finite number",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
}


def _mistake(refusal: ValidationError, place: str) -> RecipeError:
    mistakes = refusal.errors(include_url=False)
    if missing := [str(mistake["loc"][0]) for mistake in mistakes if mistake["type"] == "missing"]:
        return RecipeError(f"{place} lacks {missing}")
    mistake = mistakes[0]
    if "error" in (context := mistake.get("ctx", {})):  # a rule between keys, which says all itself
        return context["error"]
    *path, last = mistake["loc"]
    if last == "[key]":
        return RecipeError(f"{_dotted(place, path[:-1])} has the key {excerpt(path[-1])}; its keys must be words")
    must = MUST.get(mistake["type"])
    what = f"must be {must.format(**context)}" if must else f"is refused: {mistake['msg']}"
    return RecipeError(f"{_dotted(place, mistake['loc'])}={excerpt(mistake['input'])} {what}")


def _dotted(place: str, path: Sequence[str | int]) -> str:
    return place + "".join(f"[{step}]" if isinstance(step, int) else f".{cut(step)}" for step in path)
