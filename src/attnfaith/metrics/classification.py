"""How well a classifier does: accuracy, F1 of each class, area under the ROC curve."""

from collections.abc import Sequence

import numpy as np


def classification_scores(probs: np.ndarray, labels: Sequence) -> dict[str, float | int]:
    """Return scores of class probabilities against gold labels, as plain floats in 0..1 (higher is better) and counts.

    probs: [N, C]; the decision is the most probable class, the lower one on equal probability. labels: [N] whole numbers in
    0..C-1; None or NaN where unknown. Instances with a label and without NaN probabilities are scored: n_scored, and the
    others n_unscored. accuracy; f1_class_<c>: 2 TP / (2 TP + FP + FN); support_class_<c>: instances with label c; roc_auc,
    of two classes: probability that an instance of class 1 has the larger probability of it than one of class 0, ties one
    half. Undefined is NaN: F1 of a class that is neither a label nor a decision, the area without instances of both classes.

    Raises ValueError where shapes do not fit or a label is out of range.
    """
    from sklearn.metrics import f1_score, roc_auc_score  # importing it takes longer than a score

    probs, labels = np.asarray(probs, np.float64), np.asarray(labels, np.float64)
    if probs.ndim != 2 or labels.shape != probs.shape[:1]:
        raise ValueError(f"probs has shape {probs.shape} and labels {labels.shape}; give [N, C] and [N]")
    n_classes = probs.shape[1]
    for row in np.flatnonzero(~np.isnan(labels) & ~np.isin(labels, np.arange(n_classes))):
        raise ValueError(f"row {row}: label {labels[row]:g} is none of 0..{n_classes - 1}; give None or NaN where unknown")
    scored = ~np.isnan(labels) & ~np.isnan(probs).any(axis=1)
    probs, labels = probs[scored], labels[scored].astype(np.int64)
    decisions, n = probs.argmax(axis=1), len(labels)
    scores = {"n_scored": n, "n_unscored": len(scored) - n, "accuracy": np.nan, "roc_auc": np.nan}
    f1 = [np.nan] * n_classes
    if n:
        scores["accuracy"] = float(np.mean(decisions == labels))
        f1 = f1_score(labels, decisions, labels=range(n_classes), average=None, zero_division=np.nan).tolist()
    if n_classes == 2 and len(set(labels)) == 2:
        scores["roc_auc"] = float(roc_auc_score(labels, probs[:, 1]))
    for label in range(n_classes):
        scores |= {f"f1_class_{label}": f1[label], f"support_class_{label}": int((labels == label).sum())}
    return scores
