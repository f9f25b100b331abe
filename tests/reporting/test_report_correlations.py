"""Correlations over cells and bootstrap intervals against scipy, resample by resample."""

import doctest
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attnfaith import stats as statistics
from attnfaith.stats import COEFFICIENTS, bootstrap_interval, bootstrap_intervals, correlations


SCIPY = {"kendall": stats.kendalltau, "spearman": stats.spearmanr, "pearson": stats.pearsonr}
points = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=15).map(np.array)


def by_scipy(x, y):
    return {name: of(x, y).statistic if np.ptp(x) and np.ptp(y) else np.nan for name, of in SCIPY.items()}


def draw_points(count, seed=0):
    """Points with ties in both, and some relation."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, 5, count).astype(float)
    return x, np.round(x + 2 * generator.normal(size=count))


def resampled(x, y, members, seed, draws):
    """Coefficients of each resample by scipy, [draws, 3]; members: the points of each group."""
    drawn = np.random.default_rng(seed).integers(0, len(members), (draws, len(members)))
    chosen = [np.concatenate([members[group] for group in row]) for row in drawn]
    return np.array([[*by_scipy(x[places], y[places]).values()] for places in chosen])


def test_doctests():
    assert doctest.testmod(statistics).failed == 0


@pytest.mark.parametrize("grouped", [False, True])
def test_coefficients_and_intervals_against_scipy(grouped):
    x, y = draw_points(14)
    groups = ["a", "b", "a", "c", "b", "d", "d", "a", "c", "e", "e", "e", "f", "f"]
    members = [np.array([i]) for i in range(14)]
    if grouped:
        members = [np.flatnonzero(np.array(groups) == name) for name in "abcdef"]
    found = correlations(x, y, groups=groups if grouped else None, seed=3, draws=200)
    draws = resampled(x, y, members, 3, 200)
    assert (found["n"], found["n_undefined"], found["n_draws_undefined"]) == (14, 0, np.isnan(draws[:, 0]).sum())
    for number, (name, value) in enumerate(by_scipy(x, y).items()):
        assert found[name] == pytest.approx(value, abs=1e-12)
        expected = np.nanquantile(draws[:, number], (0.025, 0.975))
        np.testing.assert_allclose([found[f"{name}_ci_low"], found[f"{name}_ci_high"]], expected, rtol=0, atol=1e-12)


@settings(max_examples=60)
@given(points)
def test_any_points(found):
    x, y = found.T.astype(float)
    result = correlations(x, y, draws=20)
    np.testing.assert_allclose([result[name] for name in COEFFICIENTS], [*by_scipy(x, y).values()], rtol=0, atol=1e-12)
    turned = correlations(x, -y, draws=20)
    for name in COEFFICIENTS:
        bounds = [-turned[f"{name}_ci_high"], -turned[f"{name}_ci_low"]]
        np.testing.assert_allclose([result[f"{name}_ci_low"], result[f"{name}_ci_high"]], bounds, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("scale", "shift"), [(1e-9, 0), (1e6, 0), (1, 1e6)])
def test_neither_unit_nor_origin(scale, shift):
    x, y = draw_points(30)
    expected, found = correlations(x, y, draws=50), correlations(x * scale + shift, y, draws=50)
    np.testing.assert_allclose([*found.values()], [*expected.values()], rtol=1e-7)


def test_a_resample_of_one_value_is_left_out_and_counted():
    """Of three points one has another x: drawn 27 ways, of which 8 miss it and 1 is all of it."""
    found = correlations([0, 0, 1], [1, 2, 4], draws=27_000)
    assert found["n_draws_undefined"] == pytest.approx(9_000, abs=4 * np.sqrt(27_000 * 2 / 9))
    # every other resample has its one x above the others
    assert found["kendall_ci_low"] > 0 and found["kendall_ci_high"] == 1


def test_what_is_undefined():
    nothing = dict.fromkeys(COEFFICIENTS, np.nan)
    for x, y in (([], []), ([1, 2], [3, 4]), ([1, 1, 1, 1], [1, 2, 3, 4]), ([1, 2, 3], [5, 5, 5])):
        found = correlations(x, y)
        np.testing.assert_equal({name: found[name] for name in COEFFICIENTS}, nothing)
        assert found["n"] == len(x) and np.isnan(found["pearson_ci_low"])
    x, y = draw_points(20)
    gaps = np.concatenate([[np.nan, 1, -np.inf], x]), np.concatenate([[1, np.nan, 2], y])
    assert correlations(*gaps) == {**correlations(x, y), "n_undefined": 3}
    groups = ["left out", "left out", "left out", *np.arange(20) // 2]
    assert correlations(*gaps, groups=groups) == {**correlations(x, y, groups=np.arange(20) // 2), "n_undefined": 3}
    one_group = correlations(x, y, groups=["a"] * 20)
    assert one_group["kendall"] == correlations(x, y)["kendall"] and np.isnan(one_group["kendall_ci_low"])


@pytest.mark.parametrize("arguments", [([1, 2, 3], [1, 2]), ([[1, 2]], [[1, 2]]), ([1, 2, 3], [1, 2, 3], "ab")])
def test_points_that_are_no_pairs(arguments):
    x, y, *groups = arguments
    with pytest.raises(ValueError, match="x has shape .* and y .*: give one of each per point"):
        correlations(x, y, groups=groups[0] if groups else None)


def test_seeds_and_dependent_points():
    x, y = draw_points(20)
    assert correlations(x, y, seed=1) == correlations(x, y, seed=1) != correlations(x, y, seed=2)
    # ten copies of every point are no evidence when they are drawn together
    copies = correlations(np.tile(x, 10), np.tile(y, 10), groups=np.tile(np.arange(20), 10))
    for name, value in correlations(x, y).items():
        assert name == "n" or copies[name] == pytest.approx(value, abs=1e-12)
    alone = correlations(np.tile(x, 10), np.tile(y, 10))
    assert alone["pearson_ci_high"] - alone["pearson_ci_low"] < (copies["pearson_ci_high"] - copies["pearson_ci_low"]) / 2


def test_the_interval_covers_the_truth():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        x, noise = generator.normal(size=(2, 40))
        found = correlations(x, 0.6 * x + 0.8 * noise, draws=200)
        covered += found["pearson_ci_low"] <= 0.6 <= found["pearson_ci_high"]
    assert 0.88 <= covered / 200 <= 0.98


def test_intervals_of_many_columns_are_those_of_each():
    columns = np.random.default_rng(0).normal(size=(60, 3)) * [1, 5, 0] + [0, 3, 2]
    expected = [bootstrap_interval(column, seed=4, draws=300) for column in columns.T]
    np.testing.assert_allclose(bootstrap_intervals(columns, seed=4, draws=300), expected, rtol=0, atol=1e-12)


def test_undefined_numbers_are_drawn_and_left_out():
    column = np.array([1.0, np.nan, 5.0, 2.0, np.nan])
    drawn = np.random.default_rng(7).integers(0, 5, (200, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a resample may hold none that is defined
        expected = np.nanquantile(np.nanmean(column[drawn], axis=1), (0.025, 0.975))
    found = bootstrap_intervals(np.stack([column, [np.nan, 1, np.nan, np.nan, np.nan]], axis=1), seed=7, draws=200)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-12)
    assert np.isnan(found[1]).all()
    assert np.isnan(bootstrap_intervals(np.ones((1, 2)))).all() and bootstrap_intervals(np.ones((4, 0))).shape == (0, 2)


def test_blocks_of_draws_change_nothing(monkeypatch):
    columns = np.random.default_rng(0).normal(size=(50, 2))
    expected = bootstrap_intervals(columns, draws=101)
    monkeypatch.setattr(statistics, "BLOCK", 400)
    np.testing.assert_allclose(bootstrap_intervals(columns, draws=101), expected, rtol=0, atol=1e-12)
