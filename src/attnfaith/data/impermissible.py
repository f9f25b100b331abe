"""Words that an honest model needs and a deceptive one hides (Pruthi et al. 2020).

Marks are one 0 or 1 for each word of `text.split()`; all characters of a marked word are impermissible.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from attnfaith.support.errors import DatasetError, counted, excerpt


def check_marks(marks: object, text: str, place: str) -> list[int]:
    """Return the marks of a text as a list of int. place: names the text in the message.

    Raises DatasetError unless they are a list of one 0 or 1 for each of its words.
    """
    count = len(text.split())
    values = list(marks) if isinstance(marks, Collection) and not isinstance(marks, str | bytes | Mapping) else None
    if values is None or len(values) != count or not all(mark in (0, 1) for mark in values):
        raise DatasetError(
            f"{place}: impermissible must be one 0 or 1 for each of its {counted(count, 'word')}, as text.split() divides "
            f"them; {excerpt(marks, 60)} was given"
        )
    return [int(mark) for mark in values]


def mark_words(texts: Iterable[str], words: Iterable[str]) -> list[list[int]]:
    """Mark the words of texts that are in `words`, whatever their case and the punctuation at their ends."""
    wanted = {form for word in words for form in _forms(word)}
    return [[int(not wanted.isdisjoint(_forms(word))) for word in text.split()] for text in texts]


def _forms(word: str) -> set[str]:
    whole = word.casefold()
    return {whole, re.sub(r"^[\W_]+|[\W_]+$", "", whole) or whole}


def check_any(name: str, marks: Iterable[Sequence[int]]) -> None:
    """Raise DatasetError where no text has an impermissible word, so that nothing could be hidden."""
    if not any(map(any, marks)):
        raise DatasetError(
            f"{name!r}: no text of training has an impermissible word, so there is nothing to hide or to measure: check the "
            "column or the list of words"
        )
