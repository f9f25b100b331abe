"""The command lines of README.md and docs/ are taken by the commands' own parsers."""

import re
import shlex

import pytest

from attnfaith import cli, recipes
from attnfaith.cli import common
from tests.docs.test_numbers import ROOT, TEXTS


LINE = re.compile(r"(?:^|`)attnfaith ([a-z][\w-]* [^`\n…]+)(?=`|$)", re.M)
LINES = sorted({line for text in TEXTS.values() for line in LINE.findall(text)})


@pytest.mark.parametrize("line", [line for line in LINES if "--help" not in line])
def test_a_line_is_taken(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    own = line.replace(" RECIPE ", " recipes/quickstart.yaml ").partition(" -- ")[0]
    name, *words = shlex.split(own, comments=True)
    known, keys = common.read(cli.COMMANDS[name].parser(), words)
    recipes.load(known.config if name == "train" else None, keys)
