"""The record: the result of a measurement, and the source of all tables, figures, pages and cards. Needs no model.

A record is a `pyarrow.Table` with one row per instance. Identity columns (`Identity`) are repeated on every row, so records
of many cells concatenate and a table is a group-by. Each column carries its `Column` in its field's metadata.

A record holds texts with classes, or sentence pairs with target words. In the records of hierarchical models T counts
sentences, and [T][W] columns hold values of the words of each. Q counts words of a second text. Of pairs T counts source
words, G target words, L the layers of the decoder, first to last, A their heads, and R is 2: row 0 predicts a target word,
row 1 has the word as input.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, TypeAdapter, ValidationError

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
from attnfaith.support.errors import RecordError, cut, excerpt
from attnfaith.support.files import atomic_path


__all__ = (
    ["ABSOLUTE", "COLUMNS", "CONTINUES", "IDENTITY_COLUMNS", "LABELS", "OPTIONAL_COLUMNS", "OUTPUTS", "REPEATS"]
    + ["SEQUENCE_COLUMNS", "UNKNOWN", "UNKNOWN_SEED", "VERSION", "Column", "Identity", "RecordError"]
    + ["as_columns", "build", "check_one_version", "column_of", "common_columns", "concatenate", "equal", "from_row"]
    + ["labelled", "list_lengths", "load", "model_fields", "objective_fields", "of_sequences", "plain"]
    + ["ragged", "rows", "save", "schema_of", "settings", "training_fields", "validate", "with_settings"]
)


VERSION = 8
"""Version of the schema; files of other versions are refused."""
VERSION_KEY = b"attnfaith_schema"
SUM_TOLERANCE = 1e-4
ABSOLUTE = "absolute_"
"""Start of the name under which tests of explanations take a signed measure by its size."""
CONTINUES = "##"
"""Prefix of a token that continues the word of the token before it."""
REPEATS = f"{CONTINUES}⋯"
"""Prefix of a token that is a further part, such as a byte, of a character that the token before it shows."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,79}")
"""What a column's name looks like: it becomes part of file names."""


@dataclass(frozen=True)
class Column:
    """The description of a column of a record.

    axes: names of its dimensions, outermost first: () a scalar per instance, ("T",) a value per token, ("K", "C") per draw
        and class, ("M", "S") per measure and share of the tokens, ("T", "W") per word of each sentence.
    dtype: Arrow type name of the innermost value; "category" for a text of few values.
    distribution: non-negative and summing to 1 along the last axis.
    signed: a negative value is evidence against what is explained.
    undefined: when a value is NaN, or its list empty; "" where it is always defined.
    unit: of the values; "" for a share, a rank or a count. range: least and greatest value, None where there is no bound.
    nullable: a scalar that may be absent.
    tolerance: the largest difference that `attnfaith.reproduction` allows on another machine: of numbers, the mean
        difference over the mean absolute deviation of the column; of other values, the share of texts where they differ.
    needs: capabilities that a subject must have for this column, beside those of its measure; not kept in files.
    doc: the meaning.
    """

    axes: tuple[str, ...] = ()
    dtype: str = "float32"
    distribution: bool = False
    signed: bool = False
    undefined: str = ""
    unit: str = ""
    range: tuple[float | None, float | None] | None = None
    nullable: bool = False
    tolerance: float = 0.05
    doc: str = ""
    needs: frozenset[str] = frozenset()

    def field(self, name: str) -> pa.Field:
        """The Arrow field, with this description in its metadata.

        Raises RecordError for a name that no column may have: it would become part of a file's name.
        """
        if not NAME.fullmatch(name):
            raise RecordError(
                f"column name {name[:80]!r}: a name is lower-case letters, digits and underscores, begins with a letter and "
                "has at most 80 characters"
            )
        return _field(self, name)


