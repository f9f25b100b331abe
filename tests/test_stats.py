"""Tests and intervals against brute force, closed forms and scipy, and their levels on samples whose truth is known."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats as scipy_stats

from attnfaith.stats import (
    LEAST_P,
    bca_interval,
    estimate,
    fall_apart,
    holm,
    interval_of,
    over_seeds_and_texts,
    over_seeds_of_texts,
    ratio_intervals,
    seeds_in_words,
    sign_flip_tests,
    t_interval,
)


def sign_flip_test(differences, **options):
    return sign_flip_tests(np.reshape(differences, (-1, 1)), **options)[0]


@settings(max_examples=60)
@given(
    arrays(np.float64, st.integers(1, 8), elements=st.integers(-4, 4).map(float)), st.sampled_from([0.001, 0.1, 7.0, -1.0])
)
def test_every_pattern_of_signs(differences, factor):
    """By brute force over the differences themselves, zeros included; neither unit, direction nor order counts."""
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=len(differences))]
    expected = np.mean(np.array(sums) >= abs(differences.sum()))
    assert sign_flip_test(differences) == expected == sign_flip_test(differences[::-1] * factor)


@pytest.mark.parametrize("count", [10, 200])
def test_sign_flips_against_scipy(count):
    differences = np.random.default_rng(count).normal(0.1, 1, count)
    expected = scipy_stats.permutation_test(
        (differences, np.zeros(count)), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=20000, rng=1
    ).pvalue
    bound = 5 * np.sqrt(expected * (1 - expected) / 9999) if count > 13 else 1e-12
    assert sign_flip_test(differences) == pytest.approx(expected, abs=bound)


def test_many_columns_at_once_are_tested_as_each_alone():
    columns = np.random.default_rng(0).normal(size=(60, 5)) + [0, 0.1, 0.3, 1, 0]
    columns[10:20, 1] = columns[8:, 4] = np.nan
    p_values = sign_flip_tests(columns)
    alone = [sign_flip_test(column[~np.isnan(column)]) for column in columns.T]
    np.testing.assert_allclose(p_values, alone, atol=5 * np.sqrt(0.5 / 9999))
    assert p_values[4] == alone[4] and p_values[3] < 0.01 < p_values[0]
    assert np.isnan(sign_flip_tests(np.full((20, 1), np.nan))).all() and sign_flip_tests(np.zeros((20, 1))) == 1
    assert [sign_flip_test(np.full(count, 0.3)) for count in (1, 3, 6)] == [1, 2 / 8, 2 / 64]
    assert sign_flip_test(np.full(200, 0.3), draws=999) == 1 / 1000


@settings(max_examples=100)
@given(st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=8))
def test_holm_is_the_step_down_procedure(values):
    adjusted, defined = holm(values), sorted(value for value in values if not np.isnan(value))
    assert (np.isnan(adjusted) == np.isnan(values)).all()
    for alpha in (0.01, 0.05, 0.3):
        passed = [value * (len(defined) - step) <= alpha for step, value in enumerate(defined)]
        rejected = set(defined[: [*passed, False].index(False)])
        assert {value for value, p in zip(values, adjusted, strict=True) if p <= alpha} == rejected


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


def test_a_share_has_wilsons_interval():
    bounds = scipy_stats.binomtest(3, 10).proportion_ci(method="wilson")
    assert interval_of(np.repeat([1.0, 0.0], [3, 7])) == pytest.approx((bounds.low, bounds.high))
    low, high = interval_of(np.ones(20))
    assert 0.8 < low < high == 1


SKEWED = np.random.default_rng(1).exponential(size=60)


@pytest.mark.parametrize(
    ("statistic", "values"),
    [(np.mean, SKEWED), (np.median, SKEWED), (np.median, np.array([1.0, 1, 2, 2, 2, 3, 3, 4, 7]))],
)
def test_another_mean_and_a_median_have_the_bca_interval(statistic, values):
    """Against scipy's, whose resamples are others: within a seventh of the width. Equal medians count half."""
    expected = scipy_stats.bootstrap((values,), statistic, method="BCa", n_resamples=9999, rng=1).confidence_interval
    low, high = interval_of(values, statistic)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=(expected.high - expected.low) / 7)
    assert values.min() <= low < statistic(values) < high <= values.max()


