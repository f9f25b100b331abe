"""Agreement of a sparse attention with an importance that ties do not limit: the heaviest tokens, and the support.

Kendall's tau-b compares all pairs of tokens, and the tokens that a sparse attention leaves out are tied, so it cannot
reach 1 (see `tie_ceiling`). Here attention is asked only for the tokens that it does choose, and a perfect importance
reaches 1 however few they are.

Shapes: N instances, T tokens of one instance. A column of scores is a sequence of N one-dimensional rows of lengths T,
different from row to row. Undefined, hence NaN: fewer than two tokens, a constant row, a row that is None or holds a
NaN.
"""

from collections.abc import Sequence

import numpy as np

from .columns import check_share
from .divergences import flatten_pair
from .rank_agreement import auprc, auprc_random


def top_k_overlap(attention: Sequence, importance: Sequence, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Share of the k tokens of largest attention that are among the k of largest importance, per row.

    k is the given share of the tokens, rounded up and at least 1, but no more than attention supports: a token without
    weight is never one of the largest. Ties are broken at random, in either row on its own, and the share is the
    expectation over all ways to break them, in closed form: of g tied tokens of which r are still within the k, each
    counts r/g.

    attention: N rows of non-negative weights; importance: N rows of scores of any scale; the two rows of a pair have
    the same length. share: in 0..1, not 0. Returns (overlap [N] in 0..1, chance [N] in 0..1), float64; chance = k/T is
    what an importance without any relation reaches. Both are NaN for undefined rows (see the module), where attention
    is zero everywhere, and where k = T, so that every importance would reach 1.

    Raises ValueError naming the row where the rows of a pair differ in length, and for a share out of range.

    >>> overlap, chance = top_k_overlap([[0.1, 0.2, 0.3, 0.4, 0.0]], [[1.0, 2.0, 4.0, 3.0, 5.0]], share=0.4)
    >>> overlap.tolist(), chance.tolist()
    ([0.5], [0.4])
    """
    check_share(share, "the share of tokens to compare")
    attention, importance, lengths = flatten_pair(attention, importance, ("attention", "importance"))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    support = np.bincount(owner, weights=attention > 0, minlength=len(lengths)).astype(np.int64)
    wanted = np.ceil(share * lengths - 1e-9).astype(np.int64)  # 0.1 x 30 is above 3 in floats
    k = np.minimum(support, np.maximum(wanted, 1))
    undefined = _undefined(attention, owner, lengths) | _undefined(importance, owner, lengths) | (k == 0) | (k == lengths)
    k[undefined] = 0
    both = _chances(attention, owner, lengths, k) * _chances(importance, owner, lengths, k)
    common = np.bincount(owner, weights=both, minlength=len(lengths))
    with np.errstate(invalid="ignore"):
        overlap, chance = np.minimum(common / k, 1), k / lengths
    return np.where(undefined, np.nan, overlap), np.where(undefined, np.nan, chance)


def support_auprc(attention: Sequence, importance: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Average precision of importance as a guess at the support of attention (weights above zero), per row.

    attention: N rows of non-negative weights; importance: N rows of scores of any scale; the two rows of a pair have
    the same length. Returns (auprc [N] in 0..1, chance [N] in 0..1), float64: `auprc`, 1 where every token of the
    support has more importance than every other, and `auprc_random`, its mean over all orders of the tokens. Both are
    NaN for undefined rows (see the module) and where every token is in the support, as always under softmax, or none.

    Raises ValueError naming the row where the rows of a pair differ in length.

    >>> areas, chance = support_auprc([[0.6, 0.4, 0.0, 0.0], [0.9, 0.1]], [[4, 1, 3, 2], [2, 1]])
    >>> areas.tolist(), chance.round(4).tolist()
    ([0.75, nan], [0.6806, nan])
    """
    attention, importance, lengths = flatten_pair(attention, importance, ("attention", "importance"))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    ends = np.cumsum(lengths)[:-1]
    support = np.where(np.isnan(attention), np.nan, attention > 0)
    undefined = _undefined(support, owner, lengths) | _undefined(importance, owner, lengths)
    rows = np.split(support, ends) if len(lengths) else []
    scores = np.split(importance, ends) if len(lengths) else []
    return np.where(undefined, np.nan, auprc(scores, rows)), np.where(undefined, np.nan, auprc_random(rows))


def _undefined(flat: np.ndarray, owner: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether a row is constant, as it is below two tokens, or holds a NaN, [N]."""
    first = flat[(np.cumsum(lengths) - lengths)[owner]]
    differs = np.bincount(owner, weights=flat != first, minlength=len(lengths)) > 0
    return ~differs | (np.bincount(owner, weights=np.isnan(flat), minlength=len(lengths)) > 0)


def _chances(scores: np.ndarray, owner: np.ndarray, lengths: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Probability of each token to be among the k [N] of largest score in its row, ties broken at random; flat."""
    order = np.lexsort((-scores, owner))
    chosen = k > 0
    bound = np.full(len(lengths), np.inf)
    bound[chosen] = scores[order][(np.cumsum(lengths) - lengths + k - 1)[chosen]]
    above, tied = scores > bound[owner], (scores == bound[owner]) & chosen[owner]
    left = k - np.bincount(owner, weights=above, minlength=len(lengths))
    group = np.bincount(owner, weights=tied, minlength=len(lengths))
    return above + tied * (left / np.maximum(group, 1))[owner]
