"""The texts of a page in a real browser, every control used as a reader would: its answers are those of the library.

Skipped where no browser is installed.
"""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import rel_entr

from attnfaith import record as records
from attnfaith.interventions.adversary import maximise
from attnfaith.interventions.targets import softmax
from attnfaith.reporting import sections
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.heatmap import scores_of, visible
from attnfaith.reporting.page.page import render_page
from tests.affine_records import drawn_record
from tests.browsers import BROWSER, NO_BROWSER
from tests.reporting.test_page import HOSTILE


pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)]
COUNT, LONG = 60, 5  # a row of the record with many tokens


def paged(table):
    """A report's page of a record, as something that can be saved."""
    cells = split_cells(table)
    html = render_page(cells, sections.frames(cells), [[] for _ in cells], title="texts", facts={})
    return SimpleNamespace(save=lambda path: path.write_text(html, encoding="utf-8"))


@pytest.fixture(scope="module")
def table():
    return drawn_record(COUNT, label_names=["bad", "good"])


@pytest.fixture(scope="module")
def cell(table):
    return one_cell(table)


@pytest.fixture(scope="module")
def page_of_texts(table):
    return paged(table)


@pytest.fixture
def page(opens, page_of_texts):
    """The page of texts with all filters in sight."""
    page = opens(page_of_texts)
    page.locator(".more summary").click()
    return page


def read_out(cell, row):
    """own (T,), values (T,C), bias (C,) of a text in float64."""
    own = cell.attention[row].astype(np.float64)
    values, bias = (records.rows(cell.table, name)[row].astype(np.float64) for name in ("token_logits", "token_logits_bias"))
    return own / own.sum(), values.reshape(-1, len(bias)), bias


def tried(page):
    """The attention that is tried and the prediction under it, to full precision."""
    weights = page.locator(".bar").evaluate_all("all => all.map((one) => Number(one.dataset.weight))")
    probs = page.locator(".classes li").evaluate_all("all => all.map((one) => Number(one.dataset.probability))")
    return np.array(weights), np.array(probs)


def agrees(page, cell, row, attention):
    """The page shows this attention, and what follows from it."""
    own, values, bias = read_out(cell, row)
    weights, probs = tried(page)
    np.testing.assert_allclose(weights, attention, atol=1e-9, rtol=0)
    expected, before = softmax(attention @ values + bias), softmax(own @ values + bias)
    np.testing.assert_allclose(probs, expected, atol=1e-9, rtol=0)
    text = page.locator(".outcome").inner_text()
    moved, nats = re.search(r"moves by ([\d.]+) \(TVD\); this attention is ([\d.]+) nats", text).groups()
    middle = (own + attention) / 2
    assert float(moved) == pytest.approx(np.abs(expected - before).sum() / 2, abs=6e-4)
    assert float(nats) == pytest.approx((rel_entr(own, middle) + rel_entr(attention, middle)).sum() / 2, abs=6e-4)
    assert ("another answer" in text) == (expected.argmax() != before.argmax())


def chosen(page, cell):
    return cell.instance_ids.index(page.locator(".chosen > .name").inner_text())


def go_to(page, cell, row):
    page.locator(".list").focus()
    for _ in range(abs(row - chosen(page, cell))):
        page.keyboard.press("ArrowDown" if row > chosen(page, cell) else "ArrowUp")
    assert chosen(page, cell) == row


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def test_every_what_if_answers_as_the_library(page, cell):
    go_to(page, cell, LONG)
    own, values, bias = read_out(cell, LONG)
    np.testing.assert_allclose(tried(page)[0], own, atol=1e-9)
    np.testing.assert_allclose(tried(page)[1], softmax(own @ values + bias), atol=1e-9)
    press(page, "uniform")
    agrees(page, cell, LONG, np.full(len(own), 1 / len(own)))
    press(page, "permute")
    first = tried(page)[0]
    agrees(page, cell, LONG, first)
    np.testing.assert_allclose(np.sort(first), np.sort(own), atol=1e-12)
    press(page, "permute")
    assert not np.allclose(tried(page)[0], first)
    press(page, "furthest that keeps the answer")
    for epsilon, key in ((0.01, None), (0.011, "ArrowRight"), (0.5, "End"), (0.001, "Home")):
        if key:
            page.get_by_label("epsilon").focus()
            page.keyboard.press(key)
        agrees(page, cell, LONG, maximise(own, values[:, 1] - values[:, 0], bias[1] - bias[0], epsilon).attention)
        assert f"at most {epsilon:.3f}" in page.locator(".outcome").inner_text()
    press(page, "the model’s own")
    np.testing.assert_allclose(tried(page)[0], own, atol=1e-12)


