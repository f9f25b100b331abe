"""What a reader sees first: the answer, a chart of the measures, one text of the middle, and what to show instead."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from attnfaith import record as records
from attnfaith.reporting.cards.findings import Checkpoint, Use
from attnfaith.reporting.cards.verdicts import by_verdict
from attnfaith.reporting.cells import Cell, describe, measure_label
from attnfaith.reporting.page.answer import RULES, Answer, Finding, Rule, answer
from attnfaith.reporting.page.answer_facts import facts_of, saliency_cell
from attnfaith.reporting.page.chart import measures_chart, svg
from attnfaith.reporting.page.heatmap import HUES, SHORTEST_EXAMPLE, Example, example
from attnfaith.reporting.sections import saliency
from attnfaith.reporting.sections.agreement import reference_measure


MOST_SHOWN = 60  # tokens of the one text


@dataclasses.dataclass(frozen=True)
class FirstScreen:
    """rules: each with what it says of this model. chart: SVG; None without a measure. why_chart: why it draws no more than
    it does; "" where that needs no word. text: the one that is shown, with the hue and name of its measures, and why this
    one. uses: what attention may be shown for, by verdict.
    """

    title: str
    answer: Answer
    rules: tuple[tuple[Rule, Finding], ...]
    chart: Markup | None
    why_chart: str
    text: Example
    measures: tuple[tuple[int, str], ...]
    why: str
    uses: list[tuple[str, list[Use]]]
    seed: str


def first_screen(cell: Cell, key: str = "chart") -> FirstScreen:
    """The first screen of one cell of texts. key: names its chart among those of the page."""
    checkpoint = Checkpoint({}, cell)
    given = answer(facts_of(checkpoint))
    drawn = measures_chart(checkpoint.cells)
    beside, hues = _beside(checkpoint.cell), [*HUES]
    names = ["attention", *([beside] if beside else [])]
    row, why = middle(checkpoint.cell)
    text = example(checkpoint.cell, row, names)
    return FirstScreen(
        title=describe(cell.heading),
        answer=given,
        rules=tuple(zip(RULES, given.findings, strict=True)),
        chart=None if drawn is None else svg(drawn, key),
        why_chart="" if drawn is None else drawn.why,
        text=dataclasses.replace(text, tokens=text.tokens[:MOST_SHOWN]),
        measures=tuple((hues.index(name) if name in hues else len(hues), measure_label(name)) for name in names),
        why=why,
        uses=by_verdict(checkpoint.uses),
        seed="" if cell.heading["seed"] == records.UNKNOWN_SEED else str(cell.heading["seed"]),
    )


def _beside(cell: Cell) -> str | None:
    """The measure that stands beside attention: what is advised, else what attention is held against."""
    tested = saliency_cell([cell])
    advised = None if tested is None else saliency.advise(tested).measure
    advised = advised and advised.removeprefix(records.ABSOLUTE)
    return advised if advised in cell.measures else reference_measure(cell)


def middle(cell: Cell) -> tuple[int, str]:
    """The row of one text that is no extreme, and why it is this one: of those of SHORTEST_EXAMPLE to MOST_SHOWN tokens the
    one whose tau is nearest to the median of all; of equals, and without a tau, the first by instance id.
    """
    fitting = (cell.lengths >= SHORTEST_EXAMPLE) & (cell.lengths <= MOST_SHOWN)
    rows = np.flatnonzero(fitting if fitting.any() else cell.lengths == cell.lengths.max())
    measure = reference_measure(cell)
    tau = np.full(len(cell), np.nan) if measure is None else cell.tau("attention", measure)
    known = rows[~np.isnan(tau[rows])]
    if not len(known):
        return _first(cell, rows), "The first text by instance id."
    median = float(np.median(tau[~np.isnan(tau)]))
    distances = np.abs(tau[known] - median)
    row = _first(cell, known[distances <= distances.min() + 1e-12])
    label = measure_label(measure)
    return row, f"No extreme: its τ of attention and {label}, {_signed(tau[row])}, is next to the median, {_signed(median)}."


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _first(cell: Cell, rows: Sequence[int]) -> int:
    return int(min(rows, key=lambda row: cell.instance_ids[row]))
