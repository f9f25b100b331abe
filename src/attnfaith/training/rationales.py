"""Training of models that read a selection: terms of the loss of each instance, their state, and their logs.

Selections drawn as 0 or 1 (bernoulli) have a price and are learned by the score function: Lei et al. 2016; Williams 1992,
REINFORCE. A multiplier that training moves holds the share that hardkuma selects at a target: Bastings et al. 2019 and their
code; the multiplier after Rezende & Viola 2018. A budget needs neither.

Shapes: B instances, T tokens.
"""

import math
from dataclasses import dataclass

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from attnfaith.models.rationale_samplers import bernoulli_log_prob, expected_share, kuma_shape
from attnfaith.support.errors import AttnfaithError
from attnfaith.training.losses import classification_loss
from attnfaith.training.trainers import AttentionConfig, AttentionTrainer


SHARE = "share_selected"
"""In logs and evaluations: the mean over texts of the share of their tokens that is read."""


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

    bernoulli: sparsity: price of each selected token, added to the loss of the label. coherence: of each change from one
    token to the next, in units of sparsity. baseline: subtracted from costs: none, as in the authors' code; or
    moving_average, the mean cost of earlier batches, which reduces the variance of the gradient and keeps its mean.

    hardkuma: share: the target, of tokens whose gate is not 0. multiplier: its first value, above 0, which moves by
    lambda <- lambda * exp(multiplier_rate * average), as in the authors' code, within multiplier_range.

    decay: the part of a moving average, of costs or of (share - target), that stays at each batch; None: 0.9 and 0.99.
    """

    sparsity: float = 3e-4
    coherence: float = 2.0
    baseline: str = "none"
    share: float | None = None
    multiplier: float = 1e-4
    multiplier_rate: float = 0.01
    multiplier_range: list[float] | None = None
    decay: float | None = None


def moved_multiplier(args: RationaleConfig, multiplier: float, average: float, share: float) -> tuple[float, float]:
    """Return multiplier and moving average after a batch in which `share` is the mean over its texts.

    Raises AttnfaithError where the multiplier stops being a finite number.
    """
    decay = 0.99 if args.decay is None else args.decay
    average = decay * average + (1 - decay) * (share - args.share)
    moved = multiplier * math.exp(min(args.multiplier_rate * average, 700.0))  # e^710 is too large for a float
    if args.multiplier_range:
        least, greatest = args.multiplier_range
        moved = min(max(moved, least), greatest)
    if not math.isfinite(moved):
        raise AttnfaithError(
            f"the multiplier of selection.share is {moved:g} (before {multiplier:g}): try a lower selection.multiplier_rate "
            f"(now {args.multiplier_rate:g}), or bound it by selection.multiplier_range"
        )
    return moved, average


class SelectionState(TrainerCallback, ExportableState):
    """The numbers that the training of a selection moves, saved in checkpoints and restored from them."""

    def __init__(self, **numbers: float):
        self.numbers = numbers

    def state(self) -> dict:
        return {"args": {}, "attributes": {"numbers": dict(self.numbers)}}


class RationaleTrainer(AttentionTrainer):
    """Train a model that reads a selection on labels; over a pretrained encoder, by transformers' own optimiser.

    Training logs hold share_selected (texts without tokens left out); for bernoulli selection_price, the mean price of a
    text, and baseline; for hardkuma share_multiplier and share_constraint, the moving average of the share less the target.
    Checkpoints hold them. Evaluations use the selection of test time; their loss is that of the labels and, for bernoulli,
    the price.

    Raises AttnfaithError for hardkuma without a target, and a multiplier that is no longer finite.
    """

    config_class = RationaleConfig
    score_names = (SHARE,)

    def __init__(self, model, args, **kwargs):
        self.sampler = model.config.sampler
        if self.sampler == "hardkuma" and args.share is None:
            raise AttnfaithError("hardkuma is trained to a target: give share")
        args.restore_callback_states_from_checkpoint = True  # else a resumed training would begin anew with them
        super().__init__(model, args, **kwargs)
        first = {"bernoulli": {"batches": 0.0, "baseline": 0.0}}
        first["hardkuma"] = {"share_multiplier": args.multiplier, "share_constraint": 0.0}
        self.add_callback(SelectionState(**first.get(self.sampler, {})))

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the current callback, which loading a checkpoint replaces."""
        states = [callback for callback in self.callback_handler.callbacks if isinstance(callback, SelectionState)]
        return states[0].numbers

    def losses(self, model, inputs: dict):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        inside = self.model.attendable(inputs["input_ids"], inputs["attention_mask"])
        losses = classification_loss(outputs.logits, labels, self.class_weights)
        counts = inside.sum(1)
        share = (outputs.gates > 0).sum(1) / counts.clamp(min=1)
        price = selection_price(outputs.gates, inside, self.args.sparsity, self.args.coherence)
        if not model.training:
            losses = losses + price if self.sampler == "bernoulli" else losses
            return losses, {"logits": outputs.logits, SHARE: share.where(counts > 0, torch.nan)}
        self.count(SHARE, share, counts > 0)
        if self.sampler == "bernoulli":
            self.count("selection_price", price, torch.ones_like(price, dtype=torch.bool))
            losses = self._reinforced(losses + price, outputs, inside)
        if self.sampler == "hardkuma":
            losses = losses + self._constraint(expected_share(*kuma_shape(outputs.selection_scores.float()), inside))
        return losses, {"logits": outputs.logits}

    def _reinforced(self, costs, outputs, inside):
        numbers, args = self.numbers, self.args
        logs = bernoulli_log_prob(outputs.selection_scores.squeeze(-1).float(), outputs.gates, inside)
        reinforcing = reinforced(costs, logs, numbers["baseline"])
        if args.baseline == "moving_average":
            mean, decay = self._mean(costs), 0.9 if args.decay is None else args.decay
            first = numbers["batches"] == 0
            numbers["baseline"] = mean if first else decay * numbers["baseline"] + (1 - decay) * mean
            numbers["batches"] += 1
        return reinforcing

    def _constraint(self, shares: torch.Tensor) -> torch.Tensor:
        """Return multiplier * (share - target) of each text (B,), with the gradient of this batch and shifted so that their
        mean is that of the moving average.
        """
        numbers = self.numbers
        numbers["share_multiplier"], numbers["share_constraint"] = moved_multiplier(
            self.args, numbers["share_multiplier"], numbers["share_constraint"], self._mean(shares)
        )
        differences = shares - self.args.share
        return numbers["share_multiplier"] * (differences + (numbers["share_constraint"] - differences.mean()).detach())

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
