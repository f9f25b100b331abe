"""Losses, one value per instance: of labels, and of an adversary.

Shapes: B instances, T tokens, C classes.
"""

import torch
from torch.nn.functional import cross_entropy

from attnfaith.support.errors import AttnfaithError


def classification_loss(
    logits: torch.Tensor, labels: torch.Tensor, class_weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Cross-entropy (B,) of logits (B,C) and labels (B,), in nats, times the weight (C,) of each instance's label.

    Two classes with weights (1, w): the binary cross-entropy with positives weighted by w.
    """
    losses = cross_entropy(logits.float(), labels, reduction="none")
    return losses if class_weights is None else losses * class_weights.to(losses)[labels]


def balancing_weights(labels: torch.Tensor, num_labels: int) -> torch.Tensor:
    """Class weights (C,): 1 for class 0 and n_0 / n_c for class c, so that all classes have the same total (Jain & Wallace).

    Raises AttnfaithError where a class has no instance.
    """
    counts = torch.bincount(labels, minlength=num_labels)
    absent = (counts == 0).nonzero().flatten().tolist()
    if absent:
        raise AttnfaithError(f"no training instance of class {absent}: set training.balance_classes=false")
    return counts[0] / counts


def total_variation(probs: torch.Tensor, base_probs: torch.Tensor) -> torch.Tensor:
    """Half the summed absolute difference of two distributions (B,C) over classes: (B,) in 0..1."""
    return (probs - base_probs).abs().sum(-1) / 2


def kullback_leibler(attention: torch.Tensor, base_attention: torch.Tensor) -> torch.Tensor:
    """KL(attention || base_attention) of weights (B,T): (B,) in nats, 0..inf, infinite where only the base has a zero.

    0 log 0 = 0, also in the gradient, which is cut to 0 at a weight of 0: there its limit is infinite, and no projection
    passes anything on to a weight that is exactly 0.
    """
    inside = attention > 0  # elsewhere both logarithms are those of 1: nothing is 0 times infinity
    return (attention * (attention.where(inside, 1).log() - base_attention.where(inside, 1).log())).sum(-1)


def jensen_shannon(attention: torch.Tensor, base_attention: torch.Tensor) -> torch.Tensor:
    """Mean divergence of two weights (B,T) from their average: (B,) in nats, 0..ln 2; the gradient as for KL.

    Zeros are allowed in both. In the float32 of training it is exact to about 1e-7.
    """
    both = attention + base_attention
    return (kullback_leibler(2 * attention, both) + kullback_leibler(2 * base_attention, both)) / 4


DIVERGENCES = {"kl": kullback_leibler, "jsd": jensen_shannon}


def adversarial_loss(logits, base_probs, attention, base_attention, *, weight: float, divergence: str = "kl"):
    """|softmax(logits) - base_probs|_1 / 2 - weight * divergence(attention || base_attention): (B,).

    Wiegreffe & Pinter (2019): small where a model predicts as the base does and attends elsewhere. logits and base_probs
    (B,C); attention and base_attention (B,T), 0 outside the attendable tokens. The distance is in 0..1.
    divergence: "kl", in nats and without bound, or "jsd", in nats and at most ln 2; 0 for a text without tokens. weight:
    twice the lambda of their code, which takes half of this distance for two classes.
    """
    distance = total_variation(logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1), base_probs)
    return distance - weight * DIVERGENCES[divergence](attention, base_attention)
