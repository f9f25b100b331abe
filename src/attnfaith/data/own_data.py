"""A user's own data: from a file, a folder or the Hub to checked and cut splits, with what was read, dropped and assumed."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from attnfaith.data.columns import Columns
from attnfaith.data.file_text import COMPRESSED
from attnfaith.data.impermissible import check_marks, check_some, marks_of_words, read_marks, without
from attnfaith.data.loading import Source
from attnfaith.data.own_cut import cut_own, keys
from attnfaith.data.own_files import KINDS, OwnFile, as_text, draw_rows, read_file
from attnfaith.data.own_labels import COLUMNS, alike, class_of, names_of
from attnfaith.data.registry import SPLITS, DatasetEntry, entry_of
from attnfaith.errors import DatasetError, counted, cut, excerpt, nearest


ALL = "all rows"
"""The source split of data without splits."""
NAMES = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation"} | {
    "test": "test"
}
"""Names of published splits, and ours."""
SPARE = 1.1
"""Rows drawn of those that the limits need: shares are rounded for each class, and texts come twice."""
MOST_VALUES = 10_000
"""Different values of a column of labels above which it is not read on."""


def read_own(data: object) -> Source:
    """The own data of a recipe's data section, read, checked and cut; limits are to be drawn by `Source.limited`.

    data: the section. Where `data.limits` bounds every split that is cut from the same rows, so many rows are drawn while
    these are read (data.seed) that the limits can be met, and memory grows with them, not with the file.

    Raises DatasetError, before anything is trained, for what cannot be read (`OwnFile`), columns that there are not or that
    cannot be told, labels that are no classes, fewer than two classes, fewer than three different texts of a class where
    all splits are cut, and marks of impermissible words that are not one 0 or 1 for each word or mark nothing.
    """
    entry = entry_of(data)
    files, revision, assumed = _files(data, entry)
    columns = _columns(data, files, assumed)
    wanted, column = _WANTED[len(columns)], columns[-1]
    marked = {} if data.impermissible is None else {"impermissible": data.impermissible}
    counts: Counter = Counter()
    parts = {split: _rows(data, entry, own, columns, _drawn(data, files, split), counts) for split, own in files.items()}
    n_rows = counts.pop("rows", 0)
    if unlabelled := [split for split, rows in parts.items() if not rows["label"] and split not in (ALL, "train")]:
        assumed.append(f"{' and '.join(unlabelled)}: no row has text and label, so it is not used")
        parts = {split: rows for split, rows in parts.items() if split not in unlabelled}
    first = next(iter(parts))
    if not parts[first]["label"]:
        _refuse_nothing(entry, first, n_rows, counts, columns)
    for rows, labels in zip(parts.values(), alike([rows["label"] for rows in parts.values()], column), strict=True):
        rows["label"] = labels
    names = names_of(parts[first]["label"], column, files[first][0].label_names(column), assumed)
    if data.impermissible_words is not None:
        for rows in parts.values():
            rows["impermissible"] = marks_of_words(rows["text"], data.impermissible_words)
    source = {split: _numbered(entry, rows, names, counts) for split, rows in parts.items()}
    made, rule = cut_own(
        source,
        names,
        shares={"test": data.test_share, "validation": data.validation_share},
        seed=data.split_seed,
        dropped=counts,
    )
    about = {
        "rows": n_rows,
        "columns": dict(zip(wanted, columns, strict=True)) | marked,
        "splits": rule,
        **_repeated(made),
        "assumed": assumed,
        "files": {file.name: file.digest for own in files.values() for file in own if file.digest},
    }
    if "impermissible" in made["train"].lists:
        check_some(entry.name, made["train"].lists["impermissible"])
    if data.impermissible_removed:
        made = {split: rows.without_impermissible() for split, rows in made.items()}
    lengths = {split: made[split].lengths() for split in SPLITS}
    kept = {split: np.arange(len(lengths[split])) for split in SPLITS}
    dropped = {"source": dict(counts), **{split: {} for split in SPLITS}}
    return Source(entry, data.seed, revision, names, dropped, made, lengths, kept, about)


def check_columns(data: object) -> None:
    """Raises DatasetError for a file or folder that cannot be read, and for columns that there are not."""
    _columns(data, _files(data, entry_of(data))[0], [])


def _refuse_nothing(entry: DatasetEntry, split: str, n_rows: int, dropped: Mapping[str, int], columns: list[str]) -> None:
    if not n_rows:
        raise DatasetError(f"{entry.name!r} has columns and no rows")
    where = "" if split == ALL else f" of its {split} split"
    counts = f"{dropped['no_label']:,} have no label in column {columns[-1]!r}"
    counts += f", {dropped['no_text']:,} no text in {columns[0]!r}" if dropped["no_text"] else ""
    raise DatasetError(
        f"{entry.name!r}: none of {counted(n_rows, 'row')}{where} can be used: {counts}. Name the columns that have "
        "them with --data.text and --data.label"
    )


def _numbered(entry: DatasetEntry, rows: dict[str, list], names: list[str], dropped: Counter) -> Columns:
    """Rows by column with labels as numbers; those whose class training does not have are left out and counted."""
    number = {name: label for label, name in enumerate(names)}
    known = [place for place, label in enumerate(rows["label"]) if label in number]
    if len(known) < len(rows["label"]):
        dropped["label_not_in_training"] += len(rows["label"]) - len(known)
        rows = {name: [values[place] for place in known] for name, values in rows.items()}
    label = np.array([number[label] for label in rows["label"]], np.int64)
    lists = {name: values for name, values in rows.items() if name in ("text", "text_pair", "impermissible")}
    return Columns.of(entry, lists, label, rows["instance_id"])


def _repeated(parts: Mapping[str, Columns]) -> dict[str, int]:
    """How many of the used rows repeat an earlier one's text (of pairs, both texts), and how many texts have two labels."""
    labels: dict[bytes, set] = {}
    for rows in parts.values():
        for key, label in zip(keys(rows), rows.label.tolist(), strict=True):
            labels.setdefault(key, set()).add(label)
    total = sum(len(rows.label) for rows in parts.values())
    return {"repeated": total - len(labels), "two_labels": sum(len(of_text) > 1 for of_text in labels.values())}


