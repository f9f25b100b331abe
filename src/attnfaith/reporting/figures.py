"""Kinds of figures that a section can declare, each of one cell's numbers per text.

Of classes beyond the palette the largest are drawn and the others together. Undefined texts are not drawn and are counted.
"""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.reporting.cells import Cell, name_class
from attnfaith.reporting.spec import WEIGHT_BINS, WEIGHT_EDGES, bin_of, largest_weights
from attnfaith.reporting.style import (
    ATTENTION,
    PALETTE,
    class_groups,
    histogram,
    mean_in_words,
    note,
    own_style,
    titled_figure,
)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST_FOR_A_VIOLIN = 20
MOST_OVERLAID = 3  # histograms in one panel; more cannot be told apart
Numbers = Mapping[str, np.ndarray]  # `Section.per_text` of the cell


@dataclass(frozen=True, eq=False)
class Kind:
    """A figure of each cell. name: of its files."""

    name: str

    def draw(self, cell: Cell, numbers: Numbers) -> "Figure":
        """The figure."""
        raise NotImplementedError

    def words(self, cell: Cell, numbers: Numbers) -> tuple[str, str]:
        """Alternative text and caption."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawn(Kind):
    """A figure that a section draws itself. describe: its alternative text and caption."""

    figure: Callable[[Cell], "Figure"]
    describe: Callable[[Cell], tuple[str, str]]

    def draw(self, cell: Cell, numbers: Numbers) -> "Figure":
        return self.figure(cell)

    def words(self, cell: Cell, numbers: Numbers) -> tuple[str, str]:
        return self.describe(cell)


@dataclass(frozen=True, eq=False, kw_only=True)
class Histograms(Kind):
    """Numbers per text, one histogram per predicted class.

    ways: {heading: name of the numbers}; a single way may have the heading "". Up to three classes lie over one another, in
    a panel for each way; more have a panel each, in a column for each way. bins: edges. finish: makes an axis ready.
    in_words: what is said of the numbers of a class. alt: start of the alternative text.
    """

    title: str
    ways: Mapping[str, str]
    bins: np.ndarray
    finish: Callable[["Axes"], None]
    xlabel: str
    alt: str
    caption: str
    in_words: Callable[[np.ndarray], str] = mean_in_words

    @own_style
    def draw(self, cell: Cell, numbers: Numbers) -> "Figure":
        groups = class_groups(cell)
        overlaid = len(groups) <= MOST_OVERLAID
        rows, columns = (len(self.ways), 1) if overlaid else (len(groups), len(self.ways))
        figure = titled_figure(self.title, cell, 9.0, 1.1 + 2.2 * rows if overlaid else 1.0 + 0.8 * rows)
        grid = figure.subplots(rows, columns, sharex=True, sharey=not overlaid, squeeze=False)
        for place, (way, name) in enumerate(self.ways.items()):
            self._fill(grid[place] if overlaid else grid[:, place], way, numbers[name], groups)
        if overlaid:
            for axes in grid[:, 0]:
                axes.set_ylabel("share of the class's texts")
                axes.legend(
                    loc="upper left", bbox_to_anchor=(1.0, 1.0), title="predicted", alignment="left", labelspacing=0.8
                )
            grid[-1, 0].set_xlabel(self.xlabel)
        else:
            self._label_panels(figure, grid[:, 0], [name for name, _ in groups])
        return figure

    def _fill(self, panels: np.ndarray, way: str, values: np.ndarray, groups: list[tuple[str, np.ndarray]]) -> None:
        overlaid = len(panels) == 1
        for number, ((name, members), colour) in enumerate(zip(groups, PALETTE, strict=False)):
            axes, shown = panels[0 if overlaid else number], values[members]
            histogram(axes, shown[~np.isnan(shown)], self.bins, colour, f"{name}\n{self.in_words(shown)}")
            if not overlaid:
                axes.set_title(self.in_words(shown), fontsize=9.5)
        for axes in panels:
            self.finish(axes)
        if not way:
            return
        if overlaid:
            panels[0].set_title(f"{way}: {self.in_words(values)}", fontsize=10.5)
        else:
            title = f"{way}\n{self.in_words(values)}\n\n{panels[0].get_title('left')}"
            panels[0].set_title(title, fontsize=9.5)

    def _label_panels(self, figure: "Figure", panels: np.ndarray, names: list[str]) -> None:
        from matplotlib.ticker import MaxNLocator

        figure.supxlabel(self.xlabel, fontsize=11)
        figure.supylabel("share of the texts predicted as the class", fontsize=11)
        for axes, name in zip(panels, names, strict=True):
            axes.set_ylabel(textwrap.fill(name, 16), rotation=0, ha="right", va="center", labelpad=8)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=2, min_n_ticks=2))

    def words(self, cell: Cell, numbers: Numbers) -> tuple[str, str]:
        if "" in self.ways:
            values, classes = numbers[self.ways[""]], cell.classes[1:]
            parts = [f"class {name_class(c, cell.class_names)}: {self.in_words(values[mine])}" for c, mine in classes]
        else:
            parts = [f"{way}: {self.in_words(numbers[name])}" for way, name in self.ways.items()]
        return f"{self.alt} {'; '.join(parts)}.", self.caption


RANGES = "dot: mean; thick: the middle half of the texts; thin: 90 % of them"


def draw_ranges(figure: "Figure", values: Mapping[str, np.ndarray], bounds: tuple[float, float], xlabel: str) -> "Axes":
    """Draw numbers per text [N], NaN undefined, as one line for each label; attention in its own colour.

    Undefined texts are not drawn and are counted. bounds: ends of the axis.
    """
    axes = figure.add_subplot()
    for place, (label, of_texts) in enumerate(values.items()):
        defined = of_texts[~np.isnan(of_texts)]
        if not len(defined):
            continue
        colour = ATTENTION if label == "attention" else PALETTE[-1]
        low, lower, upper, high = np.quantile(defined, (0.05, 0.25, 0.75, 0.95))
        axes.plot([low, high], [place, place], color=colour, linewidth=1.6)
        axes.plot([lower, upper], [place, place], color=colour, linewidth=8, alpha=0.35, solid_capstyle="butt")
        axes.plot([defined.mean()], [place], color=colour, marker="o", markersize=6)
    rows = range(len(values))
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_yticks(rows, [*values])
    right = axes.secondary_yaxis("right")
    right.set_yticks(rows, [mean_in_words(of_texts, 2) for of_texts in values.values()], fontsize=10)
    for axis in (axes, right):
        axis.tick_params(axis="y", length=0)
    right.spines["right"].set_visible(False)
    axes.set_xlim(*bounds)
    axes.set_xlabel(f"{xlabel}\n{RANGES}")
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


@dataclass(frozen=True, eq=False, kw_only=True)
class Violins(Kind):
    """Numbers per text `of` in four bins of the largest weight, a violin per predicted class.

    The line across a violin is its median, the number above it its texts; few texts are points. highest: upper end of the
    axis, None for the largest number. line: of a value that none exceeds. nothing: written where no number is defined. alt:
    start of the alternative text. caption: its first sentences.
    """

    of: str
    title: str
    ylabel: str
    alt: str
    caption: str
    nothing: str
    highest: float | None = None
    line: float | None = None

    @own_style
    def draw(self, cell: Cell, numbers: Numbers) -> "Figure":
        values, place, groups = numbers[self.of], bin_of(largest_weights(cell), WEIGHT_EDGES), class_groups(cell)
        defined = ~np.isnan(values)
        highest = self.highest
        if highest is None:
            highest = max(np.nanmax(values), 1e-3) if defined.any() else 1.0
        figure = titled_figure(self.title, cell, 9.0, 4.2)
        axes = figure.add_subplot()
        axes.set_ylim(0, highest * 1.12)
        axes.set_ylabel(self.ylabel)
        axes.set_xlabel("largest attention weight of the text")
        axes.set_xticks(range(len(WEIGHT_BINS)), WEIGHT_BINS)
        axes.set_xlim(-0.5, len(WEIGHT_BINS) - 0.5)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        width = 0.84 / len(groups)
        for number, ((name, members), colour) in enumerate(zip(groups, PALETTE, strict=False)):
            for position in range(len(WEIGHT_BINS)):
                shown = values[members & defined & (place == position)]
                if len(shown):
                    _violin(axes, shown, position + (number - (len(groups) - 1) / 2) * width, width, colour, highest)
            axes.plot([], [], color=colour, linewidth=6, alpha=0.6, label=f"{name}\n{mean_in_words(values[members])}")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="predicted", alignment="left", labelspacing=0.8)
        if not defined.any():
            note(axes, self.nothing)
        if self.line is not None:
            axes.axhline(self.line, color="#bbbbbb", linewidth=1, linestyle=":", zorder=0)
        return figure

    def words(self, cell: Cell, numbers: Numbers) -> tuple[str, str]:
        values, place = numbers[self.of], bin_of(largest_weights(cell), WEIGHT_EDGES)
        bins = [(label, place == number) for number, label in enumerate(WEIGHT_BINS)]
        parts = [f"{label}: {mean_in_words(values[inside])}" for label, inside in bins if inside.any()]
        caption = (
            f"{self.caption} The line in a violin is its median, the number above it its texts; fewer than "
            f"{FEWEST_FOR_A_VIOLIN} texts are shown as points."
        )
        return f"{self.alt} {'; '.join(parts)}.", caption


def _violin(axes: "Axes", values: np.ndarray, at: float, width: float, colour: str, highest: float) -> None:
    if len(values) < FEWEST_FOR_A_VIOLIN:
        spread = np.linspace(-1, 1, len(values)) * width / 4 if len(values) > 1 else np.zeros(1)
        axes.scatter(at + spread, values, s=14, color=colour, alpha=0.7, linewidths=0)
    else:
        (body,) = axes.violinplot(values, [at], widths=width * 0.92, showextrema=False, points=200)["bodies"]
        body.set(facecolor=colour, edgecolor=colour, alpha=0.45, linewidth=1)
    middle = np.median(values)
    axes.plot([at - width / 4, at + width / 4], [middle, middle], color=colour, linewidth=2)
    text = {"ha": "center", "va": "bottom", "fontsize": 9, "color": colour}
    axes.text(at, values.max() + highest * 0.015, f"{len(values):,}", **text)