@cache  # there are as many as columns of measures, and a record asks for each several times
def _field(column: Column, name: str) -> pa.Field:
    kind = pa.dictionary(pa.int32(), pa.string()) if column.dtype == "category" else pa.type_for_alias(column.dtype)
    for _ in column.axes:
        kind = pa.list_(kind)
    described = {key: value for key, value in vars(column).items() if key != "needs"}
    return pa.field(name, kind, metadata={b"attnfaith": json.dumps(described).encode()})


_read_column = cache(TypeAdapter(Column).validate_json)


def column_of(field: pa.Field) -> Column:
    """Return the description of a record's field; the plain Column for a field without one.

    Raises RecordError for metadata that no Column wrote.
    """
    stored = (field.metadata or {}).get(b"attnfaith")
    try:
        return Column() if stored is None else _read_column(stored)
    except ValidationError as error:
        raise RecordError(f"column '{field.name}': its description in the file cannot be read: {error}") from error


IDENTITY_COLUMNS = {
    **{name: Column(dtype="int64" if name == "seed" else "category", doc=doc) for name, doc in LABELS.items()},
    "cell": Column(dtype="category", doc="all fields of `attnfaith.record.Identity` that are not its defaults, as JSON"),
}
"""The columns by which a record names a cell: labels for people, and the fields that tell it from any other."""
COLUMNS = {
    "instance_id": Column(dtype="string", doc="data set / split / original row"),
    **IDENTITY_COLUMNS,
    "tokens": Column(
        ("T",),
        "string",
        tolerance=0,
        doc="attendable tokens, as read (of a hierarchical model its sentences, or words); no marker or padding",
    ),
    "label": Column(dtype="int64", nullable=True, tolerance=0, doc="gold class; null where unknown"),
    "truncated": Column(dtype="bool", tolerance=0, doc="the text was longer than the limit and was cut"),
    "probs": Column(("C",), distribution=True, doc="the model's class probabilities"),
    "attention": Column(("T",), distribution=True, doc="one weight per token; [] for an empty text"),
}
OUTPUTS = {
    "labels": Column(
        ("C",), range=(0.0, 1.0), doc="the model's probability of each label; labels do not exclude one another"
    ),
    "values": Column(("C",), doc="the model's outputs, which are no probabilities"),
}
"""The column "probs" of a model without classes, by the kind of its outputs."""
SEQUENCE_COLUMNS = {
    "instance_id": COLUMNS["instance_id"],
    **IDENTITY_COLUMNS,
    "tokens": Column(("T",), "string", tolerance=0, doc="source words; no marker or padding"),
    "target_tokens": Column(("G",), "string", tolerance=0, doc="target words; no marker or padding"),
    "truncated": Column(dtype="bool", tolerance=0, doc="a sentence was longer than the limit and was cut"),
    "target_probs": Column(
        ("G",),
        range=(0.0, 1.0),
        doc="probability of each target word given the source and the target words before it: the product over its subwords",
    ),
}
"""The columns of every record of sentence pairs."""
SEQUENCE = "target_tokens"
"""The column that only records of sentence pairs have."""
OPTIONAL_COLUMNS = {
    "word_of_token": Column(
        ("T",), "int64", tolerance=0, doc="of subwords: the number of the word that a token is part of, from 0 in each text"
    ),
    "text_of_token": Column(("T",), "int64", tolerance=0, doc="of pairs, whose texts are both attended: 0 first, 1 second"),
    "rationale": Column(("T",), tolerance=0, doc="gold evidence, 1 on tokens that decide the label and 0 elsewhere"),
    "impermissible": Column(
        ("T",),
        "bool",
        tolerance=0,
        doc="true on what an honest model needs and a deceptive one hides (Pruthi et al. 2020)",
    ),
    "words": Column(("T", "W"), "string", tolerance=0, doc="the words of each sentence"),
    "word_attention": Column(("T", "W"), distribution=True, doc="one weight per word, summing to 1 over its sentence"),
    "selection": Column(
        ("T",),
        "float64",
        range=(0.0, 1.0),
        doc="what the selector gives each token at test time before that is made hard: a probability (bernoulli); 0, 1 or a "
        "mean (hardkuma); the relaxed gate (budget)",
    ),
    "selected": Column(("T",), "bool", doc="whether the model reads the token at test time; it reads no other. Maybe none"),
    "query_tokens": Column(
        ("Q",), "string", tolerance=0, doc="words of the second text, such as a question; nothing attends to them"
    ),
    "gold_links": Column(
        ("G", "T"),
        "int64",
        range=(0, 2),
        tolerance=0,
        doc="of sentence pairs: whether a target word is a translation of a source word: 2 surely, 1 possibly, 0 not",
    ),
}


