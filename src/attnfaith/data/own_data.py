"""A user's own data, from a file, a folder or the Hub to checked splits, with what was read, left out and assumed.

For a missing split, a random share of the different texts of each class is drawn; texts that differ only in case and blanks
are one, and rows of pairs with one first text stay together. From published splits only texts that a later one has are left
out.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import datasets
import numpy as np
import pandas as pd

from attnfaith.data.impermissible import check_any, mark_words
from attnfaith.data.labels import COLUMNS, WHOLE, class_of
from attnfaith.data.loading import LoadedDataset, file_digest, read_hub, without_impermissible
from attnfaith.data.own_files import kind_of, read_file
from attnfaith.data.registry import SPLIT_NAMES, SPLITS, entry_of
from attnfaith.support.errors import DatasetError, counted, cut, excerpt, nearest


ALL = "all rows"
"""The source split of data without splits."""
KEYS = ("text", "text_pair", "label")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def read_own(data: object) -> LoadedDataset:
    """Read, check and cut the data that a recipe's data section names; `LoadedDataset.limited` draws limits.

    Raises DatasetError for unreadable data, missing or ambiguous columns, labels that are no classes, fewer than two
    classes, too few texts of a class, and impermissible words that no training text has.
    """
    entry, (source, classes, revision, about) = entry_of(data), check_own(data)
    rows, dropped = _usable(source, classes, about["columns"])
    for split in source["split"][~source["split"].isin(rows["split"])].unique():
        if split in ("train", ALL):
            raise DatasetError(f"no row of {split} has a label, and a text of its own in {about['columns']['text']!r}")
        about["assumed"].append(f"{split}: no row has a label and a text of its own, so it is not used")
    splits, about["splits"] = _split(rows, classes, data, about["assumed"])
    labels = pd.concat(splits.values()).groupby("key")["label"]
    about |= {"repeated": int((labels.size() - 1).sum()), "two_labels": int((labels.nunique() > 1).sum())}
    if data.impermissible_words is not None:
        for split, part in splits.items():
            splits[split] = part.assign(impermissible=mark_words(part["text"], data.impermissible_words))
        check_any(entry.name, splits["train"]["impermissible"])
    if data.impermissible_removed:
        splits = {split: without_impermissible(part) for split, part in splits.items()}
    left_out = {"source": {reason: int(count) for reason, count in dropped.items() if count}}
    return LoadedDataset.from_frames(splits, entry, revision, classes, left_out, data.seed, about)


def check_own(data: object) -> tuple[pd.DataFrame, list[str], str, dict]:
    """Choose columns and classes. DatasetError where they cannot be used, before any text is read.

    Returns the rows: text, perhaps text_pair, label (the name of a class, None without one) and split (ALL for a single
    file), with the index "<data set>/<file or split>/<row>"; the classes of training; the revision, "local-" and a digest of
    the files, or a commit of the Hub; and rows, columns {ours: theirs}, assumed and files of `LoadedDataset.about`.
    """
    tables, revision, files = _read(data)
    columns = _chosen_columns({place: rows for _, place, rows in tables}, data)
    column, published, parts = columns["label"], None, []
    for split, place, table in tables:
        rows = pd.DataFrame({key: table[name][:] for key, name in columns.items()}, dtype=object)
        names = getattr(table.features[column], "names", None)
        if names:
            published = published or names
            rows["label"] = [names[value] if value in range(len(names)) else None for value in rows["label"]]
        rows["label"] = [class_of(value, f"column {column!r}") for value in rows["label"]]
        rows.index = [f"{entry_of(data).name}/{place}/{row}" for row in range(len(rows))]
        parts.append(rows.assign(split=split))
    rows = pd.concat(parts)
    classes = _classes(rows["label"][rows["split"] == tables[0][0]], f"{data.path or data.hub_id}: column {column!r}")
    classes = [name for name in published if name in classes] if published else classes
    others = [key for key, name in columns.items() if name not in (key, getattr(data, key))]
    assumed = [f"{key} is read from the column {columns[key]!r}" for key in others]
    return rows, classes, revision, {"rows": len(rows), "columns": columns, "assumed": assumed, "files": files}


def read_texts(data: object, split: str, limit: int | None = None, seed: int = 0) -> datasets.Dataset:
    """Return the rows to measure a model on, with all their columns: all rows of a file, one split of a folder or Hub set.

    data: the data section of a recipe. limit: number of rows, drawn at random by the seed, in their order.

    Raises DatasetError for unreadable data and an unknown split.
    """
    tables, _, _ = _read(data)
    chosen = [rows for name, _, rows in tables if name in (ALL, split)]
    if not chosen:
        names = ", ".join(dict.fromkeys(name for name, _, _ in tables))
        raise DatasetError(f"there is no split {excerpt(split)}: --split takes one of {names}")
    rows = datasets.concatenate_datasets(chosen)
    if limit is not None and limit < len(rows):
        rows = rows.select(np.sort(np.random.default_rng(seed).choice(len(rows), limit, replace=False)))
    if data.impermissible_words is None:
        return rows
    column, name = data.text or "text", "impermissible"
    if column not in rows.column_names:
        raise DatasetError(f"there is no column {excerpt(column)}{nearest(column, rows.column_names)}")
    texts = [_text(value, column, f"row {row}") for row, value in enumerate(rows[column])]
    frame = pd.DataFrame({"text": texts, name: mark_words(texts, data.impermissible_words)})
    if data.impermissible_removed:
        name, frame = column, without_impermissible(frame).rename(columns={"text": column})
    return rows.remove_columns([name] if name in rows.column_names else []).add_column(name, frame[name].tolist())


def _read(data: object) -> tuple[list[tuple[str, str, datasets.Dataset]], str, dict[str, str]]:
    """(split, file or published split, rows) in the order of splits; the revision; and the SHA-256 of each file."""
    tables, files, order = [], {}, (ALL, *SPLITS)
    if data.hub_id is not None:
        parts, revision = read_hub(data.hub_id, data.config, data.revision)
        tables = [(SPLIT_NAMES.get(name.lower()), name, rows) for name, rows in parts.items()]
    else:
        path = Path(data.path).expanduser()
        parts = {file.name: file for file in (sorted(path.glob("[!.]*")) if path.is_dir() else [path])}
        options = {key: getattr(data, key) for key in ("encoding", "delimiter", "quotes")}
        for name, file in parts.items():
            split = SPLIT_NAMES.get(re.split(r"[-_.]", name.lower())[0]) if path.is_dir() else ALL
            if split and (split == ALL or kind_of(file)):
                tables.append((split, name, read_file(file, **options)))
                files[name] = file_digest(file)
    tables = sorted((table for table in tables if table[0]), key=lambda table: order.index(table[0]))
    if not tables or tables[0][0] not in (ALL, "train"):
        raise DatasetError(
            f"{data.path or data.hub_id} has no train split; it holds {cut(', '.join(parts) or 'no file', 200)}. A folder "
            "needs a file such as train.csv (validation.csv and test.csv may lie beside it); or give the path of one file"
        )
    if files:
        digests = " ".join(f"{split} {files[name]}" for split, name, _ in tables)
        revision = f"local-{hashlib.sha256(digests.encode()).hexdigest()[:12]}"
    return tables, revision, files


def _chosen_columns(tables: Mapping[str, datasets.Dataset], data: object) -> dict[str, str]:
    """{our column: theirs}: the ones that the user named, else the one of that name, or the only one that is left."""
    names = next(iter(tables.values())).column_names
    columns = {key: getattr(data, key) for key in KEYS if getattr(data, key) is not None}
    for key, words in (("text", ("text",)), ("label", COLUMNS)):
        if key in columns:
            continue
        free = [name for name in names if name not in columns.values()]
        named = [name for word in words for name in free if name.lower() == word]
        rest = [name for name in free if "label" in columns or name.lower() not in COLUMNS]
        if not named and len(rest) != 1:
            listed = cut(", ".join(map(repr, names)), 300)
            raise DatasetError(
                f"there is no column {key!r}; there are {listed}: name the column of the {key} with --data.{key}"
            )
        columns[key] = (named or rest)[0]
    if len(set(columns.values())) < len(columns):
        raise DatasetError(f"two of {columns} name one column: name each its own")
    for place, rows in tables.items():
        for name in set(columns.values()).difference(rows.column_names):
            raise DatasetError(f"{place} has no column {excerpt(name)}{nearest(name, rows.column_names)}")
    return {key: columns[key] for key in KEYS if key in columns}


def _classes(labels: pd.Series, place: str) -> list[str]:
    """The different labels of training: numbers by size, words by alphabet."""
    present = labels.dropna()
    classes = sorted(set(present))
    numbers, fractions = all(map(NUMBER.fullmatch, classes)), [name for name in classes if not WHOLE.fullmatch(name)]
    advice = "name the column of the classes with --data.label"
    faults = {
        f"has a label in none of {len(labels):,} rows: {advice}": not classes,
        f"holds numbers such as {', '.join(fractions[:1])}, which are no classes: {advice}": numbers and fractions,
        f"has {counted(len(present), 'label')}, all {', '.join(classes[:1])!r}; a classifier needs two": len(classes) == 1,
        f"has {len(classes):,} different values in {len(present):,} rows, so it holds no classes: {advice}": len(classes)
        > max(20, len(present) / 3),
    }
    for fault, applies in faults.items():
        if applies:
            raise DatasetError(f"{place} {fault}")
    return sorted(classes, key=int) if numbers else classes


def _usable(source: pd.DataFrame, classes: list[str], columns: Mapping[str, str]) -> tuple[pd.DataFrame, Counter]:
    """The rows with a text that no later split has, and the number of a training class; and counts of the others. Columns
    first and key: the first text, and both, without case and blanks.
    """
    texts = [key for key in KEYS[:2] if key in columns]
    cells = {key: [_text(value, columns[key], place) for place, value in source[key].items()] for key in texts}
    labels, rows = source["label"], source.assign(**cells)
    rows["label"] = labels.map({name: number for number, name in enumerate(classes)})
    rows["first"], *second = (rows[key].str.split().str.join(" ").str.casefold() for key in texts)
    rows["key"] = rows["first"] + ("\0" + second[0] if second else "")
    classified, present = rows["label"].notna(), (rows[texts] != "").all(axis=1)
    dropped = Counter(no_label=labels.isna().sum(), label_not_in_training=(labels.notna() & ~classified).sum())
    dropped["no_text"] = (classified & ~present).sum()
    rows = rows[classified & present].astype({"label": int}).reset_index(names="instance_id")
    order = rows["split"].map({ALL: 0, **{split: number for number, split in enumerate(SPLITS)}})
    latest = order.groupby(rows["key"]).transform("max")
    dropped.update(f"also_in_{SPLITS[number]}" for number in latest[order < latest])
    return rows[order == latest], dropped


def _text(value: object, column: str, place: str) -> str:
    """A cell as a text, "" for none. DatasetError for a list and the like."""
    if isinstance(value, list | dict):
        raise DatasetError(f"{place}: column {column!r} holds {excerpt(value, 60)}, no text: join words with blanks")
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return "" if text.isspace() else text


def _split(rows: pd.DataFrame, classes: list[str], data: object, assumed: list[str]) -> tuple[dict[str, pd.DataFrame], str]:
    """{split: its rows}, and the rule in a sentence. assumed: gets a remark on each class that a drawn split lacks."""
    splits = dict(iter(rows.groupby("split")))
    published = [split for split in SPLITS if split in splits]
    rest = splits["train"] if published else splits.pop(ALL)
    shares, count = {"test": data.test_share, "validation": data.validation_share}, rest["first"].nunique()
    missing = [split for split in shares if split not in published]
    for split in missing:
        drawn = _drawn(rest, round(shares[split] * count), classes, data.split_seed)
        splits[split], rest = rest[drawn], rest[~drawn]
    splits["train"] = rest
    for split in ("train", *missing):
        present = set(splits[split]["label"])
        lacking = cut(", ".join(repr(name) for label, name in enumerate(classes) if label not in present), 200)
        if lacking and split == "train":
            raise DatasetError(f"no train text is left of {lacking}: give more, leave it out, or try another split_seed")
        if lacking:
            assumed.append(f"{split} has no text of {lacking}: there are few; --data.{split}_share gives it more")
    rules = [f"{', '.join(published)} as published, less what another split has too"] if published else []
    if missing:
        drawn = ", ".join(f"{shares[split]:.0%} {split}" for split in missing)
        rules.append(f"{drawn} drawn at random (seed {data.split_seed}) of the different (first) texts")
    return {split: splits[split] for split in SPLITS}, "; ".join(rules)


def _drawn(rows: pd.DataFrame, size: int, classes: list[str], seed: int) -> pd.Series:
    """Which rows have one of `size` different first texts that are drawn at random, of single texts by class."""
    texts, pairs = rows.drop_duplicates("first")[["first", "label"]], "text_pair" in rows
    features = datasets.Features(first=datasets.Value("string"), label=datasets.ClassLabel(names=classes))
    size = max(size, 1 if pairs else len(classes))
    try:
        parts = datasets.Dataset.from_pandas(texts, features, preserve_index=False).train_test_split(
            test_size=size, stratify_by_column=None if pairs else "label", seed=seed
        )
    except ValueError as error:
        raise DatasetError(f"too few different texts to draw a split of {size} from {len(texts)}: {error}") from error
    return rows["first"].isin(set(parts["test"]["first"]))
