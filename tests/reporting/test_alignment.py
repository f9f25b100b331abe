"""Sentence pairs: readings, where they are chosen and judged, tables, and how pairs are shown, compared and pushed."""

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.api.records import Record
from attnfaith.cli import main
from attnfaith.hub import HubError, plan, plan_record
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_results, link_counts, read_links
from attnfaith.metrics.extraction import RULES, halves
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.page import MOST_WORDS, extreme_pairs, page_reading, pair, write_report
from attnfaith.reporting.sections import alignment, translation
from attnfaith.reporting.sections.alignment import POSITIONS, Reading, at, columns, readings, weights
from attnfaith.reporting.seed_tables import overview
from attnfaith.reporting.view import PairView
from tests.sections import check_section, whole
from tests.sequence_records import SENTENCES, aligned, build


PAIRS = 12


@pytest.fixture(scope="module")
def table():
    """Head 0 of layer 1 follows gold in the row in which the word is the input."""
    return aligned(PAIRS, layers=2, heads=2, where=(1, 0, 1))


@pytest.fixture(scope="module")
def cell(table):
    return one_cell(table)


# ---------- readings


def as_files(values, gold):
    """The links of each target word's heaviest source word, and gold, as the texts of .talp files from 1."""
    links = [" ".join(f"{row.argmax() + 1}-{g + 1}" for g, row in enumerate(rows)) for rows in values]
    marks = {2: "-", 1: "p"}
    gold = [" ".join(f"{t + 1}{marks[kind]}{g + 1}" for (g, t), kind in np.ndenumerate(row) if kind) for row in gold]
    return read_links(links, "links", start=1), read_links(gold, "gold", start=1)


def test_places_and_rules_of_every_measure(cell):
    """Attention has two layers, heads and rows; its mean no heads; occlusion neither, but a sign, so that its size is one
    more. Shares of 1 are also read by how much they are.
    """
    result = readings(cell)
    assert {measure: len(places) for measure, places in result.places.items()} == {
        "any_measure": len(result.readings) - 1,  # all but positions
        "attention": 8 * (len(RULES) + 5),
        "attention_mean": 4 * (len(RULES) + 5),
        "norm": 4 * len(RULES),
        "occlusion": len(RULES),
        "absolute_occlusion": len(RULES),
        POSITIONS: 1,
    }
    stored = records.rows(cell.table, "alignment_attention")[3][1, 0, 1]
    np.testing.assert_array_equal(at(cell, Reading("attention", 1, 0, 1), 3), stored)
    np.testing.assert_array_equal(weights(cell, "absolute_occlusion")[2], np.abs(weights(cell, "occlusion")[2]))


@pytest.mark.parametrize("place", [Reading("attention", 1, 0, 1), Reading("norm", 0, None, 0), Reading("occlusion")])
def test_counts_are_those_of_the_metric_on_files(cell, place):
    links, gold = as_files([at(cell, place, row) for row in range(PAIRS)], cell.rows("gold_links"))
    result, everything = readings(cell), np.ones(PAIRS, bool)
    number = result.readings.index(place)
    np.testing.assert_array_equal(result.counts[:, number], link_counts(links, gold))
    expected = alignment_results(link_counts(links, gold))
    names = ("alignment_error_rate", "precision", "recall")
    assert result.scores(everything)[number].tolist() == pytest.approx([expected[name] for name in names])


