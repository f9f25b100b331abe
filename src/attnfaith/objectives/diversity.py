"""States that differ from one another: a penalty on how narrow the cone is that they lie in.

Shapes: B instances, T tokens, H hidden. Source: Mohankumar et al. 2020, "Towards Transparent and Explainable Attention
Models".
"""

import torch
from torch.nn.functional import cosine_similarity


SMALLEST = 1e-6  # length that a vector counts at least, as in the authors' code


def conicity(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean over tokens of |cos(h_i, mean of h)|: (B,) in 0..1; 1 where all states point in one direction, either way.

    states (B,T,H); mask (B,T) bool, the tokens that count: both means leave out markers and padding. The absolute value is
    the authors' code's; the paper writes the cosine. A state, or a mean, that is shorter than 1e-6 counts as that long, so
    that a zero state has cosine 0. The diversity penalty adds a multiple of it to the loss.

    Undefined, and 0, for a text of fewer than two tokens: its state is the mean.
    """
    states = states.to(torch.promote_types(states.dtype, torch.float32))
    count = mask.sum(-1)
    inside = mask.unsqueeze(-1)
    mean = (states * inside).sum(1) / count.clamp(min=1).unsqueeze(-1)
    cosines = cosine_similarity(states, mean.unsqueeze(1), dim=-1, eps=SMALLEST).abs()
    return (cosines * mask).sum(-1) / count.clamp(min=1) * (count > 1)
