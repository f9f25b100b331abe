"""Distances between two distributions per instance, whether a decision changes, and the dispersion of a row of scores.

Shapes: N instances. p and q hold N rows each, a row one distribution over classes [C] or tokens [T]; rows may differ in
length from instance to instance. Results are [N] float64.

A distribution is non-negative and sums to 1 within 1e-4; it is divided by its sum before use, so that single precision
cannot push a result out of its range. Anything else raises InputError, as do rows of different length. A row that is None,
empty or holds a NaN is undefined: its result is NaN. 0 log 0 = 0, and nothing is added inside a logarithm.

Dispersion is of non-negative scores, one a token, of attention or of any importance; a negative one raises InputError.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import entr, rel_entr

from .columns import InputError, Layout, check_values, flatten, flatten_pair


SUM_TOLERANCE = 1e-4


def check_distributions(rows: Sequence, name: str) -> None:
    """Raise InputError, naming the first row that is not a distribution; undefined rows pass."""
    _normalised(*flatten(rows, name), name)


def _normalised(values: np.ndarray, layout: Layout, name: str) -> np.ndarray:
    """The flat rows, each divided by its sum."""
    check_values(values, layout, name, values >= 0, "a distribution has no negative value")
    sums = layout.sum(values)
    for row in np.flatnonzero((np.abs(sums - 1) > SUM_TOLERANCE) & (layout.lengths > 0)):
        raise InputError(
            f"row {row}: {name} sums to {sums[row]:g}; a distribution sums to 1 (within {SUM_TOLERANCE:g}). "
            "Give probabilities, not scores, and leave padding out"
        )
    return values / sums[layout.owner]


def _pair(p: Sequence, q: Sequence) -> tuple[np.ndarray, np.ndarray, Layout]:
    p_values, q_values, layout = flatten_pair(p, q, ("p", "q"))
    return _normalised(p_values, layout, "p"), _normalised(q_values, layout, "q"), layout


def _row_sums(terms: Callable, p: Sequence, q: Sequence) -> np.ndarray:
    *values, layout = _pair(p, q)
    return np.where(layout.lengths > 0, layout.sum(terms(*values)), np.nan)


def total_variation_distance(p: Sequence, q: Sequence) -> np.ndarray:
    """Return half the summed absolute difference, [N] in 0..1: the largest difference in probability of any event.

    0 where equal, 1 where the supports are disjoint. A metric.
    """
    return np.clip(_row_sums(lambda p, q: np.abs(p - q) / 2, p, q), 0, 1)


def jensen_shannon_divergence(p: Sequence, q: Sequence) -> np.ndarray:
    """Return the mean Kullback-Leibler divergence from p and from q to their average, [N] in 0..ln 2, in nats (Lin, 1991).

    0 where equal, ln 2 = 0.693 where the supports are disjoint. Symmetric.
    """

    # rel_entr(2p, p+q) = 2p log(p / m) with m = (p+q)/2: halving p+q could underflow to zero where p is not zero
    def terms(p, q):
        return (rel_entr(2 * p, p + q) + rel_entr(2 * q, p + q)) / 4

    return np.clip(_row_sums(terms, p, q), 0, np.log(2))


def decision_flips(p: Sequence, q: Sequence) -> np.ndarray:
    """Return whether the most probable class differs between p and q, [N] float64: 1 where it does, 0 where not.

    On equal probability the lower class is the decision.
    """
    *values, layout = _pair(p, q)
    p_class, q_class = (decisions(rows, layout) for rows in values)
    return np.where(np.isnan(p_class) | np.isnan(q_class), np.nan, p_class != q_class)


def decisions(values: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the place of the first largest value of each row, [N] float64; NaN for rows that are empty or hold a NaN."""
    places = np.full(len(layout), np.nan)
    hits = np.flatnonzero(values == layout.max(values)[layout.owner])
    rows, first = np.unique(layout.owner[hits], return_index=True)
    places[rows] = hits[first] - layout.starts[rows]
    return places


def normalised_entropy(rows: Sequence) -> np.ndarray:
    """Return the Shannon entropy of each row, divided by its sum, over its maximum log T: [N] in 0..1.

    0 where one token has all, 1 where all have the same. Undefined also for fewer than two tokens, a row of zeros and an
    infinite score. Source: Meister et al. (2021), section 4.
    """
    scores, layout = _scores(rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = scores / layout.max(scores)[layout.owner]  # so that no sum leaves the range of floats
        total = layout.sum(shares)
        return np.clip((np.log(total) + layout.sum(entr(shares)) / total) / np.log(layout.lengths), 0, 1)


def support_size(rows: Sequence) -> np.ndarray:
    """Return the tokens with a score above zero, per row: [N] float64 in 0..T."""
    scores, layout = _scores(rows)
    size = layout.sum(np.where(np.isnan(scores), np.nan, scores > 0))
    return np.where(layout.lengths > 0, size, np.nan)


def share_of_zeros(rows: Sequence) -> np.ndarray:
    """Return the share of tokens with a score of zero, per row: [N] float64 in 0..1."""
    return 1 - support_size(rows) / np.maximum(_scores(rows)[1].lengths, 1)


def _scores(rows: Sequence) -> tuple[np.ndarray, Layout]:
    scores, layout = flatten(rows, "rows")
    check_values(scores, layout, "rows", scores >= 0, "dispersion needs non-negative scores, such as their absolute values")
    return scores, layout
