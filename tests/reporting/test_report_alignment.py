"""Reports of sentence pairs: readings, where they are chosen and judged, tables, sentences, figures, the page."""

import re

import numpy as np
import pandas as pd
import pytest

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_results, link_counts, read_links
from attnfaith.metrics.extraction import RULES, halves
from attnfaith.reporting import sections, write_report
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.links import FIXED, POSITIONS, Place, Reading, at, columns, reading_of, readings, weights
from attnfaith.reporting.pairs import MOST_WORDS, extreme_pairs, pair, shown_reading
from attnfaith.reporting.render import frame, sentences
from attnfaith.reporting.sections import alignment, translation
from tests.sections import check_section, whole
from tests.sequence_records import aligned, build


PAIRS = 30


@pytest.fixture(scope="module")
def table():
    return aligned(PAIRS, layers=2, heads=2, where=(1, 0, 1))


@pytest.fixture(scope="module")
def cell(table):
    return split_cells(table)[0]


@pytest.fixture
def undrawn(monkeypatch):
    """Reports without figures, which take most of their time."""
    monkeypatch.setattr("attnfaith.reporting.page.report.figures", lambda cell: iter(()))


def written(weights, gold):
    """The links of each target word's heaviest source word, and gold, as the texts of .talp files from 1."""
    links = [" ".join(f"{row.argmax() + 1}-{g + 1}" for g, row in enumerate(item)) for item in weights]
    marks = {2: "-", 1: "p"}
    reading_set = [
        " ".join(f"{t + 1}{marks[kind]}{g + 1}" for (g, t), kind in np.ndenumerate(item) if kind) for item in gold
    ]  # fmt: skip
    return read_links(links, "links", start=1), read_links(reading_set, "gold", start=1)


def test_places_and_rules_of_every_measure(cell):
    """Attention has two layers, heads and rows; its mean no heads; occlusion neither, but a sign, so that its size is one
    more. What is a share of 1 is also read by how much it is.
    """
    reading_set = readings(cell)
    assert reading_set.measures == ("attention", "attention_mean", "norm", "occlusion", "absolute_occlusion", POSITIONS)
    counts = {measure: len(reading_set.of(measure)) for measure in reading_set.measures}
    assert counts == {
        "attention": 8 * (len(RULES) + 5),
        "attention_mean": 4 * (len(RULES) + 5),
        "norm": 4 * len(RULES),
        "occlusion": len(RULES),
        "absolute_occlusion": len(RULES),
        POSITIONS: 1,
    }
    assert len(reading_set.of()) == len(reading_set.readings) - 1  # all but positions
    np.testing.assert_array_equal(
        at(cell, Place("attention", 1, 0, 1), 3), records.rows(cell.table, "alignment_attention")[3][1, 0, 1]
    )
    np.testing.assert_array_equal(weights(cell.table, "absolute_occlusion")[2], np.abs(weights(cell.table, "occlusion")[2]))


@pytest.mark.parametrize("place", [Place("attention", 1, 0, 1), Place("norm", 0, None, 0), Place("occlusion")])
def test_counts_are_those_of_the_metric_on_files(cell, place):
    values = [at(cell, place, row) for row in range(PAIRS)]
    links, gold = written(values, records.rows(cell.table, "gold_links"))
    reading_set = readings(cell)
    own = reading_set.counts[:, reading_set.readings.index(Reading(place, FIXED))]
    np.testing.assert_array_equal(own, link_counts(links, gold))
    everything = np.ones(PAIRS, bool)
    expected = alignment_results(links, gold)
    number = reading_set.readings.index(Reading(place, FIXED))
    names = ("alignment_error_rate", "precision", "recall")
    assert reading_set.scores(everything)[number].tolist() == pytest.approx([expected[name] for name in names])
    bounds = [expected[f"alignment_error_rate_ci_{end}"] for end in ("low", "high")]
    assert reading_set.intervals(everything, [number])[0].tolist() == pytest.approx(bounds)


