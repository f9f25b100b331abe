"""One chart of the measures of a model, drawn as SVG without a library: where what decides the label is known by that, else
by what the model says without the tokens that a measure ranks first, else by agreement with attention. Chance is marked
where known.
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
EVIDENCE = ("Which measure finds the tokens that decide the label?", "Average precision, 1 is best")
FLOOR, OTHER = PALETTE[1], "currentColor"  # the ink of the page, light or dark


@dataclass(frozen=True)
class Bar:
    """One measure: its mean with the 95 % interval, NaN undefined."""

    label: str
    value: float
    low: float
    high: float
    colour: str


@dataclass(frozen=True)
class Chart:
    """title: what is drawn. axis: the number and which way is good. chance: what a random order reaches, NaN not known.
    left_out: measures that are not drawn, in number. mark: what chance is called, where it is something else. why: why it
    draws this and no more, where a reader may ask.
    """

    title: str
    axis: str
    bars: tuple[Bar, ...]
    chance: float
    left_out: int
    mark: str = "chance"
    why: str = ""

    @property
    def words(self) -> str:
        """The same for those who do not see it."""
        said = [f"{bar.label} {_number(bar.value)}{_interval(bar)}" for bar in self.bars]
        known = f"is {_number(self.chance)}"
        chance = f"{self.mark[0].upper()}{self.mark[1:]} {'is not known' if np.isnan(self.chance) else known}"
        more = f" {self.left_out} more are in the tables." if self.left_out else ""
        return f"{self.axis}. {'; '.join(said)}. {chance}.{more}"


def saliency_cell(cells: Sequence[Cell]) -> Cell | None:
    """The first cell in which attention was tested by erasure; None where it was not."""
    tested = (cell for cell in cells if saliency.SECTION.applies(cell))
    return next((cell for cell in tested if "attention" in saliency.measures(cell)), None)


def measures_chart(cells: Sequence[Cell]) -> Chart | None:
    """The chart of a model's records, of one cell each; None where no measure was taken beside attention."""
    tested = saliency_cell(cells)
    if tested is not None:
        table = frame(saliency.TESTS_TABLE, [tested])
        known = "average_precision" in saliency.counted_tests(tested, table)
        return _of_test(table, "average_precision" if known else "comprehensiveness", tested)
    known = (cell for cell in cells if cell.heading["dataset"] in saliency.GENERATED and plausibility.SECTION.applies(cell))
    evidence = next((_of_evidence(cell) for cell in known if cell.measures), None)
    return evidence or next((_of_agreement(cell) for cell in cells if cell.measures), None)


def _of_evidence(cell: Cell) -> Chart | None:
    """By what decides the label; None where no text has such a token."""
    rows = frame(plausibility.TABLE, [cell]).dropna(subset="auprc_mean")
    rows = rows.sort_values("auprc_mean", ascending=False, kind="stable")
    if rows.empty:
        return None
    bars = [(row["scores"], row["auprc_mean"], row["ci_low"], row["ci_high"]) for row in rows.to_dict("records")]
    return _chart(*EVIDENCE, bars, float(rows["random_baseline"].iloc[0]))


def _of_test(table: pd.DataFrame, test: str, cell: Cell) -> Chart:
    rows = table[(table["test"] == test) & table["mean"].notna()].sort_values("rank", kind="stable")
    titles = {
        "average_precision": EVIDENCE,
        "comprehensiveness": (
            "Which measure tells what the model needs?",
            "Fall of the prediction without its first tokens (AOPC), large is good",
        ),
    }
    chance = rows.loc[rows["measure"] == "random", "mean"]
    bars = [(row["measure"], row["mean"], row["ci_low"], row["ci_high"]) for row in rows.to_dict("records")]
    return _chart(*titles[test], bars, float(chance.iloc[0]) if len(chance) else np.nan)


def _of_agreement(cell: Cell) -> Chart:
    table = agreement_table([cell])
    rows = table[(table["class"] == "overall") & table["pair"].str.startswith("attention–") & table["tau_mean"].notna()]
    rows = rows.sort_values("tau_mean", ascending=False, kind="stable").to_dict("records")
    bars = [(row["pair"].partition("–")[2], row["tau_mean"], row["ci_low"], row["ci_high"]) for row in rows]
    title = "Which measures order tokens as attention does?"
    return replace(_chart(title, "Mean Kendall’s τ with attention, 1 the same order", bars, 0.0), why=_why_agreement(cell))


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


def _chart(title: str, axis: str, bars: Iterable[tuple[str, float, float, float]], chance: float) -> Chart:
    """bars: measure, mean and interval, the best first. Beyond MOST_ROWS attention and the floors stay."""
    bars = list(bars)
    kept = [bar for place, bar in enumerate(bars) if place < MOST_ROWS or bar[0] in ("attention", *saliency.FLOORS)]
    colours = {"attention": ATTENTION, **dict.fromkeys(saliency.FLOORS, FLOOR)}
    shown = tuple(Bar(measure_label(name), *numbers, colours.get(name, OTHER)) for name, *numbers in kept)
    return Chart(title, axis, shown, chance, len(bars) - len(kept))


def svg(chart: Chart, key: str = "chart", *, alone: bool = False) -> Markup:
    """The chart as SVG, without a style of its own. key: what the ids in it begin with. alone: as a file, which has a ground
    and a namespace.
    """
    ends = [value for bar in chart.bars for value in (bar.value, bar.low, bar.high)] + [chart.chance, 0.0]
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    step = _step(high - low)
    start = np.floor(low / step)
    ticks = np.arange(start, max(np.ceil(high / step), start + 1) + 0.5) * step
    room = WIDTH - LABELS - NUMBERS

    def x(value: float) -> str:
        return f"{LABELS + room * (value - ticks[0]) / (ticks[-1] - ticks[0]):.1f}"

    bottom = TOP + LINE * len(chart.bars)
    return Markup(
        template("chart.svg.j2").render(
            chart=chart,
            key=key,
            alone=alone,
            width=WIDTH,
            height=bottom + FOOT,
            bottom=bottom,
            top=TOP,
            rows=[(bar, TOP + LINE * (place + 0.5)) for place, bar in enumerate(chart.bars)],
            ticks=[(x(tick), _number(tick)) for tick in ticks],
            chance=None if np.isnan(chart.chance) else x(chart.chance),
            x=x,
            number=_number,
            known=lambda value: not np.isnan(value),
            short=lambda label: label if len(label) <= 24 else label[:23] + "…",
        )
    )


def _step(span: float) -> float:
    """A round distance of ticks, of which two to five stand along the span; 1 where all is 0."""
    if span <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(span))
    return float(next(power * part for part in (0.2, 0.5, 1.0, 2.0, 5.0) if span / (power * part) <= 4.0))


def _number(value: float) -> str:
    return f"{round(float(value), 2) + 0.0:.2f}".replace("-", "−")


def _interval(bar: Bar) -> str:
    return "" if np.isnan(bar.low) else f" ({_number(bar.low)} to {_number(bar.high)})"
