"""Read, write, join and compare records; their columns as arrays."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith.record.schema import (
    VERSION,
    VERSION_KEY,
    column_of,
    has_classes,
    of_sequences,
    validate,
    with_settings,
)
from attnfaith.support.errors import RecordError, cut, excerpt
from attnfaith.support.files import atomic_path


def rows(table: pa.Table, column: str) -> list[np.ndarray]:
    """Return a list column as one numpy array per instance, with the axes of the column: (T,), (C,),
    (K,T) of draws, (L,A,R,G,T) of attention between two sentences.

    Without draws, (0, 0). A column [T][W] gives a list of T arrays (W,) per instance. Raises RecordError where the record
    has no such column, it holds one value per instance, or the lists of an instance differ in length.
    """
    if column not in table.column_names:
        raise RecordError(f"the record has no column '{column}'; it has {table.column_names}")
    array = table.column(column).combine_chunks()
    if not pa.types.is_list(array.type):
        raise RecordError(f"column '{column}' holds one {array.type} per instance, not a list")
    bounds = [array.offsets.to_numpy()]
    while pa.types.is_list(array.values.type):
        array = array.values
        bounds.append(array.offsets.to_numpy())
    flat = array.values.to_numpy(zero_copy_only=False)
    outer = list(zip(bounds[0][:-1], bounds[0][1:], strict=True))
    if len(bounds) == 1:
        return [flat[start:stop] for start, stop in outer]
    if column_of(table.schema.field(column)).axes[-1] == "W":
        return [[flat[bounds[1][place] : bounds[1][place + 1]] for place in range(*both)] for both in outer]
    return [_shaped(flat, bounds, start, stop, f"column '{column}' row {row}") for row, (start, stop) in enumerate(outer)]


def _shaped(flat: np.ndarray, bounds: list[np.ndarray], start: int, stop: int, where: str) -> np.ndarray:
    """The lists start..stop along the second axis as one array; bounds: where the lists of each axis begin and end."""
    shape = [stop - start]
    for inner in bounds[1:]:
        if len(lengths := np.unique(np.diff(inner[start : stop + 1]))) > 1:
            raise RecordError(f"{where}: draws of lengths {lengths.tolist()}; they must have one length")
        shape.append(lengths[0] if len(lengths) else 0)
        start, stop = inner[start], inner[stop]
    return flat[start:stop].reshape(shape)


def series(version: str) -> str:
    """Return major.minor of a version of the package: numbers change with these only, so records of a series compare."""
    return ".".join(version.split(".")[:2])


def check_one_version(
    tables: Iterable[pa.Table], remedy: str = "measure them anew with one, or give mix_versions=True"
) -> None:
    """Raise RecordError where different series of the package, major.minor, measured the records. remedy: what to do, for
    the message.
    """
    versions = sorted({series(part["version"]) for table in tables for part in settings(table) if "version" in part})
    if len(versions) > 1:
        raise RecordError(f"different versions of attnfaith measured the records, {', '.join(versions)}: {remedy}")


def concatenate(tables: Iterable[pa.Table], *, mix_versions: bool = False) -> pa.Table:
    """Return records of several cells as one, with the `settings` of all.

    Raises RecordError where the records have different columns, hold one in different types or outputs of different kinds,
    where the same instance of the same cell comes twice, or, unless mix_versions, different versions of the package measured
    them.
    """
    tables = list(tables)
    if not tables:
        raise RecordError("nothing to concatenate: no record was given")
    if len({of_sequences(table) for table in tables}) > 1:
        raise RecordError("some of the records hold texts and some sentence pairs: report them apart")
    if not of_sequences(tables[0]) and len({has_classes(table) for table in tables}) > 1:
        raise RecordError("'probs' are probabilities of classes in only some of the records: report them apart")
    if not mix_versions:
        check_one_version(tables)
    names = tables[0].column_names
    for number, table in enumerate(tables):
        if different := sorted(set(table.column_names) ^ set(names)):
            raise RecordError(
                f"record {number} has other columns than record 0: {cut(', '.join(different))} are in one only; measure "
                "both with the same measures, or report each alone"
            )
    gathered = [part for table in tables for part in settings(table)]
    try:
        joined = pa.concat_tables([table.select(names) for table in tables], promote_options="default")
    except pa.ArrowException as error:
        raise RecordError(f"the records hold one column in different types: {error}") from error
    joined = with_settings(joined.unify_dictionaries(), gathered)
    validate(joined)
    return joined


def equal(first: pa.Table, second: pa.Table) -> bool:
    """Whether two records have the same columns, of the same types, with the same values; NaN is equal to NaN."""
    return first.schema == second.schema and repr(first.to_pydict()) == repr(second.to_pydict())


def plain(table: pa.Table) -> pa.Table:
    """Return the columns of a record with strings in place of dictionaries and without metadata, for any reader of Arrow."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def settings(table: pa.Table | pa.Schema) -> list[dict]:
    """Return what made the record: one dict of settings per cell; [] where none were stored.

    Raises RecordError where anything else is stored.
    """
    schema = table if isinstance(table, pa.Schema) else table.schema
    stored = (schema.metadata or {}).get(b"attnfaith", b"[]")
    try:
        parts = json.loads(stored)
        columns = [part.get("columns", {}) for part in parts]  # those of a cell name the measures that made them
        if isinstance(parts, list) and all(isinstance(measure, str) for each in columns for measure in each.values()):
            return parts
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise RecordError(f"the record's settings are {excerpt(stored)}, no list of one object per cell: measure the model anew")


def save(table: pa.Table, path: str | os.PathLike) -> None:
    """Write a record as parquet, whole or not at all: `path` is either the old file or the whole new one.

    Raises RecordError where the record breaks a rule, FileError where it cannot be written (the old file stays).
    """
    validate(table)
    metadata = {**(table.schema.metadata or {}), VERSION_KEY: str(VERSION).encode()}
    with atomic_path(path) as temporary:
        # measured values hardly repeat: dictionaries of them are slow to make, and the file is the larger for them
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd", use_dictionary=False)


def load(path: str | os.PathLike) -> pa.Table:
    """Read a record and check it.

    Raises RecordError where the file is absent, corrupt or half-written, of another version of the schema, or breaks a rule.
    """
    stored = schema_of(path)
    if "instance_id" not in stored.names:
        raise RecordError(
            f"{path} is no record of this package: it has the columns {', '.join(map(repr, stored.names[:10]))}"
        )
    version = (stored.metadata or {}).get(VERSION_KEY, b"1").decode(errors="replace")
    if version != str(VERSION):
        raise RecordError(
            f"{path} has version {cut(version, 20)} of the record's schema, this package reads {VERSION}: measure the model "
            "anew"
        )
    with _readable(path):
        table = pq.read_table(path, partitioning=None)  # a folder that is called seed=3 is no column
    validate(table)
    settings(table)
    pa.default_memory_pool().release_unused()  # reading a column takes several times its size
    return table


def schema_of(path: str | os.PathLike) -> pa.Schema:
    """Return the schema in a record's file. Raises RecordError where there is no file, or it is corrupt."""
    if not Path(path).is_file():
        raise RecordError(f"no record at {path}")
    with _readable(path):
        return pq.read_schema(path)


@contextlib.contextmanager
def _readable(path: str | os.PathLike) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise RecordError(f"{path} is not a readable record (corrupt or half-written): {error}") from error
