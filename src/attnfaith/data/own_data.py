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
from attnfaith.data.sources import file_digest, read_hub
from attnfaith.support.errors import DatasetError, counted, cut, excerpt, nearest


ALL = "all rows"
"""The source split of data without splits."""
SPLIT_NAMES = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation"}
SPLIT_NAMES |= {"test": "test"}
"""Names of published splits, and ours."""
MISSING = ("na", "n/a", "nan", "null", "none", "unknown", "?", "-")
"""Names that a class may have and that often stand for a missing label."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
KEYS = ("text", "text_pair", "label")
NAME_CLASSES = "name the column of the classes with --data.label"


@dataclass
class OwnSource:
    """Rows as published, and their names "<file or split>/<row>", by source split (ALL for a single file).

    revision: "local-" and a digest of the files, or a commit of the Hub. files: SHA-256 of each file. place: path or
    repository, for messages. columns: {our column: the column it is read from}. labels: the class of each row, by source
    split; None without one. classes: their names. assumed: remarks that the user should check.
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

    def check(self, names: Sequence[str]) -> None:
        """Raise DatasetError for a column that a split lacks."""
        for split, rows in self.splits.items():
            for name in names:
                if name not in rows.column_names:
                    place = self.place if split == ALL else f"{split} of {self.place}"
                    raise DatasetError(f"{place} has no column {excerpt(name)}{nearest(name, rows.column_names)}")


def read_own(data: object) -> LoadedDataset:
    """Read, check and cut the data that a recipe's data section names; `LoadedDataset.limited` draws limits.

    Raises DatasetError for unreadable data, missing or ambiguous columns, labels that are no classes, fewer than two
    classes, too few texts of a class, and impermissible words that no training text has.
    """
    source, entry, dropped = check_own(data), entry_of(data), Counter()
    parts = {split: _usable(source, split, entry.name, dropped) for split in source.splits}
    for split in [split for split, rows in parts.items() if not len(rows) and split in ("validation", "test")]:
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
    if data.impermissible_words is not None:
        for split, rows in splits.items():
            splits[split] = rows.assign(impermissible=mark_words(rows["text"], data.impermissible_words))
        check_any(entry.name, splits["train"]["impermissible"])
    if data.impermissible_removed:
        splits = {split: without_impermissible(rows) for split, rows in splits.items()}
    left_out = {"source": {reason: count for reason, count in dropped.items() if count}}
    return LoadedDataset.from_frames(splits, entry, source.revision, source.classes, left_out, data.seed, own)


def check_own(data: object) -> OwnSource:
    """Return own data with columns and classes chosen. DatasetError where they cannot be used, before any text is read."""
    source = _read(data)
    _choose_columns(source, data)
    _read_classes(source)
    return source


def read_texts(data: object, split: str, limit: int | None = None, seed: int = 0) -> datasets.Dataset:
    """Return the rows to measure a model on, with all their columns: all rows of a file, one split of a folder or Hub set.

    data: the data section of a recipe. limit: number of rows, drawn at random by the seed, in their order.

    Raises DatasetError for unreadable data and an unknown split.
    """
    source = _read(data)
    rows = source.splits.get(ALL, source.splits.get(split))
    if rows is None:
        raise DatasetError(f"{source.place} has no split {excerpt(split)}: --split takes one of {', '.join(source.splits)}")
    if limit is not None and limit < len(rows):
        rows = rows.select(np.sort(np.random.default_rng(seed).choice(np.arange(len(rows)), limit, replace=False)))
    if data.impermissible_words is None:
        return rows
    column, name = data.text or "text", "impermissible"
    source.check([column])
    texts = [_text(value, column, f"row {row}") for row, value in enumerate(rows[column])]
    values = mark_words(texts, data.impermissible_words)
    if data.impermissible_removed:
        frame = without_impermissible(pd.DataFrame({"text": texts, "impermissible": values}))
        name, values = column, frame["text"].tolist()
    return rows.remove_columns([name] if name in rows.column_names else []).add_column(name, values)


# ------------------------------------------------------------------------------------------------ sources


def _read(data: object) -> OwnSource:
    splits, names, files = {}, {}, {}
    if data.hub_id is not None:
        loaded, commit = read_hub(data.hub_id, data.config, data.revision)
        parts = {SPLIT_NAMES[name.lower()]: name for name in reversed(loaded) if name.lower() in SPLIT_NAMES}
        if "train" not in parts:
            place = f"{data.hub_id} at {data.revision or 'main'}"
            raise DatasetError(f"the data set {place} has no train split; it has {', '.join(map(str, loaded))}")
        for split in (split for split in SPLITS if split in parts):
            splits[split] = loaded[parts[split]]
            names[split] = [f"{parts[split]}/{row}" for row in range(len(splits[split]))]
        return OwnSource(splits, names, commit, files, data.hub_id)
    path, digests = Path(data.path).expanduser(), []
    for split, paths in (_files_of(path) if path.is_dir() else {ALL: [path]}).items():
        tables = [read_file(file, encoding=data.encoding, delimiter=data.delimiter, quotes=data.quotes) for file in paths]
        if len({tuple(table.column_names) for table in tables}) > 1:
            raise DatasetError(f"the {split} files of {path} have different columns; give all of them the same")
        splits[split], names[split] = datasets.concatenate_datasets(tables), []
        for file, table in zip(paths, tables, strict=True):
            files[file.name] = file_digest(file)
            digests.append(f"{split} {files[file.name]}")
            names[split] += [f"{file.name}/{row}" for row in range(len(table))]
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


