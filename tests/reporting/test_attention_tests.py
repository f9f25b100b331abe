"""What each test of attention says of one text: by hand, and of a model that every producer measured."""

import datasets
import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.measurement import measure
from attnfaith.reporting import attention_tests
from attnfaith.reporting.cells import Cell, split_cells
from attnfaith.reporting.sections.identifiability import per_text as identified
from attnfaith.reporting.sections.permutation import per_text as permuted
from tests.identities import typed
from tests.records import build, with_columns


PRODUCERS = (
    *("gradient", "leave_one_out", "random_scores", "permutation", "adversary_exact", "erasure", "minimal_flip_set"),
    *("rationale_erasure", "identifiability"),
)


@pytest.fixture(scope="module")
def measured(tiny_model, tiny_rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("measured") / "record.parquet"
    rows = datasets.Dataset.from_list(tiny_rows([0, 1, 2, 7, 9, 12]))
    options = {"adversary_exact": {"epsilons": [0.05, 0.01]}, "permutation": {"draws": 3}}
    measure(tiny_model(), rows, typed(seed=1), list(PRODUCERS), path, options=options, progress=False)
    return split_cells(records.load(path))[0]


def test_a_measured_model_has_the_tests_that_its_columns_allow(measured):
    every = attention_tests.numbers(measured)
    assert set(every) == {
        *("tau_gradient", "first_gradient", "tau_leave_one_out", "first_leave_one_out", "from_uniform", "permutation"),
        *("adversary_exact", "erasure_flip", "erasure_jsd", "minimal_flip_set", "comprehensiveness", "sufficiency"),
        *("identifiability", "confidence", "tau_gradient_hidden", "tau_leave_one_out_hidden"),
        "tau_leave_one_out_reproject_hidden",
    }
    for name, values in every.items():
        assert values.shape == (6,) and values.dtype == np.float64
        if name != "confidence":
            assert np.isnan(values[0]), f"{name} of an empty text"
        assert not np.isnan(values[3:]).all(), name
        assert attention_tests.named(name).suspect in (1, -1) and attention_tests.named(name).label
    np.testing.assert_array_equal(every["permutation"], permuted(measured)["permutation_tvd"])
    np.testing.assert_array_equal(every["identifiability"], identified(measured)["identifiability_width"])
    np.testing.assert_array_equal(every["tau_gradient"], measured.tau("attention", "gradient"))
    epsilons, jsd = (records.rows(measured.table, f"adversary_exact_{name}") for name in ("epsilon", "jsd"))
    assert every["adversary_exact"][4] == jsd[4][list(epsilons[4]).index(0.01)], "at the smallest epsilon"


def test_erasure_is_read_over_that_of_random_scores(measured):
    from attnfaith.reporting.explanation_tests import scores

    said = scores(measured)
    for test in ("comprehensiveness", "sufficiency"):
        expected = said[test]["attention"] - said[test]["random"]
        np.testing.assert_array_equal(attention_tests.numbers(measured)[test], expected)


def test_a_test_without_its_columns_is_not_there(measured):
    kept = [name for name in measured.table.column_names if not name.startswith(("permuted", "importance_gradient"))]
    names = set(attention_tests.numbers(Cell(measured.identity, measured.table.select(kept))))
    assert {"permutation", "tau_gradient", "first_gradient"}.isdisjoint(names) and "tau_leave_one_out" in names
    kept = [name for name in measured.table.column_names if not name.startswith("erasure_o")]
    assert "erasure_flip" not in attention_tests.tests_of(Cell(measured.identity, measured.table.select(kept)))


def test_numbers_by_hand():
    texts = [
        {"attention": [0.7, 0.2, 0.1], "gradient": [1, 3, 3], "probs": [0.2, 0.8]},
        {"attention": [0.5, 0.5], "gradient": [2, 2], "probs": [0.5, 0.5]},
        {"attention": [1.0], "gradient": [2], "probs": [0.0, 1.0]},
        {"attention": [], "gradient": [], "probs": [0.9, 0.1]},
        {"attention": [0.25, 0.75], "gradient": [np.nan, 1], "probs": [0.3, 0.7]},
    ]
    table = build(texts, measures=("gradient",))
    table = with_columns(
        table,
        {
            "impermissible": [[1, 0, 0], [0, 0], [1], [], [1, 0]],
            "minimal_flip_size": [1, np.nan, np.nan, np.nan, 2],
            "permissible_only_probs": [[0.7, 0.3], [np.nan] * 2, [np.nan] * 2, [np.nan] * 2, [0.3, 0.7]],
            "conicity_absolute": [0.9, 0.1, np.nan, np.nan, 0.5],
            "value_norm_share": [0.6, 0.5, np.nan, np.nan, 0.4],
        },
        {"impermissible": ("T",), "minimal_flip_size": (), "permissible_only_probs": ("C",)}
        | {"conicity_absolute": (), "value_norm_share": ()},
    )
    nan = np.nan
    expected = {
        "first_gradient": [0.2, nan, nan, nan, nan],
        "from_uniform": [0.7 - 1 / 3, 0, nan, nan, 0.25],
        "minimal_flip_set": [1 / 3, 1, nan, nan, 1],
        "impermissible": [0.7, nan, nan, nan, 0.25],
        "hidden_influence": [0.5 - 0.7, nan, nan, nan, 0 - 0.25],
        "conicity": [0.9, 0.1, nan, nan, 0.5],
        "value_norm_share": [0.6, 0.5, nan, nan, 0.4],
        "confidence": [np.log(4), 0, attention_tests.LARGEST_ODDS, np.log(9), np.log(7 / 3)],
    }
    every = attention_tests.numbers(split_cells(table)[0])
    for name, values in expected.items():
        np.testing.assert_allclose(every[name], values, atol=1e-6, err_msg=name)
    assert set(every) == {*expected, "tau_gradient"}


def test_random_and_uniform_scores_are_no_measures_to_agree_with():
    texts = [{"attention": [0.7, 0.3], "random": [0.1, 0.2], "uniform": [1, 1], "lime": [0.3, -0.2]}]
    names = attention_tests.tests_of(split_cells(build(texts, measures=("random", "uniform", "lime")))[0])
    assert set(names) == {"tau_lime", "first_lime", "from_uniform"}


@pytest.mark.parametrize(
    ("names", "expected"), [(["punctuation", "NOUN"], [0.3, np.nan]), (["NOUN", "X"], [np.nan, np.nan])]
)
def test_attention_on_punctuation_is_that_of_the_group(names, expected):
    texts = [{"attention": [0.7, 0.3], "probs": [0.2, 0.8]}, {"attention": [0.6, 0.4], "probs": [0.2, 0.8]}]
    columns = {
        "group_mass_names": [names] * 2,
        "group_mass": [[0.3, 0.7], [np.nan] * 2],
        "group_mass_tokens": [[1, 1], [0, 2]],
    }
    table = with_columns(build(texts, measures=()), columns, dict.fromkeys(columns, ("G",)))
    np.testing.assert_allclose(attention_tests.numbers(split_cells(table)[0])["punctuation"], expected)
