"""Words that an honest model needs and a deceptive one hides (Pruthi et al. 2020): marks of texts and of input positions.

Marks are one 0 or 1 for each word of `text.split()`; of such a word all characters are impermissible, or none.

Shapes: L input positions of an encoded text, markers included.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from attnfaith.support.errors import DatasetError, counted, excerpt


def check_marks(marks: object, text: str, place: str) -> list[int]:
    """Marks of a text as a list of int. place: which text it is, for the message.

    Raises DatasetError where they are no list of one 0 or 1 for each of its words.
    """
    count = len(text.split())
    values = list(marks) if isinstance(marks, Collection) and not isinstance(marks, str | bytes | Mapping) else None
    if values is None or len(values) != count or not all(mark in (0, 1) for mark in values):
        raise DatasetError(
            f"{place}: impermissible must be one 0 or 1 for each of its {counted(count, 'word')}; {excerpt(marks, 60)} was "
            "given (words are what stands between blanks, as text.split() has them)"
        )
    return [int(mark) for mark in values]


def read_marks(value: object) -> object:
    """The value of a cell of a table as marks: a list as it is, and of a text such as "0 1 1" or "[0, 1, 1]" its digits."""
    if isinstance(value, str) and re.fullmatch(r"\s*\[?[01,\s]*\]?\s*", value):
        return [int(digit) for digit in re.findall("[01]", value)]
    return value


def marks_of_words(texts: Iterable[str], words: Iterable[str]) -> list[list[int]]:
    """Marks of texts: 1 where a word is one of `words`, case and the punctuation at its ends aside."""
    wanted = {form for word in words for form in _forms(word)}
    return [[int(not wanted.isdisjoint(_forms(word))) for word in text.split()] for text in texts]


def _forms(word: str) -> set[str]:
    whole = word.casefold()
    return {whole, re.sub(r"^[\W_]+|[\W_]+$", "", whole) or whole}


def without(text: str, marks: Sequence[int]) -> str:
    """The words of a text that are not marked, between blanks."""
    return " ".join(word for word, mark in zip(text.split(), marks, strict=True) if not mark)


def of_rows(rows: Mapping[str, Sequence], encodings: Iterable, marks_between: Collection[int] = ()) -> list[list[int]]:
    """Marks [L] of the input positions of texts: 1 where one shares a character with a marked word, 0 on a second text and
    on markers.

    rows: columns instance_id, text and impermissible. encodings: of the tokenizers library. marks_between: ids of marks
    between the sentences of a text. Raises DatasetError as `check_marks`.
    """
    from attnfaith.data.subwords import places_of, spread

    marked = []
    for name, text, marks, encoding in zip(rows["instance_id"], rows["text"], rows["impermissible"], encodings, strict=True):
        places = [place for place in places_of(encoding, 0) if encoding.ids[place] not in marks_between]
        words = [word.span() for word in re.finditer(r"\S+", text)]
        values = spread(check_marks(marks, text, name), words, [encoding.offsets[place] for place in places])
        of_places = dict(zip(places, values, strict=True))
        marked.append([of_places.get(place, 0) for place in range(len(encoding.ids))])
    return marked


def check_some(name: str, marks: Iterable[Sequence[int]]) -> None:
    """Raises DatasetError where no text has an impermissible word: nothing could be hidden."""
    if not any(map(any, marks)):
        raise DatasetError(
            f"{name!r}: no text of training has an impermissible word, so there is nothing to hide or to measure: are the "
            "column and the words the right ones?"
        )


def counts(marks: Iterable[Sequence[int]]) -> dict[str, int]:
    """How many texts have no impermissible word, and how many with words have no other, in words for people."""
    texts = [list(values) for values in marks if len(values)]
    none = sum(not any(values) for values in texts)
    return {"texts without impermissible words": none, "texts of impermissible words only": sum(map(all, texts))}
