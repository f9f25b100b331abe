"""Figures as papers print them: their size, colours that stay apart, letters that can be read, and the data beside."""

import io
import re
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle

from attnfaith.reporting import render, save_figure, sections, tau_histograms
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.comparison_figures import TILES
from attnfaith.reporting.drawn import COLUMNS, NAMES, drawn_data
from attnfaith.reporting.style import (
    COLUMN_WIDTH,
    PAGE_WIDTH,
    PALETTE,
    QUIET_COLOUR,
    TEXT_COLOUR,
    percent_axis,
    printed_width,
    titled_figure,
)
from attnfaith.reporting.view_figures import graph_figure, heads_figure
from tests.colours import DEFICIENCIES, contrast, difference, lab, seen
from tests.views import drawn_view


EYES = (None, *DEFICIENCIES)


@pytest.mark.parametrize("eyes", EYES)
def test_colours_of_lines_and_verdicts_stay_apart_for_all_eyes(eyes):
    """Seven times and more what can just be noticed (2.3); verdicts, whose numbers say the same, five times."""
    assert min(difference(one, other, eyes) for one, other in combinations(PALETTE, 2)) > 16
    assert min(difference(one, "#ffffff", eyes) for one in PALETTE) > 35
    assert min(difference(one, other, eyes) for one, other in combinations(TILES.values(), 2)) > 11.5


def test_words_on_white_and_on_verdicts_can_be_read():
    assert all(
        contrast(word, ground) >= 4.5 for word in (TEXT_COLOUR, QUIET_COLOUR) for ground in ("#ffffff", *TILES.values())
    )


