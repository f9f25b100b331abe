"""Command lines, recipes and studies in README.md and docs/ are taken by what reads them, and named files exist."""

import re
import shlex
import sys
from types import ModuleType

import pytest
import yaml

from attnfaith import cli, recipes
from attnfaith.data.registry import read_entries
from attnfaith.study import plan
from tests.docs.test_numbers import ROOT, TEXTS


PAGES = "\n".join(TEXTS.values())
LINES = re.findall(r"(?:^|`)attnfaith ([a-z][\w-]* [^`\n…]+)(?=`|$)", PAGES, re.M)
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGES, re.M | re.S)
FILES = re.findall(r"(?<![\w/.])recipes/[\w./-]+\.(?:py|yaml|csv|md|png)", PAGES)


@pytest.fixture(autouse=True)
def _root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(sys.modules, "my_module", ModuleType("my_module"))  # a reader's own, which a recipe imports


@pytest.mark.parametrize("line", sorted({line for line in LINES if "--help" not in line}))
def test_a_line_is_taken(line):
    own = line.replace(" RECIPE ", " recipes/quickstart.yaml ")
    own = re.split(" -- | [|] ", own)[0]
    name, *words = shlex.split(own, comments=True)
    arguments = cli.COMMANDS[name].parser().parse_args(words)
    assert recipes.load(getattr(arguments, "config", None), getattr(arguments, "overrides", ()))


@pytest.mark.parametrize("block", BLOCKS)
def test_a_recipe_or_study_is_read(block, tmp_path):
    (path := tmp_path / "block.yaml").write_text(block, encoding="utf-8")
    content = yaml.safe_load(block)
    if isinstance(content, list):
        assert read_entries(path)
    elif "blocks" in content:
        assert plan.cells(plan.read_study(path))
    else:
        assert recipes.load(path).name == content["name"]


def test_named_files_exist():
    assert [path for path in FILES if not (ROOT / path).is_file()] == []
