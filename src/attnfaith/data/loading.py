"""Data sets of the registry as train, validation and test, checked and cut by their entries.

A split is a `datasets.Dataset` with the columns
    instance_id  str, "<data set>/<source split>/<row>": the row in the published file, whatever is cut
    text         str; text_pair str (pairs only)
    label        int64 in 0..C-1
    rationale    list[int8], 0/1 per word of the entry's preprocessing (where the data set has gold evidence)
    impermissible  list[int8], 0/1 per word of text.split(): 1 on words that an honest model needs and a deceptive one hides
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.data import planted_evidence
from attnfaith.data.generators import check_sizes, generated
from attnfaith.data.impermissible import check_any, check_marks
from attnfaith.data.in_memory import in_memory
from attnfaith.data.registry import SPLITS, DatasetEntry, get_entry
from attnfaith.data.tokenization import normalizer_of, split_words
from attnfaith.support.errors import DatasetError, counted, excerpt


TYPES = {
    "instance_id": pa.string(),
    "text": pa.large_string(),
    "text_pair": pa.large_string(),
    "label": pa.int64(),
    "rationale": pa.list_(pa.int8()),
    "impermissible": pa.list_(pa.int8()),
}
"""Columns of a split and their types."""
SIZES = {"train": 2000, "validation": 500, "test": 500}
"""Rows of generated data where the arguments name no other sizes."""
ROOT_VARIABLE = "ATTNFAITH_DATA"
"""Environment variable that names the folder of local data, laid out like the repositories on the Hub."""
GENERATORS = {"planted_evidence": planted_evidence.generate, "counting": planted_evidence.count_digits}


@dataclass(frozen=True)
class LoadedDataset:
    """A data set, or sentence pairs, as read, checked, cut and filtered. `limited` draws limits without reading again.

    splits: train, validation and test; no instance is in two of them. seed: of limits. revision: the Hub's, "local-" and a
    digest of the files, or "generated-" with version and arguments. label_names: of each of the C labels. vocabulary_texts:
    the training texts (and questions) from which a vocabulary is counted: those before the length filter, as the papers do;
    after it where a limit draws from train. own: of own data, what was read and assumed.

    dropped counts rows left out, by split and reason: too_short, too_long, shortest, longest (of a split), empty (a side of
    a pair), limit (not drawn); and under "source", before a split exists, no_label, other_label, repeated, not_drawn (of the
    test split).
    """

    splits: Mapping[str, datasets.Dataset]
    entry: DatasetEntry
    seed: int
    revision: str
    dropped: dict[str, dict[str, int]]
    label_names: Sequence[str] = ()
    vocabulary_texts: Sequence[str] = field(default=(), repr=False)
    own: dict = field(default_factory=dict)

    @classmethod
    def from_frames(cls, frames, entry, revision, label_names, dropped, seed, own=None) -> "LoadedDataset":
        """Apply the entry's length filter to {split: its rows}. DatasetError where it leaves no row of a split."""
        splits = datasets.DatasetDict()
        for split in SPLITS:
            rows = frames[split]
            inside, dropped[split] = _length_filter(entry, word_counts(rows["text"], entry.preprocessing))
            if len(rows) and not inside.any():
                raise DatasetError(
                    f"The length filter of {entry.name!r} leaves no row of its {split} split ({dropped[split]})."
                )
            rows = rows[inside]
            columns = {name: pa.array(rows[name].tolist(), kind) for name, kind in TYPES.items() if name in rows}
            splits[split] = in_memory(pa.table(columns))
        return cls(splits, entry, seed, revision, dropped, label_names, _texts_of(frames["train"]), own or {})

    def limited(self, limits: Mapping[str, int] | None = None) -> "LoadedDataset":
        """The data set with at most so many rows of a split, {"train": 1000}: a random subset in file order.

        Raises DatasetError for limits of unknown splits.
        """
        check_sizes("limits", limits or {})
        splits, texts = datasets.DatasetDict(self.splits), self.vocabulary_texts
        dropped = {part: dict(counts) for part, counts in self.dropped.items()}
        for split, limit in (limits or {}).items():
            drawn = draw(np.arange(len(splits[split])), limit, self.seed, split)
            dropped.setdefault(split, {})["limit"] = len(splits[split]) - len(drawn)
            splits[split] = in_memory(splits[split].data.table.take(drawn))
            texts = _texts_of(splits["train"]) if split == "train" else texts
        return replace(self, splits=splits, dropped=dropped, vocabulary_texts=texts)

    @property
    def left_out(self) -> dict[str, int]:
        """The number of rows left out, by split."""
        return {split: sum(counts.values()) for split, counts in self.dropped.items()}

    def _counts(self, column: str) -> dict[str, np.ndarray]:
        """By split, the number of words of each text of a column; {} without that column."""
        return {
            split: word_counts(rows[column], self.entry.preprocessing)
            for split, rows in self.splits.items()
            if column in rows.column_names
        }

    @property
    def about(self) -> dict:
        """Of own data what was read and assumed, with the texts of each class and the quartiles of their words by split."""
        if not self.own:
            return {}
        labels = {split: np.bincount(rows["label"], minlength=len(self.label_names)) for split, rows in self.splits.items()}
        classes = {
            name: {split: int(counts[label]) for split, counts in labels.items()}
            for label, name in enumerate(self.label_names)
        }
        shares = (0, 0.25, 0.5, 0.75, 1)
        words = {split: np.quantile(counts, shares).tolist() for split, counts in self._counts("text").items()}
        return {**self.own, "classes": classes, "words": words}


