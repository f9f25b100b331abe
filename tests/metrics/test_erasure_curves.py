"""Sufficiency, comprehensiveness and the areas made of them, by hand and by other routes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import trapezoid

from attnfaith.metrics.attention_faithfulness.erasure_curves import (
    aopc,
    area_under_curve,
    erasure_results,
    normalised_comprehensiveness,
    normalised_sufficiency,
)


PROBS = st.floats(0, 1)


@settings(max_examples=50)
@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 7)), elements=st.floats(-1, 1)))
def test_the_two_normalisations(falls):
    """As the formulas are written: one loop each."""
    count = falls.shape[1]
    np.testing.assert_allclose(aopc(falls), [sum(row) / count for row in falls], atol=1e-12)
    np.testing.assert_allclose(aopc(falls, "eraser_paper"), [(0 + sum(row)) / (count + 1) for row in falls], atol=1e-12)


@settings(max_examples=100)
@given(PROBS, PROBS, PROBS)
def test_normalised_forms_as_their_definitions_are_written(whole, changed, empty):
    def enough(p):
        return 1 - max(0, whole - p)

    sufficient = normalised_sufficiency([whole], [[changed]], [empty])[0, 0]
    comprehensive = normalised_comprehensiveness([whole], [[changed]], [empty])[0, 0]
    if 0 < whole - empty < 1e-6:
        return  # where 1 - (1 - x) is no longer x
    if enough(empty) == 1:
        assert math.isnan(sufficient) and math.isnan(comprehensive)
        return
    scale = 1 - enough(empty)
    assert sufficient == pytest.approx((enough(changed) - enough(empty)) / scale, rel=1e-6, abs=1e-9 / scale)
    assert comprehensive == pytest.approx(max(0, whole - changed) / scale, rel=1e-6, abs=1e-9 / scale)


@settings(max_examples=50)
@given(st.lists(st.tuples(PROBS, PROBS), min_size=1, max_size=8), PROBS, PROBS)
def test_area_as_scipys(points, first, last):
    shares, probs = np.array(sorted(points)).T
    expected = trapezoid([first, *probs, last], [0, *shares, 1])
    assert area_under_curve(shares, [probs], [first], [last])[0] == pytest.approx(expected)


def test_area_of_a_line_and_of_own_shares():
    probs = np.array([[0.75, 0.25], [0.5, 0.5]])
    np.testing.assert_allclose(area_under_curve([0.25, 0.75], probs, [1, 0.5], [0, 0.5]), 0.5)
    # the same share twice: a hundredth and a twentieth of ten tokens are one token
    np.testing.assert_allclose(area_under_curve([[0.1, 0.1]], [[0.5, 0.5]], [1], [0]), 0.1 * 0.75 + 0.9 * 0.25)


def test_results_hold_each_number(load):
    whole, kept, removed, empty = [0.9, 0.8], [[0.8, 0.9], [0.8, 0.7]], [[0.5, 0.1], [0.8, 0.9]], [0.5, 0.2]
    by_text = erasure_results(whole, kept, removed, empty)
    expected = {
        "sufficiency_aopc": [0.05, 0.05],
        "comprehensiveness_aopc": [0.6, -0.05],
        "sufficiency_aopc_paper": [0.1 / 3, 0.1 / 3],
        "comprehensiveness_aopc_paper": [0.4, -0.1 / 3],
        "normalised_sufficiency": [(0.75 + 1) / 2, (1 + 5 / 6) / 2],
        "normalised_comprehensiveness": [(1 + 2) / 2, 0.0],
    }
    assert by_text.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(by_text[name], values, atol=1e-12, err_msg=name)

    metric = load("erasure")
    columns = {"whole_prob": whole, "kept_probs": kept, "removed_probs": removed, "empty_prob": empty}
    results = metric.compute(**columns)
    assert results.pop("n") == 2 and {results.pop(f"{name}_undefined") for name in expected} == {0}
    assert results == pytest.approx({name: np.mean(values) for name, values in expected.items()})
    # one by one, with an undefined one that enters no mean
    for row in range(2):
        metric.add(**{name: values[row] for name, values in columns.items()})
    metric.add_batch(whole_prob=[0.7], kept_probs=[None], removed_probs=[[0.1, 0.2]], empty_prob=[0.9])
    results = metric.compute()
    assert (results["n"], results["sufficiency_aopc_undefined"], results["comprehensiveness_aopc_undefined"]) == (3, 1, 0)
    assert results["normalised_comprehensiveness_undefined"] == 1
    assert results["sufficiency_aopc"] == pytest.approx(0.05)
