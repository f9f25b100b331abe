"""The schema of a record and its rules.

A record is a `pyarrow.Table` with one row per instance. Identity columns (`Identity`) are repeated on every row, so records
of many cells concatenate and a table is a group-by. Each column carries its `Column` in its field's metadata.

A record holds texts with classes, or sentence pairs with target words. In the records of hierarchical models T counts
sentences, and [T][W] columns hold values of the words of each. Q counts words of
a second text. Of pairs T counts source words, G target words, L the layers of the decoder, first to last, A their heads, and
R is 2: row 0 predicts a target word, row 1 has the word as input.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from attnfaith.record.identity import LABELS, from_row
from attnfaith.support.errors import RecordError


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

    @lru_cache(maxsize=1024)  # noqa: B019 (of few columns, and a measurement asks for all of them)
    def field(self, name: str) -> pa.Field:
        """The Arrow field, with this description in its metadata.

        Raises RecordError for a name that no column may have: it would become part of a file's name.
        """
        if not NAME.fullmatch(name):
            raise RecordError(
                f"column name {name[:80]!r}: a name is lower-case letters, digits and underscores, begins with a letter and "
                "has at most 80 characters"
            )
        kind = pa.dictionary(pa.int32(), pa.string()) if self.dtype == "category" else pa.type_for_alias(self.dtype)
        for _ in self.axes:
            kind = pa.list_(kind)
        described = {key: value for key, value in vars(self).items() if key != "needs"}
        return pa.field(name, kind, metadata={b"attnfaith": json.dumps(described).encode()})


def column_of(field: pa.Field) -> Column:
    """Return the description of a record's field; the plain Column for a field without one.

    Raises RecordError for metadata that no Column wrote.
    """
    stored = (field.metadata or {}).get(b"attnfaith")
    try:
        return Column() if stored is None else _described(stored)
    except ValidationError as error:
        raise RecordError(f"column '{field.name}': its description in the file cannot be read: {error}") from error


_described = lru_cache(maxsize=1024)(TypeAdapter(Column).validate_json)  # of the same columns, again and again


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


def has_classes(record: pa.Table | pa.Schema) -> bool:
    """Whether the predictions of a record of texts are probabilities of classes, which sum to 1."""
    schema = record.schema if isinstance(record, pa.Table) else record
    return column_of(schema.field("probs")) not in OUTPUTS.values()


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
    schema = pa.schema([column.field(name) for name, column in declared.items()], {VERSION_KEY: str(VERSION).encode()})
    arrays = []
    for field in schema:
        values = [
            value.tolist() if isinstance(value, np.ndarray) and value.ndim > 1 else value for value in columns[field.name]
        ]
        is_category = pa.types.is_dictionary(field.type)
        try:
            array = pa.array(values, pa.string() if is_category else field.type)
        except (pa.ArrowException, TypeError) as error:
            raise RecordError(f"column '{field.name}' must be {field.type}: {error}") from error
        arrays.append(array.dictionary_encode() if is_category else array)
    table = pa.Table.from_arrays(arrays, schema=schema)
    validate(table)
    return table


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
    lengths = {axis: {} for axis in (("T", "G", "L", "A", "R", "W") if sequences else ("T", "C", "W"))}
    if sequences:
        lengths["R"] = {"the rule": np.full(table.num_rows, 2)}
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
        for row in np.flatnonzero(next(iter(lengths[axis].values())) == 0)[:1]:
            raise RecordError(f"row {row}: the {kind} sentence has no words; leave the pair out")
    if not sequences:
        label, classes = table.column("label").to_numpy(), lengths["C"]["probs"]
        for row in np.flatnonzero(classes == 0)[:1]:
            raise RecordError(f"row {row}: column 'probs' is empty; a prediction has a probability for each class")
        for row in np.flatnonzero((label < 0) | (label >= classes))[:1]:  # never of NaN, a label that is null
            raise RecordError(f"row {row}: label {label[row]:.0f} is outside 0..{classes[row] - 1}")
    cells = table.select(["instance_id", "cell"]).group_by(["instance_id", "cell"]).aggregate([([], "count_all")])
    for row in cells.filter(pc.greater(cells.column("count_all"), 1)).slice(0, 1).to_pylist():
        cell = ", ".join(f"{name} {value}" for name, value in from_row(row).heading.items())
        raise RecordError(
            f"instance '{row['instance_id']}' appears {row['count_all']} times in one cell ({cell}): give each cell once"
        )


def _layout(kind: pa.DataType) -> tuple[int, str]:
    """How deep lists are nested in a type, and what is in them; floating numbers and integers of any size."""
    depth = 0
    while pa.types.is_list(kind):
        depth, kind = depth + 1, kind.value_type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    number = "float" if pa.types.is_floating(kind) else "int" if pa.types.is_integer(kind) else ""
    return depth, number or str(kind)


def _check_values(name: str, column: Column, array: pa.Array, is_fixed: bool, lengths: dict[str, dict]) -> None:
    """Check the values of a column. lengths: {shared axis: {the column that came first: its lengths}}, of rows, of W of
    sentences; filled with what a column is the first to have.
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
        owners, counts = rows, pc.list_value_length(array).to_numpy(zero_copy_only=False)
        if axis in lengths:
            groups = np.arange(len(counts)) if axis == "W" else rows
            if not lengths[axis]:
                lengths[axis][name] = np.zeros(len(counts) if axis == "W" else size, np.int64)
                lengths[axis][name][groups] = counts
            ((first, expected),) = lengths[axis].items()
            for place in np.flatnonzero(expected[groups] != counts)[:1]:
                raise RecordError(
                    f"row {rows[place]}: column '{name}' has {counts[place]} values and '{first}' "
                    f"{expected[groups[place]]}; all columns over {axis} of a row must have one length"
                )
        array, rows = array.flatten(), np.repeat(rows, counts)
    if is_fixed and column.range:
        (low, high), values = column.range, array.to_numpy(zero_copy_only=False)
        for place in np.flatnonzero(~((values >= low) & (values <= high)))[:1]:
            raise RecordError(f"column '{name}' row {rows[place]}: {values[place]} is outside {low:g}..{high:g}")
    if column.distribution and column.axes:
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
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
