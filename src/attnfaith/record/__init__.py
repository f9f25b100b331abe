"""The record: the result of a measurement, and the source of all tables, figures, pages and cards. Needs no model.

Here it is read, written, joined and compared. `schema` has its columns and rules, `identity` what names a cell.
"""

import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith.record.identity import (
    LABELS,
    UNKNOWN,
    UNKNOWN_SEED,
    Identity,
    as_columns,
    from_row,
    labelled,
    model_fields,
    objective_fields,
    training_fields,
)
from attnfaith.record.schema import (
    ABSOLUTE,
    COLUMNS,
    CONTINUES,
    IDENTITY_COLUMNS,
    OPTIONAL_COLUMNS,
    OUTPUTS,
    REPEATS,
    SEQUENCE_COLUMNS,
    VERSION,
    VERSION_KEY,
    Column,
    build,
    column_of,
    common_columns,
    has_classes,
    list_lengths,
    of_sequences,
    ragged,
    validate,
    with_settings,
)
from attnfaith.support.errors import RecordError, cut, excerpt
from attnfaith.support.files import atomic_path


__all__ = (
    ["ABSOLUTE", "COLUMNS", "CONTINUES", "IDENTITY_COLUMNS", "LABELS", "OPTIONAL_COLUMNS", "OUTPUTS", "REPEATS"]
    + ["SEQUENCE_COLUMNS", "UNKNOWN", "UNKNOWN_SEED", "VERSION", "Column", "Identity", "RecordError"]
    + ["as_columns", "build", "check_one_version", "column_of", "common_columns", "concatenate", "equal", "from_row"]
    + ["has_classes", "labelled", "list_lengths", "load", "model_fields", "objective_fields", "of_sequences", "plain"]
    + ["ragged", "rows", "save", "schema_of", "settings", "training_fields", "validate", "with_settings"]
)


def rows(table: pa.Table, column: str) -> list[np.ndarray]:
    """Return a list column as one numpy array per instance, with the axes of the column: (T,), (C,),
    (K,T) of draws, (L,A,R,G,T) of attention between two sentences.

    Without draws, (0, 0). A column [T][W] gives a list of T arrays (W,) per instance. Raises RecordError where the record
    has no such column, it holds one value per instance, or the lists of an instance differ in length.
    """
    if column not in table.column_names:
        raise RecordError(f"the record has no column '{column}'; it has {table.column_names}")
    values, bounds = table.column(column).combine_chunks(), []
    if not pa.types.is_list(values.type):
        raise RecordError(f"column '{column}' holds one {values.type} per instance, not a list")
    is_ragged = column_of(table.schema.field(column)).axes[-1:] == ("W",)
    while pa.types.is_list(values.type):  # where the lists of each axis begin and end
        bounds.append(values.offsets.to_numpy())
        values = values.values
    flat, arrays = values.to_numpy(zero_copy_only=False), []
    for row, (start, stop) in enumerate(pairwise(bounds[0].tolist())):
        if is_ragged:
            arrays.append([flat[slice(*ends)] for ends in pairwise(bounds[1][start : stop + 1])])
            continue
        shape = [stop - start]
        for inner in bounds[1:]:
            lengths = np.unique(np.diff(inner[start : stop + 1]))
            if len(lengths) > 1:
                raise RecordError(
                    f"column '{column}' row {row}: draws of lengths {lengths.tolist()}; they must have one length"
                )
            shape.append(lengths[0] if len(lengths) else 0)
            start, stop = inner[start], inner[stop]
        arrays.append(flat[start:stop].reshape(shape))
    return arrays


def check_one_version(
    tables: Iterable[pa.Table], remedy: str = "measure them anew with one, or give mix_versions=True"
) -> None:
    """Raise RecordError where different series of the package, major.minor, measured the records: numbers change with these
    only. remedy: what to do, for the message.
    """
    made_by = (part["version"] for table in tables for part in settings(table) if "version" in part)
    versions = sorted({".".join(version.split(".")[:2]) for version in made_by})
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
    try:
        joined = pa.concat_tables([table.select(names) for table in tables], promote_options="default")
    except pa.ArrowException as error:
        raise RecordError(f"the records hold one column in different types: {error}") from error
    joined = with_settings(joined.unify_dictionaries(), [part for table in tables for part in settings(table)])
    validate(joined)
    return joined


def equal(first: pa.Table, second: pa.Table) -> bool:
    """Whether two records have the same columns, of the same types, with the same values; NaN is equal to NaN."""
    return first.schema == second.schema and repr(first.to_pydict()) == repr(second.to_pydict())


def plain(table: pa.Table) -> pa.Table:
    """Return the columns of a record with strings in place of dictionaries and without metadata, for any reader of Arrow."""
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))


def settings(table: pa.Table) -> list[dict]:
    """Return what made the record: one dict of settings per cell; [] where none were stored.

    Raises RecordError where anything else is stored.
    """
    stored = (table.schema.metadata or {}).get(b"attnfaith", b"[]")
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
    table = _read(path, partial(pq.read_table, partitioning=None))  # a folder that is called seed=3 is no column
    validate(table)
    settings(table)
    pa.default_memory_pool().release_unused()  # reading a column takes several times its size
    return table


def schema_of(path: str | os.PathLike) -> pa.Schema:
    """Return the schema in a record's file. Raises RecordError where there is no file, or it is corrupt."""
    if not Path(path).is_file():
        raise RecordError(f"no record at {path}")
    return _read(path, pq.read_schema)


def _read(path: str | os.PathLike, read: Callable):
    try:
        return read(path)
    except (pa.ArrowException, OSError) as error:
        raise RecordError(f"{path} is not a readable record (corrupt or half-written): {error}") from error
