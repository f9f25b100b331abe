"""Scores of an evaluation, and which of them can select a checkpoint."""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.metrics.classification import classification_scores
from attnfaith.support.errors import AttnfaithError


SELECTION_METRICS = ("roc_auc", "accuracy", "loss")
LOWER_IS_BETTER = ("loss", "objective")


def evaluation_scores(prediction, names: Sequence[str] = ()) -> dict[str, float]:
    """Return accuracy and ROC-AUC of a Trainer's evaluation.

    names: of the predictions after the logits, which are averaged over instances without NaN.
    """
    logits, *rest = prediction.predictions if isinstance(prediction.predictions, tuple) else (prediction.predictions,)
    probs = torch.from_numpy(np.asarray(logits)).double().softmax(-1).numpy()
    scores = classification_scores(probs, prediction.label_ids)
    scores = {name: scores[name] for name in ("accuracy", "roc_auc") if name in scores}
    for name, values in zip(names, rest, strict=True):
        defined = values[~np.isnan(values)].astype(np.float64)
        scores[name] = float(defined.mean()) if len(defined) else float("nan")
    return scores


def check_selection(
    metric: str, num_labels: int | None = None, labels: Sequence[int] | None = None, *, adversarial: bool = False
) -> None:
    """Raise AttnfaithError for a metric that cannot select a checkpoint: unknown, or undefined for these classes and labels,
    which would fail after an epoch. `objective` is for adversaries.
    """
    if metric not in SELECTION_METRICS and not (adversarial and metric == "objective"):
        raise AttnfaithError(f"training.metric_for_best_model={metric!r}: choose one of {', '.join(SELECTION_METRICS)}")
    if num_labels is not None and metric == "roc_auc" and (num_labels, sorted(set(labels))) != (2, [0, 1]):
        raise AttnfaithError(
            "roc_auc needs two classes in validation: set training.metric_for_best_model to accuracy or loss"
        )
