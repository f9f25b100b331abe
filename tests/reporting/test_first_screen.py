"""The first screen of a page: which text it shows, what its chart draws, and that both hold what the tables do."""

import re
import xml.etree.ElementTree as tree

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import escape

from attnfaith.reporting import chart as charts
from attnfaith.reporting import sections
from attnfaith.reporting.cards import Checkpoint
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.chart import Bar, Chart, measures_chart, svg
from attnfaith.reporting.html import unbroken
from attnfaith.reporting.page import page as pages
from attnfaith.reporting.page.first_screen import first_screen, middle_text
from attnfaith.reporting.page.page import render_page
from attnfaith.reporting.sections.agreement import agreement_table
from attnfaith.reporting.sections.plausibility import plausibility_table
from attnfaith.verdict import CANNOT_TELL, RULE
from tests.records import build, draw
from tests.sections import SIX, told


def page_of(cells):
    cells = cells if isinstance(cells, list) else [cells]
    return render_page(cells, sections.frames(cells), [[]] * len(cells), title="t", facts={}, n_examples=1)


def reversed_first(count, length=9):
    """Scores whose first k tokens are in the reverse order: tau with the plain order is 1 - 2 k (k - 1) / (n (n - 1))."""
    return np.r_[np.arange(count)[::-1], np.arange(count, length)] + 1.0


LONGEST_TITLE = 52  # letters for which the drawing is wide enough, as seen in a browser


def test_the_one_text_is_next_to_the_median(build_record):
    order = np.arange(1.0, 10) / 45
    instances = [{"id": f"t/{k}", "attention": order, "leave_one_out": reversed_first(k)} for k in (9, 6, 3, 2, 1)]
    instances.append({"id": "t/0", "attention": [0.4, 0.6], "leave_one_out": [1, 2]})  # tau 1, but too short to be shown
    instances.append({"id": "t/", "attention": order, "leave_one_out": np.ones(9)})  # no tau
    cell = one_cell(build_record(instances, measures=("leave_one_out",)))
    # taus 1, 1, .944, .833, .167, -1: the median lies between .833 and .944, as near to both; the first by id is shown
    row, why = middle_text(cell)
    assert cell.instance_ids[row] == "t/2"
    assert why == "No extreme: its τ of attention and leave-one-out, 0.94, is next to the median, 0.89."


def test_without_a_measure_the_first_text_is_shown(build_record):
    cell = one_cell(build_record([{"id": "b", "attention": [1.0]}, {"id": "a", "attention": [1.0]}]))
    assert middle_text(cell) == (1, "The first text by instance id.")
    assert first_screen(cell).chart is None and first_screen(cell).text.lines == (("attention", 0),)


def test_the_chart_draws_agreement_where_nothing_else_is_known(draw_record):
    cell = one_cell(draw_record(40))
    drawn = measures_chart([cell])
    rows = agreement_table([cell]).query("`class` == 'overall'").set_index("pair")
    assert (
        drawn.chance == 0
        and drawn.ticks == charts.TAUS
        and [bar.label for bar in drawn.bars]
        == sorted(
            ("gradient", "leave-one-out"), key=lambda label: -rows.loc[f"attention–{label.replace('-', '_')}", "tau_mean"]
        )
    )
    assert len(drawn.title) <= LONGEST_TITLE
    for bar in drawn.bars:
        row = rows.loc[f"attention–{bar.label.replace('-', '_')}"]
        assert (bar.value, bar.low, bar.high) == (row["tau_mean"], row["ci_low"], row["ci_high"])


def test_the_chart_draws_erasure_where_it_was_measured(build_record):
    falls = {"attention": 0.2 + SIX, "good": 0.2 + 2 * SIX, "random": np.full(6, 0.1)}
    drawn = measures_chart([told(build_record, falls)])
    assert [bar.label for bar in drawn.bars] == ["good", "attention", "random"]
    assert drawn.chance == pytest.approx(0.1) and "AOPC" in drawn.axis and len(drawn.title) <= LONGEST_TITLE
    # what falls is the probability: .9 of the whole text, less what is left, .9 - fall
    assert [bar.value for bar in drawn.bars] == pytest.approx([0.2 + 2 * SIX.mean(), 0.2 + SIX.mean(), 0.1])


