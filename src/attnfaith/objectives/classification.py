"""Learning labels: the cross-entropy of each instance, weights that balance classes, and the one reduction of all losses.

Shapes: B instances, C classes.
"""

import torch
from torch.nn.functional import cross_entropy

from attnfaith.errors import AttnfaithError


REDUCTIONS = ("sum", "mean")


def classification_loss(
    logits: torch.Tensor, labels: torch.Tensor, class_weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Cross-entropy (B,) of logits (B,C) and labels (B,), in nats, times the weight (C,) of each instance's label.

    Two classes with weights (1, w): the binary cross-entropy with positives weighted by w.
    """
    losses = cross_entropy(logits.float(), labels, reduction="none")
    return losses if class_weights is None else losses * class_weights.to(losses)[labels]


def balancing_weights(labels: torch.Tensor, num_labels: int) -> torch.Tensor:
    """(C,): 1 for class 0 and n_0 / n_c for class c, so that all classes weigh the same in sum (Jain & Wallace).

    Raises AttnfaithError where a class has no instance.
    """
    counts = torch.bincount(labels, minlength=num_labels)
    if (absent := (counts == 0).nonzero().flatten().tolist()) or len(counts) > num_labels:
        raise AttnfaithError(
            f"cannot balance {num_labels} classes: no training instance of class {absent}, counts {counts.tolist()}; "
            "training.balance_classes=false does without weights"
        )
    return counts[0] / counts


def reduce(losses: torch.Tensor, reduction: str) -> torch.Tensor:
    """Per-instance losses (B,) as one number. A mean would weigh instances of smaller batches more than others."""
    if reduction not in REDUCTIONS:
        raise AttnfaithError(f"reduction={reduction!r} is not known; choose one of {', '.join(REDUCTIONS)}")
    return losses.sum() if reduction == "sum" else losses.mean()