def test_the_smallest_set_and_removed_tokens(page, cell):
    def flips_alone(own, values, bias):
        left = [np.where(np.arange(len(own)) == place, 0, own) for place in range(len(own))]
        answers = [(rest / rest.sum() @ values + bias).argmax() for rest in left if rest.sum() > 0]
        return any(answer != (own @ values + bias).argmax() for answer in answers)

    row = next(row for row in range(2, 14) if flips_alone(*read_out(cell, row)))
    go_to(page, cell, row)
    own, values, bias = read_out(cell, row)
    press(page, "smallest set that flips it")
    weights, probs = tried(page)
    assert ((weights == 0) & (own > 0)).sum() == 1 and probs.argmax() != softmax(own @ values + bias).argmax()
    press(page, "the model’s own")
    page.get_by_role("slider").nth(2).focus()
    press(page, "remove token")
    left = np.where(np.arange(len(own)) == 2, 0.0, own)
    agrees(page, cell, row, left / left.sum())
    page.get_by_role("slider").nth(0).focus()
    page.keyboard.press("Delete")
    left[0] = 0.0
    agrees(page, cell, row, left / left.sum())


def test_a_weight_is_dragged_and_set_by_keys(page, cell):
    go_to(page, cell, LONG)
    own, _, _ = read_out(cell, LONG)
    bar = page.get_by_role("slider").nth(1)
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.9)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.25)
    page.mouse.up()
    weights = tried(page)[0]
    assert weights[1] == pytest.approx(0.75**2, abs=0.02)  # a bar is as high as the square root of its weight
    rest = np.delete(own, 1)
    np.testing.assert_allclose(np.delete(weights, 1), rest / rest.sum() * (1 - weights[1]), atol=1e-9)
    agrees(page, cell, LONG, weights)
    for key, value in (("End", 1.0), ("ArrowDown", 0.99), ("ArrowDown", 0.98), ("ArrowUp", 0.99), ("Home", 0.0)):
        page.keyboard.press(key)
        weights = tried(page)[0]
        assert weights[1] == pytest.approx(value, abs=1e-9) and weights.sum() == pytest.approx(1, abs=1e-9)
        assert float(bar.get_attribute("aria-valuenow")) == pytest.approx(100 * value, abs=0.01)
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("slider").nth(2).evaluate("one => one === document.activeElement")
    assert page.locator(".bar").evaluate_all("all => all.filter((one) => one.tabIndex === 0).length") == 1


def test_every_measure_is_a_line_of_its_scores(page, cell):
    go_to(page, cell, LONG)
    page.locator(".heat summary").click()
    tau = cell.tau("attention", "gradient")[LONG]
    names = page.locator(".chosen .line .name").all_inner_texts()
    assert [name.split("\n")[0] for name in names] == ["attention", "gradient", "exact contribution"]
    assert names[1].split("\n")[1] == f"τ {tau:.2f}".replace("-", "−")
    lines = page.locator(".chosen .line .words").evaluate_all(
        "all => all.map((line) => Array.from(line.children, (one) => [one.textContent, one.className, one.title]))"
    )
    gold, hues = records.rows(cell.table, "rationale")[LONG], (0, 1, 3)
    for line, name, hue in zip(lines, ["attention", "gradient", "exact_contribution"], hues, strict=True):
        assert [word for word, *_ in line] == cell.table.column("tokens")[LONG].as_py()
        assert [shade.endswith(" gold") for _, shade, _ in line] == (gold > 0).tolist()
        for (_, shade, title), score in zip(line, scores_of(cell.scores(name)[LONG], name), strict=True):
            assert shade.startswith(f"m{4 if score.negative else hue}s") and "of the largest" in title
            percent = int(title.split(", ")[1].split(" ")[0].replace("−", "-"))
            assert abs(percent - int(score.percent.replace("−", "-"))) <= 1  # halves round otherwise
    assert any(shade.startswith("m4s") for _, shade, _ in lines[2]), "some evidence is against the class"


def order_of(page, cell, most=12):
    """The first texts of the list, in its order."""
    names = page.locator("[role=option] > span:first-child > bdi").all_inner_texts()[:most]
    return [cell.instance_ids.index(name) for name in names]


def ordered(values, down=False):
    values = np.asarray(values, np.float64)
    return sorted(range(len(values)), key=lambda row: (np.isnan(values[row]), -values[row] if down else values[row], row))


def test_sorted_by_each_quantity(page, cell):
    largest = [max(row, default=np.nan) for row in cell.attention]
    gold = [np.nan if np.isnan(label) else cell.probs[row, int(label)] for row, label in enumerate(cell.labels)]
    tau = cell.tau("attention", "gradient").astype(np.float32)
    for name, values in {"largest": largest, "gold": gold, "length": cell.lengths, "tau": tau}.items():
        page.locator("[name=by]").select_option(name)
        assert order_of(page, cell) == ordered(values)[:12], name
    page.locator("[name=order]").select_option("down")
    assert order_of(page, cell, COUNT) == ordered(tau, down=True), "what is undefined comes last"
    page.locator("[name=compared]").select_option(label="exact contribution")
    other = cell.tau("attention", "exact_contribution").astype(np.float32)
    assert order_of(page, cell) == ordered(other, down=True)[:12]


