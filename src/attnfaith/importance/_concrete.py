"""The gates of DiffMask: binary concrete variables, stretched to (LOW, HIGH) and clamped to 0..1.

With s = sigmoid((a + log u - log(1 - u)) / T), u uniform on (0,1) and a the gate's logit, the gate is z = min(1, max(0, LOW
+ (HIGH - LOW) s)). So a gate is exactly 0 with a probability above 0, and never exactly 1.

Source: Louizos et al. 2018, section 2.2, with the bounds of De Cao et al. 2020, section 2.3.
"""

import math

import torch


TEMPERATURE, LOW, HIGH = 0.2, -0.2, 1.0
EDGE = TEMPERATURE * math.log(-LOW / HIGH)
"""T log(s / (1 - s)) of the s that is stretched to 0."""


def sampled(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Gates in 0..1 of logits, from as many draws in (0,1); differentiable in the logits where a gate is not clamped."""
    noise = uniform.log() - torch.log1p(-uniform)
    return (LOW + (HIGH - LOW) * torch.sigmoid((logits + noise) / TEMPERATURE)).clamp(0, 1)


def log_open(logits: torch.Tensor) -> torch.Tensor:
    """log P(z > 0) of gates by their logits: -softplus(T log(-LOW / HIGH) - a), in closed form."""
    return -torch.nn.functional.softplus(EDGE - logits)
