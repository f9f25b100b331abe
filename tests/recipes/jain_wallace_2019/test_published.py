"""Published numbers beside measured ones: what is matched, what stays without a partner, and what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnfaith import record as records
from attnfaith.reporting import agreement_table
from attnfaith.reporting.analysis import load_analysis


analysis = load_analysis(Path(__file__).parents[3] / "recipes" / "jain_wallace_2019" / "analysis.py")
MEASURES = ("gradient", "leave_one_out")


@pytest.fixture
def tiny(build_record):
    """Four texts: tau with gradient by hand is 1, 1/3, undefined (constant) and undefined (empty)."""
    return build_record(
        [
            {
                "attention": [0.1, 0.2, 0.7],
                "gradient": [1, 2, 3],
                "leave_one_out": [3, 2, 1],
                "probs": [0.9, 0.1],
                "label": 0,
            },
            {
                "attention": [0.2, 0.3, 0.5],
                "gradient": [1, 3, 2],
                "leave_one_out": [1, 2, 3],
                "probs": [0.2, 0.8],
                "label": 1,
            },
            {"attention": [0.5, 0.5], "gradient": [1, 2], "leave_one_out": [1, 2], "probs": [0.3, 0.7], "label": 0},
            {"attention": [], "gradient": [], "leave_one_out": [], "probs": [0.6, 0.4], "truncated": True},
        ],
        measures=MEASURES,
    )


def published(**changes):
    columns = {
        "dataset": "sst",
        "encoder": "bilstm",
        "alignment": "additive",
        "class": [0, 1],
        "pair": "attention–gradient",
        "statistic": "tau_mean",
        "value": [0.5, 0.25],
    }
    return pd.DataFrame(columns | changes)


def test_comparison_with_published(tiny):
    compared = analysis.compare_with_published(agreement_table(tiny), published(source="paper"))
    assert list(compared["measured"]) == pytest.approx([1, 1 / 3])
    assert list(compared["difference"]) == pytest.approx([0.5, 1 / 12])
    assert list(compared["source"]) == ["paper", "paper"]
    assert list(compared.columns[-3:]) == ["measured", "published", "difference"]
    assert list(compared["seed"]) == [0, 0]


def test_comparison_keeps_numbers_nobody_measured_and_every_seed(draw_record):
    table = agreement_table(records.concatenate([draw_record(12, seed=seed) for seed in (0, 1)]))
    compared = analysis.compare_with_published(table, published(dataset=["sst", "imdb"]))
    assert list(compared["dataset"]) == ["sst", "sst", "imdb"]
    assert list(compared["seed"][:2]) == [0, 1]
    assert np.isnan(compared["measured"].iloc[2]) and compared["published"].iloc[2] == 0.25


def test_comparison_refuses_ambiguity(tiny):
    table = agreement_table(tiny)
    with pytest.raises(ValueError, match="several pairs"):
        analysis.compare_with_published(table, published().drop(columns="pair"))
    one_pair = table[table["pair"] == "attention–gradient"]
    assert len(analysis.compare_with_published(one_pair, published().drop(columns="pair"))) == 2
    with pytest.raises(ValueError, match="comes twice"):
        analysis.compare_with_published(table, published(**{"class": 0}))
    with pytest.raises(ValueError, match=r"\['pval_sig'\] are not in the agreement table"):
        analysis.compare_with_published(table, published(statistic="pval_sig"))
    with pytest.raises(ValueError, match=r"columns \['value'\] are missing"):
        analysis.compare_with_published(table, published().drop(columns="value"))
