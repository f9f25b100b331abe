"""The calibration of the verdict: samples are drawn from the model's own texts, and rates are shares of them."""

import numpy as np
import pytest

from attnfaith.verdict import DO_NOT_SHOW, MAY_SHOW, OUTCOMES, Losses
from recipes.verdict.analysis import SAMPLES, SIZES, calibration, samples


def losses(ratio: float, n: int) -> Losses:
    classes, ones = np.arange(n) % 2, np.ones(n)
    sides = {"attention": ones + ratio, "reference": 2 * ones, "random": ones, "evidence": 2 * ones, "evidence_random": ones}
    names = {"class_names": ("no", "yes"), "reference_name": "integrated gradients"}
    return Losses(predicted=classes, labels=classes.astype(float), precision=np.zeros(n), **sides, **names)


@pytest.mark.slow
def test_rates_are_shares_of_samples():
    """The words that decide are not looked at: a precision of 0 would forbid showing any attention."""
    table = calibration(["good", "wrong", "wrong"], [losses(1.0, 250), losses(0.1, 250), losses(0.1, 150)])
    rows = table.set_index(["attention_is", "texts"])
    assert list(table["texts"].unique()) == list(SIZES)
    assert rows.loc[("good", 100), MAY_SHOW] == 1 and rows.loc[("wrong", 200), DO_NOT_SHOW] == 1
    assert rows.loc[("wrong", 100), ["models", "samples"]].tolist() == [2, 2 * SAMPLES]
    assert rows.loc[("wrong", 200), "samples"] == SAMPLES and rows.loc[("good", 500), "samples"] == 0
    assert np.isnan(rows.loc[("good", 500), list(OUTCOMES)].astype(float)).all()


def test_a_sample_holds_each_text_once():
    drawn = losses(1.0, 120)
    drawn.attention[:] = np.arange(120)
    for sample in samples(drawn, 100)[:3]:
        assert len(set(sample.attention)) == 100 and np.isnan(sample.precision).all()
