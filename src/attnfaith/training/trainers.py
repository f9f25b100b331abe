"""Trainers of classifiers: on labels, and against a base model, under its attention or away from it (Wiegreffe & Pinter
2019). They are transformers' Trainer with the papers' losses and optimiser, which stops where a training diverges.

Each `XTrainer` takes an `XConfig`: transformers' TrainingArguments with the options of that training.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler

from attnfaith.data.collation import keep_positions, pad_batch
from attnfaith.metrics.classification import classification_scores
from attnfaith.subjects.base import is_encoder_decoder, separates
from attnfaith.support.errors import AttnfaithError
from attnfaith.training.losses import adversarial_loss, balancing_weights, classification_loss
from attnfaith.training.penalties import PREDICTION, ClassifierReader, Penalty, PretrainedReader, check_sizes, drawn_words


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
    """Raise AttnfaithError for a metric that cannot select a checkpoint: unknown, or undefined for these classes and labels
    of validation, which would fail after an epoch. `objective` is for adversaries.
    """
    if metric not in SELECTION_METRICS and not (adversarial and metric == "objective"):
        raise AttnfaithError(f"training.metric_for_best_model={metric!r}: choose one of {', '.join(SELECTION_METRICS)}")
    if labels is not None and metric == "roc_auc" and (num_labels, sorted(set(labels))) != (2, [0, 1]):
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

    Raises DivergedError where the loss of a step is NaN or infinite, before the step is taken, and where an
    evaluation finds such weights or losses, before the checkpoint is saved.
    """

    config_class: type[BaseConfig]

    def __init__(self, model, args, *, callbacks=(), **kwargs):
        stopping = [EarlyStoppingCallback(args.early_stopping_patience)] if args.early_stopping_patience else []
        super().__init__(model, args, callbacks=[*stopping, *callbacks], **kwargs)

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        if not bool(self.accelerator.gather(loss.reshape(1)).isfinite().all()):  # in all processes, or in none
            raise self._diverged(f"the loss is {loss.item():g}", self.state.global_step + 1, int(self.state.epoch or 0) + 1)
        return loss

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
        return self.model


@dataclass
class AttentionConfig(BaseConfig):
    """Arguments of `AttentionTrainer`, beside those of `BaseConfig`.

    balance_classes: weigh instances so that all classes have the same total weight. loss_reduction: "sum" over the effective
    batch, as in Jain & Wallace's code, or "mean". amsgrad: Adam with AMSGrad. weight_decay: its coupled L2, none on the
    alignment. attention_learning_rate_factor: learning rate of the alignment over that of all else (Meister et al.: 1 or
    10). random_erasure: see `erase_tokens`; evaluation sees whole texts.
    """

    balance_classes: bool = True
    loss_reduction: str = "sum"
    amsgrad: bool = True
    attention_learning_rate_factor: float = 1.0
    random_erasure: float = 0.0


