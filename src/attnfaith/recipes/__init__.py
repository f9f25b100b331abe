"""Recipes: one YAML per run, read into frozen dataclasses. Unknown keys and wrong values stop before any work is done."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from attnfaith.recipes.library import QUICKSTART, find
from attnfaith.recipes.model import check_models, model_config
from attnfaith.recipes.overrides import apply, describe, parse_overrides
from attnfaith.recipes.schema import (
    SECTIONS,
    Data,
    Measure,
    Model,
    Objective,
    Recipe,
    RecipeError,
    Report,
    Training,
    section,
    unknown,
)
from attnfaith.recipes.text import Dumper, Loader


__all__ = [
    "Data",
    "Loader",
    "Measure",
    "Model",
    "Objective",
    "Recipe",
    "RecipeError",
    "Report",
    "Training",
    "build",
    "check_models",
    "describe",
    "dump",
    "find",
    "load",
    "make_section",
    "model_config",
    "parse",
    "parse_overrides",
    "section",
    "unknown",
]


def load(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply command-line overrides: `--seed 3`, `--model.encoder cnn` or, where only one section has that
    key, `--encoder cnn`. Values are YAML; a key without a value is true.

    path: a file, or one of the recipes that come with the package ("meister_2021/sst.yaml"). None is the quickstart, or
    where the overrides name a data set, every default on that: the quickstart's settings are for its own texts.

    Raises RecipeError for a file that is missing or not YAML, an unknown key, a wrong type.
    """
    given = parse_overrides(overrides)
    if path is None and (names := [value for key, value in given if key == "data.name"]):
        name = re.sub(r"[^\w.-]+", "-", str(names[-1]))
        return _complete({"name": name, "output_dir": f"runs/{name}"}, given)
    path = find(QUICKSTART if path is None else path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"no recipe at {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 text: {error}") from error
    return _complete(_read(text, str(path)), given)


def parse(text: str, overrides: Sequence[str] = (), source: str = "the recipe") -> Recipe:
    """A recipe from YAML text; see `load`."""
    return _complete(_read(text, source), parse_overrides(overrides))


def _read(text: str, source: str) -> dict:
    try:
        tree = yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{source} is not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise RecipeError(f"{source} must hold keys and values, such as 'name: quickstart'")
    return tree


def _complete(tree: dict, overrides: Sequence[tuple[str, Any]]) -> Recipe:
    for key, value in overrides:
        apply(tree, key, value)
    return build(tree)


def build(tree: Mapping) -> Recipe:
    """A recipe from nested dictionaries. Raises RecipeError for an unknown key or a wrong value."""
    made = {name: make_section(kind, tree[name], f"recipe.{name}") for name, kind in SECTIONS.items() if name in tree}
    return make_section(Recipe, {**tree, **made}, "recipe")


def dump(recipe: Recipe) -> str:
    """The recipe as YAML, complete: every default is written out."""
    return yaml.dump(dataclasses.asdict(recipe), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def make_section(kind: type, values: Mapping, place: str):
    """A section (`schema.section`) of its keys; RecipeError names the place of the first mistake, the value and what is
    allowed.
    """
    if not isinstance(values, Mapping):
        raise RecipeError(f"{place} must hold keys and values, not {values!r}")
    known = [f"{place}.{key.name}" for key in dataclasses.fields(kind)]
    for key in values:
        if f"{place}.{key}" not in known:
            raise RecipeError(unknown("key", f"{place}.{key}", known))
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
        return RecipeError(f"{_dotted(place, path[:-1])} has the key {path[-1]!r}; its keys must be words")
    must = MUST.get(mistake["type"])
    what = f"must be {must.format(**context)}" if must else f"is refused: {mistake['msg']}"
    return RecipeError(f"{_dotted(place, mistake['loc'])}={mistake['input']!r} {what}")


def _dotted(place: str, path: Sequence[str | int]) -> str:
    return place + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
