"""The figure of a section: numbers per text [N] as one line for each label. Undefined texts are counted and not drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.style import ATTENTION, PALETTE, mean_in_words, own_style, titled_figure


if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANGES = "dot: mean; thick: the middle half of the texts; thin: 90 % of them"
Values = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawing:
    """A figure of numbers per text.

    name: of its files. values: of a cell, by label. axis: what the numbers are; bounds: its ends; mark: where a vertical
    line stands. caption: or a function of the cell that makes it. when: whether a cell has the figure.
    """

    name: str
    title: str
    values: Callable[[Cell], Values]
    axis: str
    bounds: tuple[float, float]
    caption: str | Callable[[Cell], str]
    mark: float | None = None
    when: Callable[[Cell], bool] = lambda cell: True

    def words(self, cell: Cell) -> tuple[str, str]:
        """Alternative text and caption of the figure of a cell."""
        numbers = "; ".join(f"{label}: {mean_in_words(numbers, 2)}" for label, numbers in self.values(cell).items())
        alt = f"{self.title}, by line: {self.axis}. {numbers}."
        return alt, self.caption(cell) if callable(self.caption) else self.caption

    def draw(self, cell: Cell) -> "Figure":
        """The figure of a cell, attention in its own colour."""
        return _ranges(self, cell, self.values(cell))


@own_style
def _ranges(drawing: Drawing, cell: Cell, values: Values) -> "Figure":
    figure = titled_figure(drawing.title, cell, 9.0, 1.3 + 0.34 * max(len(values), 1))
    axes = figure.add_subplot()
    for place, (label, numbers) in enumerate(values.items()):
        defined = numbers[~np.isnan(numbers)]
        if not len(defined):
            continue
        colour = ATTENTION if label == "attention" else PALETTE[-1]
        low, lower, upper, high = np.quantile(defined, (0.05, 0.25, 0.75, 0.95))
        axes.plot([low, high], [place, place], color=colour, linewidth=1.6)
        axes.plot([lower, upper], [place, place], color=colour, linewidth=8, alpha=0.35, solid_capstyle="butt")
        axes.plot([defined.mean()], [place], color=colour, marker="o", markersize=6)
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_yticks(range(len(values)), [*values])
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(values)), [mean_in_words(numbers, 2) for numbers in values.values()], fontsize=10)
    for axis in (axes, right):
        axis.tick_params(axis="y", length=0)
    right.spines["right"].set_visible(False)
    axes.set_xlim(*drawing.bounds)
    axes.set_xlabel(f"{drawing.axis}\n{RANGES}")
    if drawing.mark is not None:
        axes.axvline(drawing.mark, color="#777777", linewidth=1)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure


def binned(values: np.ndarray, sizes: np.ndarray, edges: Sequence[float], unit: str) -> dict[str, np.ndarray]:
    """Numbers [N] by the bin of a size of each text: at least an edge, and less than the next. Empty bins are left out."""
    bins = {}
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        label = f"{low:g} to {high:g}" if high < np.inf else f"{low:g} or more"
        bins[f"{unit} {label}"] = values[(sizes >= low) & (sizes < high)]
    return {label: part for label, part in bins.items() if len(part)}