class AttentionTrainer(BaseTrainer):
    """Train an attention classifier on labels, with the papers' Adam, per-instance losses, and penalties.

    penalties: callables of `attnfaith.training.penalties`, for models without a hierarchy; those with weight 0 are left out.
    Data are splits encoded by `attnfaith.data.tokenization.encode`.

    Logs hold the mean of each penalty, unweighted, over the texts where it is defined, and the number of the other texts
    (`diversity_undefined`); evaluations hold the means. The layer that predicts masked words is in the checkpoints alone.

    Raises AttnfaithError for a class without training instances, an undefined metric of selection, and penalties that model,
    data or tokenizer have nothing for; DivergedError as `BaseTrainer`.
    """

    config_class = AttentionConfig
    # compute_loss gives a sum, or a mean over the batch at hand; the Trainer divides by the accumulation steps and
    # processes average, which is right for the mean and undone below for the sum.
    loss_is_scaled_for_ga = False
    weighs_classes = True

    def __init__(self, model, args, *, train_dataset=None, eval_dataset=None, penalties: Sequence[Penalty] = (), **kwargs):
        self.penalties = tuple(penalty for penalty in penalties if penalty.weight)
        self.class_weights = None
        if train_dataset is not None:
            self.check(model, args, train_dataset, eval_dataset)
            if args.balance_classes and self.weighs_classes:
                self.class_weights = balancing_weights(torch.tensor(train_dataset["labels"][:]), model.config.num_labels)
        padding = getattr(kwargs.get("processing_class"), "pad_token_id", 0)
        collator = partial(collate, pad_token_id=padding, hierarchy=getattr(model.config, "hierarchy", "none"))
        scores = partial(evaluation_scores, names=self.score_names)
        data = {"train_dataset": train_dataset, "eval_dataset": eval_dataset}
        super().__init__(model, args, **data, data_collator=collator, compute_metrics=scores, **kwargs)
        self.sums: dict[str, torch.Tensor] = {}  # name -> sum, number defined and number not, since the last log
        self.reader = self.make_reader() if self.penalties else None

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the scores that evaluations average over instances, beside the scores of the labels."""
        return tuple(penalty.name for penalty in self.penalties)

    def check(self, model, args, train, validation) -> None:
        """Raise AttnfaithError for data and arguments that cannot be trained with."""
        metric = (args.metric_for_best_model or "loss").removeprefix("eval_")
        labels = None if validation is None else validation["labels"]
        check_selection(metric, model.config.num_labels, labels, adversarial="objective" in self.score_names)
        reads = separates(model) or "impermissible_mass" in self.score_names
        if reads and "impermissible" not in train.column_names:
            keys = "model.separate_impermissible and penalties.impermissible_mass"
            raise AttnfaithError(
                f"the data mark no impermissible words: name their column or the words, or leave out {keys}"
            )

    def make_reader(self):
        """Return the reader of words for penalties. Raises AttnfaithError where the model lacks what a penalty needs."""
        config, masks = self.model.config, "masked_language_model" in self.score_names
        if config.hierarchy != "none":
            raise AttnfaithError("penalties are for models without a hierarchy: leave them out")
        if "word_tying" in self.score_names:
            check_sizes(config.hidden_size, config.embedding_size)
        named = [getattr(self.processing_class, f"{role}_token_id", None) for role in ("mask", "unk")]
        self.mask_id = next((number for number in (*named, config.unk_token_id) if number is not None), None)
        if masks and self.mask_id is None:
            raise AttnfaithError("penalties.masked_language_model needs a tokenizer with a mask or unknown token")
        return ClassifierReader(self.model, self.args.seed if masks else None)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training and self.args.random_erasure:
            share, seed, step = self.args.random_erasure, self.args.seed, self.state.global_step
            inputs = erase_tokens(self.model, inputs, share, seed=seed, step=step)
        losses, outputs = self.losses(model, inputs)
        if model.training and self.args.loss_reduction == "sum":
            loss = losses.sum() * self.current_gradient_accumulation_steps * self.args.world_size
        else:
            loss = losses.mean()
        return (loss, outputs) if return_outputs else loss

    def losses(self, model, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return losses (B,) of a batch, and its logits (B,C) with, in evaluation, the scores (B,) to be averaged."""
        labels, impermissible = inputs.pop("labels"), inputs.pop("impermissible", None)
        outputs, values = self.outputs_and_penalties(model, inputs, impermissible)
        losses, scores = classification_loss(outputs.logits, labels, self.class_weights), {}
        for penalty in self.penalties:
            value, defined = values[penalty.name]
            losses, scores[penalty.name] = losses + penalty.weight * value, value.where(defined, torch.nan)
            if model.training:
                self.count(penalty.name, value, defined)
        return losses, {"logits": outputs.logits, **scores}

    def outputs_and_penalties(self, model, inputs: Mapping, impermissible: torch.Tensor | None):
        """Return the model's outputs for a batch and {penalty: its values (B,), where they are defined (B,)}."""
        if not self.penalties:
            return model(**inputs), {}
        with self.reader.reading(inputs) as read:
            # within the forward pass, where distributed training looks for the parameters that the loss depends on
            hook = self.model.register_forward_hook(
                lambda module, args, outputs: (outputs, self.penalise(inputs, outputs, read, impermissible))
            )
            try:
                return model(**inputs)
            finally:
                hook.remove()

    def penalise(self, inputs: Mapping, outputs, read, impermissible: torch.Tensor | None) -> dict:
        """Return the values of all penalties for a forward pass."""
        words = self.reader.word_states(inputs, outputs, read)._replace(impermissible=impermissible)
        return {penalty.name: penalty(words, inputs, self) for penalty in self.penalties}

    def count(self, name: str, values: torch.Tensor, defined: torch.Tensor) -> None:
        """Add values (B,), where defined (B,), to the mean in the next log."""
        sums = torch.stack([(values.detach().double() * defined).sum(), defined.double().sum(), (~defined).double().sum()])
        self.sums[name] = self.sums.get(name, 0) + sums

    def create_optimizer(self, model=None):
        if self.optimizer is None:
            alignment, rest = [], []
            for name, parameter in self.model.named_parameters():
                if parameter.requires_grad:
                    aligns = {"alignment", "word_alignment"}.intersection(name.split("."))
                    (alignment if aligns else rest).append(parameter)
            rate = self.args.learning_rate
            groups = [
                {"params": rest, "weight_decay": self.args.weight_decay},
                {"params": alignment, "weight_decay": 0.0, "lr": rate * self.args.attention_learning_rate_factor},
            ]
            self.optimizer = torch.optim.Adam(
                [group for group in groups if group["params"]],
                lr=rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
                amsgrad=self.args.amsgrad,
                fused=True,
            )
        return self.optimizer

    def log(self, logs, start_time=None):
        if self.args.loss_reduction == "sum":  # logged per instance, as the validation loss is
            batch = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
            logs.update({name: logs[name] / batch for name in ("loss", "train_loss") if name in logs})
        if "loss" in logs:
            for name, sums in self.sums.items():
                total, count, undefined = self.accelerator.reduce(sums, "sum").tolist()
                logs[name] = total / count if count else float("nan")
                if undefined:
                    logs[f"{name}_undefined"] = undefined
            self.sums = {}
        super().log(logs, start_time)

    def trained_model(self):
        """Return the trained model without the layer that predicts masked words."""
        if hasattr(self.model, PREDICTION):
            delattr(self.model, PREDICTION)
        return super().trained_model()


