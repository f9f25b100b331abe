"""The words that subwords make."""

from collections.abc import Sequence

import numpy as np


CONTINUES = "##"
"""Prefix of a token that continues the word of the token before it."""
REPEATS = f"{CONTINUES}⋯"
"""Prefix of a token that is a further part, such as a byte, of a character that the token before it shows."""


def words_of(tokens: Sequence[str], owners: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the words that a text's tokens make, and the number of each token's word, from 0.

    owners: `word_of_token` of the text.
    """
    if not len(tokens):
        return [], []
    new = np.ones(len(tokens), dtype=bool)
    new[1:] = np.diff(owners) != 0
    return _joined(list(tokens), np.flatnonzero(new)), (np.cumsum(new) - 1).tolist()


def _joined(tokens: list[str], starts: np.ndarray) -> list[str]:
    """The words that tokens make, without surrounding blanks."""
    words, ends = [], [*starts.tolist(), len(tokens)][1:]
    for start, end in zip(starts.tolist(), ends, strict=True):
        word = tokens[start]
        for token in tokens[start + 1 : end]:
            if not (token.startswith(REPEATS) and word.endswith(token.removeprefix(REPEATS))):
                word += token.removeprefix(CONTINUES)
        words.append(word.strip() or tokens[start])
    return words
