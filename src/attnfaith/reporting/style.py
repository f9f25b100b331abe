"""How figures look: colours, fonts, the head of each, and files of the same bytes every time.

matplotlib is an optional extra and is imported where a figure is drawn. Figures are made as objects, never through
pyplot, so a report changes no setting of the program that asks for it.
"""

import contextlib
import functools
import io
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.escaping import csv_frame
from attnfaith.files import write_atomically
from attnfaith.reporting.cells import Cell, describe, name_class
from attnfaith.reporting.drawn import drawn_data
from attnfaith.reporting.errors import PlotsError
from attnfaith.reporting.fonts import cover


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
_DPI = 150
KINDS = ("png", "svg", "pdf")
COLUMN_WIDTH, PAGE_WIDTH = 3.3, 6.9
"""Width of a vector figure in inches, as papers of two columns print it: in one column, or across the page."""
WIDEST_OF_A_COLUMN = 4.5
"""Figures that are drawn up to this wide, in inches, go into a column, where letters of 11 pt have 8."""
TEXT_COLOUR, QUIET_COLOUR = "#1a1a1a", "#555555"


def require_matplotlib() -> None:
    """Raises PlotsError, an ImportError, naming the extra to install, where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise PlotsError("figures need matplotlib, an optional extra: pip install 'attnfaith[plots]'") from error


def own_style(draw: Callable) -> Callable:
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


def titled_figure(
    title: str, cell: Cell | None, width: float, height: float, *, subject: str | None = None, count: int | None = None
) -> "Figure":
    """An empty figure under a title and a line that identifies the cell, or what else is shown: the subject, and how many
    texts where it is not those of the cell; both where there is no one cell.
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
    # a dollar sign would start a formula
    groups = [
        ("class " + name.replace("$", r"\$"), predicted == number) for name, number in zip(names, largest, strict=True)
    ]
    if not several:
        return groups
    return [*groups, (f"{len(classes) - len(largest)} others", ~np.isin(predicted, largest))]


@contextlib.contextmanager
def laid_out(figure: "Figure", dpi: float) -> Iterator[None]:
    """Within it `savefig` draws a figure as it is laid out for `dpi`, under our style. By itself it would do the layout for
    each kind of file, and draw all of the figure one more time to that end.
    """
    engine, own_dpi = figure.get_layout_engine(), figure.dpi
    try:
        if engine is not None and figure.axes:
            figure.dpi = dpi
            engine.execute(figure)
            figure.set_layout_engine(None)  # under our style that is none at all
        yield
    finally:
        figure.dpi = own_dpi
        figure.set_layout_engine(engine)


def printed_width(figure: "Figure") -> float:
    """Width in inches of the figure in a paper: COLUMN_WIDTH or PAGE_WIDTH."""
    return COLUMN_WIDTH if figure.get_figwidth() <= WIDEST_OF_A_COLUMN else PAGE_WIDTH


@own_style
def _rendered(figure: "Figure", kinds: Sequence[str] = KINDS) -> dict[str, bytes]:
    """The figure as "png", "svg" and "pdf", without dates or versions: the same figure gives the same bytes.

    SVG and PDF have the width of a paper's column or page, all of the drawing made smaller alike.
    """
    made = {}
    scale = printed_width(figure) / figure.get_figwidth()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # `cover` has said it
        with laid_out(figure, _DPI):
            for kind in kinds:
                buffer = io.BytesIO()
                if kind == "pdf":
                    _draw_pdf(figure, buffer, scale)
                else:
                    unset = dict.fromkeys(("Software",) if kind == "png" else ("Date", "Creator"))
                    figure.savefig(buffer, format=kind, dpi=_DPI, facecolor="white", metadata=unset)
                made[kind] = buffer.getvalue() if kind != "svg" else _sized(buffer.getvalue(), scale)
    return made


def _sized(svg: bytes, scale: float) -> bytes:
    """The same drawing in another size, which its head says; all that follows is in units of the head's view box."""
    size = rb'(width|height)="([\d.]+)pt"'
    return re.sub(size, lambda side: b'%s="%.6gpt"' % (side[1], float(side[2]) * scale), svg, count=2)


def _draw_pdf(figure: "Figure", file: io.BytesIO, scale: float) -> None:
    """A PDF whose page has `scale` times the figure's size, with all that is drawn made that much smaller."""
    from matplotlib.backends.backend_mixed import MixedModeRenderer
    from matplotlib.backends.backend_pdf import Op, PdfFile, RendererPdf

    width, height = figure.get_size_inches()
    pdf, dpi = PdfFile(file, metadata=dict.fromkeys(("Creator", "Producer", "CreationDate"))), figure.dpi
    figure.dpi = 72  # a point of the page
    try:
        pdf.newPage(width * scale, height * scale)
        pdf.output(scale, 0, 0, scale, 0, 0, Op.concat_matrix)
        renderer = MixedModeRenderer(figure, width, height, _DPI, RendererPdf(pdf, _DPI, height, width))
        figure.draw(renderer)
        renderer.finalize()
        pdf.finalize()
    finally:
        figure.dpi = dpi
        pdf.close()


def save_figure(figure: "Figure", stem: str | os.PathLike, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Write a figure as `stem`.png (150 dpi), `stem`.svg and `stem`.pdf, and what it shows as `stem`.csv, each whole or not
    at all; returns the paths. SVG and PDF are 3.3 inches wide or 6.9: those of a paper's column and page.

    kinds: those of the figure to write. Letters that our font lacks are drawn in others that are installed; one
    MissingGlyphs warning, and a line in the figure, say which letters none has.
    """
    stem = Path(stem)
    cover(figure)
    made = _rendered(figure, kinds) | {"csv": csv_frame(drawn_data(figure), undefined="").encode()}
    return [write_atomically(stem.with_name(f"{stem.name}.{kind}"), content) for kind, content in made.items()]
