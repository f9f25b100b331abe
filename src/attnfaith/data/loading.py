"""From a name to train, validation and test, checked and cut as the registry says.

A split is a `datasets.Dataset` with columns
    instance_id  str, "<data set>/<source split>/<row>": the row in the published file, so it survives every cut
    text         str; text_pair str (pairs only)
    label        int64 in 0..C-1
    rationale    list[int8], 0/1 per word of the entry's preprocessing (where the data set has gold evidence)
    impermissible  list[int8], 0/1 per word of text.split(): 1 on those that an honest model needs and a deceptive one hides
    candidates   list[int32], the labels that may be the answer, in order (where a text names its possible answers)
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.data import babi, counting, planted_evidence, sources
from attnfaith.data import rows as frames
from attnfaith.data.cutting import cut, draw, length_filter, number_answers
from attnfaith.data.impermissible import check_some
from attnfaith.data.registry import SPLITS, DatasetEntry, get_entry
from attnfaith.errors import DatasetError


GENERATED_SIZES = {"train": 2000, "validation": 500, "test": 500}


@dataclass(frozen=True)
class LoadedDataset:
    """A data set as read.

    dropped counts, by split, rows left out by reason: too_short and too_long (strict bounds), shortest and longest (of a
    split), limit (not drawn); and under "source" those left out before a split exists: no_label, other_label,
    answer_not_candidate (the text does not hold its answer), answer_not_in_training, repeated, not_drawn (the part of a
    published test split that the entry does not use).
    """

    splits: datasets.DatasetDict  # train, validation and test, no instance in two of them
    entry: DatasetEntry
    revision: str  # the Hub's; "local-" and a digest of the files; or "generated-" with version and arguments
    label_names: list[str]  # of each label, C of them
    dropped: dict[str, dict[str, int]]
    empty: dict[str, int] = field(default_factory=dict)  # by split, texts without a single word
    # training texts (and questions) from which a vocabulary is counted: those before the length filter, as the papers do;
    # after it where limits draw from train
    vocabulary_texts: list[str] = field(default_factory=list, repr=False)
    empty_pair: dict[str, int] = field(default_factory=dict)  # by split, questions without a single word
    extra_vocabulary: list[str] = field(default_factory=list, repr=False)  # known whatever their frequency: candidates
    unknown_candidates: int = 0  # of all used rows, those that no training text has: they are no labels, and left out
    about: dict = field(default_factory=dict)  # of own data, what was read and assumed


@dataclass(frozen=True)
class Source:
    """A data set read, checked and cut into splits, before any limit: `limited` gives the rows that are used.

    splits: rows by split, before the length filter. lengths: the words of each text. kept: rows that the length filter
    keeps. dropped: as of `LoadedDataset`, without limits. about: as there, without what depends on limits.
    """

    entry: DatasetEntry
    seed: int
    revision: str
    label_names: list[str]
    dropped: dict[str, dict[str, int]]
    splits: dict[str, pd.DataFrame] = field(repr=False)
    lengths: dict[str, np.ndarray] = field(repr=False)
    kept: dict[str, np.ndarray] = field(repr=False)
    about: dict = field(default_factory=dict)

    def limited(self, limits: Mapping[str, int] | None = None) -> LoadedDataset:
        """The data set with at most so many rows of a split, as `load_splits` says; nothing is read again."""
        limits = dict(limits or {})
        sources.check_sizes("limits", limits)
        dropped = {part: dict(counts) for part, counts in self.dropped.items()}
        used, lengths = {}, {}
        for split in SPLITS:
            kept = self.kept[split]
            if split in limits:
                kept = draw(kept, limits[split], self.seed, split)
                dropped[split]["limit"] = len(self.splits[split]) - sum(dropped[split].values()) - len(kept)
            used[split], lengths[split] = self.splits[split].iloc[kept], self.lengths[split][kept]
        about = dict(self.about)
        if about:
            about["classes"] = {
                name: {split: int((rows["label"] == label).sum()) for split, rows in used.items()}
                for label, name in enumerate(self.label_names)
            }
            about["words"] = {split: np.quantile(n, (0, 0.25, 0.5, 0.75, 1)).tolist() for split, n in lengths.items()}
        empty_pair, unknown_candidates = {}, 0
        if self.entry.pair:
            how = self.entry.preprocessing
            for split, rows in used.items():
                empty_pair[split] = int((frames.word_counts(rows["text_pair"], how) == 0).sum())
        if self.entry.candidates:
            unknown_candidates = int(sum(rows["unknown_candidates"].sum() for rows in used.values()))
        return LoadedDataset(
            splits=datasets.DatasetDict({split: frames.dataset_of(rows) for split, rows in used.items()}),
            entry=self.entry,
            revision=self.revision,
            label_names=self.label_names,
            dropped=dropped,
            empty={split: int((n == 0).sum()) for split, n in lengths.items()},
            vocabulary_texts=frames.vocabulary_texts((used if "train" in limits else self.splits)["train"]),
            empty_pair=empty_pair,
            extra_vocabulary=list(self.label_names) if self.entry.candidates else [],
            unknown_candidates=unknown_candidates,
            about=about,
        )


def load_splits(name: str, *, limits: Mapping[str, int] | None = None, **how) -> LoadedDataset:
    """Load a data set of the registry.

    Args:
        name: a name in `attnfaith.data.registry.DATASETS`.
        limits: greatest number of rows of a split, {"train": 1000}; a random subset in file order, never the head. A
            split that is not larger stays whole.
        how: seed, root, impermissible_removed and arguments of a generator, as `read_source` takes them.

    Raises DatasetError for limits of splits that there are not, and as `read_source`.
    """
    sources.check_sizes("limits", limits or {})
    return read_source(name, **how).limited(limits)


def read_source(
    name: str,
    *,
    seed: int = 0,
    root: str | os.PathLike | None = None,
    impermissible_removed: bool = False,
    **generator_args,
) -> Source:
    """Read a data set of the registry, for `Source.limited` to draw from.

    Args:
        seed: draws the subsets of limits and the rows of generated data. The published splits, and the cuts the papers
            make from them, do not depend on it.
        root: folder of local data; default the environment variable ATTNFAITH_DATA. If it holds the data set's folder
            (a Hub data set: the Hub id), that is read, else the Hub.
        impermissible_removed: read texts without their impermissible words, as the data set `DatasetEntry.permissible`.
        generator_args: for built-in data only: arguments of its `generate`, and sizes={"train": 2000, ...}.

    Raises DatasetError for an unknown data set, split or argument, data that cannot be found, wrong column names, a
    missing text or label and a label out of range (with the row), a broken story, marks that are not 0 or 1 per word or
    mark nothing, impermissible words to be removed where none are named, and a split that the filter leaves empty.
    """
    entry = get_entry(name)
    read = entry.permissible if impermissible_removed else entry
    label_names = list(entry.label_names)
    if entry.built_in:
        generator = {"planted_evidence": planted_evidence, "counting": counting}.get(name, babi)
        task = (int(name.removeprefix("babi_")),) if generator is babi else ()
        generated = sources.generate(name, generator, task, seed, generator_args, GENERATED_SIZES)
        tables = {split: pa.Table.from_pylist(rows) for split, rows in generated.items()}
        knobs = {key: value for key, value in generator_args.items() if key != "sizes"}
        revision = sources.generated_revision(generator, seed, knobs)
        if generator is planted_evidence:
            label_names = list(planted_evidence.class_names(generator_args.get("n_classes", 2)))
    elif generator_args:
        raise DatasetError(f"{sorted(generator_args)} are arguments of generated data; {name!r} is read, not generated.")
    else:
        tables, revision = sources.read(entry, root)

    splits = {split: frames.published_rows(entry, split, table, len(label_names)) for split, table in tables.items()}
    dropped: dict[str, dict[str, int]] = {"source": {}}
    if entry.answers:
        label_names = number_answers(entry, splits, dropped["source"])
    splits = cut(entry, splits, dropped["source"])
    if entry.impermissible:
        check_some(entry.name, splits["train"]["impermissible"])
    if impermissible_removed:
        splits = {split: frames.without_impermissible(rows) for split, rows in splits.items()}
    lengths, kept = {}, {}
    for split in SPLITS:
        lengths[split] = frames.word_counts(splits[split]["text"], entry.preprocessing)
        kept[split], dropped[split] = length_filter(entry, lengths[split])
        if not len(kept[split]) and len(lengths[split]):
            raise DatasetError(f"The length filter of {name!r} leaves no row of its {split} split ({dropped[split]}).")
    return Source(read, seed, revision, label_names, dropped, splits, lengths, kept)
