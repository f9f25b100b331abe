"""What a reader sees first: the verdict, a chart of the measures and one text of the middle."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from attnfaith import record as records
from attnfaith.reporting.cards.findings import Checkpoint, only_reason
from attnfaith.reporting.cells import Cell, describe, measure_label
from attnfaith.reporting.page.chart import measures_chart, saliency_cell, svg
from attnfaith.reporting.page.heatmap import HUES, SHORTEST_EXAMPLE, Example, example
from attnfaith.reporting.sections import saliency
from attnfaith.reporting.sections.agreement import reference_measure
from attnfaith.verdict import Verdict


MOST_SHOWN = 60  # tokens of the one text


@dataclasses.dataclass(frozen=True)
class FirstScreen:
    """chart: SVG; None without a measure. why_chart: why it draws no more than it does, or "". text: the one that is shown,
    with the hue and name of its measures, and why this one. only_reason: sentences on whether these weights are the only
    reason, which never decide. ratio: places of ρ on a scale of 0 to 100, by name; {} where it was not computed.
    """

    title: str
    verdict: Verdict
    ratio: dict[str, float]
    chart: Markup | None
    why_chart: str
    text: Example
    measures: tuple[tuple[int, str], ...]
    why: str
    only_reason: list[str]
    seed: str


def first_screen(cell: Cell, key: str = "chart") -> FirstScreen:
    """The first screen of one cell of texts. key: names its chart among those of the page."""
    checkpoint = Checkpoint({}, cell)
    drawn = measures_chart(checkpoint.cells)
    beside, hues = _beside(checkpoint.cell), [*HUES]
    names = ["attention", *([beside] if beside else [])]
    row, why = middle(checkpoint.cell)
    text = example(checkpoint.cell, row, names)
    return FirstScreen(
        title=describe(cell.heading),
        verdict=checkpoint.verdict,
        ratio=_ratio(checkpoint.verdict),
        chart=None if drawn is None else svg(drawn, key),
        why_chart="" if drawn is None else drawn.why,
        text=dataclasses.replace(text, tokens=text.tokens[:MOST_SHOWN]),
        measures=tuple((hues.index(name) if name in hues else len(hues), measure_label(name)) for name in names),
        why=why,
        only_reason=only_reason(checkpoint),
        seed="" if cell.heading["seed"] == records.UNKNOWN_SEED else str(cell.heading["seed"]),
    )


def _ratio(verdict: Verdict) -> dict[str, float]:
    """Where ρ and the ends of its interval lie on the scale; beyond 0 and 1 they are drawn at its end."""
    ratio = verdict.ratio
    if np.isnan(ratio.low):
        return {}
    places = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return {name: 100 * min(max(place, 0.0), 1.0) for name, place in places.items()}


def _beside(cell: Cell) -> str | None:
    """The measure that stands beside attention: the reference of the verdict, else what tests of explanations advise."""
    if "integrated_gradients" in cell.measures:
        return "integrated_gradients"
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
