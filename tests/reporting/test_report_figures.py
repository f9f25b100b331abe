"""Figures of sections: whole at every size of record, the same bytes every time, without settings of the caller."""

import matplotlib
import matplotlib.pyplot
import pytest

from attnfaith import record as records
from attnfaith.reporting import save_figure
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import agreement, figures


KINDS = ("png", "svg", "pdf")


def figures_of(record):
    """Every figure of the record's only cell, by name."""
    cell = one_cell(record)
    return {drawing.name: drawing.draw(cell) for _, drawing in figures(cell)}


@pytest.mark.slow
@pytest.mark.parametrize("measures", [(), ("gradient",), ("gradient", "leave_one_out")])
@pytest.mark.parametrize("classes", [1, 3])
def test_every_kind_of_record_can_be_drawn(draw_record, measures, classes):
    drawn = figures_of(draw_record(12, measures=measures, classes=classes))
    assert set(drawn) == {"dispersion_by_scores"} | ({"tau_by_measure"} if measures else set())


def test_several_cells_are_refused(draw_record):
    with pytest.raises(ValueError, match="the record holds 2"):
        one_cell(records.concatenate([draw_record(5), draw_record(5, seed=1)]))


@pytest.mark.slow
def test_measures_that_order_as_attention_does_are_named_and_not_drawn(build_record):
    weights = [0.1, 0.2, 0.3, 0.4]
    scores = {"gradient": [1, 2, 3, 4], "leave_one_out": [1, 2, 4, 3]}
    table = build_record([{"attention": weights, **scores}] * 3, measures=("gradient", "leave_one_out"))
    values, alike = agreement.taus(one_cell(table))
    assert alike == ["gradient"] and list(values["leave-one-out"]) == pytest.approx([4 / 6] * 3)
    labels = [label.get_text() for label in figures_of(table)["tau_by_measure"].axes[0].get_yticklabels()]
    assert labels == ["leave-one-out", "gradient–leave-one-out"]


@pytest.mark.slow
def test_nothing_defined_can_be_drawn(build_record, tmp_path):
    scores = [{name: [1] * count for name in ("gradient", "leave_one_out")} for count in (0, 1)]
    texts = [{"attention": [1.0] * count, **scores[count]} for count in (0, 1)]
    record = build_record(texts, measures=("gradient", "leave_one_out"), dataset="a $x^2 dollar")
    for name, figure in figures_of(record).items():
        save_figure(figure, tmp_path / name)


@pytest.mark.slow
def test_files_are_whole_and_depend_on_the_figure_alone(draw_record, tmp_path):
    cell = one_cell(draw_record(30))
    first = save_figure(agreement.tau_by_measure(cell), tmp_path / "a.b")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        before = dict(matplotlib.rcParams)
        second = save_figure(agreement.tau_by_measure(cell), tmp_path / "c")
        assert dict(matplotlib.rcParams) == before
    assert [path.name for path in first] == [f"a.b.{kind}" for kind in KINDS]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG") and b"</svg>" in first[1].read_bytes()
    assert b"dc:date" not in first[1].read_bytes() and b"Date" not in first[2].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{stem}.{kind}" for stem in ("a.b", "c") for kind in KINDS
    )
    assert matplotlib.pyplot.get_fignums() == []


def test_no_text_leaves_the_picture(draw_record):
    record = draw_record(30, dataset="a-data-set-with-a-very-long-name/" * 4)
    for figure in figures_of(record).values():
        figure.draw_without_rendering()
        width, height = figure.canvas.get_width_height()
        renderer = figure.canvas.get_renderer()
        boxes = [text.get_window_extent(renderer) for text in figure.texts]
        for box in [*boxes, *(axes.get_tightbbox(renderer) for axes in figure.axes)]:
            assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
