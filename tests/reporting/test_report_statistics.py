"""Tests of differences against brute force and scipy, and comparisons of cells where the answer is known."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from attnfaith.stats import _count_members, bootstrap_interval, estimate, holm, interval_of, sign_flip_test, with_interval


FEW = arrays(np.float64, st.integers(1, 8), elements=st.integers(-4, 4).map(float))


# ------------------------------------------------------------------------------------------------ sign flips


@settings(max_examples=60)
@given(FEW)
def test_every_pattern_of_signs(differences):
    """By brute force over the differences themselves, zeros included."""
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=len(differences))]
    assert sign_flip_test(differences) == np.mean(np.array(sums) >= abs(differences.sum()))


@pytest.mark.parametrize("count", [5, 10, 200])
def test_against_scipy(count):
    differences = np.random.default_rng(count).normal(0.1, 1, count)
    found = stats.permutation_test(
        (differences, np.zeros(count)), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=20000, rng=1
    )
    bound = 5 * np.sqrt(found.pvalue * (1 - found.pvalue) / 9999) if count > 13 else 1e-12
    assert sign_flip_test(differences) == pytest.approx(found.pvalue, abs=bound)


def test_the_draws_go_over_to_the_exact_test_without_a_jump():
    differences = np.random.default_rng(0).normal(0.5, 1, 13)
    more = [*differences, 1e-12]  # a fourteenth that changes nothing: drawn, not enumerated
    exact = sign_flip_test(differences)
    assert 0.01 < exact < 0.5
    assert sign_flip_test(more, draws=50_000) == pytest.approx(exact, abs=0.01)


def test_smallest_and_largest_p():
    for count in (1, 3, 6):
        assert sign_flip_test(np.full(count, 0.3)) == 2 / 2**count
    assert sign_flip_test(np.full(200, 0.3), draws=999) == 1 / 1000
    assert sign_flip_test([0.0, 0.0]) == 1 and sign_flip_test([1.0, -1.0]) == 1
    assert np.isnan(sign_flip_test([]))


@settings(max_examples=30)
@given(FEW, st.sampled_from([0.001, 0.1, 7.0, -1.0]))
def test_neither_unit_nor_direction_nor_order(differences, factor):
    expected = sign_flip_test(differences)
    assert sign_flip_test(differences * factor) == expected == sign_flip_test(differences[::-1])


def test_level_under_no_difference():
    """Skewed values that are exchangeable within pairs: p <= 0.1 in about a tenth of the trials."""
    generator = np.random.default_rng(3)
    trials = [sign_flip_test(np.subtract(*generator.exponential(size=(2, 20))), draws=199, seed=i) for i in range(1000)]
    share = np.mean(np.array(trials) <= 0.1)
    assert abs(share - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 1000)


# ------------------------------------------------------------------------------------------------ Holm


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.02, np.nan, 0.02]), [0.04, np.nan, 0.04])
    np.testing.assert_allclose(holm([0.9, 0.6]), [1, 1])
    assert holm([]).shape == (0,) and np.isnan(holm([np.nan])).all()


P_VALUES = st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=8)


@settings(max_examples=100)
@given(P_VALUES, st.randoms())
def test_holm_is_the_step_down_procedure(values, random):
    adjusted = holm(values)
    known = [value for value in values if not np.isnan(value)]
    assert (np.isnan(adjusted) == np.isnan(values)).all()
    for alpha in (0.01, 0.05, 0.3):
        rejected, ordered = set(), sorted(known)
        for step, value in enumerate(ordered):
            if value * (len(known) - step) > alpha:
                break
            rejected.add(value)
        assert {v for v, a in zip(values, adjusted, strict=True) if a <= alpha} == rejected
    order = list(range(len(values)))
    random.shuffle(order)
    np.testing.assert_array_equal(holm([values[i] for i in order]), adjusted[order])


@pytest.mark.parametrize("value", [-0.1, 1.5, np.inf])
def test_holm_refuses_what_is_no_p_value(value):
    with pytest.raises(ValueError, match=r"0\.\.1; given"):
        holm([0.5, value])


def test_bootstrap_interval_against_the_normal_one():
    values = np.random.default_rng(0).normal(3, 2, 4000)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=half * 0.15)
    assert np.isnan(bootstrap_interval(values[:1])).all()


@pytest.mark.parametrize("count", [2, 7, 24, 3001])
def test_bootstrap_interval_of_medians_is_that_of_one_draw_after_another(count, monkeypatch):
    monkeypatch.setattr("attnfaith.stats.BLOCK", 50_000)  # several parts
    values, generator = np.random.default_rng(count).normal(size=count), np.random.default_rng(5)
    medians = [np.median(values[generator.integers(0, count, count)]) for _ in range(100)]
    interval = bootstrap_interval(values, seed=5, draws=100, statistic=np.median)
    assert interval == tuple(np.quantile(medians, (0.025, 0.975)))


@pytest.mark.parametrize("most_cached", [0, 1 << 26])
@pytest.mark.parametrize("statistic", [np.mean, np.median, np.max])
def test_intervals_over_many_texts_are_those_of_one_draw_after_another(statistic, most_cached, monkeypatch):
    monkeypatch.setattr("attnfaith.stats.BLOCK", 40_000)
    monkeypatch.setattr("attnfaith.stats.MOST_CACHED", most_cached)
    values, generator = np.random.default_rng(1).normal(size=3000), np.random.default_rng(2)
    drawn = [statistic(values[generator.integers(0, 3000, 3000)]) for _ in range(60)]
    for _ in range(2):  # drawn, and as it was kept
        interval = bootstrap_interval(values, seed=2, draws=60, statistic=statistic)
        assert interval == pytest.approx(tuple(np.quantile(drawn, (0.025, 0.975))), abs=1e-12)


@pytest.mark.parametrize("cached", [1, 700, 1 << 15])
def test_a_thing_can_be_drawn_more_often_than_a_byte_counts(cached, monkeypatch):
    monkeypatch.setattr("attnfaith.stats.PROCESSOR_CACHE", cached)
    drawn = np.array([[4] * 299 + [0], [0] * 150 + [1] * 150, [*range(300)]])
    expected = [np.bincount(row, minlength=300).tolist() for row in drawn]
    assert _count_members(drawn.copy()).tolist() == expected


def test_an_estimate_has_the_interval_of_its_own_statistic():
    values = np.array([0.0, 0.0, 0.0, 1.0, 9.0])
    mean, median = estimate("x", values), estimate("x", values, np.median)
    assert list(mean) == list(with_interval("x")) == ["x", "x_ci_low", "x_ci_high"]
    assert (mean["x"], median["x"]) == (2.0, 0.0)
    assert 0 <= mean["x_ci_low"] < 2 < mean["x_ci_high"] <= 9
    assert (median["x_ci_low"], median["x_ci_high"]) == (0.0, 9.0)  # three in five draws at least must be 9 for that end
    assert estimate("share", np.array([True, False]))["share"] == 0.5
    assert estimate("x", np.array([3.0]))["x"] == 3.0 and np.isnan(estimate("x", np.array([3.0]))["x_ci_low"])
    assert np.isnan(list(estimate("x", np.array([])).values())).all()


# ------------------------------------------------------------------------------------------------ intervals of one number


def test_a_share_has_wilsons_interval():
    bounds = stats.binomtest(3, 10).proportion_ci(method="wilson")
    assert interval_of(np.repeat([1.0, 0.0], [3, 7])) == pytest.approx((bounds.low, bounds.high))
    low, high = interval_of(np.ones(20))
    assert 0.8 < low < high == 1


@pytest.mark.parametrize("seed", range(3))
def test_another_mean_has_the_bca_interval(seed):
    """Against scipy's, whose resamples are others: within a tenth of the width."""
    values = np.random.default_rng(seed).exponential(size=40)
    found = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=9999, rng=seed).confidence_interval
    low, high = interval_of(values)
    assert (low, high) == pytest.approx((found.low, found.high), abs=(found.high - found.low) / 10)
    assert values.min() <= low < values.mean() < high <= values.max()


def test_equal_numbers_and_single_ones():
    assert interval_of(np.full(5, 0.3)) == pytest.approx((0.3, 0.3))
    assert np.isnan(interval_of(np.array([0.3]))).all() and np.isnan(interval_of(np.zeros(0))).all()
    assert interval_of(np.arange(30.0), np.median) == bootstrap_interval(np.arange(30.0), statistic=np.median)


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["share", "skewed"])
def test_intervals_cover_as_often_as_they_say(draw):
    """400 samples of 30 texts each; 89 % is more than five standard deviations below 95 %."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        values = generator.binomial(1, 0.1, 30).astype(float) if draw == "share" else generator.exponential(size=30)
        low, high = interval_of(values)
        covered += low <= (0.1 if draw == "share" else 1.0) <= high
    assert covered / 400 > 0.89