def test_filtered_by_each_quantity(page, cell):
    tau = cell.tau("attention", "gradient").astype(np.float32)
    known = ~np.isnan(cell.labels)
    tokens = [set(text) for text in cell.table.column("tokens").to_pylist()]
    expected = {
        "tauLow": ("0.2", tau >= 0.2),
        "tauHigh": ("0", tau <= 0),
        "error": ("wrong", known & (cell.labels != cell.predicted)),
        "label": ("1", cell.labels == 1),
        "predicted": ("0", cell.predicted == 0),
        "word": ("GOOD not", np.array([{"good", "not"} <= text for text in tokens])),
    }
    for name, (value, members) in expected.items():
        control = page.locator(f".sieve [name={name}]")
        control.select_option(value) if control.evaluate("one => one.tagName") == "SELECT" else control.fill(value)
        assert page.locator(".count").inner_text() == f"{members.sum()} of {COUNT} texts", name
        assert order_of(page, cell, 3) == np.flatnonzero(members)[:3].tolist(), name
        press(page, "all texts")
        page.wait_for_function(f"() => document.querySelector('.count').textContent.startsWith('{COUNT} of')")
    page.locator(".sieve [name=tauLow]").fill("0")
    page.locator(".sieve [name=error]").select_option("right")
    both = (tau >= 0) & known & (cell.labels == cell.predicted)
    assert page.locator(".count").inner_text() == f"{both.sum()} of {COUNT} texts"
    page.locator(".sieve [name=word]").fill("nowhere")
    assert page.locator(".count").inner_text() == f"0 of {COUNT} texts" and page.locator("[role=option]").count() == 0


def test_a_long_list_grows_as_it_is_scrolled(opens):
    many = drawn_record(600, longest=6)
    page, cell = opens(paged(many)), one_cell(many)
    assert page.locator("[role=option]").count() < 100
    for least in (60, 120):
        page.locator(".list").evaluate("one => { one.scrollTop = one.scrollHeight; }")
        page.wait_for_function("(least) => document.querySelectorAll('[role=option]').length > least", arg=least)
    page.locator("[role=option]").nth(140).click()
    assert page.locator("[role=option][aria-selected=true]").count() == 1 and chosen(page, cell) == 140
    assert page.locator(".list").get_attribute("aria-activedescendant").endswith("-140")


def test_texts_of_a_single_token_and_of_none(page, cell):
    go_to(page, cell, 0)
    assert "A text without tokens." in page.locator(".chosen").inner_text()
    press(page, "uniform")
    assert "has no other attention" in page.locator(".outcome").inner_text()
    go_to(page, cell, 1)
    for name in ("furthest that keeps the answer", "smallest set that flips it"):
        press(page, name)
        assert page.locator(".outcome").inner_text().startswith("One token has all the weight there is")


def test_answers_that_were_measured_beforehand_are_shown_as_they_are(opens):
    measured = drawn_record(6, affine=False, classes=3)
    page, cell = opens(paged(measured)), one_cell(measured)
    assert page.get_by_role("slider").count() == 0
    go_to(page, cell, 3)
    press(page, "furthest attention within ε = 0.05 (lower bound)")
    probs = records.rows(cell.table, "adversary_exact_probs")[3][0]
    np.testing.assert_allclose(tried(page)[1], probs, atol=1e-7)
    press(page, "smallest set that flips")
    assert "the prediction was not recorded" in page.locator(".outcome").inner_text()
    go_to(page, cell, 1)
    press(page, "smallest set that flips")
    assert "there is none for this text" in page.locator(".outcome").inner_text()


def test_hostile_texts_and_names_stay_text(opens):
    tokens = [*HOSTILE, "</script><script>window.hit=1</script>", "<img src=x onerror='window.hit=1'>"]
    names = ["<img src=x onerror=window.hit=1>", "</script><script>window.hit=1</script>"]
    hostile = drawn_record(5, tokens=tokens, label_names=names, dataset="<script>window.hit=1</script>")
    page, cell = opens(paged(hostile)), one_cell(hostile)
    go_to(page, cell, 2)
    for name in ("uniform", "smallest set that flips it", "remove token", "furthest that keeps the answer"):
        press(page, name)
    assert page.locator(".chosen .line").first.locator("bdi").all_text_contents() == [visible(token) for token in tokens]
    assert names[0] in page.locator(".classes").inner_text()
    assert page.evaluate("window.hit") is None and page.locator("img").count() == 0


@pytest.mark.parametrize("width", [400, 1600])
def test_it_fits_and_the_chosen_text_is_printed(opens, page_of_texts, cell, width):
    page = opens(page_of_texts, width=width, scheme="dark")
    go_to(page, cell, LONG)
    press(page, "furthest that keeps the answer")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(media="print")
    assert page.locator(".chosen .line").first.is_visible() and not page.locator(".list").is_visible()
