"""How figures look: colours, fonts, the head of each, and files of the same bytes every time.

matplotlib is an optional extra and is imported where a figure is drawn. Figures are made as objects, never through
pyplot, so a report changes no setting of the program that asks for it.
"""

import functools
import io
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.reporting.cells import Cell, describe, name_class
from attnfaith.reporting.errors import PlotsError
from attnfaith.support.files import write_atomically


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito (2008): colours that stay apart for colour-blind readers, without the yellow, too pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
ATTENTION, GRADIENT, LEAVE_ONE_OUT = PALETTE[0], PALETTE[1], PALETTE[2]
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
    "pdf.fonttype": 42,  # letters stay letters, as publishers ask
}
KINDS = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("Creator", "Producer", "CreationDate")}
"""Kinds of files, and the fields of their metadata that would differ from one time to the next."""
TEXT_COLOUR, QUIET_COLOUR = "#1a1a1a", "#555555"


def require_matplotlib() -> None:
    """Raises PlotsError, an ImportError, naming the extra to install, where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise PlotsError("figures need matplotlib, an optional extra: pip install 'attnfaith[plots]'") from error


def own_style(draw: Callable) -> Callable:
    """Draw or save under these settings, whatever the user's matplotlibrc holds; theirs are back afterwards."""

    @functools.wraps(draw)
    def styled(*args, **kwargs):
        require_matplotlib()
        import matplotlib

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_STYLE)
            return draw(*args, **kwargs)

    return styled


def titled_figure(
    title: str, cell: Cell | None, width: float, height: float, *, subject: str | None = None, count: int | None = None
) -> "Figure":
    """An empty figure under a title and a line that identifies the cell and the number of its texts. subject, count: in
    place of these, such as where there is no single cell.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    head = textwrap.wrap(title, width=int(width * 8.2))
    lines = textwrap.wrap(f"{subject or describe(cell.heading)} · n = {count or len(cell):,}", width=int(width * 12))
    below = 0.46 + 0.24 * (len(head) - 1)  # inches from the top to the line under the title
    top = below + 0.16 + 0.2 * len(lines)
    figure = Figure(figsize=(width, height + top), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 1 - top / (height + top)), w_pad=0.08, h_pad=0.06)
    inch = 1 / (height + top)
    text = {"ha": "left", "va": "top", "parse_math": False}
    figure.text(0.02, 1 - 0.14 * inch, "\n".join(head), fontsize=14, fontweight="bold", color=TEXT_COLOUR, **text)
    figure.text(0.02, 1 - below * inch, "\n".join(lines), fontsize=10, color=QUIET_COLOUR, **text)
    return figure


def percent_axis(axes: "Axes") -> None:
    """Shares in percent; with the digits that a tick needs, such as 2.5 %, so that none stands where it is not."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2))
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def histogram(axes: "Axes", values: np.ndarray, bins: np.ndarray, colour: str, label: str) -> None:
    """Shares of `values` per bin, with a dashed line at their mean; an empty label where there is nothing to draw."""
    if len(values):
        weights = np.full(len(values), 1 / len(values))
        axes.hist(values, bins, weights=weights, histtype="stepfilled", color=colour, alpha=0.25)
        axes.hist(values, bins, weights=weights, histtype="step", color=colour, linewidth=1.6, label=label)
        axes.axvline(values.mean(), color=colour, linewidth=1.6, linestyle=(0, (4, 2)))
    else:
        axes.plot([], [], color=colour, linewidth=1.6, label=label)


def note(axes: "Axes", text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=QUIET_COLOUR, parse_math=False)


def mean_in_words(values: np.ndarray, decimals: int = 3) -> str:
    """ "mean 0.312, n = 20 (2 undefined)" of numbers per instance, NaN undefined."""
    defined = values[~np.isnan(values)]
    mean = f"mean {round(defined.mean(), decimals) + 0.0:.{decimals}f}, " if len(defined) else ""
    undefined = f" ({len(values) - len(defined):,} undefined)" if len(defined) < len(values) else ""
    return f"{mean}n = {len(defined):,}{undefined}"


def class_groups(cell: Cell) -> list[tuple[str, np.ndarray]]:
    """Name and members (bool [N]) of each predicted class to draw; beyond the palette, the smaller classes as one group."""
    predicted = cell.predicted
    classes, counts = np.unique(predicted, return_counts=True)
    several = len(classes) > len(PALETTE)
    largest = np.sort(classes[np.argsort(-counts, kind="stable")][: len(PALETTE) - 1]) if several else classes
    names = [textwrap.shorten(name_class(str(number), cell.class_names), 28, placeholder="…") for number in largest]
    safe = [name.replace("$", r"\$") for name in names]  # a dollar sign would start a formula
    groups = [(f"class {name}", predicted == number) for name, number in zip(safe, largest, strict=True)]
    if not several:
        return groups
    return [*groups, (f"{len(classes) - len(largest)} others", ~np.isin(predicted, largest))]


@own_style
def _rendered(figure: "Figure", kinds: Sequence[str], dpi: int) -> dict[str, bytes]:
    """The files of a figure, without dates or versions: the same figure gives the same bytes."""
    files = {}
    for kind in kinds:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor="white", metadata=dict.fromkeys(KINDS[kind]))
        files[kind] = buffer.getvalue()
    return files


def save_figure(
    figure: "Figure", stem: str | os.PathLike, kinds: Sequence[str] = tuple(KINDS), dpi: int = 150
) -> list[Path]:
    """Write a figure as `stem`.png, `stem`.svg and `stem`.pdf, or the kinds of these that are named, each whole or not at
    all; returns the paths.
    """
    stem = Path(stem)
    files = _rendered(figure, kinds, dpi)
    return [write_atomically(stem.with_name(f"{stem.name}.{kind}"), content) for kind, content in files.items()]
