"""The first screen of a page: the verdict, a chart of the measures and one text of the middle."""

import numpy as np

from attnfaith.reporting.cells import Cell, describe, reference_measure
from attnfaith.reporting.chart import measures_chart, svg
from attnfaith.reporting.heatmap import LONGEST, example, middle_text
from attnfaith.reporting.verdicts import verdict


def first_screen(cell: Cell, key: str = "chart") -> dict[str, object]:
    """The first screen of one cell of texts. key: names its chart among those of the page.

    ratio: places of ρ on a scale of 0 to 100, by name; {} where it
    was not computed. chart: SVG; None without a measure. why_chart: why it draws no more. text: the one that is shown; why:
    this one.
    """
    cell = cell.of_inputs
    outcome, chart = verdict([cell]), measures_chart([cell])
    measure = "integrated_gradients" if "integrated_gradients" in cell.measures else reference_measure(cell)
    row, why = middle_text(cell)
    ratio = outcome.ratio
    ends = {} if np.isnan(ratio.low) else {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return {
        "title": describe(cell.heading),
        "verdict": outcome,
        "ratio": {name: 100 * min(max(place, 0.0), 1.0) for name, place in ends.items()},
        "chart": chart and svg(chart, key),
        "why_chart": chart.why if chart else "",
        "text": example(cell, row, ["attention", *([measure] if measure else [])], LONGEST),
        "why": why,
    }
