import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from attnfaith.metrics.attention_faithfulness.support_agreement import support_auprc, top_k_overlap


def orders(row):
    """Every order of the tokens by falling score: all ways to break its ties."""
    return [order for order in itertools.permutations(range(len(row))) if all(np.diff(np.array(row)[list(order)]) <= 0)]


def brute_force(attention, importance, share):
    """Overlap as the mean over every way to break the ties of either row; NaN where undefined."""
    length = len(attention)
    k = min(sum(a > 0 for a in attention), max(1, math.ceil(Fraction(share).limit_denominator(1000) * length)))
    if length < 2 or len(set(importance)) == 1 or len(set(attention)) == 1 or k in (0, length):
        return math.nan
    values = [len({*a[:k]} & {*b[:k]}) / k for a, b in itertools.product(orders(attention), orders(importance))]
    return sum(values) / len(values)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.7])
def test_overlap_against_every_way_to_break_ties(share):
    generator = np.random.default_rng(0)
    attention, importance = [], []
    for _ in range(80):
        length = int(generator.integers(1, 6))
        attention.append(generator.choice([0, 0, 1, 1, 2], length) / 4)
        importance.append(generator.integers(-1, 2, length))
    expected = [brute_force(a.tolist(), i.tolist(), share) for a, i in zip(attention, importance, strict=True)]
    assert 20 < np.sum(~np.isnan(expected)) < 80
    np.testing.assert_allclose(top_k_overlap(attention, importance, share)[0], expected, rtol=0, atol=1e-12)


def test_the_mean_over_random_importance_is_chance():
    attention = np.array([0.5, 0.2, 0.2, 0.1, 0, 0])
    importance = np.array([*itertools.permutations(range(6))])
    for function in (lambda *pair: top_k_overlap(*pair, share=0.5), support_auprc):
        values, chance = function(np.tile(attention, (len(importance), 1)), importance)
        assert values.mean() == pytest.approx(chance[0], abs=1e-12) and len(np.unique(chance)) == 1


def test_auprc_against_sklearn_and_where_every_token_is_taken():
    generator = np.random.default_rng(1)
    rows = [int(n) for n in generator.integers(3, 60, 80)]
    attention = [generator.random(n) * ([1, 0] + [*(generator.random(n - 2) < 0.3)]) for n in rows]
    importance = [generator.integers(0, max(3, n // 2), n) + [5, *[0] * (n - 1)] for n in rows]
    expected = [average_precision_score(a > 0, i) for a, i in zip(attention, importance, strict=True)]
    np.testing.assert_allclose(support_auprc(attention, importance)[0], expected, rtol=0, atol=1e-12)
    # k = T for the overlap; for the support, dense attention
    dense, importance = [[0.5, 0.3, 0.2]], [[1.0, 2.0, 3.0]]
    assert np.isnan(top_k_overlap(dense, importance, 0.7)[0]).all() and top_k_overlap(dense, importance, 0.6)[1] == 2 / 3
    assert np.isnan(support_auprc(dense, importance)).all()
