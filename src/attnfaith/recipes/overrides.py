"""Keys of a recipe on the command line: how they are read, and the help that lists them all."""

import dataclasses
import sys
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from attnfaith.errors import cut, excerpt
from attnfaith.recipes.arguments import Arguments
from attnfaith.recipes.schema import SECTIONS, Recipe
from attnfaith.recipes.sections import RecipeError, unknown
from attnfaith.recipes.selector import Selector
from attnfaith.recipes.text import read_value


KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", list: "list", dict: "keys and values"}
NESTED = {(SECTIONS["training"], "arguments"): Arguments, (SECTIONS["model"], "selector"): Selector}
"""Keys that hold keys of their own."""
TOP = [key.name for key in dataclasses.fields(Recipe)]


def parse_overrides(arguments: Sequence[str]) -> list[tuple[str, Any]]:
    """[(dotted key, value)] from `--key value`, `--key=value` and `--flag`; raises RecipeError for anything else.

    A key that holds a list takes bare names too: `--producers gradient leave_one_out`, `--producers gradient,leave_one_out`.
    """
    overrides, rest = [], list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            raise RecipeError(
                f"{excerpt(word)} is not an override; write --key value, for example --training.learning_rate 1e-4"
            )
        key, separator, text = word[2:].partition("=")
        full = _full(key)
        words = [text] if separator else _values(full, rest)
        overrides.append((full, _read(full, words, f"the value of --{cut(key)}")))
    return overrides


def split(
    arguments: Sequence[str], options: Collection[str], command: str = "train", sections: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The words that are a command's own, and those that are keys of a recipe, each with its values.

    options: what the command takes itself, such as "--config". sections: those whose keys it is for; () all. Raises
    RecipeError for an option that no recipe has either, with the nearest of its own and of these sections.
    """
    known = [option[2:] for option in options if option.startswith("--")]
    own, overrides, rest = [], [], list(arguments)
    while rest:
        word = rest.pop(0)
        name, separator, _ = word.partition("=")
        if not word.startswith("--") or word == "--" or name in options:
            own.append(word)
            continue
        overrides.append(word)
        full = _full(name[2:], known, command, sections)
        overrides += [] if separator else _values(full, rest)
    return own, overrides


def keys(*names: str, taken: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Every key of a recipe, or of the sections named, as it is written on a command line, and what it means.

    taken: options of the command itself; a key of such a name is written in full.
    """
    short = [name for kind in (Recipe, *SECTIONS.values()) for name in kind.__pydantic_fields__]
    short += [option.removeprefix("--") for option in taken]
    for section, kind in {"": Recipe, **SECTIONS}.items():
        if not names or section in names:
            for name, key in kind.__pydantic_fields__.items():
                if name not in SECTIONS:
                    yield f"{section}.{name}" if section and short.count(name) > 1 else name, key.description


def is_key(name: str) -> bool:
    """Whether a recipe has this key, written in full or short."""
    try:
        return _hint(_full(name)) is not None
    except RecipeError:
        return False


def _hint(key: str) -> Any:
    """The type of a dotted key's value; None where no recipe has the key, or a mapping's keys are free."""
    kind: Any = Recipe
    for name in key.split("."):
        fields = getattr(kind, "__pydantic_fields__", {})
        if (kind, name) in NESTED:
            kind = NESTED[kind, name]
        elif name not in fields:
            return None
        else:
            kind = fields[name].annotation
    return kind


def _item(key: str) -> type | None:
    """What the list of a key holds; None of a key that holds no list."""
    hint = _hint(key)
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) in (types.UnionType, typing.Union) and len(parts) == 1:
        hint = parts[0]
    return typing.get_args(hint)[0] if typing.get_origin(hint) is list else None


