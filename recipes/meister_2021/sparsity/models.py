"""The cells of one model, and the panels of their numbers over seeds and texts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import Cell
from attnfaith.stats import Panel, percentile_interval, with_interval

from .sweep import entmax_alpha, is_plain, plain_alignment, sparsegen_lambda


IDENTITY = ("dataset", "texts", "training_texts", "split", "encoder", "alignment", "vectors")
"""Identity columns of a model; its alignment is named without a scale."""


class Model:
    """All cells of one model on one data set: every projection, seed and variant, in one frame of seeds and texts."""

    def __init__(self, cells: Sequence[Cell]):
        self.cells = list(cells)
        self.heading = {name: str(self.cells[0].heading[name]) for name in IDENTITY}
        self.heading["alignment"] = plain_alignment(self.cells[0])
        self.seeds = sorted({cell.heading["seed"] for cell in self.cells})
        names = sorted(set().union(*(cell.instance_ids for cell in self.cells)))
        self._count = len(names)
        place = {name: number for number, name in enumerate(names)}
        self._places = {cell: np.array([place[name] for name in cell.instance_ids]) for cell in self.cells}

    @property
    def name(self) -> str:
        """ "bilstm + additive"."""
        return f"{self.heading['encoder']} + {self.heading['alignment']}"

    @cached_property
    def plain(self) -> list[Cell]:
        """The cells of the paper's sweep, by projection: softmax, sparsegen from low to high lambda, then others."""
        return sorted((cell for cell in self.cells if is_plain(cell)), key=_order)

    def projection(self, name: str) -> list[Cell]:
        return [cell for cell in self.plain if cell.heading["projection"] == name]

    @cached_property
    def dense(self) -> dict[int, Cell]:
        """The softmax cell of each seed."""
        return {cell.heading["seed"]: cell for cell in self.projection("softmax")}

    def panel(
        self,
        levels: Sequence[Sequence[Cell]],
        number: Callable,
        *arguments: str,
        partners: Mapping[int, Cell] | None = None,
    ) -> Panel | None:
        """`number(cell, *arguments)` of the cells of each level; None where no cell has it. partners: the cell of each seed
        that the number takes as its second argument; a seed without one has no value.
        """
        shape = (len(levels), len(self.seeds), self._count)
        values, held = np.full(shape, np.nan), np.zeros(shape, bool)
        for level, cells in enumerate(levels):
            for cell in cells:
                seed = cell.heading["seed"]
                if partners is not None and seed not in partners:
                    continue
                numbers = number(cell, *arguments) if partners is None else number(cell, partners[seed], *arguments)
                if numbers is not None:
                    values[level, self.seeds.index(seed), self._places[cell]] = numbers
                    held[level, self.seeds.index(seed), self._places[cell]] = True
        return Panel(values, held) if held.any() else None


def models(cells: Iterable[Cell]) -> list[Model]:
    """The cells by model, in order of first appearance."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        key = tuple(cell.heading[name] for name in IDENTITY if name != "alignment")
        groups.setdefault((*key, plain_alignment(cell)), []).append(cell)
    return [Model(group) for group in groups.values()]


def model_names(table: pd.DataFrame) -> pd.Series:
    """Data set and model of each row of a table, "sst · bilstm + additive", with what else tells two of one name apart."""
    names = ["dataset", "encoder", "alignment"]
    names_of_rows = table["dataset"] + " · " + table["encoder"] + " + " + table["alignment"]
    for name in ("vectors", "texts", "training_texts", "split"):
        several = table.groupby(names)[name].transform("nunique") > 1
        names_of_rows = names_of_rows.where(~several, names_of_rows + ", " + table[name])
    return names_of_rows


def _order(cell: Cell) -> tuple:
    knob, alpha = sparsegen_lambda(cell), entmax_alpha(cell)
    if cell.heading["projection"] == "softmax":
        return (0, 0.0)
    if knob is not None:
        return (1, knob)
    return (2, alpha) if alpha is not None else (3, 0.0)


def levels_of(cells: Iterable[Cell], knob: Callable[[Cell], object]) -> dict:
    """Cells by their value of a knob, in its order where it has one; cells without it (None) are left out."""
    levels: dict = {}
    for cell in cells:
        if (value := knob(cell)) is not None:
            levels.setdefault(value, []).append(cell)
    return dict(sorted(levels.items())) if all(isinstance(value, float) for value in levels) else levels


def by_projection(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    return levels_of(cells, lambda cell: str(cell.heading["projection"]))


def level_columns(panels: Mapping[str, Panel | None], count: int) -> list[dict]:
    """Columns of a table for each of `count` levels: n_seeds, n, n_undefined of the first panel that is there, then the
    mean of each with the ends of its interval; NaN for a panel that is not there.
    """
    rows: list[dict] = [{} for _ in range(count)]
    first = next((panel for panel in panels.values() if panel is not None), None)
    for row, place in zip(rows, range(count), strict=True):
        for name in ("n_seeds", "n", "n_undefined"):
            row[name] = 0 if first is None else int(getattr(first, name)[place])
    for name, panel in panels.items():
        means = np.full(count, np.nan) if panel is None else panel.means
        ends = (means, means) if panel is None else panel.intervals()
        for place, row in enumerate(rows):
            row |= dict(zip(with_interval(name), map(float, (means[place], ends[0][place], ends[1][place])), strict=True))
    return rows


def interval_columns(name: str, value: float, draws: np.ndarray) -> dict[str, float]:
    """A statistic of several means with its interval from the draws [D]; both NaN where it is undefined."""
    low, high = percentile_interval(draws, defined=0.5) if np.isfinite(value) else (np.nan, np.nan)
    return dict(zip(with_interval(name), map(float, (value, low, high)), strict=True))
