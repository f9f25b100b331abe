"""A user's own data: from a file, a folder or the Hub to checked and cut splits, with what was read, dropped and assumed."""

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

from attnfaith.data import rows as frames
from attnfaith.data.impermissible import check_marks, check_some, marks_of_words, read_marks, without
from attnfaith.data.loading import Source
from attnfaith.data.own_files import as_text, kind_of, read_file
from attnfaith.data.own_labels import COLUMNS, alike, class_of, names_of
from attnfaith.data.own_splits import cut_own, repeated
from attnfaith.data.registry import SPLITS, DatasetEntry, entry_of
from attnfaith.errors import DatasetError, cut, excerpt, nearest


ALL = "all rows"
"""The source split of data without splits."""
SPLIT_NAMES = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation"}
SPLIT_NAMES |= {"test": "test"}
"""Names of published splits, and ours."""
SPARE = 1.1
"""Rows drawn of those that the limits need: sizes are rounded, and texts come twice."""


@dataclass(frozen=True)
class OwnSplit:
    """rows: of one source split. names: of each row, "<file or split>/<row>"."""

    rows: datasets.Dataset
    names: list[str]


@dataclass(frozen=True)
class OwnSource:
    """splits: by source split, ALL of a single file. revision: "local-" and a digest of the files, or a commit of the Hub.
    files: SHA-256 of each file.
    """

    splits: dict[str, OwnSplit]
    revision: str
    files: dict[str, str]


def read_own(data: object) -> Source:
    """The own data of a recipe's data section, read, checked and cut; `Source.limited` draws limits.

    Where `data.limits` bounds every split that is cut from the same rows, only so many texts are read that they can be met.

    Raises DatasetError for what cannot be read, columns that there are not or that cannot be told, labels that are no
    classes, fewer than two classes, too few texts of a class, and marks of impermissible words that are not one 0 or 1 for
    each word or mark nothing.
    """
    entry = entry_of(data)
    source, columns, assumed = _opened(data)
    labels, names = _classes(source, columns["label"], entry.name, assumed)
    dropped: Counter = Counter()
    splits = {split: _usable(data, entry, source, split, columns, labels[split], names, dropped) for split in source.splits}
    if unlabelled := [split for split, rows in splits.items() if not len(rows) and split not in (ALL, "train")]:
        assumed.append(f"{' and '.join(unlabelled)}: no row has text and label, so it is not used")
        splits = {split: rows for split, rows in splits.items() if split not in unlabelled}
    first = next(iter(splits))
    if not len(splits[first]):
        raise DatasetError(f"{entry.name!r}: no row of {first} has text in {columns['text']!r}: name it with --data.text")
    shares = {"test": data.test_share, "validation": data.validation_share}
    splits, rule = cut_own(splits, names, shares, data.split_seed, dropped, assumed)
    about = {
        "rows": sum(len(split.rows) for split in source.splits.values()),
        "columns": columns,
        "splits": rule,
        **repeated(splits),
        "assumed": assumed,
        "files": source.files,
    }
    if "impermissible" in splits["train"]:
        check_some(entry.name, splits["train"]["impermissible"])
    if data.impermissible_removed:
        splits = {split: frames.without_impermissible(rows) for split, rows in splits.items()}
    lengths = {split: frames.word_counts(rows["text"], entry.preprocessing) for split, rows in splits.items()}
    kept = {split: np.arange(len(rows)) for split, rows in splits.items()}
    counts = {"source": {reason: count for reason, count in dropped.items() if count}, **{split: {} for split in SPLITS}}
    return Source(entry, data.seed, source.revision, names, counts, splits, lengths, kept, about)


def check_own(data: object) -> None:
    """Raise DatasetError where own files, their columns or their labels cannot be used, before any text is read."""
    source, columns, assumed = _opened(data)
    _classes(source, columns["label"], entry_of(data).name, assumed)


def read_texts(data: object, split: str, limit: int | None = None, seed: int = 0) -> datasets.Dataset:
    """The rows of own data that a model is to be measured on, with all their columns: of a file all of them, of a folder or
    of a data set of the Hub those of one split.

    data: the data section of a recipe. limit: that many rows, drawn at random by the seed, in their order.

    Raises DatasetError for what cannot be read, and for a split that is not there.
    """
    source = _read(data)
    own = source.splits.get(ALL) or source.splits.get(split)
    if own is None:
        raise DatasetError(
            f"{data.hub_id or data.path} has no split {excerpt(split)}: --split takes one of {', '.join(source.splits)}"
        )
    rows = own.rows
    if limit is not None and limit < len(rows):
        rows = rows.select(_drawn(np.arange(len(rows)), limit, seed))
    if data.impermissible is None and data.impermissible_words is None:
        return rows
    column = data.text or "text"
    for name in (column, *([data.impermissible] if data.impermissible else [])):
        if name not in rows.column_names:
            raise DatasetError(f"there is no column {excerpt(name)}; there are {cut(', '.join(rows.column_names), 300)}")
    texts = rows[column][:]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DatasetError(f"row {row} of column {column!r} is {excerpt(text, 60)}, no string: give a text")
    values = None if data.impermissible is None else rows[data.impermissible][:]
    marks = _marks(data, texts, values, [f"row {row}" for row in range(len(texts))])
    name, values = "impermissible", marks
    if data.impermissible_removed:
        name, values = column, [without(*row) for row in zip(texts, marks, strict=True)]
    if name in rows.column_names:
        rows = rows.remove_columns(name)
    return rows.add_column(name, values)