def _values(key: str, rest: list[str]) -> list[str]:
    """Take the words that are a key's value from the beginning of `rest`: of a list all, of true or false only those."""
    taken = []
    several, flag = _item(key) is not None, _hint(key) is bool
    while rest and not rest[0].startswith("--") and (several or not taken):
        if flag and rest[0].lower() not in ("true", "false"):
            break
        taken.append(rest.pop(0))
        if several and taken[0].startswith("[") and taken[-1].endswith("]"):
            break
    return taken


def _read(key: str, words: Sequence[str], place: str) -> Any:
    """A value as YAML; of a key that holds a list, bare names too."""
    text, item = " ".join(words), _item(key)
    if not words:
        return True
    if item is None or text.startswith(("[", "{")) or text in ("", "null", "~"):
        return read_value(text, place)
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    return names if item is str else [read_value(name, place) for name in names]


def apply(tree: dict, key: str, value) -> None:
    """Set one dotted key of nested dictionaries, in place."""
    *path, last = key.split(".")
    for name in path:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise RecipeError(f"--{cut(key)}: '{cut(name)}' is a value, not a section")
    tree[last] = value


def value_at(tree: Mapping, key: str):
    """What a dotted key of nested dictionaries says, or its default where they do not say it; None where it has none."""
    section, _, rest = key.partition(".")
    for name in key.split("."):
        if not isinstance(tree, Mapping) or name not in tree:
            keys = SECTIONS.get(section, Recipe).__pydantic_fields__
            default = keys.get(rest or section)
            return None if default is None or default.is_required() else default.get_default(call_default_factory=True)
        tree = tree[name]
    return tree


def _full(key: str, options: Sequence[str] = (), command: str = "train", sections: Sequence[str] = ()) -> str:
    """The dotted key for a possibly short one. options, command and sections: as `split` has them."""
    keys = {name: [field.name for field in dataclasses.fields(kind)] for name, kind in SECTIONS.items()}
    if key in keys:
        raise RecipeError(f"--{key} is a section; name a key of it, such as --{key}.{keys[key][0]}")
    if "." in key or key in TOP:
        return key
    homes = [name for name, names in keys.items() if key in names]
    if len(homes) == 1:
        return f"{homes[0]}.{key}"
    if homes:
        raise RecipeError(f"--{key} is in several sections; write one of {', '.join(f'--{home}.{key}' for home in homes)}")
    top = [] if sections else [name for name in TOP if name not in keys]
    known = {*options, *top}.union(*(keys[name] for name in sections or keys))
    raise RecipeError(unknown("option", key, sorted(known), "--", command))


def describe(*names: str) -> str:
    """Every key of a recipe, or of the sections named, as lines of help: type, default and meaning."""
    lines = [] if names else ["keys of the recipe; a section needs naming only where two have that key", *_keys(Recipe)]
    for name, kind in SECTIONS.items():
        if not names or name in names:
            lines += ["", f"{name}: {kind.__doc__.splitlines()[0]}", *_keys(kind, f"{name}.")]
            for (home, key), inner in NESTED.items():
                lines += _keys(inner, f"{name}.{key}.") if home is kind else []
    return "\n".join(lines)


def _keys(kind: type, prefix: str = "") -> Iterator[str]:
    for name, key in kind.__pydantic_fields__.items():
        if name not in SECTIONS:
            default = None if key.is_required() else key.get_default(call_default_factory=True)
            written = yaml.safe_dump(default, default_flow_style=True, width=sys.maxsize).splitlines()[0]
            said = "required" if key.is_required() else f"default {written}"
            yield f"  --{prefix}{name}  {_kind(key.annotation)}, {said}"
            yield f"      {key.description}"


def _kind(hint) -> str:
    """A type in words: "whole number or null", "list of texts"."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _kind(parts[0])
    if origin is typing.Literal:
        return " or ".join(parts)
    if origin in (types.UnionType, typing.Union):
        return " or ".join("null" if part is type(None) else _kind(part) for part in parts)
    if origin is list:
        return f"list of {_kind(parts[0])}s"
    return KINDS[origin or hint]
