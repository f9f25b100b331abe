"""The parts of results pages on tests that tell models apart: every number of theirs is read from the tables."""

import re

import evidence
import pages
import pytest

from attnfaith.reporting import save_table
from attnfaith.reporting.study import study_tables
from tests.deception import model


SEEDS = (1, 2, 3)
PAGE = '{% import "parts/told_apart.md" as told_apart with context %}{{ told_apart.NAME("made/results/") }}'


@pytest.fixture(scope="module")
def tables():
    kinds = [(0.0, {}), (0.1, {"deceit": 1.0}), (1.0, {"deceit": 3.0})]
    cells = [model(seed, weight, **kind) for seed in SEEDS for weight, kind in kinds]
    return study_tables([*cells, *(model(seed, projection="sparsemax") for seed in SEEDS)], ["uncovered", "interventions"])


@pytest.fixture
def rendered(tables, tmp_path, monkeypatch):
    for name, table in tables.items():
        save_table(table, tmp_path / "recipes" / "made" / "results" / name)
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setitem(evidence.GLOBALS, "table", evidence.table.__wrapped__)
    return lambda name: pages.environment().from_string(PAGE.replace("NAME", name)).render()


def test_every_auc_and_verdict_of_the_table_is_on_the_page(rendered, tables):
    page = rendered("uncovered")
    assert "![" in page and "made/results/figures/sst_wiki-uncovered.png" in page
    for row in tables["uncovered"].query("seed == 'all'").to_dict("records"):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row['label']}") and "[" in line]
        for start in ("", "matched_"):
            mark = {"uncovers": "**", "misled": "*"}.get(row[f"{start}verdict"], "")
            assert f" {mark}{evidence.number(row[f'{start}auc'], 2)}{mark} [" in line
    told = tables["uncovered"].query("seed == 'all' and test == 'tau_gradient'")["verdict"].tolist()
    assert f"| τ with gradient | 2 | {told.count('uncovers')} | 0 |" in page
    assert len(re.findall(r"^\| sst_wiki \| bilstm \| impermissible mass", page, re.M)) == 2


def test_every_intervention_is_on_the_page_with_its_price(rendered, tables):
    page = rendered("interventions")
    for (name,), rows in tables["interventions"].groupby(["intervention"], sort=False):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| bilstm | {name} |")]
        tests = rows[rows["kind"] == "test"]
        counts = [(tests["verdict"] == verdict).sum() for verdict in ("better", "worse", "cannot be told")]
        assert line.split(" | ")[2:7] == ["3", str(len(tests)), *map(str, counts)]
        (price,) = rows[rows["kind"] == "price"].to_dict("records")
        assert f"{evidence.number(price['difference'])} [" in line and price["verdict"] in line


def test_every_test_of_every_intervention_is_on_the_page(rendered, tables):
    page = rendered("each_test")
    table = tables["interventions"]
    names = list(dict.fromkeys(table["intervention"]))
    assert f"| test | {' | '.join(names)} |" in page and "**sst_wiki, bilstm**" in page
    for label, rows in table.groupby("label", sort=False):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {label} |")]
        shown = line.strip("| ").split(" | ")[1:]
        for name, cell in zip(names, shown, strict=True):
            (row,) = rows[rows["intervention"] == name].to_dict("records") or [None]
            if row is None:
                assert cell == "—"
            else:
                assert cell.startswith(f"{evidence.number(row['difference'])} [") and row["verdict"] in cell
