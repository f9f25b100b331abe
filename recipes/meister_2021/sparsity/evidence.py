"""The numbers that verdicts rest on, with their intervals, and what an interval alone can say of a bound."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.stats import Panel, percentile_interval

from .models import Model, levels_of
from .sweep import is_untrained, score_scale, sparsegen_lambda
from .trends import sharpness, trend


HOLDS, FAILS, UNDECIDED = "holds here", "does not hold here", "undecided here"
DENSE, SPARSE = "softmax", "sparsemax"


@dataclass(frozen=True)
class Evidence:
    """A number that a verdict rests on. key: the statistic of the published table that it is, "" where it is none; with a
    training of an adversary ("frozen", "unfrozen").
    """

    statistic: str
    value: float
    low: float
    high: float
    n_seeds: int
    n: int
    key: str = ""
    training: str = ""


NO_EVIDENCE = Evidence("", np.nan, np.nan, np.nan, 0, 0)


def mean_of(statistic: str, panel: Panel, key: str = "", training: str = "") -> Evidence:
    """The mean of a panel of one level."""
    low, high = panel.intervals()
    numbers = float(panel.means[0]), float(low[0]), float(high[0]), int(panel.n_seeds[0]), int(panel.n[0])
    return Evidence(statistic, *numbers, key, training)


def over_levels(statistic: str, take: Callable, x: np.ndarray, panel: Panel, key: str = "") -> Evidence:
    """A statistic of the means of the filled levels: `slope` or `rank_correlation`."""
    value, draws = trend(take, x, panel)
    low, high = map(float, percentile_interval(draws, defined=0.5))
    return Evidence(statistic, value, low, high, int(panel.n_seeds.max()), int(panel.n[panel.filled].sum()), key)


def one_level(
    model: Model, cells: Sequence[Cell], number: Callable, *arguments: str, **partners: Mapping[int, Cell]
) -> Panel | None:
    """A panel of one level; None where nothing has a value."""
    panel = model.panel([cells], number, *arguments, **partners)
    return panel if panel is not None and panel.n[0] else None


def pair_of_ends(model: Model, number: Callable, *arguments: str) -> tuple[Panel, Panel] | None:
    """A number of the softmax and of the sparsemax cells; None where one is missing."""
    dense, sparse = (one_level(model, model.projection(name), number, *arguments) for name in (DENSE, SPARSE))
    return None if difference_of(sparse, dense) is None else (dense, sparse)


def sweep_of(
    model: Model, number: Callable, *arguments: str, **partners: Mapping[int, Cell]
) -> tuple[np.ndarray, Panel] | None:
    """`sharpness` and a number at each lambda; None below two filled levels."""
    levels = levels_of(model.plain, sparsegen_lambda)
    panel = model.panel(list(levels.values()), number, *arguments, **partners)
    return (sharpness(levels), panel) if panel is not None and panel.filled.sum() > 1 else None


def difference_of(first: Panel | None, second: Panel | None) -> Panel | None:
    """The difference of two panels of one level; None where one is missing or no text has both."""
    if first is None or second is None:
        return None
    difference = first.minus(second)
    return difference if difference.n[0] else None


def untrained(model: Model, projection: str) -> list[Cell]:
    cells = [cell for cell in model.cells if is_untrained(cell) and score_scale(cell) is None]
    return [cell for cell in cells if cell.heading["projection"] == projection]


def above(evidence: Evidence, bound: float = 0.0) -> str:
    """ "holds here" where the interval lies above the bound, "does not hold here" where it lies below it."""
    return HOLDS if evidence.low > bound else FAILS if evidence.high < bound else UNDECIDED


def opposite(evidence: Evidence) -> Evidence:
    return Evidence(evidence.statistic, -evidence.value, -evidence.high, -evidence.low, evidence.n_seeds, evidence.n)
