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

from attnfaith.reporting.cells import Cell, describe
from attnfaith.reporting.errors import PlotsError
from attnfaith.support.files import write_atomically


if TYPE_CHECKING:
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


def mean_in_words(values: np.ndarray, decimals: int = 3) -> str:
    """ "mean 0.312, n = 20 (2 undefined)" of numbers per instance, NaN undefined."""
    defined = values[~np.isnan(values)]
    mean = f"mean {round(defined.mean(), decimals) + 0.0:.{decimals}f}, " if len(defined) else ""
    undefined = f" ({len(values) - len(defined):,} undefined)" if len(defined) < len(values) else ""
    return f"{mean}n = {len(defined):,}{undefined}"


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
