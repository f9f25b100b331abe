"""A user's own data: from a file, a folder or the Hub to checked and cut splits, with what was read, dropped and assumed.

Where a split is missing, of the different texts of each class a share is drawn at random for it. Texts that differ in case
and blanks only are one text; of pairs, all rows with one first text stay together. Published splits are not cut anew: a text
(of pairs, both texts) of training that is also in validation or test is left out of training, one of validation that is also
in test out of validation.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
import pandas as pd

from attnfaith.data.impermissible import check_marks, check_some, marks_of_words, read_marks, without
from attnfaith.data.labels import COLUMNS, WHOLE, class_of
from attnfaith.data.loading import Source, without_impermissible
from attnfaith.data.own_files import as_text, kind_of, read_file
from attnfaith.data.registry import SPLITS, entry_of
from attnfaith.support.errors import DatasetError, counted, cut, excerpt, nearest


ALL = "all rows"
"""The source split of data without splits."""
SPLIT_NAMES = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation"}
SPLIT_NAMES |= {"test": "test"}
"""Names of published splits, and ours."""
SPARE = 1.1
"""Rows drawn of those that the limits need: sizes are rounded, and texts come twice."""
MANY = 100
"""Classes above which it is asked whether the column is one of classes."""
MISSING = ("na", "n/a", "nan", "null", "none", "unknown", "?", "-")
"""Names that a class may have and that often stand for a missing label."""


@dataclass(frozen=True)
class OwnSource:
    """Rows as they lie there, and their names "<file or split>/<row>", by source split, ALL of a single file. revision:
    "local-" and a digest of the files, or a commit of the Hub. files: SHA-256 of each file.
    """

    splits: dict[str, datasets.Dataset]
    names: dict[str, list[str]]
    revision: str
    files: dict[str, str]


def read_own(data: object) -> Source:
    """The own data of a recipe's data section, read, checked and cut; `Source.limited` draws limits.

    Where `data.limits` bounds every split that is cut from the same rows, only so many texts are read that they can be met.

    Raises DatasetError for what cannot be read, columns that there are not or that cannot be told, labels that are no
    classes, fewer than two classes, too few texts of a class, and marks of impermissible words that are not one 0 or 1 for
    each word or mark nothing.
    """
    return _OwnData(data).cut()


def check_own(data: object) -> None:
    """Raise DatasetError where own files, their columns or their labels cannot be used, before any text is read."""
    _OwnData(data)


def read_texts(data: object, split: str, limit: int | None = None, seed: int = 0) -> datasets.Dataset:
    """The rows of own data that a model is to be measured on, with all their columns: of a file all of them, of a folder or
    of a data set of the Hub those of one split.

    data: the data section of a recipe. limit: that many rows, drawn at random by the seed, in their order.

    Raises DatasetError for what cannot be read, and for a split that is not there.
    """
    source = _read(data)
    if (name := ALL if ALL in source.splits else split) not in source.splits:
        raise DatasetError(
            f"{data.hub_id or data.path} has no split {excerpt(split)}: --split takes one of {', '.join(source.splits)}"
        )
    rows = source.splits[name]
    if limit is not None and limit < len(rows):
        rows = rows.select(_drawn(np.arange(len(rows)), limit, seed))
    if data.impermissible is None and data.impermissible_words is None:
        return rows
    column = data.text or "text"
    _check_columns(data, rows, [column, *filter(None, [data.impermissible])])
    texts = rows[column][:]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DatasetError(f"row {row} of column {column!r} is {excerpt(text, 60)}, no string: give a text")
    values = None if data.impermissible is None else rows[data.impermissible][:]
    marks = _marks(data, texts, values, [f"row {row}" for row in range(len(texts))])
    name, values = "impermissible", marks
    if data.impermissible_removed:
        name, values = column, [without(*row) for row in zip(texts, marks, strict=True)]
    return rows.remove_columns([name] if name in rows.column_names else []).add_column(name, values)


class _OwnData:
    """Own data with their columns and classes checked.

    columns: ours, and those that they are read from. labels: of each row by source split, None where it has none. names: of
    the classes. dropped: how many rows are left out, by reason. assumed: what the user should look at.
    """

    def __init__(self, data: object):
        self.data, self.entry, self.source = data, entry_of(data), _read(data)
        self.assumed: list[str] = []
        self.dropped: Counter = Counter()
        self.columns = self._columns()
        self.labels, self.names = self._classes(self.columns["label"])

    def _columns(self) -> dict[str, str]:
        """The columns of text, text_pair and impermissible (where the section names them) and label."""
        data, rows = self.data, next(iter(self.source.splits.values()))
        keys = ("text", "text_pair", "label", "impermissible")
        columns = {key: getattr(data, key) for key in keys if getattr(data, key) is not None}
        if twice := [name for name, count in Counter(columns.values()).items() if count > 1]:
            raise DatasetError(
                f"the column {excerpt(twice[0])} is named for two of text, text_pair, label and impermissible: name each "
                "its own"
            )
        _check_columns(data, rows, columns.values())
        for key in ("text", "label"):
            if key in columns:
                continue
            columns[key] = _column(key, rows.column_names, columns, data.hub_id or data.path)
            if columns[key] != key:
                self.assumed.append(f"{key} is read from the column {columns[key]!r}")
            others = [name for name in rows.column_names if name.lower() in COLUMNS and name != columns[key]]
            if key == "label" and others:
                self.assumed.append(
                    f"label is not read from the column {', '.join(map(repr, others))}: --data.label names another"
                )
        for split, others in self.source.splits.items():
            _check_columns(data, others, columns.values(), f": its {split} split")
        return {key: columns[key] for key in keys if key in columns}

    def _classes(self, column: str) -> tuple[dict[str, list[str | None]], list[str]]:
        """The class of each row, and the names of the classes of training: as published where the publisher names them,
        whole numbers (1.0 is 1) by their size, others in alphabetical order.
        """
        labels, published = {}, None
        for split, rows in self.source.splits.items():
            feature, values = rows.features[column], rows[column][:]
            if isinstance(feature, datasets.ClassLabel):
                published = published or feature.names
                values = [None if value is None or value < 0 else feature.names[value] for value in values]
            labels[split] = [class_of(value, column) for value in values]
        values = {label for split in labels.values() for label in split if label is not None}
        if numbers := all(map(re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?").fullmatch, values)):
            if fractions := sorted(value for value in values if not WHOLE.fullmatch(value)):
                raise DatasetError(
                    f"column {column!r} holds numbers such as {fractions[0]}, which are no classes: make words or whole "
                    "numbers of them"
                )
            labels = {split: [label and WHOLE.fullmatch(label)[1] for label in rows] for split, rows in labels.items()}
        first, rows = next(iter(labels.items()))
        classes = [label for label in rows if label is not None]
        if not classes:
            where = "" if first == ALL else f" of its {first} split"
            raise DatasetError(
                f"{self.entry.name!r}: none of {len(rows):,} rows{where} has a label in column {column!r}: name the column "
                "of the classes with --data.label"
            )
        values = set(classes)
        if len(values) < 2:
            raise DatasetError(
                f"column {column!r}: {counted(len(classes), 'label')}, all {excerpt(classes[0])}; a classifier needs two "
                "classes"
            )
        if len(values) > max(20, len(classes) / 3):
            raise DatasetError(
                f"column {column!r} has {len(values):,} different values in {len(classes):,} rows, so it holds no classes: "
                "name the one that does with --data.label"
            )
        names = sorted(values, key=lambda value: (int(value), value)) if numbers else sorted(values)
        if published:
            names = [name for name in published if name in values]
        if len(names) > MANY:
            self.assumed.append(
                f"{column} has {len(names):,} classes; is it the column of the classes? --data.label names another"
            )
        if odd := [name for name in names if name.lower() in MISSING]:
            listed = cut(", ".join(map(repr, odd)), 100)
            self.assumed.append(
                f"{listed} is taken for a class; where it means that there is no label, leave the field empty"
            )
        return labels, names

    def _usable(self, split: str) -> pd.DataFrame:
        """The rows of a source split that have a text and a class of training; the others are counted."""
        data, columns, labels = self.data, self.columns, self.labels[split]
        number = {name: label for label, name in enumerate(self.names)}
        usable = np.flatnonzero([label in number for label in labels])
        self.dropped["no_label"] += labels.count(None)
        self.dropped["label_not_in_training"] += len(labels) - len(usable) - labels.count(None)
        needed = self._needed(split)
        if needed is not None and needed < len(usable):
            self.dropped["limit"] += len(usable) - needed
            usable = _drawn(usable, needed, data.seed)
        chosen = self.source.splits[split].select_columns(list(dict.fromkeys(columns.values()))).select(usable)
        rows = {"instance_id": [f"{self.entry.name}/{self.source.names[split][row]}" for row in usable]}
        texts = [key for key in ("text", "text_pair") if key in columns]
        rows |= {key: [None if text is None else as_text(text) for text in chosen[columns[key]][:]] for key in texts}
        rows["label"] = [number[labels[row]] for row in usable]
        if "impermissible" in columns:
            rows["impermissible"] = chosen[columns["impermissible"]][:]
        frame = pd.DataFrame(rows)
        frame = frame[np.array([all(text and not text.isspace() for text in row) for row in frame[texts].to_numpy()], bool)]
        self.dropped["no_text"] += len(usable) - len(frame)
        if self.entry.impermissible or data.impermissible_removed:
            values = frame["impermissible"] if "impermissible" in columns else None
            frame = frame.assign(impermissible=_marks(data, frame["text"], values, frame["instance_id"]))
        return frame

    def _needed(self, split: str) -> int | None:
        """How many rows of a source split the limits need; None: all, as a limit is missing."""
        data, missing = self.data, [name for name in SPLITS if name not in self.source.splits]
        targets = SPLITS if split == ALL else ["train", *missing] if split == "train" else [split]
        if any(name not in data.limits for name in targets):
            return None
        shares = {name: {"validation": data.validation_share, "test": data.test_share}[name] for name in targets[1:]}
        shares[targets[0]] = 1 - sum(shares.values())
        spare = SPARE if len(shares) > 1 else 1
        return max(math.ceil(spare * data.limits[name] / share) for name, share in shares.items())

    def _split(self, source: Mapping[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], str]:
        """{split: its rows} of the usable rows of source splits, and the rule in a sentence."""
        published = [split for split in SPLITS if split in source]
        missing = [split for split in ("test", "validation") if split not in published]
        splits: dict[str, pd.DataFrame] = {}
        for split in reversed(published):  # each without the texts of those that are measured after it
            splits[split] = source[split]
            for other in [name for name in splits if name != split]:
                repeats = _text_keys(splits[split]).isin(set(_text_keys(splits[other])))
                self.dropped[f"also_in_{other}"] += int(repeats.sum())
                splits[split] = splits[split][~repeats]
                if not len(splits[split]):
                    raise DatasetError(f"every text of the {split} split is in {other} too, so nothing is left of it")
        rest = splits.get("train", next(iter(source.values())))
        shares, pairs = {"test": self.data.test_share, "validation": self.data.validation_share}, "text_pair" in rest
        texts = _text_keys(rest, first=True).nunique()
        for split in missing:
            splits[split], rest = _draw(rest, round(shares[split] * texts), self.names, self.data.split_seed)
        splits["train"] = rest
        splits = {split: splits[split] for split in SPLITS}
        for split in ("train", *missing):
            present = set(splits[split]["label"])
            lacking = cut(", ".join(repr(name) for label, name in enumerate(self.names) if label not in present), 200)
            if lacking and split == "train":
                raise DatasetError(f"no train text is left of {lacking}: give more, leave it out, or try another split_seed")
            if lacking:
                self.assumed.append(f"{split} has no text of {lacking}: there are few; --data.{split}_share gives it more")
        rule = []
        if published:
            what = "pairs" if pairs else "texts"
            rule.append(f"{', '.join(published)} as published, less {what} of training that another split has too")
        if missing:
            rule.append(
                f"drawn at random{' of train' if published else ''} (seed {self.data.split_seed}) from the different "
                f"{'first texts' if pairs else 'texts of each class'}: "
                f"{', '.join(f'{shares[split]:.0%} {split}' for split in missing)}, the rest train; all rows of one "
                f"{'first ' if pairs else ''}text, case and blanks aside, are in one of them"
            )
        return splits, "; ".join(rule)

    def cut(self) -> Source:
        """The rows cut into splits, with what was read, dropped and assumed."""
        data, entry, dropped = self.data, self.entry, self.dropped
        source = {split: self._usable(split) for split in self.source.splits}
        if unlabelled := [split for split, rows in source.items() if not len(rows) and split not in (ALL, "train")]:
            self.assumed.append(f"{' and '.join(unlabelled)}: no row has text and label, so it is not used")
            source = {split: rows for split, rows in source.items() if split not in unlabelled}
        first, rest = next(iter(source.items()))
        if not len(rest):
            raise DatasetError(
                f"{entry.name!r}: no row of {first} has text in {self.columns['text']!r}: name it with --data.text"
            )
        splits, rule = self._split(source)
        every = pd.concat(splits.values(), ignore_index=True)
        labels_of_texts = every["label"].groupby(_text_keys(every)).nunique()
        about = {
            "rows": sum(map(len, self.source.splits.values())),
            "columns": self.columns,
            "splits": rule,
            "repeated": len(every) - len(labels_of_texts),
            "two_labels": int((labels_of_texts > 1).sum()),
            "assumed": self.assumed,
            "files": self.source.files,
        }
        if "impermissible" in splits["train"]:
            check_some(entry.name, splits["train"]["impermissible"])
        if data.impermissible_removed:
            splits = {split: without_impermissible(rows) for split, rows in splits.items()}
        counts = {"source": {reason: count for reason, count in dropped.items() if count}}
        return Source.of(entry, data.seed, self.source.revision, self.names, counts, splits, about)


# ------------------------------------------------------------------------------------------------ where rows are


def _read(data: object) -> OwnSource:
    if data.hub_id is not None:
        return _read_hub(data)
    path = Path(data.path).expanduser()
    splits, names, digests, files = {}, {}, [], {}
    for split, paths in (_files_of(path) if path.is_dir() else {ALL: [path]}).items():
        tables = [read_file(file, encoding=data.encoding, delimiter=data.delimiter, quotes=data.quotes) for file in paths]
        for file in paths:
            with file.open("rb") as stream:
                files[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
            digests.append(f"{split} {files[file.name]}")
        if len({tuple(table.column_names) for table in tables}) > 1:
            raise DatasetError(f"the {split} files of {path} have other columns than each other")
        splits[split] = datasets.concatenate_datasets(tables)
        names[split] = [f"{f.name}/{row}" for f, table in zip(paths, tables, strict=True) for row in range(len(table))]
    return OwnSource(splits, names, f"local-{hashlib.sha256(' '.join(digests).encode()).hexdigest()[:12]}", files)


def _files_of(folder: Path) -> dict[str, list[Path]]:
    """{split: its files} of a folder with train.csv and the like."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror or error}") from error
    splits: dict[str, list[Path]] = {}
    for path in paths:
        name = re.split(r"[-_.]", path.name.lower())[0]
        if name in SPLIT_NAMES and kind_of(path):
            splits.setdefault(SPLIT_NAMES[name], []).append(path)
    if "train" not in splits:
        raise DatasetError(
            f"{folder} has no train split, which is a file such as train.csv, with validation.csv and test.csv beside it "
            f"where there are such. It holds {cut(', '.join(path.name for path in paths) or 'no file', 200)}. Of one file "
            "give the path itself"
        )
    return {split: splits[split] for split in SPLITS if split in splits}


