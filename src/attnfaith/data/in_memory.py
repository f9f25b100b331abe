"""A table in memory as a data set, at no cost."""

import secrets
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    import datasets
    import pyarrow as pa


def in_memory(table: "pa.Table") -> "datasets.Dataset":
    """The data set whose rows are those of `table`, named by chance.

    Without a name `datasets` makes one of the content: it pickles and hashes all of it, which takes longer than encoding a
    few texts. It names files of its cache, and of what is in memory there are none.
    """
    import datasets

    return datasets.Dataset(table, fingerprint=secrets.token_hex(8))
