"""Training of models that read a selection: terms of the loss of each instance, their state, and their logs.

Selections drawn as 0 or 1 (bernoulli) have a price and are learned by the score function: Lei et al. 2016, "Rationalizing
Neural Predictions"; Williams 1992, REINFORCE. A multiplier that training moves holds the share that hardkuma selects at a
target: Bastings et al. 2019, "Interpretable Neural Predictions with Differentiable Binary Variables", and their code; the
multiplier after Rezende & Viola 2018. A budget needs neither.

Shapes: B instances, T tokens.
"""

import math
from dataclasses import dataclass

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from attnfaith.models.rationale_samplers import bernoulli_log_prob, expected_changes, expected_share, kuma_shape
from attnfaith.support.errors import AttnfaithError
from attnfaith.training.losses import classification_loss
from attnfaith.training.trainers import AttentionConfig, AttentionTrainer


SHARE = "share_selected"
"""In logs and evaluations: the mean over texts of the share of their tokens that is read."""
DECAY = {"bernoulli": 0.9, "hardkuma": 0.99}


def selection_price(gates: torch.Tensor, mask: torch.Tensor, sparsity: float, coherence: float) -> torch.Tensor:
    """Return sparsity * (sum_t z_t + coherence * sum_t |z_t - z_(t-1)|) of gates z (B,T) at tokens, mask (B,T): (B,)."""
    changes = (gates[:, 1:] - gates[:, :-1]).abs() * (mask[:, 1:] & mask[:, :-1])
    return sparsity * ((gates * mask).sum(-1) + coherence * changes.sum(-1))


def reinforced(costs: torch.Tensor, log_probs: torch.Tensor, baseline: float = 0.0) -> torch.Tensor:
    """Return the costs (B,) with the gradient of their expectation: that of the costs plus (cost - baseline) times that of
    log p(gates) (B,). The baseline must not depend on these draws.
    """
    surrogate = (costs.detach() - baseline) * log_probs
    return costs + surrogate - surrogate.detach()


