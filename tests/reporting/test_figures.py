"""Figures: whole at every size of record, the same bytes every time, without settings of the caller, and to be read."""

from itertools import pairwise

import numpy as np
import pytest

from attnfaith.reporting import sections
from attnfaith.reporting.cells import describe, one_cell
from attnfaith.reporting.charts import ATTENTION, INK, binned, draw, text_chart
from attnfaith.reporting.sections import changes
from attnfaith.stats import interval_of
from tests import records
from tests.records import build
from tests.sections import with_permutations


def charts_of(record):
    """Every chart of the record's only cell, by name."""
    cell = one_cell(record)
    charts = [section.chart_of(cell) for section in sections.of_cell(cell)]
    return {chart.name: chart for chart in charts if chart}


def test_a_row_has_the_mean_its_interval_and_the_texts():
    values = np.array([0.0, 0.1, 0.45, 0.9, 1.3, np.nan])
    chart = text_chart("evidence", {"attention": values, "other": values[:2], "none": values[-1:]})
    first, second = chart.bars
    assert first.marks == ((np.nanmean(values), ATTENTION),) and (first.low, first.high) == interval_of(values[:5])
    assert second.marks == ((0.05, INK),) and "other 0.05" in chart.words
    places = np.flatnonzero(first.shares)
    assert places.tolist() == [0, 4, 18, 36, 39] and sum(first.shares) == pytest.approx(1), "1.3 stands at the end"
    figure = draw(chart, "a model", 6)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["attention", "other"]


def test_lines_of_dispersion_and_agreement():
    scores = {"gradient": [1, 2, 3, 4], "leave_one_out": [1, 2, 4, 3], "norm": [4, 1, 3, 2]}
    texts = [{"attention": np.array(weights) / 10, **scores} for weights in ([1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 4])]
    charts = charts_of(build(texts, measures=tuple(scores)))
    assert [bar.label for bar in charts["tau_by_measure"].bars] == ["gradient", "leave-one-out", "norm"]
    assert [bar.marks[0][0] for bar in charts["tau_by_measure"].bars][:2] == pytest.approx([1 / 3, 4 / 18])
    assert [bar.label for bar in charts["dispersion_by_scores"].bars] == ["attention", "gradient", "leave-one-out", "norm"]
    alike = charts_of(build([{"attention": [0.1, 0.9], "gradient": [1, 2]}] * 2, measures=("gradient",)))
    assert "tau_by_measure" not in alike, "a measure that orders every text as attention does is not drawn"


def test_bins_hold_every_text_that_has_a_size():
    values, sizes = np.arange(5.0), np.array([0.0, 0.25, 0.3, 1.0, np.nan])
    bins = binned(values, sizes, (0, 0.25, 0.5, 0.75), "weight")
    assert {label: list(part) for label, part in bins.items()} == {
        "weight 0 to 0.25": [0],
        "weight 0.25 to 0.5": [1, 2],
        "weight 0.75 or more": [3],
    }
    texts = [{"attention": weights} for weights in ([0.5, 0.5], [0.9, 0.1], [0.2] * 5, [1.0], [])]
    chart = changes.PERMUTATION.chart_of(one_cell(with_permutations(build(texts))))
    assert [bar.label for bar in chart.bars] == ["largest weight 0 to 0.25", "largest weight 0.5 to 0.75"] + [
        "largest weight 0.75 or more"
    ]


# ---------- letters and ticks that can be read


def gaps(axis, renderer):
    """Pixels between neighbouring tick labels of an axis, below 0 where they overlap."""
    low, high = sorted(axis.get_view_interval())
    labels = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [label.get_window_extent(renderer) for label in labels if label.get_visible() and label.get_text()]
    ends = sorted((box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1) for box in boxes)
    return [after - end for (_, end), (after, _) in pairwise(ends)]


def test_text_lies_inside_and_ticks_apart():
    record = records.draw(40, rationale=True, dataset="a-data-set-with-a-very-long-name/" * 4)
    for name, chart in charts_of(record).items():
        figure = draw(chart, describe(one_cell(record).heading), 40)
        figure.draw_without_rendering()
        renderer, (width, height) = figure.canvas.get_renderer(), figure.canvas.get_width_height()
        boxes = [text.get_window_extent(renderer) for text in figure.texts]
        for box in [*boxes, *(axes.get_tightbbox(renderer) for axes in figure.axes)]:
            assert box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1, name
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            assert min(gaps(axis, renderer), default=0) >= 0, (name, axis)
