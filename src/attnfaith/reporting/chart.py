"""Charts of the measures of a model, drawn as SVG in the page's own font.

The chart beside the verdict shows which measure finds the words that decide, where these are known; else what the model
loses without the words that a measure ranks first; else agreement with attention.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from markupsafe import Markup

from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections import plausibility, saliency
from attnfaith.reporting.sections.agreement import agreement_table
from attnfaith.reporting.style import ATTENTION, PALETTE


MOST_ROWS = 12
WIDTH, LINE, TOP, FOOT = 420, 23, 46, 40  # of the drawing, in its own units
LABELS, NUMBERS = 170, 46  # width of the names on the left, of the numbers on the right
LONGEST = 24  # letters of a name that stands beside its row; where one is longer, all stand above
EVIDENCE = ("Which measure finds the tokens that decide the label?", "Average precision, 1 is best")
FLOOR, OTHER = PALETTE[1], "currentColor"  # the ink of the page, light or dark
SHARES, TAUS = (0.0, 0.5, 1.0), (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Ticks of axes that are never zoomed."""
BINS = np.linspace(-1, 1, 41)
ALIKE = 0.999  # tau of orders that differ by rounding alone


@dataclass(frozen=True)
class Bar:
    """One row: a mean with its 95 % interval, NaN undefined. shares: of texts in each bin of the axis, drawn behind it.
    other, other_colour: a second mark in the row.
    """

    label: str
    value: float
    low: float
    high: float
    colour: str
    shares: tuple[float, ...] = ()
    other: float = np.nan
    other_colour: str = OTHER


@dataclass(frozen=True)
class Chart:
    """title: what is drawn. axis: the number and which way is good. chance: what a random order reaches, NaN not known.
    left_out: rows that are not drawn, in number. mark: what chance is called. why: why it draws this and no more, where a
    reader may ask. ticks: of a fixed axis; () takes them from the numbers.
    """

    title: str
    axis: str
    bars: tuple[Bar, ...]
    chance: float = np.nan
    left_out: int = 0
    mark: str = "chance"
    why: str = ""
    ticks: tuple[float, ...] = ()

    @property
    def words(self) -> str:
        """The same for those who do not see it."""
        parts = []
        for bar in self.bars:
            interval = "" if np.isnan(bar.low) else f" ({_number(bar.low)} to {_number(bar.high)})"
            other = "" if np.isnan(bar.other) else f" and {_number(bar.other)}"
            parts.append(f"{bar.label} {_number(bar.value)}{interval}{other}")
        chance = "is not known" if np.isnan(self.chance) else f"is {_number(self.chance)}"
        more = f" {self.left_out} more are in the tables." if self.left_out else ""
        return f"{self.axis}. {'; '.join(parts)}. {self.mark[0].upper()}{self.mark[1:]} {chance}.{more}"


def saliency_cell(cells: Sequence[Cell]) -> Cell | None:
    """The first cell in which attention was tested by erasure; None where it was not."""
    tested = (cell for cell in cells if saliency.SECTION.applies(cell))
    return next((cell for cell in tested if "attention" in saliency.measures(cell)), None)


def measures_chart(cells: Sequence[Cell]) -> Chart | None:
    """The chart of a model's records, of one cell each; None where no measure was taken beside attention."""
    tested = saliency_cell(cells)
    if tested is not None:
        table = frame(saliency.TESTS_TABLE, [tested])
        evidence = "average_precision" in saliency.counted_tests(tested, table["test"])
        return _of_test(table, "average_precision" if evidence else "comprehensiveness")
    for cell in cells:
        if cell.heading["dataset"] in saliency.GENERATED and plausibility.SECTION.applies(cell) and cell.measures:
            chart = _of_evidence(cell)
            if chart is not None:
                return chart
    measured = next((cell for cell in cells if cell.measures), None)
    return None if measured is None else replace(agreement_chart(measured), why=_why_agreement(measured))


def _of_evidence(cell: Cell) -> Chart | None:
    """By what decides the label; None where no text has such a token."""
    rows = frame(plausibility.TABLE, [cell]).dropna(subset="auprc_mean")
    rows = rows.sort_values("auprc_mean", ascending=False, kind="stable")
    if rows.empty:
        return None
    bars = rows[["scores", "auprc_mean", "ci_low", "ci_high"]].itertuples(index=False)
    return _chart(*EVIDENCE, bars, float(rows["random_baseline"].iloc[0]), SHARES)


def _of_test(table: pd.DataFrame, test: str) -> Chart:
    rows = saliency.by_mean(table, test)
    titles, ticks = EVIDENCE, SHARES
    if test == "comprehensiveness":
        titles, ticks = (
            (
                "Which measure tells what the model needs?",
                "Fall of the prediction without its first tokens (AOPC), large is good",
            ),
            (),
        )
    chance = rows.loc[rows["measure"] == "random", "mean"]
    bars = rows[["measure", "mean", "ci_low", "ci_high"]].itertuples(index=False)
    return _chart(*titles, bars, float(chance.iloc[0]) if len(chance) else np.nan, ticks)


