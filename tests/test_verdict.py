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
    Interval,
    Losses,
    accuracy_interval,
    commonest_share,
    judge,
    mean_interval,
    ratio_interval,
)


def losses(ratio=1.0, n=200, *, spread=0.0, seed=0, **changes) -> Losses:
    """Losses of texts whose reference loses 2 and random order 1, attention as the ratio says; all labels are predicted."""
    noise = spread * np.random.default_rng(seed).normal(size=(3, n))
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


def of_class(first, second, n=200):
    """Numbers of texts by their predicted class."""
    return np.where(np.arange(n) % 2 == 0, first, second)


SWING = np.tile([0.5, 0.5, -0.5, -0.5], 50)  # half of the texts of each class above the mean: ends .07 from a ratio
LABELS = losses().labels
RARE = (np.arange(200) < MIN_CLASS_TEXTS - 1).astype(int)


def evidence(precision, lost=3.0):
    return {"precision": np.full(200, precision), "evidence": np.full(200, lost), "evidence_random": np.ones(200)}


CASES = {
    **{
        f"a ratio of {ratio}": (losses(ratio), outcome)
        for ratio, outcome in (
            *((1.0, MAY_SHOW), (0.81, MAY_SHOW), (3.0, MAY_SHOW), (0.79, BESIDE), (0.51, BESIDE)),
            *((0.49, DO_NOT_SHOW), (-1.0, DO_NOT_SHOW)),
        )
    },
    "the lower end decides": (losses(attention=1.85 + SWING), BESIDE),
    "the upper end decides": (losses(attention=1.45 + SWING), BESIDE),
    "uniform, however few texts": (losses(n=3, uniform=True), DO_NOT_SHOW),
    "texts without a loss": (losses(attention=np.where(np.arange(200) < 101, np.nan, 2.0)), CANNOT_TELL),
    "53 % are right, which may be chance": (losses(labels=np.where(np.arange(200) < 94, 1 - LABELS, LABELS)), CANNOT_TELL),
    "half of the labels are right": (losses(labels=np.repeat([0.0, 1.0], 100)), CANNOT_TELL),
    "no labels": (losses(labels=np.full(200, np.nan)), MAY_SHOW),
    "a reference like chance": (losses(reference=np.ones(200)), CANNOT_TELL),
    "a reference that may be chance": (losses(reference=1.02 + 2 * SWING), CANNOT_TELL),
    "one class falls short": (losses(attention=of_class(2.9, 1.4)), BESIDE),
    "nothing ranks words in one class": (losses(reference=of_class(2.0, 1.0), attention=of_class(2.0, 1.0)), BESIDE),
    "a class of few texts falls short": (
        losses(attention=np.where(RARE, 1.0, 2.5), predicted=RARE, labels=RARE.astype(float)),
        MAY_SHOW,
    ),
    "evidence forbids": (losses(**evidence(0.49)), DO_NOT_SHOW),
    "evidence caps": (losses(**evidence(0.79)), BESIDE),
    "evidence agrees": (losses(**evidence(0.81)), MAY_SHOW),
    "evidence never permits": (losses(0.3, **evidence(0.81)), DO_NOT_SHOW),
    "evidence that the model does not use": (losses(**evidence(0.1, lost=1.0)), MAY_SHOW),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rule_by_hand(case):
    numbers, outcome = CASES[case]
    verdict = judge(numbers)
    assert verdict.outcome == outcome
    assert 0 < len(verdict.headline.split()) <= 8 and verdict.reason.endswith(".") and verdict.advice.endswith(".")


def test_all_outcomes_are_reached_and_classes_are_named():
    assert {outcome for _, outcome in CASES.values()} == set(OUTCOMES)
    assert "yes" in judge(CASES["one class falls short"][0]).reason
    assert any("yes" in remark for remark in judge(CASES["a class of few texts falls short"][0]).remarks)
    verdict = judge(losses(0.6))
    assert verdict.ratio.value == pytest.approx(0.6) and verdict.n == 200


def test_rounding_does_not_cross_a_bound():
    assert str(Interval(0.85, 0.7996, 0.9)) == "0.85 [0.7996, 0.90]"
    assert str(Interval(0.4, -0.01, 0.4999)) == "0.40 [−0.01, 0.4999]"
    assert str(Interval(0.8)) == "0.80" and str(Interval()) == "nan"
    assert "0.7999." in judge(losses(**evidence(0.7999))).reason


@pytest.mark.parametrize(("n", "enough"), [(MIN_TEXTS - 1, False), (MIN_TEXTS, True), (0, False), (1, False)])
def test_fewer_texts_tell_nothing(n, enough):
    verdict = judge(losses(n=n))
    assert (verdict.outcome != CANNOT_TELL) == enough and verdict.n == n
    assert enough or str(MIN_TEXTS - n) in verdict.advice


def test_the_ratio_is_one_of_means_and_its_interval_covers_it():
    """Nominal 95 %; of 200 samples of 100 texts fewer than 86 % would be nine standard deviations down."""
    samples = [losses(0.7, 100, spread=1 / np.sqrt(2), seed=seed) for seed in range(200)]
    intervals = [ratio_interval(sample.attention, sample.reference, sample.random) for sample in samples]
    assert np.mean([interval.low <= 0.7 <= interval.high for interval in intervals]) > 0.86
    first = samples[0]
    expected = (first.attention - first.random).mean() / (first.reference - first.random).mean()
    assert intervals[0].value == pytest.approx(expected)
    assert np.isnan(ratio_interval(first.attention, first.random, first.random).value)
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
    """Texts lose with a standard deviation as large as the reference is above random: 60 samples of each kind.

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