class FineTuningTrainer(AttentionTrainer):
    """Train a pretrained classifier on labels, by transformers' own optimiser: AdamW, no decay on biases and norms.

    Of penalties it takes `ImpermissibleMass`, of the row of each head of the last layer that the classifier answers from.
    """

    def make_reader(self):
        if is_encoder_decoder(self.model) or set(self.score_names) != {"impermissible_mass"}:
            raise AttnfaithError("of penalties a pretrained encoder takes impermissible_mass alone: leave the others out")
        return PretrainedReader(self.model, self.processing_class)

    def outputs_and_penalties(self, model, inputs, impermissible):
        if separates(self.model):
            inputs = {**inputs, "impermissible": impermissible}
        if self.reader is None:
            return model(**inputs), {}
        with self.reader.reading(inputs) as read:
            outputs = model(**inputs)
        return outputs, self.penalise(inputs, outputs, read, impermissible)

    def create_optimizer(self, model=None):
        return Trainer.create_optimizer(self, model)


class GuidedTrainer(AttentionTrainer):
    """Train on labels under the attention of a base model, `base_attention` [T] of each instance.

    The model's own alignment is not trained. Raises AttnfaithError in several processes.
    """

    def __init__(self, model, args, **kwargs):
        if args.world_size > 1:
            raise AttnfaithError("a guided model trains in one process: start it without --num_processes")
        super().__init__(model, args, **kwargs)
        self.model.model.alignment.requires_grad_(False)

    def losses(self, model, inputs):
        labels, attention = inputs.pop("labels"), inputs.pop("base_attention")
        inputs.pop("base_probs")
        with self.accelerator.autocast():
            hidden, _, query = self.model.encode(**inputs)
            logits = self.model.decode(hidden, attention, query)
        return classification_loss(logits, labels, self.class_weights), {"logits": logits}