_WANTED = {2: ("text", "label"), 3: ("text", "text_pair", "label")}


def read_texts(data: object, split: str, limit: int | None = None, seed: int = 0):
    """The rows of own data that a model is to be measured on, with all their columns: of a file all of them, of a folder or
    of a data set of the Hub those of one split. An Arrow table, or of the Hub a `datasets.Dataset`.

    data: the data section of a recipe. limit: that many rows, drawn at random by the seed, in their order.

    Raises DatasetError for what cannot be read, and for a split that is not there.
    """
    import pyarrow as pa

    if data.hub_id is not None:
        splits = {name: own.split for name, own in _hub_splits(data)[0].items()}
        rows = _split_of(splits, split, data.hub_id)
        few = rows if limit is None or limit >= len(rows) else rows.select(_drawn_rows(len(rows), limit, seed))
        return _marked(few, data)
    path = Path(data.path).expanduser()
    paths = _split_of(_folder(path), split, str(path)) if path.is_dir() else [path]
    how = {"encoding": data.encoding, "delimiter": data.delimiter, "quotes": data.quotes, "limit": limit, "seed": seed}
    tables = [read_file(one, **how) for one in paths]
    if len({tuple(table.column_names) for table in tables}) > 1:
        raise DatasetError(f"the {split} files of {path} have other columns than each other: measure them one by one")
    table = pa.concat_tables(tables, promote_options="permissive")
    few = table if limit is None or limit >= len(table) else table.take(_drawn_rows(len(table), limit, seed))
    return _marked(few, data)


