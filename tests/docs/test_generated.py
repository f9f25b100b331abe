"""Pages made from the code follow it: nothing that the code knows is typed a second time."""

import importlib

import generated
import pytest

from attnfaith import cli, record
from attnfaith.data.registry import DATASETS
from attnfaith.models.alignments import ALIGNMENTS
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.projections import PROJECTIONS
from attnfaith.recipes import Recipe, schema
from tests.docs.documents import ROOT


def test_generated_pages_are_not_kept():
    assert all(not (ROOT / "docs" / place).exists() for place in generated.pages())


def test_the_record_page_holds_every_column():
    page = generated.record_page()
    producers = [column for module in generated.modules().values() for column in module.COLUMNS]
    wanted = [*record.COLUMNS, *record.OPTIONAL_COLUMNS, *producers]
    assert len(producers) > 40
    assert [name for name in wanted if f"| `{name}` |" not in page] == []


def test_a_column_says_what_it_is(monkeypatch):
    module = importlib.import_module("attnfaith.importance.gradient")
    column = record.Column(("T", "W"), unit="nats", range=(0.0, 7.5), signed=True, undefined="for a | b", doc="a new one")
    monkeypatch.setattr(module, "COLUMNS", {"importance_new": column})
    (line,) = [line for line in generated.record_page().splitlines() if "importance_new" in line]
    assert line == r"| `importance_new` | a new one | [T]\[W] float32 | from 0 to 7.5, nats, signed | for a \| b |"
    assert "`importance_new`" in generated.producers_page()


def test_the_recipe_page_holds_every_key_with_its_limits():
    page = generated.recipe_page()
    for kind in (Recipe, *schema.SECTIONS.values()):
        for name, key in kind.__pydantic_fields__.items():
            if name not in schema.SECTIONS:
                (line, *_) = [
                    line for line in page.splitlines() if line.startswith(f"| `{name}` |") and key.description in line
                ]
                assert "any value" not in line, line
    assert "| `random_erasure` | number, from 0, to 1 | `0.0` |" in page
    assert '| `kind` | `classification` or `untrained` or `guided` or `adversarial` | `"classification"` |' in page


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_every_command_is_shown(name):
    assert f"usage: attnfaith {name}" in generated.command_line_page()


def test_every_data_set_and_producer_is_listed():
    assert [name for name in DATASETS if f"| `{name}` |" not in generated.data_sets_page()] == []
    assert [name for name in generated.modules() if f"### {name}\n" not in generated.producers_page()] == []


def test_the_readme_counts_the_parts_of_models():
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    parts = ((ENCODERS, "encoders"), (ALIGNMENTS, "alignments"), (PROJECTIONS, "projections"))
    said = " × ".join(f"{words[len(registry)]} {name}" for registry, name in parts)
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
