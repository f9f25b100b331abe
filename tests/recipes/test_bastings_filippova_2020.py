"""Ranking of measures, twins trained with tokens erased, and whether parts add up, on records whose truth is known."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import split_cells
from recipes.bastings_filippova_2020 import analysis
from tests.identities import typed
from tests.recipes.cells import erased_cell
from tests.records import build, with_columns


NAMES = ("attention", "good", "random")


def draw_cell(*falls, **identity):
    return erased_cell(typed(**identity), dict(zip(NAMES, falls or (0.3, 0.6, 0.1), strict=True)))


def test_measures_beside_the_rival_over_seeds(monkeypatch):
    monkeypatch.setattr(analysis.saliency, "RIVALS", ("good",))
    cells = [draw_cell(), draw_cell(0.6, 0.3, 0.1, seed=1), draw_cell(projection="sparsemax")]
    table = analysis.tables(cells, Settings()).tables["saliency_ranking"].set_index(["projection", "measure"])
    assert len(table) == 6 and set(table["rival"]) == {"good"}
    softmax = table.loc["softmax"]
    assert softmax["n_seeds"].tolist() == [2, 2, 2] and softmax["n_tests"].tolist() == [8, 0, 8]
    assert softmax["better"].tolist() == [4, 0, 0] and softmax["worse"].tolist() == [4, 0, 8]
    assert table.loc[("sparsemax", "good"), "mean_comprehensiveness"] == pytest.approx(0.6, abs=0.02)


def test_twins_trained_with_tokens_erased():
    erased = "classification(tokens erased 0.5)"
    table = analysis.tables([draw_cell(), draw_cell(0.6, 0.3, 0.1, objective=erased), draw_cell(seed=1)], Settings()).tables[
        "saliency_training"
    ]
    assert len(table) == 4 and set(table["objective"]) == {erased} and set(table["seed"]) == {0}
    row = table.set_index("test").loc["comprehensiveness"]
    assert row["tau"] == pytest.approx(kendalltau([0.3, 0.6, 0.1], [0.6, 0.3, 0.1]).statistic) and row["n_measures"] == 3
    assert (row["attention_mean_plain"], row["attention_mean_erased"]) == pytest.approx((0.3, 0.6), abs=0.02)
    bare = split_cells(draw_cell().table.drop_columns(["rationale_erasure_kept_probs"]))
    assert analysis.tables(bare, Settings()) == Analysis()


def test_what_is_left_of_the_number_handed_out():
    """Parts that sum to 2, 2, 4 and to what cannot be divided by: of 2.2 and 2 and 4.01 and 0."""
    texts = [{"attention": [0.5, 0.5], "integrated_gradients": row} for row in ([1, 1], [3, -1], [2, 2], [1, -1])]
    for text, relevance in zip(texts, ([1, 1], [1, 2], [0, 4], [np.nan, 1]), strict=True):
        text["lrp"] = relevance
    columns = {
        "integrated_gradients_residual": [-0.2, 0.0, -0.01, 0.0],
        "integrated_gradients_steps": [540, 20, 60, 20],
        "lrp_residual": [2.0, 1.0, 0.0, np.nan],
        "lrp_unaccounted": [0.4, 0.0, 0.0, np.nan],
    }
    table = with_columns(build(texts, measures=("integrated_gradients", "lrp")), columns, dict.fromkeys(columns, ()))
    rows = analysis.completeness(split_cells(table)).set_index("measure")
    names = ["n", "n_undefined", "left_median", "left_max", "share_incomplete", "steps_median", "steps_max"]
    gradients, relevance = (rows.loc[name, names].astype(float) for name in ("integrated_gradients", "lrp"))
    np.testing.assert_allclose(gradients, [3, 1, 0.01 / 4.01, 0.2 / 2.2, 1 / 3, 40, 540], rtol=1e-6)
    np.testing.assert_allclose(relevance, [3, 1, 0, 0.1, 1 / 3, np.nan, np.nan], rtol=1e-6)
