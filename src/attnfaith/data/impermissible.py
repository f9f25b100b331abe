"""Words that an honest model needs and a deceptive one hides (Pruthi et al. 2020): marks of texts and of input positions.

Marks are one 0 or 1 for each word of `text.split()`; all characters of a marked word are impermissible.

Shapes: L input positions of an encoded text, markers included.
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


def parse_marks(cell: object) -> object:
    """Return the cell of a table as marks: the digits of a text such as "0 1 1" or "[0, 1, 1]", anything else unchanged."""
    if isinstance(cell, str) and re.fullmatch(r"\s*\[?[01,\s]*\]?\s*", cell):
        return [int(digit) for digit in re.findall("[01]", cell)]
    return cell


def mark_words(texts: Iterable[str], words: Iterable[str]) -> list[list[int]]:
    """Mark the words of texts that are in `words`, whatever their case and the punctuation at their ends."""
    wanted = {form for word in words for form in _forms(word)}
    return [[int(not wanted.isdisjoint(_forms(word))) for word in text.split()] for text in texts]


def _forms(word: str) -> set[str]:
    whole = word.casefold()
    return {whole, re.sub(r"^[\W_]+|[\W_]+$", "", whole) or whole}


def without(text: str, marks: Sequence[int]) -> str:
    """Return the unmarked words of a text, joined by blanks."""
    return " ".join(word for word, mark in zip(text.split(), marks, strict=True) if not mark)


def position_marks(rows: Mapping[str, Sequence], encodings: Iterable, separators: Collection[int] = ()) -> list[list[int]]:
    """Marks [L] of input positions: 1 where a position shares a character with a marked word, 0 on markers and second texts.

    rows: columns instance_id, text and impermissible. encodings: of the tokenizers library. separators: ids of the tokens
    between the sentences of a text. Raises DatasetError as `check_marks`.
    """
    from attnfaith.data.subwords import spread, text_positions

    marked = []
    for name, text, marks, encoding in zip(rows["instance_id"], rows["text"], rows["impermissible"], encodings, strict=True):
        places = [place for place in text_positions(encoding, 0) if encoding.ids[place] not in separators]
        words = [word.span() for word in re.finditer(r"\S+", text)]
        values = spread(check_marks(marks, text, name), words, [encoding.offsets[place] for place in places])
        by_place = dict(zip(places, values, strict=True))
        marked.append([by_place.get(place, 0) for place in range(len(encoding.ids))])
    return marked


def check_any(name: str, marks: Iterable[Sequence[int]]) -> None:
    """Raise DatasetError where no text has an impermissible word, so that nothing could be hidden."""
    if not any(map(any, marks)):
        raise DatasetError(
            f"{name!r}: no text of training has an impermissible word, so there is nothing to hide or to measure: check the "
            "column or the list of words"
        )


def counts(marks: Iterable[Sequence[int]]) -> dict[str, int]:
    """Count the texts without an impermissible word, and those with words of which all are impermissible."""
    texts = [list(values) for values in marks if len(values)]
    none = sum(not any(values) for values in texts)
    return {"texts without impermissible words": none, "texts of impermissible words only": sum(map(all, texts))}
