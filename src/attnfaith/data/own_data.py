"""A user's own data, from a file, a folder or the Hub to checked splits, with what was read, left out and assumed.

For a missing split, a random share of the different texts of each class is drawn. Texts that differ only in case and blanks
are one text; in pairs, all rows with one first text stay together. Published splits are not cut anew: a training text (in
pairs, both texts) that is also in validation or test is left out of training, and a validation text that is also in test is
left out of validation.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import datasets
import numpy as np
import pandas as pd

from attnfaith.data.impermissible import check_any, mark_words
from attnfaith.data.labels import COLUMNS, WHOLE, class_of
from attnfaith.data.loading import LoadedDataset, without_impermissible
from attnfaith.data.own_files import as_text, kind_of, read_file
from attnfaith.data.registry import SPLITS, entry_of
from attnfaith.data.sources import read_hub
from attnfaith.support.errors import DatasetError, counted, cut, excerpt, nearest


ALL = "all rows"
"""The source split of data without splits."""
SPLIT_NAMES = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation"}
SPLIT_NAMES |= {"test": "test"}
"""Names of published splits, and ours."""
MANY = 100
"""Number of classes above which a remark asks whether the column holds classes."""
MISSING = ("na", "n/a", "nan", "null", "none", "unknown", "?", "-")
"""Names that a class may have and that often stand for a missing label."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
KEYS = ("text", "text_pair", "label")


@dataclass
class OwnSource:
    """Rows as published, and their names "<file or split>/<row>", by source split (ALL for a single file).

    revision: "local-" and a digest of the files, or a commit of the Hub. files: SHA-256 of each file. place: path or
    repository, for messages. columns: {our column: the column it is read from}. labels: the class of each row by source
    split, None without one. classes: their names. assumed: remarks that the user should check.
    """

    splits: dict[str, datasets.Dataset]
    names: dict[str, list[str]]
    revision: str
    files: dict[str, str]
    place: str
    columns: dict[str, str] = field(default_factory=dict)
    labels: dict[str, list[str | None]] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)


def read_own(data: object) -> LoadedDataset:
    """Read, check and cut the data that a recipe's data section names; `LoadedDataset.limited` draws limits.

    Raises DatasetError for unreadable data, missing or ambiguous columns, labels that are no classes, fewer than two
    classes, too few texts of a class, and impermissible words that no training text has.
    """
    source, entry, dropped = check_own(data), entry_of(data), Counter()
    parts = {split: _usable(source, split, data, dropped) for split in source.splits}
    unlabelled = [split for split in ("validation", "test") if split in parts and not len(parts[split])]
    for split in unlabelled:
        source.assumed.append(f"{split}: no row has text and label, so it is not used")
        del parts[split]
    first, rows = next(iter(parts.items()))
    if not len(rows):
        raise DatasetError(
            f"{entry.name!r}: no row of {first} has text in {source.columns['text']!r}: name it with --data.text"
        )
    splits, rule = _split(parts, source, data, dropped)
    all_rows = pd.concat(splits.values(), ignore_index=True)
    labels_of_texts = all_rows["label"].groupby(_text_keys(all_rows)).nunique()
    own = {
        "rows": sum(map(len, source.splits.values())),
        "columns": source.columns,
        "splits": rule,
        "repeated": len(all_rows) - len(labels_of_texts),
        "two_labels": int((labels_of_texts > 1).sum()),
        "assumed": source.assumed,
        "files": source.files,
    }
    if "impermissible" in all_rows:
        check_any(entry.name, splits["train"]["impermissible"])
    if data.impermissible_removed:
        splits = {split: without_impermissible(rows) for split, rows in splits.items()}
    left_out = {"source": {reason: count for reason, count in dropped.items() if count}}
    return LoadedDataset.from_frames(splits, entry, source.revision, source.classes, left_out, data.seed, own)


def check_own(data: object) -> OwnSource:
    """Return own data with columns and classes chosen. Raises DatasetError where they cannot be used, before any text is
    read.
    """
    source = _read(data)
    source.columns = _columns(source, data)
    _read_classes(source)
    return source


