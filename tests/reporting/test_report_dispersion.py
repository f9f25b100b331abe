"""How evenly scores are spread: by hand, against scipy text by text, and as a report shows it."""

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import entropy

from attnfaith import record as records
from attnfaith.reporting import dispersion_by_scores, dispersion_table, write_report
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.render import grid
from attnfaith.reporting.sections.dispersion import TABLE, instance_dispersion
from attnfaith.reporting.study import study_tables
from attnfaith.stats import bootstrap_interval


def with_states(table, entropies, own):
    """The record with the columns of `importance/gradient_hidden_to_input`."""
    for name, rows in (("hidden_to_input_entropy", entropies), ("hidden_to_input_own", own)):
        field = records.Column(("T",)).field(name)
        table = table.append_column(field, pa.array(rows, field.type))
    records.validate(table)
    return table


@pytest.fixture
def tiny(build_record):
    """Four tokens of which one to four have a score, one token, none; a row of zeros; a signed row."""
    table = build_record(
        [
            {"attention": [0.5, 0.5, 0, 0], "gradient": [1, 1, 1, 1], "signed": [0, 0, 3, 3]},
            {"attention": [1, 0], "gradient": [0, 0], "signed": [-1, 2]},
            {"attention": [1], "gradient": [2], "signed": [1]},
            {"attention": [], "gradient": [], "signed": []},
        ],
        measures=("gradient", "signed"),
    )
    entropies = [[0.25, 0.5, 1.0, None], [None, None], [None], []]
    own = [[0.5, 0.25, 0.75, None], [0.125, 0.375], [None], []]
    return with_states(table, *([[np.nan if v is None else v for v in row] for row in rows] for rows in (entropies, own)))


def row_of(table, scores):
    (row,) = table[table["scores"] == scores].to_dict("records")
    return row


def test_numbers_per_instance_by_hand(tiny):
    found = instance_dispersion(one_cell(tiny))
    nan = np.nan
    expected = {
        "entropy attention": [0.5, 0, nan, nan],
        "support attention": [2, 1, 1, nan],
        "zeros attention": [0.5, 0.5, 0, nan],
        "entropy gradient": [1, nan, nan, nan],
        "support gradient": [4, 0, 1, nan],
        "zeros gradient": [0, 1, 0, nan],
        "entropy signed": [0.5, nan, nan, nan],
        "support signed": [2, nan, 1, nan],
        "zeros signed": [0.5, nan, 0, nan],
        "entropy hidden_to_input": [1.75 / 3, nan, nan, nan],
        "own hidden_to_input": [0.5, 0.25, nan, nan],
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-7, err_msg=name)


def test_table_by_hand(tiny):
    table = dispersion_table(tiny)
    assert table["scores"].tolist() == ["attention", "gradient", "signed", "hidden_to_input"]
    attention = row_of(table, "attention")
    assert (attention["n"], attention["n_undefined"]) == (2, 2)
    assert (attention["entropy_mean"], attention["entropy_std"]) == (0.25, 0.25)
    assert (attention["support_mean"], attention["zeros_share"]) == (pytest.approx(4 / 3), pytest.approx(1 / 3))
    assert attention["support_share"] == pytest.approx(2 / 3)
    assert np.isnan(attention["own_share_mean"]) and np.isnan(attention["n_states_undefined"])
    gradient = row_of(table, "gradient")
    assert (gradient["n"], gradient["n_undefined"], gradient["entropy_mean"]) == (1, 3, 1)
    assert np.isnan(gradient["ci_low"])  # of one text
    states = row_of(table, "hidden_to_input")
    assert (states["n"], states["n_undefined"], states["n_states_undefined"]) == (1, 3, 4)
    assert states["own_share_mean"] == 0.375 and np.isnan(states["support_mean"])


