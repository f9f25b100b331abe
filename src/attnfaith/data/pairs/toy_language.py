"""A toy language and its translation, whose word alignment is known exactly.

A sentence is one clause or several. A clause begins with a conjunction that says whether its words stand in the same order
in the translation ("and", AND) or in the reverse ("because", BECAUSE); the conjunction stays at its beginning. A word is
translated by one word or by two that stay together, and some are joined: two source words, always together, are one target
word. Which word is which is drawn from the seed, so a source word says its translation and its links; the order says the
rest.

Knobs:
    vocabulary_size  source words, conjunctions and the second parts of joined ones not counted.
    two_word_share   the share of them that two target words translate: many target words to one source word.
    joined_share     the share that two source words stand for: many source words to one target word.
    clauses          least and greatest number of clauses of a sentence, drawn uniformly.
    clause_length    least and greatest number of words of a clause, the conjunction not counted, drawn uniformly.
    reversed_share   the probability that a clause is reversed.

A row depends on (seed, stream, its index) and the knobs only: more rows never change the earlier ones.
"""

from attnfaith.data.generator_knobs import check_least
from attnfaith.data.pairs.links import SURE
from attnfaith.errors import DatasetError


VERSION = 1
"""Raised whenever the same arguments give other rows."""

KEPT, REVERSED = ("and", "AND"), ("because", "BECAUSE")


def lexicon(
    seed: int, vocabulary_size: int, two_word_share: float, joined_share: float
) -> list[tuple[list[str], list[str]]]:
    """[(source words, target words)]: (["s3"], ["t3"]), (["s3"], ["t3a", "t3b"]) or (["s3", "s3+"], ["t3"])."""
    import numpy as np

    order = np.random.default_rng([seed, vocabulary_size]).permutation(vocabulary_size)
    two, joined = round(two_word_share * vocabulary_size), round(joined_share * vocabulary_size)
    entries: list[tuple[list[str], list[str]]] = [([f"s{word}"], [f"t{word}"]) for word in range(vocabulary_size)]
    for word in order[:two]:
        entries[word] = ([f"s{word}"], [f"t{word}a", f"t{word}b"])
    for word in order[two : two + joined]:
        entries[word] = ([f"s{word}", f"s{word}+"], [f"t{word}"])
    return entries


def generate(
    n: int,
    seed: int,
    *,
    stream: int = 0,
    vocabulary_size: int = 40,
    two_word_share: float = 0.2,
    joined_share: float = 0.0,
    clauses: tuple[int, int] = (1, 3),
    clause_length: tuple[int, int] = (2, 5),
    reversed_share: float = 0.5,
) -> list[dict]:
    """n rows {"source": str, "target": str, "links": [[source word, target word, 2]]}, words counted from 0.

    Args:
        n: number of rows.
        seed, stream: the random stream; `stream` tells splits of one seed apart, which have one lexicon.
        the rest: see the head of this module.

    Raises DatasetError for a knob out of range.
    """
    import numpy as np

    check_least(n=(n, 0), seed=(seed, 0), stream=(stream, 0), vocabulary_size=(vocabulary_size, 1))
    for name, share in (
        ("two_word_share", two_word_share),
        ("joined_share", joined_share),
        ("reversed_share", reversed_share),
    ):
        if not 0 <= share <= 1:
            raise DatasetError(f"{name} must be 0 to 1; {share} was given.")
    if two_word_share + joined_share > 1:
        raise DatasetError(
            f"two_word_share and joined_share are of different words; {two_word_share} and {joined_share} were given."
        )
    for name, (low, high) in (("clauses", clauses), ("clause_length", clause_length)):
        if not 1 <= low <= high:
            raise DatasetError(f"{name} must be (least, greatest), from 1 on; {(low, high)} was given.")
    entries = lexicon(seed, vocabulary_size, two_word_share, joined_share)
    rows = []
    for index in range(n):
        random = np.random.default_rng([seed, stream, index])
        source, target, links = [], [], []
        for _ in range(random.integers(*clauses, endpoint=True)):
            turned = bool(random.random() < reversed_share)
            words = random.integers(vocabulary_size, size=random.integers(*clause_length, endpoint=True))
            conjunction = REVERSED if turned else KEPT
            clause = [([conjunction[0]], [conjunction[1]]), *(entries[word] for word in words)]
            starts = np.cumsum([len(source), *(len(entry[0]) for entry in clause)])
            for place in [0, *(range(len(words), 0, -1) if turned else range(1, len(words) + 1))]:
                words_here, translated = clause[place]
                links += [
                    [int(starts[place]) + i, len(target) + j, SURE]
                    for i in range(len(words_here))
                    for j in range(len(translated))
                ]
                target += translated
            source += [word for entry in clause for word in entry[0]]
        rows.append({"source": " ".join(source), "target": " ".join(target), "links": sorted(links)})
    return rows