# ------------------------------------------------------------------------------------------------ where rows are


def _opened(data: object) -> tuple[OwnSource, dict[str, str], list[str]]:
    """The source, our columns and those that they are read from, and what is assumed of these."""
    source, assumed = _read(data), []
    columns = _columns(data, source, assumed)
    for split, own in source.splits.items():
        for name in columns.values():
            if name not in own.rows.column_names:
                place = f"{data.hub_id or data.path}: its {split} split"
                raise DatasetError(f"{place} has no column {excerpt(name)}{nearest(name, own.rows.column_names)}")
    return source, columns, assumed


def _read(data: object) -> OwnSource:
    if data.hub_id is not None:
        return _read_hub(data)
    path = Path(data.path).expanduser()
    paths = _files_of(path) if path.is_dir() else {ALL: [path]}
    splits, digests, files = {}, [], {}
    for split, listed in paths.items():
        tables = [read_file(file, encoding=data.encoding, delimiter=data.delimiter, quotes=data.quotes) for file in listed]
        for file in listed:
            with file.open("rb") as stream:
                files[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
            digests.append(f"{split} {files[file.name]}")
        if len({tuple(table.column_names) for table in tables}) > 1:
            raise DatasetError(f"the {split} files of {path} have other columns than each other")
        rows = datasets.concatenate_datasets(tables)
        names = [f"{file.name}/{row}" for file, table in zip(listed, tables, strict=True) for row in range(len(table))]
        splits[split] = OwnSplit(rows, names)
    return OwnSource(splits, f"local-{hashlib.sha256(' '.join(digests).encode()).hexdigest()[:12]}", files)


def _files_of(folder: Path) -> dict[str, list[Path]]:
    """{split: its files} of a folder with train.csv and the like. Raises DatasetError where it has no training file."""
    try:
        listed = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror or error}") from error
    splits: dict[str, list[Path]] = {}
    for path in listed:
        name = re.split(r"[-_.]", path.name.lower())[0]
        if name in SPLIT_NAMES and kind_of(path):
            splits.setdefault(SPLIT_NAMES[name], []).append(path)
    if "train" not in splits:
        names = cut(", ".join(path.name for path in listed) or "no file", 200)
        raise DatasetError(
            f"{folder} has no train split, which is a file such as train.csv, with validation.csv and test.csv beside it "
            f"where there are such. It holds {names}. Of one file give the path itself"
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
        check = "Check name, revision and connection"
        if datasets.config.HF_HUB_OFFLINE:
            check = "HF_HUB_OFFLINE is set: unset it"
        raise DatasetError(
            f"the data set {place} cannot be read from the Hub: {type(error).__name__}: {excerpt(error, 300)}. {check} (a "
            "data set that was read before is read again without a connection)"
        ) from error
    splits: dict[str, OwnSplit] = {}
    for name, rows in loaded.items():
        if name.lower() in SPLIT_NAMES:
            splits.setdefault(SPLIT_NAMES[name.lower()], OwnSplit(rows, [f"{name}/{row}" for row in range(len(rows))]))
    if "train" not in splits:
        raise DatasetError(f"the data set {place} has no train split; it has {', '.join(map(str, loaded))}")
    return OwnSource({split: splits[split] for split in SPLITS if split in splits}, str(builder.hash), {})


# ------------------------------------------------------------------------------------------------ which columns


def _columns(data: object, source: OwnSource, assumed: list[str]) -> dict[str, str]:
    """The columns of text, text_pair and impermissible (where the section names them) and label."""
    own = next(iter(source.splits.values()))
    names = own.rows.column_names
    keys = ("text", "text_pair", "label", "impermissible")
    columns = {key: getattr(data, key) for key in keys if getattr(data, key) is not None}
    if twice := {name for name in columns.values() if list(columns.values()).count(name) > 1}:
        raise DatasetError(
            f"the column {excerpt(twice.pop())} is named for two of text, text_pair, label and impermissible: name each its "
            "own"
        )
    for name in columns.values():
        if name not in names:
            raise DatasetError(f"{data.hub_id or data.path} has no column {excerpt(name)}{nearest(name, names)}")
    for key in ("text", "label"):
        if key in columns:
            continue
        columns[key] = _column(key, names, columns, data.hub_id or data.path)
        if columns[key] != key:
            assumed.append(f"{key} is read from the column {columns[key]!r}")
        others = [name for name in names if name.lower() in COLUMNS and name != columns[key]]
        if key == "label" and others:
            assumed.append(f"label is not read from the column {', '.join(map(repr, others))}: --data.label names another")
    return {key: columns[key] for key in keys if key in columns}


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


def _classes(source: OwnSource, column: str, name: str, assumed: list[str]) -> tuple[dict[str, list[str | None]], list[str]]:
    """The class of each row by source split, None where it has none, and the names of the classes of training.

    Raises DatasetError where no row of training has a class, and as `class_of`, `alike` and `names_of`.
    """
    labels, published = {}, None
    for split, own in source.splits.items():
        feature, values = own.rows.features[column], own.rows[column][:]
        if isinstance(feature, datasets.ClassLabel):
            published = published or feature.names
            values = [None if value is None or value < 0 else feature.names[value] for value in values]
        labels[split] = [class_of(value, column) for value in values]
    labels = dict(zip(labels, alike(list(labels.values()), column), strict=True))
    first, rows = next(iter(labels.items()))
    classes = [label for label in rows if label is not None]
    if not rows:
        raise DatasetError(f"{name!r} has columns and no rows")
    if not classes:
        where = "" if first == ALL else f" of its {first} split"
        raise DatasetError(
            f"{name!r}: none of {len(rows):,} rows{where} has a label in column {column!r}: name the column of the classes "
            "with --data.label"
        )
    return labels, names_of(classes, column, published, assumed)


# ------------------------------------------------------------------------------------------------ the rows


def _usable(
    data: object,
    entry: DatasetEntry,
    source: OwnSource,
    split: str,
    columns: Mapping[str, str],
    labels: Sequence[str | None],
    names: Sequence[str],
    dropped: Counter,
) -> pd.DataFrame:
    """The rows of a source split that have a text and a class of training; dropped takes the counts of the others."""
    own, number = source.splits[split], {name: label for label, name in enumerate(names)}
    usable = np.flatnonzero([label in number for label in labels])
    dropped["no_label"] += labels.count(None)
    dropped["label_not_in_training"] += len(labels) - len(usable) - labels.count(None)
    needed = _needed(data, source, split)
    if needed is not None and needed < len(usable):
        dropped["limit"] += len(usable) - needed
        usable = _drawn(usable, needed, data.seed)
    chosen = own.rows.select_columns(list(dict.fromkeys(columns.values()))).select(usable)
    rows = {"instance_id": [f"{entry.name}/{own.names[row]}" for row in usable]}
    for key in ("text", "text_pair"):
        if key in columns:
            rows[key] = [None if text is None else as_text(text) for text in chosen[columns[key]][:]]
    rows["label"] = [number[labels[row]] for row in usable]
    if "impermissible" in columns:
        rows["impermissible"] = chosen[columns["impermissible"]][:]
    frame = pd.DataFrame(rows)
    filled = np.ones(len(frame), bool)
    for key in ("text", "text_pair"):
        if key in columns:
            filled &= np.array([bool(text and not text.isspace()) for text in rows[key]], bool)
    dropped["no_text"] += int((~filled).sum())
    frame = frame[filled]
    if entry.impermissible or data.impermissible_removed:
        values = frame["impermissible"] if "impermissible" in columns else None
        frame = frame.assign(impermissible=_marks(data, frame["text"], values, frame["instance_id"]))
    return frame


def _marks(data: object, texts: Sequence[str], values: Sequence | None, places: Sequence[str]) -> list[list[int]]:
    """Marks of impermissible words, of the column's values or of the section's list of words."""
    if values is None:
        return marks_of_words(texts, data.impermissible_words)
    cells = zip(values, texts, places, strict=True)
    return [check_marks(read_marks(value), text, place) for value, text, place in cells]


def _needed(data: object, source: OwnSource, split: str) -> int | None:
    """How many rows of a source split the limits need; None: all, as a limit is missing."""
    cut_from = {ALL: SPLITS, "train": ["train", *(name for name in SPLITS if name not in source.splits)]}.get(split, [split])
    if any(name not in data.limits for name in cut_from):
        return None
    shares = {"validation": data.validation_share, "test": data.test_share} if len(cut_from) > 1 else {}
    shares = {name: shares[name] for name in cut_from[1:]}
    shares[cut_from[0]] = 1 - sum(shares.values())
    spare = SPARE if len(shares) > 1 else 1
    return max(math.ceil(spare * data.limits[name] / share) for name, share in shares.items())


def _drawn(rows: np.ndarray, limit: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
