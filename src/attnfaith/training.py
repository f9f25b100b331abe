"""Training with transformers' Trainer and the papers' loss and optimiser."""

import os
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

from attnfaith.data.collation import keep_positions, pad_attention, pad_batch
from attnfaith.draws import generator
from attnfaith.errors import AttnfaithError
from attnfaith.metrics.classification import classification_scores
from attnfaith.objectives import (
    SPARSE_BASE,
    Penalties,
    adversarial_loss,
    balancing_weights,
    check_adversary,
    classification_loss,
    jensen_shannon,
    kullback_leibler,
    reduce,
    total_variation,
)
from attnfaith.penalised import PenalisedTrainer, mask_id
from attnfaith.pretrained_word_states import TrainedClassifier
from attnfaith.selecting import SHARE, SelectionLosses
from attnfaith.subjects.base import separates
from attnfaith.watched import WatchedTrainer


SELECTION_METRICS = ("roc_auc", "accuracy", "loss")
MOST_CLASSES = 20  # of which an evaluation gives the F1 of each
ADVERSARY_SCORES = ("objective", "tvd", "jsd", "kl")
LOWER_IS_BETTER = ("loss", "objective")


class AttentionTrainer(WatchedTrainer, PenalisedTrainer):
    """A Trainer with per-instance losses, penalties among them, and the papers' Adam.

    class_weights (C,) weighs instances by label. loss_reduction: "sum" over the effective batch, as Jain & Wallace's
    code has it, or "mean". amsgrad and weight_decay: Adam with AMSGrad and coupled L2, none on the alignment. The
    coupled L2 term is compared with the gradient of the *summed* loss, so weight_decay means something else under "mean".
    attention_learning_rate_factor: learning rate of the alignment's parameters over that of the others (Meister et al.: 1
    or 10). random_erasure: see `erase_tokens`; evaluation sees whole texts. Raises DivergedError as `WatchedTrainer` does.
    """

    # compute_loss gives a sum, or a mean over the batch at hand; the Trainer divides by the accumulation steps and
    # processes average, which is right for the mean and undone below for the sum.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        *args,
        class_weights: torch.Tensor | None = None,
        loss_reduction: str = "sum",
        amsgrad: bool = True,
        attention_learning_rate_factor: float = 1.0,
        random_erasure: float = 0.0,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.class_weights = class_weights
        self.loss_reduction = loss_reduction
        self.amsgrad = amsgrad
        self.attention_learning_rate_factor = attention_learning_rate_factor
        self.random_erasure = random_erasure

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training and self.random_erasure:
            stages = self.accelerator.unwrap_model(model)
            inputs = erase_tokens(stages, inputs, self.random_erasure, seed=self.args.seed, step=self.state.global_step)
        losses, outputs = self.losses(model, inputs)
        if model.training and self.loss_reduction == "sum":
            loss = reduce(losses, "sum") * self.current_gradient_accumulation_steps * self.args.world_size
        else:
            loss = reduce(losses, "mean")
        if model.training:
            self.check_loss(loss)
        return (loss, outputs) if return_outputs else loss

    def losses(self, model, inputs):
        """Per-instance losses (B,) and the model's outputs for a batch."""
        labels, impermissible = inputs.pop("labels"), inputs.pop("impermissible", None)
        outputs, values = self.predicted(model, inputs, impermissible)
        losses = classification_loss(outputs.logits, labels, self.class_weights)
        losses, scores = self.penalised(losses, values, model.training)
        return losses, {"logits": outputs.logits, **scores}

    def create_optimizer(self, model=None):
        if self.optimizer is None:
            attention, others = [], []
            for name, parameter in self.model.named_parameters():
                if parameter.requires_grad:
                    aligns = {"alignment", "word_alignment"}.intersection(name.split("."))
                    (attention if aligns else others).append(parameter)
            rate = self.args.learning_rate
            groups = [
                {"params": others, "weight_decay": self.args.weight_decay},
                {"params": attention, "weight_decay": 0.0, "lr": rate * self.attention_learning_rate_factor},
            ]
            self.optimizer = torch.optim.Adam(
                [group for group in groups if group["params"]],
                lr=rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
                amsgrad=self.amsgrad,
                fused=True,
            )
        return self.optimizer

    def log(self, logs, start_time=None):
        if self.loss_reduction == "sum":  # shown per instance, as the validation loss is
            batch = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
            logs.update({name: logs[name] / batch for name in ("loss", "train_loss") if name in logs})
        super().log(logs, start_time)


