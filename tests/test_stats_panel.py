"""The bootstrap over seeds and texts: by brute force, and beside the one over texts."""

import tracemalloc

import numpy as np
import pytest

from attnfaith import stats
from attnfaith.stats import DRAWS, Panel, _resample_counts, bootstrap_interval, percentile_interval


def panel(values):
    values = np.asarray(values, np.float64)
    return Panel(values, np.ones(values.shape, bool))


def test_means_and_draws_by_brute_force():
    generator = np.random.default_rng(3)
    values = generator.normal(size=(2, 3, 7))
    values[0, 1, :4] = np.nan
    values[1, 2] = np.nan  # a seed without a value
    both = panel(values)
    assert both.means[0] == pytest.approx(np.mean([np.nanmean(values[0, seed]) for seed in range(3)]))
    assert both.means[1] == pytest.approx(np.mean([values[1, seed].mean() for seed in range(2)]))
    for draw in range(40):
        texts = np.repeat(np.arange(7), np.concatenate(list(_resample_counts(7, DRAWS, 0)))[draw].astype(int))
        seeds = np.repeat(np.arange(3), np.concatenate(list(_resample_counts(3, DRAWS, 1)))[draw].astype(int))
        assert len(texts) == 7 and len(seeds) == 3
        for level in range(2):
            picked = [values[level, seed][texts] for seed in seeds]
            means = [row[~np.isnan(row)].mean() for row in picked if not np.isnan(row).all()]
            expected = np.mean(means) if means else np.nan
            assert both.draws[level, draw] == pytest.approx(expected, nan_ok=True)
    assert both.n.tolist() == [17, 14] and both.n_undefined.tolist() == [4, 7] and both.n_seeds.tolist() == [3, 2]


def test_with_one_seed_it_is_the_bootstrap_over_texts():
    values = np.random.default_rng(0).normal(size=400)
    low, high = panel(values[None, None]).intervals()
    expected = bootstrap_interval(values)
    assert (low[0], high[0]) == pytest.approx(expected, abs=0.02)
    assert high[0] - low[0] == pytest.approx(2 * 1.96 / 20, rel=0.15)


def test_with_three_seeds_the_interval_reaches_the_outer_ones():
    values = np.repeat([0.1, 0.2, 0.6], 50).reshape(1, 3, 50)
    low, high = panel(values).intervals()
    assert (low[0], high[0]) == pytest.approx((0.1, 0.6)), "one draw in 27 is of the lowest alone: more than 2.5 %"


def test_intervals_are_undefined_below_two_values_and_exact_for_what_is_equal():
    assert np.isnan(panel([[[1.0, np.nan, np.nan]]]).intervals()).all()
    assert np.isnan(panel([[[np.nan, np.nan]]]).means).all()
    values = np.random.default_rng(1).normal(size=(1, 2, 9))
    difference = panel(values + 0.25).minus(panel(values))
    assert difference.means == pytest.approx(0.25) and np.ravel(difference.intervals()) == pytest.approx([0.25, 0.25])


def test_pairs_rest_on_the_same_texts():
    one, other = panel([[[1.0, np.nan, 3.0]]]), panel([[[5.0, 5.0, np.nan]]])
    assert one.where(other).means == 1 and other.where(one).means == 5 and one.minus(other).n == 1
    assert one.minus(other).n_undefined == 2


def test_a_level_counts_from_a_tenth_of_its_texts_on():
    """One and two of twenty texts, over two seeds; then one of the ten that are held at all."""
    values = np.full((3, 2, 10), np.nan)
    values[0, 0, 0] = values[1, 0, 0] = values[1, 1, 0] = values[2, 1, 0] = 1.0
    held = np.ones(values.shape, bool)
    held[2, 0] = False
    assert Panel(values, held).filled.tolist() == [False, True, True]


def test_percentile_interval_leaves_undefined_draws_out():
    draws = np.linspace(0, 1, 101)
    assert percentile_interval(draws) == pytest.approx((0.025, 0.975))
    gaps = np.stack([draws, np.where(draws > 0.4, np.nan, draws), np.full(101, np.nan), np.where(draws == 1, np.inf, draws)])
    low, high = percentile_interval(gaps)
    assert low[:2] == pytest.approx([0.025, 0.01]) and high[:2] == pytest.approx([0.975, 0.39]) and np.isnan(low[2])
    assert high[3] == pytest.approx(np.quantile(draws[:-1], 0.975))
    low, high = percentile_interval(gaps, defined=0.5)
    assert np.isnan([low[1], high[1], low[2]]).all() and (low[0], high[0]) == pytest.approx((0.025, 0.975))


@pytest.mark.parametrize("interval", [lambda texts: panel([[texts]]).draws, lambda texts: bootstrap_interval(texts)])
def test_draws_of_many_texts_are_not_held_at_once(interval):
    """1000 draws of 50,000 texts are 400 MB; the draws are those of the whole, and 1000 means are kept of them."""
    texts = np.random.default_rng(2).normal(size=50_000)
    tracemalloc.start()
    try:
        interval(texts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 160e6


def test_draws_in_parts_are_those_of_one_part(monkeypatch):
    values = np.random.default_rng(4).normal(size=(2, 2, 30))
    values[0, 1, ::3] = np.nan
    whole = panel(values).draws
    monkeypatch.setattr(stats, "BLOCK", 1000)
    assert panel(values).draws == pytest.approx(whole, rel=1e-13)


def test_p_values_of_a_panel_are_the_share_of_draws_beyond_0():
    generator = np.random.default_rng(0)
    values = np.stack([generator.normal(shift, 1, (3, 40)) for shift in (5.0, 0.0, -5.0)])
    values = np.concatenate([values, np.zeros((1, 3, 40)), np.full((1, 3, 40), np.nan)])
    drawn = Panel(values, np.ones(values.shape, bool), 400)
    assert drawn.draws.shape == (5, 400)
    above, none, below, zero, nothing = drawn.p_values()
    assert above == below == pytest.approx(2 / 401), "no draw lies beyond 0"
    rarer = min((drawn.draws[1] <= 0).sum(), (drawn.draws[1] >= 0).sum())
    assert none == pytest.approx(2 * (1 + rarer) / 401) and none > 0.05
    assert zero == 1 and np.isnan(nothing)
    assert drawn.minus(drawn).n_draws == drawn.where(drawn).n_draws == 400
