"""Command-line options: argparse with examples in the help, errors that suggest a name, and the keys of a recipe.

The options of a recipe's keys are made from its schema: type, default and help are written there alone. Their values are
YAML, as in a file.
"""

import argparse
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn

import yaml
from pydantic import TypeAdapter

from attnfaith.recipes.schema import SECTIONS, Recipe, RecipeError
from attnfaith.support.errors import closest, cut, excerpt


class Loader(yaml.SafeLoader):
    """1e-3 is a number, as in YAML 1.2, and a date is a text."""


class Dumper(yaml.SafeDumper):
    """Quotes the texts that Loader would read as numbers."""


NUMBER = re.compile(r"^[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+)$")
for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+0123456789."))
Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_yaml_str)


def read_value(text: str, source: str) -> Any:
    """Return the value of a YAML text. source: for the message. Raises RecipeError where it is no YAML."""
    try:
        return yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecipeError(f"{source} is not YAML: {excerpt(error, 400)}") from error


class Parser(argparse.ArgumentParser):
    """The arguments of one command, as `add_argument` takes them; where names clash, they come before the keys of a recipe.

    examples: command lines without "attnfaith". keys: beginnings of the recipe's keys that the command takes, ("",) for all.
    """

    def __init__(self, command: str, description="", arguments=(), *, examples=(), keys=(), **options):
        text = "\n\n".join(textwrap.fill(" ".join(part.split()), 100) for part in description.split("\n\n"))
        if examples:
            text += "\n\nexamples:\n" + "\n".join(f"  attnfaith {example}" for example in examples)
        layout = partial(argparse.RawDescriptionHelpFormatter, max_help_position=8, width=100)
        name = f"attnfaith {command}"
        super().__init__(prog=name, description=text, formatter_class=layout, allow_abbrev=False, **options)
        for names, settings in arguments:
            self.add_argument(*names, **settings)
        self.keys = [key for key in KEYS if key.name.startswith(tuple(keys))]
        if self.keys:
            self.usage = f"{self.format_usage().removeprefix('usage: ').rstrip()} [--key value ...]"
            self.set_defaults(overrides=())
        for section, part in itertools.groupby(self.keys, lambda key: key.section):
            summary = SECTIONS.get(section, Recipe).__doc__.splitlines()[0]
            group = self.add_argument_group(section or "recipe", summary)
            for key in part:
                self._add_key(group, key)

    def _add_key(self, group, key: "Key") -> None:
        action = group.add_argument(
            *(name for name in key.options if name not in self._option_string_actions),  # the command's own come first
            action=_Override,
            dest=key.name,
            default=argparse.SUPPRESS,
            nargs="*" if "list" in key.kinds else "?" if {"any", "true or false"} & key.kinds else None,
            metavar="VALUE",
            help=key.help,
        )
        action.kinds = key.kinds

    def parse_known_args(self, args=None, namespace=None):
        """Parse as argparse does; a dictionary's own keys are options too: `--data.arguments.length "[3, 4]"`."""
        for word in args or ():
            name = word.partition("=")[0].removeprefix("--")
            inner = any("keys and values" in key.kinds and name.startswith(f"{key.name}.") for key in self.keys)
            if inner and f"--{name}" not in self._option_string_actions:
                self._add_key(self, Key(name, {"any"}, argparse.SUPPRESS))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise RecipeError; for an unknown option with the options that may be meant."""
        unknown = [word for word in message.split() if word.startswith("--")]
        if not message.startswith("unrecognized arguments: ") or not unknown:
            raise RecipeError(f"{self.prog}: {message}; `{self.prog} --help` lists what it takes")
        name = unknown[0].partition("=")[0]
        choices = [option for option in self._option_string_actions if option.startswith("--")]
        near = [option for option in choices if option.endswith(f".{name.removeprefix('--')}")] or [closest(name, choices)]
        hint = f"did you mean {' or '.join(near)}?" if near[0] else f"`{self.prog} --help` lists all"
        raise RecipeError(f"{self.prog} has no option {cut(name, 60)}; {hint}")


class Key(NamedTuple):
    """One key of a recipe. name: dotted. kinds: of its values, in words."""

    name: str
    kinds: set[str]
    help: str

    @property
    def section(self) -> str:
        return self.name.partition(".")[0] if "." in self.name else ""

    @property
    def options(self) -> list[str]:
        """Its name and, where no other section has such a key, its last part."""
        section, _, last = self.name.rpartition(".")
        unique = section in SECTIONS and NAMES.count(last) == 1
        return [f"--{self.name}", *([f"--{last}"] if unique else [])]


WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
WORDS |= {"object": "keys and values", "array": "list"}


def _keys(part: Mapping, prefix: str = "") -> Iterator[Key]:
    """The keys of a part of the recipe's JSON schema, and those of its sections."""
    for name, facts in part["properties"].items():
        choices = facts.get("anyOf", [facts])
        if name not in SECTIONS:
            kinds = [str(word) for choice in choices for word in choice.get("enum", [WORDS[choice.get("type", "object")]])]
            text = f"{' '.join(facts['description'].split())}; {' or '.join(kinds)}"
            if name in part.get("required", ()):
                text += ", required"
            elif facts.get("default") not in (None, [], {}):  # the text says what null means
                text += f", default {yaml.safe_dump(facts['default'], default_flow_style=True).splitlines()[0]}"
            yield Key(f"{prefix}{name}", {*kinds}, text.replace("%", "%%"))
        for choice in choices:
            if "$ref" in choice:
                yield from _keys(SCHEMA["$defs"][choice["$ref"].rpartition("/")[2]], f"{prefix}{name}.")


SCHEMA = TypeAdapter(Recipe).json_schema()
NAMES = [name for kind in (Recipe, *SECTIONS.values()) for name in kind.__pydantic_fields__]
KEYS = [*_keys(SCHEMA)]


class _Override(argparse.Action):
    """Collect (dotted key, value) in the order of the command line."""

    kinds: set[str]

    def __call__(self, parser, namespace, words, option_string=None):
        text = " ".join([words] if isinstance(words, str) else words or ())
        if words is None:  # a flag without a value
            value: Any = True
        elif "list" in self.kinds and text not in ("", "null", "~") and not text.startswith(("[", "{")):  # bare names
            value = [read_value(name, f"the value of {option_string}") for name in re.split(r"[\s,]+", text)]
        else:
            value = read_value(text, f"the value of {cut(option_string)}")
        namespace.overrides = (*namespace.overrides, (self.dest, value))


@cache
def _parser() -> Parser:
    return Parser("train", keys=("",), add_help=False)


Overrides = Sequence[str | tuple[str, Any]]


def parse_overrides(words: Overrides) -> list[tuple[str, Any]]:
    """Return [(dotted key, value)] from `--seed 3`, `--model.encoder=cnn` or, where only one section has the key, `--encoder
    cnn`; such pairs stay as they are. Raises RecipeError for anything else.

    Values are YAML; a key of true or false without a value is true; a list takes bare names: `--producers gradient lime`.
    """
    if all(isinstance(word, tuple) for word in words):
        return list(words)
    return list(_parser().parse_args([str(word) for word in words]).overrides)
