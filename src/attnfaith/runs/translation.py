"""A recipe of sentence pairs carried out: its texts, its model, their training, what it then generates, its record."""

import dataclasses
import os
from functools import cached_property
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, TrainingArguments, set_seed

from attnfaith import recipes, record
from attnfaith.data import pairs
from attnfaith.data.fingerprint import digest_data, fingerprint
from attnfaith.data.pair_encoding import build_pair_tokenizer, encode_pairs
from attnfaith.data.pairs import LoadedPairs
from attnfaith.errors import AttnfaithError, counted, excerpt
from attnfaith.files import write_atomically
from attnfaith.measurement import engine
from attnfaith.recipes import Recipe, RecipeError, sequence_config
from attnfaith.record.identity import training_fields
from attnfaith.runs.checkpoint import load_model, load_tokenizer
from attnfaith.runs.folder import MODEL, RECORD, RunError, note, origin, read_state, trained_state
from attnfaith.runs.train import fit, last_checkpoint, note_provenance
from attnfaith.subjects.recurrent import WithoutAttention
from attnfaith.subjects.translator import SequenceSubject, sequence_subject
from attnfaith.training.translation import TranslationTrainer, translation_scores, translations


TRANSLATIONS = "translations.txt"
"""In the folder of a run: what its model generates for each measured source, one a line."""


def _read(recipe: Recipe) -> LoadedPairs:
    data = recipe.data
    own = {"path": data.path, "links_from": data.links_from or 0} if data.path is not None else {"name": data.name}
    try:
        return pairs.load_pairs(**own, seed=data.seed, **data.arguments)
    except AttnfaithError:
        raise
    except (TypeError, ValueError) as error:
        raise RecipeError(f"data.arguments={excerpt(data.arguments)}: a value of a wrong type: {error}") from error


def load_pairs(recipe: Recipe) -> LoadedPairs:
    """The sentence pairs of a recipe, with its limits."""
    return _read(recipe).limited(recipe.data.limits, recipe.data.seed)


class PairTexts:
    """The sentence pairs of a recipe, read once, by the tokenizer in `folder` where a model lies there."""

    def __init__(self, recipe: Recipe, folder: Path, state: PartialState):
        self.recipe, self.folder, self.state = recipe, folder, state
        self._encoded: dict[str, Dataset] = {}

    @cached_property
    def _source(self) -> LoadedPairs:
        return _read(self.recipe)

    @cached_property
    def loaded(self) -> LoadedPairs:
        """The pairs with the recipe's limits. Raises RunError where own files are no longer those that were trained on."""
        loaded = self._source.limited(self.recipe.data.limits, self.recipe.data.seed)  # read once, with the drawn ones
        if (self.folder / MODEL).is_dir() and (trained := read_state(self.folder).get("texts")):
            if other := [split for split, rows in loaded.splits.items() if trained.get(split) != fingerprint(rows)]:
                raise RunError(
                    f"{loaded.entry.name!r} has changed since the run in {self.folder} was trained: other sentences or "
                    f"links in {', '.join(other)}. Put the old files back, or train anew with --overwrite_output_dir"
                )
        return loaded

    @cached_property
    def drawn(self) -> Dataset:
        """The pairs that a record of this recipe holds: `measure.limit` of `measure.split`."""
        section = self.recipe.measure
        if section.limit is None:
            return self.loaded.splits[section.split]
        limits = {**self.recipe.data.limits, section.split: section.limit}
        return self._source.limited(limits, self.recipe.data.seed).splits[section.split]

    @cached_property
    def tokenizer(self):
        if (self.folder / MODEL).is_dir():
            return load_tokenizer(self.folder)
        data, train = self.recipe.data, self.loaded.splits["train"]
        how = {"vocabulary": data.vocabulary or "words", "size": data.vocabulary_size, "min_df": data.min_df or 1}
        return build_pair_tokenizer([*train["source"], *train["target"]], **how)

    def rows(self, split: str) -> Dataset:
        """A split to train on, encoded. Raises RunError where data.max_length leaves nothing of it."""
        if split not in self._encoded:
            made = encode_pairs(self.loaded.splits[split], self.tokenizer, max_length=self.recipe.data.max_length)
            if not len(made):
                raise RunError(
                    f"data.max_length={self.recipe.data.max_length} leaves no pair of {split}: every one has a longer side; "
                    "give more"
                )
            self._encoded[split] = made
        return self._encoded[split]


def make_model(recipe: Recipe, tokenizer) -> PreTrainedModel:
    """A fresh model of the recipe for this vocabulary."""
    config = sequence_config(recipe, len(tokenizer))
    how = {} if recipe.model.type == "gru" else {"attn_implementation": "eager"}
    return AutoModelForSeq2SeqLM.from_config(config, **how)


