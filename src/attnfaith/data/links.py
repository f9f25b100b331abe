"""Links between the words of two sentences, as files of gold alignments write them: one line a pair, "0-0 1-2 3p2".

i-j says that the source word i is surely linked to the target word j, ipj that it possibly is. Words are counted from 0 or
from 1, which no file says: it is stated, and what cannot be so is refused. T source words, G target words.
"""

import re
from collections.abc import Sequence

import numpy as np

from attnfaith.errors import DatasetError, excerpt


LINK = re.compile(r"(\d{1,9})([-p])(\d{1,9})")
SURE, POSSIBLE = 2, 1


def read_links(lines: Sequence[str], sources: Sequence[int], targets: Sequence[int], first: int) -> list[np.ndarray]:
    """One array (G,T) int64 for each pair: 2 sure, 1 possible only, 0 none.

    lines: "i-j" and "ipj", by blanks, i of the source and j of the target. sources, targets: how many words the sentences
    have. first: the number of the first word, 0 or 1.

    Raises DatasetError for another first, for as many lines as there are not pairs, and, with the number of the line, what
    is no link and one to a word that the sentence does not have: the message says so where the words seem to be counted from
    the other number, or to be of another tokenisation.

    >>> read_links(["1-1 2p1"], [2], [1], 1)[0].tolist()
    [[2, 1]]
    """
    if isinstance(first, bool) or first not in (0, 1):
        raise DatasetError(f"links_from={excerpt(first)}: words are counted from 0 or from 1")
    if len(lines) != len(sources):
        raise DatasetError(
            f"there are {len(lines):,} lines of links and {len(sources):,} pairs of sentences: give one line for each, empty "
            "where a pair has no links"
        )
    read = [_line(number, line) for number, line in enumerate(lines)]
    _check(read, sources, targets, first)
    arrays = []
    for links, width, height in zip(read, sources, targets, strict=True):
        links = np.array(links, np.int64).reshape(-1, 3) - [first, 0, first]
        array = np.zeros((height, width), np.int64)
        np.maximum.at(array, (links[:, 2], links[:, 0]), links[:, 1])
        arrays.append(array)
    return arrays


def _line(number: int, line: str) -> list[tuple[int, int, int]]:
    """(source word, SURE or POSSIBLE, target word) of each link of a line, as they are counted there."""
    if not isinstance(line, str):
        raise DatasetError(f"line {number} of the links is {excerpt(line, 60)}: give a string such as '0-0 1-2'")
    links = []
    for written in line.split():
        link = LINK.fullmatch(written)
        if link is None:
            raise DatasetError(
                f"line {number} of the links holds {excerpt(written, 60)}: a link is source-target, such as 3-2, or 3p2 for "
                "one that is possible only"
            )
        links.append((int(link[1]), SURE if link[2] == "-" else POSSIBLE, int(link[3])))
    return links


def _check(read: list, sources: Sequence[int], targets: Sequence[int], first: int) -> None:
    """Raises DatasetError for the first link to a word that is not there, with what all lines say of how words are counted."""
    sides = (("source", 0, sources), ("target", 2, targets))
    wrong = next(
        (
            (number, link, side, link[place], counts[number])
            for number, links in enumerate(read)
            for link in links
            for side, place, counts in sides
            if not first <= link[place] < first + counts[number]
        ),
        None,
    )
    if wrong is None:
        return
    number, link, side, word, count = wrong
    written = f"{link[0]}{'-' if link[1] == SURE else 'p'}{link[2]}"
    other = 1 - first
    fits = all(
        other <= one[place] < other + counts[row]
        for row, links in enumerate(read)
        for one in links
        for _, place, counts in sides
    )
    if fits:
        why = f"all links fit words counted from {other}: say links_from={other}"
    elif first == 1 and word == 0:
        why = "there is no word 0 where words are counted from 1, and counted from 0 other links are beyond their sentences"
    elif all(link[2] < first + sources[number] and link[0] < first + targets[number] for link in read[number]):
        why = "the line fits with its sides exchanged: a link is source-target"
    else:
        why = "are these links of other sentences, or of other words: those that blanks part are counted"
    raise DatasetError(
        f"line {number} of the links holds {written}, and the {side} sentence has {count} words, {first} to "
        f"{first + count - 1}: {why}"
    )
