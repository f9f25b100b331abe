"""Distances between two distributions per instance, and how often a decision changes.

Shapes: N instances; a row is one distribution, over classes [C] or over tokens [T]. Rows may differ in length from
instance to instance, so both an array [N, C] and a list of N one-dimensional arrays are accepted. The two arguments
must agree row by row.

A row is a distribution when it is non-negative and sums to 1 within 1e-4; it is divided by its sum before use, so that
single precision cannot push a result out of its range. A row that is None, empty or holds a NaN is undefined: its
result is NaN.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import rel_entr

from .columns import InputError


SUM_TOLERANCE = 1e-4


def flatten_pair(x: Sequence, y: Sequence, names: tuple[str, str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two ragged columns as flat float64 arrays [sum of lengths] and the length of each row [N].

    Where either row is None, both become one NaN: undefined, and still one row.

    Raises ValueError where the columns differ in their number of rows, a pair of rows differs in length, or a row is
    not one-dimensional.
    """
    if len(x) != len(y):
        raise InputError(f"{names[0]} has {len(x)} rows and {names[1]} has {len(y)}: give one row of each per instance")
    if all(isinstance(column, np.ndarray) and column.ndim == 2 for column in (x, y)) and x.shape == y.shape:
        lengths = np.full(len(x), x.shape[1], dtype=np.int64)
        return np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel(), lengths
    x, y = list(x), list(y)
    for row in range(len(x)):
        if x[row] is None or y[row] is None:
            x[row] = y[row] = (np.nan,)
    x, x_lengths = flatten(x, names[0])
    y, y_lengths = flatten(y, names[1])
    if len(rows := np.flatnonzero(x_lengths != y_lengths)):
        row = rows[0]
        raise InputError(
            f"row {row}: {names[0]} has {x_lengths[row]} values and {names[1]} has {y_lengths[row]}; "
            "both must hold one value for each of the same items"
        )
    return x, y, x_lengths


def flatten(rows: Sequence, name: str) -> tuple[np.ndarray, np.ndarray]:
    """One ragged column as a flat float64 array [sum of lengths] and the length of each row [N]; None becomes one NaN.

    Raises ValueError where a row is not one-dimensional.
    """
    arrays = [
        row if isinstance(row, np.ndarray) else np.asarray((np.nan,) if row is None else row, dtype=np.float64)
        for row in rows
    ]
    if strangers := [place for place, array in enumerate(arrays) if array.ndim != 1]:
        place = strangers[0]
        raise InputError(f"row {place}: {name} has {arrays[place].ndim} axes; a row is one-dimensional")
    lengths = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
    # one conversion for all rows: one for each takes most of the time
    return np.concatenate(arrays).astype(np.float64) if arrays else np.empty(0), lengths


def check_distributions(rows: Sequence, name: str) -> None:
    """Raise ValueError, naming the first row that is not a distribution; undefined rows (see above) pass."""
    _normalised(*flatten(rows, name), name)