def _marked(rows, data: object):
    """Rows with a column impermissible where the section says which words are, or with these words gone from their texts.

    Raises DatasetError for a column that there is not, and marks that are not one 0 or 1 for each word.
    """
    import pyarrow as pa

    if data.impermissible is None and data.impermissible_words is None:
        return rows
    column = data.text or "text"
    for name in (column, *([data.impermissible] if data.impermissible else [])):
        if name not in rows.column_names:
            raise DatasetError(f"there is no column {excerpt(name)}; there are {cut(', '.join(rows.column_names), 300)}")
    table = isinstance(rows, pa.Table)
    texts, given = (rows[name].to_pylist() if table else rows[name][:] for name in (column, data.impermissible or column))
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DatasetError(f"row {row} of column {column!r} is {excerpt(text, 60)}, no string: give a text")
    if data.impermissible_words is not None:
        marks = marks_of_words(texts, data.impermissible_words)
    else:
        numbered = enumerate(zip(given, texts, strict=True))
        marks = [check_marks(read_marks(value), text, f"row {row}") for row, (value, text) in numbered]
    name, values = "impermissible", marks
    if data.impermissible_removed:
        name, values = column, [without(*of_text) for of_text in zip(texts, marks, strict=True)]
    if table:
        kept = rows.drop_columns([name]) if name in rows.column_names else rows
        return kept.append_column(name, pa.array(values))
    return (rows.remove_columns(name) if name in rows.column_names else rows).add_column(name, values)


def _drawn_rows(count: int, limit: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))


def _split_of(splits: Mapping, split: str, where: str):
    if split not in splits:
        raise DatasetError(f"{where} has no split {excerpt(split)}: --split takes one of {', '.join(splits)}")
    return splits[split]


# ------------------------------------------------------------------------------------------------ where rows are


class _File:
    """A file of a split."""

    def __init__(self, file: OwnFile):
        self.file, self.name, self.digest, self.columns = file, file.path.name, file.digest, file.columns

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, tuple]]:
        return self.file.rows(columns)

    def label_names(self, column: str) -> None:
        return None


class _HubSplit:
    """A split of a data set of the Hub, which lies in the cache of `datasets` and is not held in memory."""

    digest = ""

    def __init__(self, name: str, split):
        self.name, self.split, self.columns = name, split, split.column_names

    @cached_property
    def _classes(self) -> dict[str, list[str]]:
        return {name: feature.names for name, feature in self.split.features.items() if hasattr(feature, "int2str")}

    def label_names(self, column: str) -> list[str] | None:
        """The names of a column's classes, in the order of their publisher; None where it is no column of classes."""
        return self._classes.get(column)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, tuple]]:
        for name in columns:
            if name not in self.columns:
                raise DatasetError(f"its split {self.name} has no column {excerpt(name)}; it has {self.columns}")
        number = 0
        for part in self.split.select_columns(list(dict.fromkeys(columns))).with_format("arrow").iter(batch_size=1000):
            values = {name: part.column(name).to_pylist() for name in columns}
            for name in self._classes.keys() & values.keys():
                words = self._classes[name]
                values[name] = [None if value is None or value < 0 else words[value] for value in values[name]]
            for row in zip(*(values[name] for name in columns), strict=True):
                yield number, row
                number += 1


def _files(data: object, entry: DatasetEntry) -> tuple[dict[str, list], str, list[str]]:
    """{source split: its files}, what was read ("local-" and a digest, or a commit), and what is assumed."""
    if data.hub_id is not None:
        splits, commit = _hub_splits(data)
        return {split: [own] for split, own in splits.items()}, commit, []
    path = Path(data.path).expanduser()
    how = {"encoding": data.encoding, "delimiter": data.delimiter, "quotes": data.quotes}
    paths = _folder(path) if path.is_dir() else {ALL: [path]}
    files = {split: [OwnFile.of(one, **how) for one in listed] for split, listed in paths.items()}
    digests = [f"{split} {file.digest}" for split, listed in files.items() for file in listed]
    revision = f"local-{hashlib.sha256(' '.join(digests).encode()).hexdigest()[:12]}"
    assumed = [said for listed in files.values() for file in listed for said in file.assumed]
    return {split: [_File(file) for file in listed] for split, listed in files.items()}, revision, assumed


