"""A table in memory as a data set, without the hashing and copying of `datasets`."""

import secrets
from collections.abc import Sequence


def in_memory(table):
    """Return a `datasets.Dataset` with the rows of an Arrow table and a random fingerprint.

    `datasets` would pickle and hash all content for a name of cache files, which takes longer than encoding a few texts.
    """
    import datasets

    return datasets.Dataset(table, fingerprint=secrets.token_hex(8))


def texts_in_memory(texts: Sequence):
    """Return texts, or pairs (text, second text), as a data set with instance_id, text and, of pairs, text_pair."""
    import pyarrow as pa

    pairs = [(text,) if isinstance(text, str) else text for text in texts]
    columns = dict(zip(("text", "text_pair"), map(list, zip(*pairs, strict=True)), strict=False)) or {"text": []}
    columns["instance_id"] = list(map(str, range(len(pairs))))
    return in_memory(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))
