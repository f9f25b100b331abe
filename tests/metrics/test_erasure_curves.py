"""Sufficiency, comprehensiveness and the areas made of them, by hand and as their definitions are written."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from attnfaith.metrics.attention_faithfulness.erasure_curves import (
    area_under_curve,
    erasure_results,
)


PROBS = st.floats(0, 1)


@settings(max_examples=50)
@given(st.lists(st.tuples(PROBS, PROBS), min_size=1, max_size=8), PROBS, PROBS)
def test_area_as_scipys(points, first, last):
    shares, probs = np.array(sorted(points)).T
    expected = trapezoid([first, *probs, last], [0, *shares, 1])
    assert area_under_curve(shares, [probs], [first], [last])[0] == pytest.approx(expected)
    # the same share twice: a hundredth and a twentieth of ten tokens are a single token
    np.testing.assert_allclose(area_under_curve([[0.1, 0.1]], [[0.5, 0.5]], [1], [0]), 0.1 * 0.75 + 0.9 * 0.25)


def test_results_by_hand_and_by_the_metric(load):
    columns = {
        "whole_prob": [0.9, 0.8],
        "kept_probs": [[0.8, 0.9], [0.8, 0.7]],
        "removed_probs": [[0.5, 0.1], [0.8, 0.9]],
        "empty_prob": [0.5, 0.2],
    }
    by_text = erasure_results(*columns.values())
    expected = {
        "sufficiency_aopc": [0.05, 0.05],
        "comprehensiveness_aopc": [0.6, -0.05],
        "normalised_sufficiency": [(0.75 + 1) / 2, (1 + 5 / 6) / 2],
        "normalised_comprehensiveness": [(1 + 2) / 2, 0.0],
    }
    assert by_text.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(by_text[name], values, atol=1e-12, err_msg=name)

    metric = load("erasure")
    results = metric.compute(**columns)
    assert results.pop("n") == 2 and {results.pop(f"{name}_undefined") for name in expected} == {0}
    assert results == pytest.approx({name: np.mean(values) for name, values in expected.items()})
    # row by row, with an undefined text that enters no mean
    for row in range(2):
        metric.add(**{name: values[row] for name, values in columns.items()})
    metric.add_batch(whole_prob=[0.7], kept_probs=[None], removed_probs=[[0.1, 0.2]], empty_prob=[0.9])
    results = metric.compute()
    assert (results["n"], results["sufficiency_aopc_undefined"], results["comprehensiveness_aopc_undefined"]) == (3, 1, 0)
    assert results["normalised_comprehensiveness_undefined"] == 1
    assert results["sufficiency_aopc"] == pytest.approx(0.05)
