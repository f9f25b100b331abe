"""Figures as papers print them: letters and ticks that can be read."""

from itertools import pairwise

import pytest
from matplotlib.figure import Figure

from attnfaith.reporting import sections
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.heatmap import contrast
from attnfaith.reporting.style import (
    QUIET_COLOUR,
    TEXT_COLOUR,
    percent_axis,
    titled_figure,
)
from attnfaith.reporting.view_figures import graph_figure, heads_figure
from tests.views import drawn_view


def test_words_on_white_can_be_read():
    assert all(contrast(word, "#ffffff") >= 4.5 for word in (TEXT_COLOUR, QUIET_COLOUR))


def narrow_figures():
    """Of one column: the maps of a few heads, and one measure through the layers."""
    view = drawn_view(12, tokens=[f"word{place}" for place in range(12)])
    return {"heads": heads_figure(view), "graph": graph_figure(view, list(view.matrices)[:1])}


def gaps(axis, renderer):
    """Pixels between neighbouring tick labels of an axis, below 0 where they overlap."""
    low, high = sorted(axis.get_view_interval())
    labels = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [label.get_window_extent(renderer) for label in labels if label.get_visible() and label.get_text()]
    ends = sorted((box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1) for box in boxes)
    return [after - end for (_, end), (after, _) in pairwise(ends)]


def test_text_lies_inside_and_ticks_apart_at_both_widths(draw_record):
    cell = one_cell(draw_record(40, rationale=True))
    drawn = {drawing.name: drawing.draw(cell) for _, drawing in sections.figures(cell)} | narrow_figures()
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        renderer, (width, height) = figure.canvas.get_renderer(), figure.canvas.get_width_height()
        boxes = [text.get_window_extent(renderer) for text in figure.texts]
        for box in [*boxes, *(axes.get_tightbbox(renderer) for axes in figure.axes)]:
            assert box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1, name
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            assert min(gaps(axis, renderer), default=0) >= 0, (name, axis)


@pytest.mark.parametrize("width", [4.4, 9.0])
def test_a_long_title_is_wrapped(width):
    title = "What the answer takes of each token, through the layers, " * 2
    figure = titled_figure(title, None, width, 2.0, subject="a model", count=1)
    head, line = figure.texts
    figure.draw_without_rendering()
    above, below = (text.get_window_extent(figure.canvas.get_renderer()) for text in (head, line))
    assert above.x1 <= figure.bbox.x1 and above.y1 <= figure.bbox.y1 and below.y1 < above.y0
    assert " ".join(head.get_text().split()) == title.strip()


@pytest.mark.parametrize("highest", [0.004, 0.09, 0.14, 1.0])
def test_a_share_stands_where_its_tick_says(highest):
    axes = Figure().add_subplot()
    axes.set_ylim(0, highest)
    percent_axis(axes)
    ticks = axes.get_yticks()
    said = axes.yaxis.get_major_formatter().format_ticks(ticks)
    assert [float(words.removesuffix("%")) for words in said] == pytest.approx(list(100 * ticks))
