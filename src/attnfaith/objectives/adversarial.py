"""Predicting as a base does under another attention: the loss of an adversary and the divergences in it.

Shapes: B instances, T tokens, C classes.
"""

import math

import torch

from attnfaith.errors import AttnfaithError


def total_variation(probs: torch.Tensor, base_probs: torch.Tensor) -> torch.Tensor:
    """Half the summed absolute difference of two distributions (B,C) over classes: (B,) in 0..1."""
    return (probs - base_probs).abs().sum(-1) / 2


def kullback_leibler(attention: torch.Tensor, base_attention: torch.Tensor) -> torch.Tensor:
    """KL(attention || base_attention) of weights (B,T): (B,) in nats, 0..inf, infinite where only the base has a zero.

    0 log 0 = 0, also in the gradient, which is cut to 0 at a weight of 0: there its limit is infinite, and no projection
    passes anything on to a weight that is exactly 0.
    """
    return _relative_entropy(attention, base_attention)


def jensen_shannon(attention: torch.Tensor, base_attention: torch.Tensor) -> torch.Tensor:
    """Mean divergence of two weights (B,T) from their average: (B,) in nats, 0..ln 2; the gradient as for KL.

    Zeros are allowed in both. In the float32 of training it is exact to about 1e-7.
    """
    both = attention + base_attention
    return (_relative_entropy(2 * attention, both) + _relative_entropy(2 * base_attention, both)) / 4


def _relative_entropy(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Sum of p log(p / q) over the last axis. Where p is 0 both logarithms are those of 1: nothing is 0 times infinity."""
    inside = p > 0
    return (p * (p.where(inside, 1).log() - q.where(inside, 1).log())).sum(-1)


DIVERGENCES = {"kl": kullback_leibler, "jsd": jensen_shannon}


def adversarial_loss(
    logits: torch.Tensor,
    base_probs: torch.Tensor,
    attention: torch.Tensor,
    base_attention: torch.Tensor,
    mask: torch.Tensor,
    *,
    weight: float,
    divergence: str = "kl",
) -> torch.Tensor:
    """|softmax(logits) - base_probs|_1 / 2 - weight * divergence(attention || base_attention): (B,).

    Wiegreffe & Pinter (2019): small where a model predicts as the base does and attends elsewhere. logits and base_probs
    (B,C); attention and base_attention (B,T), 0 outside the attendable tokens that mask (B,T) marks. The distance is in
    0..1. divergence: "kl", in nats and without bound, or "jsd", in nats and at most ln 2. A text without tokens has no
    divergence: it is 0.

    weight: their lambda. Their code takes half the difference of one probability, which for two classes is half of this
    distance, |p_1 - base_1|, and the whole of the divergence: lambda there trades the two as weight = 2 lambda does here.

    Raises AttnfaithError for a divergence that is not known, a weight that is not above 0, and for KL where the base's
    attention to a token is 0.
    """
    check_adversary(weight, divergence)
    if divergence == "kl" and bool(((base_attention == 0) & mask).any()):
        raise AttnfaithError(SPARSE_BASE)
    distance = total_variation(logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1), base_probs)
    return distance - weight * DIVERGENCES[divergence](attention, base_attention)


SPARSE_BASE = (
    "the base's attention to a token is exactly 0, where the Kullback-Leibler divergence from it can be infinite: use "
    "divergence 'jsd' against a sparse base"
)


def check_adversary(weight: float, divergence: str) -> None:
    """Raise AttnfaithError for a weight or a divergence that an adversary cannot be trained with."""
    if divergence not in DIVERGENCES:
        raise AttnfaithError(f"divergence={divergence!r} is not known; choose one of {', '.join(DIVERGENCES)}")
    if not 0 < weight < math.inf:
        raise AttnfaithError(f"weight={weight} must be a finite number above 0")