def test_a_mean_of_correlations_has_students_interval_within_their_range():
    values = np.random.default_rng(0).uniform(-1, 1, 12)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert t_interval(values) == pytest.approx((expected.low, expected.high))
    assert t_interval(np.array([1.0, 0.9, 0.2]))[1] == 1 and np.isnan(t_interval(values[:1])).all()


def test_an_estimate_leaves_out_undefined_numbers():
    values = np.array([0.0, np.nan, 0.0, 1.0, 9.0])
    assert list(estimate("x", values)) == ["x", "x_ci_low", "x_ci_high"]
    assert estimate("x", values)["x"] == 2.5 and estimate("x", values, np.median)["x"] == 0.5
    assert interval_of(np.full(5, 0.3)) == (0.3, 0.3)
    assert bca_interval(np.zeros(5)) == (0, 0), "no difference is no share"
    for nothing in (estimate("x", values[:1]), estimate("x", values[:0])):
        assert np.isnan(nothing["x_ci_low"])


@pytest.mark.parametrize("block", [4000, 1 << 22])
def test_quotients_are_drawn_one_text_after_another(block, monkeypatch):
    monkeypatch.setattr("attnfaith.stats.BLOCK", block)
    generator, draws = np.random.default_rng(1), np.random.default_rng(0)
    above, below = generator.normal(size=300), generator.uniform(size=300)
    drawn = [(above[rows].sum() / below[rows].sum()) for rows in (draws.integers(0, 300, 300) for _ in range(60))]
    interval = ratio_intervals(above[:, None], below[:, None], draws=60)[0]
    assert interval == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=1e-12)
    assert np.isnan(ratio_intervals(np.ones((3, 1)), np.zeros((3, 1)))).all()
    assert np.isnan(ratio_intervals(above[:1, None], below[:1, None])).all()


def test_of_one_seed_or_of_equal_texts_it_is_the_t_test():
    texts, by_seed = np.random.default_rng(0).normal(0.3, size=(1, 25)), np.array([0.2, 0.5, 0.35, 0.4])
    for numbers, sample in ((texts, texts[0]), (np.repeat(by_seed[:, None], 30, axis=1), by_seed)):
        expected = scipy_stats.ttest_1samp(sample, 0)
        interval = expected.confidence_interval(0.95)
        by_t_test = (sample.mean(), interval.low, interval.high, expected.pvalue)
        assert over_seeds_of_texts(numbers) == pytest.approx(by_t_test, rel=1e-6)


def test_both_are_added_in_squares():
    generator = np.random.default_rng(1)
    values = generator.normal(size=(3, 1)) + generator.normal(size=(1, 40))
    half = [
        scipy_stats.t.ppf(0.975, 2) * values.mean(1).std(ddof=1) / np.sqrt(3),
        scipy_stats.t.ppf(0.975, 39) * values.mean(0).std(ddof=1) / np.sqrt(40),
    ]
    interval = over_seeds_of_texts(values)
    assert interval.ci_high - interval.value == pytest.approx(np.hypot(*half)) == interval.value - interval.ci_low
    values[0, 7] = np.nan  # of one text a seed's number is undefined: each mean is over the seed's own texts
    assert over_seeds_of_texts(values).value == pytest.approx(np.nanmean(values, axis=1).mean())


def test_the_p_value_is_the_level_at_which_the_interval_reaches_chance():
    by_seed, left_out = np.array([0.5, 0.62, 0.7]), 0.6 + 0.001 * np.random.default_rng(2).normal(size=50)
    interval = over_seeds_and_texts(by_seed, left_out)
    at_its_end = over_seeds_and_texts(by_seed, left_out, chance=interval.ci_low)
    assert at_its_end.p_value == pytest.approx(0.05, abs=1e-9)
    assert over_seeds_and_texts(by_seed, left_out, chance=interval.value).p_value == 1


