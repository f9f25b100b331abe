"""From weights between the words of two sentences to links: the rules, and halves of the sentences to choose one on.

A rule takes the weights (G, T) of every source word in every target word, of any scale, and links pairs of words:

* target_argmax, source_argmax: each target word with its heaviest source word; the reverse
* intersection, union: of these two
* grow_diagonal: the intersection, and from the union what touches a link, diagonally too, while neither word has one
* row_share: pairs of at least `threshold` of the heaviest weight of their target word, where that is positive
* absolute: pairs of at least `threshold`

Of equal weights the first is the heaviest. A pair of weight NaN is never linked. Shapes: G target words, T source words, N
sentences; leading axes of weights are kept.

Sources: Och & Ney (2003), section 3 (intersection, union); Koehn, Och & Marcu (2003), section 3.1 (growing), here as in the
published links of Zenkel, Wuebker & DeNero (2019), which grow where both words are without a link.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import SURE


@dataclass(frozen=True)
class Rule:
    """How links are made of weights. threshold: None for a rule without one."""

    name: str
    threshold: float | None = None

    @property
    def label(self) -> str:
        """For reading: "target argmax", "at least 0.5 of the row's largest"."""
        if self.threshold is None:
            return self.name.replace("_", " ")
        return f"at least {self.threshold:g}" + (" of the row’s largest" if self.name == "row_share" else "")


RULES = tuple(map(Rule, ("target_argmax", "source_argmax", "intersection", "union", "grow_diagonal")))
RULES += tuple(Rule("row_share", share) for share in (0.25, 0.5, 0.75, 0.9))
"""For any measure."""
SHARE_RULES = (*RULES, *(Rule("absolute", bound) for bound in (0.05, 0.1, 0.2, 0.3, 0.5)))
"""For a measure whose unit is a share of 1."""
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def extract_links(weights: np.ndarray, rules: Sequence[Rule] = RULES) -> np.ndarray:
    """Return the links of each rule, [..., rules, G, T] bool, from weights [..., G, T]."""
    defined = ~np.isnan(weights)
    filled = np.where(defined, weights, -np.inf)
    by_target, by_source = _heaviest(filled, -1) & defined, _heaviest(filled, -2) & defined
    both, either = by_target & by_source, by_target | by_source
    links = {"target_argmax": by_target, "source_argmax": by_source, "intersection": both, "union": either}
    largest = np.maximum(filled.max(axis=-1, keepdims=True, initial=-np.inf), 0)
    results = []
    for rule in rules:
        if rule.name == "grow_diagonal":
            results.append(_grown(both, either))
        elif rule.threshold is None:
            results.append(links[rule.name])
        else:
            bound = rule.threshold * largest if rule.name == "row_share" else rule.threshold
            results.append((filled >= bound) & ((filled > 0) | (rule.name == "absolute")))
    return np.stack(results, axis=-3)


def _heaviest(filled: np.ndarray, axis: int) -> np.ndarray:
    """Whether a pair is the first of the heaviest along an axis."""
    first = np.zeros(filled.shape, bool)
    if filled.shape[axis]:
        np.put_along_axis(first, np.expand_dims(filled.argmax(axis=axis), axis), True, axis=axis)
    return first


def _grown(intersection: np.ndarray, union: np.ndarray) -> np.ndarray:
    """The intersection of two directions grown into their union, [..., G, T] bool."""
    links = np.array(intersection, order="C")
    candidates = union & ~links.any(axis=-1, keepdims=True) & ~links.any(axis=-2, keepdims=True)
    for place in map(tuple, np.argwhere(candidates.any(axis=(-1, -2))).tolist()):
        _grow(links[place], union[place])
    return links


def _grow(links: np.ndarray, union: np.ndarray) -> None:
    """Add to links [G, T] what touches one and whose words have none, by source, then target word, while there is any."""
    added = True
    while added:
        added = False
        for source, target in np.argwhere(union.T).tolist():
            for across, along in _NEIGHBOURS if links[target, source] else ():
                place = row, column = target + along, source + across
                inside = 0 <= row < links.shape[0] and 0 <= column < links.shape[1]
                if inside and union[place] and not links[row].any() and not links[:, column].any():
                    links[place] = added = True


def count_links(links: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return |A & S|, |A & P|, |A| and |S|, [..., 4] float64, for `alignment_scores`.

    links: [..., G, T] bool. gold: [G, T], 2 for a sure link, 1 for a possible one, 0 for none.
    """
    size = links.sum(axis=(-1, -2))
    hits = [(links & marked).sum(axis=(-1, -2)) for marked in (gold == SURE, gold > 0)]
    return np.stack([*hits, size, np.full(size.shape, (gold == SURE).sum())], axis=-1).astype(np.float64)


def diagonal(targets: int, sources: int) -> np.ndarray:
    """Return weights from positions alone, [G, T] in 0..1: 1 less the distance between relative places, of word middles.

    A measure has to beat them where two languages have much the same order.
    """
    target_places, source_places = ((np.arange(size) + 0.5) / size for size in (targets, sources))
    return 1 - np.abs(np.subtract.outer(target_places, source_places))


def halves(names: Sequence[str]) -> np.ndarray:
    """Return whether each of N sentences is in the half to choose a rule, layer or head on, [N] bool; the larger half.

    What is chosen on gold links looks too good there, so it is judged on the other half. The draw is over the sorted names
    of the sentences, so that their order in a file does not matter.
    """
    order = np.argsort(np.asarray(names, dtype=object), kind="stable")
    chosen = np.zeros(len(order), bool)
    chosen[order[np.random.default_rng(0).permutation(len(order))[: (len(order) + 1) // 2]]] = True
    return chosen
