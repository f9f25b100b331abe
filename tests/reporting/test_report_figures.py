import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting import attention_overview, gradient_vs_leave_one_out, save_figure
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import figures
from attnfaith.reporting.sections.agreement import taus_of_measures


KINDS = ("png", "svg", "pdf")


def figures_of(record):
    """Every figure of the record's only cell, by name."""
    cell = one_cell(record)
    return {drawing.name: drawing.draw(cell) for _, drawing in figures(cell)}


def test_agreement_of_measures_has_three_panels_with_their_means(draw_record):
    record = draw_record(40)
    figure = gradient_vs_leave_one_out(record)
    cell = one_cell(record)
    assert len(figure.axes) == 3
    for axes, pair in zip(
        figure.axes,
        [("attention", "gradient"), ("attention", "leave_one_out"), ("gradient", "leave_one_out")],
        strict=True,
    ):
        tau = cell.tau(*pair)
        assert f"mean {np.nanmean(tau):.2f}, n = 37 (3 undefined)" in axes.get_title(loc="left")


def test_missing_measure_or_several_cells_are_refused(draw_record):
    record = draw_record(5, measures=("gradient",))
    with pytest.raises(ValueError, match=r"no importance 'leave_one_out'; it holds \['gradient'\]"):
        gradient_vs_leave_one_out(record)
    two = records.concatenate([record, draw_record(5, seed=1, measures=("gradient",))])
    with pytest.raises(ValueError, match="shows one cell, the record holds 2"):
        attention_overview(two)


@pytest.mark.slow
@pytest.mark.parametrize("measures", [(), ("gradient",), ("leave_one_out_hidden",), ("gradient", "leave_one_out")])
@pytest.mark.parametrize("classes", [1, 3])
def test_every_kind_of_record_can_be_drawn(draw_record, measures, classes):
    drawn = figures_of(draw_record(12, measures=measures, classes=classes))
    expected = {"attention_overview", "dispersion_by_scores"} | ({"tau_by_measure"} if measures else set())
    assert set(drawn) == expected | ({"gradient_vs_leave_one_out"} if len(measures) == 2 else set())


@pytest.mark.slow
def test_measures_that_order_as_attention_does_are_named_and_not_drawn(build_record):
    weights = [0.1, 0.2, 0.3, 0.4]
    scores = {"gradient": [1, 2, 3, 4], "leave_one_out": [1, 2, 4, 3]}
    table = build_record([{"attention": weights, **scores}] * 3, measures=("gradient", "leave_one_out"))
    taus, alike = taus_of_measures(one_cell(table))
    assert alike == ["gradient"] and list(taus["leave-one-out"]) == pytest.approx([4 / 6] * 3)
    assert [label.get_text() for label in figures_of(table)["tau_by_measure"].axes[0].get_yticklabels()] == ["leave-one-out"]


@pytest.mark.slow
def test_nothing_defined_can_be_drawn(build_record, tmp_path):
    record = build_record(
        [
            {"attention": [], "gradient": [], "leave_one_out": []},
            {"attention": [1.0], "gradient": [1], "leave_one_out": [1]},
        ],
        measures=("gradient", "leave_one_out"),
        dataset="a $x^2 dollar",
    )
    for name, figure in figures_of(record).items():
        save_figure(figure, tmp_path / name)


@pytest.mark.slow
def test_saved_bytes_do_not_change_and_files_are_whole(draw_record, tmp_path):
    record = draw_record(30)
    for draw in (lambda: gradient_vs_leave_one_out(record), lambda: attention_overview(record)):
        first, second = (save_figure(draw(), tmp_path / name) for name in ("a.b", "c"))
        assert [path.name for path in first] == [f"a.b.{kind}" for kind in KINDS]
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
        assert first[0].read_bytes().startswith(b"\x89PNG") and b"</svg>" in first[1].read_bytes()
        assert b"dc:date" not in first[1].read_bytes() and b"Date" not in first[2].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{stem}.{kind}" for stem in ("a.b", "c") for kind in KINDS
    )


@pytest.mark.slow
def test_settings_of_the_caller_neither_enter_nor_change(draw_record, tmp_path):
    record = draw_record(10)
    plain = save_figure(gradient_vs_leave_one_out(record), tmp_path / "plain")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        before = dict(matplotlib.rcParams)
        odd = save_figure(gradient_vs_leave_one_out(record), tmp_path / "odd")
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in odd] == [path.read_bytes() for path in plain]
    assert matplotlib.pyplot.get_fignums() == []


def test_no_text_leaves_the_picture(draw_record):
    record = draw_record(30, dataset="a-data-set-with-a-very-long-name/" * 4)
    for figure in figures_of(record).values():
        figure.draw_without_rendering()
        width, height = figure.canvas.get_width_height()
        renderer = figure.canvas.get_renderer()
        boxes = [text.get_window_extent(renderer) for text in figure.texts] + [
            axes.get_tightbbox(renderer) for axes in figure.axes
        ]
        for box in boxes:
            assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
