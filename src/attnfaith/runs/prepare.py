"""From a recipe to what is trained and measured: arguments, texts, tokenizer, model."""

import dataclasses
import os
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedModel, TrainingArguments, get_scheduler

from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.impermissible import counts as counts_of
from attnfaith.data.loading import LoadedDataset, Source, read_source
from attnfaith.data.own_data import read_own
from attnfaith.data.registry import SPLITS, entry_of
from attnfaith.data.sources import ROOT_VARIABLE
from attnfaith.data.subwords import adopt_tokenizer, encode_for_classifier, tokenizer_digest
from attnfaith.data.tokenization import build_tokenizer, encode
from attnfaith.data.vectors import file_digest, load_vectors
from attnfaith.errors import DatasetError, cut, excerpt
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.models.modeling_rationale_classifier import RationaleClassifierForSequenceClassification
from attnfaith.recipes import Recipe, RecipeError, model_config
from attnfaith.reporting.own_data import summary
from attnfaith.runs import pretrained
from attnfaith.runs.checkpoint import load_tokenizer
from attnfaith.runs.folder import CHECKPOINTS, MODEL, STATE, RunError, read_state
from attnfaith.subjects.base import BOUNDLESS
from attnfaith.training import (
    AdversarialTrainer,
    AttentionTrainer,
    FineTuningTrainer,
    GuidedTrainer,
    RationaleTrainer,
    TranslationTrainer,
)
from attnfaith.training.trainers import LOWER_IS_BETTER, BaseTrainer, check_selection


def trainer_class(recipe: Recipe) -> type[BaseTrainer]:
    """The trainer of a recipe; its `config_class` has the arguments."""
    if recipe.model.type is not None:
        return TranslationTrainer
    if recipe.model.selector is not None:
        return RationaleTrainer
    if recipe.model.pretrained is not None:
        return FineTuningTrainer
    if recipe.objective.kind == "guided":
        return GuidedTrainer
    return AdversarialTrainer if recipe.objective.kind == "adversarial" else AttentionTrainer


