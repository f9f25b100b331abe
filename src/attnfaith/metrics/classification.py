"""How well a classifier does: accuracy, F1 of each class, area under the ROC curve."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata


def classification_scores(probs: np.ndarray, labels: Sequence) -> dict[str, float | int]:
    """Return scores of class probabilities against gold labels, as plain floats in 0..1 (higher is better) and counts.

    probs: [N, C]; the decision is the most probable class, the lower one on equal probability. labels: [N] whole numbers in
    0..C-1; None or NaN where unknown. Instances with a label and without NaN probabilities are scored: n_scored, and the
    others n_unscored. accuracy; f1_class_<c>: 2 TP / (2 TP + FP + FN); support_class_<c>: instances with label c; roc_auc,
    of two classes: probability that an instance of class 1 has the larger probability of it than one of class 0, ties one
    half. Undefined is NaN: F1 of a class that is neither a label nor a decision, the area without instances of both classes.

    Raises ValueError where shapes do not fit or a label is out of range.
    """
    probs = np.asarray(probs, dtype=np.float64)
    if probs.ndim != 2 or probs.shape[1] == 0:
        raise ValueError(f"probs has shape {probs.shape}; give class probabilities [N, C]")
    labels = np.asarray(labels, dtype=np.float64)
    if labels.shape != (len(probs),):
        raise ValueError(f"labels has shape {labels.shape} for {len(probs)} rows of probs; give one label each")
    n_classes, labelled = probs.shape[1], ~np.isnan(labels)
    for row in np.flatnonzero(labelled & ~np.isin(labels, np.arange(n_classes))):
        raise ValueError(
            f"row {row}: label {labels[row]:g} is none of the {n_classes} classes of probs; labels are 0..{n_classes - 1}, "
            "None or NaN where unknown"
        )
    scored = labelled & ~np.isnan(probs).any(axis=1)
    probs, labels = probs[scored], labels[scored].astype(np.int64)
    decisions = probs.argmax(axis=1)
    scores = {
        "n_scored": len(labels),
        "n_unscored": int((~scored).sum()),
        "accuracy": float(np.mean(decisions == labels)) if len(labels) else float("nan"),
        "roc_auc": _roc_auc(probs[:, 1], labels) if n_classes == 2 else float("nan"),
    }
    for c in range(n_classes):
        hits, support, decided = (
            int(is_c.sum()) for is_c in ((decisions == c) & (labels == c), labels == c, decisions == c)
        )
        scores[f"f1_class_{c}"] = 2 * hits / (support + decided) if support + decided else float("nan")
        scores[f"support_class_{c}"] = support
    return scores


def _roc_auc(probability: np.ndarray, labels: np.ndarray) -> float:
    """The Mann-Whitney statistic over its largest value; NaN where a class has no instance."""
    positives = int(labels.sum())
    pairs = positives * (len(labels) - positives)
    rank_sum = rankdata(probability)[labels == 1].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / pairs) if pairs else float("nan")
