"""Numbers per text, and the bootstrap over seeds and texts: by hand, by brute force, and against scipy and numpy."""

import gc
import inspect
from importlib import import_module
from itertools import combinations
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from scipy import stats

from attnfaith.reporting.analysis import load_analysis
from attnfaith.reporting.cells import Cell
from attnfaith.stats import DRAWS, Panel


analysis = load_analysis(Path(__file__).parents[3] / "recipes" / "meister_2021" / "analysis.py")
models = import_module(".sparsity.models", analysis.__package__)
numbers = import_module(".sparsity.numbers", analysis.__package__)
trends = import_module(".sparsity.trends", analysis.__package__)


def panel(values):
    values = np.asarray(values, np.float64)
    return Panel(values, np.ones(values.shape, bool))


@pytest.fixture
def one_text(build_record):
    def build(attention, **measures):
        return models.models(_cells(build_record, attention, measures))[0].cells[0]

    return build


def _cells(build_record, attention, measures):
    from attnfaith.reporting.cells import split_cells

    return split_cells(build_record([{"attention": attention, **measures}], measures=tuple(measures)))


# ---------------------------------------------------------------------------------------------------------- per text


def test_tied_pairs_by_hand(one_text):
    assert numbers.tied_pairs(one_text([0.5, 0.5, 0, 0, 0])) == pytest.approx(4 / 10)  # one pair of halves, three of zeros
    assert numbers.tied_pairs(one_text([0.25] * 4)) == 1
    assert numbers.tied_pairs(one_text([0.6, 0.4])) == 0
    assert np.isnan(numbers.tied_pairs(one_text([1.0]))) and np.isnan(numbers.tied_pairs(one_text([])))


def test_tau_over_its_ceiling_is_the_gamma_of_goodman_and_kruskal(draw_sparse_cell):
    cell = draw_sparse_cell("sparsemax")
    gammas = numbers.tau_over_ceiling(cell, "gradient_norm")
    for row, importance, value in zip(cell.attention, cell.scores("gradient_norm"), gammas, strict=True):
        signs = [np.sign((row[i] - row[j]) * (importance[i] - importance[j])) for i, j in combinations(range(len(row)), 2)]
        kept = [sign for sign in signs if sign]
        expected = np.mean(kept) if kept else np.nan
        assert value == pytest.approx(expected, nan_ok=True)


def test_ties_alone_cut_the_dense_attention_to_the_support(draw_sparse_cell):
    dense, sparse = draw_sparse_cell("softmax"), draw_sparse_cell("sparsegen(-1)", scale=0.5)
    cut_taus = numbers.tau_of_ties_alone(sparse, dense, "leave_one_out")
    importance = dense.scores("leave_one_out")
    for number in range(2, len(dense)):
        size = np.count_nonzero(sparse.attention[number])
        cut = np.where(dense.attention[number] >= np.sort(dense.attention[number])[-size], dense.attention[number], 0)
        assert cut_taus[number] == pytest.approx(stats.kendalltau(cut, importance[number]).statistic, nan_ok=True)
    assert np.isnan(cut_taus[:2]).all() and np.isfinite(cut_taus[2:]).all()
    assert (cut_taus != numbers.tau(dense, "leave_one_out"))[2:].any()
    unmeasured = draw_sparse_cell("softmax", without=("importance_leave_one_out",))
    assert numbers.tau_of_ties_alone(sparse, unmeasured, "leave_one_out") is None


def test_of_equal_weights_at_the_border_as_many_stay_as_the_support_has():
    assert numbers._largest(np.array([0.2, 0.4, 0.2, 0.2]), 2).tolist() == [0.2, 0.4, 0, 0]
    assert numbers._largest(np.array([0.5, 0.5]), 3).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("measure", numbers.MEASURES)
