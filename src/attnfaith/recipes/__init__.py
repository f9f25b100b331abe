"""Recipes: one YAML per run, read into frozen dataclasses. Unknown keys and wrong values stop before any work is done."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from attnfaith.errors import cut
from attnfaith.files import real_path
from attnfaith.recipes.library import QUICKSTART, find
from attnfaith.recipes.model import check_model, check_models, model_config, projection_fields
from attnfaith.recipes.overrides import apply, describe, parse_overrides, value_at
from attnfaith.recipes.schema import (
    SECTIONS,
    Data,
    Measure,
    Model,
    Objective,
    Recipe,
    Report,
    Training,
)
from attnfaith.recipes.sections import RecipeError, make_section, section
from attnfaith.recipes.sequences import sequence_config
from attnfaith.recipes.text import Dumper, read_text, read_value


__all__ = [
    "Data",
    "Measure",
    "Model",
    "Objective",
    "Recipe",
    "RecipeError",
    "Report",
    "Training",
    "build",
    "check_model",
    "check_models",
    "describe",
    "dump",
    "find",
    "load",
    "make_section",
    "model_config",
    "named",
    "parse",
    "parse_overrides",
    "projection_fields",
    "read_text",
    "read_value",
    "section",
    "sequence_config",
]


PLACES_OF_DATA = ("data.name", "data.path", "data.hub_id")
UNTOLD = ("name", "output_dir", "note")  # keys of which no note speaks
MOST_KEYS = 200  # characters of their names in a note


def load(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply command-line overrides: `--seed 3`, `--model.encoder cnn` or, where only one section has that
    key, `--encoder cnn`. Values are YAML; a key without a value is true.

    path: a file, or one of the recipes that come with the package ("meister_2021/sst.yaml"). None is the quickstart, or
    where the overrides name a data set, every default on that: the quickstart's settings are for its own texts.

    Raises RecipeError for a file that is missing or not YAML, an unknown key, a wrong type.
    """
    given = parse_overrides(overrides)
    if path is None and (names := [value for key, value in given if key in PLACES_OF_DATA]):
        name = str(names[-1])
        if ("data.path", name) in given:  # reviews.csv.gz is reviews
            name = real_path(name).name.partition(".")[0] or "own"
        name = re.sub(r"[^\w.-]+", "-", name)
        return _complete({"name": name, "output_dir": f"runs/{name}"}, given, "the recipe")
    path = find(QUICKSTART if path is None else path)
    tree = _read(read_text(path, "recipe"), str(path))
    if path.name == "recipe.yaml" and (path.parent / "run.json").exists():
        _check_whole(tree, path)
    return _complete(tree, given, str(path))


def parse(text: str, overrides: Sequence[str] = (), source: str = "the recipe") -> Recipe:
    """A recipe from YAML text; see `load`."""
    return _complete(_read(text, source), parse_overrides(overrides), source)


def _read(text: str, source: str) -> dict:
    tree = read_value(text, source)
    if not isinstance(tree, dict):
        raise RecipeError(f"{source} must hold keys and values, such as 'name: quickstart'")
    return tree


def _check_whole(tree: Mapping, path: Path) -> None:
    """Raises RecipeError where the recipe that a run wrote has lost its end.

    What is left of a file that was cut off may still be a recipe, but another one.
    """
    *_, last = SECTIONS
    if last not in tree:
        raise RecipeError(f"{path} is cut off or was edited: what a run writes ends with the section {last}, which it lacks")


def _complete(tree: dict, overrides: Sequence[tuple[str, Any]], source: str) -> Recipe:
    said = _note_of_a_variant(tree, overrides)
    for key, value in overrides:
        apply(tree, key, value)
    if said:
        tree["note"] = said
    with named(f"{source} with --{cut(', --'.join(dict.fromkeys(key for key, _ in overrides)))}" if overrides else source):
        return build(tree)


def _note_of_a_variant(tree: Mapping, overrides: Sequence[tuple[str, Any]]) -> str | None:
    """The note of a recipe whose overrides change what it says; None: it stays as it is.

    A note says what a recipe reproduces; of a variant that would be no fact, so its words are told as the recipe's own.
    """
    note = tree.get("note")
    if not (overrides and note and isinstance(note, str)) or "note" in dict(overrides):
        return None
    try:
        told = dataclasses.asdict(build(tree))  # with what it is silent of written out, some of which hangs on the rest
    except RecipeError:
        told = tree  # which the overrides may mend
    keys = dict.fromkeys(key for key, value in overrides if value_at(told, key) != value)
    keys = [key for key in keys if key not in UNTOLD and not key.startswith("report.")]
    if not keys:
        return None
    return f"A variant of a recipe, with another {cut(', '.join(keys), MOST_KEYS)}. The recipe itself says: {note}"


@contextlib.contextmanager
def named(source: str) -> Iterator[None]:
    """Whatever RecipeError is raised inside says first where the mistake stands."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{source}: {error}") from error


def build(tree: Mapping) -> Recipe:
    """A recipe from nested dictionaries. Raises RecipeError for an unknown key or a wrong value."""
    made = {name: make_section(kind, tree[name], f"recipe.{name}") for name, kind in SECTIONS.items() if name in tree}
    return make_section(Recipe, {**tree, **made}, "recipe")


def dump(recipe: Recipe) -> str:
    """The recipe as YAML, complete: every default is written out."""
    return yaml.dump(dataclasses.asdict(recipe), Dumper=Dumper, sort_keys=False, allow_unicode=True)
