"""Charts of numbers on a fixed axis: as SVG in the page's own font, for light and dark pages alike, and as figures in files.

matplotlib is an optional extra and is imported where a figure is drawn. Figures are made as objects, never through pyplot,
so a report changes no setting of the program that asks for it. The same chart gives the same bytes.
"""

import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from attnfaith.reporting.html import DECLARED, template
from attnfaith.reporting.tables import signed
from attnfaith.stats import estimate
from attnfaith.support.errors import AttnfaithError, cut


if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito (2008): colours that stay apart for colour-blind readers, without the yellow, too pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
ATTENTION, GRADIENT, LEAVE_ONE_OUT = PALETTE[0], PALETTE[1], PALETTE[2]
INK = "currentColor"  # of the page, light or dark
WIDTH, LINE, TOP, FOOT = 420, 23, 46, 40  # of the drawing in SVG, in its own units
LABELS, NUMBERS = 175, 46  # width of the names on the left, of the numbers on the right
LONGEST = 28  # letters of a name
SHARES, TAUS = (0.0, 0.5, 1.0), (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Ticks of two axes."""
BINS = 40


@dataclass(frozen=True)
class Bar:
    """One row. marks: (value, colour) of each dot, the first with its 95 % interval low, high; NaN undefined. shares: of
    texts in each of BINS parts of the axis, drawn behind it.
    """

    label: str
    marks: tuple[tuple[float, str], ...]
    low: float = np.nan
    high: float = np.nan
    shares: tuple[float, ...] = ()

    @property
    def numbers(self) -> str:
        """The values of at most two marks."""
        return " · ".join(signed(value) for value, _ in self.marks[:2])


@dataclass(frozen=True)
class Chart:
    """name: of its files. title: what is drawn. axis: the number and which way is good. ticks: of the axis, ends first and
    last. chance: what a random order reaches, where that is known. why: a remark for readers.
    """

    name: str
    title: str
    axis: str
    bars: tuple[Bar, ...]
    ticks: tuple[float, ...] = TAUS
    chance: float | None = None
    why: str = ""

    @property
    def words(self) -> str:
        """The same for those who do not see it."""
        parts = []
        for bar in self.bars:
            interval = "" if np.isnan(bar.low) else f" ({signed(bar.low)} to {signed(bar.high)})"
            parts.append(f"{bar.label} {' and '.join(signed(value) for value, _ in bar.marks)}{interval}")
        return f"{self.axis}. {'; '.join(parts)}." + ("" if self.chance is None else f" Chance is {signed(self.chance)}.")


def text_chart(
    name: str,
    values: Mapping[str, np.ndarray],
    ticks: Sequence[float] = SHARES,
    *,
    interval: Callable[[np.ndarray], tuple[float, float]] | None = None,
    **fields,
) -> Chart:
    """The chart that DECLARED describes, of numbers of texts [N] by label: the mean with its interval, `stats.interval_of`
    unless another is given, over the histogram of the texts. What is undefined for all texts has no row.
    """
    bars = []
    for label, numbers in values.items():
        defined = numbers[~np.isnan(numbers)]
        if len(defined):
            mean, low, high = estimate("", defined, interval=interval).values()
            inside = np.clip(defined, ticks[0], ticks[-1])
            shares = np.histogram(inside, BINS, (ticks[0], ticks[-1]))[0] / len(defined)
            colour = ATTENTION if label == "attention" else INK
            bars.append(Bar(label, ((mean, colour),), low, high, tuple(shares.tolist())))
    return Chart(name, bars=tuple(bars), ticks=tuple(ticks), **DECLARED["charts"][name], **fields)


def binned(values: np.ndarray, sizes: np.ndarray, edges: Sequence[float], unit: str) -> dict[str, np.ndarray]:
    """Numbers [N] by the bin of a size of each text: at least an edge, and less than the next. Empty bins are left out."""
    bins = {}
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        label = f"{low:g} to {high:g}" if high < np.inf else f"{low:g} or more"
        bins[f"{unit} {label}"] = values[(sizes >= low) & (sizes < high)]
    return {label: part for label, part in bins.items() if len(part)}


def svg(chart: Chart, key: str = "chart", *, alone: bool = False) -> Markup:
    """The chart as SVG. key: what the ids in it begin with. alone: as a file, which has a ground and a namespace."""
    room = WIDTH - LABELS - NUMBERS * max((min(len(bar.marks), 2) for bar in chart.bars), default=1)
    bottom, (low, *_, high) = TOP + LINE * len(chart.bars), chart.ticks

    def x(value: float) -> str:
        return f"{LABELS + room * (min(max(value, low), high) - low) / (high - low):.1f}"

    def outline(shares: Sequence[float], foot: float) -> str:
        """The histogram of a row, standing on `foot`."""
        steps = [f"V{foot - 0.8 * LINE * share / max(shares):.1f}h{room / BINS:.1f}" for share in shares]
        return f"M{LABELS} {foot:.1f}{''.join(steps)}V{foot:.1f}Z"

    return Markup(
        template("chart.svg.j2").render(
            chart=chart,
            key=key,
            alone=alone,
            width=WIDTH,
            height=bottom + FOOT,
            bottom=bottom,
            top=TOP,
            half=LINE / 2,
            rows=[(bar, TOP + LINE * (place + 0.5)) for place, bar in enumerate(chart.bars)],
            x=x,
            outline=outline,
            name=lambda bar: cut(bar.label, LONGEST),
            number=signed,
        )
    )


STYLE = {
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


class PlotsError(AttnfaithError, ImportError):
    """matplotlib is missing."""


@contextmanager
def own_style() -> Iterator[None]:
    """Draw or save under STYLE, whatever the user's matplotlibrc holds; theirs is back afterwards. Also a decorator.

    Raises PlotsError, which names the extra to install, where matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise PlotsError("figures need matplotlib, an optional extra: pip install 'attnfaith[plots]'") from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def titled_figure(title: str, subject: str, count: int, width: float, height: float) -> "Figure":
    """An empty figure, in inches, under a title and what it is about and how many texts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = [*textwrap.wrap(title, int(width * 9)), *textwrap.wrap(f"{subject} · n = {count:,}", int(width * 9))]
    figure = Figure(figsize=(width, height + 0.25 * len(lines)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("\n".join(lines), x=0.02, ha="left", fontsize=12, parse_math=False)
    return figure


@own_style()
def draw(chart: Chart, subject: str, count: int) -> "Figure":
    """The chart as a figure for a file. subject: the model in words. count: texts."""
    figure = titled_figure(chart.title, subject, count, 9.0, 1.3 + 0.34 * len(chart.bars))
    axes = figure.add_subplot()
    edges = np.linspace(chart.ticks[0], chart.ticks[-1], BINS + 1)
    for place, row in enumerate(chart.bars):
        value, colour = row.marks[0]
        colour = PALETTE[-1] if colour == INK else colour
        if row.shares:
            foot = place + 0.45
            heights = 0.8 * np.array(row.shares) / max(row.shares)
            axes.stairs(foot - heights, edges, baseline=foot, fill=True, color=colour, alpha=0.2)
        axes.plot([row.low, row.high], [place, place], color=colour, linewidth=3)
        axes.plot([value], [place], color=colour, marker="o", markersize=6)
    axes.set_ylim(len(chart.bars) - 0.4, -0.6)
    axes.set_yticks(range(len(chart.bars)), [row.label for row in chart.bars], parse_math=False)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(chart.bars)), [row.numbers for row in chart.bars], fontsize=10)
    for axis in (axes, right):
        axis.tick_params(axis="y", length=0)
    right.spines["right"].set_visible(False)
    margin = 0.01 * (chart.ticks[-1] - chart.ticks[0])
    axes.set_xlim(chart.ticks[0] - margin, chart.ticks[-1] + margin)
    axes.set_xlabel("\n".join(textwrap.wrap(f"{chart.axis}; dot and line: mean and 95 % interval", 80)))
    if chart.chance is not None:
        axes.axvline(chart.chance, color="#777777", linewidth=1)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure


@own_style()
def figure_files(figure: "Figure", stem: str, kinds: Sequence[str] = tuple(KINDS), dpi: int = 150) -> dict[str, bytes]:
    """A figure as the files `stem`.png, `stem`.svg and `stem`.pdf, or the kinds of these that are named, without dates."""
    files = {}
    for kind in kinds:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor="white", metadata=dict.fromkeys(KINDS[kind]))
        files[f"{stem}.{kind}"] = buffer.getvalue()
    return files
