"""Figures: whole at every size of record, the same bytes every time, without settings of the caller, and to be read."""

from itertools import pairwise

import numpy as np
import pytest

from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.figures import binned
from attnfaith.reporting.sections import agreement, attention, changes, figures
from tests.records import build, draw
from tests.sections import with_permutations


KINDS = ("png", "svg", "pdf")


def figures_of(record):
    """Every figure of the record's only cell, by name."""
    cell = one_cell(record)
    return {drawing.name: drawing.draw(cell) for _, drawing in figures(cell)}


def labels_of(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_lines_of_dispersion_and_agreement():
    scores = {"gradient": [1, 2, 3, 4], "leave_one_out": [1, 2, 4, 3]}
    table = build([{"attention": [0.1, 0.2, 0.3, 0.4], **scores}] * 3, measures=("gradient", "leave_one_out"))
    assert list(agreement.taus(one_cell(table))["leave-one-out"]) == pytest.approx([4 / 6] * 3)
    drawn = figures_of(table)
    assert labels_of(drawn["tau_by_measure"]) == ["gradient", "leave-one-out", "gradient–leave-one-out"]
    assert labels_of(drawn["dispersion_by_scores"]) == ["attention", "gradient", "leave-one-out"]
    entropies = attention.entropies(one_cell(table))
    dots = [line.get_xdata()[0] for line in drawn["dispersion_by_scores"].axes[0].lines if line.get_marker() == "o"]
    np.testing.assert_allclose(dots, [numbers.mean() for numbers in entropies.values()])


def test_bins_hold_every_text_that_has_a_size():
    values, sizes = np.arange(5.0), np.array([0.0, 0.25, 0.3, 1.0, np.nan])
    bins = binned(values, sizes, (0, 0.25, 0.5, 0.75), "weight")
    assert {label: list(part) for label, part in bins.items()} == {
        "weight 0 to 0.25": [0],
        "weight 0.25 to 0.5": [1, 2],
        "weight 0.75 or more": [3],
    }
    drawing = changes.PERMUTATION.figure
    cell = one_cell(with_permutations(draw(30)))
    assert sum(map(len, drawing.values(cell).values())) == 29, "but for the text without tokens"
    assert len(drawing.draw(cell).axes) == 1 and "largest weight" in drawing.words(cell)[0]


# ---------- letters and ticks that can be read


def gaps(axis, renderer):
    """Pixels between neighbouring tick labels of an axis, below 0 where they overlap."""
    low, high = sorted(axis.get_view_interval())
    labels = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [label.get_window_extent(renderer) for label in labels if label.get_visible() and label.get_text()]
    ends = sorted((box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1) for box in boxes)
    return [after - end for (_, end), (after, _) in pairwise(ends)]


def test_text_lies_inside_and_ticks_apart():
    drawn = figures_of(draw(40, rationale=True, dataset="a-data-set-with-a-very-long-name/" * 4))
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        renderer, (width, height) = figure.canvas.get_renderer(), figure.canvas.get_width_height()
        boxes = [text.get_window_extent(renderer) for text in figure.texts]
        for box in [*boxes, *(axes.get_tightbbox(renderer) for axes in figure.axes)]:
            assert box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1, name
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            assert min(gaps(axis, renderer), default=0) >= 0, (name, axis)
