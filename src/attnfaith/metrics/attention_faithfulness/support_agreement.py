"""Agreement of a sparse attention with an importance that ties do not limit: the heaviest tokens, and the support.

Kendall's tau-b compares all pairs of tokens, and the tokens that a sparse attention leaves out are tied, so it cannot
reach 1 (see `tie_ceiling`). Here attention is asked only for the tokens that it does choose.

Shapes: N instances, T tokens of one instance. attention holds N rows of non-negative weights, importance N rows of scores of
any scale; rows of different length raise InputError. Undefined, hence NaN: fewer than two tokens, a constant row, a row that
is None or holds a NaN.
"""

from collections.abc import Sequence

import numpy as np

from .columns import Layout, check_share, flatten_pair
from .plausibility import average_precision, random_precision


def top_k_overlap(attention: Sequence, importance: Sequence, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of the k tokens of largest attention that are among the k of largest importance, per row.

    k is the given share of the tokens, above 0 and at most 1, rounded up, but no more than attention supports. Ties are
    broken at random, in either row on its own, and the share is the expectation over all ways to break them, in closed form:
    of g tied tokens of which r are still within the k, each counts r/g.

    Returns (overlap [N] in 0..1, chance [N] in 0..1), float64; chance = k/T is what an importance without any relation
    reaches. Both are NaN for undefined rows, where attention is zero everywhere, and where k = T.
    """
    check_share(share, "the share of tokens to compare")
    attention, importance, layout = flatten_pair(attention, importance, ("attention", "importance"))
    support = layout.sum(attention > 0).astype(np.int64)
    wanted = np.ceil(share * layout.lengths - 1e-9).astype(np.int64)  # 0.1 x 30 is above 3 in floats
    k = np.minimum(support, np.maximum(wanted, 1))
    undefined = _undefined(attention, layout) | _undefined(importance, layout) | (k == 0) | (k == layout.lengths)
    k[undefined] = 0
    common = layout.sum(_chances(attention, layout, k) * _chances(importance, layout, k))
    with np.errstate(invalid="ignore"):
        overlap, chance = np.minimum(common / k, 1), k / layout.lengths
    return np.where(undefined, np.nan, overlap), np.where(undefined, np.nan, chance)


def support_auprc(attention: Sequence, importance: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Return the average precision of importance as a guess at the support of attention (weights above zero), per row.

    Returns (precision [N] in 0..1, chance [N] in 0..1), float64: `average_precision` and `random_precision`. Both are NaN
    for undefined rows and where every token is in the support, as always under softmax, or none.
    """
    attention, importance, layout = flatten_pair(attention, importance, ("attention", "importance"))
    support = np.where(np.isnan(attention), np.nan, attention > 0)
    undefined = _undefined(support, layout) | _undefined(importance, layout)
    support, importance = layout.split(support), layout.split(importance)
    precision, chance = average_precision(importance, support), random_precision(support)
    return np.where(undefined, np.nan, precision), np.where(undefined, np.nan, chance)


def _undefined(values: np.ndarray, layout: Layout) -> np.ndarray:
    """Whether a row is constant, as it is below two tokens, or holds a NaN, [N]."""
    differs = layout.sum(values != values[layout.starts[layout.owner]]) > 0
    return ~differs | (layout.sum(np.isnan(values)) > 0)


def _chances(scores: np.ndarray, layout: Layout, k: np.ndarray) -> np.ndarray:
    """Probability of each token to be among the k [N] of largest score in its row, ties broken at random; flat."""
    order, chosen = np.lexsort((-scores, layout.owner)), k > 0
    bound = np.full(len(layout), np.inf)
    bound[chosen] = scores[order][(layout.starts + k - 1)[chosen]]
    above = scores > bound[layout.owner]
    tied = (scores == bound[layout.owner]) & chosen[layout.owner]
    left = k - layout.sum(above)
    return above + tied * (left / np.maximum(layout.sum(tied), 1))[layout.owner]