def of_sequences(record: pa.Table | pa.Schema) -> bool:
    """Whether a record holds sentence pairs, and not texts."""
    return SEQUENCE in (record.column_names if isinstance(record, pa.Table) else record.names)


def common_columns(names: Iterable[str]) -> dict[str, Column]:
    """Return the columns that a record with columns of these names has to have."""
    return SEQUENCE_COLUMNS if SEQUENCE in names else COLUMNS


def build(columns: Mapping[str, Sequence], extra: Mapping[str, Column] | None = None) -> pa.Table:
    """Return a validated record from Python or numpy columns of equal row count, of sentence pairs with target words.

    extra: the columns beside the common ones. Raises RecordError where columns and declarations differ, one of `extra` is
    common, or a rule is broken.
    """
    declared = dict(common_columns(columns))
    for name, column in (extra or {}).items():
        if name in declared and not (name == "probs" and column in OUTPUTS.values()):
            raise RecordError(f"column '{name}' is declared twice: every record has it, so give it another name")
        declared[name] = column
    if different := sorted(set(declared) ^ set(columns)):
        raise RecordError(f"columns {different} are either missing or not declared; declared: {[*declared]}")
    counts = {name: len(values) for name, values in columns.items()}
    if len(set(counts.values())) > 1:
        raise RecordError(f"columns of unequal row count: {counts}")
    schema, arrays = pa.schema([column.field(name) for name, column in declared.items()]), []
    for field in schema:
        try:
            arrays.append(_array(columns[field.name], field.type))
        except (pa.ArrowException, TypeError) as error:
            raise RecordError(f"column '{field.name}' must be {field.type}: {error}") from error
    table = pa.Table.from_arrays(arrays, schema=schema)
    validate(table)
    return table


def _array(values: Sequence, kind: pa.DataType) -> pa.Array:
    """Values of instances, Python's or numpy's, as an array of Arrow."""
    axes = {getattr(value, "ndim", 0) for value in values}
    if len(axes) != 1 or axes <= {0, 1}:
        return pa.array((value.tolist() if getattr(value, "ndim", 0) > 1 else value for value in values), kind)
    # no Python object for each number: there may be millions
    shapes = np.array([value.shape for value in values])
    array = pa.array(np.concatenate([np.ravel(value) for value in values]))
    for axis in reversed(range(shapes.shape[1])):  # a list of this axis for each place in the axes before it
        lengths = np.repeat(shapes[:, axis], shapes[:, :axis].prod(1))
        array = pa.ListArray.from_arrays(pa.array(np.append(0, lengths.cumsum()), pa.int32()), array)
    return array.cast(kind)


def list_lengths(array: pa.ListArray) -> np.ndarray:
    """Return how many values each list holds."""
    return pc.list_value_length(array).to_numpy(zero_copy_only=False)


