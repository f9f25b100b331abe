"""The first screen of a page: the verdict, a chart of the measures and one text of the middle."""

from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from markupsafe import Markup

from attnfaith.reporting.cards import only_reason
from attnfaith.reporting.cells import Cell, describe, measure_label, reference_measure
from attnfaith.reporting.chart import measures_chart, svg
from attnfaith.reporting.heatmap import SHORTEST_EXAMPLE, Example, example, signed
from attnfaith.reporting.verdicts import NEEDS, verdict
from attnfaith.verdict import BESIDE, DO_NOT_SHOW, MAY_SHOW, Verdict


MOST_SHOWN = 60  # tokens of the one text


@dataclass(frozen=True)
class FirstScreen:
    """The first screen of one model.

    command: to paste into a terminal, "" where none helps. ratio: places of ρ on a scale of 0 to 100, by name; {} where it
    was not computed. chart: SVG; None without a measure. why_chart: why it draws no more. text: the one that is shown; why:
    this one. only_reason: sentences on whether these weights are the only reason.
    """

    title: str
    verdict: Verdict
    command: str
    ratio: dict[str, float]
    chart: Markup | None
    why_chart: str
    text: Example
    why: str
    only_reason: list[str]


def first_screen(cell: Cell, key: str = "chart") -> FirstScreen:
    """The first screen of one cell of texts. key: names its chart among those of the page."""
    cell = cell.of_inputs
    outcome, chart = verdict([cell]), measures_chart([cell])
    measure = "integrated_gradients" if "integrated_gradients" in cell.measures else reference_measure(cell)
    row, why = middle_text(cell)
    ratio = outcome.ratio
    ends = {} if np.isnan(ratio.low) else {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return FirstScreen(
        title=describe(cell.heading),
        verdict=outcome,
        command=_command(cell, outcome, measure),
        ratio={name: 100 * min(max(place, 0.0), 1.0) for name, place in ends.items()},
        chart=chart and svg(chart, key),
        why_chart=chart.why if chart else "",
        text=example(cell, row, ["attention", *([measure] if measure else [])], MOST_SHOWN),
        why=why,
        only_reason=only_reason(cell),
    )


def _command(cell: Cell, verdict: Verdict, measure: str | None) -> str:
    """The command to paste into a terminal next. measure: the measure that stands beside attention."""
    folder = cell.settings.get("recipe", {}).get("output_dir", "")
    run = folder if folder and not PurePath(folder).is_absolute() else "RUN"
    if verdict.outcome == MAY_SHOW:
        return f"attnfaith show {run}"
    if verdict.outcome in (BESIDE, DO_NOT_SHOW):
        return f"attnfaith show {run} --measures {measure}" if measure else ""
    return "" if cell.has(*NEEDS) else f"attnfaith measure {run} --add integrated_gradients comprehensiveness"


def middle_text(cell: Cell) -> tuple[int, str]:
    """The row of one text that is no extreme, and why it is this one: of those of SHORTEST_EXAMPLE to MOST_SHOWN tokens the
    one whose tau is nearest to the median of all; of equals, and without a tau, the first by instance id.
    """
    fitting = (cell.lengths >= SHORTEST_EXAMPLE) & (cell.lengths <= MOST_SHOWN)
    rows = np.flatnonzero(fitting if fitting.any() else cell.lengths == cell.lengths.max())
    measure = reference_measure(cell)
    tau = np.full(len(cell), np.nan) if measure is None else cell.tau("attention", measure)
    defined = rows[~np.isnan(tau[rows])]
    if not len(defined):
        return min(rows.tolist(), key=lambda row: cell.instance_ids[row]), "The first text by instance id."
    median = float(np.nanmedian(tau))
    distances = np.abs(tau - median).round(12)
    row = min(defined.tolist(), key=lambda row: (distances[row], cell.instance_ids[row]))
    label = measure_label(measure)
    return row, f"No extreme: its τ of attention and {label}, {signed(tau[row])}, is next to the median, {signed(median)}."
