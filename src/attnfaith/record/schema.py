"""The record: one row per instance, everything downstream of the models reads it and nothing else.

A record is a `pyarrow.Table`. Identity columns (`Identity`) are repeated on every row, so records of many cells concatenate
and a table is a group-by. Each column carries what it is (`Column`) in its field's metadata, which is how a row is checked:
every [T] column of a row has the same length, every [C] column too, and a column marked `distribution` is non-negative and
sums to 1 along its last axis. In the records of hierarchical models T counts sentences, and [T][W] columns hold values of
the words of each; measured at the word level, T counts words. Q counts words of a second text.

A record is of texts, which have classes, or of sentence pairs: these have target words. There T counts source words, G
target words, L the layers of the decoder, first to last, A their heads, and R is 2: row 0 is the one that predicts a target
word, row 1 the one in which the word is the input.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attnfaith.record.column import Column, RecordError, check_name, column_of
from attnfaith.record.identity import IDENTITY_COLUMNS, from_row


VERSION = 8
"""Version of the schema; a file of another one is refused."""
VERSION_KEY = b"attnfaith_schema"
SUM_TOLERANCE = 1e-4
BLOCK = 1 << 20
"""How many values are checked at a time: what is made of them takes several times their memory."""
ABSOLUTE = "absolute_"
"""Start of the name under which tests of explanations take a signed measure by its size."""

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
"""What "probs" holds of a model without classes, by what its outputs are."""
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
"""The column that tells a record of sentence pairs from one of texts."""
ROWS = 2
"""How many rows of attention a target word has."""
ONE_A_ROW = ("T", "C")
"""The axes along which all lists of a row have one length."""
OF_SEQUENCES = ("T", "G", "L", "A", "R")
"""The same of a record of sentence pairs."""
IN_RANGE = ("probs", "target_probs", "gold_links")
"""The columns whose values are checked to be in range."""
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
        words="largest",
        doc="what the selector gives each token at test time before that is made hard: a probability (bernoulli); 0, 1 or a "
        "mean (hardkuma); the relaxed gate (budget)",
    ),
    "selected": Column(
        ("T",), "bool", words="largest", doc="whether the model reads the token at test time; it reads no other. Maybe none"
    ),
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
    """Whether a record is of sentence pairs, and not of texts."""
    return SEQUENCE in (record.column_names if isinstance(record, pa.Table) else record.names)


def has_classes(record: pa.Table | pa.Schema) -> bool:
    """Whether the predictions of a record of texts are probabilities of classes, which sum to 1."""
    schema = record.schema if isinstance(record, pa.Table) else record
    return column_of(schema.field("probs")) not in OUTPUTS.values()


def common_columns(names: Iterable[str]) -> dict[str, Column]:
    """The columns that a record with columns of these names has to have."""
    return SEQUENCE_COLUMNS if SEQUENCE in names else COLUMNS


def schema(extra: Mapping[str, Column] | None = None, *, sequences: bool = False) -> pa.Schema:
    """The Arrow schema of a record with the columns of the given producers beside the common ones.

    sequences: of sentence pairs. Raises RecordError where a producer declares a name that the record already has.
    """
    columns = dict(SEQUENCE_COLUMNS if sequences else COLUMNS)
    for name, column in (extra or {}).items():
        if name in columns and not (name == "probs" and column in OUTPUTS.values()):
            raise RecordError(f"column '{name}' is declared twice: rename it in the producer's COLUMNS")
        columns[name] = column
    return pa.schema([column.field(name) for name, column in columns.items()], {VERSION_KEY: str(VERSION).encode()})


def build(columns: Mapping[str, Sequence], extra: Mapping[str, Column] | None = None) -> pa.Table:
    """A validated record from Python or numpy columns of equal row count; of sentence pairs where there are target words."""
    wanted = schema(extra, sequences=SEQUENCE in columns)
    if missing := [name for name in wanted.names if name not in columns]:
        raise RecordError(f"columns missing: {missing}; given: {sorted(columns)}")
    if unknown := [name for name in columns if name not in wanted.names]:
        raise RecordError(f"columns nobody declared: {unknown}; declared: {wanted.names}")
    counts = {name: len(values) for name, values in columns.items()}
    if len(set(counts.values())) > 1:
        raise RecordError(f"columns of unequal row count: {counts}")
    arrays = [_array(columns[field.name], field) for field in wanted]
    table = pa.Table.from_arrays(arrays, schema=wanted)
    validate(table)
    return table


def _array(values: Sequence, field: pa.Field) -> pa.Array:
    try:
        if pa.types.is_dictionary(field.type):
            return pa.array(values, pa.string()).dictionary_encode()
        if len(axes(field)) > 1 and len(values) and all(isinstance(value, np.ndarray) for value in values):
            return _nested(values, field.type)
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError) as error:
        raise RecordError(f"column '{field.name}' must be {field.type}: {error}") from error


def _nested(values: Sequence[np.ndarray], kind: pa.DataType) -> pa.Array:
    """One array of several axes per instance as lists of lists, without a Python object for each of the innermost."""
    kinds = [kind]
    while pa.types.is_list(kinds[-1]):
        kinds.append(kinds[-1].value_type)
    made = pa.array(np.concatenate([value.ravel() for value in values]), kinds.pop())
    for depth in reversed(range(1, len(kinds))):  # lists along the last axis first
        counts = [math.prod(value.shape[:depth]) for value in values]
        lengths = np.repeat([value.shape[depth] for value in values], counts)
        made = pa.ListArray.from_arrays(offsets(lengths), made, kinds[depth])
    return pa.ListArray.from_arrays(offsets([len(value) for value in values]), made, kind)


def offsets(lengths: Sequence[int]) -> pa.Array:
    """Where lists of these lengths begin and end in their flat values."""
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def axes(field: pa.Field) -> tuple[str, ...]:
    """The axes of a record's column."""
    return column_of(field).axes


