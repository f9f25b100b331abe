"""Intervals and tests: how far a number can be trusted, and whether a difference is more than chance.

Shares have Wilson's interval, means of correlations Student's, other means and medians the BCa bootstrap's; quotients of
sums the percentile bootstrap's. A number of several training seeds has `over_seeds_and_texts`. Shapes: N texts, S seeds.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit


LEVEL, LEAST_P = 0.05, 1e-12
DRAWS = 1000
EXACT_PAIRS = 13  # up to 2^13 patterns of signs are all tried
BLOCK = 1 << 22  # signs or counts at a time


def estimate(
    name: str,
    values: np.ndarray,
    statistic: Callable[[np.ndarray], float] = np.mean,
    *,
    interval: Callable[[np.ndarray], tuple[float, float]] | None = None,
) -> dict[str, float]:
    """A mean, share or median of values [N], NaN left out, as columns of a table: name, and name_ci_low and name_ci_high,
    its 95 % interval over texts, by `interval_of` or `interval`. NaN without values.
    """
    values = np.asarray(values, np.float64)
    values = values[~np.isnan(values)]
    number = float(statistic(values)) if len(values) else np.nan
    bounds = interval(values) if interval else interval_of(values, statistic)
    return dict(zip((name, f"{name}_ci_low", f"{name}_ci_high"), (number, *bounds), strict=True))


def interval_of(values: np.ndarray, statistic: Callable[[np.ndarray], float] = np.mean) -> tuple[float, float]:
    """Return the 95 % interval of the mean or the median of values [N] without NaN, within their range: Wilson's (1927) of a
    share, the mean of zeros and ones, else that of `bca_interval`. NaN below two values.
    """
    if statistic is np.mean and len(values) > 1 and np.isin(values, (0, 1)).all():
        return wilson_interval(int(values.sum()), len(values))
    return bca_interval(values, statistic)


def bca_interval(values: np.ndarray, statistic: Callable[[np.ndarray], float] = np.mean) -> tuple[float, float]:
    """Return the 95 % BCa bootstrap interval of the mean or the median of values [N] without NaN, such as of differences,
    whose zeros and ones are no share; NaN below two. Source: Efron (1987), section 3; the acceleration of a mean is a sixth
    of its skewness, and of a median 0, since its jackknife is symmetric.
    """
    if len(values) < 2:
        return np.nan, np.nan
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    spread, counts = values - values.mean(), _resample_counts(len(values), DRAWS)
    if statistic is np.mean:
        draws = _resampled(values, counts) / len(values)
        acceleration = (spread**3).sum() / (6 * (spread**2).sum() ** 1.5)
    else:
        order, middle = values.argsort(), [(len(values) - 1) // 2, len(values) // 2]
        places = np.array([row[order].cumsum().searchsorted(middle, side="right") for row in counts])
        draws, acceleration = values[order][places].mean(axis=1), 0.0
    number = statistic(values)
    ties = np.isclose(draws, number, rtol=1e-12, atol=0)  # which of two equal sums is larger is a matter of rounding
    below = ((draws < number) & ~ties).mean() + 0.5 * ties.mean()
    bias = ndtri(np.clip(below, 0.5 / len(draws), 1 - 0.5 / len(draws)))
    tails = bias + ndtri([0.025, 0.975])
    low, high = np.quantile(draws, ndtr(bias + tails / (1 - acceleration * tails)))
    return float(low), float(high)


def wilson_interval(count: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, count of n; n at least 1."""
    from scipy.stats import binomtest  # it takes as long to import as all of numpy

    low, high = binomtest(count, n).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


