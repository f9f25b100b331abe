"""The record: one row per instance, everything downstream of the models reads it and nothing else.

A record is a `pyarrow.Table`. Identity columns are repeated on every row, so records of many cells concatenate and a
table is a group-by. Each list column carries its axes in the field's metadata (`axes`: T attendable tokens, C classes,
K draws), which is how a row is checked: every [T] column of a row has the same length, every [C] column too, and
a column marked `distribution` is non-negative and sums to 1 along its last axis. In the records of hierarchical models T
counts sentences, and [T][W] columns hold values of the words of each; measured at the word level, T counts words and the
encoder is named "bigru(sentence, words)". Q counts words of a second text.
"""

import functools
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnfaith.errors import AttnfaithError


IDENTITY = (
    "instance_id",
    "dataset",
    "revision",
    "split",
    "encoder",
    "alignment",
    "projection",
    "vectors",
    "objective",
    "seed",
)
SUM_TOLERANCE = 1e-4
ABSOLUTE = "absolute_"
"""Start of the name under which tests of explanations take a signed measure by its size."""
MEASURING = (
    "models",
    "data",
    "subjects",
    "importance",
    "experiments",
    "objectives.py",
    "measurement.py",
    "record.py",
    "_random.py",
    "_parts.py",
)
"""Parts of the package on which the numbers of a record depend, given a trained model."""


class RecordError(AttnfaithError):
    """A record that breaks a rule, or a file that is not one. The message names the column and the row."""


@dataclass(frozen=True)
class Column:
    """What one column of a record holds.

    axes: names of its dimensions, outermost first: () a scalar per instance, ("T",) a value per token, ("C",) per class,
        ("K", "C") per draw and class, ("M", "S") per measure of importance and share of the tokens, ("T", "W") per word of
        each sentence.
    dtype: Arrow type name of the innermost value.
    distribution: non-negative and summing to 1 along the last axis.
    doc: meaning, unit and range.
    """

    axes: tuple[str, ...] = ()
    dtype: str = "float32"
    distribution: bool = False
    doc: str = ""

    def arrow_type(self) -> pa.DataType:
        kind = pa.dictionary(pa.int32(), pa.string()) if self.dtype == "category" else pa.type_for_alias(self.dtype)
        for _ in self.axes:
            kind = pa.list_(kind)
        return kind

    def field(self, name: str) -> pa.Field:
        described = {"axes": ",".join(self.axes), "distribution": str(int(self.distribution)), "doc": self.doc}
        return pa.field(name, self.arrow_type(), metadata=described)


CATEGORY = Column(dtype="category")
COLUMNS = {
    "instance_id": Column(dtype="string", doc="data set / split / original row"),
    **{name: CATEGORY for name in IDENTITY[1:-1]},
    "objective": Column(dtype="category", doc="what the model was trained for: classification, or against another model"),
    "seed": Column(dtype="int64", doc="seed of the training run"),
    "tokens": Column(
        ("T",),
        "string",
        doc="attendable tokens, as read (of a hierarchical model its sentences, or words); no marker or padding",
    ),
    "label": Column(dtype="int64", doc="gold class; null where unknown"),
    "truncated": Column(dtype="bool", doc="the text was longer than the limit and was cut"),
    "probs": Column(("C",), distribution=True, doc="the model's class probabilities"),
    "attention": Column(("T",), distribution=True, doc="one weight per token; [] for an empty text"),
}
OPTIONAL_COLUMNS = {
    "rationale": Column(("T",), doc="gold evidence, 1 on tokens that decide the label and 0 elsewhere"),
    "impermissible": Column(
        ("T",), doc="1 on words that an honest model needs and a deceptive one hides (Pruthi et al. 2020), 0 elsewhere"
    ),
    "words": Column(("T", "W"), "string", doc="the words of each sentence"),
    "word_attention": Column(("T", "W"), distribution=True, doc="one weight per word, summing to 1 over its sentence"),
    "query_tokens": Column(("Q",), "string", doc="words of the second text, such as a question; nothing attends to them"),
}


