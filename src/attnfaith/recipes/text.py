"""The YAML of recipes and studies: YAML 1.2's floats, no key twice, and a writer whose strings read back as strings."""

import re

import yaml


class Loader(yaml.SafeLoader):
    """YAML 1.2's floats, 1e-3 is a number, and no key twice."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if twice := sorted({key for key in keys if isinstance(key, str) and keys.count(key) > 1}):
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


class Dumper(yaml.SafeDumper):
    """Quotes the strings that Loader would read as numbers."""


for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+)$"),
        list("-+0123456789."),
    )
