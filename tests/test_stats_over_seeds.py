"""Intervals over seeds and texts that keep their level with few seeds: closed forms, and nulls that are drawn."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from attnfaith.stats import LEAST_P, over_seeds_and_texts


def means(values):
    """`over_seeds_and_texts` of the mean of values [S, N]."""
    by_seed, count = values.mean(1), values.shape[1]
    return over_seeds_and_texts(by_seed, (values.sum(1, keepdims=True) - values).mean(0) / (count - 1))


def test_of_one_seed_it_is_the_t_test_over_texts():
    values = np.random.default_rng(0).normal(0.3, size=(1, 25))
    made, expected = means(values), scipy_stats.ttest_1samp(values[0], 0)
    interval = expected.confidence_interval(0.95)
    assert made == pytest.approx((values.mean(), interval.low, interval.high, expected.pvalue), rel=1e-6)


def test_where_texts_are_alike_it_is_the_t_test_over_seeds():
    by_seed = np.array([0.2, 0.5, 0.35, 0.4])
    made, expected = means(np.repeat(by_seed[:, None], 30, axis=1)), scipy_stats.ttest_1samp(by_seed, 0)
    interval = expected.confidence_interval(0.95)
    assert made == pytest.approx((by_seed.mean(), interval.low, interval.high, expected.pvalue), rel=1e-6)


def test_both_are_added_in_squares():
    generator = np.random.default_rng(1)
    values = generator.normal(size=(3, 1)) + generator.normal(size=(1, 40))
    half = [
        scipy_stats.t.ppf(0.975, 2) * values.mean(1).std(ddof=1) / np.sqrt(3),
        scipy_stats.t.ppf(0.975, 39) * values.mean(0).std(ddof=1) / np.sqrt(40),
    ]
    made = means(values)
    assert made.ci_high - made.value == pytest.approx(np.hypot(*half)) == made.value - made.ci_low


def test_the_p_value_is_the_level_at_which_the_interval_reaches_chance():
    by_seed, left_out = np.array([0.5, 0.62, 0.7]), 0.6 + 0.001 * np.random.default_rng(2).normal(size=50)
    made = over_seeds_and_texts(by_seed, left_out)
    at_its_end = over_seeds_and_texts(by_seed, left_out, chance=made.ci_low)
    assert at_its_end.p_value == pytest.approx(0.05, abs=1e-9)
    assert over_seeds_and_texts(by_seed, left_out, chance=made.value).p_value == 1


def test_ends_and_nothing():
    made = over_seeds_and_texts(np.array([0.9, 1.0]), np.full(9, 0.95), chance=0.5, bounds=(0, 1))
    assert made.ci_high == 1 and made.ci_low == pytest.approx(0.95 - 12.7062 * 0.05, abs=1e-5)
    assert over_seeds_and_texts(np.array([0.3, 0.3]), np.full(9, 0.3)) == (0.3, 0.3, 0.3, pytest.approx(LEAST_P))
    assert over_seeds_and_texts(np.zeros(2), np.full(9, 1e-17)) == (0, 0, 0, 1), "rounding is no difference"
    for nothing in (over_seeds_and_texts(np.array([]), np.ones(5)), over_seeds_and_texts(np.ones(2), np.ones(1))):
        assert np.isnan(nothing).all()


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "spread"), [(2, 0.3), (2, 10.0), (3, 0.0), (3, 1.0), (3, 10.0), (5, 1.0)])
def test_nulls_are_called_differences_no_more_often_than_stated(seeds, spread):
    """Models that differ by chance alone. spread: of a seed's mean, in standard errors over texts."""
    generator = np.random.default_rng([seeds, int(10 * spread)])
    rounds, texts = 1200, 30
    p_values = []
    for _ in range(rounds):
        of_seeds = generator.normal(size=(seeds, 1)) * spread / np.sqrt(texts)
        p_values.append(means(of_seeds + generator.normal(size=(1, texts))).p_value)
    for level in (0.05, 0.01):  # a correction for many tests asks for small levels
        allowed = level + 3 * np.sqrt(level * (1 - level) / rounds)
        assert np.mean(np.array(p_values) <= level) <= allowed
