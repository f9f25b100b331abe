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
    kullback_leibler_divergence,
    total_variation_distance,
)


DISTANCES = [total_variation_distance, jensen_shannon_divergence, kullback_leibler_divergence]
ALL = [*DISTANCES, decision_flips]
UPPER_BOUND = {total_variation_distance: 1, jensen_shannon_divergence: math.log(2), decision_flips: 1}
# the value to this power is a metric
METRIC_POWER = {total_variation_distance: 1, jensen_shannon_divergence: 0.5, decision_flips: 1}

# zeros, subnormal and very unequal weights included
weights = st.one_of(st.just(0.0), st.floats(0, 1), st.sampled_from([5e-324, 1e-300, 1e-12]))


@st.composite
def distributions(draw, rows):
    """`rows` distributions over the same 1 to 8 items."""
    values = draw(arrays(np.float64, (rows, draw(st.integers(1, 8))), elements=weights))
    values[values.sum(axis=1) < 1e-3, 0] = 1
    return values / values.sum(axis=1, keepdims=True)


def test_by_hand():
    p, q = [[0.5, 0.5], [1, 0], [0.25, 0.75]], [[0.25, 0.75], [0, 1], [0.25, 0.75]]
    np.testing.assert_allclose(total_variation_distance(p, q), [0.25, 1, 0], atol=1e-15)
    first = 0.5 * (0.5 * math.log(0.5 / 0.375) + 0.5 * math.log(0.5 / 0.625))
    first += 0.5 * (0.25 * math.log(0.25 / 0.375) + 0.75 * math.log(0.75 / 0.625))
    np.testing.assert_allclose(jensen_shannon_divergence(p, q), [first, math.log(2), 0], atol=1e-15)
    kl = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    np.testing.assert_allclose(kullback_leibler_divergence(p, q), [kl, math.inf, 0], atol=1e-15)
    assert decision_flips(p, q).tolist() == [1, 1, 0]


@given(distributions(2))
@settings(max_examples=100)
def test_equal_scipy(pair):
    # scipy halves p + q, which underflows for subnormal numbers and makes its answer infinite
    p, q = np.where(pair < 1e-290, 0, pair)
    with np.errstate(all="ignore"):
        assert jensen_shannon_divergence([p], [q])[0] == pytest.approx(jensenshannon(p, q) ** 2, abs=1e-7)
        assert kullback_leibler_divergence([p], [q])[0] == pytest.approx(entropy(p, q), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("divergence", ALL)
@given(distributions(3))
@settings(max_examples=50)
def test_properties(divergence, three):
    p, q, r = three[:1], three[1:2], three[2:]
    value = divergence(p, q)[0]
    assert 0 <= value <= UPPER_BOUND.get(divergence, math.inf)
    assert divergence(p, p)[0] == 0
    if power := METRIC_POWER.get(divergence):
        assert value == pytest.approx(divergence(q, p)[0], abs=1e-12)
        assert value**power <= divergence(p, r)[0] ** power + divergence(r, q)[0] ** power + 1e-7
    if divergence in DISTANCES:
        assert value > 0 or np.abs(p - q).max() <= 1e-3


def test_single_precision_stays_in_range():
    disjoint = np.eye(2) * 1.00005
    assert total_variation_distance(disjoint, disjoint[::-1]).tolist() == [1, 1]
    assert jensen_shannon_divergence(disjoint, disjoint[::-1]).tolist() == [math.log(2)] * 2
    assert kullback_leibler_divergence(disjoint, disjoint / 1.00005).tolist() == [0, 0]


@pytest.mark.parametrize("divergence", ALL)
def test_a_distribution_sums_to_1_within_a_ten_thousandth(divergence):
    near = [[0.5, 0.50009]]
    assert np.isfinite(divergence(near, near)).all()
    with pytest.raises(InputError, match="row 0: p sums to 1.0002"):
        divergence([[0.5, 0.5002]], [[0.5, 0.5]])