def read_texts(data: object, split: str, limit: int | None = None, seed: int = 0) -> datasets.Dataset:
    """Return the rows to measure a model on, with all their columns: all rows of a file, one split of a folder or Hub set.

    data: the data section of a recipe. limit: number of rows, drawn at random by the seed, in their order.

    Raises DatasetError for unreadable data and an unknown split.
    """
    source = _read(data)
    name = ALL if ALL in source.splits else split
    if name not in source.splits:
        raise DatasetError(f"{source.place} has no split {excerpt(split)}: --split takes one of {', '.join(source.splits)}")
    rows = source.splits[name]
    if limit is not None and limit < len(rows):
        rows = rows.select(np.sort(np.random.default_rng(seed).choice(np.arange(len(rows)), limit, replace=False)))
    if data.impermissible_words is None:
        return rows
    column = data.text or "text"
    _check_columns(source, rows, [column])
    texts = [_text(value, column, f"row {row}") for row, value in enumerate(rows[column])]
    frame = pd.DataFrame({"text": texts, "impermissible": mark_words(texts, data.impermissible_words)})
    name, values = "impermissible", frame["impermissible"].tolist()
    if data.impermissible_removed:
        name, values = column, without_impermissible(frame)["text"].tolist()
    return rows.remove_columns([name] if name in rows.column_names else []).add_column(name, values)


# ------------------------------------------------------------------------------------------------ sources