def list_lengths(array: pa.ListArray) -> np.ndarray:
    """How many values each list holds."""
    return pc.list_value_length(array).to_numpy(zero_copy_only=False)


def validate(table: pa.Table) -> None:
    """Check the rules a record obeys; raise RecordError naming the first broken rule, column and row.

    Rules: the common columns are there, with their types; nothing but a label is null; instance ids are unique within a
    cell; in each row all [T] columns have one length and all [C] columns another, with draws too ([K][T], [K][C]), and all
    [T][W] columns as many words in each sentence; distributions are finite, non-negative and sum to 1 within 1e-4 (an empty
    one is allowed: an empty text attends to nothing). Of texts: there is a class, and a label that is not null lies in
    0..C-1. Of sentence pairs: both have words, the axes G, L and A have one length in each row as well, R is 2, and links
    are 0, 1 or 2.
    """
    names = table.column_names
    common_ones = common_columns(names)
    if missing := [name for name in common_ones if name not in names]:
        raise RecordError(f"not a record: columns {missing} are missing; it has {names}")
    lengths = _Lengths(table.num_rows, OF_SEQUENCES if of_sequences(table) else ONE_A_ROW)
    for field in sorted(table.schema, key=lambda field: field.name not in common_ones):  # these give T, C and G
        check_name(field.name)
        common = common_ones.get(field.name, OPTIONAL_COLUMNS.get(field.name))
        stated = column_of(field)
        if field.name == "probs" and stated in OUTPUTS.values():
            common = stated
        expected_axes = stated.axes or (common or stated).axes
        if common:
            _check_type(field, common)
        elif not expected_axes and pa.types.is_nested(field.type):
            raise RecordError(f"column '{field.name}' is a list but its metadata names no axes")
        column = whole(table.column(field.name))
        for start, part in _parts(column, len(expected_axes)):
            _check_values(field, part, start, common, stated, expected_axes, lengths)
        if "W" in expected_axes:
            lengths.check_words(field.name, column)
    if of_sequences(table):
        for axis, what in (("T", "source"), ("G", "target")):
            if (bad := np.flatnonzero(lengths.of(axis) == 0)).size:
                raise RecordError(f"row {bad[0]}: the {what} sentence has no words; leave the pair out")
    else:
        _check_classes(table, lengths.of("C"))
    _check_unique(table)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, itself where it is: `combine_chunks` copies even then."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _parts(column: pa.Array, depth: int) -> Iterator[tuple[int, pa.Array]]:
    """The rows of a column of so many axes in parts of about BLOCK values, and the number of the first row of each."""
    flat = column
    for _ in range(depth):
        flat = flat.flatten() if pa.types.is_list(flat.type) else flat
    at_once = max(1, len(column) * BLOCK // max(len(flat), len(column), 1))
    for start in range(0, max(len(column), 1), at_once):
        yield start, column.slice(start, at_once)


def _check_values(
    field: pa.Field,
    column: pa.Array,
    start: int,
    common: Column | None,
    stated: Column,
    expected_axes: tuple[str, ...],
    lengths: "_Lengths",
) -> None:
    """The rules for the values of some rows of a column; start: the number of the first of them."""
    owner = np.arange(start, start + len(column))  # the row of each list that is looked at
    for axis in expected_axes:
        if not pa.types.is_list(column.type):
            raise RecordError(f"column '{field.name}' is {field.type}; its axes {expected_axes} need nested lists")
        _check_no_null(field.name, column, owner)
        counts = list_lengths(column)
        lengths.check(field.name, axis, counts, owner)
        innermost, owner_of_lists = column, owner
        column, owner = column.flatten(), np.repeat(owner, counts)
    if common and not common.nullable:
        _check_no_null(field.name, column, owner)
    if expected_axes and (stated.distribution or (common and common.distribution)):
        _check_distribution(field.name, innermost, owner_of_lists)
    if common and common.range is not None and field.name in IN_RANGE:
        _check_range(field.name, column, owner, common.range)


class _Lengths:
    """How long lists along an axis are in each row, by the first column that has any there."""

    def __init__(self, rows: int, one_a_row: tuple[str, ...]):
        self._rows, self._one_a_row = rows, one_a_row
        self._known: dict[str, tuple[str, np.ndarray]] = {"R": ("the rule", np.full(rows, ROWS))}
        self._words: tuple[str, np.ndarray] | None = None

    def of(self, axis: str) -> np.ndarray:
        return self._known[axis][1]

    def check(self, name: str, axis: str, counts: np.ndarray, owner: np.ndarray) -> None:
        """Raises RecordError unless all lists along an axis have one length in a row. owner: the row of each list."""
        if axis not in self._one_a_row:
            return
        known, wanted = self._known.setdefault(axis, (name, np.zeros(self._rows, np.int64)))
        if known == name:
            wanted[owner] = counts
        if (bad := np.flatnonzero(wanted[owner] != counts)).size:
            row = int(owner[bad[0]])
            raise RecordError(
                f"row {row}: column '{name}' has {counts[bad[0]]} values and '{known}' {wanted[row]}; "
                f"all columns over {axis} of a row must have one length"
            )

    def check_words(self, name: str, column: pa.ListArray) -> None:
        """Raises RecordError unless each sentence has as many words in a column [T][W] as in the first such column."""
        counts = list_lengths(column.flatten())
        first, wanted = self._words = self._words or (name, counts)
        if (bad := np.flatnonzero(wanted != counts)).size:
            row = np.repeat(np.arange(self._rows), list_lengths(column))[bad[0]]
            raise RecordError(
                f"row {row}: columns '{name}' and '{first}' have other numbers of words in a sentence; all columns over W "
                "must have one"
            )


def _check_classes(table: pa.Table, classes: np.ndarray) -> None:
    label = table.column("label").to_numpy()
    if (bad := np.flatnonzero(classes == 0)).size:
        raise RecordError(f"row {bad[0]}: column 'probs' is empty; a prediction has a probability for each class")
    known_label = ~np.isnan(label.astype(float))
    if (bad := np.flatnonzero(known_label & ((label < 0) | (label >= classes)))).size:
        row = int(bad[0])
        raise RecordError(f"row {row}: label {label[row]:.0f} is outside 0..{classes[row] - 1}")


def _check_range(name: str, array: pa.Array, owner: np.ndarray, limits: tuple[float, float]) -> None:
    values = array.to_numpy(zero_copy_only=False)
    if (bad := np.flatnonzero(~((values >= limits[0]) & (values <= limits[1])))).size:
        low, high = (f"{limit:g}" for limit in limits)
        raise RecordError(f"column '{name}' row {owner[bad[0]]}: {values[bad[0]]} is outside {low}..{high}")


def _check_type(field: pa.Field, column: Column) -> None:
    kind = field.type
    for _ in column.axes:
        kind = kind.value_type if pa.types.is_list(kind) else pa.null()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    alike = {
        "string": pa.types.is_string,
        "category": pa.types.is_string,
        "int64": pa.types.is_integer,
        "bool": pa.types.is_boolean,
        "float32": pa.types.is_floating,
        "float64": pa.types.is_floating,
    }
    if not alike[column.dtype](kind):
        raise RecordError(f"column '{field.name}' is {field.type}; it must be {column.arrow_type()}")


def _check_no_null(name: str, array: pa.Array, owner: np.ndarray) -> None:
    if array.null_count:
        place = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise RecordError(f"column '{name}' row {owner[place]}: is null, or holds a null")


def _check_distribution(name: str, lists: pa.ListArray, rows_of_lists: np.ndarray) -> None:
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    lengths = list_lengths(lists)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    sums = np.bincount(owner, weights=values, minlength=len(lengths))
    bad_value = ~(values >= 0)  # also true for NaN
    if bad_value.any():
        place = int(np.flatnonzero(bad_value)[0])
        row = rows_of_lists[owner[place]]
        raise RecordError(f"column '{name}' row {row}: value {values[place]} is not a probability")
    bad_sum = (lengths > 0) & ~(np.abs(sums - 1) <= SUM_TOLERANCE)
    if bad_sum.any():
        place = int(np.flatnonzero(bad_sum)[0])
        raise RecordError(f"column '{name}' row {rows_of_lists[place]}: sums to {sums[place]:.6f}, not to 1")


def _check_unique(table: pa.Table) -> None:
    if pc.count_distinct(table.column("instance_id"), mode="all").as_py() == table.num_rows:
        return  # as in a record of one cell
    keys = ["instance_id", "cell"]
    cells = table.select(keys).group_by(keys).aggregate([([], "count_all")])
    counts = cells.column("count_all").to_numpy()
    if (bad := np.flatnonzero(counts > 1)).size:
        row = cells.slice(int(bad[0]), 1).to_pylist()[0]
        cell = ", ".join(f"{name} {value}" for name, value in from_row(row).heading.items())
        raise RecordError(
            f"instance '{row['instance_id']}' appears {row['count_all']} times in one cell ({cell}): give each cell once"
        )