def load_splits(
    name: str,
    *,
    limits: Mapping[str, int] | None = None,
    seed: int = 0,
    root: str | os.PathLike | None = None,
    impermissible_removed: bool = False,
    **arguments,
) -> LoadedDataset:
    """Load a data set of the registry, by its name.

    Args:
        limits: as `LoadedDataset.limited` takes them.
        seed: of limits and generated data; splits of published data do not depend on it.
        root: folder of local data; default the environment variable ATTNFAITH_DATA. A data set that has no folder in it is
            read from the Hub.
        impermissible_removed: read texts without their impermissible words, as the data set `DatasetEntry.permissible`.
        arguments: for generated data only: arguments of its `generate`, and sizes={"train": 2000, ...}.

    Raises DatasetError for an unknown data set, split or argument, data that cannot be found, wrong column names, a
    missing text or label and a label out of range (with the row), marks that are not 0 or 1 per word or
    mark nothing, impermissible words to be removed where none are named, and a split that the filter leaves empty.
    """
    entry = get_entry(name)
    check_sizes("limits", limits or {})
    target = entry.permissible if impermissible_removed else entry
    if entry.built_in:
        sizes = {**SIZES, **arguments.pop("sizes", {})}
        rows, revision = generated(GENERATORS[name], planted_evidence.VERSION, seed, arguments, sizes)
        tables = {split: pa.Table.from_pylist(part) for split, part in rows.items()}
    elif arguments:
        raise DatasetError(f"{sorted(arguments)} are arguments of generated data; {name!r} is read, not generated.")
    else:
        tables, revision = read_published(entry, root)

    dropped = {"source": {}}
    frames = {split: _published_rows(entry, split, table) for split, table in tables.items()}
    frames = _cut(entry, frames, dropped["source"])
    if entry.impermissible:
        check_any(entry.name, frames["train"]["impermissible"])
    if impermissible_removed:
        frames = {split: without_impermissible(rows) for split, rows in frames.items()}
    return LoadedDataset.from_frames(frames, target, revision, list(entry.label_names), dropped, seed).limited(limits)


def _texts_of(rows) -> list[str]:
    """The texts of a split, and then its second texts."""
    names = rows.column_names if isinstance(rows, datasets.Dataset) else rows
    return [text for name in ("text", "text_pair") if name in names for text in rows[name]]


def word_counts(texts: Sequence[str], preprocessing: str) -> np.ndarray:
    """Words of each text, without markers."""
    return np.array(list(map(len, split_words(texts, normalizer_of(preprocessing)))), np.int64)


def without_impermissible(rows: pd.DataFrame) -> pd.DataFrame:
    """The same rows, with texts without their impermissible words."""
    texts = [
        " ".join(word for word, mark in zip(text.split(), marks, strict=True) if not mark)
        for text, marks in zip(rows["text"], rows["impermissible"], strict=True)
    ]
    return rows.drop(columns="impermissible").assign(text=texts)


def data_root(root: str | os.PathLike | None) -> Path | None:
    """Return the folder of local data: `root`, else the one that ATTNFAITH_DATA names, else None."""
    root = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    return None if root is None else Path(root)


