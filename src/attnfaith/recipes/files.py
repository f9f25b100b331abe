"""Recipes as files: found, read with overrides, and written; plugins imported."""

import contextlib
import copy
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from attnfaith.data.registry import entry_of, pairs_entry
from attnfaith.recipes.options import Dumper, Overrides, parse_overrides, read_value
from attnfaith.recipes.schema import Recipe, RecipeError, make_section
from attnfaith.support.errors import cut, excerpt, nearest


QUICKSTART = "quickstart.yaml"


def folder() -> Path:
    """Return the folder of the shipped recipes: in the installed package, else at the top of the checkout."""
    installed = Path(__file__).with_name("shipped")
    return installed if installed.is_dir() else Path(__file__).parents[3] / "recipes"


def find(path: str | Path, kind: str = "recipe") -> Path:
    """Return a path that exists, or the file of that name among those that come with the package, with "recipes/" or
    without. kind: for the message. Raises RecipeError with near names where it is in neither place.
    """
    path = Path(path)
    if os.path.exists(path):
        return path
    shipped, name = folder(), path.as_posix().removeprefix("recipes/")
    files = {file.relative_to(shipped).as_posix(): file for file in sorted(shipped.rglob(f"*{path.suffix or '.yaml'}"))}
    if name in files:
        return files[name]
    where = f"nor of that name among those that come with attnfaith{nearest(name, files)}"
    raise RecipeError(f"no {kind} at {cut(str(path))}, {where}")


def read_file(path: Path, kind: str) -> Any:
    """Return the value of a YAML file. kind: for the message. Raises RecipeError where it cannot be read or is no YAML."""
    try:
        return read_value(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"no {kind} can be read from {path}: {excerpt(error)}") from error


def load(path: str | Path | None = None, overrides: Overrides = (), *, untrusted: bool = False) -> Recipe:
    """Read a recipe, apply overrides and import its plugins.

    path: a file, or one of the recipes that come with the package ("meister_2021/sst.yaml"). None is the quickstart, or
    where the overrides name a data set, every default on that. overrides: as `parse_overrides` takes them. untrusted: the
    recipe comes from the Hub, so plugins are refused.

    Raises RecipeError for a file that is missing or not YAML, an unknown key, a wrong type, a plugin that is not found.
    """
    pairs = parse_overrides(overrides)
    places = [(key, str(value)) for key, value in pairs if key in ("data.name", "data.path", "data.hub_id")]
    if path is None and places:
        key, name = places[-1]
        if key == "data.path":  # reviews.csv.gz is reviews
            name = Path(name).resolve().name.partition(".")[0] or "own"
        name = re.sub(r"[^\w.-]+", "-", name)
        recipe = build({"name": name, "output_dir": f"runs/{name}"}, pairs)
    else:
        path = find(QUICKSTART if path is None else path)
        recipe = build(read_file(path, "recipe"), pairs, str(path))
    if untrusted and recipe.plugins:
        raise RecipeError(f"{path}: plugins={excerpt(recipe.plugins)}: no code is imported for a recipe from the Hub")
    if recipe.plugins and os.getcwd() not in sys.path:  # after all others, so that it replaces no installed module
        sys.path.append(os.getcwd())
    for name in recipe.plugins:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the module does
            reason = f"{type(error).__name__}: {excerpt(error, 300)}"
            raise RecipeError(f"plugins: {excerpt(name)} cannot be imported from {os.getcwd()} ({reason})") from error
    return recipe


def build(tree: Any, overrides: Overrides = (), source: str = "the recipe") -> Recipe:
    """Return a recipe from nested dictionaries, with overrides; its note then calls it a variant of the noted recipe.

    source: for the message. Raises RecipeError for an unknown key or a wrong value.
    """
    if not isinstance(tree, Mapping):
        raise RecipeError(f"{source} must hold keys and values, such as 'name: quickstart'")
    tree, pairs = copy.deepcopy(dict(tree)), parse_overrides(overrides)
    keys = list(dict(pairs))
    for key, value in pairs:
        *path, last = key.split(".")
        part = tree
        for name in path:
            if part.get(name) is None:  # as in a complete recipe
                part[name] = {}
            part = part[name]
            if not isinstance(part, dict):
                raise RecipeError(f"--{cut(key)}: '{cut(name)}' is a value, not a section")
        part[last] = value
    changed = [key for key in keys if key not in ("name", "output_dir") and not key.startswith("report.")]
    if changed and tree.get("note") and "note" not in keys:
        changed = cut(", ".join(changed), 200)
        tree["note"] = f"A variant of a recipe, with another {changed}. The recipe itself says: {tree['note']}"
    with named(f"{source} with --{cut(', --'.join(keys))}" if keys else source):
        return make_section(Recipe, tree, "recipe")


@contextlib.contextmanager
def named(source: str) -> Iterator[None]:
    """Put the source of a recipe before the message of a RecipeError that is raised inside."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{source}: {error}") from error


def check_data(recipe: Recipe) -> None:
    """Raise DatasetError where no data set of the recipe's name is registered for its kind of model. Needs no torch."""
    if recipe.kind != "translator":
        entry_of(recipe.data)
    elif recipe.data.path is None:
        pairs_entry(recipe.data.name)


def dump(recipe: Recipe) -> str:
    """Return the recipe as YAML, complete: every default is written out."""
    return yaml.dump(asdict(recipe), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def differences(recipe: Recipe, other: Recipe) -> list[str]:
    """Return the dotted keys in which two recipes differ, without those of the run's folder and report."""
    new, old = (flat(asdict(part)) for part in (recipe, other))
    changed = sorted(key for key in {*new, *old} if new.get(key) != old.get(key))
    return [key for key in changed if key not in ("output_dir", "note") and not key.startswith("report.")]


def flat(tree: Mapping) -> dict[str, Any]:
    """Return the innermost values of nested dictionaries by their dotted names."""
    import pandas as pd

    return pd.json_normalize(tree).to_dict("records")[0] if tree else {}
