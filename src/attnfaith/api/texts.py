"""Texts as people have them, a list, a frame, a data set or a file, as the one form that models read."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from attnfaith.data.in_memory import in_memory
from attnfaith.data.own_labels import COLUMNS as LABELS
from attnfaith.data.own_labels import READINGS, numbers_of
from attnfaith.errors import DatasetError, counted, excerpt, nearest


if TYPE_CHECKING:
    import datasets


TEXTS = "list of strings, list of pairs (text, second text), pandas frame, datasets.Dataset, or the path of a file"
CARRIED = ("rationale", "impermissible", "candidates")  # columns of lists that measurements know what to do with


@dataclass(frozen=True)
class Texts:
    """dataset: a `datasets.Dataset` with instance_id, text and, where there are any, text_pair. labels: one for each as it
    was given, None where unknown; None where there are none at all. name: of the texts, for people. reading, label_names: as
    `numbers_of` takes them. remark: which column labels were read from, where that is not plain; "".
    """

    dataset: "datasets.Dataset"
    labels: list | None
    name: str
    reading: str | None = None
    label_names: Sequence[str] | None = None
    remark: str = ""

    def labelled(self, class_names: Sequence[str], count: int):
        """The data set with a column label of class numbers. class_names: () where classes have none; count: of classes.

        Raises DatasetError for a label that is no class.
        """
        if self.labels is None:
            return self.dataset
        classes = numbers_of(self.labels, class_names, count, self.reading, self.label_names)
        return self.dataset.add_column("label", classes, feature=_whole_numbers())


def _whole_numbers():
    import datasets

    return datasets.Value("int64")


@dataclass(frozen=True)
class Columns:
    """What the columns of a frame are called; None: "text_pair", and the first of LABELS, where it has them."""

    text: str = "text"
    text_pair: str | None = None
    label: str | None = None

    def check(self) -> None:
        """Raises DatasetError for a name that is no string."""
        for keyword, name in vars(self).items():
            if not isinstance(name, str) and not (name is None and keyword != "text"):
                more = "; the classes themselves are labels=[…]" if keyword == "label" else ""
                raise DatasetError(f"{keyword}={excerpt(name)}: give the name of a column{more}")

    def chosen(self, known: Sequence[str]) -> dict[str, str]:
        """{keyword: column} of those that are there. Raises DatasetError for one that is named and is not there."""
        chosen, labels = {}, [name for name in LABELS if name in known]
        for keyword, name in vars(self).items():
            wanted = name or (labels[0] if keyword == "label" and labels else keyword)
            if wanted in known:
                chosen[keyword] = wanted
            elif name is not None:
                raise DatasetError(f"there is no column {wanted!r} for {keyword}{nearest(wanted, known)} (say {keyword}=…)")
        return chosen


def read_texts(texts, labels: Iterable | None, columns: Columns, name: str | None) -> Texts:
    """Texts with the labels that belong to them, as they were given: `numbers_of` makes numbers of names. labels: one of
    READINGS says how those of a column are read.

    Raises DatasetError where they are none of TEXTS, there is none, one is missing or no string, single texts stand beside
    pairs, a column is not there, instance ids are not unique, or there are as many labels as there are not texts.
    """

    columns.check()
    if isinstance(texts, str) and not Path(texts).suffix and not _is_file(texts):
        raise DatasetError(f"texts is one string, {excerpt(texts, 60)}: put it into a list, [text]")
    if isinstance(texts, str | os.PathLike):
        table, called = _of_file(Path(texts), columns), Path(texts).name.partition(".")[0]
    else:
        table, called = _of_object(texts, columns), None
    reading, remark, label_names = None, str(table.pop("remark", "")), table.pop("label_names", None)
    if isinstance(labels, str) and labels in READINGS:
        reading = labels
        if "label" not in table:
            raise DatasetError(f"labels={labels!r} says how a column of labels is read: there is none, so name it, label=…")
    elif labels is not None:
        remark, label_names = "", None
        if columns.label is not None:
            raise DatasetError(f"labels are given twice: labels=… and the column label={columns.label!r}; leave one out")
        table["label"] = _list(labels, "labels")
    count = len(table["text"])
    if not count:
        raise DatasetError("there are no texts: give at least one")
    if "label" in table and len(table["label"]) != count:
        raise DatasetError(
            f"{counted(len(table['label']), 'label')} for {counted(count)}: give one for each, None if unknown"
        )
    name = name or called or "texts"
    if "instance_id" not in table:
        table["instance_id"] = [f"{name}/{row}" for row in range(count)]
    _check_ids(table["instance_id"])
    labels = table.pop("label", None)
    made = {key: _strings(key, values) if isinstance(values, list) else values for key, values in table.items()}
    return Texts(in_memory(pa.table(made)), labels, name, reading, label_names, remark)


def _strings(key: str, values: list) -> pa.Array:
    for row, value in enumerate(values):
        if not is_unicode(value):
            raise DatasetError(f"{key} of row {row} is {excerpt(value, 60)}: it holds half a character, which is no text")
    return pa.array(values, pa.string())


def is_unicode(text: str) -> bool:
    """Whether a text can be written to a file: without halves of characters (surrogates)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _of_file(path: Path, columns: Columns) -> dict[str, list]:
    from attnfaith.data.own_files import read_file

    return _of_table(read_file(path), columns)


