"""The base of all trainers of this package, transformers' Trainer, which stops where a training diverges; and the scores of
an evaluation, and which of them can select a checkpoint.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler

from attnfaith.metrics.classification import classification_scores
from attnfaith.support.errors import AttnfaithError


SELECTION_METRICS = ("roc_auc", "accuracy", "loss")
LOWER_IS_BETTER = ("loss", "objective")


def evaluation_scores(prediction, names: Sequence[str] = ()) -> dict[str, float]:
    """Return accuracy and ROC-AUC of a Trainer's evaluation.

    names: of the predictions after the logits, which are averaged over instances without NaN.
    """
    logits, *rest = prediction.predictions if isinstance(prediction.predictions, tuple) else (prediction.predictions,)
    probs = torch.from_numpy(np.asarray(logits)).double().softmax(-1).numpy()
    scores = classification_scores(probs, prediction.label_ids)
    scores = {name: scores[name] for name in ("accuracy", "roc_auc")}
    for name, values in zip(names, rest, strict=True):
        defined = values[~np.isnan(values)].astype(np.float64)
        scores[name] = float(defined.mean()) if len(defined) else float("nan")
    return scores


def check_selection(
    metric: str, num_labels: int | None = None, labels: Sequence[int] | None = None, *, adversarial: bool = False
) -> None:
    """Raise AttnfaithError for a metric that cannot select a checkpoint: unknown, or undefined for these classes and labels,
    which would fail after an epoch. `objective` is for adversaries.
    """
    if metric not in SELECTION_METRICS and not (adversarial and metric == "objective"):
        raise AttnfaithError(f"training.metric_for_best_model={metric!r}: choose one of {', '.join(SELECTION_METRICS)}")
    if num_labels is not None and metric == "roc_auc" and (num_labels, sorted(set(labels))) != (2, [0, 1]):
        raise AttnfaithError(
            "roc_auc needs two classes in validation: set training.metric_for_best_model to accuracy or loss"
        )


class DivergedError(AttnfaithError):
    """Raised where the loss or the weights of a training are no longer finite."""


@dataclass
class BaseConfig(TrainingArguments):
    """transformers' TrainingArguments. early_stopping_patience: evaluations without improvement before training stops."""

    early_stopping_patience: int | None = None
    remove_unused_columns: bool = False  # losses read columns that no model takes


class BaseTrainer(Trainer):
    """The base of all trainers of this package.

    Raises DivergedError where the loss of a step is NaN or infinite, before the step is taken (`check_loss`), and where an
    evaluation finds such weights or losses, before the checkpoint is saved.
    """

    config_class: type[BaseConfig]

    def __init__(self, model, args, *, callbacks=(), **kwargs):
        stopping = [EarlyStoppingCallback(args.early_stopping_patience)] if args.early_stopping_patience else []
        super().__init__(model, args, callbacks=[*stopping, *callbacks], **kwargs)

    def check_loss(self, loss: torch.Tensor) -> None:
        """Raise DivergedError where the loss of a step is not finite in any process."""
        if not bool(self.accelerator.gather(loss.detach().reshape(1)).isfinite().all()):
            raise self._diverged(f"the loss is {loss.item():g}", self.state.global_step + 1, int(self.state.epoch or 0) + 1)

    def evaluate(self, *args, **kwargs):
        reached = self.state.global_step, math.ceil(self.state.epoch or 0)
        for name, values in self.model.named_parameters():
            if not bool(values.isfinite().all()):
                raise self._diverged(f"the weight '{name}' is no longer finite", *reached)
        scores = super().evaluate(*args, **kwargs)
        for name, score in scores.items():
            if name.endswith("_loss") and not math.isfinite(score):
                raise self._diverged(f"{name} is {score:g}", *reached)
        return scores

    def _diverged(self, fault: str, step: int, epoch: int) -> DivergedError:
        return DivergedError(
            f"the training diverged in epoch {epoch}, step {step} of {self.state.max_steps}: {fault}; try a lower "
            f"training.learning_rate (now {self.args.learning_rate:g}), or clip gradients with training.max_grad_norm"
        )

    def _get_train_sampler(self, train_dataset=None):
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            sampler.lengths = sampler.lengths[:]  # a list: a column reads each number as slowly as a row
            if self.args.world_size > 1:  # dropout moves the global stream by a different amount in each process
                sampler.generator = torch.Generator().manual_seed(self.args.seed)
        return sampler

    def trained_model(self):
        """Return the trained model."""
        return self.accelerator.unwrap_model(self.model)
