"""Intervals and tests: how far a number can be trusted, and whether two cells differ."""

import numpy as np


def bootstrap_interval(values: np.ndarray, *, seed: int = 0, draws: int = 1000) -> tuple[float, float]:
    """The 95 % percentile interval of the mean over instances, values [N] without NaN; NaN below two values."""
    if len(values) < 2:
        return np.nan, np.nan
    generator = np.random.default_rng(seed)
    means = [values[generator.integers(0, len(values), len(values))].mean() for _ in range(draws)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
