"""Recipes as files: YAML read and written, overrides applied, plugins imported."""

import contextlib
import dataclasses
import importlib
import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from attnfaith.recipes.library import QUICKSTART, find
from attnfaith.recipes.options import parse_overrides
from attnfaith.recipes.recipe import Recipe
from attnfaith.recipes.schema import RecipeError, make_section
from attnfaith.support.errors import cut, excerpt


LARGEST_FILE, MOST_VALUES = 1 << 18, 100_000  # bytes, and values with every reference (&, *) counted as a copy
PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}


class Loader(yaml.SafeLoader):
    """Plain values: 1e-3 is a number as in YAML 1.2, a date is a text, no key is given twice."""

    def construct_object(self, node, deep=False):
        if node.tag not in PLAIN:
            raise yaml.constructor.ConstructorError(None, None, f"{excerpt(node.tag)} is no plain value", node.start_mark)
        return super().construct_object(node, deep)

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        repeated = [key for key in keys if keys.count(key) > 1 and not hasattr(node, "merged")]
        if repeated:
            problem = f"the key {excerpt(repeated[0])} is given twice"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        node.merged = True  # what a merge adds to the node is no repetition
        return super().construct_mapping(node, deep)


class Dumper(yaml.SafeDumper):
    """Quotes the texts that Loader would read as numbers."""


for _kind in (Loader, Dumper):
    number = re.compile(r"^[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+)$")
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789."))
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in patterns if tag in PLAIN]
    for first, patterns in Loader.yaml_implicit_resolvers.items()
}


def read_text(path: Path, kind: str) -> str:
    """Return the text of a file. Raises RecipeError where it cannot be read, is no UTF-8, or is larger than any recipe."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise RecipeError(f"{path} has more than {LARGEST_FILE:,} bytes; a {kind} is a few lines of YAML")
        return content.decode("utf-8")
    except OSError as error:
        raise RecipeError(f"no {kind} at {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def read_value(text: str, source: str) -> Any:
    """Return the value of a YAML text. source: for the message.

    Raises RecipeError where it is no YAML of plain values, or is nested or repeated beyond bounds.
    """
    try:
        value = yaml.load(text, Loader=Loader)
        if next(itertools.islice(_parts(value), MOST_VALUES, None), None) is not None:
            raise RecursionError
    except RecursionError as error:
        raise RecipeError(f"{source} is nested too deep, or refers to itself") from error
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecipeError(f"{source} is not YAML: {excerpt(error, 400)}") from error
    return value


def _parts(value) -> Iterator:
    """One item for each value inside, counted as often as it is referred to."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield 1
        yield from _parts(part)


def load(
    path: str | Path | None = None, overrides: Sequence[str | tuple[str, Any]] = (), *, untrusted: bool = False
) -> Recipe:
    """Read a recipe, apply command-line overrides and import its plugins.

    Overrides are `--seed 3`, `--model.encoder cnn` or, where only one section has that key, `--encoder cnn`. Values are
    YAML; a key of true or false without a value is true. Or overrides as they are read: (dotted key, value).

    path: a file, or one of the recipes that come with the package ("meister_2021/sst.yaml"). None is the quickstart, or
    where the overrides name a data set, every default on that: the quickstart's settings are for its own texts. untrusted:
    the recipe comes from the Hub, so plugins are refused.

    Raises RecipeError for a file that is missing or not YAML, an unknown key, a wrong type, a plugin that is not found.
    """
    pairs = _pairs(overrides)
    names = [value for key, value in pairs if key in ("data.name", "data.path", "data.hub_id")]
    if path is None and names:
        name = str(names[-1])
        if ("data.path", name) in pairs:  # reviews.csv.gz is reviews
            name = Path(name).resolve().name.partition(".")[0] or "own"
        name = re.sub(r"[^\w.-]+", "-", name)
        recipe = _complete({"name": name, "output_dir": f"runs/{name}"}, pairs, "the recipe")
    else:
        path = find(QUICKSTART if path is None else path)
        recipe = parse(read_text(path, "recipe"), pairs, str(path))
    if untrusted and recipe.plugins:
        raise RecipeError(f"{path}: plugins={excerpt(recipe.plugins)}: no code is imported for a recipe from the Hub")
    _import_plugins(recipe.plugins)
    return recipe


def _import_plugins(names: Sequence[str]) -> None:
    """Import modules, installed or in the current folder. Raises RecipeError where one cannot be imported."""
    if names and os.getcwd() not in sys.path:  # after all others, so that it replaces no installed module
        sys.path.append(os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the module does
            reason = f"{type(error).__name__}: {excerpt(error, 300)}"
            raise RecipeError(f"plugins: {excerpt(name)} cannot be imported from {os.getcwd()} ({reason})") from error


def parse(text: str, overrides: Sequence[str | tuple[str, Any]] = (), source: str = "the recipe") -> Recipe:
    """Return a recipe from YAML text; see `load`."""
    tree = read_value(text, source)
    if not isinstance(tree, dict):
        raise RecipeError(f"{source} must hold keys and values, such as 'name: quickstart'")
    return _complete(tree, _pairs(overrides), source)


def _pairs(overrides: Sequence[str | tuple[str, Any]]) -> list[tuple[str, Any]]:
    return list(overrides) if all(isinstance(pair, tuple) for pair in overrides) else parse_overrides(overrides)


def _complete(tree: dict, overrides: Sequence[tuple[str, Any]], source: str) -> Recipe:
    """Return the recipe with overrides. Where they change something, its note calls it a variant of the noted recipe."""
    keys = list(dict.fromkeys(key for key, _ in overrides))
    note, plain = tree.get("note"), None
    if keys and note and "note" not in keys:
        with contextlib.suppress(RecipeError):  # which the overrides may mend
            plain = build(tree)
    for key, value in overrides:
        *path, last = key.split(".")
        part = tree
        for name in path:
            part = part.setdefault(name, {})
            if not isinstance(part, dict):
                raise RecipeError(f"--{cut(key)}: '{cut(name)}' is a value, not a section")
        part[last] = value
    with named(f"{source} with --{cut(', --'.join(keys))}" if keys else source):
        recipe = build(tree)
    other = differences(recipe, plain) if plain else ()
    changed = [key for key in keys if key != "name" and any(f"{name}.".startswith(f"{key}.") for name in other)]
    if not changed:
        return recipe
    note = f"A variant of a recipe, with another {cut(', '.join(changed), 200)}. The recipe itself says: {note}"
    return dataclasses.replace(recipe, note=note)


@contextlib.contextmanager
def named(source: str) -> Iterator[None]:
    """Put the source of a recipe before the message of a RecipeError that is raised inside."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{source}: {error}") from error


def build(tree: Mapping) -> Recipe:
    """Return a recipe from nested dictionaries. Raises RecipeError for an unknown key or a wrong value."""
    return make_section(Recipe, tree, "recipe")


def dump(recipe: Recipe) -> str:
    """Return the recipe as YAML, complete: every default is written out."""
    return yaml.dump(dataclasses.asdict(recipe), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def differences(recipe: Recipe, other: Recipe) -> list[str]:
    """Return the dotted keys in which two recipes differ, without those of the run's folder and report."""

    def flat(tree, prefix=""):
        for key, value in tree.items():
            if isinstance(value, dict) and value:
                yield from flat(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    new, old = (dict(flat(dataclasses.asdict(part))) for part in (recipe, other))
    changed = sorted(key for key in {*new, *old} if new.get(key) != old.get(key))
    return [key for key in changed if key not in ("output_dir", "note") and not key.startswith("report.")]
