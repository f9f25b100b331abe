"""The area under the ROC curve over seeds and texts: by other routes, and where nothing is to be told."""

import numpy as np
import pytest
from scipy import stats as scipy_stats
from sklearn.metrics import roc_auc_score

from attnfaith.reporting.separation import FEWEST_TEXTS, Separation


def draw(seeds=2, texts=40, *, gap=0.5, seed=0):
    """Numbers with ties and gaps."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=(1, texts))
    first, second = (np.round(shared + generator.normal(size=(seeds, texts)) + by, 1) for by in (gap, 0))
    first[0, :4] = second[-1, 3:6] = np.nan
    return first, second


def strata(values, generator):
    return generator.integers(0, 3, values.shape)


def by_pairs(first, second, strata_first=None, strata_second=None):
    wins = [
        (x > y) + (x == y) / 2
        for i, x in enumerate(first)
        for j, y in enumerate(second)
        if not np.isnan([x, y]).any() and (strata_first is None or strata_first[i] == strata_second[j])
    ]
    return np.mean(wins)


def test_it_is_the_u_statistic_and_the_area_under_the_curve():
    first, second = draw()
    made = Separation(first, second)
    for seed in range(2):
        one, other = (values[seed][~np.isnan(values[seed])] for values in (first, second))
        u = scipy_stats.mannwhitneyu(one, other).statistic
        labels = np.repeat([1, 0], [len(one), len(other)])
        expected = roc_auc_score(labels, np.concatenate([one, other]))
        assert made.by_seed[seed] == pytest.approx(u / len(one) / len(other)) == pytest.approx(expected)
    assert made.estimate.value == pytest.approx(made.by_seed.mean())


@pytest.mark.parametrize("stratified", [False, True])
def test_every_text_left_out_by_brute_force(stratified):
    first, second = draw(texts=36)
    generator = np.random.default_rng(5)
    parts = [strata(first, generator), strata(second, generator)] if stratified else [None, None]
    made = Separation(first, second, *parts)
    for seed, pairs in enumerate(made._counts):
        rows = [values[seed] for values in (first, second, *parts) if values is not None]
        assert made.by_seed[seed] == pytest.approx(by_pairs(*rows))
        expected = [by_pairs(*(np.delete(values, text) for values in rows)) for text in range(36)]
        assert pairs.left_out == pytest.approx(expected)


def test_the_interval_over_texts_is_as_wide_as_a_bootstrap_of_texts():
    first, second = draw(1, 150)
    made = Separation(first, second).estimate
    generator = np.random.default_rng(1)
    places = (generator.integers(0, 150, 150) for _ in range(600))
    draws = [Separation(first[:, place], second[:, place]).by_seed[0] for place in places]
    assert made.ci_high - made.ci_low == pytest.approx(2 * 1.976 * np.std(draws), rel=0.12)


def test_no_order_of_texts_matters_and_nothing_is_drawn():
    first, second = draw()
    place = np.random.default_rng(2).permutation(first.shape[1])
    made, again = Separation(first, second).estimate, Separation(first[:, place], second[:, place]).estimate
    assert made == Separation(first, second).estimate
    assert again == pytest.approx(made, rel=1e-9)


def test_closed_forms():
    rising = np.arange(40.0)[None]
    assert Separation(rising + 100, rising).estimate[:3] == (1, 1, 1)
    assert Separation(rising, rising + 100).estimate[:3] == (0, 0, 0)
    assert Separation(rising, rising).estimate.value == 0.5, "a text beside itself is a tie"
    assert Separation(np.ones((3, 40)), np.ones((3, 40))).estimate == (0.5, 0.5, 0.5, 1)
    turned = Separation(-rising, -rising - 5).estimate.value, Separation(rising, rising + 5).estimate.value
    assert turned[0] == pytest.approx(1 - turned[1])


def test_only_pairs_of_one_stratum_count():
    values, parts = np.arange(60.0)[None], (np.arange(60) // 30)[None]
    shifted = values + np.where(parts == 1, 100.0, 0.0)
    confounded = Separation(values[:, ::-1] + 1000 * (1 - parts), values, 1 - parts, parts)
    assert confounded.estimate.value != Separation(values[:, ::-1] + 1000 * (1 - parts), values).estimate.value
    assert Separation(shifted, values, parts, parts).by_seed[0] == pytest.approx((0.5 + 1) / 2)
    alone = Separation(values, values, parts, parts + 5)
    assert np.isnan(alone.estimate).all() and alone.partnered == 0
    assert Separation(values, values, parts, np.zeros_like(parts)).partnered == 0.75


def test_too_few_texts_are_not_told_apart():
    first, second = np.full((2, 50), np.nan), np.arange(100.0).reshape(2, 50)
    first[0, : FEWEST_TEXTS - 1], first[1, :FEWEST_TEXTS] = 500, 500
    made = Separation(first, second)
    assert made.known.tolist() == [False, True] and made.estimate.value == 1
    assert np.isnan(Separation(first[:1], second[:1]).estimate).all()


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_two_models_of_one_kind_are_told_apart_no_more_often_than_stated(spread):
    """Every model has a mean of its own by chance, and every text; honest and deceiving ones are drawn alike."""
    generator, rounds, told = np.random.default_rng(int(spread)), 500, 0
    for _ in range(rounds):
        shared = generator.normal(size=(1, 40))
        sides = [shared + spread * generator.normal(size=(3, 1)) + generator.normal(size=(3, 40)) for _ in range(2)]
        told += Separation(*sides).estimate.p_value <= 0.05
    assert told / rounds <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / rounds)