def two_faced(count=20):
    """A record whose head 0 follows gold on the half that is chosen on and never on the other; head 1 the other way."""
    ids = [f"pairs/{number}" for number in range(count)]
    chooses = halves(ids)
    gold = [np.array([[2, 0, 0], [0, 2, 0]])] * count
    right, wrong = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]), np.array([[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    attention = [np.stack([right, wrong] if item else [wrong, right])[None, :, None].repeat(2, 2) for item in chooses]
    measures = {"alignment_attention": [item.astype(np.float32) for item in attention]}
    return build([(["a", "b", "c"], ["d", "e"])] * count, links=gold, measures=measures), chooses


def test_what_is_chosen_on_one_half_is_judged_on_the_other():
    table, chooses = two_faced()
    (cell,) = split_cells(table)
    df = frame(alignment.WHOLE, [cell]).set_index("measure")
    for measure in ("any_measure", "attention"):
        row = df.loc[measure]
        assert (row["layer"], row["head"], row["row"], row["rule"]) == ("0", "0", "predicting", "target argmax")
        assert (row["error_rate_chosen_on"], row["error_rate"], row["error_rate_least"]) == (0, 1, 0)
        assert (row["n"], row["n_chosen_on"], row["readings"]) == (10, 10, 4 * 14)
    per_pair = alignment.SECTION.numbers(cell)["alignment_error_attention"]
    assert np.isnan(per_pair[chooses]).all() and (per_pair[~chooses] == 1).all()
    text = " ".join(sentences(alignment.SECTION, cell))
    assert "one half of the sentence pairs, 0.000; on the other 10 it is 1.000" in text


def test_the_aligned_head_is_chosen(cell):
    df = frame(alignment.WHOLE, [cell]).set_index("measure")
    row = df.loc["attention"]
    assert (row["layer"], row["head"], row["row"]) == ("1", "0", "input") and row["error_rate"] == 0
    assert df.loc["any_measure", "of"] == "attention"
    assert df.loc[POSITIONS, "error_rate"] > 0.5


def test_tables_by_rule_layer_and_head(cell):
    reading_set, judged = readings(cell), ~readings(cell).chooses
    by_rule = frame(alignment.BY_RULE, [cell]).set_index(["measure", "rule"])
    place = reading_set.chosen("norm", RULES[2])
    assert by_rule.loc[("norm", "intersection"), "error_rate"] == reading_set.scores(judged)[place][0]
    assert set(by_rule.loc["norm"].index) == {rule.label for rule in RULES}
    everything = np.ones(PAIRS, bool)
    by_layer = frame(alignment.BY_LAYER, [cell]).set_index(["measure", "layer", "row"])
    number = reading_set.readings.index(Reading(Place("attention_mean", 1, None, 0), FIXED))
    assert by_layer.loc[("attention_mean", "1", "predicting"), "error_rate"] == reading_set.scores(everything)[number][0]
    assert "attention" not in by_layer.index and (by_layer["n"] == PAIRS).all()
    by_head = frame(alignment.BY_HEAD, [cell])
    assert set(by_head["measure"]) == {"attention"} and len(by_head) == 8
    whole = frame(alignment.READINGS, [cell])
    assert len(whole) == len(reading_set.readings) and whole["chosen"].sum() == len(reading_set.measures)
    everywhere = frame(alignment.BY_MEASURE, [cell]).set_index("measure")["error_rate"]
    np.testing.assert_array_equal(everywhere, frame(alignment.WHOLE, [cell])["error_rate"])


def test_a_study_has_tables_whose_rows_do_not_depend_on_what_was_chosen(cell):
    """Else the seeds of a kind of model would not come together."""
    result = sections.render.frames(alignment.SECTION, [cell], study=True)
    assert set(result) == {"alignment_by_rule", "alignment_by_layer", "alignment_by_measure", "alignment_by_head"}
    for df in result.values():
        after = df.columns[df.columns.get_loc("n") :]
        assert all(pd.api.types.is_numeric_dtype(df[name]) for name in after)


def test_marker_mass_and_what_a_record_holds(cell):
    for section in (translation.SENTENCE_PAIRS, translation.ALIGNMENT_MARKERS):
        check_section(section, cell)
    masses = records.rows(cell.table, "alignment_marker_mass")
    means = whole(translation.ALIGNMENT_MARKERS, cell)["mean"]
    assert means["marker_mass layer 1, input"] == pytest.approx(np.mean([item[1, :, 1].mean() for item in masses]))
    values = translation.ALIGNMENT_MARKERS.numbers(cell)["marker_mass"]
    assert values[4] == pytest.approx(masses[4][:, :, 0].mean())
    assert re.search(r"\d+% of the attention lies on markers", " ".join(sentences(translation.ALIGNMENT_MARKERS, cell)))
    means, links = whole(translation.SENTENCE_PAIRS, cell)["mean"], records.rows(cell.table, "gold_links")
    assert (means["target_probability"], means["truncated"]) == (0.5, 0)
    assert means["sure_links"] == pytest.approx(np.mean([(item == 2).sum() for item in links]))
    assert means["possible_links"] == pytest.approx(np.mean([(item == 1).sum() for item in links]))
    assert means["source_words"] == pytest.approx(cell.lengths.mean())


def test_no_gold_link_at_all(tmp_path, undrawn):
    """Everything that is read is wrong, and where nothing is read the rate is undefined."""
    table = aligned(6)
    empty = [np.zeros(item.shape, np.int64) for item in records.rows(table, "gold_links")]
    measures = {name: records.rows(table, name) for name in ("alignment_norm",)}
    pairs = list(zip(table["tokens"].to_pylist(), table["target_tokens"].to_pylist(), strict=True))
    table = build(pairs, links=empty, measures=measures)
    df = frame(alignment.WHOLE, split_cells(table)).set_index("measure")
    assert df.loc["norm", "error_rate"] == 1 and np.isnan(df.loc["norm", "recall"])
    assert write_report(table, tmp_path / "report").is_file()


def test_without_gold_links_pairs_are_shown_and_nothing_is_judged(tmp_path, undrawn):
    table = aligned(5).drop_columns(["gold_links"])
    (cell,) = split_cells(table)
    assert not alignment.SECTION.applies(cell)
    assert shown_reading(cell) == Reading(Place("attention_mean", 2, None, 0), FIXED)
    assert reading_of(cell, "attention") == Reading(Place("attention", 2, 0, 0), FIXED)
    assert extreme_pairs(cell, 2) == [("First pairs", [0, 1])]
    page = write_report(table, tmp_path / "report").read_text()
    assert "First pairs" in page and "Framed" not in page and "Alignment error rate" not in page


def test_long_sentences_are_cut_on_the_page():
    long = [f"w{number}" for number in range(MOST_WORDS + 5)]
    values = np.random.default_rng(0).random((2, len(long))).astype(np.float32)
    table = build([(long, ["x", "y"])], measures={"alignment_occlusion": [values]})
    (cell,) = split_cells(table)
    result = pair(cell, 0, shown_reading(cell))
    assert (len(result.source), result.sizes) == (MOST_WORDS, (MOST_WORDS + 5, 2))
    assert len(result.scores[0]) == result.values.shape[1] == MOST_WORDS


def test_a_pair_as_it_is_shown(cell):
    reading = shown_reading(cell)
    assert reading.place == Place("attention", 1, 0, 1)
    links = records.rows(cell.table, "gold_links")[0]
    shown = pair(cell, 0, reading)
    np.testing.assert_array_equal(shown.gold, links)
    np.testing.assert_array_equal(shown.read, links > 0)  # the head follows gold
    assert shown.error == "0.00" and shown.probabilities[0] == 0.5
    words = shown.words(0, int(links[0].argmax()))
    assert words.startswith("we – ") and words.endswith("link in gold; read as a link")


def test_pairs_that_are_shown_are_not_those_that_were_chosen_on():
    table = aligned(30, noise=0.9)
    (cell,) = split_cells(table)
    groups = dict(extreme_pairs(cell, 3))
    assert list(groups) == ["Lowest error rate", "Highest error rate"]
    rows = [row for group in groups.values() for row in group]
    assert len(set(rows)) == 6 and not readings(cell).chooses[rows].any()


@pytest.mark.slow
def test_the_page(table, tmp_path):
    page = write_report(table, tmp_path / "report", n_examples=2).read_text()
    assert (
        page.startswith("<!DOCTYPE html>")
        and "Does attention align words?" in page
        and "Does attention explain?" not in page
    )
    for words in ("Lowest error rate", "Highest error rate", "Alignment error rate by rule", "Attention to markers"):
        assert words in page
    assert "predicted class" not in page and "What this attention may be shown for" not in page
    assert re.search(r'<td class="m0s\d+ sure" title="[^"]*sure link in gold[^"]*">●</td>', page)
    assert re.search(r'<td class="m0s\d+ possible"', page)
    result = {path.name for path in (tmp_path / "report" / "figures").iterdir()}
    assert "alignment_by_head.png" in result


def test_text_is_escaped(tmp_path, undrawn):
    bad = '<script>alert("x")</script>'
    gold, values = [np.array([[2]])] * 3, [np.array([[0.5]], np.float32)] * 3
    table = build([([bad], [bad])] * 3, links=gold, measures={"alignment_occlusion": values})
    page = write_report(table, tmp_path / "report").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page


def test_without_a_measure_or_a_second_pair_nothing_is_judged(tmp_path, undrawn):
    (bare,) = split_cells(build([(["a"], ["b"])] * 3, links=[np.array([[2]])] * 3))
    assert columns(bare) == {} and readings(bare).chosen() is None
    assert "No reading could be chosen" in sentences(alignment.SECTION, bare)[0]
    assert "Nothing was measured that could be shown." in write_report(bare.table, tmp_path / "report").read_text()
    (single,) = split_cells(aligned(1))
    df = frame(alignment.WHOLE, [single])
    assert (df["n"] == 0).all() and df["error_rate"].isna().all() and df["error_rate_chosen_on"].notna().all()


def test_the_figure_of_heads_where_there_are_some(cell):
    alt, caption = sections.figure_words(cell, "alignment_by_head")
    assert f"over {PAIRS} sentence pairs" in alt and "lowest 0.000 in layer 1, head 0" in alt and "Framed" in caption
    (single,) = split_cells(aligned(4, layers=1, heads=1, where=(0, 0, 0)))
    assert "alignment" not in dict(sections.figures(single))
