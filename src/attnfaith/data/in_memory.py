"""A table in memory as a data set, and a data set as tables, at no cost."""

import secrets
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import datasets
    import pyarrow as pa


def in_memory(table: "pa.Table") -> "datasets.Dataset":
    """The data set whose rows are those of `table`, named by chance.

    Without a name `datasets` makes one of the content: it pickles and hashes all of it, which takes longer than encoding a
    few texts. It names files of its cache, and of what is in memory there are none.
    """
    import datasets

    return datasets.Dataset(table, fingerprint=secrets.token_hex(8))


def pieces(split: "datasets.Dataset", names: "Sequence[str]", rows: int = 1000) -> "Iterator[pa.Table]":
    """Columns of a data set as Arrow tables of at most so many rows, in its order.

    A data set whose rows are those of its table is read there: to select columns and a format copies its features each time.
    """
    if split._indices is not None:
        yield from split.select_columns(list(names)).with_format("arrow").iter(batch_size=rows)
        return
    table = split.data.table.select(list(names))
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)


def columns_of_texts(texts: "Sequence") -> dict[str, list[str]]:
    """Texts, or pairs (text, second text), as columns instance_id, text and, of pairs, text_pair."""
    columns = {"instance_id": [str(row) for row in range(len(texts))]}
    if texts and not isinstance(texts[0], str):
        columns["text"], columns["text_pair"] = (list(part) for part in zip(*texts, strict=True))
    else:
        columns["text"] = list(texts)
    return columns


def texts_in_memory(texts: "Sequence") -> "datasets.Dataset":
    """The same as a data set."""
    import pyarrow as pa

    columns = columns_of_texts(texts)
    return in_memory(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))
