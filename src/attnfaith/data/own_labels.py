"""Classes of a user's own data: from whatever a column of labels holds to numbers 0..C-1 and their names."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

from attnfaith.errors import DatasetError, counted, cut, excerpt, nearest


COLUMNS = ("label", "labels", "label_ids")
"""Names that a column of labels is found by, the first that is there; the others are what Trainer calls it."""
READINGS = ("names", "ids")
"""What whole numbers as labels can be: names of classes, or their numbers from 0 on."""
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


def alike(labels: Sequence[list[str | None]], column: str) -> list[list[str | None]]:
    """The labels of each split; where all are numbers, 1.0 and 1 are one class. Raises DatasetError for fractions."""
    values = {label for split in labels for label in split if label is not None}
    if not all(_NUMBER.fullmatch(value) for value in values):
        return list(labels)
    if fractions := sorted(value for value in values if not _WHOLE.fullmatch(value)):
        raise DatasetError(
            f"column {column!r} holds numbers such as {fractions[0]}, which are no classes: make words or whole "
            "numbers of them"
        )
    whole = {value: _WHOLE.fullmatch(value)[1] for value in values}
    return [[whole.get(label) for label in split] for split in labels]


def names_of(labels: Sequence[str], column: str, published: Sequence[str] | None, assumed: list[str]) -> list[str]:
    """The names of the classes among the labels, by number: as published where the publisher names them, whole numbers by
    their size, others in alphabetical order.

    assumed: takes what should be looked at. Raises DatasetError for fewer than two classes, and for a column of free text.
    """
    values = set(labels)
    if len(values) < 2:
        raise DatasetError(
            f"column {column!r}: {counted(len(labels), 'label')}, all {excerpt(labels[0])}; a classifier needs two classes"
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
        listed = cut(", ".join(map(repr, odd)), 100)
        assumed.append(f"{listed} is taken for a class; where it means that there is no label, leave the field empty")
    return names


def numbers_of(
    labels: Sequence,
    names: Sequence[str],
    count: int,
    reading: str | None = None,
    published: Sequence[str] | None = None,
) -> list[int | None]:
    """The number of the class of a model that each label means; None where it is empty.

    The kind of input does not matter: 1, 1.0, "1" and "1.0" are one label, and so are True and "true".

    names: of the model's classes, () where they have none. count: of classes. reading: one of READINGS; None: a name where
    the label is one, else a number. published: the names of a column that holds their numbers (`datasets.ClassLabel`).

    Raises DatasetError for a label that is no class, and without a reading for a whole number that may mean two things, as
    classes have whole numbers other than their own as names.
    """
    places = {_spelling(name): number for number, name in reversed([*enumerate(names)])}
    named = [*enumerate(names), *enumerate(published or ())]
    unclear = [name for number, name in named if _is_whole(name) and int(_spelling(name)) != number]
    numbers = []
    for row, label in enumerate(labels):
        word = _word(row, label, published)
        if word is None:
            numbers.append(None)
            continue
        spelling = _spelling(word)
        if spelling in ("true", "false") and published is None and not {"true", "false"} & places.keys():
            spelling = str(int(spelling == "true"))
        whole = _is_whole(spelling)
        by_name = names.index(word) if word in names else places.get(spelling)
        by_id = int(label) if published is not None else int(spelling) if whole else None
        if reading is None and unclear and whole and by_name != by_id:
            raise DatasetError(
                f"label {row} is {excerpt(word, 60)}, and classes are named {cut(', '.join(map(repr, unclear)), 60)}: "
                'is it a name or a number from 0 on? Say labels="names" or labels="ids" (--labels names, --labels ids); '
                "where labels=… is a list, give a frame with columns text and label"
            )
        number = by_id if reading == "ids" or (reading is None and whole and by_name is None) else by_name
        if number is None or not 0 <= number < count:
            classes = map(str, range(count)) if reading == "ids" or not names else names
            own = '; labels="ids" takes the numbers of the column' if published and reading is None else ""
            raise DatasetError(f"label {row} is {excerpt(word, 60)}, no class of the model{nearest(word, classes)}{own}")
        numbers.append(number)
    return numbers


def _word(row: int, label: object, published: Sequence[str] | None) -> str | None:
    """What a label says, as a text; None where it is empty. Raises DatasetError where it cannot be a class."""
    if str(label) == "<NA>":  # of pandas
        return None
    try:
        value = label.item() if hasattr(label, "item") else label  # of numpy and torch
        if published is None or value is None:
            return None if value != value else class_of(value, "labels")
        return published[value] if value >= 0 else None
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise DatasetError(
            f"label {row} is {excerpt(label, 60)}: give the number or the name of a class, or None"
        ) from error


def _is_whole(text: str) -> bool:
    return len(text) < 20 and _WHOLE.fullmatch(text.strip()) is not None


def _spelling(text: str) -> str:
    """One spelling of what means the same class: without blanks around it, 1.0 as 1, True as true."""
    text = text.strip()
    if _is_whole(text):
        return str(int(_WHOLE.fullmatch(text)[1]))
    return text.lower() if text.lower() in ("true", "false") else text
