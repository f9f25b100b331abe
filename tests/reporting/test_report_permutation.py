"""What a report says of permuted attention, against numbers worked out one text at a time."""

import numpy as np
import pandas as pd
import pytest

from attnfaith import record as records
from attnfaith.reporting import render, sections, write_report
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.sections import permutation
from tests.sections import with_permutations


@pytest.fixture
def by_hand(build_record):
    """Largest weight .5, .25, .5 and 1, then a text of one token and one without tokens."""
    weights = ([0.5, 0.5], [0.25] * 4, [0.5, 0.3, 0.2], [1.0, 0.0], [1.0], [])
    probs = ([0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1], [0.9, 0.1])
    draws = (
        [[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]],  # changes 0, .3, .8
        [[0.2, 0.8], [0.185, 0.815], [0.215, 0.785]],  # 0, .015, .015
        [[0.58, 0.42], [0.57, 0.43]],  # .02, .03
        [[0.9, 0.1]],  # .6
        [],
        [],
    )
    instances = [{"attention": a, "probs": p} for a, p in zip(weights, probs, strict=True)]
    return with_permutations(build_record(instances), draws)


def test_statistics_of_single_texts(by_hand):
    found = sections.numbers(one_cell(by_hand))
    np.testing.assert_allclose(found["permutation_tvd"], [0.3, 0.015, 0.025, 0.6, np.nan, np.nan], atol=1e-6)
    np.testing.assert_allclose(found["permutation_flips"], [1 / 3, 0, 0, 1, np.nan, np.nan])


@pytest.mark.parametrize("block", [1, 50, 1 << 18])
def test_texts_are_compared_a_part_at_a_time(block, draw_record, monkeypatch):
    monkeypatch.setattr(permutation, "BLOCK", block)
    generator = np.random.default_rng(3)
    draws = [generator.dirichlet(np.ones(3), count) for count in generator.integers(0, 6, 40)]
    cell = one_cell(with_permutations(draw_record(40, classes=3), draws))
    distances = [np.abs(own - of_text).sum(1) / 2 for own, of_text in zip(cell.probs, draws, strict=True)]
    flips = [own.argmax() != of_text.argmax(1) for own, of_text in zip(cell.probs, draws, strict=True)]
    medians, shares = permutation.changes(cell, "permuted_probs")
    np.testing.assert_allclose(medians, [np.median(one) if len(one) else np.nan for one in distances], atol=1e-6)
    np.testing.assert_allclose(shares, [one.mean() if len(one) else np.nan for one in flips])


def test_the_table_by_hand(by_hand):
    table = render.frames(permutation.SECTION, split_cells(by_hand))["permutation"].set_index("class")
    assert list(table.index) == ["overall", "0", "1"]
    overall = table.loc["overall"]
    assert (overall["n"], overall["n_undefined"]) == (4, 2)
    assert overall["tvd_mean"] == pytest.approx(0.94 / 4) and overall["tvd_median"] == pytest.approx(0.325 / 2)
    assert overall["ci_low"] < overall["tvd_mean"] < overall["ci_high"]
    assert (overall["share_below_0.05"], overall["share_below_0.01"]) == (0.5, 0)
    assert overall["flip_share"] == pytest.approx((1 / 3 + 0 + 0 + 1) / 4)
    assert table.loc["0", "tvd_mean"] == pytest.approx(0.325 / 2) and tuple(table.loc["0", ["n", "n_undefined"]]) == (2, 2)
    assert table.loc["1", "flip_share"] == 0.5


def test_small_changes_end_at_the_bounds_of_their_columns(build_record):
    """One text on either side of .05 and of .01, each near it; the sentence has the first share."""
    changes = (0.009, 0.011, 0.049, 0.051)
    draws = [[[0.8 - change, 0.2 + change]] for change in changes]
    record = with_permutations(build_record([{"attention": [0.5, 0.5], "probs": [0.8, 0.2]}] * 4), draws)
    row = render.frames(permutation.SECTION, split_cells(record))["permutation"].iloc[0]
    assert (row["share_below_0.05"], row["share_below_0.01"]) == (0.75, 0.25)
    (text,) = render.sentences(permutation.SECTION, one_cell(record))
    assert "in 75% of them by less than 0.05." in text