def _of_object(texts, columns: Columns) -> dict[str, list]:
    import datasets
    import pandas as pd

    if isinstance(texts, pd.DataFrame):
        return _of_table(_arrow(texts), columns)
    if isinstance(texts, datasets.Dataset):
        return _of_table(texts.with_format("arrow")[:], columns, texts.features)
    if isinstance(texts, pa.Table):
        return _of_table(texts, columns)
    if isinstance(texts, Mapping):  # a DatasetDict is one
        parts = ", ".join(map(str, list(texts)[:5]))
        raise DatasetError(f"texts is a {type(texts).__name__} of {parts or 'nothing'}: give one of its parts, or a {TEXTS}")
    if any(kind.__name__ == "IterableDataset" for kind in type(texts).__mro__):  # that of datasets, or of torch
        raise DatasetError(
            f"texts is a {type(texts).__name__} (IterableDataset), which may have no end: take some of its rows, "
            "datasets.Dataset.from_list([*itertools.islice(texts, 1000)])"
        )
    return _of_rows(_list(texts, "texts"))


def _arrow(frame) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DatasetError(f"a column of the frame holds values of several kinds: {excerpt(error, 200)}") from error


def _list(values, what: str) -> list:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        one_each = 'list with one for each text, or "names" or "ids" for what a column of labels holds'
        raise DatasetError(f"{what} is {excerpt(values)}: give a {TEXTS if what == 'texts' else one_each}")
    return list(values)


def _of_rows(rows: list) -> dict[str, list]:
    if not rows:
        raise DatasetError("there are no texts: give at least one")
    single = isinstance(rows[0], str)
    for number, row in enumerate(rows):
        if row is None:
            raise DatasetError(f"text {number} is None: leave it out")
        pair = not isinstance(row, str | bytes) and isinstance(row, Sequence) and len(row) == 2
        if not isinstance(row, str) and not pair:
            more = ": give datasets.Dataset.from_list(texts)" if isinstance(row, Mapping) else ""
            raise DatasetError(f"text {number} is {excerpt(row, 60)}, no string and no pair (text, second text){more}")
        if isinstance(row, str) != single:
            raise DatasetError(
                f"texts and pairs are mixed: text 0 is {'a text' if single else 'a pair'}, text {number} is not"
            )
        if not single and (bad := [part for part in row if not isinstance(part, str)]):
            raise DatasetError(f"text {number} is a pair with {excerpt(bad[0], 60)} in it: both parts are strings")
    if single:
        return {"text": rows}
    return {"text": [first for first, _ in rows], "text_pair": [second for _, second in rows]}


def _of_table(table: pa.Table, columns: Columns, features: Mapping | None = None) -> dict[str, list]:
    known = table.column_names
    chosen, labels = columns.chosen(known), [name for name in LABELS if name in known]
    rows = {keyword: table.column(name).to_pylist() for keyword, name in chosen.items()}
    for keyword in {"text", "text_pair"} & set(rows):
        for number, value in enumerate(rows[keyword]):
            if not isinstance(value, str):
                said = "is missing" if value is None or value != value else f"is {excerpt(value, 60)}, no string"
                raise DatasetError(f"row {number} of column {chosen[keyword]!r} {said}: give a text, or leave the row out")
    rows["label_names"] = getattr((features or {}).get(chosen.get("label")), "names", None)
    if columns.label is None and len(labels) != 1:
        of, *others = map(repr, labels or LABELS)
        said = f"labels are read from the column {of}, not from {', '.join(others)}"
        if not labels:
            said = f"texts are measured without labels: there is no column {of}, {' or '.join(others)}"
        rows["remark"] = f"{said}; label=… (--data.label) names another"
    if "instance_id" in known and _is_text(table.schema.field("instance_id").type):
        rows["instance_id"] = table.column("instance_id").to_pylist()
    for name in CARRIED:
        if name in known and pa.types.is_list(table.schema.field(name).type):
            rows[name] = table.column(name).combine_chunks()
    return rows


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _check_ids(names: Sequence[str]) -> None:
    seen = set()
    for row, name in enumerate(names):
        if name is None or name in seen:
            raise DatasetError(
                f"row {row}: its instance_id is {excerpt(name)}, which is missing or comes twice: give unique ones"
            )
        seen.add(name)