def schema(extra: Mapping[str, Column] | None = None) -> pa.Schema:
    """The Arrow schema of a record with the columns of the given producers beside the common ones.

    Raises RecordError where a producer declares a name that the record already has.
    """
    columns = dict(COLUMNS)
    for name, column in (extra or {}).items():
        if name in columns:
            raise RecordError(f"column '{name}' is declared twice: rename it in the producer's COLUMNS")
        columns[name] = column
    return pa.schema([column.field(name) for name, column in columns.items()])


def build(columns: Mapping[str, Sequence], extra: Mapping[str, Column] | None = None) -> pa.Table:
    """A validated record from Python or numpy columns of equal row count."""
    wanted = schema(extra)
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
        if len(axes(field)) == 2 and len(values) and all(isinstance(value, np.ndarray) for value in values):
            return _nested(values, field.type)
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError) as error:
        raise RecordError(f"column '{field.name}' must be {field.type}: {error}") from error


def _nested(values: Sequence[np.ndarray], kind: pa.DataType) -> pa.Array:
    """One array (K,M) per instance as lists of lists, without a Python object for each of the K."""
    draws = np.array([len(value) for value in values], dtype=np.int64)
    lengths = np.repeat([value.shape[1] for value in values], draws)
    flat = np.concatenate([value.ravel() for value in values])
    inner = pa.ListArray.from_arrays(_offsets(lengths), pa.array(flat, kind.value_type.value_type), kind.value_type)
    return pa.ListArray.from_arrays(_offsets(draws), inner, kind)


def _offsets(lengths: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def axes(field: pa.Field) -> tuple[str, ...]:
    text = (field.metadata or {}).get(b"axes", b"").decode()
    return tuple(text.split(",")) if text else ()


def _depth_lengths(array: pa.ListArray) -> np.ndarray:
    return pc.list_value_length(array).to_numpy(zero_copy_only=False)


def validate(table: pa.Table) -> None:
    """Check the rules a record obeys; raise RecordError naming the first broken rule, column and row.

    Rules: the common columns are there, with their types; nothing but a label is null; instance ids are unique within a
    cell; in each row all [T] columns have one length and all [C] columns another, with draws too ([K][T], [K][C]), and all
    [T][W] columns as many words in each sentence; there is a class; distributions are finite, non-negative and sum to 1
    within 1e-4 (an empty one is allowed: an empty text attends to nothing); a label that is not null lies in 0..C-1.
    """
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise RecordError(f"not a record: columns {missing} are missing; found {table.column_names}")
    lengths: dict[str, tuple[str, np.ndarray]] = {}
    for field in sorted(table.schema, key=lambda field: field.name not in COLUMNS):  # tokens and probs give T and C
        common = COLUMNS.get(field.name, OPTIONAL_COLUMNS.get(field.name))
        described = axes(field) or (common or Column()).axes
        if common:
            _check_type(field, common)
        elif not described and pa.types.is_nested(field.type):
            raise RecordError(f"column '{field.name}' is a list but its metadata names no axes")
        column = table.column(field.name).combine_chunks()
        owner = np.arange(table.num_rows)  # the row of each list that is looked at
        for axis in described:
            if not pa.types.is_list(column.type):
                raise RecordError(f"column '{field.name}' is {field.type}; its axes {described} need nested lists")
            _check_no_null(field.name, column, owner)
            found = _depth_lengths(column)
            if axis == "W":
                name, wanted = lengths.setdefault(axis, (field.name, found))
                if not np.array_equal(wanted, found):
                    raise RecordError(
                        f"row {owner[np.flatnonzero(wanted != found)[0]]}: columns '{field.name}' and '{name}' have other "
                        "numbers of words in a sentence; all columns over W must have one"
                    )
            if axis in ("T", "C"):
                name, wanted = lengths.setdefault(axis, (field.name, found))
                if (bad := np.flatnonzero(wanted[owner] != found)).size:
                    row = int(owner[bad[0]])
                    raise RecordError(
                        f"row {row}: column '{field.name}' has {found[bad[0]]} values and '{name}' {wanted[row]}; "
                        f"all columns over {axis} of a row must have one length"
                    )
            innermost, owner_of_lists = column, owner
            column, owner = column.flatten(), np.repeat(owner, found)
        if common and field.name != "label":
            _check_no_null(field.name, column, owner)
        if (field.metadata or {}).get(b"distribution") == b"1" or (common and common.distribution):
            _check_distribution(field.name, innermost, owner_of_lists)
    label = table.column("label").to_numpy()
    classes = lengths["C"][1]
    if (bad := np.flatnonzero(classes == 0)).size:
        raise RecordError(f"row {bad[0]}: column 'probs' is empty; a prediction has a probability for each class")
    known_label = ~np.isnan(label.astype(float))
    if (bad := np.flatnonzero(known_label & ((label < 0) | (label >= classes)))).size:
        row = int(bad[0])
        raise RecordError(f"row {row}: label {label[row]:.0f} is outside 0..{classes[row] - 1}")
    _check_unique(table)


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
    }
    if not alike[column.dtype](kind):
        raise RecordError(f"column '{field.name}' is {field.type}; it must be {column.arrow_type()}")


