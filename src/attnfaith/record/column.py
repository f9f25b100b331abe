"""The description of one column of a record: axes, unit, range, sign, when it is undefined."""

import json
import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import pyarrow as pa

from attnfaith.errors import AttnfaithError


NAME = re.compile(r"[a-z][a-z0-9_]{0,79}")
"""What a column's name looks like: it becomes part of file names."""


class RecordError(AttnfaithError):
    """A record that breaks a rule, or a file that is not one. The message names the column and the row."""


@dataclass(frozen=True)
class Column:
    """What one column of a record holds.

    axes: names of its dimensions, outermost first: () a scalar per instance, ("T",) a value per token, ("C",) per class,
        ("K", "C") per draw and class, ("M", "S") per measure of importance and share of the tokens, ("T", "W") per word of
        each sentence; of sentence pairs, ("L", "A", "R", "G", "T") per layer, head, row, target word and source word.
    dtype: Arrow type name of the innermost value; "category" for a text of few values.
    distribution: non-negative and summing to 1 along the last axis.
    signed: a negative value is evidence against what is explained.
    words: how the value of a word is made of those of its subwords, by `attnfaith.record.words.RULES`; "" where it does not
        follow from them.
    undefined: when a value is NaN, or its list empty; "" where it always is defined.
    unit: of the values; "" for a share, a rank or a count. range: least and greatest value, None where there is no bound.
    nullable: a scalar that may be absent.
    tolerance: how far the same work on another machine may be from a recorded column (`attnfaith.reproduction`): of numbers,
        the mean difference over the spread of the column, its mean absolute deviation; of other values, the share of the
        texts where they differ. 0: not at all, as for what is copied from the data.
    needs: capabilities that a subject must have for this column, beside those of its measure; not kept in files.
    doc: the meaning.
    """

    axes: tuple[str, ...] = ()
    dtype: str = "float32"
    distribution: bool = False
    signed: bool = False
    words: str = ""
    undefined: str = ""
    unit: str = ""
    range: tuple[float | None, float | None] | None = None
    nullable: bool = False
    tolerance: float = 0.05
    doc: str = ""
    needs: frozenset[str] = frozenset()

    def arrow_type(self) -> pa.DataType:
        kind = pa.dictionary(pa.int32(), pa.string()) if self.dtype == "category" else pa.type_for_alias(self.dtype)
        for _ in self.axes:
            kind = pa.list_(kind)
        return kind

    @lru_cache(maxsize=1024)  # noqa: B019 (of few columns, and a measurement asks for all of them)
    def field(self, name: str) -> pa.Field:
        """The Arrow field, with this description in its metadata. Raises RecordError as `check_name` does."""
        check_name(name)
        described = {key: value for key, value in vars(self).items() if key != "needs"}
        return pa.field(name, self.arrow_type(), metadata={b"attnfaith": json.dumps(described).encode()})


def check_name(name: str) -> None:
    """Raises RecordError for a name that no column may have: it would become part of a file's name."""
    if not NAME.fullmatch(name):
        raise RecordError(
            f"column name {name[:80]!r}: a name is lower-case letters, digits and underscores, begins with a letter and has "
            "at most 80 characters"
        )


def column_of(field: pa.Field) -> Column:
    """The description of a record's field; the plain Column for a field without one.

    Raises RecordError for metadata that no Column wrote.
    """
    stored = (field.metadata or {}).get(b"attnfaith")
    if stored is None:
        return Column()
    try:
        return _described(stored)
    except (ValueError, TypeError, AttributeError) as error:
        raise RecordError(f"column '{field.name}': its description in the file cannot be read: {error}") from error


@lru_cache(maxsize=1024)  # a record is checked often, and its columns say the same each time
def _described(stored: bytes) -> Column:
    values = json.loads(stored)
    names = {key.name for key in fields(Column)}
    column = Column(**{name: value for name, value in values.items() if name in names})
    return replace(column, axes=tuple(column.axes), range=None if column.range is None else tuple(column.range))
