"""Training of models that read a selection: what is added to the loss of each instance, its state, and its logs.

Selections that are drawn as 0 or 1 (bernoulli) have a price and are learned by the score function: Lei et al. 2016,
"Rationalizing Neural Predictions"; Williams 1992, REINFORCE. How much hardkuma selects is held at a target by a multiplier
that training moves: Bastings et al. 2019, "Interpretable Neural Predictions with Differentiable Binary Variables", and their
code; the multiplier after Rezende & Viola 2018. A budget needs neither.

Shapes: B instances, T tokens.
"""

import math
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from attnfaith.errors import AttnfaithError
from attnfaith.models.rationale_samplers import bernoulli_log_prob, expected_changes, expected_share, kuma_shape
from attnfaith.training.losses import classification_loss
from attnfaith.training.trainers import AttentionConfig, AttentionTrainer


SHARE = "share_selected"
"""In logs and evaluations: the mean over texts of the share of their tokens that was read."""
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Prices:
    """The price of a selection, added to the loss of the label, and the baseline that costs are compared with.

    sparsity: of each selected token. coherence: of each change from one token to the next, in units of sparsity. baseline:
    none, as in the authors' code; or moving_average, the mean cost of the batches before, which leaves the expected gradient
    as it is and makes it vary less. decay: how much of that average is kept at each batch.
    """

    sparsity: NotNegative = 3e-4
    coherence: NotNegative = 2.0
    baseline: Literal["none", "moving_average"] = "none"
    decay: Decay = 0.9


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


@dataclass(frozen=True)
class Constraint:
    """A target, and how the multiplier follows what is measured.

    name: share, of tokens whose gate is not 0, or lasso, the changes a token. start: the multiplier at first, above 0 unless
    two-sided. rate: how fast it moves. decay: how much of the moving average of (measured - target) is kept at each batch.
    least, most: bounds of the multiplier; None: none.

    two_sided False: lambda <- lambda * exp(rate * average), as in the authors' code: it is never negative, so that it pushes
    what is measured down to the target and, below it, fades and does not pull it up. True: lambda <- lambda + rate *
    average, the ascent of the dual problem of an equality, which below the target becomes negative and pulls up.
    """

    name: Literal["share", "lasso"]
    target: Annotated[float, Field(ge=0, le=1)]
    start: NotNegative = 1e-4
    rate: Positive = 0.01
    decay: Decay = 0.99
    least: float | None = None
    most: float | None = None
    two_sided: bool = False

    def __post_init__(self):
        if not self.start and not self.two_sided:
            raise ValueError("selection.multiplier=0 would stay 0: it is multiplied by what moves it; give one above 0")
        if self.least is not None and self.most is not None and not self.least < self.most:
            raise ValueError(f"selection: the multiplier's bounds {self.least} and {self.most} are in the wrong order")

    def after(self, multiplier: float, average: float, measured: float) -> tuple[float, float]:
        """Multiplier and moving average after a batch in which `measured` is the mean over its texts.

        Raises AttnfaithError where the multiplier stops being a finite number.
        """
        average = self.decay * average + (1 - self.decay) * (measured - self.target)
        try:
            moved = multiplier + self.rate * average if self.two_sided else multiplier * math.exp(self.rate * average)
        except OverflowError:
            moved = math.inf
        if not math.isnan(moved):
            moved = max(moved, -math.inf if self.least is None else self.least)
            moved = min(moved, math.inf if self.most is None else self.most)
        if not math.isfinite(moved):
            raise AttnfaithError(
                f"the multiplier of selection.{self.name} is {moved:g} (before {multiplier:g}, moving average of the "
                f"constraint {average:g}): try a lower selection.multiplier_rate (now {self.rate:g}), or bound it by "
                "selection.multiplier_range"
            )
        return moved, average

    def loss(self, measured: torch.Tensor, multiplier: float, average: float) -> torch.Tensor:
        """multiplier * (measured - target) of each text (B,), shifted so that the mean over texts has the value of the
        moving average; the gradient is that of what is measured in this batch.
        """
        differences = measured - self.target
        return multiplier * (differences + (average - differences.mean()).detach())


@plain_dataclass
class RationaleConfig(AttentionConfig):
    """Arguments of `RationaleTrainer`: those that the model's sampler has are read.

    Of bernoulli: sparsity, coherence, baseline and decay, see `Prices`. Of hardkuma: the targets share and lasso (None
    leaves one free); multiplier, multiplier_rate, multiplier_range ([least, greatest]), decay and two_sided, see
    `Constraint`. decay None: 0.9 of bernoulli, 0.99 of hardkuma.
    """

    sparsity: float = 3e-4
    coherence: float = 2.0
    baseline: str = "none"
    share: float | None = None
    lasso: float | None = None
    multiplier: float = 1e-4
    multiplier_rate: float = 0.01
    multiplier_range: list[float] | None = None
    two_sided: bool = False
    decay: float | None = None

    def prices(self, sampler: str) -> Prices | None:
        """What a selection costs; None but of bernoulli."""
        if sampler != "bernoulli":
            return None
        return Prices(self.sparsity, self.coherence, self.baseline, 0.9 if self.decay is None else self.decay)

    def constraints(self, sampler: str) -> list[Constraint]:
        """The targets that are stated; none but of hardkuma. Raises AttnfaithError where hardkuma has none."""
        if sampler != "hardkuma":
            return []
        least, most = self.multiplier_range or (None, None)
        targets = {"share": self.share, "lasso": self.lasso}
        constraints = [
            Constraint(
                name,
                target,
                start=self.multiplier,
                rate=self.multiplier_rate,
                decay=0.99 if self.decay is None else self.decay,
                least=least,
                most=most,
                two_sided=self.two_sided,
            )
            for name, target in targets.items()
            if target is not None
        ]
        if not constraints:
            raise AttnfaithError("a selection by hardkuma is trained to a target: give share or lasso")
        return constraints