def test_against_scipy_and_one_interval_after_another(draw_record):
    record = draw_record(60)
    table = dispersion_table(record, seed=3)
    for name, column in (("attention", "attention"), ("gradient", "importance_gradient")):
        rows = records.rows(record, column)
        expected = np.array([entropy(row) / np.log(len(row)) for row in rows if len(row) > 1])
        row = row_of(table, name)
        assert (row["n"], row["n_undefined"]) == (58, 2)
        assert row["entropy_mean"] == pytest.approx(expected.mean(), abs=1e-6)
        assert row["entropy_std"] == pytest.approx(expected.std(), abs=1e-6)
        assert row["support_mean"] == pytest.approx(np.mean([np.count_nonzero(r) for r in rows if len(r)]))
        low, high = bootstrap_interval(expected, seed=5)
        # other draws of the same texts
        np.testing.assert_allclose([row["ci_low"], row["ci_high"]], [low, high], atol=0.2 * (high - low))
        assert row["ci_low"] < row["entropy_mean"] < row["ci_high"]


def test_neither_the_order_of_rows_nor_other_cells_change_the_numbers(draw_record):
    alone = draw_record(20, seed=1)
    joined = records.concatenate([draw_record(9, seed=0), alone])
    shuffled = joined.take(np.random.default_rng(0).permutation(joined.num_rows))
    statistics = ["n", "n_undefined", "entropy_mean", "entropy_std", "support_mean", "zeros_share"]
    expected = dispersion_table(alone)[statistics]
    for table in (joined, shuffled):
        found = dispersion_table(table)
        np.testing.assert_allclose(found[found["seed"] == 1][statistics], expected, rtol=1e-12)


def test_cells_without_measures_or_texts(draw_record, build_record):
    assert dispersion_table(draw_record(5, measures=()))["scores"].tolist() == ["attention"]
    nothing = row_of(dispersion_table(build_record([{"attention": []}, {"attention": [1.0]}])), "attention")
    assert (nothing["n"], nothing["n_undefined"], nothing["support_mean"]) == (0, 2, 1)
    assert np.isnan(nothing["entropy_mean"]) and np.isnan(nothing["entropy_std"])
    assert dispersion_table([]).empty and "entropy_mean" in dispersion_table([]).columns


def test_a_study_has_the_table_over_seeds(draw_record):
    cells = [split_cells(draw_record(8, seed=seed))[0] for seed in (0, 1)]
    found = study_tables(cells, ["dispersion"])
    assert set(found) == {"dispersion", "dispersion_over_seeds"}
    summary = found["dispersion_over_seeds"]
    row = summary[(summary["scores"] == "attention") & (summary["statistic"] == "entropy_mean")]
    assert row["n_seeds"].tolist() == [2]


def test_computed_once_and_forgotten_with_the_cell(draw_record):
    cell = one_cell(draw_record(5))
    assert instance_dispersion(cell) is instance_dispersion(cell)
    numbers = weakref.ref(cell)
    del cell
    gc.collect()
    assert numbers() is None


def test_the_page_shows_what_is_known(tiny, draw_record, tmp_path, quick_figures):
    shown = grid(TABLE, dispersion_table(tiny), ())
    assert shown.columns[-3:] == ("tokens above zero", "share at zero", "own token")
    assert shown.rows[0] == ("attention", "2", "2", "0.250 [0.000, 0.500]", "0.250", "1.333", "0.333", "–")
    assert shown.rows[3][0] == "inputs of a state" and shown.rows[3][-3:] == ("–", "–", "0.375")
    without = grid(TABLE, dispersion_table(draw_record(5)), ())
    assert without.columns[-1] == "share at zero" and "own" not in without.note
    html = write_report(tiny, tmp_path / "report").read_text(encoding="utf-8")
    assert "Dispersion of attention and importance" in html and "inputs of a state" in html
    assert "tables/dispersion.csv" in html


def test_the_figure_names_every_row_and_counts(tiny, tmp_path, build_record):
    figure = dispersion_by_scores(tiny)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["attention", "gradient", "signed", "inputs of a state"]
    (right,) = axes.child_axes
    assert right.get_yticklabels()[0].get_text() == "mean 0.25, n = 2 (2 undefined)"
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(dots, [0.25, 1, 0.5, 1.75 / 3], atol=1e-6)
    empty = dispersion_by_scores(build_record([{"attention": []}]))
    assert "no text has two tokens" in [text.get_text() for text in empty.axes[0].texts]
    with pytest.raises(ValueError, match="a figure shows one cell"):
        dispersion_by_scores(records.concatenate([build_record([{"attention": [1.0]}], seed=s) for s in (0, 1)]))
