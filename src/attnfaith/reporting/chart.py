"""Charts of the measures of a model, drawn as SVG in the page's own font, for light and dark pages alike.

The chart beside the verdict shows which measure finds the words that decide, where these are known; else what the model
loses without the words that a measure ranks first; else agreement with attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from markupsafe import Markup

from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.html import template
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections import plausibility, saliency
from attnfaith.reporting.sections.agreement import ALIKE, agreement_table
from attnfaith.reporting.style import ATTENTION, PALETTE


MOST_ROWS = 12
WIDTH, LINE, TOP, FOOT = 420, 23, 46, 40  # of the drawing, in its own units
LABELS, NUMBERS = 170, 46  # width of the names on the left, of the numbers on the right
LONGEST = 24  # letters of a name that stands beside its row; where a name is longer, all stand above
FLOOR, OTHER = PALETTE[1], "currentColor"  # the ink of the page, light or dark
SHARES, TAUS = (0.0, 0.5, 1.0), (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Ticks of axes that are never zoomed."""
BINS = np.linspace(-1, 1, 41)


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


def measures_chart(cells: Sequence[Cell]) -> Chart | None:
    """The chart of a model's records, of one cell each; None where no measure was taken beside attention."""
    evidence = ("Which measure finds the tokens that decide the label?", "Average precision, 1 is best")
    tested = (cell for cell in cells if saliency.SECTION.applies(cell) and "attention" in saliency.measures(cell))
    cell = next(tested, None)
    if cell is not None:
        table = frame(saliency.TESTS_TABLE, [cell])
        titles, test, ticks = evidence, "average_precision", SHARES
        if test not in saliency.counted_tests(cell, table["test"]):
            axis = "Fall of the prediction without its first tokens (AOPC), large is good"
            titles, test, ticks = ("Which measure tells what the model needs?", axis), "comprehensiveness", ()
        rows = saliency.by_mean(table, test)
        chance = rows.loc[rows["measure"] == "random", "mean"]
        rows = rows[["measure", "mean", "ci_low", "ci_high"]]
        return chart_of(*titles, rows, float(chance.iloc[0]) if len(chance) else np.nan, ticks)
    for cell in cells:
        if cell.heading["dataset"] in saliency.GENERATED and plausibility.SECTION.applies(cell) and cell.measures:
            rows = frame(plausibility.TABLE, [cell]).dropna(subset="auprc_mean")
            rows = rows.sort_values("auprc_mean", ascending=False, kind="stable")
            if len(rows):
                chance = float(rows["random_baseline"].iloc[0])
                return chart_of(*evidence, rows[["scores", "auprc_mean", "ci_low", "ci_high"]], chance, SHARES)
    measured = next((cell for cell in cells if cell.measures), None)
    if measured is None:
        return None
    chart = agreement_chart(measured)
    marked = plausibility.SECTION.applies(measured) and measured.heading["dataset"] not in saliency.GENERATED
    why = (
        "Evidence is marked in these texts. Marks of people say what convinces people, not what the model used: so "
        "agreement is drawn, and how well each measure finds the marked tokens stands in the table of plausibility."
    )
    return replace(chart, why=why) if marked else chart


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


def chart_of(title: str, axis: str, rows: pd.DataFrame, chance: float, ticks: tuple) -> Chart:
    """rows: measure, mean and interval, the best first. Beyond MOST_ROWS attention and the floors stay."""
    rows = list(rows.itertuples(index=False))
    drawn = [row for place, row in enumerate(rows) if place < MOST_ROWS or row[0] in ("attention", *saliency.FLOORS)]
    colours = {"attention": ATTENTION, **dict.fromkeys(saliency.FLOORS, FLOOR)}
    bars = tuple(Bar(measure_label(name), *numbers, colours.get(name, OTHER)) for name, *numbers in drawn)
    return Chart(title, axis, bars, chance, len(rows) - len(drawn), ticks=ticks)


def svg(chart: Chart, key: str = "chart", *, alone: bool = False) -> Markup:
    """The chart as SVG. key: what the ids in it begin with. alone: as a file, which has a ground and a namespace."""
    above = any(len(bar.label) > LONGEST for bar in chart.bars)
    ticks = chart.ticks or round_ticks(chart)
    left, line = (16, LINE + 15) if above else (LABELS, LINE)
    room, bottom = WIDTH - left - NUMBERS, TOP + line * len(chart.bars)

    def x(value: float) -> str:
        return f"{left + room * (min(max(value, ticks[0]), ticks[-1]) - ticks[0]) / (ticks[-1] - ticks[0]):.1f}"

    def outline(shares: Sequence[float], foot: float) -> str:
        """The histogram of a row, standing on `foot`."""
        width, highest = room / len(shares), max(shares)
        steps = [f"V{foot - 0.8 * LINE * share / highest:.1f}h{width:.1f}" for share in shares]
        return f"M{left} {foot:.1f}{''.join(steps)}V{foot:.1f}Z"

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
            rows=[(bar, TOP + line * (place + 1) - LINE / 2) for place, bar in enumerate(chart.bars)],
            ticks=[(x(tick), _number(tick)) for tick in ticks],
            chance=None if np.isnan(chart.chance) else x(chart.chance),
            x=x,
            outline=outline,
            number=_number,
            defined=lambda value: not np.isnan(value),
        )
    )


def round_ticks(chart: Chart) -> np.ndarray:
    """Two to five round places along all numbers of a chart, 0 among them."""
    ends = [value for bar in chart.bars for value in (bar.value, bar.low, bar.high)] + [chart.chance, 0.0]
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    power = 10.0 ** np.floor(np.log10(high - low)) if high > low else 1.0
    step = (
        next(power * part for part in (0.2, 0.5, 1.0, 2.0, 5.0) if high - low <= 4.0 * power * part) if high > low else 1.0
    )
    start = np.floor(low / step)
    return np.arange(start, max(np.ceil(high / step), start + 1) + 0.5) * step


def _number(value: float) -> str:
    return f"{round(float(value), 2) + 0.0:.2f}".replace("-", "−")
