"""The YAML of recipes and studies: plain values only, YAML 1.2's floats, no key twice; and a writer whose strings read back.

A file may come from a stranger: it can name no type, refer to itself or grow beyond bounds while it is read.
"""

import re
from pathlib import Path

import yaml

from attnfaith.errors import excerpt
from attnfaith.recipes.sections import RecipeError


CORE = "tag:yaml.org,2002:"
KINDS = {f"{CORE}{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
MERGE = f"{CORE}merge"
LARGEST_FILE = 1 << 18  # bytes
DEEPEST, MOST_VALUES, MOST_KEYS, LONGEST_NUMBER = 20, 100_000, 1000, 100
CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
)  # what neither a path nor a file of text may hold


class Loader(yaml.SafeLoader):
    """Texts, numbers, true, false, null, lists and keys with values: 1e-3 is a number, a date is a text, no key twice."""

    depth = 0

    def compose_node(self, parent, index):
        self.depth += 1
        if self.depth > DEEPEST:
            raise RecursionError
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node, deep=False):
        if node.tag not in KINDS:
            raise self._refusal(f"the tag {excerpt(node.tag)} is not allowed: write plain values", node)
        kind = node.tag.removeprefix(CORE)
        if kind in ("int", "float") and len(node.value) > LONGEST_NUMBER:
            raise self._refusal(f"a number of {len(node.value)} characters; {LONGEST_NUMBER} at most", node)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError) as error:
            raise self._refusal(f"{excerpt(node.value)} is no {kind}", node) from error
        if isinstance(value, str) and (control := CONTROL.search(value)):
            raise self._refusal(f"a text with the character {control[0]!r}", node)
        return value

    def compose_mapping_node(self, anchor):
        node, names = super().compose_mapping_node(anchor), set()
        for key, value in node.value:
            if key.tag == MERGE and not isinstance(value, yaml.MappingNode):
                raise self._refusal("<< takes one set of keys", value)
            if isinstance(key.value, str) and key.value in names:
                raise self._refusal(f"the key {excerpt(key.value)} is given twice", node)
            names.add(key.value if isinstance(key.value, str) else None)
        return node

    def flatten_mapping(self, node):
        super().flatten_mapping(node)
        if len(node.value) > MOST_KEYS:
            raise self._refusal(f"more than {MOST_KEYS} keys", node)

    @staticmethod
    def _refusal(what: str, node) -> yaml.YAMLError:
        return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


class Dumper(yaml.SafeDumper):
    """Quotes the strings that Loader would read as numbers."""


for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver(
        f"{CORE}float",
        re.compile(r"^[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+)$"),
        list("-+0123456789."),
    )
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag in {*KINDS, MERGE}]
    for first, known in Loader.yaml_implicit_resolvers.items()
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


def read_value(text: str, source: str):
    """The value that a YAML text holds. source: where it stands, for the message.

    Raises RecipeError where it is no YAML, holds other than plain values, or is nested or repeated (&, *) beyond bounds.
    """
    try:
        value = yaml.load(text, Loader=Loader)
        _check_bounds(value)
    except yaml.YAMLError as error:
        raise RecipeError(f"{source} is not YAML: {excerpt(error, 400)}") from error
    except RecursionError as error:
        raise RecipeError(f"{source} is nested more than {DEEPEST} deep, or in itself") from error
    return value


def _check_bounds(value) -> None:
    """Raise RecursionError where lists and keys are nested too deep or hold too much, each reference counted as a copy."""
    level, count = [value], 0
    for _ in range(DEEPEST):
        inside = []
        for one in level:
            inside += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            if count + len(inside) > MOST_VALUES:
                raise RecursionError
        if not inside:
            return
        level, count = inside, count + len(inside)
    raise RecursionError
