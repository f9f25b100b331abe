"""Tests of attention as numbers per text, and interventions beside their plain twins: by hand and by what is known."""

import datasets
import numpy as np
import pandas as pd
import pytest

from attnfaith import record as records
from attnfaith.measurement.engine import measure
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.explanation_tests import scores
from attnfaith.stats import holm
from recipes.interventions import analysis, attention_tests
from tests.deception import model, shuffled
from tests.identities import typed
from tests.records import build, with_columns


NAN, SEEDS = np.nan, (1, 2, 3, 4, 5)
PRODUCERS = ("gradient", "random_scores", "permutation", "adversary_exact", "erasure", "minimal_flip_set")
PRODUCERS += ("rationale_erasure", "identifiability")


@pytest.mark.slow
def test_a_measured_model_has_the_tests_that_its_columns_allow(tiny_model, tiny_rows, tmp_path):
    rows, path = datasets.Dataset.from_list(tiny_rows([0, 1, 2, 7, 9])), tmp_path / "record.parquet"
    options = {"adversary_exact": {"epsilons": [0.05, 0.01]}, "permutation": {"draws": 3}}
    measure(tiny_model(), rows, typed(seed=1), list(PRODUCERS), path, options=options, progress=False)
    (cell,) = split_cells(records.load(path))
    numbers = attention_tests.numbers(cell)
    assert set(numbers) == {
        *("tau_gradient", "first_gradient", "tau_gradient_hidden", "from_uniform", "permutation", "adversary_exact"),
        *("erasure_flip", "erasure_jsd", "minimal_flip_set", "comprehensiveness", "sufficiency", "identifiability"),
        "confidence",
    }
    for name, values in numbers.items():
        assert (name == "confidence") != np.isnan(values[0]), f"{name} of an empty text"
        assert attention_tests.named(name).suspect in (1, -1) and not np.isnan(values[3:]).all()
    epsilons, jsd = (records.rows(cell.table, f"adversary_exact_{name}") for name in ("epsilon", "jsd"))
    assert numbers["adversary_exact"][4] == jsd[4][list(epsilons[4]).index(0.01)], "at the smallest epsilon"
    erased = scores(cell)["sufficiency"]
    np.testing.assert_array_equal(numbers["sufficiency"], erased["attention"] - erased["random"])


def test_numbers_by_hand():
    texts = [
        {"attention": [0.7, 0.2, 0.1], "gradient": [1, 3, 3], "probs": [0.2, 0.8]},
        {"attention": [0.5, 0.5], "gradient": [2, 2], "probs": [0.5, 0.5]},
        {"attention": [1.0], "gradient": [2], "probs": [0.0, 1.0]},
        {"attention": [], "gradient": [], "probs": [0.9, 0.1]},
        {"attention": [0.25, 0.75], "gradient": [NAN, 1], "probs": [0.3, 0.7]},
    ]
    columns = {
        "impermissible": [[1, 0, 0], [0, 0], [1], [], [1, 0]],
        "minimal_flip_size": [1, NAN, NAN, NAN, 2],
        "permissible_only_probs": [[0.7, 0.3], [NAN] * 2, [NAN] * 2, [NAN] * 2, [0.3, 0.7]],
        "conicity_absolute": [0.9, 0.1, NAN, NAN, 0.5],
        "group_mass_names": [["punctuation", "NOUN"]] * 5,
        "group_mass": [[0.3, 0.7], *[[NAN] * 2] * 4],
        "group_mass_tokens": [[1, 1], *[[0, 2]] * 4],
    }
    axes = dict.fromkeys(columns, ()) | {"impermissible": ("T",), "permissible_only_probs": ("C",)}
    axes |= {name: ("G",) for name in columns if "group" in name}
    expected = {
        "first_gradient": [0.2, NAN, NAN, NAN, NAN],
        "from_uniform": [0.7 - 1 / 3, 0, NAN, NAN, 0.25],
        "minimal_flip_set": [1 / 3, 1, NAN, NAN, 1],
        "impermissible": [0.7, NAN, NAN, NAN, 0.25],
        "hidden_influence": [0.5 - 0.7, NAN, NAN, NAN, 0 - 0.25],
        "conicity": [0.9, 0.1, NAN, NAN, 0.5],
        "punctuation": [0.3, NAN, NAN, NAN, NAN],
        "confidence": [np.log(4), 0, attention_tests.LARGEST_ODDS, np.log(9), np.log(7 / 3)],
    }
    numbers = attention_tests.numbers(split_cells(with_columns(build(texts, measures=("gradient",)), columns, axes))[0])
    for name, values in expected.items():
        np.testing.assert_allclose(numbers[name], values, atol=1e-6, err_msg=name)
    assert set(numbers) == {*expected, "tau_gradient"}


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


def pair(**changed):
    return [model(seed) for seed in SEEDS] + [model(seed, **changed) for seed in SEEDS]


def test_better_and_worse_are_by_the_direction_of_each_test():
    results = analysis.tables(pair(diversity=0.5, deceit=2.0), Settings())
    table = results.tables["interventions"].set_index("test")
    assert table.loc["tau_gradient", "verdict"] == "worse" and table.loc["tau_gradient", "ci_high"] < 0
    assert table.loc["minimal_flip_set", "verdict"] == "cannot be told"
    assert list(results.figures) == ["sst_wiki-interventions"]
    assert "| τ with gradient | **−" in results.texts["by_test.md"], "bold where it is told"
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
