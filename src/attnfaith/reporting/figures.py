"""The kinds of figures that sections draw, each of numbers per text [N], NaN undefined.

Undefined texts are not drawn and are counted. Of classes beyond the palette the largest are drawn and the others together.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.spec import Drawing, bin_of, largest_weights
from attnfaith.reporting.style import (
    ATTENTION,
    PALETTE,
    class_groups,
    histogram,
    mean_in_words,
    note,
    own_style,
    percent_axis,
    titled_figure,
)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANGES = "dot: mean; thick: the middle half of the texts; thin: 90 % of them"
FEWEST_FOR_A_VIOLIN = 20
WEIGHT_EDGES = (0.25, 0.5, 0.75)
WEIGHT_BINS = ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
Values = Mapping[str, np.ndarray]


def drawing(
    name: str,
    draw: "Callable[[Cell, str, Values, str], Figure]",
    title: str,
    values: Callable[[Cell], Values],
    axis: str,
    *,
    alt: str,
    caption: str | Callable[[Cell], str],
    when: Callable[[Cell], bool] = lambda cell: True,
) -> Drawing:
    """The declaration of a figure of numbers per text. draw: `ranges` or `histograms` with their options. values: of a cell,
    by label. alt: its alternative text, which the numbers follow.
    """

    def words(cell: Cell) -> tuple[str, str]:
        numbers = "; ".join(f"{label}: {mean_in_words(numbers, 2)}" for label, numbers in values(cell).items())
        return f"{alt} {numbers}.", caption if isinstance(caption, str) else caption(cell)

    return Drawing(name, lambda cell: draw(cell, title, values(cell), axis), words, when)


@own_style
def ranges(
    cell: Cell, title: str, values: Values, xlabel: str, *, bounds: tuple[float, float], mark: float | None = None
) -> "Figure":
    """Numbers as one line for each label, attention in its own colour. bounds: ends of the axis; mark: where a vertical line
    stands.
    """
    figure = titled_figure(title, cell, 9.0, 1.3 + 0.34 * max(len(values), 1))
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
    rows = range(len(values))
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_yticks(rows, [*values])
    right = axes.secondary_yaxis("right")
    right.set_yticks(rows, [mean_in_words(numbers, 2) for numbers in values.values()], fontsize=10)
    for axis in (axes, right):
        axis.tick_params(axis="y", length=0)
    right.spines["right"].set_visible(False)
    axes.set_xlim(*bounds)
    axes.set_xlabel(f"{xlabel}\n{RANGES}")
    if mark is not None:
        axes.axvline(mark, color="#777777", linewidth=1)
    if all(np.isnan(numbers).all() for numbers in values.values()):
        note(axes, "nothing to draw")
    return grid_behind(axes, "x").figure


def grid_behind(axes: "Axes", axis: str) -> "Axes":
    axes.grid(axis=axis, color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


@own_style
def histograms(cell: Cell, title: str, values: Values, xlabel: str, *, bins: np.ndarray) -> "Figure":
    """One panel for each label, with a histogram for each predicted class."""
    groups = class_groups(cell)
    figure = titled_figure(title, cell, 9.0, 1.1 + 2.2 * len(values))
    panels = figure.subplots(len(values), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, numbers) in zip(panels, values.items(), strict=True):
        for (name, members), colour in zip(groups, PALETTE, strict=False):
            part = numbers[members]
            histogram(axes, part[~np.isnan(part)], bins, colour, f"{name}\n{mean_in_words(part)}")
        axes.set_xlim(bins[0], bins[-1])
        percent_axis(axes)
        axes.set_title(f"{label}: {mean_in_words(numbers)}", fontsize=10.5)
        axes.set_ylabel("share of the class's texts")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="predicted", alignment="left", labelspacing=0.8)
    panels[-1].set_xlabel(xlabel)
    return figure


@own_style
def violins(cell: Cell, title: str, values: np.ndarray, ylabel: str) -> "Figure":
    """Numbers in four bins of the largest weight, a violin per predicted class; few texts are points.

    The line across a violin is its median, the number above it its texts.
    """
    place, groups, defined = bin_of(largest_weights(cell), WEIGHT_EDGES), class_groups(cell), ~np.isnan(values)
    highest = max(np.nanmax(values), 1e-3) if defined.any() else 1.0
    figure = titled_figure(title, cell, 9.0, 4.2)
    axes = figure.add_subplot()
    axes.set_ylim(0, highest * 1.12)
    axes.set_ylabel(ylabel)
    axes.set_xlabel("largest attention weight of the text")
    axes.set_xticks(range(len(WEIGHT_BINS)), WEIGHT_BINS)
    axes.set_xlim(-0.5, len(WEIGHT_BINS) - 0.5)
    width = 0.84 / len(groups)
    for number, ((name, members), colour) in enumerate(zip(groups, PALETTE, strict=False)):
        for position in range(len(WEIGHT_BINS)):
            part = values[members & defined & (place == position)]
            if len(part):
                _violin(axes, part, position + (number - (len(groups) - 1) / 2) * width, width, colour, highest)
        axes.plot([], [], color=colour, linewidth=6, alpha=0.6, label=f"{name}\n{mean_in_words(values[members])}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="predicted", alignment="left", labelspacing=0.8)
    if not defined.any():
        note(axes, "no text has two tokens")
    return grid_behind(axes, "y").figure


def violins_in_words(cell: Cell, values: np.ndarray) -> str:
    """Means by largest weight, and how to read a violin."""
    place = bin_of(largest_weights(cell), WEIGHT_EDGES)
    bins = [(label, place == number) for number, label in enumerate(WEIGHT_BINS)]
    return "; ".join(f"{label}: {mean_in_words(values[inside])}" for label, inside in bins if inside.any())


VIOLINS = (
    f"The line in a violin is its median, the number above it its texts; fewer than {FEWEST_FOR_A_VIOLIN} texts are shown "
    "as points."
)


def _violin(axes: "Axes", values: np.ndarray, at: float, width: float, colour: str, highest: float) -> None:
    if len(values) < FEWEST_FOR_A_VIOLIN:
        spread = np.linspace(-1, 1, len(values)) * width / 4 if len(values) > 1 else np.zeros(1)
        axes.scatter(at + spread, values, s=14, color=colour, alpha=0.7, linewidths=0)
    else:
        (body,) = axes.violinplot(values, [at], widths=width * 0.92, showextrema=False, points=200)["bodies"]
        body.set(facecolor=colour, edgecolor=colour, alpha=0.45, linewidth=1)
    middle = np.median(values)
    axes.plot([at - width / 4, at + width / 4], [middle, middle], color=colour, linewidth=2)
    above = values.max() + highest * 0.015
    axes.text(at, above, f"{len(values):,}", ha="center", va="bottom", fontsize=9, color=colour)
