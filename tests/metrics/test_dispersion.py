import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, share_of_zeros, support_size


ALL = [normalised_entropy, support_size, share_of_zeros]
# ties, zeros and very unequal scores included
scores = st.one_of(st.just(0.0), st.floats(0, 1e6), st.sampled_from([1.0, 5e-324, 1e-300, 1e300]))
rows_of_scores = st.lists(scores, max_size=12).map(np.array)
positive_rows = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=12).map(np.array)


def test_by_hand():
    rows = [[0.5, 0.25, 0.25], [1, 0, 0, 0], [2, 2, 2, 2], [0.5, 0.5, 0, 0, 0, 0, 0, 0]]
    expected = [1.5 * math.log(2) / math.log(3), 0, 1, 1 / 3]
    np.testing.assert_allclose(normalised_entropy(rows), expected, rtol=0, atol=1e-15)
    assert support_size(rows).tolist() == [3, 1, 4, 2]
    assert share_of_zeros(rows).tolist() == [0, 0.75, 0, 0.75]


def test_as_scipy_and_as_counting():
    generator = np.random.default_rng(0)
    rows = [
        generator.exponential(size=length) * (generator.random(length) < 0.4) + [0.1, *[0.0] * (length - 1)]
        for length in [2, 3, 5, 30, 400, *generator.integers(2, 60, 100)]
    ]
    expected = [entropy(row) / math.log(len(row)) for row in rows]
    np.testing.assert_allclose(normalised_entropy(rows), expected, rtol=0, atol=1e-13)
    assert support_size(rows).tolist() == [np.count_nonzero(row) for row in rows]
    np.testing.assert_allclose(share_of_zeros(rows), [np.mean(row == 0) for row in rows], rtol=0, atol=1e-15)


@given(st.lists(rows_of_scores, max_size=6))
@settings(max_examples=60)
def test_entropy_of_very_unequal_scores(rows):
    values = normalised_entropy(rows)
    assert (np.isnan(values) | ((values >= 0) & (values <= 1))).all()
    possible = np.array([len(row) >= 2 and row.any() for row in rows], dtype=bool)
    np.testing.assert_array_equal(~np.isnan(values), possible)


@given(positive_rows, st.sampled_from([1e-300, 1e-7, 0.3, 1e7, 1e300]))
@settings(max_examples=60)
def test_scale_does_not_matter(row, factor):
    for function in ALL:
        np.testing.assert_allclose(function([row * factor]), function([row]), rtol=0, atol=1e-12)


@given(positive_rows, st.integers(1, 5))
@settings(max_examples=60)
def test_tokens_without_weight_lower_the_share_of_the_maximum_only(row, more):
    longer = np.concatenate([row, np.zeros(more)])
    before, after = normalised_entropy([row, longer])
    assert after == pytest.approx(before * math.log(len(row)) / math.log(len(longer)), abs=1e-12)
    assert support_size([longer])[0] == len(row)
    assert share_of_zeros([longer])[0] == pytest.approx(more / len(longer))
