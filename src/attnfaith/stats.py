"""Intervals and tests: how far a number can be trusted, and whether a difference is more than chance."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit


EXACT_PAIRS = 13  # up to 2^13 patterns of signs are all tried
BLOCK = 1 << 22  # signs or counts at a time
PROCESSOR_CACHE = 1 << 15  # counts that are made at a time
MOST_CACHED = 1 << 26  # counts, of a byte each, that are kept for the next column
COEFFICIENTS = ("kendall", "spearman", "pearson")
DRAWS = 1000
FEWEST = 0.1
"""Least share of a level's texts that have a value where the level counts in a slope or correlation: where sparse attention
has not begun to leave tokens out, a handful of texts has a support to speak of, and not the usual ones.
"""


def bootstrap_interval(
    values: np.ndarray, *, seed: int = 0, draws: int = 1000, statistic: Callable[..., np.ndarray] = np.mean
) -> tuple[float, float]:
    """The 95 % percentile interval of a statistic of values [N] without NaN over resamples; NaN below two values.

    statistic: takes an axis, as numpy's do.
    """
    if len(values) < 2:
        return np.nan, np.nan
    if statistic is np.mean:
        low, high = bootstrap_intervals(np.reshape(values, (-1, 1)), seed=seed, draws=draws)[0]
        return float(low), float(high)
    if statistic is np.median:
        statistics = [_medians(np.asarray(values), part) for part in _resample_counts(len(values), draws, seed)]
    else:
        statistics = [statistic(values[part], axis=1) for part in _resamples(len(values), draws, seed)]
    low, high = np.quantile(np.concatenate(statistics), (0.025, 0.975))
    return float(low), float(high)


def _medians(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The median of each resample [D] of values [N]; counts [D, N]: how often each value is in it, N in all."""
    order = values.argsort()
    middle = [(len(values) - 1) // 2, len(values) // 2]
    places = np.array([row[order].cumsum().searchsorted(middle, side="right") for row in counts])
    return values[order][places].mean(axis=1)


def bootstrap_intervals(columns: np.ndarray, *, seed: int = 0, draws: int = 1000) -> np.ndarray:
    """The 95 % percentile intervals [S, 2] of the means of several columns [N, S] of numbers per instance, NaN undefined.

    All columns are resampled together, so that S of them cost hardly more than one; undefined numbers are drawn with their
    instance and left out of the mean. NaN below two defined numbers. Where all are defined, equal to `bootstrap_interval`.
    """
    columns = np.asarray(columns, dtype=np.float64)
    defined = ~np.isnan(columns)
    enough = defined.sum(axis=0) >= 2
    intervals = np.full((columns.shape[1], 2), np.nan)
    if enough.any():
        values = np.where(defined, columns, 0)[:, enough]
        intervals[enough] = ratio_intervals(values, defined[:, enough], seed=seed, draws=draws)
    return intervals


def ratio_intervals(above: np.ndarray, below: np.ndarray, *, seed: int = 0, draws: int = 1000) -> np.ndarray:
    """The 95 % percentile intervals [S, 2] of quotients of two sums over N instances, of `above` and `below`, both [N, S]
    without NaN.

    A resample whose sum below is 0 has no quotient and is left out. NaN below two instances, and without a quotient.
    """
    intervals = np.full((above.shape[1], 2), np.nan)
    if len(above) < 2:
        return intervals
    both = np.concatenate([above, below], axis=1, dtype=np.float64)
    sums = np.concatenate([part @ both for part in _resample_counts(len(above), draws, seed)])
    quotients = ratio(*np.split(sums, 2, axis=1))
    defined = ~np.isnan(quotients).all(axis=0)
    if defined.any():
        intervals[defined] = np.nanquantile(quotients[:, defined], (0.025, 0.975), axis=0).T
    return intervals


def _resample_counts(count: int, draws: int, seed: int) -> Iterable[np.ndarray]:
    """How often each of `count` items is in each resample, [draws, count] float64, in parts of at most BLOCK numbers.

    Counts are cached where they are small enough: the columns of a cell, and the cells of one data set, have equally many
    texts.
    """
    if count * draws <= BLOCK:
        return _cached_floats(count, draws, seed)
    small = count * draws <= MOST_CACHED
    parts = _cached_counts(count, draws, seed) if small else _count_parts(count, draws, seed)
    return (part.astype(np.float64) for part in parts)


@lru_cache(maxsize=4)
def _cached_floats(count: int, draws: int, seed: int) -> tuple[np.ndarray, ...]:
    return tuple(part.astype(np.float64) for part in _count_parts(count, draws, seed))


@lru_cache(maxsize=3)  # of all texts of a cell, and of those of two classes
def _cached_counts(count: int, draws: int, seed: int) -> tuple[np.ndarray, ...]:
    return tuple(_count_parts(count, draws, seed))


def _count_parts(count: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """`_resample_counts` without a cache, in the narrowest type that holds the numbers."""
    return map(_count_members, _resamples(count, draws, seed))


def _resamples(count: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """The items of each resample of `count` items with replacement, [draws, count], in parts of at most BLOCK numbers."""
    generator = np.random.default_rng(seed)
    at_once = max(1, BLOCK // count)
    for start in range(0, draws, at_once):
        yield generator.integers(0, count, (min(at_once, draws - start), count))


def _count_members(resamples: np.ndarray) -> np.ndarray:
    """How often each of N items is in each resample [draws, N] of item numbers, [draws, N] in the narrowest type.

    The resamples are used up.
    """
    draws, count = resamples.shape
    at_once = max(1, PROCESSOR_CACHE // count)
    parts = []
    for start in range(0, draws, at_once):
        part = resamples[start : start + at_once]
        part += count * np.arange(len(part))[:, None]
        counts = np.bincount(part.ravel(), minlength=part.size).reshape(part.shape)
        parts.append(counts.astype(np.min_scalar_type(counts.max())))
    return np.concatenate(parts)


def correlations(
    x: Sequence[float],
    y: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> dict[str, float | int]:
    """Kendall's tau-b, Spearman's rho and Pearson's r of paired numbers, such as a statistic of many cells and their lambda.

    x, y [N]: one pair a point; points of which either is not finite are left out. Returns

    * n: points used; n_undefined: the others
    * kendall, spearman, pearson: each in -1..1, ties in rho at their mean rank; and <name>_ci_low, <name>_ci_high, the
      95 % percentile interval over `draws` resamples of the points
    * n_draws_undefined: resamples without coefficients, as all their x or all their y are one value; they are left out

    groups [N]: what the points of one group share (a training seed, a lambda); then whole groups are resampled, which is
    what counts where the points of a group are not independent. NaN: everything below three points or where x or y is
    constant; the interval below two groups. Memory n^2: made for hundreds of points.

    Raises ValueError where x, y and groups differ in length.

    >>> row = correlations([1, 2, 3, 4, 5], [1, 4, 9, 25, 16])
    >>> [round(row[name], 3) for name in ("kendall", "spearman", "pearson")], row["n"]
    ([0.8, 0.9, 0.834], 5)
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if not (x.ndim == y.ndim == 1 and len(x) == len(y) and (groups is None or len(groups) == len(x))):
        shapes = f"x has shape {x.shape} and y {y.shape}" + ("" if groups is None else f", groups {len(groups)} values")
        raise ValueError(f"{shapes}: give one of each per point")
    used = np.isfinite(x) & np.isfinite(y)
    n = int(used.sum())
    row = {"n": n, "n_undefined": len(x) - n}
    empty = dict.fromkeys((name for coefficient in COEFFICIENTS for name in with_interval(coefficient)), np.nan)
    x, y = x[used], y[used]
    if n < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return row | empty | {"n_draws_undefined": 0}
    numbers: dict[Hashable, int] = {}
    labels = np.arange(len(used)) if groups is None else groups
    group = np.array([numbers.setdefault(labels[place], len(numbers)) for place in np.flatnonzero(used)])
    whole = _coefficients(x, y, np.ones((1, n)))[:, 0]
    if len(numbers) < 2:
        return row | empty | dict(zip(COEFFICIENTS, whole.tolist(), strict=True)) | {"n_draws_undefined": 0}
    resamples = np.random.default_rng(seed).integers(0, len(numbers), (draws, len(numbers)))
    counts = _count_members(resamples)[:, group].astype(np.float64)
    resampled = _coefficients(x, y, counts)
    defined = ~np.isnan(resampled[0])
    bounds = np.full((2, len(COEFFICIENTS)), np.nan)
    if defined.any():
        bounds = np.quantile(resampled[:, defined], (0.025, 0.975), axis=1)
    for name, value, low, high in zip(COEFFICIENTS, whole, *bounds, strict=True):
        row |= dict(zip(with_interval(name), (float(value), float(low), float(high)), strict=True))
    return row | {"n_draws_undefined": draws - int(defined.sum())}


def _coefficients(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The three COEFFICIENTS [3, D] of points x, y [N] for each of D ways to count each of them several times, [D, N].

    A point and its copies are tied in both, so that pairs of different points are all that Kendall's coefficient sees.
    """

    def pairs(kind: np.ndarray) -> np.ndarray:
        return np.einsum("dn,dn->d", counts @ kind, counts)

    x_signs, y_signs = (np.sign(np.subtract.outer(values, values)) for values in (x, y))
    untied = [pairs(np.abs(signs)) for signs in (x_signs, y_signs)]
    ranks = [counts @ (signs < 0) + counts @ (signs == 0) / 2 for signs in (x_signs, y_signs)]
    with np.errstate(invalid="ignore", divide="ignore"):
        coefficients = np.stack(
            [
                pairs(x_signs * y_signs) / np.sqrt(untied[0]) / np.sqrt(untied[1]),
                _pearson(*ranks, counts),
                _pearson(*(np.broadcast_to(values - values.mean(), counts.shape) for values in (x, y)), counts),
            ]
        )
    return np.where((untied[0] > 0) & (untied[1] > 0), np.clip(coefficients, -1, 1), np.nan)


def _pearson(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Pearson's coefficient [D] of x, y [D, N], each point counted as often as counts [D, N] says."""
    total = counts.sum(axis=1, keepdims=True)
    x, y = (values - (counts * values).sum(axis=1, keepdims=True) / total for values in (x, y))
    covariance, x_variance, y_variance = ((counts * product).sum(axis=1) for product in (x * y, x * x, y * y))
    return covariance / np.sqrt(x_variance) / np.sqrt(y_variance)


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return float(np.mean(values)) if len(values) else np.nan


def with_interval(name: str) -> tuple[str, str, str]:
    """The columns that `estimate` makes."""
    return name, f"{name}_ci_low", f"{name}_ci_high"


def estimate(name: str, values: np.ndarray, statistic: Callable[[np.ndarray], float] = np.mean) -> dict[str, float]:
    """A mean, share or median of values [N] without NaN, as columns of a table: name, name_ci_low and name_ci_high, its 95 %
    interval over texts by `interval_of`. NaN of nothing.
    """
    values = np.asarray(values, np.float64)
    low, high = interval_of(values, statistic)
    number = float(statistic(values)) if len(values) else np.nan
    return dict(zip(with_interval(name), (number, low, high), strict=True))


def interval_of(values: np.ndarray, statistic: Callable[..., np.ndarray] = np.mean) -> tuple[float, float]:
    """The 95 % interval of a statistic of values [N] without NaN, which never leaves their range; NaN below two values.

    A share, the mean of zeros and ones, has Wilson's interval; another mean the BCa bootstrap's; another statistic the
    percentile bootstrap's.

    Source: Wilson (1927); Efron (1987), section 3 for BCa, whose acceleration of a mean is a sixth of its skewness.
    """
    if len(values) < 2 or statistic is not np.mean:
        return bootstrap_interval(values, statistic=statistic)
    return wilson_interval(int(values.sum()), len(values)) if np.isin(values, (0, 1)).all() else _bca_interval(values)


def wilson_interval(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share, count of n; n at least 1."""
    from scipy.stats import binomtest  # it takes as long to import as all of numpy

    bounds = binomtest(count, n).proportion_ci(0.95, method="wilson")
    return float(bounds.low), float(bounds.high)


def _bca_interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % BCa interval of the mean of values [N], N at least 2."""
    mean, spread = values.mean(), values - values.mean()
    squares = (spread**2).sum()
    if squares == 0:
        return float(mean), float(mean)
    means = np.concatenate([counts @ values / len(values) for counts in _resample_counts(len(values), DRAWS, 0)])
    below = ((means < mean).sum() + 0.5 * (means == mean).sum()) / len(means)
    bias = ndtri(np.clip(below, 0.5 / len(means), 1 - 0.5 / len(means)))
    acceleration = (spread**3).sum() / (6 * squares**1.5)
    tails = bias + ndtri([0.025, 0.975])
    low, high = np.quantile(means, ndtr(bias + tails / (1 - acceleration * tails)))
    return float(low), float(high)


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
    as_far, left = 1, draws
    while left:
        count = min(left, max(1, BLOCK // len(sizes)))
        bits = np.unpackbits(generator.integers(0, 256, (count, width), dtype=np.uint8), axis=1, count=len(sizes))
        # a sum with signs is the total less twice the part whose sign is turned
        as_far += int(np.sum(np.abs(sizes.sum() - 2 * (bits @ sizes)) >= bound))
        left -= count
    return as_far / (draws + 1)


def sign_flip_tests(columns: np.ndarray, *, seed: int = 0, draws: int = 9999) -> np.ndarray:
    """`sign_flip_test` of several columns [N, S] of differences, NaN undefined and left out: p-values [S].

    One pattern of signs of the N instances serves all columns, so that S of them cost hardly more than one; each p-value is
    as valid as alone, and Holm's correction asks no more of them. Columns of up to 13 differences that are not 0 are exact.
    """
    columns = np.asarray(columns, dtype=np.float64)
    differences = np.where(np.isnan(columns), 0.0, columns)
    p_values = np.full(columns.shape[1], np.nan)
    few = (differences != 0).sum(0) <= EXACT_PAIRS
    for place in np.flatnonzero(few):
        p_values[place] = sign_flip_test(columns[~np.isnan(columns[:, place]), place])
    if few.all():
        return p_values
    many = differences[:, ~few]
    totals, bounds = many.sum(0), np.abs(many.sum(0)) - 1e-12 * np.abs(many).sum(0)
    generator = np.random.default_rng(seed)
    count, left = np.ones(many.shape[1]), draws
    while left:
        part = min(left, max(1, BLOCK // len(many)))
        bits = np.unpackbits(generator.integers(0, 256, (part, -(-len(many) // 8)), dtype=np.uint8), axis=1, count=len(many))
        count += (np.abs(totals - 2 * (bits @ many)) >= bounds).sum(0)
        left -= part
    p_values[~few] = count / (draws + 1)
    return p_values


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Adjusted p-values [N] of a family of tests: rejecting where one is <= alpha errs at all with probability <= alpha.

    In order of size, the smallest of m is multiplied by m, the next by m - 1, and so on; none is below the one before it,
    none above 1. NaN stays NaN and is not counted in m. Raises ValueError for a value outside 0..1.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    for p_value in p_values[(p_values < 0) | (p_values > 1)]:
        raise ValueError(f"a p-value lies in 0..1; given {p_value:g}")
    defined = np.flatnonzero(~np.isnan(p_values))
    order = defined[np.argsort(p_values[defined], kind="stable")]
    adjusted = np.full(len(p_values), np.nan)
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * steps), 1)
    return adjusted


def percentile_interval(draws: np.ndarray, *, defined: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """2.5 % and 97.5 % quantiles over the last axis of draws [..., D], [...] each; draws that are not finite are left out.

    NaN where none is left, or less than the share `defined` of them.
    """
    finite = np.isfinite(draws)
    enough = finite.any(axis=-1) & (finite.mean(axis=-1) >= defined)
    low, high = np.full(draws.shape[:-1], np.nan), np.full(draws.shape[:-1], np.nan)
    if enough.any():
        values = np.where(finite[enough], draws[enough], np.nan)
        low[enough], high[enough] = np.nanquantile(values, (0.025, 0.975), axis=-1)
    return low, high


def drawn_p_values(draws: np.ndarray) -> np.ndarray:
    """Two-sided p-values [...] of 0 by draws [..., D] of a bootstrap: twice the share of them on the rarer side of 0, both
    sides counting 0 itself and the observed value (Davison & Hinkley 1997, 4.2); at least 2 / (D + 1). Draws that are not
    finite are left out.

    >>> drawn_p_values(np.array([[0.5, 1.0, 2.0], [-1.0, 0.5, 1.0]])).tolist()
    [0.5, 1.0]
    """
    finite = np.isfinite(draws)
    rarer = np.minimum((finite & (draws <= 0)).sum(axis=-1), (finite & (draws >= 0)).sum(axis=-1))
    return np.minimum(1, 2 * (1 + rarer) / (1 + finite.sum(axis=-1)))


@dataclass(frozen=True, eq=False)
class Panel:
    """One number per text of models trained from several seeds, at several levels of what is varied, and the interval of its
    mean over seeds and texts. Shapes: X levels, S seeds, N texts, D draws.

    values [X, S, N]: NaN where undefined or not held. held [X, S, N]: the model is there, has the number, and has the text.

    The number is the mean over seeds of each seed's mean over texts. Its interval is the 95 % percentile interval of a
    bootstrap in two steps: seeds are drawn with replacement, and so are texts. A draw of texts serves all seeds and all
    levels, because these read the same texts, so that differences are paired. With one seed the interval is over texts only.
    With three, one draw in nine is of one seed alone, so that the interval reaches about as far as the lowest and the
    highest seed, and an interval without 0 needs all three on one side; three seeds cannot say more. Every draw is fixed by
    a constant. n_draws: how many, D.
    """

    values: np.ndarray
    held: np.ndarray
    n_draws: int = DRAWS

    @cached_property
    def n(self) -> np.ndarray:
        """Texts with a value, summed over seeds, [X]."""
        return (~np.isnan(self.values)).sum(axis=(1, 2))

    @cached_property
    def n_undefined(self) -> np.ndarray:
        return self.held.sum(axis=(1, 2)) - self.n

    @cached_property
    def n_seeds(self) -> np.ndarray:
        """Seeds with at least one value, [X]."""
        return (~np.isnan(self.values)).any(axis=2).sum(axis=1)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean over seeds of the mean over texts, [X]; NaN without a value."""
        defined = ~np.isnan(self.values)
        by_seed = ratio(np.where(defined, self.values, 0).sum(axis=2), defined.sum(axis=2))
        has_mean = ~np.isnan(by_seed)
        return ratio(np.where(has_mean, by_seed, 0).sum(axis=1), has_mean.sum(axis=1))

    @cached_property
    def draws(self) -> np.ndarray:
        """The mean in each draw of seeds and texts, [X, D]; NaN where no drawn seed has a value."""
        levels, seeds, count = self.values.shape
        values = self.values.reshape(-1, count)
        defined = ~np.isnan(values)
        gaps = np.flatnonzero(~defined.all(axis=1))
        filled, defined_in_gaps = np.where(defined, values, 0), defined[gaps].astype(np.float64)
        parts = []
        for part in _resample_counts(count, self.n_draws, 0):
            counts = np.full((len(values), len(part)), float(count))  # each draw has as many texts as there are
            if len(gaps):
                counts[gaps] = defined_in_gaps @ part.T
            parts.append(ratio(filled @ part.T, counts))
        by_seed = np.concatenate(parts, axis=1).reshape(levels, seeds, self.n_draws)
        chosen = np.concatenate(list(_resample_counts(seeds, self.n_draws, 1))).T
        has_mean = ~np.isnan(by_seed)
        return ratio((np.where(has_mean, by_seed, 0) * chosen).sum(axis=1), (has_mean * chosen).sum(axis=1))

    @cached_property
    def filled(self) -> np.ndarray:
        """Levels with a value for at least FEWEST of the texts held, [X] bool: what slopes and correlations rest on."""
        return (self.n > 0) & (self.n >= FEWEST * self.held.sum(axis=(1, 2)))

    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends, [X] each; NaN below two values."""
        low, high = percentile_interval(self.draws, defined=0.5)
        few = self.n < 2
        return np.where(few, np.nan, low), np.where(few, np.nan, high)

    def p_values(self) -> np.ndarray:
        """Two-sided p-values [X] of a mean of 0, see `drawn_p_values`. NaN below two values."""
        return np.where(self.n < 2, np.nan, drawn_p_values(self.draws))

    def minus(self, other: "Panel") -> "Panel":
        """The difference of each text in each seed; undefined where one of the two is."""
        return replace(self, values=self.values - other.values, held=self.held & other.held)

    def where(self, other: "Panel") -> "Panel":
        """This panel where the other has values too: what is compared rests on the same texts."""
        both = self.held & other.held
        return replace(self, values=np.where(both & ~np.isnan(other.values), self.values, np.nan), held=both)


class Estimate(NamedTuple):
    """A number, its 95 % interval, and the two-sided p-value of what it would be by chance."""

    value: float
    ci_low: float
    ci_high: float
    p_value: float


LEVEL, LEAST_P = 0.05, 1e-12
UNKNOWN = Estimate(np.nan, np.nan, np.nan, np.nan)


def over_seeds_and_texts(
    by_seed: np.ndarray, left_out: np.ndarray, *, chance: float = 0.0, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Estimate:
    """The mean over seeds of a number of each model, and how far it can be trusted for another seed and other texts.

    by_seed [S]: the number of the model of each seed, without NaN. left_out [N]: the mean over seeds when one text is left
    out, for each text. chance: the number where there is nothing. bounds: ends of its range, which cut the interval.

    Two standard errors: of a mean over S seeds, from the spread of by_seed, and over texts, by the jackknife (Efron & Stein
    1981), which holds the seeds. What a text adds in one seed alone is in both. Half the interval is the root of the sum of
    squares of the two, each times its own quantile of Student's t, with S - 1 and N - 1 degrees of freedom (Howe 1974): with
    one t for both, of Welch's degrees of freedom, or with a bootstrap of few seeds, more nulls than stated are called a
    difference. It is as wide as an interval of seeds alone where these differ more than texts do, which is wide for three.
    p_value: the level at which the interval reaches chance, at least LEAST_P. Of one seed both are over texts only, and
    speak of that model. Nothing random enters. All NaN without a seed, or below two texts.
    """
    seeds, texts = len(by_seed), len(left_out)
    if seeds < 1 or texts < 2:
        return UNKNOWN
    value = float(np.mean(by_seed))
    errors = [(texts - 1, np.std(left_out) * np.sqrt(texts - 1))]
    if seeds > 1:
        errors.append((seeds - 1, np.std(by_seed, ddof=1) / np.sqrt(seeds)))

    def reach(level: float) -> float:
        return math.hypot(*(stdtrit(freedom, level / 2) * error for freedom, error in errors))

    low, high = np.clip((value - reach(LEVEL), value + reach(LEVEL)), *bounds)
    gap = max(0.0, abs(value - chance) - 1e-12)  # what differs by rounding only is equal
    least, most = math.log(LEAST_P), 0.0
    for _ in range(40):  # halves what is left between two levels
        middle = (least + most) / 2
        least, most = (middle, most) if reach(math.exp(middle)) >= gap else (least, middle)
    return Estimate(value, float(low), float(high), math.exp(most))


def ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """total / count, NaN where count is 0."""
    return np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)