class SelectionState(TrainerCallback, ExportableState):
    """The numbers that a selection's training moves, saved in and restored from checkpoints."""

    def __init__(self):
        self.numbers: dict[str, float] = {}

    def state(self) -> dict:
        return {"args": {}, "attributes": {"numbers": dict(self.numbers)}}


class RationaleTrainer(AttentionTrainer):
    """Train a model that reads a selection on labels; one over a pretrained encoder by transformers' own optimiser.

    Every training log has share_selected, of which texts without tokens are left out; of bernoulli selection_price, the mean
    price of a text, and baseline; of hardkuma, for each constraint, its multiplier and the moving average of what is
    measured less the target (share_multiplier, share_constraint, lasso_multiplier, lasso_constraint). All of it is in the
    state of the trainer, and so in each checkpoint. An evaluation reads what is selected at test time; its loss is that of
    the labels and, of bernoulli, the price of what is read: a checkpoint chosen by it is not the one that reads most.

    Raises AttnfaithError for hardkuma without a target, and where a multiplier stops being a finite number.
    """

    config_class = RationaleConfig
    takes_penalties = takes_erasure = False
    score_names = (SHARE,)

    def __init__(self, model, args, **kwargs):
        sampler = model.config.sampler
        self.prices, self.constraints = args.prices(sampler), args.constraints(sampler)
        args.restore_callback_states_from_checkpoint = True  # else a training that goes on would begin anew with them
        super().__init__(model, args, **kwargs)
        state = SelectionState()
        if self.prices is not None:
            state.numbers = {"batches": 0.0, "baseline": 0.0}
        for constraint in self.constraints:
            state.numbers |= {f"{constraint.name}_multiplier": constraint.start, f"{constraint.name}_constraint": 0.0}
        self.add_callback(state)

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the present callback: a checkpoint brings another one."""
        states = [callback for callback in self.callback_handler.callbacks if isinstance(callback, SelectionState)]
        return states[0].numbers

    def losses(self, model, inputs: dict):
        labels = inputs.pop("labels")
        inputs.pop("impermissible", None)
        outputs = model(**inputs)
        inside = self.accelerator.unwrap_model(model).attendable(inputs["input_ids"], inputs["attention_mask"])
        losses = classification_loss(outputs.logits, labels, self.class_weights)
        counts = inside.sum(1)
        share = (outputs.gates > 0).sum(1) / counts.clamp(min=1)
        if not model.training:
            if self.prices is not None:
                losses = losses + selection_price(outputs.gates, inside, self.prices)
            return losses, {"logits": outputs.logits, SHARE: share.where(counts > 0, torch.nan)}
        self.count(SHARE, share, counts > 0)
        if self.prices is not None:
            losses = self._priced(losses, outputs, inside)
        for constraint in self.constraints:
            losses = losses + self._constrained(constraint, outputs, inside)
        return losses, {"logits": outputs.logits}

    def _priced(self, losses, outputs, inside):
        numbers, prices = self.numbers, self.prices
        price = selection_price(outputs.gates, inside, prices)
        self.count("selection_price", price, torch.ones_like(price, dtype=torch.bool))
        costs = losses + price
        logs = bernoulli_log_prob(outputs.selection_scores.squeeze(-1).float(), outputs.gates, inside)
        reinforcing = reinforced(costs, logs, numbers["baseline"])
        if prices.baseline == "moving_average":
            mean = self._mean(costs)
            first = numbers["batches"] == 0
            numbers["baseline"] = mean if first else prices.decay * numbers["baseline"] + (1 - prices.decay) * mean
            numbers["batches"] += 1
        return reinforcing

    def _constrained(self, constraint: Constraint, outputs, inside):
        a, b = kuma_shape(outputs.selection_scores.float())
        measured = (expected_share if constraint.name == "share" else expected_changes)(a, b, inside)
        multiplier, average = f"{constraint.name}_multiplier", f"{constraint.name}_constraint"
        numbers = self.numbers
        moved = constraint.after(numbers[multiplier], numbers[average], self._mean(measured))
        numbers[multiplier], numbers[average] = moved
        return constraint.loss(measured, *moved)

    def _mean(self, values: torch.Tensor) -> float:
        """The mean over the texts of all processes."""
        return float(self.accelerator.reduce(values.detach().double().mean(), "mean"))

    def create_optimizer(self, model=None):
        if self.model.config.text_config is not None:
            return Trainer.create_optimizer(self, model)
        return super().create_optimizer(model)

    def log(self, logs, start_time=None):
        if "loss" in logs:
            logs.update({name: value for name, value in self.numbers.items() if name != "batches"})
        super().log(logs, start_time)
