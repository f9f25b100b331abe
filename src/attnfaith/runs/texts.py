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
from attnfaith.data.pair_encoding import encode_pairs
from attnfaith.data.pairs import LoadedPairs, load_pairs
from attnfaith.data.registry import entry_of
from attnfaith.data.subwords import encode_for_classifier
from attnfaith.data.tokenization import encode
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.reporting.facts import own_data_lines
from attnfaith.runs.folder import RunError, read_state
from attnfaith.runs.models import load_tokenizer, make_tokenizer
from attnfaith.subjects.base import BOUNDLESS
from attnfaith.support.errors import AttnfaithError, excerpt
from attnfaith.support.files import MODEL


def load_data(recipe: Recipe, *, whole: bool = False) -> LoadedDataset | LoadedPairs:
    """Return the data set of a recipe, or its sentence pairs, with its limits; whole: without them."""
    data = recipe.data
    try:
        if recipe.kind == "translator":
            own = {"name": data.name} if data.path is None else {"path": data.path, "links_from": data.links_from or 0}
            loaded = load_pairs(**own, seed=data.seed, **data.arguments)
        elif entry_of(data).own:
            loaded = read_own(data)
        else:
            how = {"seed": data.seed, "impermissible_removed": data.impermissible_removed}
            loaded = load_splits(data.name, **how, **data.arguments)
    except (TypeError, ValueError) as error:
        if not data.arguments or isinstance(error, AttnfaithError):
            raise
        raise RecipeError(f"data.arguments={excerpt(data.arguments)}: a value of a wrong type: {error}") from error
    return loaded if whole else loaded.limited(data.limits)


class Texts:
    """The texts of a recipe, or its sentence pairs, by the tokenizer in `folder` where a model lies there.

    loaded: the data set with the recipe's limits. drawn: the texts that a record of this recipe holds, `measure.limit` of
    `measure.split`. Each of several processes holds the texts; one of a machine reads first, and the others find its
    downloads. Raises RunError where own data are no longer those that the model in the folder was trained on.
    """

    def __init__(self, recipe: Recipe, folder: Path, state: PartialState):
        self.recipe, self.folder, section = recipe, folder, recipe.measure
        with state.local_main_process_first():
            source = load_data(recipe, whole=True)
            self.loaded = source.limited(recipe.data.limits)
            trained = read_state(folder).get("texts") or {} if recipe.data.own else {}
            changed = [split for split in trained if trained[split] != fingerprint(self.loaded.splits[split])]
            if changed:
                where = f"other texts or labels in {', '.join(changed)}: put the old data back, or train anew"
                raise RunError(f"{self.loaded.entry.name!r} has changed since the run in {folder} was trained: {where}")
            self.drawn = self.loaded.splits[section.split]
            if section.limit is not None:
                limits = {**recipe.data.limits, section.split: section.limit}
                self.drawn = source.limited(limits).splits[section.split]
        self._encoded: dict[str, Dataset] = {}

    @cached_property
    def tokenizer(self):
        if (self.folder / MODEL).is_dir():
            return load_tokenizer(self.folder)
        return make_tokenizer(self.recipe, self.loaded)

    def rows(self, split: str) -> Dataset:
        """Return a split, encoded. Raises RunError where data.max_length leaves no pair of it."""
        if split not in self._encoded:
            self._encoded[split] = rows = self._encode(self.loaded.splits[split])
            if not len(rows):
                limit = self.recipe.data.max_length
                raise RunError(f"data.max_length={limit} leaves no pair of {split}: every one has a longer side; give more")
        return self._encoded[split]

    @cached_property
    def measured(self) -> Dataset:
        """`drawn`, encoded."""
        section = self.recipe.measure
        return self.rows(section.split) if section.limit is None else self._encode(self.drawn)

    def _encode(self, split: Dataset) -> Dataset:
        if self.recipe.kind == "translator":
            return encode_pairs(split, self.tokenizer, max_length=self.recipe.data.max_length)
        if self.recipe.kind == "pretrained":
            limit = self.tokenizer.model_max_length
            return encode_for_classifier(split, self.tokenizer, max_length=limit if limit < BOUNDLESS else None)
        return encode(split, self.tokenizer)

    def remarks(self, rows: Mapping[str, Dataset]) -> list[str]:
        """Return lines about own data, and counts of texts that cannot be used. rows: encoded splits."""
        loaded, lines, counts = self.loaded, [], {}
        name = loaded.entry.name
        if self.recipe.kind == "translator":
            for split, part in rows.items():
                counts[f"pairs of {split} left out, empty or too long"] = (
                    loaded.left_out.get(split, 0) + len(loaded.splits[split]) - len(part)
                )
            ids = np.concatenate([np.concatenate(rows["validation"][side]) for side in ("input_ids", "labels")])
            counts[f"unknown tokens of validation, of {len(ids):,}"] = int((ids == self.tokenizer.unk_token_id).sum())
        else:
            counts["texts without words"] = sum(loaded.empty("text").values())
            counts["second texts without words"] = sum(loaded.empty("text_pair").values())
            if loaded.entry.impermissible:
                counts |= counts_of(marks for split in loaded.splits.values() for marks in split["impermissible"])
            if loaded.about:
                lines = own_data_lines(name, loaded.about, loaded.dropped)
        return lines + [f"{name}: {label}: {count:,}" for label, count in counts.items() if count]
