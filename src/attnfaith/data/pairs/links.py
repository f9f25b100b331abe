"""Links between the words of two sentences, as they are written and as numbers.

Shapes: T source words, G target words. A line holds the links of one pair between blanks: `i-j` is a sure one, of source
word i and target word j, `ipj` (or `i?j`) a possible one. Words are counted from 0 or from 1, which no file says itself.

Source: the formats of fast_align (Dyer et al. 2013) and of the TALP alignments (Lambert et al. 2005).
"""

import re
from collections.abc import Iterable, Sequence

from attnfaith.errors import DatasetError, cut, excerpt


SURE, POSSIBLE = 2, 1
_LINK = re.compile(r"(\d{1,6})([-p?])(\d{1,6})")


def read_links(
    line: str, sources: int, targets: int, *, first: int = 0, swapped: bool = False, place: str = "links"
) -> list[tuple[int, int, int]]:
    """[(source, target, 2 sure or 1 possible)] of a line, counted from 0 and in order; one given twice counts once, as the
    surer.

    sources, targets: how many words T and G the sentences have. first: what the line counts from, 0 or 1. swapped: it writes
    the target word first. place: where the line stands, for messages.

    Raises DatasetError for what is no link, and for a word that the sentence does not have: where that tells, the message
    says that the words are counted from the other number.
    """
    if first not in (0, 1):
        raise DatasetError(f"links_from={excerpt(first)}: words are counted from 0 or from 1")
    strengths: dict[tuple[int, int], int] = {}
    for written in line.split():
        match = _LINK.fullmatch(written)
        if match is None:
            raise DatasetError(f"{place}: {excerpt(written)} is no link; write 3-4 (sure) or 3p4 (possible)")
        source, target = (int(match[part]) - first for part in ((3, 1) if swapped else (1, 3)))
        for number, words, side in ((source, sources, "source"), (target, targets, "target")):
            if 0 <= number < words:
                continue
            reason = f"counted from {first}: the links are of other sentences, or of words that were divided otherwise"
            if number < 0:
                reason = "counted from 1: the links count from 0, so give links_from=0"
            elif number == words and first == 0:
                reason = "counted from 0: if the links count from 1, give links_from=1"
            raise DatasetError(
                f"{place}: the link {cut(written, 20)} names {side} word {number + first}, and the {side} sentence has "
                f"{words} words, {reason}"
            )
        strength = SURE if match[2] == "-" else POSSIBLE
        strengths[source, target] = max(strength, strengths.get((source, target), 0))
    return [(*pair, strength) for pair, strength in sorted(strengths.items())]


def gold_matrix(links: Iterable[Sequence[int]], sources: int, targets: int):
    """(G,T) int64 of links as `read_links` gives them: 2 sure, 1 possible, 0 none."""
    import numpy as np

    gold = np.zeros((targets, sources), np.int64)
    for source, target, strength in links:
        gold[target, source] = strength
    return gold
