"""From a recipe and a folder to what training and measurement read: texts or pairs of sentences, tokenizer, base."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedModel

from attnfaith import loading, recipes, record
from attnfaith.data.fingerprint import digest_model, fingerprint
from attnfaith.data.loading import LoadedDataset, load_splits
from attnfaith.data.own_data import read_own
from attnfaith.data.pair_encoding import encode_pairs
from attnfaith.data.pairs import load_pairs
from attnfaith.data.subwords import encode_for_classifier
from attnfaith.data.tokenization import encode
from attnfaith.measurement import engine
from attnfaith.measurement.registry import build
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.runs.folder import RunError
from attnfaith.runs.models import make_tokenizer
from attnfaith.runs.removal import check_measure, remove
from attnfaith.subjects.base import BOUNDLESS
from attnfaith.support import provenance
from attnfaith.support.errors import AttnfaithError, excerpt
from attnfaith.support.files import MODEL, RECIPE, STATE, read_object


KINDS = {"guided": ("classification", "adversarial"), "adversarial": ("classification",)}  # objectives a base may have
WEIGHTS = "weights (SHA-256)"


def load_data(recipe: Recipe) -> LoadedDataset:
    """Return the data set of a recipe, or its sentence pairs, without its limits."""
    data = recipe.data
    try:
        if recipe.kind == "translator":
            own = {"path": data.path, "links_from": data.links_from or 0}
            return load_pairs(data.name, **own, seed=data.seed, **data.arguments)
        if data.own:
            return read_own(data)
        return load_splits(data.name, seed=data.seed, impermissible_removed=data.impermissible_removed, **data.arguments)
    except (TypeError, ValueError) as error:
        if not data.arguments or isinstance(error, AttnfaithError):
            raise
        raise RecipeError(f"data.arguments={excerpt(data.arguments)}: a value of a wrong type: {error}") from error


def check_readings(recipe: Recipe) -> None:
    """Raise MeasurementError where the measures of a recipe do not exist, RunError where its base cannot serve."""
    removal, objective = recipe.data.removal, recipe.objective
    build(recipe.measure.producers, recipe.measure.options, recipe.reads)
    if removal is not None:
        check_measure(removal.by)
    if recipe.base is None:
        return
    folder, kinds = Path(recipe.base), KINDS.get(objective.kind, ("classification",))
    missing = [name for name in (RECIPE, STATE, MODEL) if not (folder / name).exists()]
    if folder.resolve() == Path(recipe.output_dir).resolve():
        reason = "is this run's own output_dir; name another run"
    elif missing:
        reason = f"is no trained run ({', '.join(missing)} missing there): train it first"
    else:
        base = recipes.load(folder / RECIPE)
        changed = [key for key in recipes.differences(recipe, base) if key.startswith("model.")]
        if base.kind != "classifier" or base.model.selector is not None:
            reason = "is no model whose attention pools states: leave model.pretrained, .type and .selector out of it"
        elif base.objective.kind not in kinds:
            reason = f"has objective {base.objective.kind}; for {objective.kind!r} it must be {' or '.join(kinds)}"
        elif "model.hierarchy" in changed:
            reason = "attends to words and this model to sentences, or the other way round: give both one model.hierarchy"
        elif objective.frozen and changed:
            reason = f"is another model than objective.frozen starts from: {', '.join(changed)}"
        else:
            return
    raise RunError(f"{'objective' if removal is None else 'data.removal'}.base={folder} {reason}")


class Run:
    """A recipe in its folder, and the processes at work: what training and measurement read, each part once.

    Raises RunError where own data are no longer those that the model in the folder was trained on.
    """

    def __init__(self, recipe: Recipe, folder: Path, state: PartialState):
        self.recipe, self.folder, self.state = recipe, folder, state
        self.main, self.pairs = state.is_main_process, recipe.kind == "translator"
        with state.local_main_process_first():  # the others find its downloads
            source = load_data(recipe)
        self.loaded, section = source.limited(recipe.data.limits), recipe.measure
        trained = read_object(folder / STATE).get("texts") or {} if recipe.data.own else {}
        changed = [split for split in trained if trained[split] != fingerprint(self.loaded.splits[split])]
        if changed:
            where = f"other texts or labels in {', '.join(changed)}: put the old data back, or train anew"
            raise RunError(f"{self.loaded.entry.name!r} has changed since the run in {folder} was trained: {where}")
        limits = {} if section.limit is None else {section.split: section.limit}
        self.drawn = source.limited({**recipe.data.limits, **limits}).splits[section.split]  # the texts of the record

    @cached_property
    def base(self) -> PreTrainedModel:
        """The model that this one is trained against, or that ranks the words it lacks."""
        folder = Path(self.recipe.base)
        if loading.load_tokenizer(folder / MODEL).get_vocab() != self.tokenizer.get_vocab():
            raise RunError(f"the run in {folder} knows other words: give both runs the same data")
        return loading.load_model(folder / MODEL, attn_implementation="eager").to(self.state.device)

    def base_record(self, rows: Dataset, names: Sequence[str] = (), **how) -> pa.Table:
        """Return the record of the base on encoded rows: its probs [C], its attention [T], and measures."""
        cell = record.Identity("", "", "", record.UNKNOWN_SEED)
        return engine.measure(self.base, rows, cell, names, None, progress=False, **how)

    def check_base_unchanged(self) -> None:
        """Raise RunError where the base has other weights than the one that the model in the folder was trained against."""
        folder, trained = self.recipe.base, read_object(self.folder / STATE).get("base") or {}
        if trained.get(WEIGHTS) != digest_model(self.base):
            raise RunError(f"{folder} was trained anew since the run in {self.folder}: run that with --overwrite_output_dir")

    @cached_property
    def tokenizer(self):
        """That of the model in the folder, or a fresh one."""
        folder = self.folder / MODEL
        return loading.load_tokenizer(folder) if folder.is_dir() else make_tokenizer(self.recipe, self.loaded)

    def rows(self, split: str) -> Dataset:
        """Return a split, encoded. Raises RunError where data.max_length leaves no pair of it."""
        texts, longest = self.loaded.splits[split], self.recipe.data.max_length
        if self.pairs:
            rows = encode_pairs(texts, self.tokenizer, max_length=longest)
        elif self.recipe.kind == "pretrained":
            limit = self.tokenizer.model_max_length
            rows = encode_for_classifier(texts, self.tokenizer, max_length=limit if limit < BOUNDLESS else None)
        else:
            rows = encode(texts, self.tokenizer)
        if not len(rows):
            raise RunError(f"data.max_length={longest} leaves no pair of {split}: every one has a longer side; give more")
        return self.without_removed(rows)

    def without_removed(self, rows: Dataset) -> Dataset:
        """Return encoded rows without the words that the recipe removes."""
        return rows if self.recipe.data.removal is None else remove(self, rows)

    def origin(self, seed: int, data: dict) -> dict:
        """The provenance of the files that this process makes."""
        place = self.state.device
        device = torch.cuda.get_device_name(place) if place.type == "cuda" else place.type
        return provenance.collect(seed=seed, data=data, device=f"{device}, {torch.get_num_threads()} threads")