def test_random_places_are_averaged_over_draws(draw_sparse_cell, measure):
    cell = draw_sparse_cell("sparsemax")
    averages = numbers.random_support_tau(cell, measure)
    draws = numbers.records.rows(cell.table, "random_support_attention")
    column = numbers.RANDOM_SUPPORT[measure]
    importance = numbers.records.rows(cell.table, column)
    for number in range(2, len(cell)):
        others = importance[number] if measure in numbers.STATES else [importance[number]] * 2
        taus = [stats.kendalltau(one, other).statistic for one, other in zip(draws[number], others, strict=True)]
        assert averages[number] == pytest.approx(np.mean(taus))
    assert np.isnan(averages[:2]).all()
    assert numbers.random_support_tau(draw_sparse_cell("softmax", without=(column,)), measure) is None


def test_means_over_states_and_tokens(draw_sparse_cell):
    cell = draw_sparse_cell("softmax", texts=4)
    rows = numbers.records.rows(cell.table, "hidden_to_input_entropy")
    assert numbers.over_states(cell, "hidden_to_input_entropy")[1:] == pytest.approx([row.mean() for row in rows[1:]])
    assert np.isnan(numbers.over_states(cell, "hidden_to_input_entropy")[0])
    assert numbers._mean_by_owner(np.array([1.0, np.nan, 3.0, np.nan]), np.array([0, 0, 0, 1]), 3) == pytest.approx(
        [2, np.nan, np.nan], nan_ok=True
    )
    importance = cell.scores("leave_one_out")
    assert numbers.mean_importance(cell, "leave_one_out")[3] == pytest.approx(importance[3].mean())
    assert numbers.support_share(cell)[1:].tolist() == [1, 1, 1] and np.isnan(numbers.support_share(cell)[0])


def test_tokens_that_differ(one_text):
    cell = one_text([0.5, 0.3, 0.2], a=[0.1, 0.2, 0.3], b=[0.1, 0.20005, 0.4])
    assert numbers.tokens_that_differ(cell, "a", "b").tolist() == pytest.approx([1 / 3])
    assert numbers.any_token_differs(cell, "a", "b").tolist() == [1]
    assert numbers.any_token_differs(cell, "a", "a").tolist() == [0]
    assert numbers.any_token_differs(cell, "a", "missing") is None


def test_above_chance():
    assert numbers._above_chance(np.array([1, 0.5, 0.2, 0.7]), np.array([0.5, 0.5, 0.5, 1])) == pytest.approx(
        [1, 0, -0.6, np.nan], nan_ok=True
    )


def test_a_number_is_computed_once_and_forgotten_with_its_cell(draw_sparse_cell):
    calls = []

    @numbers.remembered
    def number(cell, name):
        calls.append(name)
        return np.zeros(1)

    cell = draw_sparse_cell.__wrapped__("softmax", texts=3)  # one that nobody else keeps
    assert number(cell, "a") is number(cell, "a") and number(cell, "b") is not None
    assert calls == ["a", "b"]
    (known,) = (value for value in inspect.getclosurevars(number).nonlocals.values() if isinstance(value, WeakKeyDictionary))
    assert len(known) == 1
    del cell
    gc.collect()
    assert len(known) == 0


# ------------------------------------------------------------------------------------------------------------- trends


def test_slope_and_rank_correlation_against_numpy_and_scipy():
    generator = np.random.default_rng(5)
    x, y = np.array([-2.0, -1.0, 0.0, 0.3, 1.0]), generator.normal(size=(5, 6)).round(1)
    y[:, 1] = [0.1, 0.1, 0.2, 0.2, 0.3]  # ties
    y[2, 2] = np.nan
    y[1:, 3] = np.nan
    for column in range(6):
        known = ~np.isnan(y[:, column])
        if known.sum() < 2:
            assert np.isnan(trends.slope(x, y)[column]) and np.isnan(trends.rank_correlation(x, y)[column])
            continue
        expected = np.polyfit(x[known], y[known, column], 1)[0]
        assert trends.slope(x, y)[column] == pytest.approx(expected)
        assert trends.slope(x, y[:, column]) == pytest.approx(expected)
        tau = stats.kendalltau(x[known], y[known, column]).statistic
        assert trends.rank_correlation(x, y)[column] == pytest.approx(tau)
        assert trends.rank_correlation(x, y[:, column]) == pytest.approx(tau)
    assert np.isnan(trends.rank_correlation(x, np.ones(5)))


