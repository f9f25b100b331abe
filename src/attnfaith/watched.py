"""A Trainer that stops where a training diverges, and whose processes agree on an order of texts."""

import functools
import math

import torch
from transformers import PrinterCallback, ProgressCallback, Trainer
from transformers.trainer_pt_utils import LengthGroupedSampler

from attnfaith.errors import AttnfaithError


class DivergedError(AttnfaithError):
    """A training whose loss or weights are no longer finite. The message says when, and what to try."""


class SharedOrder(LengthGroupedSampler):
    """Texts of similar length together, in an order drawn from (seed, epoch), which all processes agree on.

    The Trainer's own sampler draws from the global stream. Dropout moves that on by another amount in each process, and
    from the second epoch on the processes would train on some texts twice and on others never.
    """

    def __init__(self, sampler: LengthGroupedSampler, seed: int):
        super().__init__(sampler.batch_size, lengths=sampler.lengths, generator=torch.Generator())
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(1_000_003 * self.seed + epoch)


class WatchedTrainer(Trainer):
    """What all trainers of this package share.

    Raises DivergedError as soon as the loss of a step is NaN or infinite (`check_loss`), before the step is taken, and where
    an evaluation finds such weights or loss, before the checkpoint is saved.
    """

    attention_learning_rate_factor = 1.0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, ProgressCallback | PrinterCallback):
                callback.on_log = functools.partial(self._print_log, callback.on_log)

    def _print_log(self, print_log, *args, logs=None, **kwargs):
        """Print a log with classes by name; files keep their numbers."""
        names = getattr(self.model.config, "id2label", None) or {}
        keys = {f"eval_f1_class_{number}": f"eval_f1 of {name}" for number, name in names.items()}
        return print_log(*args, logs=logs and {keys.get(key, key): value for key, value in logs.items()}, **kwargs)

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
        for name in (name for name in scores if name.endswith("_loss") and not math.isfinite(scores[name])):
            raise self._diverged(f"{name} is {scores[name]:g}", *reached)
        return scores

    def _diverged(self, what: str, step: int, epoch: int) -> DivergedError:
        faster = self.attention_learning_rate_factor
        rates = f"training.learning_rate (now {self.args.learning_rate:g}"
        rates += ")" if faster == 1 else f", and {faster:g} times that for the alignment)"
        return DivergedError(
            f"the training diverged in epoch {epoch}, step {step} of {self.state.max_steps}: {what}; try a lower {rates}, "
            f"or clip gradients with training.max_grad_norm (now {self.args.max_grad_norm:g}; 0 does not)"
        )

    def _get_train_sampler(self, train_dataset=None):
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            sampler.lengths = sampler.lengths[:]  # a column gives each number as slowly as a row of the data set
            if self.args.world_size > 1:
                return SharedOrder(sampler, self.args.seed)
        return sampler
