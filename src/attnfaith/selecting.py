"""Training a model that reads a selection: what is added to the loss of each instance, its state, and what logs say of it.

Shapes: B instances, L input positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from attnfaith.errors import AttnfaithError
from attnfaith.models.rationale_samplers import bernoulli_log_prob, expected_changes, expected_share, kuma_shape
from attnfaith.objectives import Constraint, Prices, classification_loss, reinforced, selection_price


SHARE = "share_selected"
"""In logs and evaluations: the mean over texts of the share of their tokens that was read."""


@dataclass(frozen=True)
class SelectionLoss:
    """What a selection is trained by besides the labels, by its sampler: bernoulli's prices, hardkuma's constraints; of a
    budget nothing.
    """

    prices: Prices | None = None
    constraints: tuple[Constraint, ...] = ()

    def check(self, sampler: str) -> None:
        """Raise AttnfaithError where this is not what the sampler needs."""
        if (self.prices is not None) != (sampler == "bernoulli") or bool(self.constraints) != (sampler == "hardkuma"):
            needed = {"bernoulli": "prices", "hardkuma": "constraints"}.get(sampler, "nothing else")
            raise AttnfaithError(
                f"a selection by {sampler} is trained by {needed}, and it is given prices {self.prices} and constraints "
                f"{self.constraints}"
            )

    def start(self) -> dict[str, float]:
        """The numbers that training moves, at first."""
        if self.prices is not None:
            return {"batches": 0.0, "baseline": 0.0}
        numbers = {}
        for constraint in self.constraints:
            numbers |= {f"{constraint.name}_multiplier": constraint.start, f"{constraint.name}_constraint": 0.0}
        return numbers


class SelectionState(TrainerCallback, ExportableState):
    """The numbers that a selection's training moves: kept in each checkpoint, and there again when training goes on."""

    def __init__(self):
        self.numbers: dict[str, float] = {}

    def state(self) -> dict:
        return {"args": {}, "attributes": {"numbers": dict(self.numbers)}}


@dataclass
class Sums:
    """Sums over texts since the last log, and their number."""

    totals: dict[str, torch.Tensor] = field(default_factory=dict)

    def add(self, name: str, values: torch.Tensor, counted: torch.Tensor) -> None:
        """Values (B,) of those texts that are counted (B,)."""
        pair = torch.stack([(values.detach().double() * counted).sum(), counted.double().sum()])
        self.totals[name] = self.totals.get(name, 0) + pair


class SelectionLosses:
    """For a Trainer with `losses` per instance: the label's, and what the selection is trained by.

    Every training log has share_selected, of which texts without tokens are left out; of bernoulli selection_price, the mean
    price of a text, and baseline; of hardkuma, for each constraint, its multiplier and the moving average of what is
    measured less the target (share_multiplier, share_constraint, lasso_multiplier, lasso_constraint). All of it is in the
    state of the trainer, and so in each checkpoint. An evaluation reads what is selected at test time; its loss is that of
    the labels and, of bernoulli, the price of what is read: a checkpoint chosen by it is not the one that reads most.

    Raises AttnfaithError where a multiplier stops being a finite number.
    """

    def __init__(self, *args, selection: SelectionLoss, **kwargs):
        super().__init__(*args, **kwargs)
        selection.check(self.model.config.sampler)
        self.selection, self.selection_sums = selection, Sums()
        self.args.restore_callback_states_from_checkpoint = True  # else a training that goes on would begin anew with them
        state = SelectionState()
        state.numbers = selection.start()
        self.add_callback(state)

    @property
    def numbers(self) -> dict[str, float]:
        """Of the callback that is there now: from a checkpoint another one is made."""
        return next(one for one in self.callback_handler.callbacks if isinstance(one, SelectionState)).numbers

    def losses(self, model, inputs: Mapping):
        labels = inputs.pop("labels")
        inputs.pop("impermissible", None)
        outputs = model(**inputs)
        inside = self.accelerator.unwrap_model(model).attendable(inputs["input_ids"], inputs["attention_mask"])
        losses = classification_loss(outputs.logits, labels, self.class_weights)
        counts = inside.sum(1)
        share = (outputs.gates > 0).sum(1) / counts.clamp(min=1)
        if not model.training:
            if self.selection.prices is not None:
                losses = losses + selection_price(outputs.gates, inside, self.selection.prices)
            return losses, {"logits": outputs.logits, SHARE: share.where(counts > 0, torch.nan)}
        self.selection_sums.add(SHARE, share, counts > 0)
        if self.selection.prices is not None:
            losses = self._priced(losses, outputs, inside)
        for constraint in self.selection.constraints:
            losses = losses + self._constrained(constraint, outputs, inside)
        return losses, {"logits": outputs.logits}

    def _priced(self, losses, outputs, inside):
        numbers, prices = self.numbers, self.selection.prices
        price = selection_price(outputs.gates, inside, prices)
        self.selection_sums.add("selection_price", price, torch.ones_like(price))
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
        keys = f"{constraint.name}_multiplier", f"{constraint.name}_constraint"
        reached = constraint.after(*(self.numbers[key] for key in keys), self._mean(measured))
        self.numbers.update(zip(keys, reached, strict=True))
        return constraint.loss(measured, *reached)

    def _mean(self, values: torch.Tensor) -> float:
        """The mean over the texts of all processes."""
        return float(self.accelerator.reduce(values.detach().double().mean(), "mean"))

    def log(self, logs, start_time=None):
        if "loss" in logs:
            for name, sums in self.selection_sums.totals.items():
                total, count = self.accelerator.reduce(sums, "sum").tolist()
                logs[name] = total / count if count else float("nan")
            self.selection_sums = Sums()
            logs.update({name: value for name, value in self.numbers.items() if name != "batches"})
        super().log(logs, start_time)
