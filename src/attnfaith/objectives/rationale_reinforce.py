"""Learning what to select where selections are drawn as 0 or 1: the score function, and the price of what is selected.

Shapes: B instances, T tokens. Source: Lei et al. 2016, "Rationalizing Neural Predictions"; the score function is Williams'
(1992, REINFORCE).
"""

import math
from dataclasses import dataclass

import torch

from attnfaith.errors import AttnfaithError


BASELINES = ("none", "moving_average")


@dataclass(frozen=True)
class Prices:
    """What a selection costs beside the loss of the label, and what costs are compared with.

    sparsity: of each selected token. coherence: of each change from one token to the next, in units of sparsity. baseline:
    none, as in the authors' code; or moving_average, the mean cost of the batches before, which leaves the expected gradient
    as it is and makes it vary less. decay: how much of that average is kept at each batch.

    Raises AttnfaithError for prices that are no finite numbers from 0 on, a baseline that is not known, and a decay outside
    [0, 1).
    """

    sparsity: float = 3e-4
    coherence: float = 2.0
    baseline: str = "none"
    decay: float = 0.9

    def __post_init__(self):
        for name in ("sparsity", "coherence"):
            if not 0 <= getattr(self, name) < math.inf:
                raise AttnfaithError(f"selection.{name}={getattr(self, name)} must be a finite number from 0 on")
        if self.baseline not in BASELINES:
            raise AttnfaithError(f"selection.baseline={self.baseline!r} is not known; choose one of {', '.join(BASELINES)}")
        if not 0 <= self.decay < 1:
            raise AttnfaithError(f"selection.decay={self.decay} must be from 0 on and below 1")


def selection_price(gates: torch.Tensor, mask: torch.Tensor, prices: Prices) -> torch.Tensor:
    """sparsity * (sum_t z_t + coherence * sum_t |z_t - z_(t-1)|) of gates z (B,T) at the tokens of mask (B,T): (B,)."""
    changes = (gates[:, 1:] - gates[:, :-1]).abs() * (mask[:, 1:] & mask[:, :-1])
    return prices.sparsity * ((gates * mask).sum(-1) + prices.coherence * changes.sum(-1))


def reinforced(costs: torch.Tensor, log_probs: torch.Tensor, baseline: float = 0.0) -> torch.Tensor:
    """The costs (B,), with the gradient of their expectation: that of the costs themselves plus (cost - baseline) times that
    of log p(gates) (B,). The baseline must not depend on these draws.
    """
    surrogate = (costs.detach() - baseline) * log_probs
    return costs + surrogate - surrogate.detach()
