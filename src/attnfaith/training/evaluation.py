"""Scores of an evaluation, and which of them can select a checkpoint."""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.metrics.classification import classification_scores
from attnfaith.support.errors import AttnfaithError


SELECTION_METRICS = ("roc_auc", "accuracy", "loss")
LOWER_IS_BETTER = ("loss", "objective")
MOST_CLASSES = 20  # an evaluation reports the F1 of each class up to here: longer logs would be unreadable


def evaluation_scores(prediction, names: Sequence[str] = ()) -> dict[str, float]:
    """Return accuracy, ROC-AUC and F1 per class (up to MOST_CLASSES) of a Trainer's evaluation.

    names: of the predictions after the logits, which are averaged over instances without NaN.
    """
    logits, *rest = prediction.predictions if isinstance(prediction.predictions, tuple) else (prediction.predictions,)
    probs = torch.from_numpy(np.asarray(logits)).double().softmax(-1).numpy()
    scores = {
        name: value
        for name, value in classification_scores(probs, prediction.label_ids).items()
        if name in ("accuracy", "roc_auc") or (probs.shape[1] <= MOST_CLASSES and name.startswith("f1_"))
    }
    for name, values in zip(names, rest, strict=True):
        defined = values[~np.isnan(values)].astype(np.float64)
        scores[name] = float(defined.mean()) if len(defined) else float("nan")
    return scores


def check_selection(
    metric: str, num_labels: int | None = None, labels: Sequence[int] | None = None, *, adversarial: bool = False
) -> None:
    """Raise AttnfaithError for a metric that cannot select a checkpoint: unknown, or undefined for these classes and labels.

    The Trainer would fail after an epoch, or take an undefined score for the best. `objective` is for adversaries.
    """
    number = metric.removeprefix("f1_class_") if metric.startswith("f1_class_") else ""
    if metric == "objective" and adversarial:
        return
    if metric not in SELECTION_METRICS and not number.isdecimal():
        raise AttnfaithError(
            f"training.metric_for_best_model={metric!r} is not known; choose one of {', '.join(SELECTION_METRICS)}, "
            "or f1_class_0, f1_class_1 and so on"
        )
    if num_labels is None:
        return
    present = sorted(set(labels))
    if number and num_labels > MOST_CLASSES:
        raise AttnfaithError(
            f"{metric} selects among {MOST_CLASSES} classes at most; the data has {num_labels}: set "
            "training.metric_for_best_model to accuracy or loss"
        )
    if (metric == "roc_auc" and (num_labels, present) != (2, [0, 1])) or (number and int(number) not in present):
        raise AttnfaithError(
            f"{metric} is not defined for {num_labels} classes where validation has labels {present}: set "
            "training.metric_for_best_model to accuracy or loss"
        )
