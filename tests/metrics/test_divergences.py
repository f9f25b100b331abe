"""Distances between distributions, and dispersion of scores: by hand, against scipy, and by properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from attnfaith.metrics.attention_faithfulness.columns import InputError
from attnfaith.metrics.attention_faithfulness.divergences import (
    decision_flips,
    jensen_shannon_divergence,
    normalised_entropy,
    share_of_zeros,
    support_size,
    total_variation_distance,
)


# divergence -> its largest value, and the power of it that is a metric
DIVERGENCES = {
    total_variation_distance: (1, 1),
    jensen_shannon_divergence: (math.log(2), 0.5),
    decision_flips: (1, 1),
}

# zeros, subnormal and very unequal weights included
weights = st.one_of(st.just(0.0), st.floats(0, 1), st.sampled_from([5e-324, 1e-300, 1e-12]))


@st.composite
def distributions(draw, rows):
    """`rows` distributions over the same 1 to 8 items."""
    values = draw(arrays(np.float64, (rows, draw(st.integers(1, 8))), elements=weights))
    values[values.sum(axis=1) < 1e-3, 0] = 1
    return values / values.sum(axis=1, keepdims=True)


def test_divergences_by_hand():
    p, q = [[0.5, 0.5], [1, 0], [0.25, 0.75]], [[0.25, 0.75], [0, 1], [0.25, 0.75]]
    np.testing.assert_allclose(total_variation_distance(p, q), [0.25, 1, 0], atol=1e-15)
    first = 0.5 * (0.5 * math.log(0.5 / 0.375) + 0.5 * math.log(0.5 / 0.625))
    first += 0.5 * (0.25 * math.log(0.25 / 0.375) + 0.75 * math.log(0.75 / 0.625))
    np.testing.assert_allclose(jensen_shannon_divergence(p, q), [first, math.log(2), 0], atol=1e-15)
    assert decision_flips(p, q).tolist() == [1, 1, 0]


@pytest.mark.parametrize("divergence", DIVERGENCES)
@given(distributions(3))
@settings(max_examples=50)
def test_properties_of_divergences(divergence, three):
    p, q, r = three[:1], three[1:2], three[2:]
    largest, power = DIVERGENCES[divergence]  # a square root makes a rounding of 1e-16 one of 1e-8
    value = divergence(p, q)[0]
    assert 0 <= value <= largest and divergence(p, p)[0] == 0
    assert value == pytest.approx(divergence(q, p)[0], abs=1e-12)
    assert value**power <= divergence(p, r)[0] ** power + divergence(r, q)[0] ** power + 1e-7
    if divergence is jensen_shannon_divergence:  # scipy halves p + q, which makes its answer infinite if it underflows
        normal = np.where(three < 1e-290, 0, three)
        assert value == pytest.approx(jensenshannon(normal[0], normal[1]) ** 2, abs=1e-7)


def test_single_precision_stays_in_range_and_sums_are_checked():
    disjoint = np.eye(2) * 1.00005
    assert total_variation_distance(disjoint, disjoint[::-1]).tolist() == [1, 1]
    assert jensen_shannon_divergence(disjoint, disjoint[::-1]).tolist() == [math.log(2)] * 2
    for divergence in DIVERGENCES:
        with pytest.raises(InputError, match="row 0: p sums to 1.0002"):
            divergence([[0.5, 0.5002]], [[0.5, 0.5]])


def test_dispersion_by_hand_and_as_scipy():
    rows = [[0.5, 0.25, 0.25], [1, 0, 0, 0], [2, 2, 2, 2], [0.5, 0.5, 0, 0, 0, 0, 0, 0]]
    expected = [1.5 * math.log(2) / math.log(3), 0, 1, 1 / 3]
    np.testing.assert_allclose(normalised_entropy(rows), expected, rtol=0, atol=1e-15)
    assert support_size(rows).tolist() == [3, 1, 4, 2]
    assert share_of_zeros(rows).tolist() == [0, 0.75, 0, 0.75]
    generator = np.random.default_rng(0)
    rows = [generator.exponential(size=n) * (generator.random(n) < 0.4) + [0.1, *[0.0] * (n - 1)] for n in range(2, 60)]
    expected = [entropy(row) / math.log(len(row)) for row in rows]
    np.testing.assert_allclose(normalised_entropy(rows), expected, rtol=0, atol=1e-13)


@given(st.lists(st.one_of(st.just(0.0), st.floats(0, 1e6), st.sampled_from([5e-324, 1e-300, 1e300])), max_size=12))
@settings(max_examples=60)
def test_entropy_of_very_unequal_scores(row):
    (value,) = normalised_entropy([row])
    assert (0 <= value <= 1) if len(row) >= 2 and any(row) else math.isnan(value)
