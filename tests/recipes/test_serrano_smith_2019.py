"""Weights removed until a decision changes, as the page shows them: by hand."""

import numpy as np
import pytest

from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.sections import erasure
from recipes.serrano_smith_2019 import analysis
from tests.records import build
from tests.sections import appended


NAN = np.nan
ORDERS = ("attention", "gradient", "attention_gradient")


def cell(seed):
    """Three texts of four items: attention flips after two, never, and only when all weight is gone; the minimum is one."""
    texts = [{"attention": [0.4, 0.3, 0.2, 0.1], "probs": [0.9, 0.1], "label": 0} for _ in range(3)]
    record = build(texts, seed=seed)
    record = appended(
        record,
        "erasure",
        erasure_probs=[[[0.4, 0.6], *[[0.8, 0.2]] * 3]] * 3,
        erasure_gradient=[[0.1, 0.2, 0.3, 0.4]] * 3,
        erasure_order=[[[3, 2, 1, 0]]] * 3,
        **{f"erasure_flip_size_{order}": [2.0, NAN, 4.0] for order in ORDERS},
        **{f"erasure_flip_mass_{order}": [0.7, NAN, 1.0] for order in ORDERS},
        **{f"erasure_flip_empty_{order}": [False, False, True] for order in ORDERS},
        erasure_flip_size_random=[[3.0], [NAN], [4.0]],
        erasure_flip_mass_random=[[0.6], [NAN], [1.0]],
        erasure_flip_empty_random=[[False], [False], [True]],
    )
    record = appended(
        record,
        "minimal_flip_set",
        minimal_flip_set=[[0], [], [0, 1, 2, 3]],
        minimal_flip_size=[1.0, NAN, 4.0],
        minimal_flip_mass=[0.4, NAN, 1.0],
        minimal_flip_empty=[False, False, True],
        minimal_flip_certainty=["exact"] * 3,
    )
    return split_cells(record)[0]


def test_shares_ratios_and_verdicts():
    cells = [cell(seed) for seed in range(5)]
    assert all(map(erasure.SECTION.applies, cells))
    results = analysis.tables(cells, Settings())
    row = results.tables["documents"].iloc[0]
    assert (row["n_seeds"], row["n"], row["items"], row["only_top"]) == (5, 3, 4, 1)
    assert row["attention"] == pytest.approx((2 / 4 + 1) / 2) and row["minimum"] == pytest.approx((1 / 4 + 1) / 2)
    assert row["ratio"] == pytest.approx((2 + 1) / 2) and row["never_attention"] == pytest.approx(1 / 3)
    assert row["all_minimum"] == pytest.approx(1 / 3)
    assert "never: attention" in results.texts["documents.md"]
    assert set(results.tables["questions"]["question"])