def _read_hub(data: object) -> OwnSource:
    """The splits of a data set of the Hub that are used, at the commit that was read. No code of it is run."""
    place = f"{data.hub_id} at {data.revision or 'main'}"
    try:
        builder = datasets.load_dataset_builder(data.hub_id, data.config, revision=data.revision)
        builder.download_and_prepare()
        loaded = builder.as_dataset()
    except Exception as error:  # datasets, Arrow and huggingface_hub raise many kinds
        check = "HF_HUB_OFFLINE is set: unset it" if datasets.config.HF_HUB_OFFLINE else "Check name, revision, connection"
        raise DatasetError(
            f"the data set {place} cannot be read from the Hub: {type(error).__name__}: {excerpt(error, 300)}. {check} (a "
            "data set that was read before is read again without a connection)"
        ) from error
    parts = {SPLIT_NAMES[name.lower()]: name for name in reversed(loaded) if name.lower() in SPLIT_NAMES}
    if "train" not in parts:
        raise DatasetError(f"the data set {place} has no train split; it has {', '.join(map(str, loaded))}")
    splits = {split: loaded[parts[split]] for split in SPLITS if split in parts}
    names = {split: [f"{parts[split]}/{row}" for row in range(len(rows))] for split, rows in splits.items()}
    return OwnSource(splits, names, str(builder.hash), {})


