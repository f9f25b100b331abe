"""The rows of a split as a pandas frame, each value checked against the data set's entry, and as the data set to encode."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.data.impermissible import check_marks, without
from attnfaith.data.in_memory import in_memory
from attnfaith.data.registry import DatasetEntry
from attnfaith.errors import DatasetError, counted


TYPES = {
    "instance_id": pa.string(),
    "text": pa.large_string(),
    "text_pair": pa.large_string(),
    "label": pa.int64(),
    "rationale": pa.list_(pa.int8()),
    "impermissible": pa.list_(pa.int8()),
    "candidates": pa.list_(pa.int32()),
}
"""Columns of a split of a data set and their types, those that there are."""
_CHUNK = 1000  # texts split into words at a time, so that a corpus is never held as words
_ESCAPED = re.compile(r'\\(n|")')


def published_rows(entry: DatasetEntry, split: str, table: pa.Table, n_classes: int) -> pd.DataFrame:
    """The rows of a published split: instance_id, text, label and, where there are such, text_pair, rationale (0 and 1 for
    each word), impermissible (0 and 1 for each word of text.split()), and answer in place of a label.

    Raises DatasetError, with the row, for a column that is not there, a missing text, answer or label, a label out of range,
    and a rationale or marks that do not fit the text.
    """
    names = {
        column: _accepted(entry, split, column, accepted, table.column_names) for column, accepted in entry.columns.items()
    }
    place = f"{entry.name!r}, {split} split"
    rows = {"instance_id": [f"{entry.name}/{split}/{row}" for row in range(len(table))]}
    for column in ("text", "text_pair"):
        if column in names:
            parts = [_texts(place, name, table[name].to_pylist()) for name in names[column]]
            rows[column] = [" ".join(filter(None, row)) for row in zip(*parts, strict=True)]
    if entry.line_breaks:
        rows["text"] = [_ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text) for text in rows["text"]]
    (label,) = names["label"]
    if entry.answers:
        rows["answer"] = _answers(place, label, table[label].to_pylist())
    else:
        published = max(entry.published_labels, n_classes) if entry.built_in else entry.published_labels
        rows["label"] = _labels(place, label, table[label].to_pylist(), entry, published)
    if "impermissible" in names:
        marks = zip(table[names["impermissible"][0]].to_pylist(), rows["text"], rows["instance_id"], strict=True)
        rows["impermissible"] = [check_marks(*row) for row in marks]
    gold = next((name for name in entry.rationale if name in table.column_names), None)
    if gold is not None:
        values = zip(table[gold].to_pylist(), _words(rows["text"], entry.preprocessing), rows["instance_id"], strict=True)
        rows["rationale"] = [_rationale(gold, *row) for row in values]
    return pd.DataFrame(rows)


def dataset_of(rows: pd.DataFrame):
    """A `datasets.Dataset` of the columns that TYPES names."""
    return in_memory(pa.table({name: pa.array(rows[name].tolist(), kind) for name, kind in TYPES.items() if name in rows}))


def word_counts(texts: Sequence[str], preprocessing: str) -> np.ndarray:
    """Words of each text, markers not counted."""
    return np.fromiter((len(words) for words in _words(texts, preprocessing)), np.int64, len(texts))


def vocabulary_texts(rows: pd.DataFrame) -> list[str]:
    """The texts, and then the second texts where there are any."""
    return [text for column in ("text", "text_pair") if column in rows for text in rows[column]]


def without_impermissible(rows: pd.DataFrame) -> pd.DataFrame:
    """The same rows, their texts without the impermissible words."""
    texts = [without(*row) for row in zip(rows["text"], rows["impermissible"], strict=True)]
    return rows.drop(columns="impermissible").assign(text=texts)


def _words(texts: Sequence[str], preprocessing: str):
    from attnfaith.data.tokenization import split_words

    texts = list(texts)
    for start in range(0, len(texts), _CHUNK):
        yield from split_words(texts[start : start + _CHUNK], preprocessing)


def _accepted(entry: DatasetEntry, split: str, column: str, accepted: tuple, names: list[str]) -> tuple[str, ...]:
    """The first accepted name, or the first names to be joined, that the split has."""
    choices = [name if isinstance(name, tuple) else (name,) for name in accepted]
    for choice in choices:
        if set(choice) <= set(names):
            return choice
    allowed = " or ".join(" with ".join(map(repr, choice)) for choice in choices)
    raise DatasetError(f"{entry.name!r} needs a column {allowed} ({column}); its {split} split has {names}.")


def _texts(place: str, column: str, values: list) -> list[str]:
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise DatasetError(
                f"{place}, row {row}: column {column!r} has no text ({value!r}). An empty string is a text; a missing value "
                "is not."
            )
    return values


def _answers(place: str, column: str, values: list) -> list[str]:
    for row, value in enumerate(values):
        if not isinstance(value, str) or not value.strip():
            raise DatasetError(f"{place}, row {row}: column {column!r} has no answer in words ({value!r}).")
    return [value.strip() for value in values]


def _labels(place: str, column: str, values: list, entry: DatasetEntry, published: int) -> np.ndarray:
    first, last = entry.first_label, entry.first_label + published - 1
    for row, value in enumerate(values):
        if value is None or value != value:
            raise DatasetError(f"{place}, row {row}: column {column!r} has no label.")
        if not (type(value) is int or (isinstance(value, float) and value.is_integer())):
            raise DatasetError(f"{place}, row {row}: the label {value!r} is not a whole number {first}..{last}.")
        if not first <= value <= last and value != entry.no_label:
            raise DatasetError(f"{place}, row {row}: label {value} is outside {first}..{last}.")
    return np.array(values, np.int64).reshape(len(values)) - first


def _rationale(column: str, gold: list, words: list[str], instance_id: str) -> list[int]:
    """Gold evidence as 0/1 per word, from marks, from spans [start, end) over the words, or from quoted passages."""
    if column == "rationale":
        if len(gold) != len(words) or not set(gold) <= {0, 1}:
            raise DatasetError(
                f"{instance_id}: a rationale is one 0 or 1 for each of its {counted(len(words), 'word')}; given: "
                f"{counted(len(gold), 'value')}, {gold}."
            )
        return list(gold)
    marks = [0] * len(words)
    spans = gold
    if column == "evidences":
        spans = [span for quote in gold for span in _first_place(quote.lower().split(), words)]
    for start, end in spans:
        if not 0 <= start <= end <= len(words):
            raise DatasetError(
                f"{instance_id}: the evidence [{start}, {end}) lies outside its {counted(len(words), 'word')}."
            )
        marks[start:end] = [1] * (end - start)
    return marks


def _first_place(quote: list[str], words: list[str]) -> list[tuple[int, int]]:
    """The first place of a passage among the words, if it is there."""
    size = len(quote)
    for start in range(len(words) - size + 1 if size else 0):
        if words[start : start + size] == quote:
            return [(start, start + size)]
    return []
