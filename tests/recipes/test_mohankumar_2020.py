"""Published accuracy and conicity of three LSTMs beside measured ones that are known; verdicts on the claims."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnfaith import record as records
from attnfaith.reporting.analysis import Settings
from recipes.mohankumar_2020 import analysis
from tests.identities import typed
from tests.recipes.cells import cell_of


PUBLISHED = Path(analysis.__file__).with_name("published.csv")


def cell(conicities, right, diversity=0.0, **identity):
    rows = [
        {"probs": [0.1, 0.9] if number < right else [0.9, 0.1], "attention": [0.5, 0.5], "conicity_absolute": conicity,
         "conicity_signed": conicity / 2}
        for number, conicity in enumerate(conicities)
    ]  # fmt: skip
    kinds = {f"conicity_{name}": records.Column((), "float64", undefined="one token") for name in ("absolute", "signed")}
    return cell_of(replace(typed(**identity), diversity=diversity), rows, kinds)


def test_each_model_stands_beside_its_own_numbers():
    cells = [
        cell([0.6, 0.8], 2, encoder="lstm", seed=1),
        cell([0.8, np.nan], 1, encoder="lstm", seed=2),
        cell([0.1, 0.3], 1, encoder="lstm", diversity=0.5, seed=1),
        cell([0.2, 0.2], 0, encoder="orthogonal_lstm"),
        cell([0.9, 0.9], 2, encoder="bilstm"),
    ]
    results = analysis.tables(cells, Settings(published=PUBLISHED)).tables
    assert set(results) == {"interventions", "interventions_summary", "beside_published", "claims"}
    assert set(results["claims"]["test"]) == {"accuracy", "conicity"}
    table = results["beside_published"]
    by_authors = table[table["by"] == "authors"].set_index(["model", "statistic"])
    expected = {"vanilla": (0.75, 0.75, 2), "diversity": (0.5, 0.2, 1), "orthogonal": (0, 0.2, 1)}
    for model, (accuracy, conicity, seeds) in expected.items():
        row = by_authors.loc[(model, "accuracy")]
        assert (row["measured"], row["n_seeds"]) == pytest.approx((accuracy, seeds))
        assert by_authors.loc[(model, "conicity_absolute")]["measured"] == pytest.approx(conicity)
        assert row["difference"] == pytest.approx(accuracy - row["published"])
    assert by_authors.loc[("vanilla", "accuracy")]["published"] == 0.8179
    assert table[table["statistic"].str.startswith("pearson")]["measured"].isna().all()


def row(test, **values):
    named = {"dataset": "sst", "encoder": "lstm", "objective": "diversity", "intervention": "diversity", "test": test}
    kind = "price" if test == "accuracy" else "test"
    return {**dict.fromkeys(analysis.COLUMNS, 0.0), **named, "kind": kind, "n_seeds": 5, "verdict": "", **values}


@pytest.mark.parametrize(
    ("test", "difference", "p_value", "expected"),
    [
        ("conicity", -0.5, 0.01, "holds"),
        ("conicity", 0.5, 0.01, "goes against it"),
        ("conicity", -0.5, 0.06, "cannot be told"),
        ("permutation", 0.5, 0.01, "holds"),
        ("minimal_flip_set", -0.5, 0.01, "holds"),
        ("tau_gradient", 0.5, 0.01, "holds"),
        ("punctuation", np.nan, np.nan, "undefined"),
    ],
)
def test_a_claim_holds_where_its_difference_stands_and_has_its_direction(test, difference, p_value, expected):
    table = analysis.claims(pd.DataFrame([row(test, difference=difference, p_value=p_value), row("first_gradient")]))
    assert table[["verdict", "claim"]].to_numpy().tolist() == [[expected, analysis.CLAIMS[test]]]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-0.029, -0.001, "holds"), (0.01, 0.02, "holds"), (-0.2, -0.031, "goes against it"), (-0.2, -0.01, "cannot be told")],
)
def test_accuracy_is_comparable_by_its_margin(low, high, expected):
    price = row("accuracy", difference=(low + high) / 2, ci_low=low, ci_high=high, p_value=0.001)
    assert analysis.claims(pd.DataFrame([price]))["verdict"].tolist() == [expected]
    assert analysis.claims(pd.DataFrame([{**price, "n_seeds": 1}]))["verdict"].tolist() == ["cannot be told"]


def test_claims_are_corrected_for_those_of_one_intervention_on_one_data_set():
    rows = [row(test, difference=-0.5, p_value=0.02) for test in ("conicity", "minimal_flip_set", "tau_gradient")]
    rows += [row("first_gradient", difference=-0.5, p_value=0.02), {**rows[0], "dataset": "imdb"}]
    table = analysis.claims(pd.DataFrame(rows)).set_index(["dataset", "test"])
    np.testing.assert_allclose(table.loc["sst", "p_holm"], [0.06] * 3)
    assert table.loc[("imdb", "conicity"), "p_holm"] == 0.02 and table.loc[("imdb", "conicity"), "verdict"] == "holds"