# ------------------------------------------------------------------------------------------------ columns, marks and draws


def _check_columns(data: object, rows: datasets.Dataset, names: Sequence[str], part: str = "") -> None:
    for name in names:
        if name not in rows.column_names:
            near = nearest(name, rows.column_names)
            raise DatasetError(f"{data.hub_id or data.path}{part} has no column {excerpt(name)}{near}")


def _column(key: str, names: list[str], columns: Mapping[str, str], place: str) -> str:
    """The column of text or of label where the user names none: the one of that name, or the only one that is left."""
    free = [name for name in names if name not in columns.values()]
    for word in COLUMNS if key == "label" else (key,):
        if len(named := [name for name in free if name.lower() == word]) == 1:
            return named[0]
    other = "label" if key == "text" else "text"
    left = [name for name in free if other in columns or name.lower() != other]
    if len(left) == 1:
        return left[0]
    listed = cut(", ".join(map(repr, names)), 300)
    raise DatasetError(f"{place} has no column {key!r}; it has {listed}: name the one of the {key} with --data.{key}")


def _marks(data: object, texts: Sequence[str], values: Sequence | None, places: Sequence[str]) -> list[list[int]]:
    """Marks of impermissible words, of the column's values or of the section's list of words."""
    if values is None:
        return marks_of_words(texts, data.impermissible_words)
    cells = zip(values, texts, places, strict=True)
    return [check_marks(read_marks(value), text, place) for value, text, place in cells]


