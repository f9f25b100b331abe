import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attnfaith.metrics.attention_faithfulness import rank_agreement
from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement, agreement_by_text, kendall_tau, tie_ceiling


# few different values, so that ties are common
scores = st.one_of(st.integers(-3, 3).map(float), st.floats(-1, 1, allow_subnormal=False))
row_pairs = st.lists(st.tuples(scores, scores), max_size=40).map(lambda pairs: tuple(np.array(pairs).reshape(-1, 2).T))


def draw(generator, n, kind):
    """n scores without ties, with a few ties, with many, or mostly zero."""
    if kind == "untied":
        return generator.permutation(n).astype(float)
    if kind == "few ties":
        return generator.integers(0, max(2, n), n).astype(float)
    if kind == "many ties":
        return generator.integers(0, 3, n).astype(float)
    return np.where(generator.random(n) < 0.9, 0.0, generator.random(n))


def assert_as_scipy(xs, ys):
    actual = np.stack(kendall_tau(xs, ys), 1)
    expected = [tuple(stats.kendalltau(x, y)) for x, y in zip(xs, ys, strict=True)]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def brute_force(x, y):
    """tau-b and its ceiling from the definition, pair by pair; NaN where undefined."""
    pairs = list(itertools.combinations(range(len(x)), 2))
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in pairs]
    a, b = sum(sx != 0 for sx, _ in signs), sum(sy != 0 for _, sy in signs)
    if a == 0 or b == 0:
        return math.nan, math.nan
    return sum(sx * sy for sx, sy in signs) / math.sqrt(a * b), math.sqrt(min(a, b) / max(a, b))


def test_tau_by_hand():
    xs = [[1, 2, 3, 4], [1, 1, 2], [1, 2, 3], [1, 2]]
    ys = [[1, 3, 2, 4], [1, 2, 3], [3, 2, 1], [5, 7]]
    tau, p_value = kendall_tau(xs, ys)
    # second row: 2 concordant pairs, a pair tied in x: 2 / sqrt(2 * 3)
    np.testing.assert_allclose(tau, [4 / 6, 2 / math.sqrt(6), -1, 1], atol=1e-15)
    # of 24 orders of four values 1 has no and 3 have one inversion; without association the tails are doubled
    np.testing.assert_allclose(p_value[[0, 2, 3]], [2 * 4 / 24, 2 / 6, 1], atol=1e-15)
    # normal approximation with ties: m = 3 * 2, variance (6 * 11 - 2 * 1 * 9) / 18
    assert p_value[1] == pytest.approx(2 * stats.norm.sf(2 / math.sqrt((66 - 18) / 18)), abs=1e-15)


@pytest.mark.parametrize("kind", ["untied", "few ties", "many ties", "sparse"])
def test_equals_scipy_with_ties(kind):
    generator = np.random.default_rng(1)
    lengths = [*range(2, 40), 64, 150, 255, 256, 257, 300, 1030]
    for other in ("untied", "few ties", "many ties", "sparse"):
        assert_as_scipy(*[[draw(generator, n, name) for n in lengths] for name in (kind, other)])


def test_equals_scipy_where_a_single_pair_decides_the_exact_rule():
    xs, ys = [], []
    for n in (33, 34, 35, 100, 170, 171, 172, 173, 300):
        ordered = np.arange(n, dtype=float)
        single, two = ordered.copy(), ordered.copy()
        single[[3, 4]] = single[[4, 3]]
        two[[3, 4, 8, 9]] = two[[4, 3, 9, 8]]
        for y in (ordered, single, two):
            xs += [ordered, ordered]
            ys += [y, -y]
    assert_as_scipy(xs, ys)


def test_blocks_change_nothing(monkeypatch):
    generator = np.random.default_rng(5)
    lengths = generator.integers(0, 90, 200)
    xs, ys = ([draw(generator, n, kind) for n in lengths] for kind in ("few ties", "many ties"))
    expected = kendall_tau(xs, ys)
    monkeypatch.setattr(rank_agreement, "BLOCK_SIZE", 7)
    np.testing.assert_array_equal(kendall_tau(xs, ys), expected)


@given(st.lists(row_pairs, max_size=5))
@settings(max_examples=60)
def test_tau_and_ceiling_are_the_definition(pairs):
    xs, ys = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    expected = np.array([brute_force(x, y) for x, y in pairs]).reshape(-1, 2)
    (tau, p_value), ceiling = kendall_tau(xs, ys), tie_ceiling(xs, ys)
    np.testing.assert_allclose(tau, expected[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ceiling, expected[:, 1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(kendall_tau(ys, xs), (tau, p_value), rtol=0, atol=1e-12)
    np.testing.assert_allclose(kendall_tau(xs, [-y for y in ys]), (-tau, p_value), rtol=0, atol=1e-12)
    assert (np.isnan(tau) | (np.abs(tau) <= ceiling + 1e-12)).all()


def test_agreement_by_hand():
    attention = [[0.1, 0.2, 0.7], [0.5, 0.5], [0.1, 0.3, 0.6], [0.0, 0.0, 1.0], []]
    importance = [[1, 2, 3], [1, 2], [1, 3, 2], [1, 2, 3], []]
    results = agreement(agreement_by_text(attention, importance), [0, 0, 1, 1, np.nan])
    assert list(results) == ["overall", "0", "1"]
    sparse = math.sqrt(2 / 3)  # two of three pairs are untied, both concordant: 2 / sqrt(2 * 3)
    taus = [1, 1 / 3, sparse]
    overall = results["overall"]
    assert (overall["n"], overall["n_undefined"]) == (3, 2)
    assert overall["tau_mean"] == pytest.approx(np.mean(taus))
    assert overall["tau_std"] == pytest.approx(np.sqrt(np.mean((np.array(taus) - np.mean(taus)) ** 2)))
    assert overall["tie_ceiling"] == pytest.approx((1 + 1 + sparse) / 3)
    assert overall["tau_over_ceiling"] == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert overall["share_significant"] == 0
    assert (results["0"]["n"], results["0"]["n_undefined"], results["0"]["tau_mean"]) == (1, 1, 1)
    assert math.isnan(results["0"]["ci_low"]) and math.isnan(results["0"]["ci_high"])
    assert (results["1"]["n"], results["1"]["n_undefined"]) == (2, 0)
    assert (results["1"]["ci_low"], results["1"]["ci_high"]) == (-1, 1), "one degree of freedom, cut at the ends"
    attention = np.random.default_rng(7).random((400, 8))
    by_text = agreement_by_text(attention, attention + np.random.default_rng(8).random((400, 8)))
    wide = agreement(by_text)["overall"]
    half_width = stats.t.ppf(0.975, 399) * wide["tau_std"] / math.sqrt(399)
    assert wide["ci_low"] == pytest.approx(wide["tau_mean"] - half_width)
