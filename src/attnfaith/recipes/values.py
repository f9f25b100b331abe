"""Values of a recipe as YAML writes them, in a file and on the command line."""

import re
from typing import Any

import yaml

from attnfaith.recipes.schema import RecipeError
from attnfaith.support.errors import excerpt


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