def _check_no_null(name: str, array: pa.Array, owner: np.ndarray) -> None:
    if array.null_count:
        place = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise RecordError(f"column '{name}' row {owner[place]}: is null, or holds a null")


def _check_distribution(name: str, lists: pa.ListArray, rows_of_lists: np.ndarray) -> None:
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    lengths = _depth_lengths(lists)
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
    cells = table.select(list(IDENTITY)).group_by(list(IDENTITY)).aggregate([([], "count_all")])
    counts = cells.column("count_all").to_numpy()
    if (bad := np.flatnonzero(counts > 1)).size:
        row = cells.slice(int(bad[0]), 1).to_pylist()[0]
        cell = ", ".join(f"{name} {row[name]}" for name in IDENTITY[1:])
        raise RecordError(
            f"instance '{row['instance_id']}' appears {row['count_all']} times in one cell ({cell}): give each cell once"
        )


def rows(table: pa.Table, column: str) -> list[np.ndarray]:
    """A list column as one numpy array per instance (views, not copies): (T,), (C,), or (K,T), (K,C) for one of draws.

    Without draws, (0, 0). A column [T][W] gives a list of T arrays (W,) per instance. Raises RecordError where the record
    has no such column, it holds one value per instance, or the draws of an instance differ in length.
    """
    if column not in table.column_names:
        raise RecordError(f"the record has no column '{column}'; it has {table.column_names}")
    array = table.column(column).combine_chunks()
    if not pa.types.is_list(array.type):
        raise RecordError(f"column '{column}' holds one {array.type} per instance, not a list")
    bounds = array.offsets.to_numpy()
    if not pa.types.is_list(array.values.type):
        flat = array.values.to_numpy(zero_copy_only=False)
        return [flat[start:stop] for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
    inner = array.values.offsets.to_numpy()
    flat = array.values.values.to_numpy(zero_copy_only=False)
    found = []
    if axes(table.schema.field(column))[-1] == "W":
        return [
            [flat[inner[place] : inner[place + 1]] for place in range(start, stop)]
            for start, stop in zip(bounds[:-1], bounds[1:], strict=True)
        ]
    for row, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        if len(lengths := np.unique(np.diff(inner[start : stop + 1]))) > 1:
            raise RecordError(f"column '{column}' row {row}: draws of lengths {lengths.tolist()}; they must have one length")
        shape = (stop - start, lengths[0]) if len(lengths) else (0, 0)
        found.append(flat[inner[start] : inner[stop]].reshape(shape))
    return found


def ragged(values: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """Values (B,T,...) of padded instances at the places where mask (B,T) is true: one array (T_b,...) per instance."""
    return [row[keep] for row, keep in zip(np.asarray(values), np.asarray(mask, bool), strict=True)]


@functools.cache
def code_digest(*more: str) -> str:
    """What tells two states of the code apart: 12 hexadecimal digits of a SHA-256 over the source files of MEASURING.

    more: other parts of the package, such as "training.py". Computed once in a process, from the files as they then lie.
    """
    package, digest = Path(__file__).parent, hashlib.sha256()
    for part in (*MEASURING, *more):
        for path in sorted((package / part).rglob("*.py")) or [package / part]:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def measured_by(table: pa.Table) -> list[str]:
    """The version and the code that measured each cell of a record; "unknown" where older records do not say."""
    known = [(part.get("version", "unknown"), part.get("code", "unknown")) for part in settings(table)]
    return [f"version {version}, code {code}" for version, code in known or [("unknown", "unknown")]]


def check_one_code(tables: Iterable[pa.Table], remedy: str = "measure them anew with one, or say mix_versions=True") -> None:
    """Raises RecordError where records were measured by different versions or code (`code_digest`): their numbers need not
    compare. remedy: what the message says to do.
    """
    counts = Counter(code for table in tables for code in measured_by(table))
    if len(counts) > 1:
        found = "; ".join(f"{count} by {code}" for code, count in counts.most_common())
        raise RecordError(f"the records were measured by different code: {found}: {remedy}")


def concatenate(tables: Iterable[pa.Table], *, mix_versions: bool = False) -> pa.Table:
    """Records of several cells as one. Beside hierarchical models, each token of a flat one is an item of one word; beside
    pairs, a single text has a second one without words.

    Raises RecordError where a column is in some records and missing in others, the same instance of the same cell comes
    twice, or, unless mix_versions, different code measured them. Run information (`settings`) of the parts is kept as a
    list.
    """
    tables = list(tables)
    if not tables:
        raise RecordError("nothing to concatenate: no record was given")
    if not mix_versions:
        check_one_code(tables)
    if any("words" in table.column_names for table in tables):
        tables = [_with_words(table) for table in tables]
    if any("query_tokens" in table.column_names for table in tables):
        tables = [_with_query(table) for table in tables]
    names = set(tables[0].column_names)
    for number, table in enumerate(tables):
        if set(table.column_names) != names:
            other = sorted(set(table.column_names) ^ names)
            shown = ", ".join(other[:4]) + (f" and {len(other) - 4} more" if len(other) > 4 else "")
            raise RecordError(
                f"record {number} has other columns than record 0: {shown} are in one only; measure both with the same "
                "producers, or report each alone"
            )
    gathered = [part for table in tables for part in settings(table)]
    try:
        joined = pa.concat_tables([table.select(tables[0].column_names) for table in tables], promote_options="default")
    except pa.ArrowException as error:
        raise RecordError(f"the records hold one column in different types: {error}") from error
    joined = with_settings(joined.unify_dictionaries(), gathered)
    validate(joined)
    return joined


def _with_words(table: pa.Table) -> pa.Table:
    """The record with the columns [T][W] of a hierarchical model: where there are none, each token is all of its item."""
    if "words" in table.column_names:
        return table
    tokens = table.column("tokens").combine_chunks()
    words = tokens.flatten()
    alone = pa.array(np.arange(len(words) + 1), pa.int32())
    outer = _offsets(_depth_lengths(tokens))
    for name, values in (("words", words), ("word_attention", pa.array(np.ones(len(words), np.float32)))):
        column = pa.ListArray.from_arrays(outer, pa.ListArray.from_arrays(alone, values))
        field = OPTIONAL_COLUMNS[name].field(name)
        table = table.append_column(field, column.cast(field.type))
    return table


def _with_query(table: pa.Table) -> pa.Table:
    """The record with the words of second texts: none where it has no such column."""
    if "query_tokens" in table.column_names:
        return table
    field = OPTIONAL_COLUMNS["query_tokens"].field("query_tokens")
    return table.append_column(field, pa.array([[]] * table.num_rows, field.type))


def with_settings(table: pa.Table, parts: list[dict]) -> pa.Table:
    """The record with the settings that made it (one dict per cell) stored in its schema."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), b"attnfaith": json.dumps(parts).encode()})


def settings(table: pa.Table) -> list[dict]:
    """What made the record: one dict of settings per cell; [] where none were stored."""
    return json.loads((table.schema.metadata or {}).get(b"attnfaith", b"[]"))


def save(table: pa.Table, path: str | os.PathLike) -> None:
    """Write a record as parquet: under a temporary name first, so `path` is either the old file or the whole new one.

    Raises RecordError where the record breaks a rule, OSError where it cannot be written (the old file stays).
    """
    validate(table)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            pq.write_table(table, stream, compression="zstd")
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files only their owner can read; a record is for readers
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike) -> pa.Table:
    """Read a record and check it.

    Raises RecordError where the file is absent, corrupt or half-written, or breaks a rule.
    """
    path = Path(path)
    if not path.is_file():
        raise RecordError(f"no record at {path}")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise RecordError(f"{path} is not a readable record (corrupt or half-written): {error}") from error
    validate(table)
    return table