def validate(table: pa.Table) -> None:
    """Check the rules of a record. Raise RecordError naming the first broken rule, column and row.

    Rules: the common columns are there, with their types; nothing but a label is null; instance ids are unique within a
    cell; in each row all [T] columns have one length and all [C] columns another, with draws too ([K][T], [K][C]), and all
    [T][W] columns as many words in each sentence; distributions are finite, non-negative and sum to 1 within 1e-4 (an empty
    list is allowed: an empty text attends to nothing). Of texts: there is a class, and a label that is not null lies in
    0..C-1. Of sentence pairs: both have words, the axes G, L and A have one length in each row as well, R is 2, and links
    are 0, 1 or 2.
    """
    common = common_columns(table.column_names)
    missing = [name for name in common if name not in table.column_names]
    if missing:
        raise RecordError(f"not a record: columns {missing} are missing; it has {table.column_names}")
    fixed, sequences = common | OPTIONAL_COLUMNS, common is SEQUENCE_COLUMNS
    lengths: dict = dict.fromkeys("TGLAW" if sequences else "TCW")
    if sequences:
        lengths["R"] = "the rule", np.full(table.num_rows, 2)
    for name in sorted(table.column_names, key=lambda name: name not in common):  # the common give T, C and G
        field = table.schema.field(name)
        column, is_fixed = column_of(field), name in fixed
        if is_fixed and not (name == "probs" and column in OUTPUTS.values()):
            column = fixed[name]
        declared = (column if is_fixed else Column()).field(name).type
        if is_fixed and _layout(field.type) != _layout(declared):
            raise RecordError(f"column '{name}' is {field.type}; it must be {declared}")
        _check_values(name, column, table.column(name).combine_chunks(), is_fixed, lengths)
    for axis, kind in (("T", "source"), ("G", "target")) if sequences else ():
        for row in np.flatnonzero(lengths[axis][1] == 0)[:1]:
            raise RecordError(f"row {row}: the {kind} sentence has no words; leave the pair out")
    if not sequences:
        label, classes = table.column("label").to_numpy(), lengths["C"][1]
        for row in np.flatnonzero(classes == 0)[:1]:
            raise RecordError(f"row {row}: column 'probs' is empty; a prediction has a probability for each class")
        for row in np.flatnonzero((label < 0) | (label >= classes))[:1]:  # never of NaN, a label that is null
            raise RecordError(f"row {row}: label {label[row]:.0f} is outside 0..{classes[row] - 1}")
    names = Counter(zip(*(table.column(name).to_pylist() for name in ("instance_id", "cell")), strict=True))
    for (instance, cell), count in names.most_common(1):
        if count > 1:
            heading = ", ".join(f"{name} {value}" for name, value in from_row({"cell": cell}).heading.items())
            raise RecordError(f"instance '{instance}' appears {count} times in one cell ({heading}): give each cell once")


def _layout(kind: pa.DataType) -> tuple[int, str]:
    """How deep lists are nested in a type, and what is in them; floating numbers and integers of any size."""
    depth = 0
    while pa.types.is_list(kind):
        depth, kind = depth + 1, kind.value_type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    number = "float" if pa.types.is_floating(kind) else "int" if pa.types.is_integer(kind) else ""
    return depth, number or str(kind)


