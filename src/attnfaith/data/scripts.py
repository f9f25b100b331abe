"""Scripts that are written without blanks between words, and texts in them that a tokenizer of words cannot read."""

import re
from collections.abc import Sequence


# First and last code points of the letters and vowel signs of a script, from the blocks of the Unicode standard.
IDEOGRAPHIC = (
    *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF), (0x4E00, 0x9FFF)),  # Han
    *((0xF900, 0xFAFF), (0x20000, 0x323AF)),
    *((0x3041, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),  # kana
    *((0x3105, 0x312F), (0x31A0, 0x31BF)),  # Bopomofo
)
ALPHABETIC = (
    *((0x0E01, 0x0E3A), (0x0E40, 0x0E4E)),  # Thai
    *((0x0E81, 0x0EBD), (0x0EC0, 0x0ECE), (0x0EDC, 0x0EDF)),  # Lao
    (0x1780, 0x17D3),  # Khmer
    *((0x1000, 0x103F), (0x1050, 0x108F), (0xA9E0, 0xA9EF), (0xAA60, 0xAA76)),  # Myanmar
)
LONGEST_WORDS = {IDEOGRAPHIC: 4, ALPHABETIC: 12}
"""Letters of a text's words, on average, up to which it can have blanks between them: segmented Chinese and Japanese have
about two a word, segmented Thai about five.
"""
STACKING = "\u17d2\u1039"
"""Khmer and Myanmar signs that hang the next letter below the last one."""


def _set(ranges: Sequence[tuple[int, int]]) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


LETTERS = f"[{_set(IDEOGRAPHIC + ALPHABETIC)}]"
"""A letter of such a script, as a pattern."""
_LETTER = re.compile(LETTERS)
_IDEOGRAPH = re.compile(f"[{_set(IDEOGRAPHIC)}]")


def begins_unspaced(piece: str) -> bool:
    """Whether a text begins with a letter of a script without blanks between words."""
    return _LETTER.match(piece) is not None


def lacks_blanks(text: str, words: Sequence[str]) -> bool | None:
    """Whether a text in a script without blanks between words was read as if blanks stood there.

    words: the words that a tokenizer makes of it. None for a text of which at most half of the letters are of such a
    script: that holds for a Chinese name in an English text. Else whether the words with such letters have more of them, on
    average, than LONGEST_WORDS: a text of one word, or of words between blanks, has not.
    """
    if _LETTER.search(text) is None:
        return None
    counts = [len(_LETTER.findall(word)) for word in words]
    written = sum(counts)
    others = sum(character.isalpha() for word in words for character in _LETTER.sub("", word))
    if written <= others:
        return None
    ideographs = sum(len(_IDEOGRAPH.findall(word)) for word in words)
    longest = LONGEST_WORDS[IDEOGRAPHIC if 2 * ideographs >= written else ALPHABETIC]
    return written > longest * sum(count > 0 for count in counts)
