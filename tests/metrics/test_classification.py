import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from attnfaith.metrics.classification import classification_scores


@given(st.integers(2, 4), st.integers(2, 40), st.integers(0, 10_000))
@settings(max_examples=50)
def test_equals_sklearn(n_classes, n, seed):
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 4, (n, n_classes))  # few values: ties in the ranking, and the lower class wins
    probs = counts / counts.sum(axis=1, keepdims=True)
    labels = generator.integers(0, n_classes, n)
    scores = classification_scores(probs, labels)
    assert {type(value) for value in scores.values()} == {int, float}
    decisions = probs.argmax(axis=1)
    assert scores["accuracy"] == pytest.approx(accuracy_score(labels, decisions))
    f1 = f1_score(labels, decisions, labels=range(n_classes), average=None, zero_division=np.nan)
    np.testing.assert_allclose([scores[f"f1_class_{c}"] for c in range(n_classes)], f1)
    assert [scores[f"support_class_{c}"] for c in range(n_classes)] == np.bincount(labels, minlength=n_classes).tolist()
    if n_classes == 2 and len(set(labels)) == 2:
        assert scores["roc_auc"] == pytest.approx(roc_auc_score(labels, probs[:, 1]))
    else:
        assert math.isnan(scores["roc_auc"])


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
