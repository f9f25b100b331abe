"""Where a record may come from: a file, a run, a data set on the Hub."""

import os
from pathlib import Path

import pyarrow as pa

from attnfaith import record as records
from attnfaith.errors import AttnfaithError, excerpt


RECORD = "record.parquet"  # in the folder of a run


def table_of(source: str | os.PathLike, config: str | None = None) -> pa.Table:
    """The record that a path, a run or a name on the Hub stands for; config: which one of a repository that holds several.

    Raises RecordError for a file that is no record, AttnfaithError where there is neither a file nor a repository.
    """
    if not isinstance(source, str | os.PathLike):
        raise AttnfaithError(f"a record is loaded from a path or a name on the Hub, not from {excerpt(source)}")
    path = Path(source)
    if path.exists():
        if config is not None:
            raise AttnfaithError(f"config={excerpt(config)} is for repositories of the Hub; {path} holds one record")
        return records.load(path / RECORD if path.is_dir() else path)
    if path.suffix == ".parquet" or len(path.parts) != 2 or path.is_absolute():
        raise records.RecordError(f"no record at {path}")
    from attnfaith.hub import fetch_record

    return fetch_record(str(source), config)


def name_of(source: object, number: int) -> str:
    """What a record is called where several stand beside each other."""
    if not isinstance(source, str | os.PathLike):
        return f"record {number}"
    path = Path(source)
    return path.parent.name or path.name if path.name == RECORD else path.name.removesuffix(".parquet")