def file_digest(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file. DatasetError where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DatasetError(f"There is no file {path}: {error.strerror}.") from error


def draw(rows: np.ndarray, limit: int, seed: int, split: str) -> np.ndarray:
    """Draw at most `limit` rows at random, in their order."""
    if len(rows) <= limit:
        return rows
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    return np.sort(rng.permutation(rows)[:limit])


def read_published(entry: DatasetEntry, root: str | os.PathLike | None) -> tuple[dict, str]:
    """Read {source split: table} of published data, and their revision."""
    root = data_root(root)
    folder = root / entry.folder if root is not None else None
    advice = f"set {ROOT_VARIABLE} to the data root, which holds {entry.folder}. {entry.notes}"
    if folder is not None and folder.is_dir():
        try:
            configs = datasets.get_dataset_config_names(str(folder))
            loaded = datasets.load_dataset(str(folder), entry.hub_config if entry.hub_config in configs else None)
        except Exception as error:  # datasets and Arrow raise many kinds
            raise DatasetError(f"Cannot read {entry.name!r} from {folder}: {excerpt(error, 300)}. {entry.notes}") from error
        digest = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."):
            digest.update(str(path.relative_to(folder)).encode() + bytes.fromhex(file_digest(path)))
        revision = f"local-{digest.hexdigest()[:12]}"
    elif entry.hub_id is None:
        raise DatasetError(f"{entry.name!r} is read from your own files, and there are none: {advice}")
    else:
        try:
            loaded, revision = read_hub(entry.hub_id, entry.hub_config, entry.revision)
        except DatasetError as error:
            raise DatasetError(f"Cannot read {entry.name!r}: {error}; or fetch it, and {advice}") from error
    return {split: loaded[split].with_format("arrow")[:] for split in SPLITS if split in loaded}, revision


def read_hub(hub_id: str, config: str | None, revision: str | None) -> tuple[Mapping, str]:
    """Read the splits of a Hub data set, and the commit they were read at. Its code is never run.

    Raises DatasetError where it cannot be read.
    """
    try:
        builder = datasets.load_dataset_builder(hub_id, config, revision=revision)
        builder.download_and_prepare()
        return builder.as_dataset(), str(builder.hash)
    except Exception as error:  # datasets, Arrow and huggingface_hub raise many kinds
        advice = "unset HF_HUB_OFFLINE" if datasets.config.HF_HUB_OFFLINE else "check name, revision and connection"
        raise DatasetError(
            f"the data set {hub_id} at {revision or 'main'} cannot be read from the Hub: {type(error).__name__}: "
            f"{excerpt(error, 300)}. {advice}; a data set that was read before needs no connection"
        ) from error


def _published_rows(entry: DatasetEntry, split: str, table: pa.Table) -> pd.DataFrame:
    """The rows of a published split, with label, and marks as 0/1 for each word."""
    place, names = f"{entry.name!r}, {split} split", table.column_names
    count = entry.published_labels
    labels = [*range(count), *({entry.no_label} - {None})]
    rows = {"instance_id": [f"{entry.name}/{split}/{row}" for row in range(len(table))]}
    for column, choices in entry.columns.items():
        name = next((name for name in choices if name in names), None)
        if name is None:
            raise DatasetError(f"{place} needs a column {' or '.join(map(repr, choices))} ({column}); it has {names}.")
        rows[column] = values = table[name].to_pylist()
        if column == "impermissible":
            rows[column] = [check_marks(*row) for row in zip(values, rows["text"], rows["instance_id"], strict=True)]
            continue
        for row, value in enumerate(values):
            if column == "label" and value not in labels:
                raise DatasetError(f"{place}, row {row}: the label {value!r} is no whole number 0..{count - 1}")
            if column != "label" and not isinstance(value, str):
                raise DatasetError(f"{place}, row {row}: column {name!r} has no text ({value!r})")
    gold = next((name for name in entry.rationale if name in names), None)
    if gold is not None:
        words = split_words(rows["text"], normalizer_of(entry.preprocessing))
        values = zip(table[gold].to_pylist(), words, rows["instance_id"], strict=True)
        rows["rationale"] = [_rationale(gold, *value) for value in values]
    return pd.DataFrame(rows).astype({"label": np.int64})


def _rationale(column: str, gold: list, words: list[str], instance_id: str) -> list[int]:
    """Gold evidence as 0/1 per word, from marks, spans [start, end) of words, or quotes at their first occurrence."""
    size, marks, spans = len(words), [0] * len(words), gold
    if column == "rationale":
        if len(gold) != size or not set(gold) <= {0, 1}:
            raise DatasetError(f"{instance_id}: a rationale is one 0 or 1 for each of its {counted(size, 'word')}; {gold}.")
        return gold
    if column == "evidences":
        quotes = [quote for quote in (text.lower().split() for text in gold) if quote]
        starts = [next((at for at in range(size) if words[at : at + len(quote)] == quote), None) for quote in quotes]
        spans = [(at, at + len(quote)) for at, quote in zip(starts, quotes, strict=True) if at is not None]
    for start, end in spans:
        if not 0 <= start <= end <= size:
            raise DatasetError(f"{instance_id}: the evidence [{start}, {end}) lies outside its {counted(size, 'word')}.")
        marks[start:end] = [1] * (end - start)
    return marks


def _cut(entry: DatasetEntry, splits: dict[str, pd.DataFrame], dropped: dict[str, int]) -> dict[str, pd.DataFrame]:
    """Train, validation and test by the entry's rule: select labels, pool, and cut at random."""
    sizes = sum(map(len, splits.values()))
    if entry.no_label is not None:
        splits = {split: rows[rows["label"] != entry.no_label] for split, rows in splits.items()}
        dropped["no_label"] = sizes - sum(map(len, splits.values()))
    if entry.label_subset is not None:
        splits = {split: rows[rows["label"].isin(list(entry.label_subset))] for split, rows in splits.items()}
        splits = {split: rows.assign(label=rows["label"].map(entry.label_subset)) for split, rows in splits.items()}
        dropped["other_label"] = sizes - sum(map(len, splits.values()))
    rng = np.random.default_rng(entry.split_seed)
    if entry.pooled and splits:
        rows = pd.concat(splits.values(), ignore_index=True)
        group = np.arange(len(rows))
        if entry.distinct:  # all rows of one text are in one split
            distinct = rows.drop_duplicates(["text", "label"])
            dropped["repeated"] = len(rows) - len(distinct)
            rows, group = distinct, distinct["text"].factorize()[0]
        n_groups = int(group.max(initial=-1)) + 1
        place = rng.permutation(n_groups)[group]
        n_test = round(entry.test_fraction * n_groups)
        n_held_out = n_test + round(entry.validation_fraction * (n_groups - n_test))
        test, held_out = place < n_test, place < n_held_out
        return {"train": rows[~held_out], "validation": rows[held_out & ~test], "test": rows[test]}

    if entry.train_from_validation and "train" not in splits and "validation" in splits:
        splits["train"] = splits.pop("validation")
    for split in SPLITS if entry.validation_fraction is None else ("train", "test"):
        if split not in splits:
            raise DatasetError(f"{entry.name!r} has no {split} split; it has {', '.join(splits) or 'none'}.")
    if "validation" not in splits:
        train = splits["train"]
        group = train["text"].factorize()[0] if entry.pair else np.arange(len(train))
        n_groups = int(group.max(initial=-1)) + 1
        held_out = (rng.permutation(n_groups).argsort() < round(entry.validation_fraction * n_groups))[group]
        splits["validation"], splits["train"] = train[held_out], train[~held_out]
    if entry.test_fraction is not None:
        test = splits["test"]
        drawn = np.sort(rng.permutation(len(test))[: round(entry.test_fraction * len(test))])
        dropped["not_drawn"] = len(test) - len(drawn)
        splits["test"] = test.iloc[drawn]
    return splits


def _length_filter(entry: DatasetEntry, lengths: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Which rows have min_length < n < max_length, without the extremes that the entry drops, and the counts."""
    inside, counts = np.ones(len(lengths), bool), {}
    for reason, applies, outside in (
        ("too_short", entry.min_length is not None, lengths <= (entry.min_length or 0)),
        ("too_long", entry.max_length is not None, lengths >= (entry.max_length or 0)),
        ("shortest", entry.drop_shortest, lengths == lengths.min(initial=np.iinfo(np.int64).max)),
        ("longest", entry.drop_longest, lengths == lengths.max(initial=-1)),
    ):
        if applies:
            counts[reason] = int((inside & outside).sum())
            inside &= ~outside
    return inside, counts
