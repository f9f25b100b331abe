"""A table in memory as a data set, and a data set as tables, at no cost."""

import secrets
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


def encoded_in_memory(
    dataset: "datasets.Dataset", read: "Callable", types: "Mapping[str, pa.DataType]"
) -> "datasets.Dataset":
    """`dataset.map(read, batched=True)`, which of a few texts takes longer than to encode them: it hashes and shows a bar.

    read: from the rows of a batch by column, and the number of the first, to new columns. types: of all columns that stay or
    are new, in their order.
    """
    import pyarrow as pa

    tables = [] if len(dataset) else [pa.schema(types).empty_table()]
    for start in range(0, len(dataset), 1000):  # so that the Python lists of one batch only are alive
        rows = dataset[start : start + 1000]
        columns = {**rows, **read(rows, start)}
        tables.append(pa.table({name: pa.array(columns[name], kind) for name, kind in types.items() if name in columns}))
    return in_memory(pa.concat_tables(tables))


def texts_in_memory(texts: "Sequence") -> "datasets.Dataset":
    """Texts, or pairs (text, second text), as a data set with instance_id, text and, of pairs, text_pair."""
    import pyarrow as pa

    columns = {"instance_id": [str(row) for row in range(len(texts))], "text": list(texts)}
    if texts and not isinstance(texts[0], str):
        columns["text"], columns["text_pair"] = (list(part) for part in zip(*texts, strict=True))
    return in_memory(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))
