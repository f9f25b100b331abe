"""Labels as people write them, as names of classes and numbers 0..C-1."""

import re
from collections.abc import Sequence
from decimal import Decimal

from attnfaith.support.errors import DatasetError, cut, excerpt, nearest


COLUMNS = ("label", "labels", "label_ids")
"""Names of a column of labels, the first that exists; the second and third are those of Trainer."""
READINGS = ("names", "ids")
"""What whole numbers as labels can be: names of classes, or their numbers from 0 on."""
WHOLE = re.compile(r"([+-]?\d+)(?:\.0*)?")


def class_of(value: object, column: str) -> str | None:
    """Return the class that a value names: a word without blanks around it, a whole number (1.0 is 1), true or false (True
    and TRUE are true, as a spreadsheet writes them).

    None for null, NaN and blanks. Raises DatasetError for other numbers, lists and the like.
    """
    if isinstance(value, str):
        return _lower_truth(value.strip()) or None
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | Decimal) and value == value // 1:
        return str(int(value))
    raise DatasetError(f"column {column!r}: {excerpt(value)} is no class; classes are words, whole numbers, true and false")


def numbers_of(
    labels: Sequence,
    names: Sequence[str],
    count: int,
    reading: str | None = None,
    published: Sequence[str] | None = None,
) -> list[int | None]:
    """Return the number of the class of a model that each label means; None for an empty label.

    The type of a label does not matter: 1, 1.0, "1" and "1.0" are one label, and so are True and "true".

    names: of the model's classes, () where they have none. count: of classes. reading: one of READINGS; None: a name if the
    label is one, else a number. published: the names of a column that holds numbers (`datasets.ClassLabel`).

    Raises DatasetError for a label that is no class and, without a reading, for a whole number that may be a name or a
    number because classes have other whole numbers than their own as names.
    """
    exact = {name: number for number, name in reversed([*enumerate(names)])}
    spelled = {_spelling(name): number for number, name in reversed([*enumerate(names)])}
    named = [*enumerate(names), *enumerate(published or ())]
    unclear = [name for number, name in named if _is_whole(name) and int(_spelling(name)) != number]
    numbers = []
    for row, label in enumerate(labels):
        word = _word(row, label, published)
        if word is None:
            numbers.append(None)
            continue
        spelling = _spelling(word)
        if spelling in ("true", "false") and published is None and not {"true", "false"} & spelled.keys():
            spelling = str(int(spelling == "true"))
        by_name = exact.get(word, spelled.get(spelling))
        by_id = int(label) if published is not None else int(spelling) if _is_whole(spelling) else None
        if reading is None and unclear and _is_whole(spelling) and by_name != by_id:
            raise DatasetError(
                f"label {row} is {excerpt(word, 60)}, and classes are named {cut(', '.join(map(repr, unclear)), 60)}: "
                'is it a name or a number from 0 on? Give labels="names" or labels="ids" (--labels names, --labels ids); '
                "in place of a list labels=…, give a frame with columns text and label"
            )
        number = by_name
        if reading == "ids" or (reading is None and by_name is None and _is_whole(spelling)):
            number = by_id
        if number is None or not 0 <= number < count:
            classes = map(str, range(count)) if reading == "ids" or not names else names
            advice = '; labels="ids" takes the numbers of the column' if published and reading is None else ""
            raise DatasetError(f"label {row} is {excerpt(word, 60)}, no class of the model{nearest(word, classes)}{advice}")
        numbers.append(number)
    return numbers


def _word(row: int, label: object, published: Sequence[str] | None) -> str | None:
    """A label as a text; None for an empty one."""
    if str(label) == "<NA>":  # of pandas
        return None
    try:
        value = label.item() if hasattr(label, "item") else label  # of numpy and torch
        if published is None or value is None:
            return class_of(value, "labels")
        return published[value] if value >= 0 else None
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise DatasetError(
            f"label {row} is {excerpt(label, 60)}: give the number or the name of a class, or None"
        ) from error


def _is_whole(text: str) -> bool:
    return len(text) < 20 and WHOLE.fullmatch(text.strip()) is not None


def _spelling(text: str) -> str:
    """One spelling of equal classes: without blanks around it, 1.0 as 1, True as true."""
    text = text.strip()
    if _is_whole(text):
        return str(int(WHOLE.fullmatch(text)[1]))
    return _lower_truth(text)


def _lower_truth(text: str) -> str:
    """True and TRUE, as spreadsheets write them, as true; every other text as it is."""
    return text.lower() if text.lower() in ("true", "false") else text
