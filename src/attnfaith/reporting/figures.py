"""Figures of one cell: drawn from per-instance numbers, saved with the same bytes every time.

matplotlib is an optional extra and is imported where a figure is drawn. Figures are made as objects, never through
pyplot, so a report changes no setting of the program that asks for it.
"""

import functools
import io
import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from attnfaith.errors import AttnfaithError
from attnfaith.files import write_atomically
from attnfaith.reporting.cells import Cell, describe, measure_label, name_class, one_cell
from attnfaith.reporting.dispersion import entropies, scores_label


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito (2008): colours that stay apart for colour-blind readers, without the yellow, too pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
ATTENTION, GRADIENT, LEAVE_ONE_OUT = PALETTE[0], PALETTE[1], PALETTE[2]
TAU_LABEL = "Kendall's τ per text (1: same order, 0: no relation; dashed: mean)"
TAU_BINS = np.linspace(-1, 1, 41)
MOST_OVERLAID = 3  # histograms in one panel; more cannot be told apart
_STYLE = {
    "svg.hashsalt": "attnfaith",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "legend.frameon": False,
    "legend.fontsize": 10,
}
_TEXT_COLOUR, _QUIET_COLOUR = "#1a1a1a", "#555555"


def require_matplotlib() -> None:
    """Raises AttnfaithError, naming the extra to install, where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise AttnfaithError("figures need matplotlib, an optional extra: pip install 'attnfaith[plots]'") from error


def _own_style(draw: Callable) -> Callable:
    """Draw or save under our settings, whatever the user's matplotlibrc says; theirs are back afterwards."""

    @functools.wraps(draw)
    def styled(*args, **kwargs):
        require_matplotlib()
        import matplotlib

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_STYLE)
            return draw(*args, **kwargs)

    return styled