def _folder(folder: Path) -> dict[str, list[Path]]:
    """{split: its files} of a folder with train.csv and the like. Raises DatasetError where it has no training file."""
    try:
        listed = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror or error}") from error
    splits: dict[str, list[Path]] = {}
    for path in listed:
        suffixes = [suffix for suffix in path.suffixes[-2:] if suffix.lower() not in COMPRESSED]
        name = re.split(r"[-_.]", path.name.lower())[0]
        if name in NAMES and suffixes and suffixes[-1].lower() in KINDS:
            splits.setdefault(NAMES[name], []).append(path)
    if "train" not in splits:
        names = cut(", ".join(path.name for path in listed) or "no file", 200)
        raise DatasetError(
            f"{folder} has no train split, which is a file such as train.csv, with validation.csv and test.csv beside it "
            f"where there are such. It holds {names}. Of one file give the path itself"
        )
    return {split: splits[split] for split in SPLITS if split in splits}


def _hub_splits(data: object) -> tuple[dict[str, _HubSplit], str]:
    """The splits of a data set of the Hub that are used, and the commit that was read. No code of it is run."""
    import datasets
    import pyarrow as pa

    at = f"{data.hub_id} at {data.revision or 'main'}"
    try:
        builder = datasets.load_dataset_builder(data.hub_id, data.config, revision=data.revision)
        builder.download_and_prepare()
        loaded = builder.as_dataset()
    except (
        OSError,
        ValueError,
        RuntimeError,
        pa.ArrowException,
        datasets.exceptions.DatasetsError,
    ) as error:
        check = (
            "HF_HUB_OFFLINE is set: unset it" if datasets.config.HF_HUB_OFFLINE else "Check name, revision and connection"
        )
        raise DatasetError(
            f"the data set {at} cannot be read from the Hub: {type(error).__name__}: {excerpt(error, 300)}. {check} (a data "
            "set that was read before is read again without a connection)"
        ) from error
    splits: dict[str, _HubSplit] = {}
    for name in loaded:
        if name.lower() in NAMES:
            splits.setdefault(NAMES[name.lower()], _HubSplit(name, loaded[name]))
    if "train" not in splits:
        raise DatasetError(f"the data set {at} has no train split; it has {', '.join(map(str, loaded))}")
    return {split: splits[split] for split in SPLITS if split in splits}, str(builder.hash)


# ------------------------------------------------------------------------------------------------ which columns


def _columns(data: object, files: Mapping[str, list], assumed: list[str]) -> list[str]:
    """The names of the columns of text, second text (of pairs) and label in the files."""
    first = next(iter(files.values()))[0]
    given = {"text": data.text, "text_pair": data.text_pair, "label": data.label}
    marked = [] if data.impermissible is None else [data.impermissible]
    taken = [name for name in given.values() if name is not None] + marked
    if twice := {name for name in taken if taken.count(name) > 1}:
        raise DatasetError(
            f"the column {excerpt(twice.pop())} is named for two of text, text_pair, label and impermissible: name each its "
            "own"
        )
    for key in ("text", "label"):
        if given[key] is None:
            known = [name for name in given.values() if name is not None] + marked
            other = given["label" if key == "text" else "text"]
            given[key] = _column(key, first.columns, known, other is not None, first.name)
            if given[key] != key:
                assumed.append(f"{key} is read from the column {given[key]!r}")
            others = [name for name in first.columns if name.lower() in COLUMNS and name != given[key]]
            if key == "label" and others:
                assumed.append(
                    f"label is not read from the column {', '.join(map(repr, others))}: --data.label names another"
                )
    wanted = [name for name in given.values() if name is not None]
    if isinstance(first, _File):
        first.file.check([*wanted, *marked])
    for name in [*wanted, *marked]:
        if name not in first.columns:
            raise DatasetError(f"{data.hub_id} has no column {excerpt(name)}{nearest(name, first.columns)}")
    return wanted