@dataclass
class AdversarialConfig(AttentionConfig):
    """Arguments of `AdversarialTrainer`. weight, divergence: see `adversarial_loss`. frozen: train only the alignment."""

    weight: float = 0.002
    divergence: str = "kl"
    frozen: bool = False


class AdversarialTrainer(AttentionTrainer):
    """Train without labels against a base model, `base_probs` [C] and `base_attention` [T] of each instance.

    Class weights are not used. Evaluations hold, beside the scores of the labels, the mean of the objective.

    Raises AttnfaithError for KL from a base whose attention is 0 on some token.
    """

    config_class = AdversarialConfig
    weighs_classes = False
    score_names = ("objective",)

    def __init__(self, model, args, **kwargs):
        super().__init__(model, args, **kwargs)
        if args.frozen:
            self.model.requires_grad_(False)
            self.model.model.alignment.requires_grad_(True)

    def check(self, model, args, train, validation):
        super().check(model, args, train, validation)
        splits = [split for split in (train, validation) if split is not None]
        for split in splits if args.divergence == "kl" else ():
            sparse = sum(0 in row for row in split["base_attention"])
            if sparse:
                fault = f"the base's attention to a token is exactly 0 in {sparse} of {len(split)} texts"
                raise AttnfaithError(f"{fault}, where KL is infinite: use divergence 'jsd' against a sparse base")

    def losses(self, model, inputs):
        base_probs, base_attention = inputs.pop("base_probs"), inputs.pop("base_attention")
        inputs.pop("labels")
        outputs = model(**inputs)
        how = {"weight": self.args.weight, "divergence": self.args.divergence}
        losses = adversarial_loss(outputs.logits, base_probs, outputs.attention, base_attention, **how)
        return losses, {"logits": outputs.logits, "objective": losses}


def erase_tokens(model, inputs: Mapping, share: float, *, seed: int, step: int) -> dict:
    """Delete random words from each text of a training batch, so that the model learns shortened texts.

    For each text a probability is drawn uniformly from 0..`share`, and each word is deleted with it (`drawn_words`);
    markers, marks between sentences and a second text stay, and what follows moves up. It answers the objection of Hooker et
    al. 2019, that erasure shows a model texts it was not trained on.
    """
    text = {name: inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in inputs}
    marks = {name: inputs[name] for name in ("impermissible",) if name in inputs}
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    words, how = model.items(**text) >= 0, {"seed": seed, "step": step, "purpose": "random_erasure", "varied": True}
    stays = mask.bool() & ~drawn_words(ids, mask, words, share, **how)
    return {**inputs, **keep_positions(text | marks, stays, model.config.pad_token_id or 0)}


def collate(rows: Sequence[Mapping], pad_token_id: int, hierarchy: str = "none") -> dict:
    """Batch rows by `pad_batch`, with base_attention, in the shape of the model's attention, and base_probs (B,C)."""
    batch = pad_batch(rows, pad_token_id)
    if "base_attention" in rows[0]:
        weights, start = [row["base_attention"] for row in rows], int(hierarchy == "none")  # behind a marker, or not
        length = batch["input_ids"].shape[1] if start else max(1, *map(len, weights))
        batch["base_attention"] = torch.zeros(len(rows), length)
        for row, values in zip(batch["base_attention"], weights, strict=True):
            row[start : start + len(values)] = torch.as_tensor(values)
        batch["base_probs"] = torch.tensor([row["base_probs"] for row in rows], dtype=torch.float32)
    return batch