def erase_tokens(model, inputs: Mapping, share: float, *, seed: int, step: int) -> dict:
    """A training batch with words of each text deleted at random, so that shortened texts are nothing new to the model.

    Of each text a share of the words is drawn uniformly from 0..`share`, and each word goes with that probability; markers,
    marks between sentences and a second text stay, and what follows moves up. share: 0..1; at 1 texts of every length down
    to none are seen. What goes depends on seed, step and the text alone: neither on the batch nor on the number of
    processes, so that a training goes on where it was stopped.

    Source: the objection that erasure shows a model texts it was not trained on, Hooker et al. 2019; training on such texts
    answers it without training anew for each measure.
    """
    given = {name: inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in inputs}
    marked = {name: inputs[name] for name in ("impermissible",) if name in inputs}
    words = (model.items(**given) >= 0).cpu().numpy()
    ids, stays = inputs["input_ids"].cpu().numpy(), inputs["attention_mask"].bool().cpu().numpy()
    for row, inside in enumerate(words):
        text = ids[row, stays[row]].astype(np.int64).tobytes().hex()
        random = generator(seed, f"{step}\0{text}", "random_erasure")
        stays[row, inside] = random.random(int(inside.sum())) >= share * random.random()
    kept = keep_positions(
        given | marked, torch.from_numpy(stays).to(inputs["input_ids"].device), model.config.pad_token_id or 0
    )
    return {**inputs, **kept}


class FineTuningTrainer(AttentionTrainer):
    """Trains a pretrained classifier on labels, by transformers' own optimiser: AdamW, no decay on biases and norms.

    Penalties are of its last layer: the states that it gives, and the row of each head that the classifier answers from.
    Word vectors are what the input embeddings make of words, and by the products with all of them states tell a masked word.
    """

    def prepare(self):
        self.classifier = None
        if self.penalties.taken:
            self.classifier = TrainedClassifier(self.model, self.processing_class, self.penalties)
        if self.penalties.masked_language_model:
            self.mask_id = mask_id(self.processing_class, self.model.config)

    def predicted(self, model, inputs, impermissible):
        if separates(self.model):
            inputs = {**inputs, "impermissible": impermissible}
        special = inputs.pop("special_tokens_mask", None)
        if self.classifier is None:
            return model(**inputs), {}
        with self.classifier.reading(inputs) as read:
            outputs = model(**inputs)
        read.special = special
        return outputs, self.values(self.accelerator.unwrap_model(model), inputs, outputs, read, impermissible)

    def word_states(self, stages, inputs, outputs, seen):
        return self.classifier.word_states(inputs, seen)

    def states(self, inputs, stages):
        with self.classifier.reading(inputs) as read:
            stages(**inputs)
        return read.states

    def word_logits(self, stages, states):
        return self.classifier.word_logits(states)

    def create_optimizer(self, model=None):
        return Trainer.create_optimizer(self, model)


class SelectionTrainer(SelectionLosses, AttentionTrainer):
    """Trains a model that reads a selection on labels (`SelectionLosses`)."""


class FineTuningSelectionTrainer(SelectionTrainer):
    """The same over a pretrained encoder, by transformers' own optimiser, as `FineTuningTrainer`."""

    def create_optimizer(self, model=None):
        return Trainer.create_optimizer(self, model)