def agreement_chart(cell: Cell, hidden: bool = False) -> Chart:
    """Tau of attention with each measure of inputs, the best first, each with its texts as a small histogram; hidden: with
    the measures of encoder states instead. A measure that orders every text as attention does is named and not drawn.
    """
    table = agreement_table([cell])
    rows = table[(table["class"] == "overall") & table["pair"].str.startswith("attention–") & table["tau_mean"].notna()]
    bars, alike = [], []
    for row in rows.sort_values("tau_mean", ascending=False, kind="stable").to_dict("records"):
        name = row["pair"].partition("–")[2]
        if name.endswith("_hidden") != hidden:
            continue
        tau = cell.tau("attention", name)
        tau = tau[~np.isnan(tau)]
        if tau.min() > ALIKE:
            alike.append(measure_label(name))
            continue
        shares = np.histogram(tau, BINS)[0] / len(tau)
        numbers = (row["tau_mean"], row["ci_low"], row["ci_high"])
        bars.append(Bar(measure_label(name), *numbers, OTHER, tuple(map(float, shares))))
    why = f"Not drawn, because they order every text as attention does: {', '.join(alike)}." if alike else ""
    title = "Which measures order tokens as attention does?"
    axis = "Mean Kendall’s τ with attention, 1 the same order; behind it the texts"
    return Chart(title, axis, tuple(bars), 0.0, why=why, ticks=TAUS)


def _why_agreement(cell: Cell) -> str:
    """Why measures are drawn by agreement, of texts whose evidence is known."""
    if cell.heading["dataset"] in saliency.GENERATED:
        return (
            "Some tokens of these texts decide the label, but the record does not hold which, or these are all tokens: so "
            "agreement is drawn."
        )
    if plausibility.SECTION.applies(cell):
        return (
            "Evidence is marked in these texts. Marks of people say what convinces people, not what the model used: so "
            "agreement is drawn, and how well each measure finds the marked tokens stands in the table of plausibility."
        )
    return ""


def _chart(title: str, axis: str, bars: Iterable[tuple[str, float, float, float]], chance: float, ticks: tuple) -> Chart:
    """bars: measure, mean and interval, the best first. Beyond MOST_ROWS attention and the floors stay."""
    bars = list(bars)
    kept = [bar for place, bar in enumerate(bars) if place < MOST_ROWS or bar[0] in ("attention", *saliency.FLOORS)]
    colours = {"attention": ATTENTION, **dict.fromkeys(saliency.FLOORS, FLOOR)}
    shown = tuple(Bar(measure_label(name), *numbers, colours.get(name, OTHER)) for name, *numbers in kept)
    return Chart(title, axis, shown, chance, len(bars) - len(kept), ticks=ticks)


def svg(chart: Chart, key: str = "chart", *, alone: bool = False) -> Markup:
    """The chart as SVG. key: what the ids in it begin with. alone: as a file, which has a ground and a namespace."""
    above = any(len(bar.label) > LONGEST for bar in chart.bars)
    ticks = chart.ticks or _ticks(chart)
    left, line = (16, LINE + 15) if above else (LABELS, LINE)
    room = WIDTH - left - NUMBERS

    def x(value: float) -> str:
        return f"{left + room * (min(max(value, ticks[0]), ticks[-1]) - ticks[0]) / (ticks[-1] - ticks[0]):.1f}"

    def outline(shares: Sequence[float], foot: float) -> str:
        """The histogram of a row, standing on `foot`."""
        width, highest = room / len(shares), max(shares)
        steps = [f"V{foot - 0.8 * LINE * share / highest:.1f}h{width:.1f}" for share in shares]
        return f"M{left} {foot:.1f}{''.join(steps)}V{foot:.1f}Z"

    bottom = TOP + line * len(chart.bars)
    rows = [(bar, TOP + line * (place + 1) - LINE / 2) for place, bar in enumerate(chart.bars)]
    return Markup(
        template("chart.svg.j2").render(
            chart=chart,
            key=key,
            alone=alone,
            above=above,
            width=WIDTH,
            height=bottom + FOOT,
            bottom=bottom,
            top=TOP,
            half=LINE / 2,
            rows=rows,
            ticks=[(x(tick), _number(tick)) for tick in ticks],
            chance=None if np.isnan(chart.chance) else x(chart.chance),
            x=x,
            outline=outline,
            number=_number,
            known=lambda value: not np.isnan(value),
        )
    )


def _ticks(chart: Chart) -> np.ndarray:
    """Two to five round places along all numbers of a chart, 0 among them."""
    ends = [value for bar in chart.bars for value in (bar.value, bar.low, bar.high)] + [chart.chance, 0.0]
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    step = _step(high - low)
    start = np.floor(low / step)
    return np.arange(start, max(np.ceil(high / step), start + 1) + 0.5) * step


def _step(span: float) -> float:
    """A round distance of ticks, of which two to five stand along the span; 1 where all is 0."""
    if span <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(span))
    return float(next(power * part for part in (0.2, 0.5, 1.0, 2.0, 5.0) if span / (power * part) <= 4.0))


def _number(value: float) -> str:
    return f"{round(float(value), 2) + 0.0:.2f}".replace("-", "−")
