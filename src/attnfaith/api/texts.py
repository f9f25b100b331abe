"""Read texts as people have them: a list, a frame, a data set or a file."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from attnfaith.data.in_memory import Rows
from attnfaith.data.labels import COLUMNS as LABELS
from attnfaith.data.labels import READINGS, numbers_of
from attnfaith.support.errors import DatasetError, counted, excerpt, nearest


TEXTS = "list of strings, list of pairs (text, second text), pandas frame, datasets.Dataset, or the path of a file"
LISTED = 'list with one for each text, or "names" or "ids" for what a column of labels holds'
CARRIED = ("rationale", "impermissible")  # columns of lists that measurements use


@dataclass(frozen=True)
class Texts:
    """Texts that were read.

    dataset: rows with instance_id, text and perhaps text_pair. labels: those given, None where unknown; None for no labels
    at all. name: for people. reading, label_names: as `numbers_of` takes them. remark: from which column labels were read,
    where that is not plain; "".
    """

    dataset: Rows
    labels: list | None
    name: str
    reading: str | None = None
    label_names: Sequence[str] | None = None
    remark: str = ""

    def labelled(self, class_names: Sequence[str], count: int):
        """Return the data set with a column label, the numbers of `count` classes, which have names or (). Raises
        DatasetError for a label that is no class.
        """
        classes = numbers_of(self.labels or [], class_names, count, self.reading, self.label_names)
        return Rows(self.dataset.table.append_column("label", pa.array(classes, pa.int64())))


def read_texts(
    texts,
    labels: Iterable | None = None,
    name: str | None = None,
    *,
    text: str = "text",
    text_pair: str | None = None,
    label: str | None = None,
) -> Texts:
    """Read texts and their labels; `Texts.labelled` turns names of classes into numbers.

    labels: one for each text, or one of READINGS, which says how a column of labels is read. text, text_pair, label: names
    of columns; None takes "text_pair" and the first of LABELS, where they are there.

    Raises DatasetError for texts that are none of TEXTS, not unique by their instance ids, or of another number than labels.
    """
    table, is_list = _table(texts)
    if not len(table):
        raise DatasetError("there are no texts: give at least one")
    names = table.column_names
    columns = chosen_columns(names, is_list, text=text, text_pair=text_pair, label=label)
    reading = labels if isinstance(labels, str) and labels in READINGS else None
    values, class_names, remark = None, None, ""
    if labels is not None and reading is None:
        if label is not None:
            raise DatasetError(f"labels are given twice: labels=… and the column label={label!r}; leave one out")
        if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
            raise DatasetError(f"labels is {excerpt(labels)}: give a {LISTED}")
        values = list(labels)
    elif "label" in columns:
        values = table.column(columns["label"]).to_pylist()
        class_names = getattr(getattr(texts, "features", {}).get(columns["label"]), "names", None)
        unused = [column for column in LABELS if column in names and column != columns["label"]]
        if unused and label is None:
            remark = f"labels are read from the column {columns['label']!r}, not from {', '.join(map(repr, unused))}"
    elif reading is not None:
        raise DatasetError(f"labels={labels!r} says how a column of labels is read: there is none, so name it, label=…")
    elif not is_list:
        remark = f"texts are measured without labels: there is no column {', '.join(map(repr, LABELS))}"
    if values is not None and len(values) != len(table):
        raise DatasetError(f"{counted(len(values), 'label')} for {counted(len(table))}: give one for each, None if unknown")
    if name is None:
        name = Path(texts).name.partition(".")[0] if isinstance(texts, str | os.PathLike) else "texts"
    rows = {keyword: table.column(columns[keyword]) for keyword in ("text", "text_pair") if keyword in columns}
    if not is_list:
        rows = {keyword: _strings(table, columns[keyword]) for keyword in rows}
    if "instance_id" in names and table.schema.field("instance_id").type in (pa.string(), pa.large_string()):
        rows["instance_id"] = _strings(table, "instance_id")
        (most_common, count), *_ = Counter(rows["instance_id"]).most_common(1)
        if count > 1:
            raise DatasetError(f"instance_id {excerpt(most_common)} comes twice: give unique ones")
    else:
        rows["instance_id"] = [f"{name}/{row}" for row in range(len(table))]
    carried = [column for column in CARRIED if column in names and pa.types.is_list(table.schema.field(column).type)]
    rows |= {column: table.column(column).combine_chunks() for column in carried}
    remark = remark and f"{remark}; label=… (--data.label) names another"
    return Texts(Rows(pa.table(rows)), values, name, reading, class_names, remark)


def chosen_columns(names: Sequence[str], is_list: bool = False, **keywords: str | None) -> dict[str, str]:
    """{keyword: column} of the columns that are there. Raises DatasetError for a name that is no string or not there."""
    columns = {}
    for keyword, name in keywords.items():
        if not isinstance(name, str | None):
            more = "; the classes themselves are labels=[…]" if keyword == "label" else ""
            raise DatasetError(f"{keyword}={excerpt(name)}: give the name of a column{more}")
        usual = next((column for column in LABELS if column in names), keyword) if keyword == "label" else keyword
        column = keyword if is_list else name or usual
        if column in names:
            columns[keyword] = column
        elif name is not None and not is_list:
            raise DatasetError(f"there is no column {column!r} for {keyword}{nearest(column, names)} (say {keyword}=…)")
    return columns


def _strings(table: pa.Table, column: str) -> list[str]:
    values = table.column(column).to_pylist()
    for row, value in enumerate(values):
        if not isinstance(value, str):
            fault = "missing" if value is None or value != value else f"{excerpt(value, 60)}, no string"
            raise DatasetError(f"row {row} of column {column!r} is {fault}: give a text, or leave the row out")
    return values


def _table(texts) -> tuple[pa.Table, bool]:
    """Texts of any kind as a table, and whether they are a list. Raises DatasetError for what is none of TEXTS."""
    if isinstance(texts, str | os.PathLike):
        from attnfaith.data.own_files import read_file

        if isinstance(texts, str) and not Path(texts).suffix and not os.path.exists(texts):
            raise DatasetError(f"texts is one string, {excerpt(texts, 60)}: put it into a list, [text]")
        texts = read_file(Path(texts))
    datasets, pandas = (sys.modules.get(name) for name in ("datasets", "pandas"))  # who has their objects imported them
    if pandas is not None and isinstance(texts, pandas.DataFrame):
        try:
            return pa.Table.from_pandas(texts, preserve_index=False), False
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DatasetError(f"a column of the frame holds values of several kinds: {excerpt(error, 200)}") from error
    if datasets is not None and isinstance(texts, datasets.Dataset):
        return texts.with_format("arrow")[:], False
    unreadable = Mapping if datasets is None else Mapping | datasets.IterableDataset
    if isinstance(texts, unreadable) or not isinstance(texts, Iterable):
        raise DatasetError(f"texts is a {type(texts).__name__}: give one of its parts, or some of its rows, as a {TEXTS}")
    rows = list(texts)
    pairs = [(row,) if isinstance(row, str) else row if isinstance(row, list | tuple) else () for row in rows]
    for number, row in enumerate(pairs):
        if not all(isinstance(part, str) for part in row) or len(row) not in (1, 2) or len(row) != len(pairs[0]):
            more = ", such as datasets.Dataset.from_list(texts)" if isinstance(rows[number], Mapping) else ""
            raise DatasetError(
                f"text {number} is {excerpt(rows[number], 60)}: give strings, all single or all pairs (text, other){more}"
            )
    columns = zip(("text", "text_pair"), list(zip(*pairs, strict=True)) or [()], strict=False)
    try:
        return pa.table({keyword: pa.array(column, pa.string()) for keyword, column in columns}), True
    except UnicodeError as error:
        raise DatasetError(f"a text holds halves of characters, which no file can hold: {excerpt(error, 200)}") from error
