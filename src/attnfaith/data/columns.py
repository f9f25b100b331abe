"""The rows of a split by column, each value checked against the data set's entry."""

import re

from attnfaith.data.impermissible import check_marks, without
from attnfaith.data.in_memory import in_memory
from attnfaith.data.registry import DatasetEntry
from attnfaith.errors import DatasetError, counted


_CHUNK = 1000  # texts split into words at a time
_ESCAPED = re.compile(r'\\(n|")')


class Columns:
    """The checked rows of one source split, or of a cut of them, by column.

    `lists` holds what need not be computed with, by our names: text, text_pair, rationale (as published), impermissible
    (0 and 1 per word of text.split()), answer, candidates, unknown_candidates; those that there are.
    """

    def __init__(self, entry: DatasetEntry, split: str, table, n_classes: int):
        import numpy as np

        self.entry = entry
        names = list(table.keys()) if isinstance(table, dict) else table.column_names
        published = {
            column: _column_names(entry, split, column, accepted, names) for column, accepted in entry.columns.items()
        }

        def values(name: str) -> list:
            return table[name] if isinstance(table, dict) else table.column(name).to_pylist()

        self.lists = {}
        for column in ("text", "text_pair"):
            if column in published:
                parts = [_texts(entry, split, name, values(name)) for name in published[column]]
                self.lists[column] = [" ".join(filter(None, row)) for row in zip(*parts, strict=True)]
        if entry.line_breaks:
            self.lists["text"] = [_ESCAPED.sub(lambda m: "\n" if m[1] == "n" else m[1], t) for t in self.lists["text"]]
        (label,) = published["label"]
        if entry.answers:
            self.lists["answer"] = _answers(entry, split, label, values(label))
            self.label = np.zeros(len(self.lists["text"]), np.int64)  # numbered when all splits are there
        else:
            n_labels = max(entry.published_labels, n_classes) if entry.built_in else entry.published_labels
            self.label = _labels(entry, split, label, values(label), n_labels)
        self.instance_id = np.array([f"{entry.name}/{split}/{row}" for row in range(len(self.label))], object)
        if "impermissible" in published:
            (marks,) = published["impermissible"]
            given = zip(values(marks), self.text, self.instance_id, strict=True)
            self.lists["impermissible"] = [check_marks(*row) for row in given]
        self.gold_column = next((name for name in entry.rationale if name in names), None)
        if self.gold_column is not None:
            self.lists["rationale"] = values(self.gold_column)

    @property
    def text(self) -> list[str]:
        return self.lists["text"]

    @classmethod
    def of(cls, entry: DatasetEntry, lists: dict[str, list[str]], label, instance_id: list[str]) -> "Columns":
        """Rows that are checked already: text (and text_pair), labels 0..C-1 [rows] and the rows' names."""
        import numpy as np

        made = object.__new__(cls)
        made.entry, made.gold_column, made.lists, made.label = entry, None, lists, label
        made.instance_id = np.array(instance_id, object)
        return made

    def take(self, rows) -> "Columns":
        taken = object.__new__(Columns)
        taken.entry, taken.gold_column = self.entry, self.gold_column
        taken.lists = {column: [values[row] for row in rows] for column, values in self.lists.items()}
        taken.label, taken.instance_id = self.label[rows], self.instance_id[rows]
        return taken

    def without_impermissible(self) -> "Columns":
        """The same rows, their texts less the impermissible words, which none is said to be then."""
        taken = self.take(range(len(self.label)))
        marks = taken.lists.pop("impermissible")
        taken.lists["text"] = [without(*of_text) for of_text in zip(self.text, marks, strict=True)]
        return taken

    @classmethod
    def pool(cls, parts: list["Columns"]) -> "Columns":
        import numpy as np

        pooled = object.__new__(cls)
        pooled.entry, pooled.gold_column = parts[0].entry, parts[0].gold_column
        pooled.lists = {column: [value for part in parts for value in part.lists[column]] for column in parts[0].lists}
        pooled.label = np.concatenate([part.label for part in parts])
        pooled.instance_id = np.concatenate([part.instance_id for part in parts])
        return pooled

    def words(self, column: str = "text"):
        """The words of one text after another, so that a corpus is never held as words."""
        from attnfaith.data.tokenization import split_words

        texts = self.lists[column]
        for start in range(0, len(texts), _CHUNK):
            yield from split_words(texts[start : start + _CHUNK], self.entry.preprocessing)

    def lengths(self, column: str = "text"):
        """Words of each text, markers not counted."""
        import numpy as np

        return np.fromiter(map(len, self.words(column)), np.int64, len(self.label))

    def vocabulary_texts(self) -> list[str]:
        return [*self.text, *self.lists.get("text_pair", ())]

    def dataset(self):
        import pyarrow as pa

        columns = {
            "instance_id": pa.array(self.instance_id.tolist(), pa.string()),
            "text": pa.array(self.text, pa.large_string()),
        }
        if "text_pair" in self.lists:
            columns["text_pair"] = pa.array(self.lists["text_pair"], pa.large_string())
        columns["label"] = pa.array(self.label)
        if "rationale" in self.lists:
            rows = zip(self.lists["rationale"], self.words(), self.instance_id, strict=True)
            columns["rationale"] = pa.array([_rationale(self.gold_column, *row) for row in rows], pa.list_(pa.int8()))
        if "impermissible" in self.lists:
            columns["impermissible"] = pa.array(self.lists["impermissible"], pa.list_(pa.int8()))
        if "candidates" in self.lists:
            columns["candidates"] = pa.array(self.lists["candidates"], pa.list_(pa.int32()))
        return in_memory(pa.table(columns))