def test_levels_with_few_values_count_in_no_slope():
    values = np.full((3, 1, 20), np.nan)
    values[0, 0, 0], values[1, 0], values[2, 0] = 100.0, 1.0, 2.0
    levels = panel(values)
    assert levels.filled.tolist() == [False, True, True]
    value, draws = trends.trend(trends.slope, np.array([0.0, 1.0, 2.0]), levels)
    assert value == 1 and draws == pytest.approx(np.ones(DRAWS))


def test_sharpness_grows_by_one_for_scores_ten_times_as_large():
    assert trends.sharpness([-99, -9, 0, 0.9, 0.99]) == pytest.approx([-2, -1, 0, 1, 2])


# ----------------------------------------------------------------------------------------------------------- models


def test_cells_of_one_model_in_one_frame(draw_sparse_cell):
    draw = draw_sparse_cell
    cells = [
        draw("sparsegen(0.5)", texts=5),
        draw("softmax", 11, texts=5),
        draw("softmax", 10, texts=3),
        draw("sparsemax", texts=5, alignment="additive(scale 1)"),
        draw("softmax", texts=5, objective="untrained"),
        draw("softmax", texts=5, encoder="transformer"),
        draw("entmax(1.5)", texts=5),
    ]
    first, second = models.models(cells)
    assert len(second.cells) == 1 and first.heading["alignment"] == "additive" and first.name == "bilstm + additive"
    assert [cell.heading["projection"] for cell in first.plain] == ["softmax", "softmax", "sparsegen(0.5)", "entmax(1.5)"]
    assert list(first.dense) == [11, 10] and first.seeds == [10, 11]
    correct = first.panel([first.projection("softmax")], numbers.correct)
    assert correct.held.sum() == 8 and correct.n[0] == 8, "a text that a cell does not hold is none that is undefined"
    assert correct.n_undefined[0] == 0
    assert first.panel([first.plain], numbers.tau, "missing") is None
    lacking = draw("softmax", 12, texts=5, without=("importance_gradient_norm",))
    model = models.models([*cells[:2], lacking])[0]
    assert model.panel([model.plain], numbers.tau, "gradient_norm").n_seeds[0] == 2
    assert model.panel([model.plain], numbers.tau, "gradient_norm").n_undefined[0] == 4, "two texts below two tokens, twice"


def test_the_order_of_rows_and_cells_changes_nothing(draw_sparse_cell):
    cells = [draw_sparse_cell("sparsemax", seed) for seed in (10, 11)]
    shuffled = [Cell(cell.identity, cell.table.take(np.random.default_rng(0).permutation(len(cell)))) for cell in cells]
    results = []
    for given in (cells, shuffled[::-1]):
        model = models.models(given)[0]
        panel_ = model.panel([model.plain], numbers.tau, "gradient_norm")
        results.append((panel_.means[0], *np.ravel(panel_.intervals())))
    assert results[0] == pytest.approx(results[1], abs=1e-12)


def test_names_tell_models_of_one_name_apart(draw_sparse_cell):
    import pandas as pd

    cells = [
        draw_sparse_cell("softmax", texts=3, **given) for given in ({}, {"vectors": "random(1)"}, {"encoder": "average"})
    ]
    table = pd.DataFrame([model.heading for model in models.models(cells)])
    assert models.model_names(table).tolist() == [
        "sst · bilstm + additive, random(0.25)",
        "sst · bilstm + additive, random(1)",
        "sst · average + additive",
    ]
