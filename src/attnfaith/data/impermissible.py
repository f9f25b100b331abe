"""Words that an honest model needs and a deceptive one hides (Pruthi et al. 2020): marks of texts and of input positions.

Marks are one 0 or 1 for each word of `text.split()`; of such a word all characters are impermissible, or none.

Shapes: L input positions of an encoded text, markers included.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from attnfaith.errors import DatasetError, counted, excerpt


COLUMN = "impermissible"
_WORD = re.compile(r"\S+")
_LISTED = re.compile(r"\s*\[?[01,\s]*\]?\s*")
_ENDS = re.compile(r"^[\W_]+|[\W_]+$")


def check_marks(marks: object, text: str, place: str) -> list[int]:
    """Marks of a text as a list of int. place: which text it is, for the message.

    Raises DatasetError where they are no list of one 0 or 1 for each of its words.
    """
    count = len(text.split())
    listed = list(marks) if isinstance(marks, Collection) and not isinstance(marks, str | bytes | Mapping) else None
    if listed is None or len(listed) != count or not all(mark in (0, 1) for mark in listed):
        value = excerpt(marks, 60) if listed is None else f"{counted(len(listed), 'value')}, {excerpt(listed, 60)}"
        raise DatasetError(
            f"{place}: impermissible must be one 0 or 1 for each of its {counted(count, 'word')}; {value} was given "
            "(words are what stands between blanks, as text.split() has them)"
        )
    return [int(mark) for mark in listed]


def read_marks(value: object) -> object:
    """The value of a cell of a table as marks: a list as it is, and of a text such as "0 1 1" or "[0, 1, 1]" its digits."""
    return (
        [int(digit) for digit in re.findall("[01]", value)] if isinstance(value, str) and _LISTED.fullmatch(value) else value
    )


def marks_of_words(texts: Iterable[str], words: Iterable[str]) -> list[list[int]]:
    """Marks of texts: 1 where a word is one of `words`, case and the punctuation at its ends aside."""
    wanted = {form for word in words for form in _forms(word)}
    return [[int(not wanted.isdisjoint(_forms(word))) for word in text.split()] for text in texts]


def _forms(word: str) -> set[str]:
    whole = word.casefold()
    return {whole, _ENDS.sub("", whole) or whole}


def without(text: str, marks: Sequence[int]) -> str:
    """The words of a text that are not marked, between blanks."""
    return " ".join(word for word, mark in zip(text.split(), marks, strict=True) if not mark)


def of_tokens(text: str, marks: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Marks of tokens: 1 where one shares a character with a marked word. spans: the characters [start, stop) of each."""
    from attnfaith.data.subwords import spread

    return spread(marks, [word.span() for word in _WORD.finditer(text)], spans)


def of_rows(rows: Mapping[str, Sequence], encodings: Iterable, marks_between: Collection[int] = ()) -> list[list[int]]:
    """Marks [L] of the input positions of texts: those of tokens, 0 on a second text and on markers.

    rows: columns instance_id, text and impermissible. encodings: of the tokenizers library. marks_between: ids of marks
    between the sentences of a text. Raises DatasetError as `check_marks`.
    """
    from attnfaith.data.subwords import places_of

    marked = []
    texts = zip(rows["instance_id"], rows["text"], rows[COLUMN], encodings, strict=True)
    for name, text, marks, encoding in texts:
        places = [place for place in places_of(encoding, 0) if encoding.ids[place] not in marks_between]
        values = of_tokens(text, check_marks(marks, text, name), [encoding.offsets[place] for place in places])
        marked.append([0] * len(encoding.ids))
        for place, value in zip(places, values, strict=True):
            marked[-1][place] = value
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
