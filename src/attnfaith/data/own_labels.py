"""Classes of a user's own data: from whatever a column of labels holds to numbers 0..C-1 and their names."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

from attnfaith.errors import DatasetError, cut, excerpt


MANY = 100
"""Classes above which it is asked whether the column is one of classes."""
MISSING = ("na", "n/a", "nan", "null", "none", "unknown", "?", "-")
"""Names that a class may have and that often stand for a missing label."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"([+-]?\d+)(?:\.0*)?")


def class_of(value: object, column: str) -> str | None:
    """The class that a value names, as a text: a word without blanks around it, a whole number (1.0 is 1), true or false.

    None: it has none (null, NaN, blanks). Raises DatasetError for other numbers, lists and the like.
    """
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if (
        isinstance(value, int | float | Decimal)
        and not (isinstance(value, float) and math.isinf(value))
        and value == int(value)
    ):
        return str(int(value))
    raise DatasetError(f"column {column!r}: {excerpt(value)} is no class; classes are words, whole numbers, true and false")


def alike(labels: Sequence[list[str]], column: str) -> list[list[str]]:
    """The labels of each split; where all are numbers, 1.0 and 1 are one class. Raises DatasetError for fractions."""
    values = {label for of_split in labels for label in of_split}
    if not all(_NUMBER.fullmatch(value) for value in values):
        return list(labels)
    if fractions := sorted(value for value in values if not _WHOLE.fullmatch(value)):
        raise DatasetError(
            f"column {column!r} holds numbers such as {fractions[0]}, which are no classes: make words or whole "
            "numbers of them"
        )
    whole = {value: _WHOLE.fullmatch(value)[1] for value in values}
    return [[whole[label] for label in of_split] for of_split in labels]


def names_of(labels: Sequence[str], column: str, published: Sequence[str] | None, assumed: list[str]) -> list[str]:
    """The names of the classes among the labels, by number: as published where the publisher names them, whole numbers by
    their size, others in alphabetical order.

    assumed: takes what should be looked at. Raises DatasetError for fewer than two classes, and for a column of free text.
    """
    values = set(labels)
    if len(values) < 2:
        raise DatasetError(
            f"column {column!r}: all {len(labels):,} labels are {excerpt(labels[0])}; a classifier needs two classes"
        )
    if len(values) > max(20, len(labels) / 3):
        raise DatasetError(
            f"column {column!r} has {len(values):,} different values in {len(labels):,} rows, so it holds no classes: name "
            "the one that does with --data.label"
        )
    if published:
        names = [name for name in published if name in values]
    elif all(_WHOLE.fullmatch(value) for value in values):
        names = sorted(values, key=lambda value: (int(value), value))
    else:
        names = sorted(values)
    if len(names) > MANY:
        assumed.append(f"{column} has {len(names):,} classes; is it the column of the classes? --data.label names another")
    if odd := [name for name in names if name.lower() in MISSING]:
        said = cut(", ".join(map(repr, odd)), 100)
        assumed.append(f"{said} is taken for a class; where it means that there is no label, leave the field empty")
    return names