@dataclass
class RationaleConfig(AttentionConfig):
    """Arguments of `RationaleTrainer`, each for one sampler.

    bernoulli: the price of a selection, added to the loss of the label. sparsity: of each selected token. coherence: of each
    change from one token to the next, in units of sparsity. baseline: subtracted from costs: none, as in the authors' code;
    or moving_average, the mean cost of earlier batches, which reduces the variance of the gradient and keeps its mean.

    hardkuma: targets that multipliers follow. share: of tokens whose gate is not 0; lasso: changes a token; None: free.
    multiplier: its first value, above 0 unless two_sided. multiplier_rate: its speed. multiplier_range: [least, greatest],
    None: no bounds. two_sided False: lambda <- lambda * exp(rate * average), as in the authors' code: never negative, it
    pushes the measured value down to the target and fades below it. True: lambda <- lambda + rate * average, the ascent of
    the dual problem of an equality, which becomes negative below the target and pulls up.

    decay: the part of a moving average, of costs or of (measured - target), that stays at each batch; None: 0.9 for
    bernoulli, 0.99 for hardkuma.

    Raises AttnfaithError for a multiplier of 0 that is not two-sided, and bounds in the wrong order.
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

    def __post_init__(self):
        super().__post_init__()
        if not self.multiplier and not self.two_sided:
            raise AttnfaithError("multiplier=0 would stay 0, since training multiplies it; give one above 0, or two_sided")
        if self.multiplier_range and not self.multiplier_range[0] < self.multiplier_range[1]:
            raise AttnfaithError(f"multiplier_range={self.multiplier_range}: give [least, greatest]")


@dataclass(frozen=True)
class Constraint:
    """One target of hardkuma: share or lasso. args: how its multiplier moves."""

    name: str
    target: float
    args: RationaleConfig

    def after(self, multiplier: float, average: float, measured: float) -> tuple[float, float]:
        """Return multiplier and moving average after a batch in which `measured` is the mean over its texts.

        Raises AttnfaithError where the multiplier stops being a finite number.
        """
        args, decay = self.args, DECAY["hardkuma"] if self.args.decay is None else self.args.decay
        average = decay * average + (1 - decay) * (measured - self.target)
        step = args.multiplier_rate * average
        try:
            moved = multiplier + step if args.two_sided else multiplier * math.exp(step)
        except OverflowError:
            moved = math.inf
        if args.multiplier_range and not math.isnan(moved):
            least, greatest = args.multiplier_range
            moved = min(max(moved, least), greatest)
        if not math.isfinite(moved):
            raise AttnfaithError(
                f"the multiplier of selection.{self.name} is {moved:g} (before {multiplier:g}, moving average of the "
                f"constraint {average:g}): try a lower selection.multiplier_rate (now {args.multiplier_rate:g}), or bound "
                "it by selection.multiplier_range"
            )
        return moved, average

    def loss(self, measured: torch.Tensor, multiplier: float, average: float) -> torch.Tensor:
        """Return multiplier * (measured - target) of each text (B,), with the gradient of this batch
        and shifted so that their mean is that of the moving average.
        """
        differences = measured - self.target
        return multiplier * (differences + (average - differences.mean()).detach())


class SelectionState(TrainerCallback, ExportableState):
    """The numbers that the training of a selection moves, saved in checkpoints and restored from them."""

    def __init__(self):
        self.numbers: dict[str, float] = {}

    def state(self) -> dict:
        return {"args": {}, "attributes": {"numbers": dict(self.numbers)}}


class RationaleTrainer(AttentionTrainer):
    """Train a model that reads a selection on labels; over a pretrained encoder, by transformers' own optimiser.

    Training logs hold share_selected (texts without tokens left out); for bernoulli selection_price, the mean price of a
    text, and baseline; for hardkuma, by constraint, its multiplier and the moving average of the measured value less the
    target (share_multiplier, share_constraint, lasso_multiplier, lasso_constraint). All are in the trainer's state, and so
    in each checkpoint. Evaluations use the selection of test time; their loss is that of the labels and, for bernoulli, the
    price, so the checkpoint that they select is not the one that reads most.

    Raises AttnfaithError for hardkuma without a target, and a multiplier that is no longer finite.
    """

    config_class = RationaleConfig
    score_names = (SHARE,)

    def __init__(self, model, args, **kwargs):
        self.sampler, targets = model.config.sampler, {"share": args.share, "lasso": args.lasso}
        targets = {name: target for name, target in targets.items() if target is not None}
        self.constraints = [Constraint(*target, args) for target in targets.items()] if self.sampler == "hardkuma" else []
        if self.sampler == "hardkuma" and not targets:
            raise AttnfaithError("hardkuma is trained to a target: give share or lasso")
        args.restore_callback_states_from_checkpoint = True  # else a resumed training would begin anew with them
        super().__init__(model, args, **kwargs)
        state = SelectionState()
        if self.sampler == "bernoulli":
            state.numbers = {"batches": 0.0, "baseline": 0.0}
        for constraint in self.constraints:
            state.numbers |= {f"{constraint.name}_multiplier": args.multiplier, f"{constraint.name}_constraint": 0.0}
        self.add_callback(state)

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the current callback, which loading a checkpoint replaces."""
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
            if self.sampler == "bernoulli":
                losses = losses + selection_price(outputs.gates, inside, self.args.sparsity, self.args.coherence)
            return losses, {"logits": outputs.logits, SHARE: share.where(counts > 0, torch.nan)}
        self.count(SHARE, share, counts > 0)
        if self.sampler == "bernoulli":
            losses = self._priced(losses, outputs, inside)
        for constraint in self.constraints:
            losses = losses + self._constrained(constraint, outputs, inside)
        return losses, {"logits": outputs.logits}

    def _priced(self, losses, outputs, inside):
        numbers, args = self.numbers, self.args
        price = selection_price(outputs.gates, inside, args.sparsity, args.coherence)
        self.count("selection_price", price, torch.ones_like(price, dtype=torch.bool))
        costs = losses + price
        logs = bernoulli_log_prob(outputs.selection_scores.squeeze(-1).float(), outputs.gates, inside)
        reinforcing = reinforced(costs, logs, numbers["baseline"])
        if args.baseline == "moving_average":
            mean, decay = self._mean(costs), DECAY["bernoulli"] if args.decay is None else args.decay
            first = numbers["batches"] == 0
            numbers["baseline"] = mean if first else decay * numbers["baseline"] + (1 - decay) * mean
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
        """Return the mean over the texts of all processes."""
        return float(self.accelerator.reduce(values.detach().double().mean(), "mean"))

    def create_optimizer(self, model=None):
        if self.model.config.text_config is not None:
            return Trainer.create_optimizer(self, model)
        return super().create_optimizer(model)

    def log(self, logs, start_time=None):
        if "loss" in logs:
            logs.update({name: value for name, value in self.numbers.items() if name != "batches"})
        super().log(logs, start_time)
