"""Interventions beside their plain twins: what they change in each test, and at what price."""

import numpy as np
import pandas as pd
import pytest

from attnfaith.reporting.analysis import Settings
from attnfaith.stats import holm
from recipes.interventions import analysis
from tests.deception import model, shuffled
from tests.identities import typed


SEEDS = (1, 2, 3, 4, 5)


def pair(**changed):
    return [model(seed) for seed in SEEDS] + [model(seed, **changed) for seed in SEEDS]


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({}, ""),
        ({"projection": "sparsegen", "projection_parameter": 0.5}, "sparsegen(0.5)"),
        ({"impermissible_mass": 0.1, "impermissible_heads": "max"}, "impermissible mass 0.1 max"),
        ({"random_erasure": 0.5}, "tokens erased 0.5"),
        ({"score_scale": 1.0}, "additive(scale 1)"),
        ({"encoder": "orthogonal_lstm", "diversity": 1.0, "projection": "uniform"}, "orthogonal_lstm, diversity 1, uniform"),
    ],
)
def test_an_intervention_is_named_and_its_twin_has_none(fields, label):
    identity = model(1, **fields).identity
    twin = analysis.plain_twin(identity)
    assert analysis.intervention_label(identity) == label and (twin == identity) == (label == "")
    assert analysis.intervention_label(twin) == "" and twin.encoder == ("lstm" if "encoder" in fields else "bilstm")
    other = typed(objective="adversarial(kl, 0.05)")
    assert analysis.plain_twin(other) == other, "a model of another task"


def test_better_and_worse_are_by_the_direction_of_each_test():
    results = analysis.tables(pair(diversity=0.5, deceit=2.0), Settings())
    table = results.tables["interventions"].set_index("test")
    assert table.loc["tau_gradient", "verdict"] == "worse" and table.loc["tau_gradient", "ci_high"] < 0
    assert table.loc["minimal_flip_set", "verdict"] == "cannot be told" and list(results.figures) == [
        "sst_wiki-interventions"
    ]
    table = analysis.interventions_table(pair(diversity=0.5, deceit=-2.0)).set_index("test")
    assert table.loc["from_uniform", "verdict"] == "better" and table.loc["from_uniform", "ci_low"] > 0
    assert set(table["intervention"]) == {"diversity 0.5"} and "impermissible" not in table.index


def test_the_price_is_the_difference_in_accuracy_and_no_test():
    cells = pair(projection="sparsemax", accuracy=0.3)
    table = analysis.interventions_table(cells)
    row, tests = table.iloc[-1], table.iloc[:-1]
    right = [np.mean(cell.predicted == cell.labels) for cell in cells]
    assert (row["mean_plain"], row["mean_changed"]) == pytest.approx((np.mean(right[:5]), np.mean(right[5:])))
    assert row["kind"] == "price" and row["verdict"] == "worse" and row["p_holm"] == row["p_value"]
    np.testing.assert_allclose(tests["p_holm"], holm(tests["p_value"]))


def test_a_difference_is_paired_over_texts_and_seeds_whatever_their_order():
    cells = pair(diversity=0.5, deceit=1.0)
    table = analysis.interventions_table(cells)
    values = [cell.tau("attention", "gradient") for cell in cells]
    differences = [changed - plain for plain, changed in zip(values[:5], values[5:], strict=True)]
    row = table.set_index("test").loc["tau_gradient"]
    assert row["difference"] == pytest.approx(np.mean([np.nanmean(numbers) for numbers in differences]))
    assert (row["n_texts"], row["n_left_out"]) == (5 * 58, 5 * 2)
    again = analysis.interventions_table([shuffled(cell, number) for number, cell in enumerate(cells)][::-1])
    pd.testing.assert_frame_equal(again, table)
