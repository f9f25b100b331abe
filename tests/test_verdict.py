"""The verdict: each branch of the rule by hand, and how often it errs on losses that are drawn."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binomtest

from attnfaith.verdict import (
    BESIDE,
    CANNOT_TELL,
    DO_NOT_SHOW,
    MAY_SHOW,
    MIN_CLASS_TEXTS,
    MIN_TEXTS,
    OUTCOMES,
    Losses,
    accuracy_interval,
    commonest_share,
    judge,
    mean_interval,
    ratio_interval,
)


def losses(ratio=1.0, n=200, *, spread=0.0, seed=0, **changes) -> Losses:
    """Losses of texts whose reference loses 2 and random order 1, attention as the ratio says; all labels are predicted."""
    generator = np.random.default_rng(seed)
    noise = spread * generator.normal(size=(3, n))
    fields = {
        "attention": 1 + ratio + noise[0],
        "reference": 2 + noise[1],
        "random": 1 + noise[2],
        "predicted": np.arange(n) % 2,
        "labels": (np.arange(n) % 2).astype(float),
        "class_names": ("no", "yes"),
        "reference_name": "|integrated gradients|",
    }
    return Losses(**fields | changes)


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        (1.0, MAY_SHOW),
        (0.81, MAY_SHOW),
        (0.79, BESIDE),
        (0.51, BESIDE),
        (0.49, DO_NOT_SHOW),
        (-1.0, DO_NOT_SHOW),
        (3.0, MAY_SHOW),
    ],
)
def test_the_ratio_decides(ratio, outcome):
    verdict = judge(losses(ratio))
    assert verdict.outcome == outcome and verdict.ratio.value == pytest.approx(ratio)
    assert verdict.n == 200


@pytest.mark.parametrize("ratio", [0.45, 0.85])
def test_an_end_of_the_interval_decides_and_not_the_value(ratio):
    """Half of the texts of each class lie .5 above the mean and half below: the interval reaches .07 to each side."""
    swing = np.tile([0.5, 0.5, -0.5, -0.5], 50)
    verdict = judge(losses(attention=1 + ratio + swing))
    assert verdict.outcome == BESIDE and verdict.ratio.value == pytest.approx(ratio)


def test_the_lower_end_of_the_accuracy_has_to_be_above_the_commonest_class():
    labels = losses().labels
    wrong = np.where(np.arange(200) < 94, 1 - labels, labels)  # 53 % are right: that may be chance
    assert judge(losses(labels=wrong)).outcome == CANNOT_TELL


def test_the_lower_end_of_the_reference_has_to_be_above_random():
    swing = np.tile([1.0, 1.0, -1.0, -1.0], 50)
    assert judge(losses(reference=1.02 + swing)).outcome == CANNOT_TELL


def test_uniform_attention_is_never_shown_however_few_texts():
    assert judge(losses(n=3, uniform=True)).outcome == DO_NOT_SHOW


@pytest.mark.parametrize(("n", "tells"), [(MIN_TEXTS - 1, False), (MIN_TEXTS, True), (0, False), (1, False)])
def test_fewer_texts_tell_nothing(n, tells):
    verdict = judge(losses(n=n))
    assert (verdict.outcome != CANNOT_TELL) == tells and verdict.n == n
    assert tells or str(MIN_TEXTS - n) in verdict.advice


def test_texts_without_a_loss_do_not_count():
    few = losses(n=150)
    few.attention[:51] = np.nan
    verdict = judge(few)
    assert verdict.outcome == CANNOT_TELL and verdict.n == 99


def test_a_model_that_is_no_better_than_its_commonest_class_tells_nothing():
    wrong = losses(labels=np.repeat([0.0, 1.0], 100))  # half of the labels are right
    assert judge(wrong).outcome == CANNOT_TELL
    assert judge(losses(labels=np.full(200, np.nan))).outcome == MAY_SHOW


def test_a_reference_like_chance_tells_nothing():
    assert judge(losses(reference=np.ones(200))).outcome == CANNOT_TELL
    noisy = losses(reference=1 + np.random.default_rng(1).normal(size=200))
    assert judge(noisy).outcome == CANNOT_TELL


def test_each_predicted_class_has_to_pass():
    one_sided = losses()
    one_sided.attention[one_sided.predicted == 1] = 1.4  # ratio .4 in one class
    one_sided.attention[one_sided.predicted == 0] = 2.9  # and 1.9 in the other
    verdict = judge(one_sided)
    assert verdict.outcome == BESIDE and verdict.ratio.value == pytest.approx(1.15) and "yes" in verdict.reason
    blind = losses()
    blind.reference[blind.predicted == 1] = 1.0  # the reference is like chance there, and so is attention
    blind.attention[blind.predicted == 1] = 1.0
    assert judge(blind).outcome == BESIDE


def test_a_class_of_few_texts_is_named_and_not_judged():
    predicted = (np.arange(200) < MIN_CLASS_TEXTS - 1).astype(int)
    rare = losses(predicted=predicted, labels=predicted.astype(float))
    rare.attention[predicted == 1] = 1.0
    rare.attention[predicted == 0] = 2.5
    verdict = judge(rare)
    assert verdict.outcome == MAY_SHOW and any("yes" in remark for remark in verdict.remarks)


@pytest.mark.parametrize(("precision", "outcome"), [(0.49, DO_NOT_SHOW), (0.79, BESIDE), (0.81, MAY_SHOW)])
def test_evidence_that_is_known_caps_and_never_permits(precision, outcome):
    known = {"precision": np.full(200, precision), "evidence": np.full(200, 3.0), "evidence_random": np.full(200, 1.0)}
    assert judge(losses(**known)).outcome == outcome
    assert judge(losses(0.3, **known)).outcome == DO_NOT_SHOW


def test_evidence_that_the_model_does_not_use_says_nothing():
    unused = {"precision": np.full(200, 0.1), "evidence": np.ones(200), "evidence_random": np.ones(200)}
    assert judge(losses(**unused)).outcome == MAY_SHOW


def test_every_verdict_fits_a_headline_and_says_what_it_is_about():
    cases = [losses(ratio) for ratio in (1.0, 0.6, 0.1)] + [losses(n=5), losses(uniform=True)]
    verdicts = [judge(case) for case in cases]
    assert {verdict.outcome for verdict in verdicts} == set(OUTCOMES)
    for verdict in verdicts:
        assert 0 < len(verdict.headline.split()) <= 8
        assert verdict.reason.endswith(".") and verdict.advice.endswith(".")


def test_the_ratio_is_one_of_means_and_its_interval_holds_it():
    drawn = losses(0.7, spread=1.0)
    columns = drawn.attention, drawn.reference, drawn.random
    interval = ratio_interval(*columns)
    expected = (drawn.attention - drawn.random).mean() / (drawn.reference - drawn.random).mean()
    assert interval.value == pytest.approx(expected) and interval.low < expected < interval.high
    assert np.isnan(ratio_interval(drawn.attention, drawn.random, drawn.random).value)
    assert np.isnan(mean_interval(np.zeros(0)).value)


def test_accuracy_has_a_wilson_interval():
    interval = accuracy_interval(np.array([0, 1, 1, 0]), np.array([0, 1, 0, np.nan]))
    bounds = binomtest(2, 3).proportion_ci(method="wilson")
    assert dataclasses.astuple(interval) == pytest.approx((2 / 3, bounds.low, bounds.high))
    assert commonest_share(np.array([0, 0, 1, np.nan])) == pytest.approx(2 / 3)
    assert np.isnan(commonest_share(np.array([np.nan])))


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 200])
def test_error_rates_on_drawn_losses(n):
    """Texts lose with a standard deviation as large as what the reference is above random: 60 samples of each kind.

    Bounds are those of 60 draws at a true rate of 5 %, six standard deviations up. A ratio of .4 lies too near .5 for 100
    texts to reject it: it must only never be shown.
    """
    outcomes = {
        ratio: [judge(losses(ratio, n, spread=1 / np.sqrt(2), seed=seed)).outcome for seed in range(60)]
        for ratio in (1.3, 1.0, 0.4, 0.0)
    }
    few = round(60 * 0.05 + 6 * np.sqrt(60 * 0.05 * 0.95))
    assert outcomes[1.3].count(MAY_SHOW) > 30
    assert outcomes[1.0].count(DO_NOT_SHOW) == 0 and outcomes[1.3].count(DO_NOT_SHOW) == 0
    assert outcomes[0.4].count(MAY_SHOW) == 0 and outcomes[0.0].count(MAY_SHOW) == 0
    assert outcomes[0.0].count(DO_NOT_SHOW) > 60 - few


def test_the_interval_of_the_ratio_covers_it():
    """Nominal 95 %; of 200 samples of 100 texts fewer than 86 % would be nine standard deviations down."""
    covered = 0
    for seed in range(200):
        drawn = losses(0.7, 100, spread=1 / np.sqrt(2), seed=seed)
        interval = ratio_interval(drawn.attention, drawn.reference, drawn.random)
        covered += interval.low <= 0.7 <= interval.high
    assert covered > 172
