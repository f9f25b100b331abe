"""How far two token scores rank the tokens of a text alike, over a whole record at once.

Shapes: N instances, T tokens of one instance. A column of scores holds N rows of length T; only their order counts. Rows of
different length raise InputError. Undefined, hence NaN and counted: fewer than two tokens, a constant row, a row that is
None or holds a NaN. A sparse attention has many tied (zero) weights, and then no importance without those ties reaches a
tau-b of 1: `tie_ceiling` is how far it can get.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import gammaln, ndtr, stdtrit

from .columns import paired


# up to this many tokens the exact null distribution of tau is used, as scipy.stats.kendalltau does
EXACT_LENGTH = 33
BLOCK_SIZE = 256  # rows that are padded together: enough to amortise the calls, of similar length


def kendall_tau(x: Sequence, y: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Return Kendall's tau-b and its two-sided p-value for every row: (tau [N] in -1..1, p_value [N] in 0..1), float64.

    tau-b = (P - Q) / sqrt((n0 - n1)(n0 - n2)): P concordant and Q discordant pairs of tokens, n0 = n(n - 1)/2 pairs in
    all, n1 and n2 pairs tied in x and in y (Kendall, 1945).

    Equal to `scipy.stats.kendalltau` row by row: the p-value is exact without ties where n <= 33 or at most one pair is
    discordant (or concordant), else from the normal approximation corrected for ties, not for testing many instances.
    """
    return tuple(_by_row(x, y)[:2])


def tie_ceiling(x: Sequence, y: Sequence) -> np.ndarray:
    """Return the largest |tau-b| that the ties of x and y allow, [N] in 0..1: sqrt(min(n0-n1, n0-n2) / max(n0-n1, n0-n2)).

    Proof. Let a = n0 - n1 and b = n0 - n2 be the pairs not tied in x and in y. A concordant or discordant pair is tied
    in neither, so |P - Q| <= P + Q <= min(a, b). Hence |tau-b| = |P - Q| / sqrt(ab) <= min(a, b) / sqrt(ab).
    """
    return _by_row(x, y)[2]


def _by_row(x: Sequence, y: Sequence) -> np.ndarray:
    """tau-b, its p-value and its ceiling, [3, N]: computed in blocks of rows of similar length, padded with inf."""
    pairs = paired({"x": x, "y": y})
    results = np.full((3, len(pairs)), np.nan)
    lengths = np.array([0 if pair is None else len(pair[0]) for pair in pairs], np.int64)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] >= 2]
    for begin in range(0, len(order), BLOCK_SIZE):
        rows = order[begin : begin + BLOCK_SIZE]
        block = np.full((2, len(rows), lengths[rows].max()), np.inf)
        for place, row in enumerate(rows):
            block[:, place, : lengths[row]] = pairs[row]
        results[:, rows] = _kendall_block(lengths[rows], *block)
    return results