def with_evidence(dataset, gold=(1, 1, 0, 0, 0, 0, 0, 0, 0)):
    """A cell of texts in which the first tokens are marked: gradient finds them, attention puts them last."""
    order = np.arange(1.0, 10)
    one = {"attention": order / 45, "gradient": order[::-1], "gold": np.array(gold, float)}
    return one_cell(build([one] * 3, measures=("gradient",), rationale=True, dataset=dataset))


def test_the_chart_draws_what_finds_the_tokens_that_decide():
    cell = with_evidence("planted_evidence")
    drawn = measures_chart([cell])
    table = plausibility_table([cell]).set_index("scores")
    assert [bar.label for bar in drawn.bars] == ["gradient", "attention"] and drawn.why == ""
    assert drawn.bars[0].value == 1 and drawn.chance == table.loc["attention", "random_baseline"]
    # of nine tokens the marked ones come eighth and ninth: precision 1/8, then 2/9
    assert drawn.bars[1].value == pytest.approx((1 / 8 + 2 / 9) / 2)


def test_agreement_in_texts_with_evidence_is_explained(draw_record):
    cell = with_evidence("sst")
    drawn = measures_chart([cell])
    assert "τ with attention" in drawn.axis and "what convinces people" in drawn.why
    assert f"<figcaption>{escape(drawn.why)}</figcaption>" in page_of(cell)
    assert "τ with attention" in measures_chart([with_evidence("planted_evidence", (1,) * 9)]).axis
    assert measures_chart([one_cell(draw_record(40))]).why == "" and "<figcaption>" not in page_of(one_cell(draw_record(40)))


def test_marks_stand_where_their_numbers_are():
    drawn = Chart("title", "axis", (Bar("a", 0.4, 0.3, 0.5, "red"), Bar("<b>", -0.1, np.nan, np.nan, "blue")), 0.1)
    root = tree.fromstring(svg(drawn, alone=True))
    space = "{http://www.w3.org/2000/svg}"
    circles = [(float(one.get("cx")), one.get("fill")) for one in root.iter(f"{space}circle")]
    ticks = {one.text: float(one.get("x")) for one in root.iter(f"{space}text") if one.get("text-anchor") == "middle"}
    scale = (ticks["0.40"] - ticks["0.00"]) / 0.4
    assert circles[0] == (pytest.approx(ticks["0.40"], abs=0.1), "red")
    assert circles[1][0] == pytest.approx(ticks["0.00"] - 0.1 * scale, abs=0.1)
    ends = sorted(ticks.values())
    assert (ends[0], ends[-1]) == pytest.approx((charts.LABELS, charts.WIDTH - charts.NUMBERS)), "the scale fills its room"
    assert ticks["chance"] == pytest.approx(ticks["0.00"] + 0.1 * scale, abs=0.1)
    (line,) = [one.get("d") for one in root.iter(f"{space}path") if one.get("stroke") == "red"]
    assert [float(end) for end in re.findall(r"[MH]([\d.]+)", line)] == pytest.approx(
        [ticks["0.00"] + share * scale for share in (0.3, 0.5)], abs=0.1
    )
    assert not [one for one in root.iter(f"{space}path") if one.get("stroke") == "blue"]  # without an interval
    words = root.find(f"{space}desc").text
    assert words == "axis. a 0.40 (0.30 to 0.50); <b> −0.10. Chance is 0.10."
    assert "<b>" not in svg(drawn)