def training_arguments(recipe: Recipe) -> TrainingArguments:
    """The arguments of a recipe's trainer. Raises RecipeError for values that transformers refuses."""
    section, config_class = recipe.training, trainer_class(recipe).config_class
    taken = {key.name for key in dataclasses.fields(config_class)}
    ours = {}
    for part in (section, recipe.objective, recipe.selection, recipe.penalties):
        ours |= {key.name: getattr(part, key.name) for key in dataclasses.fields(part) if key.name in taken}
    adversarial, pairs = recipe.objective.kind == "adversarial", recipe.model.type is not None
    metric = ours.pop("metric_for_best_model") or ("objective" if adversarial else "loss" if pairs else "accuracy")
    if not pairs:
        check_selection(metric, adversarial=adversarial)
    ours = {name: value for name, value in ours.items() if value is not None}
    # Without a GPU this is what makes two launched processes one training instead of two that write one folder.
    ours["use_cpu"] = section.use_cpu or not torch.cuda.is_available()
    fixed = {
        "output_dir": str(Path(recipe.output_dir).absolute() / CHECKPOINTS),
        "seed": recipe.seed,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "logging_strategy": "epoch",
        "save_total_limit": 1,
        "load_best_model_at_end": True,
        "metric_for_best_model": f"eval_{metric}",
        "greater_is_better": metric not in LOWER_IS_BETTER,
        "lr_scheduler_type": "constant",
        "restore_callback_states_from_checkpoint": True,  # how long early stopping has waited
        "remove_unused_columns": False,
        "length_column_name": "length",
        # some pretrained ones have layers that no classifier uses, and a selector's may have no gradient in a batch
        "ddp_find_unused_parameters": recipe.model.pretrained is not None or recipe.model.selector is not None,
        "report_to": "none",
        "disable_tqdm": not sys.stderr.isatty(),  # a bar would fill a log file
        "dataloader_pin_memory": torch.cuda.is_available(),
    }
    try:
        arguments = config_class(**{**fixed, **ours, **section.arguments})
        _check_schedule(arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecipeError(f"training: transformers refuses these arguments: {excerpt(error, 300)}") from error
    return arguments


def _check_schedule(arguments: TrainingArguments) -> None:
    """Raise what the Trainer would when it makes the schedule of the learning rate: after all texts are read."""
    weight = torch.nn.Parameter(torch.zeros(1))
    get_scheduler(
        arguments.lr_scheduler_type,
        torch.optim.SGD([weight], lr=arguments.learning_rate),
        num_warmup_steps=arguments.get_warmup_steps(100),
        num_training_steps=100,
        scheduler_specific_kwargs=arguments.lr_scheduler_kwargs or {},
    )


def check_splits(recipe: Recipe) -> None:
    """Raise RecipeError where the recipe measures a split that there is not."""
    section = recipe.measure
    for name, splits in (("split", [section.split]), ("outputs", section.outputs)):
        if unknown := [split for split in splits if split not in SPLITS]:
            raise RecipeError(f"measure.{name}={excerpt(unknown[0])} does not exist; choose one of {', '.join(SPLITS)}")


# ------------------------------------------------------------------------------------------------ texts


class Texts:
    """The texts of a recipe: read once, each split encoded once, by the tokenizer in `folder` where a model lies there.

    Nothing is read before it is asked for. Of several processes each holds the texts, and all ask for the same things in the
    same order: one of a machine reads first, and the others find what it fetched.
    """

    def __init__(self, recipe: Recipe, folder: Path, state: PartialState):
        self.recipe, self.folder, self.state = recipe, folder, state
        self._encoded: dict[str, Dataset] = {}

    @cached_property
    def _read(self) -> tuple[LoadedDataset, Dataset]:
        """The data set, and the texts of it that are measured."""
        section, limits = self.recipe.measure, self.recipe.data.limits
        with self.state.local_main_process_first():
            recorded = read_state(self.folder) if (self.folder / STATE).is_file() else {}
            source = _read(self.recipe, recorded)
            loaded = source.limited(limits)
            if loaded.entry.own:
                _check_unchanged(self.folder, loaded, recorded)
            if section.limit is None:
                return loaded, loaded.splits[section.split]
            return loaded, source.limited({**limits, section.split: section.limit}).splits[section.split]

    @property
    def loaded(self) -> LoadedDataset:
        """The data set with the recipe's limits."""
        return self._read[0]

    @property
    def drawn(self) -> Dataset:
        """The texts that a record of this recipe holds: `measure.limit` of `measure.split`."""
        return self._read[1]

    @cached_property
    def tokenizer(self):
        if (self.folder / MODEL).is_dir():
            return load_tokenizer(self.folder)
        return make_tokenizer(self.recipe, self.loaded)

    def rows(self, split: str) -> Dataset:
        """A split, encoded."""
        if split not in self._encoded:
            self._encoded[split] = self._encode(self.loaded.splits[split])
        return self._encoded[split]

    def _encode(self, split: Dataset) -> Dataset:
        if self.recipe.model.pretrained is not None:
            tokenizer = self.tokenizer
            limit = tokenizer.model_max_length if tokenizer.model_max_length < BOUNDLESS else None
            return encode_for_classifier(split, tokenizer, max_length=limit)
        return encode(split, self.tokenizer, preprocessing=self.loaded.entry.preprocessing)

    @cached_property
    def measured(self) -> Dataset:
        """`drawn`, encoded."""
        section = self.recipe.measure
        return self.rows(section.split) if section.limit is None else self._encode(self.drawn)


def _was(recipe: Recipe, recorded: Mapping) -> str:
    """What a run's own data were, for a message; "" where it says nothing of them."""
    files = ((recorded.get("dataset") or {}).get("about") or {}).get("files")
    if recipe.data.path is None or not files:
        return ""
    listed = cut(", ".join(f"{name} (SHA-256 {digest[:16]})" for name, digest in files.items()), 200)
    return f". The run was trained on {listed}, at data.path={excerpt(recipe.data.path)}: put that there"


def _check_unchanged(folder: Path, loaded: LoadedDataset, recorded: Mapping) -> None:
    """Raise RunError where own data are no longer those that the model in a folder was trained on."""
    texts = recorded.get("texts") or {}
    if other := [split for split in texts if texts[split] != fingerprint(loaded.splits[split])]:
        read = (recorded.get("dataset") or {}).get("revision")
        raise RunError(
            f"{loaded.entry.name!r} has changed since the run in {folder} was trained: other texts or labels in "
            f"{', '.join(other)} ({read} then, {loaded.revision} now). Put the old data back, or train anew with "
            "--overwrite_output_dir"
        )


def load_data(recipe: Recipe, limits: Mapping[str, int] | None = None, recorded: Mapping | None = None) -> LoadedDataset:
    """The data set of a recipe, with its own limits or those given. recorded: what run.json says of a run of it, if there is
    one, for the message where own data are not there.
    """
    return _read(recipe, recorded or {}).limited(recipe.data.limits if limits is None else limits)


def _read(recipe: Recipe, recorded: Mapping) -> Source:
    data = recipe.data
    if entry_of(data).own:
        try:
            return read_own(data)
        except DatasetError as error:
            raise DatasetError(f"{error}{_was(recipe, recorded)}") from error
    try:
        return read_source(data.name, seed=data.seed, impermissible_removed=data.impermissible_removed, **data.arguments)
    except TypeError as error:
        if not data.arguments:
            raise
        raise RecipeError(f"data.arguments={excerpt(data.arguments)}: a value of a wrong type: {error}") from error


def remarks(loaded: LoadedDataset) -> list[str]:
    """What was read of own data, and what of any cannot be used or says nothing, with counts: a user may find a mistake in
    the files by it.
    """
    source = loaded.dropped["source"]
    counts = {
        "questions left out, as their answer is not in their text": source.get("answer_not_candidate", 0),
        "questions left out, as their answer is not one of training": source.get("answer_not_in_training", 0),
        "candidates left out, as no training text has them": loaded.unknown_candidates,
        "texts without words": sum(loaded.empty.values()),
        "second texts without words": sum(loaded.empty_pair.values()),
    }
    if loaded.entry.impermissible:
        counts |= counts_of(marks for split in loaded.splits.values() for marks in split["impermissible"])
    own = summary(loaded.entry.name, loaded.about, loaded.dropped) if loaded.about else []
    return own + [f"{loaded.entry.name}: {what}: {count:,}" for what, count in counts.items() if count]


def make_tokenizer(recipe: Recipe, loaded: LoadedDataset):
    """The tokenizer that the recipe names, that of its pretrained model, or one of the words of the training texts."""
    entry, data = loaded.entry, recipe.data
    if recipe.model.pretrained is not None:
        return pretrained.tokenizer_of(recipe)
    if data.tokenizer is not None:
        how = {"revision": data.tokenizer_revision, "max_length": data.max_length, "pair": entry.pair}
        return adopt_tokenizer(data.tokenizer, **how)
    return build_tokenizer(
        loaded.vocabulary_texts,
        preprocessing=entry.preprocessing,
        min_df=entry.min_df if data.min_df is None else data.min_df,
        max_length=data.max_length,
        pair=entry.pair,
        extra_vocabulary=loaded.extra_vocabulary,
        hierarchy=recipe.model.hierarchy,
        max_sentence_length=data.max_sentence_length,
        max_sentences=data.max_sentences,
    )


# ------------------------------------------------------------------------------------------------ the model


def make_model(recipe: Recipe, loaded: LoadedDataset, tokenizer) -> PreTrainedModel:
    """A fresh model of the recipe for this data set, on the word vectors it names; or its pretrained one, its head new."""
    data, names = recipe.data, loaded.label_names
    if recipe.model.pretrained is not None:
        make = pretrained.model_of if recipe.model.selector is None else pretrained.selecting_model_of
        return make(recipe, names, tokenizer)
    fields = {
        "vocab_size": max(tokenizer.get_vocab().values()) + 1,  # of some tokenizers ids are left out
        "unk_token_id": tokenizer.unk_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
    }
    if recipe.model.hierarchy != "none":
        fields["sentence_token_id"] = tokenizer.sentence_token_id
    if data.tokenizer is not None:
        fields["tokenizer_digest"] = tokenizer_digest(tokenizer)
    vectors = None
    if data.vectors:
        path = vectors_path(data.vectors)
        vectors, present = load_vectors(
            path,
            tokenizer.get_vocab(),
            missing=data.missing_vectors,
            std=recipe.model.embedding_std,
            seed=recipe.seed,
            padding=tokenizer.pad_token_id,
        )
        fields |= {"embedding_size": vectors.shape[1], "vectors": "pretrained", "vectors_digest": file_digest(path)}
        print(f"vocabulary entries with a vector in {data.vectors}: {present.sum():,} of {len(present):,}")
    config = model_config(recipe, loaded.entry.pair, **fields)
    kind = AttentionClassifierForSequenceClassification
    if recipe.model.selector is not None:
        kind = RationaleClassifierForSequenceClassification
    model = kind(config)
    if vectors is not None:
        table = model.get_input_embeddings().weight
        with torch.no_grad():  # of selector and classifier, where each has its own
            table.copy_(torch.from_numpy(vectors).repeat(1, table.shape[1] // vectors.shape[1]))
    return model


def vectors_path(name: str) -> Path:
    """Where a file of word vectors lies: as it is given, or below the data root."""
    root = os.environ.get(ROOT_VARIABLE)
    if root and not Path(name).exists() and (Path(root) / name).exists():
        return Path(root) / name
    return Path(name)
