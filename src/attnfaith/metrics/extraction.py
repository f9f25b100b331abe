"""From weights between the words of two sentences to links: the rules, and which of them is chosen where it is not judged.

A rule takes the weights (G, T) of every source word in every target word, of any scale, and says which pairs are linked:

* target_argmax: each target word with its heaviest source word
* source_argmax: each source word with its heaviest target word
* intersection, union: of these two
* grow_diagonal: the intersection, and from the union what touches a link, diagonally too, while neither word has one
* row_share: pairs of at least `threshold` of the heaviest weight of their target word
* absolute: pairs of at least `threshold`

Of equal weights the first is the heaviest. NaN is no weight: it links nothing, nor does a target word (source word) without
any other. A row_share asks for a positive weight.

A rule and its threshold can be fitted to gold links like any other parameter. So can a layer, a head, a measure. What is
reported of the best of many on the sentences that it was chosen on is too good; `halves` keeps the two apart.

Shapes: G target words, T source words, N sentences; leading axes of weights are kept.

Sources: Och & Ney (2003), section 3 (intersection, union); Koehn, Och & Marcu (2003), Statistical Phrase-Based Translation,
section 3.1 (growing), here as in the published links of Zenkel, Wuebker & DeNero (2019), which grow where both words are
without a link.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import SURE


SHARES = (0.25, 0.5, 0.75, 0.9)
ABSOLUTES = (0.05, 0.1, 0.2, 0.3, 0.5)
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True)
class Rule:
    """How links are made of weights. threshold: None of a rule without one."""

    name: str
    threshold: float | None = None

    @property
    def label(self) -> str:
        """For reading: "target argmax", "at least 0.5 of the row's largest"."""
        if self.threshold is None:
            return self.name.replace("_", " ")
        return f"at least {self.threshold:g}" + (" of the row’s largest" if self.name == "row_share" else "")


ARGMAX = tuple(map(Rule, ("target_argmax", "source_argmax", "intersection", "union", "grow_diagonal")))
RULES = (*ARGMAX, *(Rule("row_share", share) for share in SHARES))
"""What any measure is read with."""
OF_WEIGHTS = (*RULES, *(Rule("absolute", bound) for bound in ABSOLUTES))
"""What a measure whose unit is a share of 1 is read with."""


def linked(weights: np.ndarray, rules: Sequence[Rule] = RULES) -> np.ndarray:
    """The links of each rule, [..., rules, G, T] bool, of weights [..., G, T]; see the module.

    >>> linked(np.array([[0.6, 0.4], [0.8, 0.2]]), ARGMAX[:3]).astype(int).tolist()
    [[[1, 0], [1, 0]], [[0, 1], [1, 0]], [[0, 0], [1, 0]]]
    """
    known = ~np.isnan(weights)
    filled = np.where(known, weights, -np.inf)
    of_target, of_source = _heaviest(filled, -1) & known, _heaviest(filled, -2) & known
    parts = {
        "target_argmax": of_target,
        "source_argmax": of_source,
        "intersection": of_target & of_source,
        "union": of_target | of_source,
    }
    if any(rule.name == "grow_diagonal" for rule in rules):
        parts["grow_diagonal"] = grown(parts["intersection"], parts["union"])
    largest = filled.max(axis=-1, keepdims=True, initial=-np.inf)
    links = []
    for rule in rules:
        if rule.name == "row_share":
            links.append((filled > 0) & (filled >= rule.threshold * largest))
        elif rule.name == "absolute":
            links.append(filled >= rule.threshold)
        else:
            links.append(parts[rule.name])
    return np.stack(links, axis=-3)


def _heaviest(filled: np.ndarray, axis: int) -> np.ndarray:
    """Whether a pair is the first of the heaviest along an axis."""
    if not filled.shape[axis]:
        return np.zeros(filled.shape, bool)
    places = np.expand_dims(filled.argmax(axis=axis), axis)
    chosen = np.zeros(filled.shape, bool)
    np.put_along_axis(chosen, places, True, axis=axis)
    return chosen


def grown(intersection: np.ndarray, union: np.ndarray) -> np.ndarray:
    """The links [..., G, T] bool of grow_diagonal, of two directions' intersection and union, see the module."""
    links = np.array(intersection, order="C")
    wanted = union & ~links.any(axis=-1, keepdims=True) & ~links.any(axis=-2, keepdims=True)
    for place in np.argwhere(wanted.any(axis=(-1, -2))).tolist():
        _grow(links[tuple(place)], wanted[tuple(place)])
    return links


def _grow(links: np.ndarray, wanted: np.ndarray) -> None:
    """Adds to links [G, T] those wanted, of words without one, that touch a link while their words still have none, until
    there is none. Links are gone through by source word, then target word, and the neighbours of each in order.
    """
    left = {(source, target) for target, source in np.argwhere(wanted).tolist()}
    present = {(source, target) for target, source in np.argwhere(links).tolist()}
    added = True
    while added and left:
        added = False
        for source, target in sorted(present | left):
            if (source, target) not in present:
                continue
            for across, along in _NEIGHBOURS:
                pair = source + across, target + along
                if pair in left:
                    present.add(pair)
                    left = {other for other in left if other[0] != pair[0] and other[1] != pair[1]}
                    links[pair[1], pair[0]] = added = True


def counted(links: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """|A & S|, |A & P|, |A| and |S|, [..., 4] float64, of links [..., G, T] bool and gold links [G, T]: 2 sure, 1 possible,
    0 none. What `alignment_scores` takes.
    """
    sure = gold == SURE
    hits = [(links & part).sum(axis=(-1, -2)) for part in (sure, gold > 0)]
    size = links.sum(axis=(-1, -2))
    return np.stack([*hits, size, np.full(size.shape, sure.sum())], axis=-1).astype(np.float64)


def diagonal(targets: int, sources: int) -> np.ndarray:
    """Weights that know only positions, [G, T] in 0..1: 1 less the distance between relative places, of word middles.

    What a measure has to beat where two languages have much the same order.

    >>> diagonal(2, 4).tolist()
    [[0.875, 0.875, 0.625, 0.375], [0.375, 0.625, 0.875, 0.875]]
    """
    places = [(np.arange(size) + 0.5) / size for size in (targets, sources)]
    return 1 - np.abs(np.subtract.outer(*places))


def halves(names: Sequence[str], seed: int = 0) -> np.ndarray:
    """Whether each of N sentences is of the half that is chosen on, [N] bool; it has the one more of an odd number.

    The halves are drawn by `seed` over the sorted names of the sentences, so that their order in a file does not matter.
    Sentences of one name are drawn one by one.
    """
    order = np.argsort(np.asarray(names, dtype=object), kind="stable")
    chosen = np.zeros(len(order), bool)
    chosen[order[np.random.default_rng(seed).permutation(len(order))[: (len(order) + 1) // 2]]] = True
    return chosen
