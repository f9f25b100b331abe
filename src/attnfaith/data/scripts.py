"""Scripts without blanks between words, and texts in them that a tokenizer of words cannot read."""

import re
from collections.abc import Sequence


# The letters and vowel signs of a script, by the blocks of the Unicode standard.
IDEOGRAPHIC = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\u3105-\u312f\u31a0-\u31bf"  # kana, Bopomofo
)
ALPHABETIC = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0eba\u0ec0-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1780-\u17d3\u1000-\u103f\u1050-\u108f\ua9e0-\ua9ef\uaa60-\uaa76"  # Khmer, Myanmar
)
STACKING = "\u17d2\u1039"
"""Khmer and Myanmar signs that hang the next letter below the last one."""
LETTERS = f"[{IDEOGRAPHIC}{ALPHABETIC}]"
"""A letter of such a script, as a pattern."""


def lacks_blanks(text: str, words: Sequence[str]) -> bool | None:
    """Whether the words of a text in a script without blanks between words are too long to be words.

    words: what a tokenizer makes of the text. None where at most half of the letters belong to such a script. Else whether
    words with these letters have more than 4 of them on average (segmented Chinese and Japanese have about two) or, in an
    alphabetic script, 12 (segmented Thai about five).
    """
    counts = [len(re.findall(LETTERS, word)) for word in words]
    written, ideographs = sum(counts), len(re.findall(f"[{IDEOGRAPHIC}]", "".join(words)))
    if 2 * written <= sum(character.isalpha() or bool(re.match(LETTERS, character)) for character in "".join(words)):
        return None
    return written > (4 if 2 * ideographs >= written else 12) * sum(count > 0 for count in counts)