def test_bins_hold_their_lower_bound(by_hand):
    table = render.frames(permutation.SECTION, split_cells(by_hand))["permutation_by_max_attention"]
    overall = table[table["class"] == "overall"].set_index("max_attention")
    assert overall["n"].to_dict() == {"[0, 0.25)": 0, "[0.25, 0.5)": 1, "[0.5, 0.75)": 2, "[0.75, 1]": 1}
    assert overall["n_undefined"].tolist() == [0, 0, 0, 1]  # one token has weight 1; no token, no weight
    np.testing.assert_allclose(overall["tvd_mean"], [np.nan, 0.015, 0.325 / 2, 0.6], atol=1e-6)
    assert len(table) == 3 * 4


def test_bins_divide_the_whole(draw_record):
    """Counts and means of the bins make up those of the table."""
    found = render.frames(permutation.SECTION, split_cells(with_permutations(draw_record(60, classes=3))))
    whole, bins = found["permutation"], found["permutation_by_max_attention"]
    filled = bins.fillna({"tvd_mean": 0})
    sums = filled.assign(total=filled["n"] * filled["tvd_mean"]).groupby("class")[["n", "total"]].sum()
    for row in whole.to_dict("records"):
        assert sums.loc[row["class"], "n"] == row["n"]
        assert sums.loc[row["class"], "total"] == pytest.approx(row["n"] * row["tvd_mean"])


@pytest.mark.usefixtures("quick_figures")
def test_nothing_to_permute(build_record, tmp_path):
    record = with_permutations(build_record([{"attention": [1.0]}, {"attention": []}]), [[], []])
    cell = one_cell(record)
    assert render.sentences(permutation.SECTION, cell) == [
        "No text has two tokens, so attention could not be permuted (2 undefined)."
    ]
    row = render.frames(permutation.SECTION, [cell])["permutation"].iloc[0]
    assert (row["n"], row["n_undefined"]) == (0, 2) and np.isnan(row["tvd_mean"]) and np.isnan(row["flip_share"])
    html = write_report(record, tmp_path / "report").read_text(encoding="utf-8")
    assert "could not be permuted" in html and ">nan<" not in html
    assert "[0.75, 1]</th>" in html and "[0, 0.25)</th>" not in html  # a bin without texts is in the saved table only


@pytest.mark.usefixtures("quick_figures")
def test_class_names_of_another_data_set_are_not_used(draw_record, tmp_path):
    names = [
        {"label_names": ["bad", "good"], "identity": {"dataset": "sst"}},
        {"label_names": ["sport", "other"], "identity": {"dataset": "news"}},
    ]
    both = records.concatenate([draw_record(8), draw_record(8, seed=1, dataset="news")])
    first, second = split_cells(records.with_settings(both, names))
    assert first.class_names == ("bad", "good") and second.class_names == ("sport", "other")
    contradicting = records.with_settings(draw_record(8), [names[0], {**names[0], "label_names": ["x", "y"]}])
    assert one_cell(contradicting).class_names == ()
    html = write_report(records.with_settings(both, names), tmp_path / "report", facts={}).read_text(encoding="utf-8")
    assert "F1, class 0</th>" in html  # the table holds both
    assert "predicted class 0 bad" in html and "predicted class 1 other" in html


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
def test_models_trained_for_something_else(draw_record, tmp_path):
    objectives = ("classification", "adversarial(kl, 0.001)", "guided(bilstm+additive+softmax)")
    parts = [with_permutations(draw_record(30, objective=name), seed=number) for number, name in enumerate(objectives)]
    index = write_report(records.concatenate(parts), tmp_path / "report", n_examples=1)
    html = index.read_text(encoding="utf-8")
    assert html.count("Permuting the attention weights of a text moves its prediction") == 3
    saved = pd.read_parquet(index.parent / "tables" / "permutation.parquet")
    assert set(saved["objective"]) == set(objectives)
    assert (index.parent / "figures" / "02_adversarial-kl-0.001_permutation_by_max_attention.png").is_file()


@pytest.mark.parametrize(("count", "classes"), [(9, 2), (200, 2), (300, 9)])
def test_the_figure_counts_every_text(draw_record, count, classes):
    cell = one_cell(with_permutations(draw_record(count, classes=classes)))
    ((_, figure, alt, caption),) = render.drawings(permutation.SECTION, cell)
    (axes,) = figure.axes
    shown = sum(int(text.get_text()) for text in axes.texts)
    assert shown == count - 2  # but for the texts of no and of one token
    assert len(axes.get_legend().get_texts()) == min(classes, 7)
    assert "n = " in alt and "points" in caption
    figure.draw_without_rendering()
    box = axes.get_legend().get_window_extent()
    assert box.x1 <= figure.bbox.x1 and box.y0 >= 0