def test_a_reading_that_is_chosen_on_one_half_is_judged_on_the_other():
    """Head 0 follows gold on the half that is chosen on and never on the other; head 1 the other way."""
    chooses = halves([f"pairs/{number}" for number in range(20)])
    right, wrong = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]), np.array([[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    heads = [np.stack([right, wrong] if first else [wrong, right])[None, :, None].repeat(2, 2) for first in chooses]
    gold, measures = [np.array([[2, 0, 0], [0, 2, 0]])] * 20, {"alignment_attention": [np.float32(row) for row in heads]}
    cell = one_cell(build([(["a", "b", "c"], ["d", "e"])] * 20, links=gold, measures=measures))
    row = alignment.WHOLE.frame([cell]).set_index("measure").loc["any_measure"]
    assert (row["layer"], row["head"], row["row"], row["rule"]) == ("0", "0", "predicting", "target argmax")
    assert (row["error_rate_chosen_on"], row["error_rate"], row["error_rate_least"]) == (0, 1, 0)
    assert (row["n"], row["n_chosen_on"], row["readings"]) == (10, 10, 4 * 14)
    rates = alignment.SECTION.numbers(cell)["alignment_error_attention"]
    assert np.isnan(rates[chooses]).all() and (rates[~chooses] == 1).all()
    text = " ".join(alignment.SECTION.sentences(cell))
    assert "one half of the sentence pairs, 0.000; on the other 10 it is 1.000" in text


# ---------- sections


def test_tables_by_layer_and_of_every_reading(cell):
    result, everything = readings(cell), np.ones(PAIRS, bool)
    chosen = alignment.WHOLE.frame([cell]).set_index("measure")
    row = chosen.loc["attention"]
    assert (row["layer"], row["head"], row["row"], row["error_rate"]) == ("1", "0", "input", 0)
    assert chosen.loc["any_measure", "of"] == "attention" and chosen.loc[POSITIONS, "error_rate"] > 0.5
    by_layer = alignment.BY_LAYER.frame([cell]).set_index(["measure", "layer", "head", "row"])
    number = result.readings.index(Reading("attention_mean", 1, None, 0))
    assert by_layer.loc[("attention_mean", "1", "none", "predicting"), "error_rate"] == result.scores(everything)[number][0]
    assert len(by_layer.loc["attention"]) == 8 and (by_layer["n"] == PAIRS).all()
    assert (by_layer["ci_low"] <= by_layer["error_rate"]).all() and (by_layer["error_rate"] <= by_layer["ci_high"]).all()
    everywhere = alignment.READINGS.frame([cell])
    assert len(everywhere) == len(result.readings) and everywhere["chosen"].sum() == len(result.places) - 1


def test_marker_mass_and_the_pairs_of_a_record(cell):
    for section in (alignment.SECTION, translation.SENTENCE_PAIRS, translation.ALIGNMENT_MARKERS):
        check_section(section, cell)
    masses, links = cell.rows("alignment_marker_mass"), cell.rows("gold_links")
    means = whole(translation.ALIGNMENT_MARKERS, cell)["mean"]
    assert means["marker_mass layer 1, input"] == pytest.approx(np.mean([row[1, :, 1].mean() for row in masses]))
    values = translation.ALIGNMENT_MARKERS.numbers(cell)["marker_mass"]
    assert values[4] == pytest.approx(masses[4][:, :, 0].mean())
    means = whole(translation.SENTENCE_PAIRS, cell)["mean"]
    assert (means["target_probability"], means["truncated"]) == (0.5, 0)
    for name, kind in (("sure_links", 2), ("possible_links", 1)):
        assert means[name] == pytest.approx(np.mean([(row == kind).sum() for row in links]))
    assert means["source_words"] == pytest.approx(cell.lengths.mean())


def test_without_a_measure_or_a_second_pair_nothing_is_judged(tmp_path):
    bare = one_cell(build([(["a"], ["b"])] * 3, links=[np.array([[2]])] * 3))
    assert columns(bare) == {} and "any_measure" not in readings(bare).chosen
    page = write_report(bare.table, tmp_path / "report").read_text()
    assert "Nothing was measured that could be shown." in page and "read as a link" not in page
    single = one_cell(aligned(1))
    assert all(len(alignment.SECTION.sentences(cell)) == 1 for cell in (bare, single)), "no rate"
    table = alignment.WHOLE.frame([single])
    assert (table["n"] == 0).all() and table["error_rate"].isna().all() and table["error_rate_chosen_on"].notna().all()


# ---------- pairs on the page, in a terminal and in a notebook


def test_a_pair_as_the_page_shows_it(cell):
    reading, links = page_reading(cell), cell.rows("gold_links")[0]
    shown = pair(cell, 0, reading)
    assert (reading.measure, reading.layer, reading.head, reading.row) == ("attention", 1, 0, 1)
    kinds, read = ([[cell[place] for cell in line] for *_, line in shown["lines"]] for place in (1, 3))
    assert kinds == [[{2: "sure", 1: "possible", 0: ""}[kind] for kind in row] for row in links.tolist()]
    assert read == (links > 0).tolist(), "the head follows gold"
    assert shown["error"] == "0.00" and shown["lines"][0][1] == 0.5
    rates, means = overview([cell, one_cell(aligned(PAIRS, seed=1))])
    assert "attention mean" in rates.formatted("text") and "marker mass" in means.formatted("text")
    groups = dict(extreme_pairs(cell, 3))
    rows = [row for group in groups.values() for row in group]
    assert list(groups) == ["Lowest error rate", "Highest error rate"] and len(set(rows)) == 6
    assert not readings(cell).chooses[rows].any(), "pairs that the reading was not chosen on"
    words = shown["lines"][0][2][int(links[0].argmax())][2]
    assert words.startswith("we – ") and words.endswith("link in gold; read as a link")
    long = [f"w{number}" for number in range(MOST_WORDS + 5)]
    values = np.random.default_rng(0).random((2, len(long))).astype(np.float32)
    cell = one_cell(build([(long, ["x", "y"])], measures={"alignment_occlusion": [values]}))
    shown = pair(cell, 0, page_reading(cell))
    assert len(shown["source"]) == len(shown["lines"][0][2]) == MOST_WORDS and shown["sizes"] == (MOST_WORDS + 5, 2)


def test_without_gold_links_pairs_are_shown_and_nothing_is_judged(tmp_path):
    table = aligned(5).drop_columns(["gold_links"])
    cell = one_cell(table)
    assert not alignment.SECTION.applies(cell)
    assert page_reading(cell) == Reading("attention_mean", 2, None, 0)
    assert extreme_pairs(cell, 2) == [("First pairs", [0, 1])]
    page = write_report(table, tmp_path / "report").read_text()
    assert "First pairs" in page and "Framed" not in page and "Alignment error rate" not in page
    assert "attention mean, layer 2, the row that predicts the word" in page and "gold" not in str(PairView.of(table))


def test_text_is_escaped(tmp_path):
    words = '<script>alert("x")</script>\x1b[31m'
    gold, values = [np.array([[2]])] * 3, [np.array([[0.5]], np.float32)] * 3
    table = build([([words], [words])] * 3, links=gold, measures={"alignment_occlusion": values})
    page, shown = write_report(table, tmp_path / "report").read_text(), PairView.of(table)
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "<script>alert" not in shown.page and "\x1b" not in str(shown)


def test_a_pair_in_the_terminal(cell, table, tmp_path, capsys):
    source, target = SENTENCES[1]
    text = str(Record(table).show("pairs/1"))
    assert f"source: {source}\ntarget: {target}\n" in text and text.startswith("pairs/1 · ")
    gold = cell.rows("gold_links")[1]
    links = [f"{target.split()[g]}–{source.split()[t]}{'?' if gold[g, t] == 1 else ''}" for g, t in np.argwhere(gold)]
    assert f"gold: {' '.join(links)} " in text
    assert str(Record(table).show(-1)).startswith("pairs/11 · ")
    records.save(table, tmp_path / "record.parquet")
    main(["show", str(tmp_path / "record.parquet"), "pairs/1"])
    assert capsys.readouterr().out.strip() == text


# ---------- several records, and the Hub


def test_a_run_of_pairs_is_pushed_as_a_record_and_not_as_a_classifier(tmp_path, table):
    (tmp_path / "run.json").write_text('{"status": "complete", "provenance": {"dirty": false, "commit": "a"}}')
    (tmp_path / "recipe.yaml").write_text("name: pairs\noutput_dir: runs/pairs\n")
    (tmp_path / "report" / "tables").mkdir(parents=True)
    records.save(table, tmp_path / "record.parquet")
    with pytest.raises(HubError, match="is a run of sentence pairs"):
        plan(tmp_path, "me")
    card = plan_record(table, "me/pairs")[0].files["README.md"].decode()
    assert "| target\\_tokens | \\[G\\] | target words" in card and "G target words, L layers, A heads" in card
