"""Sequences to be copied, reversed, or flipped two by two: each target word is one source word, and which is known.

copy: the same words. reverse: in the reverse order. bigram_flip: the first two words change places, then the next two, and
so on; a last one without a neighbour stays. Words are drawn uniformly and say nothing of one another, so a model has to look
at the linked word, or to remember it.

Knobs:
    vocabulary_size  how many different words there are.
    length           least and greatest number of words, drawn uniformly.

A row depends on (seed, stream, its index) and the knobs only: more rows never change the earlier ones.

Source: Pruthi et al. 2020, section 3.3, where the vocabulary has 1,000 words, sequences 32, and each split 100,000 of them.
"""

from attnfaith.data.generator_knobs import check_least
from attnfaith.data.pairs.links import SURE
from attnfaith.errors import DatasetError


VERSION = 1
"""Raised whenever the same arguments give other rows."""

TASKS = {
    "copy": lambda length: range(length),
    "reverse": lambda length: range(length - 1, -1, -1),
    "bigram_flip": lambda length: [place ^ 1 if place ^ 1 < length else place for place in range(length)],
}
"""The source word of each target word."""


def generate(
    task: str,
    n: int,
    seed: int,
    *,
    stream: int = 0,
    vocabulary_size: int = 1000,
    length: tuple[int, int] = (32, 32),
) -> list[dict]:
    """n rows {"source": str, "target": str, "links": [[source word, target word, 2]]} of a task, words counted from 0.

    Raises DatasetError for a knob out of range.
    """
    import numpy as np

    check_least(n=(n, 0), seed=(seed, 0), stream=(stream, 0), vocabulary_size=(vocabulary_size, 1))
    low, high = length
    if not 1 <= low <= high:
        raise DatasetError(f"length must be (least, greatest), from 1 on; {length} was given.")
    rows = []
    for index in range(n):
        random = np.random.default_rng([seed, stream, index])
        words = [f"w{word}" for word in random.integers(vocabulary_size, size=random.integers(low, high, endpoint=True))]
        places = list(TASKS[task](len(words)))
        links = sorted([place, target, SURE] for target, place in enumerate(places))
        rows.append({"source": " ".join(words), "target": " ".join(words[place] for place in places), "links": links})
    return rows
