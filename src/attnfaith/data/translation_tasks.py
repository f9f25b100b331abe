"""Generated sentence pairs with exact word alignments: a toy language, and rearranged sequences.

A row is {"source": str, "target": str, "links": [[source word, target word, 2]]}, words counted from 0, 2 for a sure link.
"""

import numpy as np

from attnfaith.data.generators import Bounds, Number, Positive, Share, checked


VERSION = 1
"""Raised whenever the same arguments give other rows."""
SURE = 2
IN_ORDER, REVERSED = ("and", "AND"), ("because", "BECAUSE")

SEQUENCES = {
    "copy": lambda length: range(length),
    "reverse": lambda length: range(length - 1, -1, -1),
    "bigram_flip": lambda length: [place ^ 1 if place ^ 1 < length else place for place in range(length)],
}
"""Task -> the source word of each target word: the same order, the reverse, or flipped two by two (a last word without a
neighbour stays). Source: Pruthi et al. 2020, section 3.3: 1,000 words, sequences of 32, 100,000 of each split."""


@checked
def sequences(
    task: str, n: Number, seed: Number, *, stream: Number = 0, vocabulary_size: Positive = 1000, length: Bounds = (32, 32)
) -> list[dict]:
    """Generate n rows of a task of SEQUENCES.

    Words are drawn uniformly and independently, so a model must look at the linked word, or remember it.
    vocabulary_size: number of different words. length: least and greatest number of words of a sequence, drawn uniformly.
    """
    rows = []
    for index in range(n):
        random = np.random.default_rng([seed, stream, index])
        words = [f"w{word}" for word in random.integers(vocabulary_size, size=random.integers(*length, endpoint=True))]
        places = list(SEQUENCES[task](len(words)))
        links = sorted([place, target, SURE] for target, place in enumerate(places))
        rows.append({"source": " ".join(words), "target": " ".join(words[place] for place in places), "links": links})
    return rows


def lexicon(seed: int, vocabulary_size: int, two_word_share: float) -> list[list[str]]:
    """Return the translation of each word s0, s1, ...: ["t3"], or ["t3a", "t3b"]."""
    order = np.random.default_rng([seed, vocabulary_size]).permutation(vocabulary_size)
    entries = [[f"t{word}"] for word in range(vocabulary_size)]
    for word in order[: round(two_word_share * vocabulary_size)]:
        entries[word] = [f"t{word}a", f"t{word}b"]
    return entries


@checked
def toy_language(
    n: Number,
    seed: Number,
    *,
    stream: Number = 0,
    vocabulary_size: Positive = 40,
    two_word_share: Share = 0.2,
    clauses: Bounds = (1, 3),
    clause_length: Bounds = (2, 5),
    reversed_share: Share = 0.5,
) -> list[dict]:
    """Generate n rows of a toy language and its translation.

    A clause begins with a conjunction that decides the order of its words in the translation: the same ("and", AND) or the
    reverse ("because", BECAUSE); the conjunction stays at its beginning. A word is translated by one word or by two
    neighbours. The seed decides which, so a source word determines its translation, and the order its links.

    Args:
        vocabulary_size: source words, conjunctions not counted.
        two_word_share: the share of words with two target words.
        clauses, clause_length: least and greatest number of clauses of a sentence, and of words of a clause without its
            conjunction, drawn uniformly.
        reversed_share: probability that a clause is reversed.
    """
    entries = lexicon(seed, vocabulary_size, two_word_share)
    rows = []
    for index in range(n):
        random = np.random.default_rng([seed, stream, index])
        source, target, links = [], [], []
        for _ in range(random.integers(*clauses, endpoint=True)):
            turned = bool(random.random() < reversed_share)
            words = random.integers(vocabulary_size, size=random.integers(*clause_length, endpoint=True))
            conjunction = REVERSED if turned else IN_ORDER
            clause = [(conjunction[0], [conjunction[1]]), *((f"s{word}", entries[word]) for word in words)]
            for place in [0, *(range(len(words), 0, -1) if turned else range(1, len(words) + 1))]:
                translated = clause[place][1]
                links += [[len(source) + place, len(target) + other, SURE] for other in range(len(translated))]
                target += translated
            source += [word for word, _ in clause]
        rows.append({"source": " ".join(source), "target": " ".join(target), "links": sorted(links)})
    return rows