def _read(data: object) -> OwnSource:
    if data.hub_id is not None:
        loaded, commit = read_hub(data.hub_id, data.config, data.revision)
        parts = {SPLIT_NAMES[name.lower()]: name for name in reversed(loaded) if name.lower() in SPLIT_NAMES}
        if "train" not in parts:
            place = f"{data.hub_id} at {data.revision or 'main'}"
            raise DatasetError(f"the data set {place} has no train split; it has {', '.join(map(str, loaded))}")
        splits = {split: loaded[parts[split]] for split in SPLITS if split in parts}
        names = {split: [f"{parts[split]}/{row}" for row in range(len(rows))] for split, rows in splits.items()}
        return OwnSource(splits, names, commit, {}, data.hub_id)
    path = Path(data.path).expanduser()
    splits, names, digests, files = {}, {}, [], {}
    for split, paths in (_files_of(path) if path.is_dir() else {ALL: [path]}).items():
        tables = [read_file(file, encoding=data.encoding, delimiter=data.delimiter, quotes=data.quotes) for file in paths]
        for file in paths:
            with file.open("rb") as stream:
                files[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
            digests.append(f"{split} {files[file.name]}")
        if len({tuple(table.column_names) for table in tables}) > 1:
            raise DatasetError(f"the {split} files of {path} have different columns; give all of them the same")
        splits[split] = datasets.concatenate_datasets(tables)
        names[split] = [f"{f.name}/{row}" for f, table in zip(paths, tables, strict=True) for row in range(len(table))]
    revision = f"local-{hashlib.sha256(' '.join(digests).encode()).hexdigest()[:12]}"
    return OwnSource(splits, names, revision, files, data.path)


def _files_of(folder: Path) -> dict[str, list[Path]]:
    """{split: its files} of a folder with train.csv and the like."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    splits: dict[str, list[Path]] = {}
    for path in paths:
        name = re.split(r"[-_.]", path.name.lower())[0]
        if name in SPLIT_NAMES and kind_of(path):
            splits.setdefault(SPLIT_NAMES[name], []).append(path)
    if "train" not in splits:
        raise DatasetError(
            f"{folder} has no train split, a file such as train.csv (validation.csv and test.csv may lie beside it). It "
            f"holds {cut(', '.join(path.name for path in paths) or 'no file', 200)}. Give the path of a single file itself"
        )
    return {split: splits[split] for split in SPLITS if split in splits}


# ------------------------------------------------------------------------------------------------ columns and classes


def _columns(source: OwnSource, data: object) -> dict[str, str]:
    columns = {key: getattr(data, key) for key in KEYS if getattr(data, key) is not None}
    twice = [name for name, count in Counter(columns.values()).items() if count > 1]
    if twice:
        raise DatasetError(f"the column {excerpt(twice[0])} is named for two of {', '.join(KEYS)}: name each its own")
    rows = next(iter(source.splits.values()))
    _check_columns(source, rows, columns.values())
    for key in ("text", "label"):
        if key in columns:
            continue
        columns[key] = name = _column(source.place, key, rows.column_names, columns)
        if name != key:
            source.assumed.append(f"{key} is read from the column {name!r}")
        unread = [repr(other) for other in rows.column_names if other.lower() in COLUMNS and other != name]
        if key == "label" and unread:
            source.assumed.append(f"label is not read from the column {', '.join(unread)}: --data.label names another")
    for split, part in source.splits.items():
        _check_columns(source, part, columns.values(), f": its {split} split")
    return {key: columns[key] for key in KEYS if key in columns}


def _check_columns(source: OwnSource, rows: datasets.Dataset, names: Sequence[str], part: str = "") -> None:
    for name in names:
        if name not in rows.column_names:
            raise DatasetError(f"{source.place}{part} has no column {excerpt(name)}{nearest(name, rows.column_names)}")


def _column(place: str, key: str, names: list[str], columns: Mapping[str, str]) -> str:
    """The column of text or label that the user did not name: the one of that name, or the only one that is left."""
    free = [name for name in names if name not in columns.values()]
    for word in COLUMNS if key == "label" else (key,):
        same = [name for name in free if name.lower() == word]
        if len(same) == 1:
            return same[0]
    other = "label" if key == "text" else "text"
    rest = [name for name in free if other in columns or name.lower() != other]
    if len(rest) == 1:
        return rest[0]
    listed = cut(", ".join(map(repr, names)), 300)
    raise DatasetError(f"{place} has no column {key!r}; it has {listed}: name the column of the {key} with --data.{key}")


def _read_classes(source: OwnSource) -> None:
    """The class of each row, and the training classes: in the publisher's order, numbers by size, words by alphabet."""
    column, published, advice = source.columns["label"], None, "name the column of the classes with --data.label"
    for split, rows in source.splits.items():
        feature, values = rows.features[column], rows[column][:]
        if isinstance(feature, datasets.ClassLabel):
            published = published or feature.names
            values = [None if value is None or value < 0 else feature.names[value] for value in values]
        source.labels[split] = [class_of(value, f"column {column!r}") for value in values]
    values = {label for labels in source.labels.values() for label in labels if label is not None}
    numbers = all(map(NUMBER.fullmatch, values))
    fractions = sorted(value for value in values if not WHOLE.fullmatch(value))
    if numbers and fractions:
        raise DatasetError(
            f"column {column!r} holds numbers such as {fractions[0]}, which are no classes: give words or whole numbers"
        )
    split, labels = next(iter(source.labels.items()))
    classes = [label for label in labels if label is not None]
    values = set(classes)
    if not classes:
        where = "" if split == ALL else f" of its {split} split"
        raise DatasetError(f"{source.place}: none of {len(labels):,} rows{where} has a label in column {column!r}: {advice}")
    if len(values) < 2:
        raise DatasetError(
            f"column {column!r}: {counted(len(classes), 'label')}, all {excerpt(classes[0])}; a classifier needs two classes"
        )
    if len(values) > max(20, len(classes) / 3):
        raise DatasetError(
            f"column {column!r} has {len(values):,} different values in {len(classes):,} rows, so it holds no classes: "
            f"{advice}"
        )
    source.classes = sorted(values, key=lambda value: (int(value), value)) if numbers else sorted(values)
    if published:
        source.classes = [name for name in published if name in values]
    if len(values) > MANY:
        source.assumed.append(f"{column} has {len(values):,} classes: is it the right column? --data.label names another")
    odd = [repr(name) for name in source.classes if name.lower() in MISSING]
    if odd:
        listed = cut(", ".join(odd), 100)
        source.assumed.append(f"{listed} is taken for a class; leave the field empty where there is no label")


# ------------------------------------------------------------------------------------------------ rows and splits


def _usable(source: OwnSource, split: str, data: object, dropped: Counter) -> pd.DataFrame:
    """The rows of a source split that have a text and a training class; the others are counted."""
    rows, columns = source.splits[split], source.columns
    number = {name: label for label, name in enumerate(source.classes)}
    labels = pd.Series(source.labels[split], dtype=object)
    frame = pd.DataFrame({"instance_id": [f"{entry_of(data).name}/{name}" for name in source.names[split]]})
    frame["label"] = labels.map(number)
    dropped["no_label"] += int(labels.isna().sum())
    dropped["label_not_in_training"] += int((frame["label"].isna() & labels.notna()).sum())
    texts = [key for key in ("text", "text_pair") if key in columns]
    for place, key in enumerate(texts, start=1):
        cells = zip(rows[columns[key]], frame["instance_id"], strict=True)
        frame.insert(place, key, [_text(value, columns[key], name) for value, name in cells])
    frame = frame[frame["label"].notna()]
    present = (frame[texts] != "").all(axis=1)
    dropped["no_text"] += int((~present).sum())
    frame = frame[present].astype({"label": int})
    if data.impermissible_words is not None:
        frame = frame.assign(impermissible=mark_words(frame["text"], data.impermissible_words))
    return frame


def _text(value: object, column: str, place: str) -> str:
    """A cell as a text, "" for none. DatasetError for a list and the like."""
    if isinstance(value, list | dict):
        raise DatasetError(
            f"{place}: column {column!r} holds {excerpt(value, 60)}, no text: join words with blanks between them"
        )
    text = "" if value is None else as_text(value)
    return "" if text.isspace() else text


def _split(
    parts: Mapping[str, pd.DataFrame], source: OwnSource, data: object, dropped: Counter
) -> tuple[dict[str, pd.DataFrame], str]:
    """{split: its rows} of the usable rows of source splits, and the rule in a sentence."""
    published = [split for split in SPLITS if split in parts]
    missing = [split for split in ("test", "validation") if split not in published]
    splits: dict[str, pd.DataFrame] = {}
    for split in reversed(published):  # each without the texts of the splits that are measured after it
        rows = parts[split]
        for later in splits:
            repeats = _text_keys(rows).isin(set(_text_keys(splits[later])))
            dropped[f"also_in_{later}"] += int(repeats.sum())
            rows = rows[~repeats]
            if not len(rows):
                raise DatasetError(f"every text of the {split} split is in {later} too, so nothing is left of it")
        splits[split] = rows
    rest = splits.get("train", next(iter(parts.values())))
    shares, pairs = {"test": data.test_share, "validation": data.validation_share}, "text_pair" in rest
    count = _text_keys(rest, first=True).nunique()
    for split in missing:
        splits[split], rest = _draw(rest, round(shares[split] * count), source.classes, data.split_seed)
    splits["train"] = rest
    for split in ("train", *missing):
        present = set(splits[split]["label"])
        lacking = cut(", ".join(repr(name) for label, name in enumerate(source.classes) if label not in present), 200)
        if lacking and split == "train":
            raise DatasetError(f"no train text is left of {lacking}: give more, leave it out, or try another split_seed")
        if lacking:
            source.assumed.append(f"{split} has no text of {lacking}: there are few; --data.{split}_share gives it more")
    rule = []
    if published:
        unit = "pairs" if pairs else "texts"
        rule.append(f"{', '.join(published)} as published, less {unit} of training that another split has too")
    if missing:
        rule.append(
            f"drawn at random{' of train' if published else ''} (seed {data.split_seed}) from the different "
            f"{'first texts' if pairs else 'texts of each class'}: "
            f"{', '.join(f'{shares[split]:.0%} {split}' for split in missing)}, the rest train; all rows of one "
            f"{'first ' if pairs else ''}text, case and blanks aside, are in one of them"
        )
    return {split: splits[split] for split in SPLITS}, "; ".join(rule)


def _text_keys(rows: pd.DataFrame, *, first: bool = False) -> pd.Series:
    """The text of each row without case and blanks; in pairs both texts, or the first only."""
    columns = [rows[name] for name in ("text", "text_pair") if name in rows][: 1 if first else 2]
    keys = ["\0".join(" ".join(text.split()).casefold() for text in texts) for texts in zip(*columns, strict=True)]
    return pd.Series(keys, index=rows.index, dtype=object)


def _draw(rows: pd.DataFrame, size: int, names: Sequence[str], seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of `size` different texts drawn at random, the same share of each class, and the other rows."""
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
