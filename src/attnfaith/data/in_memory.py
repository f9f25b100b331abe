"""Tables in memory: rows that are read as those of a `datasets.Dataset`, and such data sets."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of an Arrow table, read as those of a `datasets.Dataset`; importing that library takes longer than measuring.

    rows["text"] is a column as a list, rows[0] a row, rows[:10] and rows[[3, 5]] are {column: list} of some rows.
    """

    table: pa.Table
    column_names = property(attrgetter("table.column_names"))

    def __len__(self) -> int:
        return self.table.num_rows

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.table.column(key).to_pylist()
        if isinstance(key, int):
            return self.table.slice(range(len(self))[key], 1).to_pylist()[0]
        return (self.table[key] if isinstance(key, slice) else self.table.take(key)).to_pydict()

    def select(self, numbers: Iterable[int]) -> "Rows":
        """Return some rows, by their numbers."""
        return Rows(self.table.take(list(numbers)))

    def to_list(self) -> list[dict]:
        return self.table.to_pylist()


def in_memory(table: pa.Table):
    """Return a `datasets.Dataset` with the rows of an Arrow table and a random fingerprint.

    `datasets` would pickle and hash all content for a name of cache files, which takes longer than encoding a few texts.
    """
    import datasets

    return datasets.Dataset(table, fingerprint=secrets.token_hex(8))


def texts_in_memory(texts: Sequence, names: Sequence[str] = ("text", "text_pair")) -> Rows:
    """Return texts, or pairs (text, second text), with instance_id and columns of these names."""
    pairs = [(text,) if isinstance(text, str) else text for text in texts]
    columns = dict(zip(names, map(list, zip(*pairs, strict=True)), strict=False)) or {names[0]: []}
    columns["instance_id"] = list(map(str, range(len(pairs))))
    return Rows(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))
