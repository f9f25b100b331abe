"""Command-line options: argparse with examples in the help, errors that suggest a name, and the keys of a recipe.

The options of a recipe's keys are made from its schema: type, default and help are written there alone.
"""

import argparse
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn

import yaml

from attnfaith.recipes.recipe import SECTIONS, Recipe
from attnfaith.recipes.schema import RecipeError, sections_of
from attnfaith.support.errors import AttnfaithError, closest, cut


class UsageError(AttnfaithError):
    """Arguments that a command does not take."""


class Parser(argparse.ArgumentParser):
    """The arguments of one command; where names clash, its own come before the keys of a recipe.

    arguments: of the command, as `add_argument` takes them. examples: command lines without "attnfaith". keys: sections of a
    recipe whose keys the help lists, all with (""); the command takes every key then. None: no keys.
    """

    def __init__(self, command: str, description="", arguments=(), *, examples=(), keys=None, **options):
        text = "\n\n".join(textwrap.fill(" ".join(part.split()), 100) for part in description.split("\n\n"))
        if examples:
            text += "\n\nexamples:\n" + "\n".join(f"  attnfaith {example}" for example in examples)
        layout = partial(argparse.RawDescriptionHelpFormatter, max_help_position=8, width=100)
        name = f"attnfaith {command}"
        super().__init__(prog=name, description=text, formatter_class=layout, allow_abbrev=False, **options)
        self.keys = keys
        for names, settings in arguments:
            self.add_argument(*names, **settings)
        if keys is None:
            return
        synopsis = self.format_usage().removeprefix("usage: ").rstrip().replace("%", "%%")
        self.usage = f"{synopsis} [--key value ...]"
        self.set_defaults(overrides=())
        for part, kind in {"": Recipe, **SECTIONS}.items():
            listed = "" in keys or part in keys
            group = self.add_argument_group(part or "recipe", kind.__doc__.splitlines()[0]) if listed else self
            for key in (key for key in KEYS if key.section == part):
                self._add_key(group, key, listed)

    def _add_key(self, group, key: "Key", listed: bool) -> None:
        names = [f"--{name}" for name in (key.name, key.short) if name]
        flag = key.type is Any or key.holds(bool)
        action = group.add_argument(
            *(name for name in names if name not in self._option_string_actions),
            action=_Override,
            dest=key.name,
            default=argparse.SUPPRESS,
            nargs="*" if key.holds(list) else "?" if flag else None,
            metavar="VALUE",
            help=f"{key.help}; {_type_name(key.type)}, {key.default}".replace("%", "%%") if listed else argparse.SUPPRESS,
        )
        action.key = key

    def parse_known_args(self, args=None, namespace=None):
        """Parse as argparse does; a dictionary's own keys are options too: `--data.arguments.length "[3, 4]"`."""
        for word in (args or ()) if self.keys is not None else ():
            name = str(word).partition("=")[0].removeprefix("--")
            inner = any(key.holds(dict) and name.startswith(f"{key.name}.") for key in KEYS)
            if inner and f"--{name}" not in self._option_string_actions:
                self._add_key(self, Key(name, None, "", Any), False)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError; for an unknown option with the options that may be meant."""
        unknown = [word for word in message.split() if word.startswith("--")]
        if not message.startswith("unrecognized arguments: ") or not unknown:
            raise UsageError(f"{self.prog}: {message}; `{self.prog} --help` lists what it takes")
        name = unknown[0].partition("=")[0]
        choices = [option for option in self._option_string_actions if option.startswith("--")]
        near = [option for option in choices if option.endswith(f".{name.removeprefix('--')}")] or [closest(name, choices)]
        hint = f"did you mean {' or '.join(near)}?" if near[0] else f"`{self.prog} --help` lists all"
        raise UsageError(f"{self.prog} has no option {cut(name, 60)}; {hint}")


# ------------------------------------------------------------------------------------------------ keys of a recipe


class Key(NamedTuple):
    """One key of a recipe. name: dotted. short: its last part, where no other key has it. type: of its value."""

    name: str
    short: str | None
    section: str
    type: Any
    default: str = ""
    help: str = ""

    def holds(self, kind: type) -> bool:
        """Whether its values are of a type, aside from null."""
        parts = typing.get_args(self.type) if _is_union(self.type) else (self.type,)
        parts = [typing.get_args(part)[0] if typing.get_origin(part) is typing.Annotated else part for part in parts]
        return any(kind in (part, typing.get_origin(part)) for part in parts)


def _is_union(kind) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _type_name(kind) -> str:
    """A type in words: "whole number or null", "list of texts"."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _type_name(parts[0])
    if origin is typing.Literal or _is_union(kind):
        return " or ".join(part if isinstance(part, str) else _type_name(part) for part in parts)
    if origin is list:
        return f"list of {_type_name(parts[0])}s"
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return plain.get(origin or kind, "keys and values")


def _keys_of(kind: type, section: str, prefix: str, names: Sequence[str]) -> Iterator[Key]:
    inner = sections_of(kind)
    for name, field in kind.__pydantic_fields__.items():
        if kind is Recipe and name in SECTIONS:
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        text = yaml.safe_dump(default, default_flow_style=True, width=10_000).splitlines()[0]
        short = name if prefix and names.count(name) == 1 else None
        text = "required" if field.is_required() else f"default {text}"
        yield Key(f"{prefix}{name}", short, section, field.annotation, text, field.description)
        if name in inner:
            yield from _keys_of(inner[name], section, f"{prefix}{name}.", ())


_NAMES = [name for part in (Recipe, *SECTIONS.values()) for name in part.__pydantic_fields__]
KEYS = [key for part, kind in {"": Recipe, **SECTIONS}.items() for key in _keys_of(kind, part, part and f"{part}.", _NAMES)]


class _Override(argparse.Action):
    """Collect (dotted key, value) in the order of the command line."""

    def __call__(self, parser, namespace, words, option_string=None):
        from attnfaith.recipes.yaml_files import read_value

        place, words = f"the value of {cut(option_string)}", [words] if isinstance(words, str) else words
        text = " ".join(words or ())
        if words is None:  # a flag without a value
            value = True
        elif not self.key.holds(list) or text.startswith(("[", "{")) or text in ("", "null", "~"):
            value = read_value(text, place)
        else:  # bare names in place of a list
            names = [name.strip() for word in words for name in word.split(",") if name.strip()]
            value = names if "str" in str(self.key.type) else [read_value(name, place) for name in names]
        namespace.overrides = (*namespace.overrides, (self.dest, value))


@cache
def _parser() -> Parser:
    return Parser("train", keys=("",), add_help=False)


def parse_overrides(words: Sequence[str]) -> list[tuple[str, Any]]:
    """Return [(dotted key, value)] from `--key value` and `--key=value`; raise RecipeError for anything else.

    A key that holds a list takes bare names too: `--producers gradient leave_one_out`, `--producers gradient,leave_one_out`.
    """
    try:
        return list(_parser().parse_args([str(word) for word in words]).overrides)
    except UsageError as error:
        raise RecipeError(str(error)) from error