def test_of_many_measures_the_first_are_drawn_and_attention(monkeypatch):
    monkeypatch.setattr(charts, "MOST_ROWS", 2)
    bars = [(name, 0.5, 0.4, 0.6) for name in ("a", "b", "c", "attention", "random")]
    drawn = charts._chart("t", "axis", pd.DataFrame(bars), np.nan, ())
    assert [bar.label for bar in drawn.bars] == ["a", "b", "attention", "random"] and drawn.left_out == 1
    assert drawn.words.endswith("Chance is not known. 1 more are in the tables.")
    assert "stroke-dasharray" not in svg(drawn)


@example(0.0)
@given(st.floats(1e-6, 1e6))
def test_ticks_are_round_and_few(span):
    ticks = charts._ticks(Chart("t", "a", (Bar("b", span, np.nan, np.nan, "red"),)))
    step = ticks[1] - ticks[0]
    assert ticks[0] == 0 and ticks[-1] >= span - 1e-9 and 2 <= len(ticks) <= 6
    assert f"{step:.0e}"[0] in "125"


def test_the_page_begins_with_the_verdict(draw_record):
    cell = one_cell(draw_record(40))
    html = page_of(cell)
    verdict = Checkpoint({}, cell.table).verdict
    first = html[html.index('<section class="summary"') : html.index('<section id="texts"')]
    assert verdict.outcome == CANNOT_TELL and f">{verdict.headline}</p>" in first
    for words in (verdict.reason, verdict.advice, RULE):
        assert unbroken(escape(words)) in first
    assert first.count("<svg") == 1


def test_several_models_have_an_answer_and_a_chart_each(monkeypatch):
    cells = [split_cells(draw(40, seed=seed))[0] for seed in (0, 1)]
    html = page_of(cells)
    for place, cell in enumerate(cells):
        screen = first_screen(cell, f"chart{place}")
        assert screen.verdict.headline in html and str(screen.chart) in html
    assert html.count('<p class="answer') == 2
    monkeypatch.setattr(pages, "MOST_CHARTS", 1)
    html = page_of(cells)
    assert "<svg" not in html.split('id="texts"')[0] and "Of more than 1 models no chart is drawn here" in html


def test_a_line_never_ends_before_a_percent_sign(draw_record):
    html = page_of(one_cell(draw_record(40)))
    assert not re.findall(r">[^<]*\d %[^<]*<", html.partition("<main>")[2].partition("<script")[0])
    assert "\u00a0%" in html and unbroken("5 % of 10 %, a %") == "5\u00a0% of 10\u00a0%, a %"


def test_rows_have_histograms_of_their_texts_and_names_of_their_own(draw_record):
    measures = (
        "gradient",
        "gradient_norm_detached_of_every_layer_one",
        "gradient_norm_detached_of_every_layer_two",
        "lime_hidden",
    )
    cell = one_cell(draw_record(40, measures=measures))
    drawn = charts.agreement_chart(cell)
    assert {bar.label for bar in drawn.bars} == {name.replace("_", " ") for name in measures[:3]}
    assert all(sum(bar.shares) == pytest.approx(1) for bar in drawn.bars)
    assert [bar.label for bar in charts.agreement_chart(cell, hidden=True).bars] == ["LIME hidden"]
    drawing = svg(drawn)
    assert all(f">{bar.label}</text>" in drawing for bar in drawn.bars), "no name is cut, so no two are alike"
    assert drawing.count('fill-opacity=".16"') == 3


def test_a_measure_that_orders_as_attention_does_is_named_and_not_drawn(build_record):
    texts = [{"attention": [0.5, 0.3, 0.2], "gradient": [3, 2, 1], "lime": [1, 3, 2]}] * 3
    drawn = charts.agreement_chart(one_cell(build_record(texts, measures=("gradient", "lime"))))
    assert [bar.label for bar in drawn.bars] == ["LIME"] and drawn.why.endswith(": gradient.")


def test_the_command_to_paste(draw_record):
    assert (
        first_screen(one_cell(draw_record(40))).command
        == "attnfaith measure RUN --add integrated_gradients comprehensiveness"
    )
