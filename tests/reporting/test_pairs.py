"""Pairs of sentences in the terminal, in wide tables and side by side."""

import re

import pytest

from attnfaith import record as records
from attnfaith.api.records import Record
from attnfaith.cli import main
from attnfaith.hub import HubError, plan, plan_record
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.compare import compare
from attnfaith.reporting.pairs import ShownPair
from attnfaith.reporting.seed_tables import overview, seed_table
from attnfaith.support.errors import AttnfaithError
from tests.records import draw as draw_texts
from tests.sequence_records import SENTENCES, aligned, build


@pytest.fixture(scope="module")
def table():
    return aligned(12, layers=2, heads=2, where=(1, 0, 1))


@pytest.fixture(scope="module")
def cell(table):
    return split_cells(table)[0]


def test_a_pair_in_the_terminal(cell):
    shown = str(ShownPair(cell, 1))
    source, target = SENTENCES[1]
    assert f"source: {source}\ntarget: {target}\n" in shown and "pairs/1  (pair 1 of 12)" in shown
    assert "attention, layer 1, head 0, the row in which the word is the input, target argmax" in shown
    links = records.rows(cell.table, "gold_links")[1]
    for word, gold in zip(target.split(), links, strict=True):
        linked = source.split()[int(gold.argmax())]
        (line,) = re.findall(rf"(?m)^{re.escape(word)} +0\.50  .*$", shown)
        assert f"*{linked} 0." in line
        assert line.endswith(linked if gold.max() == 2 else f"({linked})")


def test_measures_are_named(cell):
    shown = str(ShownPair(cell, 0, ["norm", "absolute_occlusion"]))
    assert "\nnorm, layer 1, the row in which the word is the input, " in shown and "\nabsolute occlusion, " in shown
    with pytest.raises(AttnfaithError, match="the record holds no measure 'norms'; did you mean 'norm'"):
        ShownPair(cell, 0, ["norms"])


def test_without_gold_and_without_measures():
    (cell,) = split_cells(aligned(2).drop_columns(["gold_links"]))
    shown = str(ShownPair(cell, 0))
    assert "attention mean, layer 2, the row that predicts the word" in shown and "gold" not in shown
    (bare,) = split_cells(build([(["a"], ["b"])]))
    assert "Nothing was measured that links their words." in str(ShownPair(bare, 0))


def test_a_record_shows_its_pairs(table):
    made = Record(table)
    assert str(made.show("pairs/1", "norm")).startswith("pairs/1  (pair 1 of 12)") and "norm, layer" in str(
        made.show(-1, ["norm"])
    )
    with pytest.raises(AttnfaithError, match="the record holds no measure 'lime'"):
        made.show(0, "lime")


def test_a_pair_in_a_notebook(cell):
    shown = ShownPair(cell, 1)
    assert str(shown).startswith("pairs/1") and shown._repr_html_().startswith("<pre>pairs/1")
    (bad,) = split_cells(build([(["<b>\x1b[31m"], ["c"])]))
    assert "&lt;b&gt;" in ShownPair(bad, 0)._repr_html_() and "\x1b" not in str(ShownPair(bad, 0))


def test_the_command_shows_the_pairs_of_lowest_and_of_highest_error(tmp_path, table, capsys):
    records.save(table, tmp_path / "record.parquet")
    main(["show", str(tmp_path / "record.parquet")])
    assert capsys.readouterr().out.count("error rate of this pair") == 2
    main(["show", str(tmp_path / "record.parquet"), "pairs/3", "--measures", "occlusion"])
    out = capsys.readouterr().out
    assert "pairs/3" in out and "occlusion" in out


def test_seeds_in_a_wide_table(table):
    cells = [*split_cells(table), *split_cells(aligned(12, layers=2, heads=2, where=(1, 0, 1), seed=1))]
    rates, others = overview(cells)
    assert (
        rates.title == "Alignment error rate"
        and "attention mean" in rates.formatted("text")
        and "over 2 seeds" in rates.note
    )
    assert "marker mass" in others.formatted("text")
    by_hand = seed_table(cells, ["projection"], "measure")
    for long in (by_hand.long, rates.long):
        assert long.set_index("measure").loc["attention", "mean"] == 0
    bare = [split_cells(aligned(4, seed=seed).drop_columns(["gold_links"]))[0] for seed in (0, 1)]
    assert [one.title for one in overview(bare)] == ["Mean over texts"]


def test_side_by_side(table):
    other = aligned(12, layers=2, heads=2, where=(1, 0, 1), projection="sparsemax", noise=1.0)
    frame = compare([table, other], ["one", "two"]).frame.set_index("quantity")
    row = frame.loc["alignment_error_attention"]
    assert (row["n_texts"], row["n_left_out"], row["mean_first"]) == (6, 6, 0) and row["difference"] > 0.3
    assert row["verdict"] == "cannot be told"  # of six pairs, with all numbers that are compared
    assert frame.loc["target_probability", "difference"] == 0
    with pytest.raises(AttnfaithError, match="have no text in common"):
        compare([table, draw_texts(5)], ["pairs", "texts"])


def test_a_run_of_pairs_is_not_pushed_as_a_classifier(tmp_path, table):
    (tmp_path / "run.json").write_text('{"status": "complete", "provenance": {"dirty": false, "commit": "a"}}')
    (tmp_path / "recipe.yaml").write_text("name: pairs\noutput_dir: runs/pairs\n")
    records.save(table, tmp_path / "record.parquet")
    with pytest.raises(
        HubError, match=r"is a run of sentence pairs, and model cards are of classifiers: push its record alone"
    ):
        plan(tmp_path, "me")


def test_the_record_is_pushed_with_a_card_of_its_columns(table):
    card = plan_record(table, "me/pairs").repos[0].files["README.md"].decode()
    assert "| target\\_tokens | \\[G\\] | target words" in card and "G target words, L layers, A heads" in card