def _figure(
    title: str, cell: Cell, width: float, height: float, *, subject: str | None = None, count: int | None = None
) -> "Figure":
    """An empty figure under a title and a line that identifies the cell, or what else is shown: the subject, and how many
    texts where it is not those of the cell.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = textwrap.wrap(f"{subject or describe(cell.heading)} · n = {count or len(cell):,}", width=int(width * 12))
    top = 0.62 + 0.2 * len(lines)
    figure = Figure(figsize=(width, height + top), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 1 - top / (height + top)), w_pad=0.08, h_pad=0.06)
    inch = 1 / (height + top)
    text = {"ha": "left", "va": "top", "parse_math": False}
    figure.text(0.02, 1 - 0.14 * inch, title, fontsize=14, fontweight="bold", color=_TEXT_COLOUR, **text)
    figure.text(0.02, 1 - 0.46 * inch, "\n".join(lines), fontsize=10, color=_QUIET_COLOUR, **text)
    return figure


def _percent_axis(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2))
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def _histogram(axes: "Axes", values: np.ndarray, bins: np.ndarray, colour: str, label: str) -> None:
    """Shares of `values` per bin, with a dashed line at their mean; an empty label where there is nothing to draw."""
    if len(values):
        weights = np.full(len(values), 1 / len(values))
        axes.hist(values, bins, weights=weights, histtype="stepfilled", color=colour, alpha=0.25)
        axes.hist(values, bins, weights=weights, histtype="step", color=colour, linewidth=1.6, label=label)
        axes.axvline(values.mean(), color=colour, linewidth=1.6, linestyle=(0, (4, 2)))
    else:
        axes.plot([], [], color=colour, linewidth=1.6, label=label)


def _tau_axis(axes: "Axes") -> None:
    axes.axvline(0, color="#777777", linewidth=1)
    axes.set_xlim(-1, 1)
    axes.set_xticks(np.linspace(-1, 1, 9))
    _percent_axis(axes)


def _note(axes: "Axes", text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=_QUIET_COLOUR, parse_math=False)


def mean_in_words(values: np.ndarray, decimals: int = 3) -> str:
    """ "mean 0.312, n = 20 (2 undefined)" of numbers per instance, NaN undefined."""
    defined = values[~np.isnan(values)]
    mean = f"mean {defined.mean():.{decimals}f}, " if len(defined) else ""
    undefined = f" ({len(values) - len(defined):,} undefined)" if len(defined) < len(values) else ""
    return f"{mean}n = {len(defined):,}{undefined}"


def tau_in_words(tau: np.ndarray) -> str:
    """ "mean 0.31, n = 20 (2 undefined)" of per-instance taus."""
    return mean_in_words(tau, 2)


@_own_style
def tau_histograms(record: "pa.Table | Cell", importance: str) -> "Figure":
    """Per-instance tau between attention and one importance measure, one histogram per predicted class.

    The dashed lines are class means; the line at 0 is what rankings without relation give on average. Instances
    without a tau are not drawn and are counted. Of more than seven classes the six largest are drawn and
    the others together. Source: Jain & Wallace (2019), section 4.1.

    Raises ValueError where the record holds more than one cell or does not hold the measure.
    """
    cell = one_cell(record)
    title, ways = f"Attention and {measure_label(importance)}", {"": cell.tau("attention", importance)}
    return _histograms_by_class(title, cell, ways, TAU_BINS, _tau_axis, TAU_LABEL, tau_in_words)


def _histograms_by_class(
    title: str,
    cell: Cell,
    ways: Mapping[str, np.ndarray],
    bins: np.ndarray,
    finish: Callable[["Axes"], None],
    xlabel: str,
    words: Callable[[np.ndarray], str],
) -> "Figure":
    """Numbers per instance [N], NaN undefined, of each way by its name: one histogram per predicted class.

    Up to three classes lie over one another, in a panel for each way; more have a panel each, in a column for each way.
    finish: settles an axis. words: what is said of the numbers of a class.
    """
    from matplotlib.ticker import MaxNLocator

    groups = _class_groups(cell)
    overlaid = len(groups) <= MOST_OVERLAID
    rows, columns = (len(ways), 1) if overlaid else (len(groups), len(ways))
    figure = _figure(title, cell, 9.0, 1.1 + 2.2 * rows if overlaid else 1.0 + 0.8 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=not overlaid, squeeze=False)
    for place, (way, values) in enumerate(ways.items()):
        panels = grid[place] if overlaid else grid[:, place]
        for number, ((name, members), colour) in enumerate(zip(groups, PALETTE, strict=False)):
            axes, shown = panels[0 if overlaid else number], values[members]
            _histogram(axes, shown[~np.isnan(shown)], bins, colour, f"{name}\n{words(shown)}")
            if not overlaid:
                axes.set_title(words(shown), fontsize=9.5)
        for axes in panels:
            finish(axes)
        if way:
            first = f"\n{words(values)}\n\n{panels[0].get_title('left')}"
            panels[0].set_title(f"{way}: {words(values)}" if overlaid else way + first, fontsize=10.5 if overlaid else 9.5)
    if overlaid:
        for axes in grid[:, 0]:
            axes.set_ylabel("share of the class's texts")
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="predicted", alignment="left", labelspacing=0.8)
        grid[-1, 0].set_xlabel(xlabel)
        return figure
    figure.supxlabel(xlabel, fontsize=11)
    figure.supylabel("share of the texts predicted as the class", fontsize=11)
    for axes, (name, _) in zip(grid[:, 0], groups, strict=True):
        axes.set_ylabel(textwrap.fill(name, 16), rotation=0, ha="right", va="center", labelpad=8)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=2, min_n_ticks=2))
    return figure


def _class_groups(cell: Cell) -> list[tuple[str, np.ndarray]]:
    """Name and members (bool [N]) of each predicted class to draw; beyond the palette, the smaller classes as one group."""
    predicted = cell.predicted
    classes, counts = np.unique(predicted, return_counts=True)
    several = len(classes) > len(PALETTE)
    largest = np.sort(classes[np.argsort(-counts, kind="stable")][: len(PALETTE) - 1]) if several else classes
    names = [textwrap.shorten(name_class(str(number), cell.class_names), 28, placeholder="…") for number in largest]
    # a dollar sign would start a formula
    groups = [
        ("class " + name.replace("$", r"\$"), predicted == number) for name, number in zip(names, largest, strict=True)
    ]
    if not several:
        return groups
    return [*groups, (f"{len(classes) - len(largest)} others", ~np.isin(predicted, largest))]


@_own_style
def gradient_vs_leave_one_out(record: "pa.Table | Cell") -> "Figure":
    """How far two importance measures agree with each other, under how far attention agrees with each.

    Three histograms of per-instance tau on one axis: attention-gradient, attention-leave-one-out and
    gradient-leave-one-out. Source: Jain & Wallace (2019), section 4.1.

    Raises ValueError where the record holds more than one cell or lacks one of the two measures.
    """
    cell = one_cell(record)
    pairs = [("attention", "gradient"), ("attention", "leave_one_out"), ("gradient", "leave_one_out")]
    taus = [cell.tau(first, second) for first, second in pairs]
    figure = _figure("Do the measures agree with each other?", cell, 9.0, 4.6)
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    for axes, (first, second), tau, colour in zip(panels, pairs, taus, PALETTE, strict=False):
        _histogram(axes, tau[~np.isnan(tau)], TAU_BINS, colour, "")
        _tau_axis(axes)
        title = f"{measure_label(first)} and {measure_label(second)}: {tau_in_words(tau)}"
        axes.set_title(title, color=_TEXT_COLOUR, fontsize=10.5)
    panels[-1].set_xlabel(TAU_LABEL)
    panels[1].set_ylabel("share of texts")
    return figure


@_own_style
def attention_overview(record: "pa.Table | Cell") -> "Figure":
    """Two panels: how concentrated attention is, and how agreement changes with the length of the text.

    Left: histogram of the largest weight of each text, empty texts excluded and counted. Right: tau per text against
    its tokens (log scale), attention with leave-one-out, else gradient, else the first measure of the record; the line
    joins medians of ten equally filled groups. Without a measure the right panel is a histogram of lengths.

    Raises ValueError where the record holds more than one cell.
    """
    cell = one_cell(record)
    figure = _figure("Attention and length of text", cell, 9.0, 3.4)
    left, right = figure.subplots(1, 2)
    largest = np.array([row.max() for row in cell.attention if len(row)], dtype=np.float64)
    _histogram(left, largest, np.linspace(0, 1, 31), ATTENTION, "")
    empty = len(cell) - len(largest)
    shown = f": mean {largest.mean():.2f}" if len(largest) else ""
    left.set_title(f"largest weight{shown}" + (f" ({empty:,} without tokens)" if empty else ""))
    left.set_xlim(0, 1)
    left.set_xlabel("largest weight in the text (dashed: mean)")
    left.set_ylabel("share of texts")
    _percent_axis(left)
    measure = reference_measure(cell)
    if measure is None:
        _length_histogram(right, cell.lengths)
    else:
        _tau_by_length(right, cell, measure)
    return figure


def reference_measure(cell: Cell) -> str | None:
    """The measure that attention is held against where one is shown: leave-one-out, else gradient, else the first."""
    for name in ("leave_one_out", "gradient", *cell.measures):
        if name in cell.measures:
            return name
    return None


def _length_histogram(axes: "Axes", lengths: np.ndarray) -> None:
    highest = max(int(lengths.max()), 1)
    width = max(1, int(np.ceil(highest / 30)))
    bins = np.arange(-0.5, highest + width + 0.5, width)
    _histogram(axes, lengths.astype(np.float64), bins, PALETTE[-1], "")
    axes.set_title(f"length: mean {lengths.mean():.1f}")
    axes.set_xlabel("tokens in the text (dashed: mean)")
    axes.set_ylabel("share of texts")
    _percent_axis(axes)


def _tau_by_length(axes: "Axes", cell: Cell, measure: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    tau = cell.tau("attention", measure)
    defined = ~np.isnan(tau)
    axes.set_title(f"attention and {measure_label(measure)}, by length")
    axes.set_xlabel("tokens in the text" + (" (line: median)" if defined.any() else ""))
    axes.set_ylabel("Kendall's τ")
    axes.set_ylim(-1.05, 1.05)
    axes.axhline(0, color="#777777", linewidth=1)
    if not defined.any():
        axes.set_xticks([])
        return _note(axes, "no text has a defined τ")
    lengths, tau = cell.lengths[defined], tau[defined]
    # as pixels inside the SVG: thousands of points would make the file heavy
    axes.scatter(lengths, tau, s=9, color=PALETTE[4], alpha=0.35, linewidths=0, rasterized=True)
    parts = np.array_split(np.argsort(lengths, kind="stable"), min(10, len(lengths)))
    middle = [(np.median(lengths[part]), np.median(tau[part])) for part in parts]
    axes.plot(*zip(*middle, strict=True), color=ATTENTION, linewidth=2, marker="o", markersize=4)
    axes.set_xscale("log")
    axes.set_xlim(lengths.min() * 0.85, lengths.max() * 1.18)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    return None


@_own_style
def dispersion_by_scores(record: "pa.Table | Cell") -> "Figure":
    """Entropy over its maximum in single texts: a line for attention, for each measure and for the inputs of states.

    Dot: mean; thick: the middle half of the texts; thin: 90 % of them. Texts without an entropy are not drawn and are
    counted.

    Raises ValueError where the record holds more than one cell.
    """
    cell = one_cell(record)
    found = entropies(cell)
    figure = _figure("How evenly attention and importance are spread", cell, 9.0, 1.3 + 0.34 * len(found))
    axes = figure.add_subplot()
    for place, (name, values) in enumerate(found.items()):
        if not len(values := values[~np.isnan(values)]):
            continue
        colour = ATTENTION if name == "attention" else PALETTE[-1]
        low, lower, upper, high = np.quantile(values, (0.05, 0.25, 0.75, 0.95))
        axes.plot([low, high], [place, place], color=colour, linewidth=1.6)
        axes.plot([lower, upper], [place, place], color=colour, linewidth=8, alpha=0.35, solid_capstyle="butt")
        axes.plot([values.mean()], [place], color=colour, marker="o", markersize=6)
    rows = range(len(found))
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_yticks(rows, [scores_label(name) for name in found])
    right = axes.secondary_yaxis("right")
    right.set_yticks(rows, [mean_in_words(values, 2) for values in found.values()], fontsize=10)
    for axis in (axes, right):
        axis.tick_params(axis="y", length=0)
    right.spines["right"].set_visible(False)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(
        "entropy of a text over its maximum (0: one token has all, 1: all have the same)\n"
        "dot: mean; thick: the middle half of the texts; thin: 90 % of them"
    )
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    if all(np.isnan(values).all() for values in found.values()):
        _note(axes, "no text has two tokens")
    return figure


def all_figures(record: "pa.Table | Cell") -> "dict[str, Figure]":
    """Every figure that a cell's columns allow, by file name."""
    cell = one_cell(record)
    figures = {f"tau_attention_{name}": tau_histograms(cell, name) for name in cell.measures}
    if {"gradient", "leave_one_out"} <= set(cell.measures):
        figures["gradient_vs_leave_one_out"] = gradient_vs_leave_one_out(cell)
    return figures | {"attention_overview": attention_overview(cell), "dispersion_by_scores": dispersion_by_scores(cell)}


@_own_style
def _rendered(figure: "Figure", kind: str) -> bytes:
    """The figure as "png" or "svg" bytes, without dates or versions: the same figure gives the same bytes."""
    buffer = io.BytesIO()
    unset = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    figure.savefig(buffer, format=kind, dpi=150, facecolor="white", metadata=unset)
    return buffer.getvalue()


def save_figure(figure: "Figure", stem: str | os.PathLike) -> list[Path]:
    """Write a figure as `stem`.png (150 dpi) and `stem`.svg, each whole or not at all; returns the paths."""
    stem = Path(stem)
    return [write_atomically(stem.with_name(f"{stem.name}.{kind}"), _rendered(figure, kind)) for kind in ("png", "svg")]