def _drawn(rows: np.ndarray, limit: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))


def _text_keys(rows: pd.DataFrame, *, first: bool = False) -> pd.Series:
    """Of each row its text, case and blanks aside; of pairs both texts, or the first only."""
    columns = [rows[name] for name in ("text", "text_pair") if name in rows][: 1 if first else 2]
    keys = ["\0".join(" ".join(text.split()).casefold() for text in texts) for texts in zip(*columns, strict=True)]
    return pd.Series(keys, index=rows.index, dtype=object)


def _draw(rows: pd.DataFrame, size: int, names: Sequence[str], seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `size` different texts drawn at random, alike from each class, and the other rows."""
    keys, pairs = _text_keys(rows, first=True), "text_pair" in rows
    texts = pd.DataFrame({"text": keys, "label": rows["label"]}).drop_duplicates("text")
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=list(names)))
    size = max(size, 1 if pairs else len(names))
    try:
        parts = datasets.Dataset.from_dict(texts.to_dict("list"), features).train_test_split(
            test_size=size, stratify_by_column=None if pairs else "label", seed=seed
        )
    except ValueError as error:
        counts = [f"{name} {(texts['label'] == label).sum()}" for label, name in enumerate(names)]
        raise DatasetError(
            f"too few different texts to draw a split of {size} from {len(texts)} ({cut(', '.join(counts), 200)}): give "
            f"more, or leave a class out ({error})"
        ) from error
    drawn = keys.isin(set(parts["test"]["text"]))
    return rows[drawn], rows[~drawn]