def _column_names(entry: DatasetEntry, split: str, column: str, accepted: tuple, names: list[str]) -> tuple[str, ...]:
    """The first accepted name, or the first names to be joined, that the split has."""
    choices = [name if isinstance(name, tuple) else (name,) for name in accepted]
    for choice in choices:
        if set(choice) <= set(names):
            return choice
    known = " or ".join(" with ".join(map(repr, choice)) for choice in choices)
    raise DatasetError(f"{entry.name!r} needs a column {known} ({column}); its {split} split has {names}.")


def _texts(entry: DatasetEntry, split: str, column: str, values: list) -> list[str]:
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise DatasetError(
                f"{entry.name!r}, {split} split, row {row}: column {column!r} has no text ({value!r}). An empty "
                "string is a text; a missing value is not."
            )
    return values


def _answers(entry: DatasetEntry, split: str, column: str, values: list) -> list[str]:
    for row, value in enumerate(values):
        if not isinstance(value, str) or not value.strip():
            raise DatasetError(
                f"{entry.name!r}, {split} split, row {row}: column {column!r} has no answer in words ({value!r})."
            )
    return [value.strip() for value in values]


def _labels(entry: DatasetEntry, split: str, column: str, values: list, published: int):
    import numpy as np

    first, last = entry.first_label, entry.first_label + published - 1
    for row, value in enumerate(values):
        place = f"{entry.name!r}, {split} split, row {row}"
        if value is None or value != value:
            raise DatasetError(f"{place}: column {column!r} has no label.")
        if not (type(value) is int or (isinstance(value, float) and value.is_integer())):
            raise DatasetError(f"{place}: the label {value!r} is not a whole number {first}..{last}.")
        if not first <= value <= last and value != entry.no_label:
            raise DatasetError(f"{place}: label {value} is outside {first}..{last}.")
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
    spans = [span for quote in gold for span in _places(quote.lower().split(), words)] if column == "evidences" else gold
    for start, end in spans:
        if not 0 <= start <= end <= len(words):
            raise DatasetError(
                f"{instance_id}: the evidence [{start}, {end}) lies outside its {counted(len(words), 'word')}."
            )
        marks[start:end] = [1] * (end - start)
    return marks


def _places(quote: list[str], words: list[str]) -> list[tuple[int, int]]:
    """The first place of a passage among the words, if it is there."""
    n = len(quote)
    for start in range(len(words) - n + 1 if n else 0):
        if words[start : start + n] == quote:
            return [(start, start + n)]
    return []