class GuidedTrainer(AttentionTrainer):
    """Trains on labels under attention that is given: each instance brings weights `base_attention` [T].

    The model's own alignment takes no part and stays as it was drawn.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.model.model.alignment.requires_grad_(False)

    def losses(self, model, inputs):
        labels, attention = inputs.pop("labels"), inputs.pop("base_attention")
        inputs.pop("base_probs")
        stages = self.accelerator.unwrap_model(model)
        with self.accelerator.autocast():
            hidden, _, query = stages.encode(**inputs)
            logits = stages.decode(hidden, attention, query)
        return classification_loss(logits, labels, self.class_weights), {"logits": logits}


class AdversarialTrainer(AttentionTrainer):
    """Trains without labels against a base: each instance brings `base_probs` [C] and `base_attention` [T].

    weight, divergence: see `adversarial_loss`. Class weights have no part in it. frozen: only the alignment is trained.
    Evaluation has, beside the scores of the labels, the means over instances of the objective, of the distance `tvd` to
    the base's predictions, and of the divergences `jsd` and `kl` from its attention (infinite where that is sparse; texts
    without tokens left out).
    """

    def __init__(self, *args, weight: float, divergence: str, frozen: bool = False, **kwargs):
        check_adversary(weight, divergence)
        super().__init__(*args, **kwargs)
        self.weight, self.divergence = weight, divergence
        if frozen:
            self.model.requires_grad_(False)
            self.model.model.alignment.requires_grad_(True)

    def losses(self, model, inputs):
        base_probs, base_attention = inputs.pop("base_probs"), inputs.pop("base_attention")
        inputs.pop("labels")
        outputs = model(**inputs)
        inputs.pop("answer_mask", None)
        mask = self.accelerator.unwrap_model(model).model.attendable(**inputs)
        losses = adversarial_loss(
            outputs.logits,
            base_probs,
            outputs.attention,
            base_attention,
            mask,
            weight=self.weight,
            divergence=self.divergence,
        )
        if model.training:
            return losses, outputs
        attended = mask.any(-1)
        scores = {
            "objective": losses,
            "tvd": total_variation(outputs.logits.float().softmax(-1), base_probs),
            "jsd": jensen_shannon(outputs.attention, base_attention).where(attended, torch.nan),
            "kl": kullback_leibler(outputs.attention, base_attention).where(attended, torch.nan),
        }
        return losses, {"logits": outputs.logits, **scores}


def scores_with_means(prediction, names: Sequence[str]) -> dict[str, float]:
    """The scores of `selection_scores`, and the means over instances of what comes after the logits, NaN left out."""
    means = {}
    for name, values in zip(names, prediction.predictions[1:], strict=True):
        defined = values[~np.isnan(values)].astype(np.float64)
        means[name] = float(defined.mean()) if len(defined) else float("nan")
    return {**selection_scores(prediction), **means}


def selection_scores(prediction) -> dict[str, float]:
    """Accuracy, F1 per class and ROC-AUC of a Trainer's evaluation; the keys that model selection may name.

    Of more than MOST_CLASSES no F1 per class: the log of an epoch would be pages long.
    """
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    probs = torch.from_numpy(np.asarray(logits)).double().softmax(-1).numpy()
    scores = classification_scores(probs, prediction.label_ids)
    per_class = probs.shape[1] <= MOST_CLASSES
    return {
        name: value
        for name, value in scores.items()
        if name in ("accuracy", "roc_auc") or (per_class and name.startswith("f1_"))
    }


def check_selection(
    metric: str, num_labels: int | None = None, labels: Sequence[int] | None = None, *, adversarial: bool = False
) -> None:
    """Raise AttnfaithError for a metric that cannot select a checkpoint: unknown, or undefined for these classes and labels.

    The Trainer would find out after an epoch, or take an undefined score for the best one. `objective` is an adversary's.
    """
    numbered = metric.removeprefix("f1_class_") if metric.startswith("f1_class_") else None
    if metric == "objective" and adversarial:
        return
    if metric not in SELECTION_METRICS and not (numbered and numbered.isdecimal()):
        raise AttnfaithError(
            f"training.metric_for_best_model={metric!r} is not known; choose one of {', '.join(SELECTION_METRICS)}, "
            "or f1_class_0, f1_class_1 and so on"
        )
    if num_labels is None:
        return
    present = sorted(set(labels))
    if numbered and num_labels > MOST_CLASSES:
        raise AttnfaithError(
            f"{metric} selects among {MOST_CLASSES} classes at most; the data has {num_labels}: set "
            "training.metric_for_best_model to accuracy or loss"
        )
    if (metric == "roc_auc" and (num_labels, present) != (2, [0, 1])) or (numbered and int(numbered) not in present):
        raise AttnfaithError(
            f"{metric} is not defined for {num_labels} classes where validation has labels {present}: set "
            "training.metric_for_best_model to accuracy or loss"
        )


TRAINERS = {
    "classification": AttentionTrainer,
    "fine_tuning": FineTuningTrainer,
    "selection": SelectionTrainer,
    "fine_tuning_selection": FineTuningSelectionTrainer,
    "guided": GuidedTrainer,
    "adversarial": AdversarialTrainer,
}


def collate(rows: Sequence[Mapping], pad_token_id: int, hierarchy: str = "none", num_labels: int | None = None) -> dict:
    """`pad_batch`, with base_attention, in the shape of such a model's, and base_probs (B,C) where the rows have them."""
    batch = pad_batch(rows, pad_token_id, num_labels)
    if "base_attention" in rows[0]:
        weights = [row["base_attention"] for row in rows]
        if hierarchy == "none":
            batch["base_attention"] = pad_attention(weights, batch["input_ids"].shape[1])
        else:
            batch["base_attention"] = pad_attention(weights, max(1, *map(len, weights)), start=0)
        batch["base_probs"] = torch.tensor([row["base_probs"] for row in rows], dtype=torch.float32)
    return batch