def test_no_interval_leaves_the_range_and_nothing_has_none():
    interval = over_seeds_and_texts(np.array([0.9, 1.0]), np.full(9, 0.95), chance=0.5, bounds=(0, 1))
    assert interval.ci_high == 1 and interval.ci_low == pytest.approx(0.95 - 12.7062 * 0.05, abs=1e-5)
    assert over_seeds_and_texts(np.array([0.3, 0.300001]), np.full(9, 0.3)).p_value > LEAST_P
    for nothing in (over_seeds_and_texts(np.array([]), np.ones(5)), over_seeds_and_texts(np.ones(2), np.ones(1))):
        assert np.isnan(nothing).all()


def test_seeds_that_fall_apart_or_all_agree_have_no_interval():
    """Some learn and some collapse, or all are exactly alike: no t holds, and each seed's value says more."""
    learned = np.array([[1.0] * 20, [0.97] * 20, [0.5] * 20]) + 0.001 * np.random.default_rng(0).normal(size=(3, 20))
    for numbers in (learned, np.full((3, 20), 0.7)):
        interval = over_seeds_of_texts(numbers, bounds=(0, 1))
        assert interval.value == pytest.approx(numbers.mean()) and np.isnan(interval[1:]).all()
    assert over_seeds_of_texts(np.zeros((2, 9))) == (0, 0, 0, 1), "no difference at all is no difference"
    assert not fall_apart(np.array([0.9, 0.88, 0.91]), 0.01, (0, 1)) and not fall_apart(np.array([0.9]))
    assert fall_apart(np.array([0.9, 0.5]), 0.01, (0, 1)) and not fall_apart(np.array([0.9, 0.5]), 0.1, (0, 1))
    assert fall_apart(np.array([3.0, 3.1, 3.05, 9.0])) and not fall_apart(np.array([3.0, 9.0]))
    assert seeds_in_words([1.0, 0.97, np.nan, 0.5], 0.6) == "2 of 3 seeds above 0.6 (1.00, 0.97, 0.50)"


COVERED = {
    "share": (lambda rng: rng.binomial(1, 0.1, 30).astype(float), 0.1, interval_of),
    "mean": (lambda rng: rng.exponential(size=30), 1.0, interval_of),
    "median": (lambda rng: rng.exponential(size=30), np.log(2), lambda values: interval_of(values, np.median)),
    "tau": (lambda rng: 1 - 2 * rng.beta(2, 5, 30), 1 - 4 / 7, t_interval),  # skewed and cut at 1
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", COVERED)
def test_intervals_cover_as_often_as_they_say(kind):
    """400 samples of 30 texts each; 89 % is more than five standard deviations below 95 %."""
    draw, truth, interval = COVERED[kind]
    rng = np.random.default_rng(0)
    ends = [interval(draw(rng)) for _ in range(400)]
    assert np.mean([low <= truth <= high for low, high in ends]) > 0.89


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "spread"), [(2, 0.3), (2, 10.0), (3, 0.1), (3, 1.0), (3, 10.0), (5, 1.0)])
def test_nulls_are_called_differences_no_more_often_than_stated(seeds, spread):
    """Models that differ by chance alone. spread: of a seed's mean, in standard errors over texts."""
    generator = np.random.default_rng([seeds, int(10 * spread)])
    rounds, texts, p_values = 1200, 30, []
    for _ in range(rounds):
        means = generator.normal(size=(seeds, 1)) * spread / np.sqrt(texts)
        p_values.append(over_seeds_of_texts(means + generator.normal(size=(1, texts))).p_value)
    for level in (0.05, 0.01):  # a correction for many tests asks for small levels
        allowed = level + 3 * np.sqrt(level * (1 - level) / rounds)
        assert np.nanmean(np.array(p_values) <= level) <= allowed
    assert np.isnan(p_values).mean() < 0.1, "seeds of one kind are seldom taken for two"
