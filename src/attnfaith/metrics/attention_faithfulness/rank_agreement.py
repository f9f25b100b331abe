"""How far two token scores rank the tokens of a text alike, over a whole record at once.

Shapes: N instances, T tokens of one instance. A column of scores is a sequence of N one-dimensional rows of lengths T,
different from row to row. Any real scores; only their order counts.

Ties. Kendall's tau-b is used: tied pairs leave the numerator and shrink the denominator. A sparse attention has many
tied (zero) weights, and then no importance without those ties can reach 1: `tie_ceiling` says how far it can get.

Undefined, hence NaN and counted: fewer than two tokens, a constant row, a row that is None or holds a NaN.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from numbers import Real

import numpy as np
from scipy.special import digamma, gammaln, ndtr

from .columns import InputError, short
from .divergences import flatten, flatten_pair


# up to this many tokens the exact null distribution of tau is used, as scipy.stats.kendalltau does
EXACT_LENGTH = 33
# numbers per block of padded rows: enough to amortise the calls, few enough for the processor's cache
BLOCK_SIZE = 1 << 17
# rows up to this length are compared pair by pair; longer ones are halved and merged. At most 256: counts are bytes
PAIRWISE_LENGTH = 256


def kendall_tau(x: Sequence, y: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Kendall's tau-b and its two-sided p-value, for every row of a record.

    tau-b = (P - Q) / sqrt((n0 - n1)(n0 - n2)): P concordant and Q discordant pairs of tokens, n0 = n(n - 1)/2 pairs in
    all, n1 and n2 pairs tied in x and in y (Kendall, 1945).

    x, y: N rows of scores; the two rows of a pair have the same length. Returns (tau [N] in -1..1, p_value [N] in
    0..1), float64. Both are NaN for undefined rows (see the module). Equal to `scipy.stats.kendalltau` with its
    defaults row by row: the p-value is exact without ties where n <= 33 or at most one pair is discordant (or
    concordant), otherwise from the normal approximation with the variance corrected for ties. No correction for
    testing many instances.

    Time n log^2 n and memory n per row, in blocks of rows of similar length.

    Raises ValueError naming the row where the rows of a pair differ in length.

    >>> tau, p_value = kendall_tau([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5]], [[1, 3, 2, 4], [1, 2]])
    >>> tau.round(4).tolist(), p_value.round(4).tolist()
    ([0.6667, nan], [0.3333, nan])
    """
    x, y, lengths = flatten_pair(x, y, ("x", "y"))
    tau = np.full(len(lengths), np.nan)
    p_value = np.full(len(lengths), np.nan)
    for rows, n, blocks in _blocks((x, y), lengths):
        tau[rows], p_value[rows] = _kendall_block(n, *blocks)
    return tau, p_value


