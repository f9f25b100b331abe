"""Labels as people write them, as names of classes and numbers 0..C-1."""

import re
from collections.abc import Sequence
from numbers import Real

from attnfaith.support.errors import DatasetError, cut, excerpt, nearest


COLUMNS = ("label", "labels", "label_ids")
"""Names of a column of labels, the first that exists; the second and third are those of Trainer."""
READINGS = ("names", "ids")
"""What whole numbers as labels can be: names of classes, or their numbers from 0 on."""
WHOLE = re.compile(r"([+-]?\d{1,19})(?:\.0*)?")


def class_of(value: object, place: str) -> str | None:
    """Return the class that a value names: a word without blanks around it, a whole number (1, 1.0, "1.0" are 1), true or
    false (also as a spreadsheet writes them, TRUE).

    None for null, NaN and blanks. Raises DatasetError, with the place, for other numbers, lists and the like.
    """
    if str(value) == "<NA>" or value is None:
        return None
    value = value.item() if getattr(value, "ndim", None) == 0 else value  # of numpy and torch
    if isinstance(value, Real) and value != value:
        return None
    if isinstance(value, str | bool):
        text = str(value).strip()
        whole = WHOLE.fullmatch(text)
        return (whole[1] if whole else text.lower() if text.lower() in ("true", "false") else text) or None
    if isinstance(value, Real) and value == value // 1:
        return str(int(value))
    raise DatasetError(f"{place}: {excerpt(value, 60)} is no class; classes are words, whole numbers, true and false")


def numbers_of(
    labels: Sequence,
    names: Sequence[str],
    count: int,
    reading: str | None = None,
    published: Sequence[str] | None = None,
) -> list[int | None]:
    """Return the number of the class of a model that each label means; None for an empty label.

    names: of the model's classes, () where they have none. count: of classes. reading: one of READINGS; None: a name if the
    label is one, else a number. published: the names of a column that holds numbers (`datasets.ClassLabel`).

    Raises DatasetError for a label that is no class and, without a reading, for a whole number that may be a name or a
    number because classes have other whole numbers than their own as names.
    """
    spelled = {class_of(name, "names"): number for number, name in reversed([*enumerate(names)])}
    named = [*enumerate(names), *enumerate(published or ())]
    unclear = [name for number, name in named if _whole(name) not in (None, number)]
    numbers = []
    for row, label in enumerate(labels):
        word = class_of(label, f"label {row}")
        by_id = None if word is None else _whole(word)
        if published is not None and by_id is not None:
            word = published[by_id] if 0 <= by_id < len(published) else None
        if word is None:
            numbers.append(None)
            continue
        if word in ("true", "false") and word not in spelled:
            word, by_id = str(int(word == "true")), int(word == "true")
        by_name = spelled.get(class_of(word, "names"))
        if reading is None and unclear and by_id is not None and by_name != by_id:
            raise DatasetError(
                f"label {row} is {excerpt(word, 60)}, and classes are named {cut(', '.join(map(repr, unclear)), 60)}: "
                'is it a name or a number from 0 on? Give labels="names" or labels="ids" (--labels names, --labels ids); '
                "in place of a list labels=…, give a frame with columns text and label"
            )
        number = by_id if reading == "ids" or (reading is None and by_name is None and word == str(by_id)) else by_name
        if number is None or not 0 <= number < count:
            classes = map(str, range(count)) if reading == "ids" or not names else names
            advice = '; labels="ids" takes the numbers of the column' if published and reading is None else ""
            raise DatasetError(f"label {row} is {excerpt(word, 60)}, no class of the model{nearest(word, classes)}{advice}")
        numbers.append(number)
    return numbers


def _whole(text: str) -> int | None:
    match = WHOLE.fullmatch(text.strip())
    return match and int(match[1])