def train(recipe: Recipe, arguments: TrainingArguments, folder: Path, texts: PairTexts, state: PartialState) -> None:
    """Train the model of a recipe and keep it in the folder. Raises what `run` raises."""
    rows = {split: texts.rows(split) for split in ("train", "validation")}
    if state.is_main_process:
        for line in remarks(texts, rows):
            print(line)
    set_seed(recipe.seed)  # last, so that the same recipe starts from the same weights
    model = make_model(recipe, texts.tokenizer)
    subject = subject_of(model, texts.tokenizer)
    measured = subject.rows(texts.drawn)
    section = recipe.measure
    engine.check(subject, measured, section.producers, options=section.options)  # before it is trained
    trainer = TranslationTrainer(
        model,
        arguments,
        train_dataset=rows["train"],
        eval_dataset=rows["validation"],
        processing_class=texts.tokenizer,
    )
    if state.is_main_process:
        note_provenance(recipe, folder, texts, rows, state)
    fit(trainer, last_checkpoint(recipe, arguments, state), folder, texts.tokenizer, _facts(texts, rows, state), state)


def remarks(texts: PairTexts, rows: dict[str, Dataset]) -> list[str]:
    """What cannot be used of the pairs, with counts."""
    loaded, unknown = texts.loaded, texts.tokenizer.unk_token_id
    why = "left out: empty, or beyond data.limits"
    said = [f"{counted(count, 'pair')} of {split} {why}" for split, count in loaded.left_out.items() if count]
    for split, part in rows.items():
        if longer := len(loaded.splits[split]) - len(part):
            said.append(f"{counted(longer, 'pair')} of {split} left out: a side is longer than data.max_length")
    ids = np.concatenate([np.concatenate(rows["validation"][name]) for name in ("input_ids", "labels")])
    if count := int((ids == unknown).sum()):
        said.append(f"unknown tokens of validation: {count:,} of {len(ids):,}")
    return [f"{loaded.entry.name}: {line}" for line in said]


def _facts(texts: PairTexts, rows: dict[str, Dataset], state: PartialState) -> dict:
    """What run.json says of a training, whatever becomes of it."""
    loaded = texts.loaded
    return {
        "status": "trained",
        "dataset": {
            "name": loaded.entry.name,
            "revision": loaded.revision,
            "gold": loaded.entry.gold,
            "left_out": loaded.left_out,
        },
        "texts": {split: fingerprint(part) for split, part in loaded.splits.items()},
        "sizes": {split: len(part) for split, part in loaded.splits.items()},
        "trained_on": {split: len(part) for split, part in rows.items()},
        "vocabulary": len(texts.tokenizer),
        "processes": state.num_processes,
    }


def subject_of(model, tokenizer) -> SequenceSubject:
    """A model of a run as a subject, one without attention too."""
    blind = getattr(model.config, "projection", None) == "none"
    return WithoutAttention(model, tokenizer) if blind else sequence_subject(model, tokenizer)


def measure(
    recipe: Recipe,
    folder: Path,
    texts: PairTexts,
    state: PartialState,
    output: os.PathLike | None = None,
    *,
    device=None,
) -> Path:
    """Measure as the recipe's `measure` section says; returns the record's path, None is the run's own."""
    section, run = recipe.measure, trained_state(folder)
    subject = subject_of(load_model(folder).to(device or state.device), texts.tokenizer)
    rows = subject.rows(texts.drawn)
    data = {"revision": texts.loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
    cell = record.Identity(
        dataset=texts.loaded.entry.name,
        texts=fingerprint(texts.drawn),
        training_texts=run["texts"]["train"],
        split=section.split,
        seed=recipe.seed,
        **training_fields(recipe, recipes.load),
    )
    settings = {"recipe": dataclasses.asdict(recipe), "run": run, "provenance": origin(section.seed, state, data)}
    path = engine.measure(
        subject,
        rows,
        cell,
        section.producers,
        folder / RECORD if output is None else Path(output),
        seed=section.seed,
        options=section.options,
        settings=settings,
        batch_tokens=section.batch_tokens,
        discard=output is None,
    )
    if state.is_main_process and output is None:
        note(folder, status="measured")
    return path


def translate(recipe: Recipe, folder: Path, texts: PairTexts, state: PartialState, device=None) -> None:
    """What the model in the folder generates for the measured pairs, greedily, as translations.txt; its scores, in run.json.
    One process does it, and all wait.
    """
    if state.is_main_process:
        model, drawn = load_model(folder).to(device or state.device), texts.drawn
        encoded = encode_pairs(drawn, texts.tokenizer)
        made = [" ".join(line.split()) for line in translations(model, texts.tokenizer, encoded)]
        write_atomically(folder / TRANSLATIONS, "".join(f"{line}\n" for line in made))
        scores = translation_scores(made, drawn["target"])
        note(folder, translation={"split": recipe.measure.split, "pairs": len(made), **scores})
    state.wait_for_everyone()