def test_the_simulation_of_deficiencies_is_the_published_one():
    """Greys stay what they are, since rows of the matrices sum to 1; red and green of one lightness run into one another."""
    for eyes in DEFICIENCIES:
        assert seen("#808080", eyes) == pytest.approx(seen("#808080"), abs=1e-5)
    assert lab(seen("#ffffff")) == pytest.approx([100, 0, 0], abs=1e-6)
    assert lab(seen("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.02), "as tables of CIE Lab have it"
    assert difference("#c8503c", "#6e8c1e", "deuteranopia") < 0.35 * difference("#c8503c", "#6e8c1e")


def sizes(paths):
    """Width and height in inches of the SVG and of the PDF."""
    svg, pdf = paths[1].read_text(), paths[2].read_bytes()
    head = re.search(r'<svg [^>]*width="([\d.]+)pt" height="([\d.]+)pt" viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
    return [float(side) / 72 for side in head.groups()], [float(side) / 72 for side in box.groups()]


@pytest.mark.parametrize(
    ("drawn", "printed"), [(4.4, COLUMN_WIDTH), (3.0, COLUMN_WIDTH), (9.0, PAGE_WIDTH), (12.0, PAGE_WIDTH)]
)
def test_vector_files_have_the_width_of_a_column_or_a_page(drawn, printed, tmp_path):
    figure = Figure(figsize=(drawn, 3.0))
    figure.add_subplot().plot([0, 1], [0, 1])
    assert printed_width(figure) == printed
    svg, pdf = sizes(save_figure(figure, tmp_path / "a"))
    assert svg == pytest.approx([printed, 3 * printed / drawn, drawn, 3.0], rel=1e-4)
    assert pdf == pytest.approx(svg[:2], rel=1e-4)
    assert figure.get_size_inches().tolist() == [drawn, 3.0] and figure.dpi == 100


def test_what_a_pdf_holds_is_made_smaller_with_its_page(tmp_path):
    import matplotlib

    figure = Figure(figsize=(9.0, 3.0))
    figure.add_subplot().plot([0, 1], [0, 1])
    with matplotlib.rc_context({"pdf.compression": 0}):
        from attnfaith.reporting import style

        buffer = io.BytesIO()
        style._draw_pdf(figure, buffer, PAGE_WIDTH / 9)
    matrix = re.search(rb"([\d.]+) 0 0 ([\d.]+) 0 0 cm", buffer.getvalue())
    assert [float(side) for side in matrix.groups()] == pytest.approx([PAGE_WIDTH / 9] * 2, abs=1e-6)


def test_every_figure_of_a_report_can_be_read_in_print(draw_record):
    """No letter is smaller than 5.5 pt where it is printed; captions of papers have 8 or 9."""
    cell = one_cell(draw_record(40))
    for drawing in sections.drawings(cell):
        drawing.figure.draw_without_rendering()
        scale = printed_width(drawing.figure) / drawing.figure.get_figwidth()
        shown = [text for text in drawing.figure.findobj(lambda part: hasattr(part, "get_fontsize")) if text.get_text()]
        assert min(text.get_fontsize() for text in shown) * scale >= 5.5, drawing.name


def narrow_figures():
    """Of one column: the maps of a few heads, and one measure through the layers."""
    view = drawn_view(12, tokens=[f"word{place}" for place in range(12)])
    return {"heads": heads_figure(view), "graph": graph_figure(view, list(view.matrices)[:1])}


def test_figures_of_one_panel_go_into_a_column():
    assert [printed_width(figure) for figure in narrow_figures().values()] == [COLUMN_WIDTH, COLUMN_WIDTH]


def gaps(axis, renderer):
    """Pixels between neighbouring tick labels of an axis, below 0 where they overlap."""
    low, high = sorted(axis.get_view_interval())
    labels = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [label.get_window_extent(renderer) for label in labels if label.get_visible() and label.get_text()]
    ends = sorted((box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1) for box in boxes)
    return [after - end for (_, end), (after, _) in pairwise(ends)]


def test_text_lies_inside_and_ticks_apart_at_both_widths(draw_record):
    drawn = {one.name: one.figure for one in sections.drawings(one_cell(draw_record(40, rationale=True)))} | narrow_figures()
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        renderer, (width, height) = figure.canvas.get_renderer(), figure.canvas.get_width_height()
        boxes = [text.get_window_extent(renderer) for text in figure.texts]
        for box in [*boxes, *(axes.get_tightbbox(renderer) for axes in figure.axes)]:
            assert -1 <= box.x0 and box.x1 <= width + 1 and -1 <= box.y0 and box.y1 <= height + 1, name
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


def test_bars_beside_a_figure_are_the_shares_of_texts(draw_record, tmp_path):
    record = draw_record(60)
    cell = one_cell(record)
    paths = save_figure(tau_histograms(record, "gradient"), tmp_path / "a")
    table = pd.read_csv(paths[3], keep_default_na=False, na_values={"x": [""], "y": [""]})
    assert list(table.columns) == [*COLUMNS, *NAMES]
    tau = cell.tau("attention", "gradient")
    for number in (0, 1):
        of_class = table[(table["series"].str.startswith(f"class {number} ")) & (table["mark"] == "area")]
        values = tau[(cell.predicted == number) & ~np.isnan(tau)]
        low, high = of_class["x"].min(), of_class["x"].max()
        assert low <= values.min() and values.max() <= high
        ends = of_class[["x", "y"]].to_numpy()
        tops = {(x, y, after) for (x, y), (after, level) in zip(ends, ends[1:], strict=False) if y == level and after > x}
        for left, share, right in tops:
            inside = (values >= left) & ((values < right) | (np.isclose(right, high) & (values <= right)))
            assert share == pytest.approx(inside.mean()), (left, right)
    lines = table[(table["mark"] == "line") & table["x"].notna() & table["y"].isna()]
    means = [tau[(cell.predicted == number) & ~np.isnan(tau)].mean() for number in (0, 1)]
    assert all(np.isclose(lines["x"], mean).any() for mean in means), "a dashed line at each mean"


def marks():
    figure = Figure()
    one, other = figure.subplots(1, 2)
    one.set_title("$one$ of\ntwo", loc="left")
    one.plot([0, 1, 2], [5.0, np.nan, 7.0], label="a series", color="#0072B2")
    one.axhline(3.0, color="black")
    one.scatter([1.5], [2.5], color="#D55E00")
    one.hlines([1.0, 2.0], 0, 4)
    one.text(1, 2, "=1+1")
    one.text(0.5, 0.5, "of the axes", transform=one.transAxes)
    one.set_yticks([1, 2], ["a word", "another"])
    other.imshow([[0.1, 0.2], [0.3, np.nan]])
    other.add_patch(Rectangle((1, 2), 3, 4, facecolor="white"))
    other.add_patch(Ellipse((5, 6), 2, 4))
    other.set_xticks([0, 1], ["0", "1"])
    return drawn_data(figure)


def test_every_mark_has_its_rows_in_the_units_of_its_axes():
    table = marks()
    assert table["panel"].tolist() == sorted(table["panel"]) and set(table["title"]) == {"$one$ of two", ""}
    line = table[table["series"] == "a series"]
    assert line["x"].tolist() == [0, 1, 2] and line["y"].tolist()[::2] == [5, 7] and np.isnan(line["y"].tolist()[1])
    assert set(line["colour"]) == {"#0072b2"}
    (points,) = table[table["mark"] == "points"].to_dict("records")
    assert (points["x"], points["y"], points["colour"]) == (1.5, 2.5, "#d55e00")
    along = table[(table["mark"] == "line") & table["x"].isna()]
    assert along["y"].tolist() == [3, 3]
    bars = table[table["mark"] == "bar"]
    assert bars[["x", "y", "width", "height"]].to_numpy().tolist() == [[1, 2, 3, 4]]
    area = table[table["mark"] == "area"]
    assert (area["x"].min(), area["x"].max(), area["y"].min(), area["y"].max()) == pytest.approx((4, 6, 4, 8))
    image = table[table["mark"] == "image"]
    assert image[["x", "y"]].to_numpy().tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    np.testing.assert_array_equal(image["value"], [0.1, 0.2, 0.3, np.nan])


def test_words_of_an_axis_stand_beside_its_places():
    table = marks()
    segments = table[(table["mark"] == "line") & (table["part"] >= 2)]
    assert segments[["x", "y"]].to_numpy().tolist() == [[0, 1], [4, 1], [0, 2], [4, 2]]
    assert segments["y_name"].tolist() == ["a word"] * 2 + ["another"] * 2
    assert (table["x_name"] == "").all(), "numbers are no words"


def test_a_place_far_from_every_word_of_its_axis_has_none():
    figure = Figure()
    axes = figure.subplots()
    axes.set_yticks([0, 1], ["a word", "another"])
    axes.scatter([5, 5], [0.9, 4])
    assert drawn_data(figure)[["y", "y_name"]].to_numpy().tolist() == [[0.9, "another"], [4, ""]]


def test_words_written_in_a_figure_are_data_where_they_stand_in_it():
    written = marks().query("mark == 'text'")
    assert written[["text", "x", "y"]].to_numpy().tolist() == [["=1+1", 1, 2]], "not what stands in a corner"


def test_figures_of_every_section_have_data(draw_record):
    for drawing in render.drawings(sections.known()["agreement"], one_cell(draw_record(30))):
        table = drawn_data(drawing.figure)
        assert len(table) and table[["x", "y"]].notna().any(axis=1).all(), drawing.name
