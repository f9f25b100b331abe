"""How much is selected, held at a target by a multiplier that training moves.

Shapes: B instances. Source: Bastings et al. 2019, "Interpretable Neural Predictions with Differentiable Binary Variables",
and their code; the multiplier after Rezende & Viola 2018.
"""

import math
from dataclasses import dataclass

import torch

from attnfaith.errors import AttnfaithError


@dataclass(frozen=True)
class Constraint:
    """A target, and how the multiplier follows what is measured.

    target: of the share of tokens whose gate is not 0, or of the changes a token. start: the multiplier at first. rate: how
    fast it moves. decay: how much of the moving average of (measured - target) is kept at each batch. least, most: bounds
    of the multiplier; None: none.

    two_sided False: lambda <- lambda * exp(rate * average), as in the authors' code: it is never negative, so that it pushes
    what is measured down to the target and, below it, fades and does not pull it up. True: lambda <- lambda + rate *
    average, the ascent of the dual problem of an equality, which below the target becomes negative and pulls up.

    Raises AttnfaithError for a target outside 0..1, numbers that are not finite or out of range, and bounds in the wrong
    order.
    """

    name: str
    target: float
    start: float = 1e-4
    rate: float = 0.01
    decay: float = 0.99
    least: float | None = None
    most: float | None = None
    two_sided: bool = False

    def __post_init__(self):
        if not 0 <= self.target <= 1:
            raise AttnfaithError(f"selection.{self.name}={self.target} is a share of tokens, from 0 to 1")
        if not (0 if self.two_sided else 1e-300) <= self.start < math.inf:
            raise AttnfaithError(
                f"selection.multiplier={self.start} must be a finite number above 0: it is multiplied by what moves it"
            )
        if not 0 < self.rate < math.inf:
            raise AttnfaithError(f"selection.multiplier_rate={self.rate} must be a finite number above 0")
        if not 0 <= self.decay < 1:
            raise AttnfaithError(f"selection.decay={self.decay} must be from 0 on and below 1")
        if self.least is not None and self.most is not None and not self.least < self.most:
            raise AttnfaithError(f"selection: the multiplier's bounds {self.least} and {self.most} are in the wrong order")

    def after(self, multiplier: float, average: float, measured: float) -> tuple[float, float]:
        """Multiplier and moving average after a batch in which `measured` is the mean over its texts.

        Raises AttnfaithError where the multiplier stops being a finite number.
        """
        average = self.decay * average + (1 - self.decay) * (measured - self.target)
        try:
            raised = multiplier + self.rate * average if self.two_sided else multiplier * math.exp(self.rate * average)
        except OverflowError:
            raised = math.inf
        bounds = (-math.inf if self.least is None else self.least, math.inf if self.most is None else self.most)
        raised = min(max(raised, bounds[0]), bounds[1]) if raised == raised else raised
        if not math.isfinite(raised):
            raise AttnfaithError(
                f"the multiplier of selection.{self.name} is {raised:g} (before {multiplier:g}, moving average of the "
                f"constraint {average:g}): try a lower selection.multiplier_rate (now {self.rate:g}), or bound it by "
                "selection.multiplier_range"
            )
        return raised, average

    def loss(self, measured: torch.Tensor, multiplier: float, average: float) -> torch.Tensor:
        """multiplier * (measured - target) of each text (B,), shifted so that the mean over texts has the value of the
        moving average; the gradient is that of what is measured in this batch.
        """
        differences = measured - self.target
        return multiplier * (differences + (average - differences.mean()).detach())
