"""From a recipe to its texts, or pairs of sentences: read once, each split encoded once."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import Dataset

from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.impermissible import counts as counts_of
from attnfaith.data.loading import LoadedDataset, load_splits
from attnfaith.data.own_data import read_own
from attnfaith.data.pair_encoding import build_pair_tokenizer, encode_pairs
from attnfaith.data.pairs import LoadedPairs, load_pairs
from attnfaith.data.registry import entry_of
from attnfaith.data.subwords import encode_for_classifier
from attnfaith.data.tokenization import encode
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.reporting.facts import own_data_lines
from attnfaith.runs.folder import MODEL, STATE, RunError, read_state
from attnfaith.runs.models import load_tokenizer, make_tokenizer
from attnfaith.subjects.base import BOUNDLESS
from attnfaith.support.errors import AttnfaithError, counted, excerpt


def load_data(recipe: Recipe, limits: Mapping[str, int] | None = None) -> LoadedDataset | LoadedPairs:
    """Return the data set of a recipe, or its sentence pairs, with its own limits or others."""
    return _read(recipe).limited(recipe.data.limits if limits is None else limits)


def _read(recipe: Recipe) -> LoadedDataset | LoadedPairs:
    data = recipe.data
    try:
        if recipe.kind == "translator":
            own = {"name": data.name} if data.path is None else {"path": data.path, "links_from": data.links_from or 0}
            return load_pairs(**own, seed=data.seed, **data.arguments)
        if entry_of(data).own:
            return read_own(data)
        return load_splits(data.name, seed=data.seed, impermissible_removed=data.impermissible_removed, **data.arguments)
    except (TypeError, ValueError) as error:
        if not data.arguments or isinstance(error, AttnfaithError):
            raise
        raise RecipeError(f"data.arguments={excerpt(data.arguments)}: a value of a wrong type: {error}") from error


class Texts:
    """The texts of a recipe, or its sentence pairs, by the tokenizer in `folder` where a model lies there.

    They are read on first use. Each of several processes holds the texts; one of a machine reads first, and the others find
    its downloads.
    """

    def __init__(self, recipe: Recipe, folder: Path, state: PartialState):
        self.recipe, self.folder, self.state = recipe, folder, state
        self._encoded: dict[str, Dataset] = {}

    @cached_property
    def _splits(self) -> tuple[LoadedDataset | LoadedPairs, Dataset]:
        recipe, section, limits = self.recipe, self.recipe.measure, self.recipe.data.limits
        with self.state.local_main_process_first():
            source = _read(recipe)
            loaded = source.limited(limits)
            if recipe.data.own:
                self._check_unchanged(loaded)
            if section.limit is None:
                return loaded, loaded.splits[section.split]
            return loaded, source.limited({**limits, section.split: section.limit}).splits[section.split]

    def _check_unchanged(self, loaded: LoadedDataset | LoadedPairs) -> None:
        """Raise RunError where own data are no longer those that the model in the folder was trained on."""
        state = read_state(self.folder) if (self.folder / STATE).is_file() else {}
        trained = state.get("texts") or {}
        changed = [split for split in trained if trained[split] != fingerprint(loaded.splits[split])]
        if changed:
            where = f"other texts or labels in {', '.join(changed)}: put the old data back, or train anew"
            raise RunError(f"{loaded.entry.name!r} has changed since the run in {self.folder} was trained: {where}")

    @property
    def loaded(self) -> LoadedDataset | LoadedPairs:
        """The data set with the recipe's limits."""
        return self._splits[0]

    @property
    def drawn(self) -> Dataset:
        """The texts that a record of this recipe holds: `measure.limit` of `measure.split`."""
        return self._splits[1]

    @cached_property
    def tokenizer(self):
        if (self.folder / MODEL).is_dir():
            return load_tokenizer(self.folder)
        if self.recipe.kind != "translator":
            return make_tokenizer(self.recipe, self.loaded)
        data, train = self.recipe.data, self.loaded.splits["train"]
        how = {"vocabulary": data.vocabulary or "words", "size": data.vocabulary_size, "min_df": data.min_df or 1}
        return build_pair_tokenizer([*train["source"], *train["target"]], **how)

    def rows(self, split: str) -> Dataset:
        """Return a split, encoded. Raises RunError where data.max_length leaves no pair of it."""
        if split not in self._encoded:
            self._encoded[split] = rows = self._encode(self.loaded.splits[split])
            if not len(rows):
                limit = self.recipe.data.max_length
                raise RunError(f"data.max_length={limit} leaves no pair of {split}: every one has a longer side; give more")
        return self._encoded[split]

    def _encode(self, split: Dataset) -> Dataset:
        if self.recipe.kind == "translator":
            return encode_pairs(split, self.tokenizer, max_length=self.recipe.data.max_length)
        if self.recipe.kind == "pretrained":
            limit = self.tokenizer.model_max_length
            return encode_for_classifier(split, self.tokenizer, max_length=limit if limit < BOUNDLESS else None)
        return encode(split, self.tokenizer)

    @cached_property
    def measured(self) -> Dataset:
        """`drawn`, encoded."""
        section = self.recipe.measure
        return self.rows(section.split) if section.limit is None else self._encode(self.drawn)

    def remarks(self, rows: Mapping[str, Dataset]) -> list[str]:
        """Return lines about own data, and counts of texts that cannot be used. rows: encoded splits."""
        loaded, lines = self.loaded, []
        if self.recipe.kind == "translator":
            for split, part in rows.items():
                left_out = loaded.left_out.get(split, 0) + len(loaded.splits[split]) - len(part)
                lines += [f"{counted(left_out, 'pair')} of {split} left out: empty or too long"] if left_out else []
            ids = np.concatenate([np.concatenate(rows["validation"][name]) for name in ("input_ids", "labels")])
            unknown = int((ids == self.tokenizer.unk_token_id).sum())
            lines += [f"unknown tokens of validation: {unknown:,} of {len(ids):,}"] if unknown else []
            return [f"{loaded.entry.name}: {line}" for line in lines]
        counts = {
            "texts without words": sum(loaded.empty.values()),
            "second texts without words": sum(loaded.empty_pair.values()),
        }
        if loaded.entry.impermissible:
            counts |= counts_of(marks for split in loaded.splits.values() for marks in split["impermissible"])
        own = own_data_lines(loaded.entry.name, loaded.about, loaded.dropped) if loaded.about else []
        return own + [f"{loaded.entry.name}: {label}: {count:,}" for label, count in counts.items() if count]