def _blocks(columns: Sequence[np.ndarray], lengths: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, list]]:
    """Rows without NaN and with at least two values, in blocks of similar length.

    Yields (rows [R], their lengths [R], one array [R, W] per column, padded with NaN at the end).
    """
    ends = np.cumsum(lengths)
    starts = ends - lengths
    usable = lengths >= 2
    for column in columns:
        usable[np.searchsorted(ends, np.flatnonzero(np.isnan(column)), side="right")] = False
    order = np.flatnonzero(usable)
    order = order[np.argsort(lengths[order], kind="stable")]
    ordered = lengths[order]
    begin = 0
    while begin < len(order):
        # little padding: no row of a block is much longer than its shortest
        similar = np.searchsorted(ordered, ordered[begin] * 5 // 4 + 4, side="right")
        end = min(similar, begin + max(1, BLOCK_SIZE // ordered[similar - 1]))
        rows, n = order[begin:end], ordered[begin:end]
        begin = end
        within = np.arange(n.max())
        filled = within < n[:, None]
        source = np.where(filled, starts[rows][:, None] + within, 0)
        yield rows, n, [np.where(filled, column[source], np.nan) for column in columns]


def _kendall_block(n: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tau-b and p-value of the rows of one block; n [R], x and y [R, W] padded with NaN."""
    width = x.shape[1]
    padding = np.arange(width) >= n[:, None]
    x_order, x_sorted, x_ties = _ranks(x, padding)
    y_order, y_sorted, y_ties = _ranks(y, padding)
    y_ranks = np.empty_like(y_sorted)
    np.put_along_axis(y_ranks, y_order, y_sorted, axis=1)
    ranks = np.take_along_axis(y_ranks, x_order, axis=1)  # of y, in the order of x
    joint = np.zeros(len(n))
    if x_ties[0].any():
        bits = width.bit_length()
        keys = x_sorted.astype(np.int64) << bits | ranks  # within a tie of x, in the order of y
        keys.sort(axis=1)
        joint = _tie_counts((keys[:, 1:] != keys[:, :-1]) | padding[:, 1:])[0]
        ranks = (keys & ((1 << bits) - 1)).astype(np.int32)
    discordant = _inversions(ranks)

    total = n * (n - 1) / 2
    difference = total - x_ties[0] - y_ties[0] + joint - 2 * discordant  # P - Q
    defined = (x_ties[0] < total) & (y_ties[0] < total)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau = difference / np.sqrt(total - x_ties[0]) / np.sqrt(total - y_ties[0])
    tau = np.where(defined, np.clip(tau, -1, 1), np.nan)

    rarer = np.minimum(discordant, total - discordant).astype(np.int64)
    exact = (x_ties[0] == 0) & (y_ties[0] == 0) & ((n <= EXACT_LENGTH) | (rarer <= 1))
    p_value = np.full(len(n), np.nan)
    p_value[exact] = _exact_p_value(n[exact], rarer[exact])
    normal = defined & ~exact
    p_value[normal] = _normal_p_value(n[normal], difference[normal], *(counts[normal] for counts in (*x_ties, *y_ties)))
    return tau, p_value


def _ranks(block: np.ndarray, padding: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple]:
    """How to sort each row of a block [R, W], the dense ranks in that order, and the row's `_tie_counts`.

    NaN sorts last and differs from itself, so padding makes no ties; all padding gets the one rank W, above the
    others.
    """
    order = np.argsort(block, axis=1)
    values = np.take_along_axis(block, order, axis=1)
    new = values[:, 1:] != values[:, :-1]
    ranks = np.zeros(block.shape, dtype=np.int32)
    np.cumsum(new, axis=1, out=ranks[:, 1:])
    ranks[padding] = block.shape[1]
    return order, ranks, _tie_counts(new)


def _tie_counts(new: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums over the runs of t equal values of each sorted row: t(t-1)/2, t(t-1)(t-2), t(t-1)(2t+5); each [R] float64.

    new [R, W-1]: whether a value differs from the one before it.
    """
    rows, width = len(new), new.shape[1] + 1
    if new.all():
        return (np.zeros(rows),) * 3
    starts = np.flatnonzero(np.concatenate([np.ones((rows, 1), dtype=bool), new], axis=1))
    size = np.diff(starts, append=rows * width)
    owner, t = starts[size > 1] // width, size[size > 1].astype(np.float64)
    terms = (t * (t - 1) / 2, t * (t - 1) * (t - 2), t * (t - 1) * (2 * t + 5))
    return tuple(np.bincount(owner, weights=term, minlength=rows) for term in terms)


def _inversions(ranks: np.ndarray) -> np.ndarray:
    """Pairs of each row [R, W] int32 of which the earlier is larger, [R] int64."""
    width = ranks.shape[1]
    parts = 1
    while -(-width // parts) > PAIRWISE_LENGTH:
        parts *= 2
    if missing := -width % parts:
        ranks = np.pad(ranks, ((0, 0), (0, missing)), constant_values=width)  # a largest value at the end: no inversion
    return _merged_inversions(ranks, parts)


def _merged_inversions(ranks: np.ndarray, parts: int) -> np.ndarray:
    """Inversions of each row, which is cut into `parts` (a power of 2) equal parts that are compared pair by pair."""
    rows, width = ranks.shape
    if parts == 1:
        return _pairwise_inversions(ranks)
    half = width // 2
    within = _merged_inversions(ranks.reshape(2 * rows, half), parts // 2).reshape(rows, 2).sum(axis=1)
    # Sorted together, left before right on ties, a right value stands behind the left ones it does not invert with:
    # their number is its position less the right values before it.
    keys = 2 * ranks
    keys[:, half:] += 1
    keys.sort(axis=1)
    positions = (keys & 1) @ np.arange(width)
    return within + half * half - (positions - half * (half - 1) // 2)


def _pairwise_inversions(ranks: np.ndarray) -> np.ndarray:
    """Inversions of each row [R, W], W <= 256, by comparing all rows at each distance between two places."""
    # the narrowest type: so many more values per instruction
    columns = ranks.T.astype(np.min_scalar_type(int(ranks.max())), order="C")
    width = len(columns)
    counts = np.zeros(columns.shape, dtype=np.uint8)  # inversions of each value with later ones: at most W - 1
    larger = np.empty(columns.shape, dtype=bool)
    for distance in range(1, width):
        rest = width - distance
        np.greater(columns[:rest], columns[distance:], out=larger[:rest])
        np.add(counts[:rest], larger[:rest].view(np.uint8), out=counts[:rest])
    return counts.sum(axis=0, dtype=np.int64)


def _exact_p_value(n: np.ndarray, rarer: np.ndarray) -> np.ndarray:
    """Two-sided p-value of rows without ties from the number of inversions of a random permutation.

    rarer: the smaller of the numbers of discordant and concordant pairs. Kendall, Rank Correlation Methods, chapter 5.
    """
    p_value = np.empty(len(n))
    for length in np.unique(n[n <= EXACT_LENGTH]):
        rows = n == length
        p_value[rows] = _inversion_tail(int(length))[rarer[rows]]
    # of n! permutations, one has no inversion and n - 1 have one
    long = n > EXACT_LENGTH
    p_value[long] = 2 * np.exp(-gammaln(n[long] + 1.0 - rarer[long]))
    return p_value


@cache
def _inversion_tail(n: int) -> np.ndarray:
    """Two-sided probability of at most c inversions in a random permutation of n values, at index c."""
    probability = np.ones(1)
    for length in range(2, n + 1):  # the value placed last has 0 ... length - 1 larger ones before it, equally likely
        probability = np.convolve(probability, np.full(length, 1 / length))
    return np.minimum(1, 2 * np.cumsum(probability))


def _normal_p_value(n, difference, x_pairs, x0, x1, y_pairs, y0, y1) -> np.ndarray:
    """Two-sided p-value of P - Q, normal with the variance it has under independence given the ties (Kendall, 1970)."""
    m = n * (n - 1.0)
    variance = (m * (2 * n + 5) - x1 - y1) / 18 + 2 * x_pairs * y_pairs / m + x0 * y0 / (9 * m * (n - 2))
    return 2 * ndtr(-np.abs(difference / np.sqrt(variance)))


def tie_ceiling(x: Sequence, y: Sequence | None = None) -> np.ndarray:
    """The largest |tau-b| that the ties of x and y allow, per row: sqrt(min(n0-n1, n0-n2) / max(n0-n1, n0-n2)).

    Proof. Let a = n0 - n1 and b = n0 - n2 be the pairs not tied in x and in y. A concordant or discordant pair is tied
    in neither, so |P - Q| <= P + Q <= min(a, b). Hence |tau-b| = |P - Q| / sqrt(ab) <= min(a, b) / sqrt(ab), which is
    sqrt(min(a, b) / max(a, b)).

    x, y: as in `kendall_tau`; y=None stands for scores without ties (n2 = 0). Returns [N] in 0..1, NaN where tau is
    undefined. An attention with s distinct weights above zero, out of n, against scores without ties:
    sqrt(1 - (n-s)(n-s-1) / (n(n-1))). Raises ValueError naming the row where the rows of a pair differ in length.

    >>> sparse = [0.2, 0.3, 0.5] + 17 * [0.0]
    >>> tie_ceiling([sparse]).round(3).tolist()
    [0.533]
    """
    if y is None:
        x, lengths = flatten(x, "x")
        columns = (x,)
    else:
        *columns, lengths = flatten_pair(x, y, ("x", "y"))
    ceiling = np.full(len(lengths), np.nan)
    for rows, n, blocks in _blocks(columns, lengths):
        total = n * (n - 1) / 2
        ordered = [np.sort(block, axis=1) for block in blocks]
        untied = [total - _tie_counts(values[:, 1:] != values[:, :-1])[0] for values in ordered]
        a, b = untied if len(untied) == 2 else (*untied, total)
        fewer, more = np.minimum(a, b), np.maximum(a, b)
        ceiling[rows] = np.where(fewer > 0, np.sqrt(fewer / np.maximum(more, 1)), np.nan)
    return ceiling


def agreement(
    attention: Sequence,
    importance: Sequence,
    predicted_class: Sequence | None = None,
    alpha: float = 0.05,
    n_bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, float | int]]:
    """Kendall's tau-b between attention and importance, summarised over instances and per predicted class.

    attention, importance: N rows of token scores, as in `kendall_tau`. predicted_class: [N] whole numbers >= 0; NaN
    where there is no prediction (such an instance counts in "overall" only). alpha: level of significance, in 0..1.
    n_bootstrap: resamples for the confidence interval, at least 1. seed: fixes them.

    Returns {"overall": ..., "0": ..., "1": ...}, one entry per class that was predicted, each with

    * n: instances with a defined tau, over which everything below is taken; n_undefined: the others
    * tau_mean, tau_std: mean and population standard deviation, in -1..1
    * share_significant: share with p <= alpha, in 0..1; not corrected for testing n instances
    * ci_low, ci_high: 95 % percentile interval of tau_mean over resampled instances; NaN below two instances
    * tie_ceiling: mean of `tie_ceiling`, in 0..1
    * tau_over_ceiling: mean of tau / ceiling of the same instance, in -1..1

    as plain floats and integers, NaN where n is 0. The split by predicted (not gold) class and the population
    deviation are those of Jain & Wallace (2019); they let one undefined instance make the mean undefined and counted
    it as not significant.

    Raises ValueError naming the row where rows differ in length, and for arguments out of range.

    >>> summary = agreement([[0.1, 0.2, 0.7], [0.5, 0.5], [0.1, 0.3, 0.6]], [[1, 2, 3], [1, 2], [1, 3, 2]], [0, 0, 1])
    >>> {name: round(values["tau_mean"], 3) for name, values in summary.items()}
    {'overall': 0.667, '0': 1.0, '1': 0.333}
    >>> summary["0"]["n"], summary["0"]["n_undefined"]
    (1, 1)
    """
    check_settings(alpha, n_bootstrap, seed)
    return summaries(agreement_by_text(attention, importance, alpha), predicted_class, n_bootstrap, seed)


def agreement_by_text(attention: Sequence, importance: Sequence, alpha: float = 0.05) -> dict[str, np.ndarray]:
    """What `agreement` averages, for each instance: name in the metric's results -> [N] float64, NaN where undefined.

    kendall_tau, kendall_tau_significant (1 where p <= alpha, else 0), tie_ceiling, kendall_tau_over_ceiling. Arguments as
    of `agreement`; raises ValueError naming the row where rows differ in length.

    >>> agreement_by_text([[0.1, 0.2, 0.7], [0.5, 0.5]], [[1, 2, 3], [1, 2]])["kendall_tau"].tolist()
    [1.0, nan]
    """
    tau, p_value = kendall_tau(attention, importance)
    ceiling = tie_ceiling(attention, importance)
    return {
        "kendall_tau": tau,
        "kendall_tau_significant": np.where(np.isnan(tau), np.nan, p_value <= alpha),
        "tie_ceiling": ceiling,
        "kendall_tau_over_ceiling": tau / ceiling,
    }


def summaries(
    by_text: dict[str, np.ndarray], predicted_class: Sequence | None = None, n_bootstrap: int = 1000, seed: int = 0
) -> dict[str, dict[str, float | int]]:
    """What `agreement` returns, of what `agreement_by_text` gives; arguments and errors as there."""
    tau = by_text["kendall_tau"]
    groups = {"overall": np.ones(len(tau), dtype=bool)}
    if predicted_class is not None:
        predicted = _classes(predicted_class, len(tau))
        groups |= {str(int(c)): predicted == c for c in np.unique(predicted[~np.isnan(predicted)])}
    results = {}
    for name, members in groups.items():
        defined = members & ~np.isnan(tau)
        low, high = _bootstrap_interval(tau[defined], n_bootstrap, seed)
        results[name] = {
            "n": int(defined.sum()),
            "n_undefined": int(members.sum() - defined.sum()),
            "tau_mean": _mean(tau[defined]),
            "tau_std": float(tau[defined].std()) if defined.any() else float("nan"),
            "share_significant": _mean(by_text["kendall_tau_significant"][defined]),
            "ci_low": low,
            "ci_high": high,
            "tie_ceiling": _mean(by_text["tie_ceiling"][defined]),
            "tau_over_ceiling": _mean(by_text["kendall_tau_over_ceiling"][defined]),
        }
    return results


def check_settings(alpha: float, n_bootstrap: int, seed: int) -> None:
    """Raise ValueError where an argument of `agreement` is out of range."""
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 <= alpha <= 1:
        raise InputError(f"alpha is {short(alpha)}; a level of significance lies in 0..1")
    if isinstance(n_bootstrap, bool) or not isinstance(n_bootstrap, int | np.integer) or not 1 <= n_bootstrap <= 1_000_000:
        raise InputError(f"n_bootstrap is {short(n_bootstrap)}; give a whole number of resamples, from 1 to a million")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(f"seed is {short(seed)}; give a whole number, 0 or more, below 2^64")


def _classes(predicted_class: Sequence, n: int) -> np.ndarray:
    predicted = np.asarray(predicted_class, dtype=np.float64)
    if predicted.shape != (n,):
        raise InputError(f"predicted_class has shape {predicted.shape} for {n} instances; give one class each")
    known = predicted[~np.isnan(predicted)]
    if len(bad := known[(known < 0) | (known != np.floor(known))]):
        raise InputError(f"predicted_class holds {bad[0]:g}; a class is a whole number from 0, NaN where unknown")
    return predicted


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _bootstrap_interval(values: np.ndarray, n_bootstrap: int, seed: int) -> tuple[float, float]:
    """95 % percentile interval of the mean of `values` [n] over resamples of its items; NaN below two items."""
    if len(values) < 2:
        return float("nan"), float("nan")
    generator = np.random.default_rng(seed)
    at_once = max(1, (1 << 20) // len(values))  # bounds the memory of the draws
    means = [
        values[generator.integers(0, len(values), size=(min(at_once, n_bootstrap - done), len(values)))].mean(axis=1)
        for done in range(0, n_bootstrap, at_once)
    ]
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return float(low), float(high)


def auprc(score_rows: Sequence, gold_rows: Sequence) -> np.ndarray:
    """Average precision of token scores against marked tokens, per row: the sum over thresholds of precision x recall
    gain.

    Tokens of equal score pass the threshold together. Equal to `sklearn.metrics.average_precision_score`, except that
    a row without marked tokens is undefined.

    score_rows: N rows of token scores (attention or importance). gold_rows: N rows of 0 and 1, 1 where people marked
    the token as evidence. Returns [N] in 0..1, 1 is best, NaN for rows that are empty, have no marked token, are None
    or hold a NaN score. To read it, compare `auprc_constant` and `auprc_random`.

    Raises ValueError naming the row where rows differ in length or gold is neither 0 nor 1.

    >>> auprc([[0.1, 0.7, 0.2]], [[1, 1, 0]]).round(4).tolist()
    [0.8333]
    """
    scores, gold, lengths = flatten_pair(score_rows, gold_rows, ("score_rows", "gold_rows"))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    positives = _positives(gold, lengths, owner)
    order = np.lexsort((-scores, owner))
    scores, owner, gold = scores[order], owner[order], np.nan_to_num(gold[order])  # a NaN would run into later rows
    starts = (np.cumsum(lengths) - lengths)[owner]
    before = np.concatenate([[0.0], np.cumsum(gold)])
    hits = before[1:] - before[starts]  # marked tokens among those of at least this rank
    last = np.ones(len(scores), dtype=bool)
    last[:-1] = (scores[1:] != scores[:-1]) | (owner[1:] != owner[:-1])
    precision = hits[last] / (np.flatnonzero(last) - starts[last] + 1)
    first = np.ones(last.sum(), dtype=bool)
    first[1:] = owner[last][1:] != owner[last][:-1]
    gain = np.where(first, hits[last], np.diff(hits[last], prepend=0.0))
    total = np.bincount(owner[last], weights=precision * gain, minlength=len(lengths))
    undefined = np.bincount(owner, weights=np.isnan(scores), minlength=len(lengths)) > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((positives > 0) & ~undefined, total / positives, np.nan)


def auprc_constant(gold_rows: Sequence) -> np.ndarray:
    """`auprc` of scores that are all equal (uniform attention): the share of marked tokens. [N], NaN as `auprc`.

    >>> auprc_constant([[1, 1, 0, 0]]).tolist()
    [0.5]
    """
    positives, lengths = _marked(gold_rows)
    with np.errstate(invalid="ignore"):
        return np.where(positives > 0, positives / lengths, np.nan)


def auprc_random(gold_rows: Sequence) -> np.ndarray:
    """Mean of `auprc` over all orders of the tokens: what untied scores without any relation reach. [N], NaN as
    `auprc`.

    With P of n tokens marked, the marked token at rank k has on average 1 + (k-1)(P-1)/(n-1) marked ones up to it; the
    mean of that over k, with H = 1 + 1/2 + ... + 1/n, gives q + (1 - q) H/n with q = (P-1)/(n-1). More than
    `auprc_constant`, and markedly so for short texts.

    >>> auprc_random([[1, 1, 0, 0]]).round(4).tolist()
    [0.6806]
    """
    positives, lengths = _marked(gold_rows)
    n = np.maximum(lengths, 1)
    mean_reciprocal = (digamma(n + 1.0) + np.euler_gamma) / n
    others = (positives - 1) / np.maximum(n - 1, 1)
    return np.where(positives > 0, others + (1 - others) * mean_reciprocal, np.nan)


def _marked(gold_rows: Sequence) -> tuple[np.ndarray, np.ndarray]:
    gold, lengths = flatten(gold_rows, "gold_rows")
    return _positives(gold, lengths, np.repeat(np.arange(len(lengths)), lengths)), lengths


def _positives(gold: np.ndarray, lengths: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Marked tokens of each row, [N]; NaN for a row of unknown (NaN) gold."""
    if len(places := np.flatnonzero(~np.isnan(gold) & (gold != 0) & (gold != 1))):
        place = places[0]
        raise InputError(f"row {owner[place]}: gold_rows holds {gold[place]:g}; a token is marked (1) or not (0)")
    return np.bincount(owner, weights=gold, minlength=len(lengths))