def t_interval(values: np.ndarray) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean of correlations [N] without NaN, within -1..1; NaN below two."""
    if len(values) < 2:
        return np.nan, np.nan
    reach = -stdtrit(len(values) - 1, LEVEL / 2) * np.std(values, ddof=1) / math.sqrt(len(values))
    low, high = np.clip((np.mean(values) - reach, np.mean(values) + reach), -1, 1)
    return float(low), float(high)


def ratio_intervals(above: np.ndarray, below: np.ndarray, *, draws: int = DRAWS) -> np.ndarray:
    """Return the 95 % percentile intervals [K, 2] of K quotients of sums over N instances, `above` by `below`, both
    [N, K] without NaN.

    A resample whose sum below is 0 has no quotient and is left out. NaN below two instances, and without a quotient.
    """
    intervals = np.full((above.shape[1], 2), np.nan)
    if len(above) < 2:
        return intervals
    both = np.concatenate([above, below], axis=1, dtype=np.float64)
    quotients = ratio(*np.split(_resampled(both, _resample_counts(len(both), draws)), 2, axis=1))
    defined = ~np.isnan(quotients).all(axis=0)
    if defined.any():
        intervals[defined] = np.nanquantile(quotients[:, defined], (0.025, 0.975), axis=0).T
    return intervals


@lru_cache(maxsize=2)
def _resample_counts(count: int, draws: int) -> np.ndarray:
    """How often each of `count` items is in each resample, [draws, count]. Cached: cells of a data set have equally many
    texts.
    """
    generator = np.random.default_rng(0)
    return np.stack(
        [np.bincount(generator.integers(0, count, count), minlength=count).astype(np.uint16) for _ in range(draws)]
    )


def _resampled(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sums of values [N, ...] over each resample, [D, ...]; counts [D, N]."""
    parts = np.array_split(counts, max(1, counts.size // BLOCK))  # one at a time in float64
    return np.concatenate([part.astype(np.float64) @ values for part in parts])


def sign_flip_tests(columns: np.ndarray, *, draws: int = 9999) -> np.ndarray:
    """Two-sided p-values [K] of the means of several columns [N, K] of paired differences, NaN left out: how often signs
    dealt at random give a mean as far from 0.

    Up to 13 differences that are not 0 every pattern of signs is tried and p is exact: with n of them at least 2 / 2^n.
    Beyond, `draws` random patterns and the observed one are counted: p is at least 1 / (draws + 1). 1 where all differences
    are 0, NaN without any. Source: Fisher (1935), section 21; Phipson & Smyth (2010) for the count of draws.
    """
    columns = np.asarray(columns, np.float64)
    differences = np.where(np.isnan(columns), 0.0, columns)
    # sums that differ by rounding only are equal
    totals, bounds = differences.sum(0), np.abs(differences.sum(0)) - 1e-12 * np.abs(differences).sum(0)
    p_values, few = np.full(columns.shape[1], np.nan), (differences != 0).sum(0) <= EXACT_PAIRS
    for place in np.flatnonzero(few & ~np.isnan(columns).all(0)):
        sizes = differences[differences[:, place] != 0, place]
        patterns = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1
        p_values[place] = np.mean(np.abs((1 - 2 * patterns) @ sizes) >= bounds[place])
    if few.all():
        return p_values
    many, generator = differences[:, ~few], np.random.default_rng(0)
    as_far = np.ones(many.shape[1])
    for start in range(0, draws, at_once := max(1, BLOCK // len(many))):
        part = min(at_once, draws - start)
        bits = np.unpackbits(generator.integers(0, 256, (part, -(-len(many) // 8)), dtype=np.uint8), axis=1, count=len(many))
        # a sum with signs is the total less twice the part whose sign is turned
        as_far += (np.abs(totals[~few] - 2 * (bits @ many)) >= bounds[~few]).sum(0)
    p_values[~few] = as_far / (draws + 1)
    return p_values


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Adjusted p-values [N] of a family of tests: rejecting where one is <= alpha errs at all with probability <= alpha.

    In order of size, the smallest of m is multiplied by m, the next by m - 1, and so on; none is below the one before it,
    none above 1. NaN stays NaN and is not counted in m. Source: Holm (1979).
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    defined = np.flatnonzero(~np.isnan(p_values))
    order = defined[np.argsort(p_values[defined], kind="stable")]
    adjusted = np.full(len(p_values), np.nan)
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * steps), 1)
    return adjusted


class Estimate(NamedTuple):
    """A number, its 95 % interval, and its two-sided p-value against chance."""

    value: float
    ci_low: float
    ci_high: float
    p_value: float


UNKNOWN = Estimate(np.nan, np.nan, np.nan, np.nan)
GAP_OF_RANGE, GAP_OF_REST = 0.2, 20.0


def over_seeds_and_texts(
    by_seed: np.ndarray, left_out: np.ndarray, *, chance: float = 0.0, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Estimate:
    """Return the mean over seeds of a number of each model, with its interval for another seed and other texts.

    by_seed [S]: the number of the model of each seed, without NaN. left_out [N]: the mean over seeds when one text is left
    out, for each text. chance: the number where there is nothing. bounds: ends of its range, which cut the interval.

    Two standard errors: over S seeds, from the spread of by_seed, and over texts, by the jackknife (Efron & Stein 1981).
    Half the interval is the root of the sum of squares of the two, each times its own quantile of Student's t, with S - 1
    and N - 1 degrees of freedom (Howe 1974). p_value: the level at which the interval reaches chance, at least LEAST_P. Of
    one seed both are over texts only, about that model.

    No interval and no p-value where no t holds: where seeds fall apart (`fall_apart`) and where all have the same number,
    which is not chance. There report `seeds_in_words`. All NaN without a seed, or below two texts.
    """
    by_seed, seeds, texts = np.asarray(by_seed, np.float64), len(by_seed), len(left_out)
    if seeds < 1 or texts < 2:
        return UNKNOWN
    value = float(np.mean(by_seed))
    errors = [(texts - 1, np.std(left_out) * np.sqrt(texts - 1))]
    if seeds > 1:
        same = np.ptp(by_seed) <= 1e-12
        if same and abs(value - chance) <= 1e-12:
            return Estimate(value, value, value, 1.0)
        if same or fall_apart(by_seed, errors[0][1], bounds):
            return Estimate(value, np.nan, np.nan, np.nan)
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


def fall_apart(by_seed: np.ndarray, error: float = 0.0, bounds: tuple[float, float] = (-np.inf, np.inf)) -> bool:
    """Whether the numbers of seeds [S] are of two kinds, such as models that learned and models that did not: the widest gap
    between neighbours is five times `error`, the standard error over texts, and wider than GAP_OF_RANGE of the range or, of
    three seeds or more, than GAP_OF_REST times all other gaps together.
    """
    gaps = np.diff(np.sort(by_seed))
    if not len(gaps) or gaps.max() < 5 * error:
        return False
    rest = gaps.sum() - gaps.max()
    return bool(gaps.max() > GAP_OF_RANGE * (bounds[1] - bounds[0]) or (len(gaps) > 1 and gaps.max() > GAP_OF_REST * rest))


def over_seeds_of_texts(
    numbers: np.ndarray, *, chance: float = 0.0, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Estimate:
    """`over_seeds_and_texts` of the mean over texts of numbers [S, N], NaN undefined. Seeds with fewer than two defined
    texts are left out.
    """
    defined = ~np.isnan(numbers)
    enough = np.flatnonzero(defined.sum(1) >= 2)
    if not len(enough):
        return UNKNOWN
    totals, counts = np.where(defined, numbers, 0)[enough], defined[enough].sum(1, keepdims=True)
    left_out = (totals.sum(1, keepdims=True) - totals) / (counts - defined[enough])
    return over_seeds_and_texts(totals.sum(1) / counts[:, 0], left_out.mean(0), chance=chance, bounds=bounds)


def rounded(number: float, bounds: Sequence[float], places: int = 2) -> str:
    """Return a number with so many decimals, or with as many more as keep it on its side of each bound."""
    enough = (n for n in range(places, 18) if all((round(number, n) < bound) == (number < bound) for bound in bounds))
    decimals = next(enough)
    return f"{round(number, decimals) + 0.0:.{decimals}f}"


def seeds_in_words(by_seed: Sequence[float], above: float) -> str:
    """ "2 of 3 seeds above 0 (0.31, 0.29, -0.02)": the words in place of an interval over seeds."""
    by_seed = [float(value) for value in by_seed if not np.isnan(value)]
    listed = ", ".join(f"{value + 0.0:.2f}" for value in by_seed)
    return f"{sum(value > above for value in by_seed)} of {len(by_seed)} seeds above {above:g} ({listed})"


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN without values."""
    return float(np.mean(values)) if len(values) else np.nan


def ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return total / count, NaN where count is 0."""
    return np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)