def _column(key: str, columns: list[str], taken: list[str], given: bool, file: str) -> str:
    """The column of text or of label where the user names none: the one of that name, or the only one that is left.

    given: whether the other of the two is known.
    """
    free = [name for name in columns if name not in taken]
    accepted = COLUMNS if key == "label" else (key,)
    named = next(filter(None, ([name for name in free if name.lower() == word] for word in accepted)), [])
    left = [name for name in free if given or name.lower() != {"text": "label", "label": "text"}[key]]
    if len(named) == 1 or (not named and len(left) == 1):
        return (named or left)[0]
    listed = cut(", ".join(map(repr, columns)), 300)
    raise DatasetError(f"{file} has no column {key!r}; it has {listed}: name the one of the {key} with --data.{key}")


# ------------------------------------------------------------------------------------------------ the rows


def _drawn(data: object, files: Mapping[str, list], split: str) -> int | None:
    """The number of rows to draw from a source split while it is read; None: all, as a limit is missing."""
    made = {ALL: SPLITS, "train": ("train", *(name for name in SPLITS if name not in files))}.get(split, (split,))
    if any(name not in data.limits for name in made):
        return None
    shares = {"validation": data.validation_share, "test": data.test_share}
    shares = {name: share for name, share in shares.items() if name in made and split in (ALL, "train")}
    shares[made[0]] = 1 - sum(share for name, share in shares.items() if name != made[0])
    spare = SPARE if len(shares) > 1 else 1
    return max(math.ceil(spare * data.limits[name] / share) for name, share in shares.items())


def _rows(
    data: object, entry: DatasetEntry, files: list, columns: list[str], limit: int | None, counts: Counter
) -> dict[str, list]:
    """The usable rows of a source split by column; counts takes all that were read, and those left out by reason."""
    marked = [] if data.impermissible is None else [data.impermissible]
    wanted = (*_WANTED[len(columns)], *(["impermissible"] if marked else []))
    rows: dict[str, list] = {name: [] for name in ("instance_id", *wanted)}
    values: set[str] = set()

    def usable(place: str, row: tuple) -> tuple | None:
        *texts, label = row[: len(columns)]
        counts["rows"] += 1
        if (name := class_of(label, columns[-1])) is None:
            counts["no_label"] += 1
            return None
        texts = [text if text is None else as_text(text) for text in texts]
        if not all(text and not text.isspace() for text in texts):
            counts["no_text"] += 1
            return None
        values.add(name)
        if len(values) > MOST_VALUES:
            raise DatasetError(
                f"column {columns[-1]!r} has more than {MOST_VALUES:,} different values, so it holds no classes: name the "
                "one that does with --data.label"
            )
        return (*texts, name, *(check_marks(read_marks(marks), texts[0], place) for marks in row[len(columns) :]))

    def all_rows() -> Iterator[tuple[str, tuple]]:
        for file in files:
            yield from ((f"{entry.name}/{file.name}/{number}", row) for number, row in file.rows([*columns, *marked]))

    chosen = ((name, row) for name, given in all_rows() if (row := usable(name, given)) is not None)
    if limit is not None:
        n_usable, chosen = draw_rows(chosen, limit, [data.seed, 0])
        if n_usable > limit:
            counts["limit"] += n_usable - limit
    for name, row in chosen:
        rows["instance_id"].append(name)
        for column, value in zip(wanted, row, strict=True):
            rows[column].append(value)
    return rows
