"""Recipes as files: YAML read and written, overrides applied, recipes found among those of the package."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from attnfaith.recipes.library import QUICKSTART, find
from attnfaith.recipes.options import parse_overrides
from attnfaith.recipes.recipe import Recipe
from attnfaith.recipes.schema import RecipeError, make_section
from attnfaith.support.errors import cut, excerpt
from attnfaith.support.files import real_path


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
        if twice := [key for key in keys if keys.count(key) > 1 and not hasattr(node, "merged")]:
            problem = f"the key {excerpt(twice[0])} is given twice"
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


def read_text(path: Path, what: str) -> str:
    """The text of a file. Raises RecipeError where it cannot be read, is no UTF-8, or is larger than any recipe or study."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise RecipeError(f"{path} has more than {LARGEST_FILE:,} bytes; a {what} is a few lines of YAML")
        return content.decode("utf-8")
    except OSError as error:
        raise RecipeError(f"no {what} at {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def read_value(text: str, source: str) -> Any:
    """The value of a YAML text. source: where it stands, for the message.

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
    """All that a value holds, as often as it holds it."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield 1
        yield from _parts(part)


def load(path: str | Path | None = None, overrides: Sequence[str | tuple[str, Any]] = ()) -> Recipe:
    """Read a recipe and apply command-line overrides: `--seed 3`, `--model.encoder cnn` or, where only one section has that
    key, `--encoder cnn`. Values are YAML; a key of true or false without a value is true. Or overrides as they are read:
    (dotted key, value).

    path: a file, or one of the recipes that come with the package ("meister_2021/sst.yaml"). None is the quickstart, or
    where the overrides name a data set, every default on that: the quickstart's settings are for its own texts.

    Raises RecipeError for a file that is missing or not YAML, an unknown key, a wrong type.
    """
    given = _pairs(overrides)
    names = [value for key, value in given if key in ("data.name", "data.path", "data.hub_id")]
    if path is None and names:
        name = str(names[-1])
        if ("data.path", name) in given:  # reviews.csv.gz is reviews
            name = real_path(name).name.partition(".")[0] or "own"
        name = re.sub(r"[^\w.-]+", "-", name)
        return _complete({"name": name, "output_dir": f"runs/{name}"}, given, "the recipe")
    path = find(QUICKSTART if path is None else path)
    return parse(read_text(path, "recipe"), given, str(path))


def parse(text: str, overrides: Sequence[str | tuple[str, Any]] = (), source: str = "the recipe") -> Recipe:
    """A recipe from YAML text; see `load`."""
    tree = read_value(text, source)
    if not isinstance(tree, dict):
        raise RecipeError(f"{source} must hold keys and values, such as 'name: quickstart'")
    return _complete(tree, _pairs(overrides), source)


def _pairs(overrides: Sequence[str | tuple[str, Any]]) -> list[tuple[str, Any]]:
    read = [one for one in overrides if isinstance(one, tuple)]
    return read if len(read) == len(overrides) else parse_overrides(overrides)


def _complete(tree: dict, overrides: Sequence[tuple[str, Any]], source: str) -> Recipe:
    """The recipe with overrides. Where they change what is done, its note says so: it is about the recipe as it was."""
    keys = list(dict.fromkeys(key for key, _ in overrides))
    note, was = tree.get("note"), None
    if keys and note and "note" not in keys:
        with contextlib.suppress(RecipeError):  # which the overrides may mend
            was = build(tree)
    for key, value in overrides:
        _set(tree, key, value)
    with named(f"{source} with --{cut(', --'.join(keys))}" if keys else source):
        recipe = build(tree)
    other = differences(recipe, was) if was else ()
    changed = [key for key in keys if key != "name" and any(f"{one}.".startswith(f"{key}.") for one in other)]
    if not changed:
        return recipe
    note = f"A variant of a recipe, with another {cut(', '.join(changed), 200)}. The recipe itself says: {note}"
    return dataclasses.replace(recipe, note=note)


def _set(tree: dict, key: str, value) -> None:
    *path, last = key.split(".")
    for name in path:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise RecipeError(f"--{cut(key)}: '{cut(name)}' is a value, not a section")
    tree[last] = value


@contextlib.contextmanager
def named(source: str) -> Iterator[None]:
    """Whatever RecipeError is raised inside says first where the mistake stands."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{source}: {error}") from error


def build(tree: Mapping) -> Recipe:
    """A recipe from nested dictionaries. Raises RecipeError for an unknown key or a wrong value."""
    return make_section(Recipe, tree, "recipe")


def dump(recipe: Recipe) -> str:
    """The recipe as YAML, complete: every default is written out."""
    return yaml.dump(dataclasses.asdict(recipe), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def differences(one: Recipe, other: Recipe) -> list[str]:
    """Dotted keys in which two recipes differ; where a run lies and how it is reported do not count."""

    def flat(tree, prefix=""):
        for key, value in tree.items():
            if isinstance(value, dict) and value:
                yield from flat(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    new, old = (dict(flat(dataclasses.asdict(recipe))) for recipe in (one, other))
    changed = sorted(key for key in {*new, *old} if new.get(key) != old.get(key))
    return [key for key in changed if key not in ("output_dir", "note") and not key.startswith("report.")]
