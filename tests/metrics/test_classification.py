import math

import numpy as np
import pytest

from attnfaith.metrics.classification import classification_scores


def test_by_hand():
    """Of equal probabilities the lower class is the decision; a pair with equal ones counts one half in the area."""
    scores = classification_scores([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4]], [0, 1, 1, 0])
    assert {type(value) for value in scores.values()} == {int, float}
    assert (scores["accuracy"], scores["roc_auc"]) == (0.75, 3.5 / 4)
    assert (scores["f1_class_0"], scores["f1_class_1"]) == (pytest.approx(2 * 2 / 5), pytest.approx(2 * 1 / 3))
    three = classification_scores(np.eye(3)[[0, 1, 1]], [0, 1, 0])
    assert math.isnan(three["roc_auc"]) and math.isnan(three["f1_class_2"])
    assert [three[f"support_class_{label}"] for label in range(3)] == [2, 1, 0]


def test_undefined_is_left_out_and_counted():
    probs = [[0.9, 0.1], [0.9, 0.1], [np.nan, 0.5], [0.2, 0.8]]
    scores = classification_scores(probs, [0, None, 0, 1])
    assert (scores["n_scored"], scores["n_unscored"], scores["support_class_0"]) == (2, 2, 1)
    assert scores["accuracy"] == scores["roc_auc"] == 1
    nothing = classification_scores(np.empty((0, 2)), [])
    assert all(math.isnan(nothing[name]) for name in ("accuracy", "roc_auc", "f1_class_0", "f1_class_1"))


@pytest.mark.parametrize(
    ("probs", "labels", "names"),
    [([0.5, 0.5], [0, 1], "probs"), ([[0.5, 0.5]] * 2, [0, 2], "row 1: label 2"), ([[0.5, 0.5]], [0.5], "row 0: label 0.5")],
)
def test_refusals(probs, labels, names):
    with pytest.raises(ValueError, match=names):
        classification_scores(probs, labels)
