"""Intervals and tests: how far a number can be trusted, and whether a difference is more than chance."""

from collections.abc import Callable, Sequence

import numpy as np


EXACT_PAIRS = 13  # up to 2^13 patterns of signs are all tried
BLOCK = 1 << 22  # signs held at a time


def bootstrap_interval(
    values: np.ndarray, *, seed: int = 0, draws: int = 1000, statistic: Callable[[np.ndarray], float] = np.mean
) -> tuple[float, float]:
    """The 95 % percentile interval of the mean over instances, or of another statistic of them; values [N] without NaN. NaN
    below two values.
    """
    if len(values) < 2:
        return np.nan, np.nan
    generator = np.random.default_rng(seed)
    found = [statistic(values[generator.integers(0, len(values), len(values))]) for _ in range(draws)]
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return float(np.mean(values)) if len(values) else np.nan


def with_interval(name: str) -> tuple[str, str, str]:
    """The columns that `described` makes."""
    return name, f"{name}_ci_low", f"{name}_ci_high"


def described(name: str, values: np.ndarray, statistic: Callable[[np.ndarray], float] = np.mean) -> dict[str, float]:
    """A mean, share or median of values [N] without NaN, as columns of a table: name, name_ci_low and name_ci_high, its 95 %
    bootstrap interval. NaN of nothing.
    """
    values = np.asarray(values, np.float64)
    low, high = bootstrap_interval(values, statistic=statistic)
    number = float(statistic(values)) if len(values) else np.nan
    return dict(zip(with_interval(name), (number, low, high), strict=True))


def sign_flip_test(differences: Sequence[float], *, seed: int = 0, draws: int = 9999) -> float:
    """Two-sided p-value of a mean paired difference: how often signs dealt at random give a mean as far from 0.

    differences [N] of pairs, without NaN. Where the two members of a pair could be exchanged, either sign of a difference
    is as likely as the other. Up to 13 differences that are not 0 every pattern of signs is tried and p is exact: with n of
    them its smallest value is 2 / 2^n. Beyond, `draws` random patterns and the observed one are counted, so that p is at
    least 1 / (draws + 1) and the test keeps its level. 1 where all differences are 0, NaN without any.

    It asks about the mean, the number that tables show. A signed-rank test would ask about ranks, leave out pairs without a
    difference, and take the differences to be symmetric about their median.

    Source: Fisher (1935), The Design of Experiments, section 21; Phipson & Smyth (2010) for the count of draws.
    """
    differences = np.asarray(differences, dtype=np.float64)
    if not len(differences):
        return np.nan
    sizes = np.abs(differences[differences != 0])
    # sums that differ by rounding only are equal
    bound = abs(differences.sum()) - 1e-12 * sizes.sum()
    if len(sizes) <= EXACT_PAIRS:
        patterns = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ sizes) >= bound))
    generator = np.random.default_rng(seed)
    width = -(-len(sizes) // 8)
    found, left = 1, draws
    while left:
        count = min(left, max(1, BLOCK // len(sizes)))
        bits = np.unpackbits(generator.integers(0, 256, (count, width), dtype=np.uint8), axis=1, count=len(sizes))
        # a sum with signs is the total less twice the part whose sign is turned
        found += int(np.sum(np.abs(sizes.sum() - 2 * (bits @ sizes)) >= bound))
        left -= count
    return found / (draws + 1)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Adjusted p-values [N] of a family of tests: rejecting where one is <= alpha errs at all with probability <= alpha.

    In order of size, the smallest of m is multiplied by m, the next by m - 1, and so on; none is below the one before it,
    none above 1. NaN stays NaN and is not counted in m. Raises ValueError for a value outside 0..1.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(p_values))
    if (bad := (p_values[known] < 0) | (p_values[known] > 1)).any():
        raise ValueError(f"a p-value lies in 0..1; given {p_values[known][bad][0]:g}")
    order = known[np.argsort(p_values[known], kind="stable")]
    adjusted = np.full(len(p_values), np.nan)
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * steps), 1)
    return adjusted