def _check_values(name: str, column: Column, array: pa.Array, is_fixed: bool, lengths: dict) -> None:
    """Check the values of a column. lengths: {shared axis: the column that has it first, and its lengths}, of rows, of W of
    sentences; None of an axis that no column has had.
    """
    rows = np.arange(len(array))  # the row of each value
    owners, counts, size = rows, rows[:0], len(array)
    for axis in (*column.axes, ""):  # and then the values
        if axis and not pa.types.is_list(array.type):
            raise RecordError(f"column '{name}' is {array.type}; its axes {column.axes} need nested lists")
        if array.null_count and (axis or (is_fixed and not column.nullable)):
            place = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]
            raise RecordError(f"column '{name}' row {rows[place]}: is null, or holds a null")
        if not axis:
            continue
        owners, counts = rows, list_lengths(array)
        if axis in lengths:
            groups = np.arange(len(counts)) if axis == "W" else rows
            if lengths[axis] is None:
                lengths[axis] = name, np.zeros(len(counts) if axis == "W" else size, np.int64)
                lengths[axis][1][groups] = counts
            first, expected = lengths[axis]
            for place in np.flatnonzero(expected[groups] != counts)[:1]:
                raise RecordError(
                    f"row {rows[place]}: column '{name}' has {counts[place]} values and '{first}' "
                    f"{expected[groups[place]]}; all columns over {axis} of a row must have one length"
                )
        array, rows = array.flatten(), np.repeat(rows, counts)
    ends = column.range if is_fixed else None
    values = array.to_numpy(zero_copy_only=False) if ends or column.distribution else rows
    if ends:
        low, high = ends
        for place in np.flatnonzero(~((values >= low) & (values <= high)))[:1]:
            raise RecordError(f"column '{name}' row {rows[place]}: {values[place]} is outside {low:g}..{high:g}")
    if column.distribution:
        for place in np.flatnonzero(~(values >= 0))[:1]:  # NaN too
            raise RecordError(f"column '{name}' row {rows[place]}: value {values[place]} is not a probability")
        sums = np.bincount(np.repeat(np.arange(len(counts)), counts), weights=values, minlength=len(counts))
        for place in np.flatnonzero((counts > 0) & ~(np.abs(sums - 1) <= SUM_TOLERANCE))[:1]:
            raise RecordError(f"column '{name}' row {owners[place]}: sums to {sums[place]:.6f}, not to 1")


def ragged(values: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """Return values (B,T,...) of padded instances where mask (B,T) is true: one array (T_b,...) per instance."""
    return [row[inside] for row, inside in zip(np.asarray(values), np.asarray(mask, bool), strict=True)]


def with_settings(table: pa.Table, parts: list[dict]) -> pa.Table:
    """Return the record with the settings that made it, one dict per cell, stored in its schema."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), b"attnfaith": json.dumps(parts).encode()})


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
    tables: Iterable[pa.Table], remedy: str = "measure them anew with one, or give --mix-versions (mix_versions=True)"
) -> None:
    """Raise RecordError where different series of the package, major.minor, measured the records: numbers change with these
    only. remedy: what to do, for the message.
    """
    made_by = (part["version"] for table in tables for part in settings(table) if "version" in part)
    versions = sorted({".".join(version.split(".")[:2]) for version in made_by})
    if len(versions) > 1:
        raise RecordError(f"different versions of attnfaith measured the records, {', '.join(versions)}: {remedy}")


def concatenate(tables: Iterable[pa.Table]) -> pa.Table:
    """Return records of several cells as one, with the `settings` of all. `check_one_version` is another step.

    Raises RecordError where the records have different columns, hold one in different types or outputs of different kinds,
    and where the same instance of the same cell comes twice.
    """
    tables = list(tables)
    if not tables:
        raise RecordError("nothing to concatenate: no record was given")
    names = tables[0].column_names
    fields = [table.schema.field("probs") for table in tables if "probs" in table.column_names]
    if len({column_of(field) in OUTPUTS.values() for field in fields}) > 1:
        raise RecordError("'probs' are probabilities of classes in only some of the records: report them apart")
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


class Settings(BaseModel):
    """What pages and cards read of the settings of a cell; there are more, and some records lack some."""

    version: str = ""
    identity: dict = {}
    label_names: list[str] = []
    producers: list[str] = []
    model: str = ""
    source: str = ""
    recipe: dict = {}
    run: dict = {}


_SETTINGS = TypeAdapter(list[Settings])


def settings(table: pa.Table) -> list[dict]:
    """Return what made the record: one dict of settings per cell; [] where none were stored.

    Raises RecordError where anything else is stored.
    """
    stored = (table.schema.metadata or {}).get(b"attnfaith", b"[]")
    try:
        _SETTINGS.validate_json(stored)
    except ValidationError as error:
        fault = error.errors()[0]
        why = f"{fault['msg']} at {'.'.join(map(str, fault['loc'])) or 'their start'}"
        raise RecordError(f"the record's settings are {excerpt(stored)}: {why}; measure the model anew") from error
    return json.loads(stored)


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
