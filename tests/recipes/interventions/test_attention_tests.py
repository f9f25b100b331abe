"""Tests of attention as numbers per text: of a measured model, and by hand."""

import datasets
import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.measurement.engine import measure
from attnfaith.reporting.cells import Cell, split_cells
from attnfaith.reporting.explanation_tests import scores
from recipes.interventions import attention_tests
from tests.identities import typed
from tests.records import build, with_columns


NAN = np.nan
PRODUCERS = (
    "gradient",
    "random_scores",
    "permutation",
    "adversary_exact",
    "erasure",
    "minimal_flip_set",
    "rationale_erasure",
    "identifiability",
)


@pytest.mark.slow
def test_a_measured_model_has_the_tests_that_its_columns_allow(tiny_model, tiny_rows, tmp_path):
    rows = datasets.Dataset.from_list(tiny_rows([0, 1, 2, 7, 9]))
    options = {"adversary_exact": {"epsilons": [0.05, 0.01]}, "permutation": {"draws": 3}}
    path = tmp_path / "record.parquet"
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
    columns = [name for name in cell.table.column_names if not name.startswith(("permuted", "importance_gradient"))]
    left = set(attention_tests.tests_of(Cell(cell.identity, cell.table.select(columns))))
    assert left == set(numbers) - {"permutation", "tau_gradient", "first_gradient", "tau_gradient_hidden"}


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
    axes = {"impermissible": ("T",), "permissible_only_probs": ("C",)} | {
        name: ("G",) for name in columns if "group" in name
    }
    table = with_columns(build(texts, measures=("gradient",)), columns, {name: axes.get(name, ()) for name in columns})
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
    numbers = attention_tests.numbers(split_cells(table)[0])
    for name, values in expected.items():
        np.testing.assert_allclose(numbers[name], values, atol=1e-6, err_msg=name)
    assert set(numbers) == {*expected, "tau_gradient"}