def check_penalties(penalties: Penalties, objective: str, columns: Sequence[str]) -> None:
    """Raise AttnfaithError for penalties where labels are not learned under the model's own attention, and for one on
    impermissible words of data that mark none.
    """
    if penalties.taken and objective not in ("classification", "fine_tuning"):
        raise AttnfaithError(
            f"penalties ({', '.join(penalties.taken)}) with objective {objective!r}: they are added where a model is "
            "trained for the labels on its own attention"
        )
    if penalties.impermissible_mass and "impermissible" not in columns:
        raise AttnfaithError(
            f"penalties.impermissible_mass={penalties.impermissible_mass:g}, and the data mark no impermissible words: take "
            "a data set that does, name the column or the words of your own data, or leave out the penalty"
        )


def make_trainer(
    model,
    tokenizer,
    train,
    validation,
    arguments: TrainingArguments,
    *,
    objective: str = "classification",
    patience: int | None = None,
    **options,
):
    """A Trainer for encoded splits (`attnfaith.data.tokenization.encode`).

    objective: one of TRAINERS; the two that are not classification need the columns base_attention and base_probs.
    patience: stop after so many evaluations without improvement; None trains to the end. options: see the trainer's class,
    with balance_classes=True for weights that balance the training labels.

    Raises AttnfaithError where a class has no training instance, the metric that selects the checkpoint is not defined, KL
    is asked for from a base whose attention is 0 on some token, a guided model would train in several processes, or tokens
    would be erased from texts whose attention is given or compared.
    """
    metric, adversarial = arguments.metric_for_best_model.removeprefix("eval_"), objective == "adversarial"
    check_selection(metric, model.config.num_labels, validation["labels"], adversarial=adversarial)
    if objective != "classification" and options.get("random_erasure"):
        raise AttnfaithError(
            f"random_erasure={options['random_erasure']:g} with objective {objective!r}, whose base attends to whole texts: "
            "erase tokens where the objective is classification"
        )
    if objective == "guided" and arguments.world_size > 1:
        raise AttnfaithError(
            f"a guided model trains in one process, not in {arguments.world_size}: start it without --processes or "
            "--num_processes"
        )
    if adversarial and options["divergence"] == "kl":
        for split in (train, validation):
            if sparse := sum(0 in row for row in split["base_attention"]):
                raise AttnfaithError(f"{SPARSE_BASE} ({sparse} of {len(split)} texts)")
    penalties = options.get("penalties") or Penalties()
    check_penalties(penalties, objective, train.column_names)
    if separates(model) and "impermissible" not in train.column_names:
        raise AttnfaithError(
            "model.separate_impermissible=true, and the data mark no impermissible words: take a data set that does, name "
            "the column or the words of your own data, or leave it out"
        )
    names = ADVERSARY_SCORES if adversarial else (SHARE,) if "selection" in objective else tuple(penalties.taken)
    weights, hierarchy = None, getattr(model.config, "hierarchy", "none")
    if options.pop("balance_classes", True) and not adversarial:
        weights = balancing_weights(torch.tensor(train["labels"][:]), model.config.num_labels)
    return TRAINERS[objective](
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        # not a lambda: where processes are not forked, workers that load data get it pickled
        data_collator=partial(
            collate, pad_token_id=tokenizer.pad_token_id, hierarchy=hierarchy, num_labels=model.config.num_labels
        ),
        compute_metrics=partial(scores_with_means, names=names) if names else selection_scores,
        callbacks=[EarlyStoppingCallback(patience)] if patience else None,
        class_weights=weights,
        **options,
    )


def check_processes(arguments: TrainingArguments) -> None:
    """Raise AttnfaithError where the launcher started more processes than train together."""
    launched = int(os.environ.get("WORLD_SIZE", 1))
    if launched != arguments.world_size:
        raise AttnfaithError(
            f"the launcher started {launched} processes and this one trains with {arguments.world_size}: they would run as "
            "independent jobs and overwrite each other. Start them with "
            f"`attnfaith train --processes {launched} ...`"
        )
