"""Distances between two distributions per instance, whether a decision changes, and the dispersion of a row of scores.

Shapes: N instances. p and q hold N rows each, a row one distribution over classes [C] or tokens [T]; rows may differ in
length from instance to instance. Results are [N] float64.

A distribution is non-negative and sums to 1 within 1e-4; it is divided by its sum before use, so that single precision
cannot push a result out of its range. Anything else raises InputError, as do rows of different length. A row that is None,
empty or holds a NaN is undefined: its result is NaN. 0 log 0 = 0, and nothing is added inside a logarithm.

Dispersion takes non-negative scores, one a token, of attention or of any importance; a negative one raises InputError.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import entr, rel_entr

from .columns import by_row


SUM_TOLERANCE = 1e-4


def distribution_fault(row: np.ndarray) -> str:
    """Return why a row is no distribution, "" for one."""
    if (row < 0).any():
        return f"holds {row.min():g}; a distribution has no negative value"
    if not abs(row.sum() - 1) <= SUM_TOLERANCE:
        rule = f"a distribution sums to 1 (within {SUM_TOLERANCE:g}). Give probabilities, not scores, and leave padding out"
        return f"sums to {row.sum():g}; {rule}"
    return ""


def _divergence(function: Callable, p: Sequence, q: Sequence, largest: float = 1) -> np.ndarray:
    """function(p, q) of rows that are divided by their sums, within 0..largest."""
    faults = {"p": distribution_fault, "q": distribution_fault}
    values = by_row(lambda p, q: function(p / p.sum(), q / q.sum()), {"p": p, "q": q}, faults)
    return np.clip(values, 0, largest)


def total_variation_distance(p: Sequence, q: Sequence) -> np.ndarray:
    """Return half the summed absolute difference, [N] in 0..1: the largest difference in probability of any event.

    0 where equal, 1 where the supports are disjoint. A metric.
    """
    return _divergence(lambda p, q: np.abs(p - q).sum() / 2, p, q)


def jensen_shannon_divergence(p: Sequence, q: Sequence) -> np.ndarray:
    """Return the mean Kullback-Leibler divergence from p and from q to their average, [N] in 0..ln 2, in nats (Lin, 1991).

    0 where equal, ln 2 = 0.693 where the supports are disjoint. Symmetric.
    """
    # rel_entr(2p, p+q) = 2p log(p / m) with m = (p+q)/2: halving p+q could underflow to zero where p is not zero
    return _divergence(lambda p, q: (rel_entr(2 * p, p + q) + rel_entr(2 * q, p + q)).sum() / 4, p, q, np.log(2))


def decision_flips(p: Sequence, q: Sequence) -> np.ndarray:
    """Return whether the most probable class differs between p and q, [N] float64: 1 where it does, 0 where not.

    On equal probability the lower class is the decision.
    """
    return _divergence(lambda p, q: p.argmax() != q.argmax(), p, q)


def _dispersion(function: Callable, rows: Sequence) -> np.ndarray:
    """function(row) of rows of non-negative scores."""
    rule = "dispersion needs non-negative scores, such as their absolute values"
    return by_row(function, {"rows": rows}, {"rows": lambda row: f"holds {row.min():g}; {rule}" if row.min() < 0 else ""})


def normalised_entropy(rows: Sequence) -> np.ndarray:
    """Return the Shannon entropy of each row, divided by its sum, over its maximum log T: [N] in 0..1.

    0 where one token has all, 1 where all have the same. Undefined also for fewer than two tokens, a row of zeros and an
    infinite score. Source: Meister et al. (2021), section 4.
    """

    def entropy(scores: np.ndarray) -> float:
        if len(scores) < 2 or not 0 < scores.max() < np.inf:
            return np.nan
        shares = scores / scores.max()  # so that no sum leaves the range of floats
        return np.clip((np.log(shares.sum()) + entr(shares).sum() / shares.sum()) / np.log(len(shares)), 0, 1)

    return _dispersion(entropy, rows)


def support_size(rows: Sequence) -> np.ndarray:
    """Return the tokens with a score above zero, per row: [N] float64 in 0..T."""
    return _dispersion(np.count_nonzero, rows)


def share_of_zeros(rows: Sequence) -> np.ndarray:
    """Return the share of tokens with a score of zero, per row: [N] float64 in 0..1."""
    return _dispersion(lambda row: np.mean(row == 0), rows)