def _kendall_block(n: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """tau-b, p-value and ceiling of the rows of one block; n [R], x and y [R, W] padded with inf."""
    from scipy.stats import rankdata  # importing scipy.stats takes longer than a measurement

    width = x.shape[1]
    padding, bits = np.arange(width) >= n[:, None], (width + 1).bit_length()
    x, y = (rankdata(values, "dense", axis=1).astype(np.int64) for values in (x, y))
    x[padding] = y[padding] = width + 1
    pairs = np.sort(x << bits | y, axis=1)  # by x, and within a tie of x by y
    x_ties, y_ties, (joint, *_) = (_tie_counts(np.sort(ranks, axis=1), padding) for ranks in (x, y, pairs))
    discordant = _inversions(pairs & ((1 << bits) - 1))

    total = n * (n - 1) / 2
    difference = total - x_ties[0] - y_ties[0] + joint - 2 * discordant  # P - Q
    defined = (x_ties[0] < total) & (y_ties[0] < total)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau = difference / np.sqrt(total - x_ties[0]) / np.sqrt(total - y_ties[0])
    tau = np.where(defined, np.clip(tau, -1, 1), np.nan)
    fewer, more = (pick(total - x_ties[0], total - y_ties[0]) for pick in (np.minimum, np.maximum))
    ceiling = np.where(defined, np.sqrt(fewer / np.maximum(more, 1)), np.nan)

    rarer = np.minimum(discordant, total - discordant).astype(np.int64)
    exact = (x_ties[0] == 0) & (y_ties[0] == 0) & ((n <= EXACT_LENGTH) | (rarer <= 1))
    # of P - Q: normal, with the variance that it has under independence given the ties (Kendall, 1970)
    (x_pairs, x0, x1), (y_pairs, y0, y1), m = x_ties, y_ties, n * (n - 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (m * (2 * n + 5) - x1 - y1) / 18 + 2 * x_pairs * y_pairs / m + x0 * y0 / (9 * m * (n - 2))
        p_value = np.where(defined, 2 * ndtr(-np.abs(difference / np.sqrt(variance))), np.nan)
    p_value[exact] = _exact_p_value(n[exact], rarer[exact])
    return tau, p_value, ceiling


def _tie_counts(ordered: np.ndarray, padding: np.ndarray) -> list[np.ndarray]:
    """Sums [R] over the runs of t equal values of each sorted row [R, W]: t(t-1)/2, t(t-1)(t-2), t(t-1)(2t+5)."""
    rows, width = ordered.shape
    starts = np.flatnonzero(np.diff(ordered, axis=1, prepend=-1).astype(bool) | padding)
    size = np.diff(starts, append=rows * width)
    owner, t = starts[size > 1] // width, size[size > 1].astype(np.float64)
    terms = (t * (t - 1) / 2, t * (t - 1) * (t - 2), t * (t - 1) * (2 * t + 5))
    return [np.bincount(owner, weights=term, minlength=rows) for term in terms]


def _inversions(ranks: np.ndarray) -> np.ndarray:
    """Pairs of each row [R, W] of which the earlier is larger, [R] int64: all rows at once, a distance at a time."""
    # the narrowest types: so many more values per instruction
    columns = ranks.T.astype(np.min_scalar_type(int(ranks.max())), order="C")
    width = len(columns)
    counts = np.zeros(columns.shape, np.min_scalar_type(width))  # inversions of each value with later ones
    larger = np.empty(columns.shape, dtype=bool)
    for distance in range(1, width):
        rest = width - distance
        np.greater(columns[:rest], columns[distance:], out=larger[:rest])
        np.add(counts[:rest], larger[:rest].view(np.uint8), out=counts[:rest])
    return counts.sum(axis=0, dtype=np.int64)


def _exact_p_value(n: np.ndarray, rarer: np.ndarray) -> np.ndarray:
    """Two-sided p-value of rows without ties, of which `rarer` pairs are discordant, or concordant (Kendall, chapter 5)."""
    p_value = 2 * np.exp(-gammaln(n + 1.0 - rarer))  # of n! permutations, one has no inversion and n - 1 have one
    for length in np.unique(n[n <= EXACT_LENGTH]):
        rows = n == length
        p_value[rows] = _inversion_tail(int(length))[rarer[rows]]
    return p_value


@cache
def _inversion_tail(n: int) -> np.ndarray:
    """Two-sided probability of at most c inversions in a random permutation of n values, at index c."""
    probability = np.ones(1)
    for length in range(2, n + 1):  # the value placed last has 0 ... length - 1 larger ones before it, equally likely
        probability = np.convolve(probability, np.full(length, 1 / length))
    return np.minimum(1, 2 * np.cumsum(probability))


def agreement_by_text(attention: Sequence, importance: Sequence, alpha: float = 0.05) -> dict[str, np.ndarray]:
    """Return the numbers that `agreement` averages, for each instance: name in the metric's results -> [N] float64."""
    tau, p_value, ceiling = _by_row(attention, importance)
    return {
        "kendall_tau": tau,
        "kendall_tau_significant": np.where(np.isnan(tau), np.nan, p_value <= alpha),
        "tie_ceiling": ceiling,
        "kendall_tau_over_ceiling": tau / ceiling,
    }


def agreement(by_text: dict[str, np.ndarray], predicted_class: Sequence | None = None) -> dict[str, dict[str, float | int]]:
    """Summarise `agreement_by_text` over instances and per predicted class, as Jain & Wallace (2019) split it.

    predicted_class: [N] whole numbers >= 0; NaN where there is no prediction (such an instance counts in "overall" only).

    Returns {"overall": ..., "0": ..., "1": ...}, one entry per class that was predicted: n, instances with a defined tau,
    over which everything else is taken, and n_undefined; tau_mean and tau_std, the population deviation; share_significant,
    with p <= alpha; ci_low and ci_high, Student's 95 % interval of tau_mean within -1..1, NaN below two instances;
    tie_ceiling and tau_over_ceiling, means of `tie_ceiling` and of tau over it. NaN where n is 0.
    """
    tau = by_text["kendall_tau"]
    groups, results = {"overall": np.ones(len(tau), dtype=bool)}, {}
    if predicted_class is not None:
        predicted = np.asarray(predicted_class, dtype=np.float64)
        groups |= {str(int(label)): predicted == label for label in np.unique(predicted[~np.isnan(predicted)])}
    for name, members in groups.items():
        defined = members & ~np.isnan(tau)
        n, values = int(defined.sum()), {key: numbers[defined] for key, numbers in by_text.items()}
        means = {key: float(np.mean(numbers)) if n else np.nan for key, numbers in values.items()}
        reach = stdtrit(n - 1, 0.975) * values["kendall_tau"].std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        results[name] = {
            "n": n,
            "n_undefined": int(members.sum()) - n,
            "tau_mean": means["kendall_tau"],
            "tau_std": float(values["kendall_tau"].std()) if n else np.nan,
            "share_significant": means["kendall_tau_significant"],
            "ci_low": float(np.maximum(means["kendall_tau"] - reach, -1)),
            "ci_high": float(np.minimum(means["kendall_tau"] + reach, 1)),
            "tie_ceiling": means["tie_ceiling"],
            "tau_over_ceiling": means["kendall_tau_over_ceiling"],
        }
    return results