def _choose_columns(source: OwnSource, data: object) -> None:
    """The columns that the user named; of text and label else the one of that name, or the only one that is left."""
    columns = {key: getattr(data, key) for key in KEYS if getattr(data, key) is not None}
    if len(set(columns.values())) < len(columns):
        raise DatasetError(f"two of {columns} name one column: name each its own")
    source.check(columns.values())
    names = next(iter(source.splits.values())).column_names
    for key, other, words in (("text", "label", ("text",)), ("label", "text", COLUMNS)):
        if key in columns:
            continue
        free = [name for name in names if name not in columns.values()]
        rest = [name for name in free if other in columns or name.lower() != other]
        candidates = [*([name for name in free if name.lower() == word] for word in words), rest]
        name = next((found[0] for found in candidates if len(found) == 1), None)
        if name is None:
            listed = cut(", ".join(map(repr, names)), 300)
            raise DatasetError(
                f"{source.place} has no column {key!r}; it has {listed}: name the column of the {key} with --data.{key}"
            )
        columns[key] = name
        if name != key:
            source.assumed.append(f"{key} is read from the column {name!r}")
        unread = [repr(column) for column in names if column.lower() in COLUMNS and column != name]
        if key == "label" and unread:
            source.assumed.append(f"label is not read from the column {', '.join(unread)}: --data.label names another")
    source.check(columns.values())
    source.columns = {key: columns[key] for key in KEYS if key in columns}


def _read_classes(source: OwnSource) -> None:
    """The class of each row, and the training classes: in the publisher's order, numbers by size, words by alphabet."""
    column, published = source.columns["label"], None
    for split, rows in source.splits.items():
        names, values = getattr(rows.features[column], "names", None), rows[column][:]
        if names:
            published = published or names
            values = [None if value is None or value < 0 else names[value] for value in values]
        source.labels[split] = [class_of(value, f"column {column!r}") for value in values]
    split, labels = next(iter(source.labels.items()))
    labels = [label for label in labels if label is not None]
    classes = sorted(set(labels))
    numbers = all(map(NUMBER.fullmatch, classes))
    fractions = [name for name in classes if not WHOLE.fullmatch(name)]
    if not classes:
        where = f"{len(source.splits[split]):,} rows{'' if split == ALL else f' of its {split} split'}"
        raise DatasetError(f"{source.place}: none of {where} has a label in column {column!r}: {NAME_CLASSES}")
    if numbers and fractions:
        raise DatasetError(
            f"column {column!r} holds numbers such as {fractions[0]}, which are no classes: give words or whole numbers"
        )
    if len(classes) < 2:
        raise DatasetError(
            f"column {column!r}: {counted(len(labels), 'label')}, all {excerpt(classes[0])}; a classifier needs two classes"
        )
    if len(classes) > max(20, len(labels) / 3):
        raise DatasetError(
            f"column {column!r} has {len(classes):,} different values in {len(labels):,} rows, so it holds no classes: "
            f"{NAME_CLASSES}"
        )
    if published:
        classes = [name for name in published if name in classes]
    source.classes = sorted(classes, key=int) if numbers and not published else classes
    odd = [repr(name) for name in source.classes if name.lower() in MISSING]
    if odd:
        listed = cut(", ".join(odd), 100)
        source.assumed.append(f"{listed} is taken for a class; leave the field empty where there is no label")


# ------------------------------------------------------------------------------------------------ rows and splits


def _usable(source: OwnSource, split: str, name: str, dropped: Counter) -> pd.DataFrame:
    """The rows of a source split that have a text and a training class; the others are counted. name: of the data set."""
    frame = pd.DataFrame({"instance_id": [f"{name}/{row}" for row in source.names[split]]})
    texts = [key for key in ("text", "text_pair") if key in source.columns]
    for key in texts:
        column = source.columns[key]
        cells = zip(source.splits[split][column], frame["instance_id"], strict=True)
        frame[key] = [_text(value, column, place) for value, place in cells]
    labels = pd.Series(source.labels[split], dtype=object)
    known, present = labels.isin(source.classes), (frame[texts] != "").all(axis=1)
    dropped["no_label"] += int(labels.isna().sum())
    dropped["label_not_in_training"] += int((labels.notna() & ~known).sum())
    dropped["no_text"] += int((known & ~present).sum())
    number = {label: number for number, label in enumerate(source.classes)}
    return frame.assign(label=labels.map(number))[known & present].astype({"label": int})


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
    rule = [f"{', '.join(published)} as published, less what another split has too"] if published else []
    if missing:
        drawn = ", ".join(f"{shares[split]:.0%} {split}" for split in missing)
        rule.append(f"{drawn} drawn at random (seed {data.split_seed}) of the different {'first ' if pairs else ''}texts")
    return {split: splits[split] for split in SPLITS}, "; ".join(rule)


def _text_keys(rows: pd.DataFrame, *, first: bool = False) -> pd.Series:
    """The text of each row without case and blanks; in pairs both texts, or the first only."""
    keys = [rows[name].map(lambda text: " ".join(text.split()).casefold()) for name in rows if name in ("text", "text_pair")]
    return keys[0] if first or len(keys) == 1 else keys[0] + "\0" + keys[1]


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
