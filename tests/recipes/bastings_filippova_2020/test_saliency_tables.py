"""Ranking of measures, twins trained with tokens erased, and whether parts add up: on records whose truth is known."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from attnfaith import record as records
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import split_cells
from recipes.bastings_filippova_2020 import analysis
from tests.identities import columns_of, typed
from tests.records import with_columns


SHARES = (0.1, 0.5)
NAMES = ("attention", "good", "random")


def draw_cell(dataset="sst", projection="softmax", seed=0, objective="classification", falls=(0.3, 0.6, 0.1), texts=30):
    """A cell in which removing what a measure ranks first costs what `falls` says, in the order of NAMES."""
    columns: dict[str, list] = {}
    identity = columns_of(typed(projection, objective=objective, dataset=dataset, seed=seed))
    for number in range(texts):
        rng = np.random.default_rng([number, seed, *dataset.encode(), *projection.encode()])
        noise = 0.03 * rng.normal(size=(2, 3, 2))
        weights = rng.dirichlet(np.ones(6))
        values = {
            "instance_id": f"{dataset}/{number}", **identity, "tokens": ["w"] * 6, "label": 1, "truncated": False,
            "probs": [0.05, 0.95], "attention": weights, "importance_good": rng.normal(size=6),
            "importance_random": rng.random(6),
            "rationale_erasure_measures": list(NAMES), "rationale_erasure_shares": list(SHARES),
            "rationale_erasure_kept_probs": np.clip(0.25 + np.array(falls)[:, None] + noise[0], 0, 1),
            "rationale_erasure_removed_probs": np.clip(0.95 - np.array(falls)[:, None] + noise[1], 0, 1),
            "rationale_erasure_whole_prob": 0.95, "rationale_erasure_empty_prob": 0.2,
        }  # fmt: skip
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    axes = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    extra = {f"importance_{name}": records.Column(("T",)) for name in ("good", "random")}
    for name in (name for name in columns if name.startswith("rationale_erasure")):
        kind = "string" if name.endswith("measures") else "float64"
        extra[name] = records.Column(axes.get(name.removeprefix("rationale_erasure_"), ()), kind)
    return split_cells(records.build(columns, extra))[0]


def test_measures_beside_the_rival_over_seeds(monkeypatch):
    monkeypatch.setattr(analysis.saliency, "RIVALS", ("good",))
    cells = [draw_cell(seed=0), draw_cell(seed=1, falls=(0.6, 0.3, 0.1)), draw_cell(projection="sparsemax")]
    table = analysis.tables(cells, Settings()).tables["saliency_ranking"].set_index(["projection", "measure"])
    assert len(table) == 6 and set(table["rival"]) == {"good"}
    softmax = table.loc["softmax"]
    assert softmax["n_seeds"].tolist() == [2, 2, 2] and softmax["n_tests"].tolist() == [8, 0, 8]
    assert softmax["better"].tolist() == [4, 0, 0] and softmax["worse"].tolist() == [4, 0, 8]
    assert table.loc[("sparsemax", "good"), "mean_comprehensiveness"] == pytest.approx(0.6, abs=0.02)


def test_twins_trained_with_tokens_erased():
    erased = "classification(tokens erased 0.5)"
    cells = [draw_cell(), draw_cell(objective=erased, falls=(0.6, 0.3, 0.1)), draw_cell(seed=1)]
    table = analysis.tables(cells, Settings()).tables["saliency_training"]
    assert len(table) == 4 and set(table["objective"]) == {erased} and set(table["seed"]) == {0}
    row = table.set_index("test").loc["comprehensiveness"]
    assert row["tau"] == pytest.approx(kendalltau([0.3, 0.6, 0.1], [0.6, 0.3, 0.1]).statistic) and row["n_measures"] == 3
    assert (row["attention_mean_plain"], row["attention_mean_erased"]) == pytest.approx((0.3, 0.6), abs=0.02)


def test_records_without_tests():
    cell = draw_cell()
    bare = split_cells(cell.table.drop_columns(["rationale_erasure_kept_probs"]))
    assert analysis.tables(bare, Settings()) == Analysis()


def test_what_is_left_of_the_number_handed_out(build_record):
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
    table = with_columns(build_record(texts, measures=("integrated_gradients", "lrp")), columns, dict.fromkeys(columns, ()))
    rows = analysis.completeness(split_cells(table)).set_index("measure")
    names = ["n", "n_undefined", "left_median", "left_max", "share_incomplete", "steps_median", "steps_max"]
    gradients, relevance = (rows.loc[name, names].astype(float) for name in ("integrated_gradients", "lrp"))
    np.testing.assert_allclose(gradients, [3, 1, 0.01 / 4.01, 0.2 / 2.2, 1 / 3, 40, 540], rtol=1e-6)
    np.testing.assert_allclose(relevance, [3, 1, 0, 0.1, 1 / 3, np.nan, np.nan], rtol=1e-6)
