"""Charts of numbers on a fixed axis, drawn as SVG in the page's own font, for light and dark pages alike."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup

from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.html import template
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections import plausibility
from attnfaith.reporting.sections.agreement import ALIKE, agreement_table
from attnfaith.reporting.sections.saliency import GENERATED
from attnfaith.reporting.style import ATTENTION
from attnfaith.support.errors import cut


WIDTH, LINE, TOP, FOOT = 420, 23, 46, 40  # of the drawing, in its own units
LABELS, NUMBERS = 175, 46  # width of the names on the left, of the numbers on the right
LONGEST = 28  # letters of a name
INK = "currentColor"  # of the page, light or dark
SHARES, TAUS = (0.0, 0.5, 1.0), (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Ticks of the two axes."""
BINS = np.linspace(-1, 1, 41)


@dataclass(frozen=True)
class Bar:
    """One row. marks: (value, colour) of each dot, the first with its 95 % interval low, high; NaN undefined. shares: of
    texts in each of BINS, drawn behind it.
    """

    label: str
    marks: tuple[tuple[float, str], ...]
    low: float = np.nan
    high: float = np.nan
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """title: what is drawn. axis: the number and which way is good. ticks: of the axis. chance: what a random order reaches.
    why: why it draws this and no more, where a reader may ask.
    """

    title: str
    axis: str
    bars: tuple[Bar, ...]
    ticks: tuple[float, ...] = TAUS
    chance: float = 0.0
    why: str = ""

    @property
    def words(self) -> str:
        """The same for those who do not see it."""
        parts = []
        for bar in self.bars:
            interval = "" if np.isnan(bar.low) else f" ({_number(bar.low)} to {_number(bar.high)})"
            parts.append(f"{bar.label} {' and '.join(_number(value) for value, _ in bar.marks)}{interval}")
        return f"{self.axis}. {'; '.join(parts)}. Chance is {_number(self.chance)}."


def measures_chart(cells: Sequence[Cell]) -> Chart | None:
    """The chart of a model's records: which measure finds the words that decide, where these are known; else agreement with
    attention. None where no measure was taken beside attention.
    """
    measured = [cell for cell in cells if cell.measures]
    marked = [cell for cell in measured if plausibility.SECTION.applies(cell)]
    for cell in marked:
        rows = frame(plausibility.TABLE, [cell]).dropna(subset="auprc_mean")
        if cell.heading["dataset"] in GENERATED and len(rows):
            return _evidence_chart(rows.sort_values("auprc_mean", ascending=False, kind="stable"))
    why = (
        "Evidence is marked in these texts. Marks of people say what convinces people, not what the model used: so "
        "agreement is drawn, and how well each measure finds the marked tokens stands in the table of plausibility."
    )
    return agreement_chart(measured[0], why=why if measured[0] in marked else "") if measured else None


def _evidence_chart(rows: pd.DataFrame) -> Chart:
    bars = [
        Bar(
            measure_label(row["scores"]),
            ((row["auprc_mean"], ATTENTION if row["scores"] == "attention" else INK),),
            row["ci_low"],
            row["ci_high"],
        )
        for row in rows.to_dict("records")
    ]
    title, axis = "Which measure finds the tokens that decide the label?", "Average precision, 1 is best"
    return Chart(title, axis, tuple(bars), SHARES, float(rows["random_baseline"].iloc[0]))


def agreement_chart(cell: Cell, why: str = "") -> Chart:
    """Tau of attention with each measure of inputs, the best first, each with its texts as a small histogram. A measure that
    orders every text as attention does is named and not drawn.
    """
    cell = cell.of_inputs
    table = agreement_table([cell])
    rows = table[(table["class"] == "overall") & table["pair"].str.startswith("attention–") & table["tau_mean"].notna()]
    bars, alike = [], []
    for row in rows.sort_values("tau_mean", ascending=False, kind="stable").to_dict("records"):
        name = row["pair"].partition("–")[2]
        tau = cell.tau("attention", name)
        tau = tau[~np.isnan(tau)]
        if tau.min() > ALIKE:
            alike.append(measure_label(name))
            continue
        shares = tuple((np.histogram(tau, BINS)[0] / len(tau)).tolist())
        bars.append(Bar(measure_label(name), ((row["tau_mean"], INK),), row["ci_low"], row["ci_high"], shares))
    left_out = f"Not drawn, because they order every text as attention does: {', '.join(alike)}." if alike else ""
    axis = "Mean Kendall’s τ with attention, 1 the same order; behind it the texts"
    title = "Which measures order tokens as attention does?"
    return Chart(title, axis, tuple(bars), why=" ".join(filter(None, (left_out, why))))


def svg(chart: Chart, key: str = "chart", *, alone: bool = False) -> Markup:
    """The chart as SVG. key: what the ids in it begin with. alone: as a file, which has a ground and a namespace."""
    room, bottom = WIDTH - LABELS - NUMBERS, TOP + LINE * len(chart.bars)
    low, *_, high = chart.ticks

    def x(value: float) -> str:
        return f"{LABELS + room * (min(max(value, low), high) - low) / (high - low):.1f}"

    def outline(shares: Sequence[float], foot: float) -> str:
        """The histogram of a row, standing on `foot`."""
        width, highest = room / len(shares), max(shares)
        steps = [f"V{foot - 0.8 * LINE * share / highest:.1f}h{width:.1f}" for share in shares]
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
            rows=[(bar, TOP + LINE * (place + 1) - LINE / 2) for place, bar in enumerate(chart.bars)],
            x=x,
            outline=outline,
            name=lambda bar: cut(bar.label, LONGEST),
            number=_number,
        )
    )


def _number(value: float) -> str:
    return f"{round(float(value), 2) + 0.0:.2f}".replace("-", "−")
