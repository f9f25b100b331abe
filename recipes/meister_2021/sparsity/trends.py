"""How a number moves with a knob: over the levels of a panel, and in each of its draws."""

from collections.abc import Callable, Iterable

import numpy as np

from attnfaith.stats import Panel, ratio


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of y [X] or [X, D] on x [X]; levels without y are left out, NaN below two."""
    y = np.asarray(y, np.float64)
    x = np.asarray(x, np.float64).reshape((-1,) + (1,) * (y.ndim - 1))
    known = ~np.isnan(y)
    count = known.sum(axis=0)
    off = np.where(known, x - ratio((x * known).sum(axis=0), count), 0)
    return np.where(count >= 2, ratio((off * np.where(known, y, 0)).sum(axis=0), (off**2).sum(axis=0)), np.nan)


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of y [X] or [X, D] with x [X]; levels without y are left out, NaN below two or where y is constant."""
    y = np.asarray(y, np.float64)
    first, second = np.triu_indices(len(y), 1)
    up = np.sign(np.asarray(x, np.float64)[second] - np.asarray(x, np.float64)[first]).reshape((-1,) + (1,) * (y.ndim - 1))
    step = np.sign(y[second] - y[first])
    known = ~np.isnan(step)
    step = np.where(known, step, 0)
    size = np.sqrt((np.abs(up) * known).sum(axis=0) * np.abs(step).sum(axis=0))
    return np.where(size > 0, (up * step).sum(axis=0) / np.where(size > 0, size, 1), np.nan)


def trend(take: Callable, x: np.ndarray, panel: Panel) -> tuple[float, np.ndarray]:
    """`slope` or `rank_correlation` of a panel's filled levels with x [X], and in each draw [D]."""
    unused = ~panel.filled
    means, draws = np.where(unused, np.nan, panel.means), np.where(unused[:, None], np.nan, panel.draws)
    return float(take(x, means)), take(x, draws)


def sharpness(lambdas: Iterable[float]) -> np.ndarray:
    """log10 of 1 / (1 - lambda): sparsegen is sparsemax of scores that many times as large. One unit is one decade."""
    return -np.log10(1 - np.asarray(list(lambdas), np.float64))