def _normalised(flat: np.ndarray, lengths: np.ndarray, name: str) -> np.ndarray:
    """The flat rows, each divided by its sum; raises ValueError as `check_distributions` says."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    if len(places := np.flatnonzero(flat < 0)):
        place = places[0]
        raise InputError(f"row {owner[place]}: {name} has the negative value {flat[place]:g}; a distribution has none")
    sums = np.bincount(owner, weights=flat, minlength=len(lengths))
    if len(rows := np.flatnonzero((np.abs(sums - 1) > SUM_TOLERANCE) & (lengths > 0))):
        row = rows[0]
        raise InputError(
            f"row {row}: {name} sums to {sums[row]:g}; a distribution sums to 1 (within {SUM_TOLERANCE:g}). "
            "Give probabilities, not scores, and leave padding out"
        )
    return flat / sums[owner]


def _per_row(terms, p: Sequence, q: Sequence) -> np.ndarray:
    """Sum of terms(p, q) over each row, [N]; NaN for undefined rows."""
    p, q, lengths = flatten_pair(p, q, ("p", "q"))
    p, q = _normalised(p, lengths, "p"), _normalised(q, lengths, "q")
    owner = np.repeat(np.arange(len(lengths)), lengths)
    sums = np.bincount(owner, weights=terms(p, q), minlength=len(lengths))
    return np.where(lengths > 0, sums, np.nan)


def total_variation_distance(p: Sequence, q: Sequence) -> np.ndarray:
    """Half the summed absolute difference, per row: the largest difference in probability of any event.

    p, q: N distributions each, [N, C] or ragged. Returns [N] float64 in 0..1; 0 where equal, 1 where the supports are
    disjoint. Symmetric, and a metric. Undefined rows give NaN. Raises ValueError naming the row where rows differ in
    length or are no distributions.

    >>> total_variation_distance([[0.8, 0.2]], [[0.5, 0.5]]).round(12).tolist()
    [0.3]
    """
    return np.clip(_per_row(lambda p, q: np.abs(p - q) / 2, p, q), 0, 1)


def jensen_shannon_divergence(p: Sequence, q: Sequence) -> np.ndarray:
    """Mean Kullback-Leibler divergence from p and from q to their average, per row, in nats (Lin, 1991).

    p, q: N distributions each, [N, T] or ragged. Returns [N] float64 in 0..ln 2; 0 where equal, ln 2 = 0.693 where the
    supports are disjoint. Symmetric. 0 log 0 = 0, and nothing is added inside the logarithms. Undefined rows give NaN.
    Raises ValueError naming the row where rows differ in length or are no distributions.

    >>> jensen_shannon_divergence([[1.0, 0.0]], [[0.0, 1.0]]).round(4).tolist()
    [0.6931]
    """

    # rel_entr(2p, p+q) = 2p log(p / m) with m = (p+q)/2: halving p+q could underflow to zero where p is not zero
    def terms(p, q):
        return (rel_entr(2 * p, p + q) + rel_entr(2 * q, p + q)) / 4

    return np.clip(_per_row(terms, p, q), 0, np.log(2))


def kullback_leibler_divergence(p: Sequence, q: Sequence) -> np.ndarray:
    """Sum of p log(p / q) per row, in nats.

    p, q: N distributions each, [N, T] or ragged. Returns [N] float64 in 0..inf; 0 where equal, infinite where p has
    mass and q has none (the rule, not the exception, between sparse attentions: use `jensen_shannon_divergence`
    there). Not symmetric. 0 log 0 = 0. Undefined rows give NaN. Raises ValueError naming the row where rows differ in
    length or are no distributions.

    >>> kullback_leibler_divergence([[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]]).round(4).tolist()
    [0.6931, inf]
    """
    return np.maximum(_per_row(rel_entr, p, q), 0)


def decision_flips(p: Sequence, q: Sequence) -> np.ndarray:
    """Whether the most probable class differs between p and q, per row.

    p, q: N distributions over classes each, [N, C] or ragged. Returns [N] float64: 1 where the decision differs, 0
    where it stays, NaN for undefined rows (which is why it is no boolean). On equal probability the lower class is the
    decision. Raises ValueError naming the row where rows differ in length or are no distributions.

    >>> decision_flips([[0.8, 0.2], [0.8, 0.2], []], [[0.6, 0.4], [0.3, 0.7], []]).tolist()
    [0.0, 1.0, nan]
    """
    p, q, lengths = flatten_pair(p, q, ("p", "q"))
    decisions = [_argmax(_normalised(flat, lengths, name), lengths) for flat, name in ((p, "p"), (q, "q"))]
    return np.where(np.isnan(decisions).any(axis=0), np.nan, decisions[0] != decisions[1])


def _argmax(flat: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Index of the first largest value of each row, [N] float64; NaN for rows that are empty or hold a NaN."""
    places = np.full(len(lengths), np.nan)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = (np.cumsum(lengths) - lengths)[filled]
        largest = np.maximum.reduceat(flat, starts)
        owner = np.repeat(np.arange(len(filled)), lengths[filled])
        hits = np.flatnonzero(flat == largest[owner])
        rows, first = np.unique(owner[hits], return_index=True)
        places[filled[rows]] = hits[first] - starts[rows]
    return places


def flip_fraction(p: Sequence, q: Sequence) -> dict[str, float | int]:
    """Share of instances whose decision differs between p and q (see `decision_flips`).

    Returns flip_fraction in 0..1 (NaN where no instance is defined), n: instances it is a share of, n_undefined: the
    others.

    >>> flip_fraction([[0.8, 0.2], [0.8, 0.2], []], [[0.6, 0.4], [0.3, 0.7], []])
    {'flip_fraction': 0.5, 'n': 2, 'n_undefined': 1}
    """
    flips = decision_flips(p, q)
    defined = flips[~np.isnan(flips)]
    return {
        "flip_fraction": float(defined.mean()) if len(defined) else float("nan"),
        "n": len(defined),
        "n_undefined": len(flips) - len(defined),
    }
