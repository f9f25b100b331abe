"""The page of a report in a real browser: at three widths, light and dark, by keyboard, in print; and every control of its
texts, whose answers are those of the library.
"""

import itertools
import re

import numpy as np
import pytest
from scipy.special import rel_entr

from attnfaith.interventions.adversary import maximise
from attnfaith.interventions.targets import softmax
from attnfaith.reporting import sections
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.heatmap import visible
from attnfaith.reporting.html import script
from attnfaith.reporting.page import render_page
from tests.affine_records import drawn_cell
from tests.browsers import IN_A_BROWSER, fits
from tests.records import build, draw
from tests.reporting.test_page import HOSTILE
from tests.sections import SIX, ten_tokens


pytestmark = IN_A_BROWSER
COUNT, LONG = 60, 5  # a row of the record with many tokens


def html_of(*cells, title="texts"):
    return render_page(cells, sections.frames(cells), title=title, facts={}, files=True)


@pytest.fixture(scope="module")
def pages():
    """Pages of measures and evidence, of tests by erasure, of hostile texts, of two models."""
    falls = {"attention": 0.2 + np.tile(SIX, 6), "good": 0.2 + 2 * np.tile(SIX, 6), "random": np.full(36, 0.1)}
    text = {"tokens": HOSTILE, "attention": np.arange(1, len(HOSTILE) + 1), "gradient": np.ones(len(HOSTILE)), "label": 1}
    text["attention"] = text["attention"] / text["attention"].sum()
    hostile = build([{**text, "id": word} for word in HOSTILE], measures=("gradient",), dataset=HOSTILE[0])
    return {
        "measures": html_of(one_cell(draw(40, rationale=True))),
        "erasure": html_of(ten_tokens(falls)),
        "hostile": html_of(one_cell(hostile), title=" ".join(HOSTILE)),
        "two": html_of(*(one_cell(draw(40, seed=seed)) for seed in (0, 1))),
    }


@pytest.mark.parametrize("name", ["measures", "erasure", "hostile", "two"])
def test_it_fits_has_ordered_headings_and_runs_its_own_script_alone(opens, pages, name):
    for width in (400, 900, 1600):  # of a telephone, half a screen, a large screen
        page = opens(pages[name], width=width)
        box = page.locator(".answer").first.bounding_box()
        assert fits(page) and box["x"] >= 0 and box["x"] + box["width"] <= width
        page.locator("details").evaluate_all("folds => folds.forEach(fold => fold.open = true)")
        assert fits(page)
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(node => Number(node.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(node => node.id)")
    labels = page.evaluate(
        "[...document.querySelectorAll('[aria-labelledby]')].map(node => node.getAttribute('aria-labelledby'))"
    )
    assert len(ids) == len(set(ids)) and {name for words in labels for name in words.split()} <= set(ids)
    code = page.locator("script:not([type='application/json'])").all_text_contents()
    assert code == [script("parts", "what_if", "explorer")["code"]] and page.locator("img[onerror]").count() == 0


def test_contents_by_keyboard_and_folds_in_print(opens, pages):
    page = opens(pages["measures"])
    names = page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert names == ["Verdict", "Texts", "Measures", "Tables", "How it was made"]
    for _ in names[:4]:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#tables") and page.get_by_role("heading", name="Tables").bounding_box()["y"] >= 0
    rules = page.locator(".rules")
    rules.locator("summary").focus()
    assert not rules.locator(".note").is_visible()
    page.keyboard.press("Enter")
    assert rules.locator(".note").is_visible()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.emulate_media(media="print")
    folds = page.locator("main details:visible")
    heights = [(fold.bounding_box()["height"], fold.locator("summary").bounding_box()["height"]) for fold in folds.all()]
    assert len(heights) > 3 and all(height > head + 40 for height, head in heights)


# ---------- the texts


@pytest.fixture(scope="module")
def cell():
    return drawn_cell(COUNT, label_names=["bad", "good"])


@pytest.fixture(scope="module")
def html(cell):
    return html_of(cell)


@pytest.fixture
def page(opens, html):
    """The page of texts with all filters in sight."""
    page = opens(html)
    page.locator(".more summary").click()
    return page


def read_out(cell, row):
    """own (T,), values (T,C), bias (C,) of a text in float64."""
    own = cell.attention[row].astype(np.float64)
    values, bias = (cell.rows(name)[row].astype(np.float64) for name in ("token_logits", "token_logits_bias"))
    return own / own.sum(), values.reshape(-1, len(bias)), bias


def tried(page):
    """The attention that is tried and the prediction under it, to full precision."""
    weights = page.locator(".bar").evaluate_all("bars => bars.map((bar) => Number(bar.dataset.weight))")
    probs = page.locator(".classes li").evaluate_all("lines => lines.map((line) => Number(line.dataset.probability))")
    return np.array(weights), np.array(probs)


def check_answer(page, cell, row, attention):
    """The page shows this attention, and what follows from it."""
    own, values, bias = read_out(cell, row)
    weights, probs = tried(page)
    expected, before = softmax(attention @ values + bias), softmax(own @ values + bias)
    np.testing.assert_allclose(weights, attention, atol=1e-9, rtol=0)
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
    press(page, "uniform")
    check_answer(page, cell, LONG, np.full(len(own), 1 / len(own)))
    press(page, "permute")
    first = tried(page)[0]
    check_answer(page, cell, LONG, first)
    np.testing.assert_allclose(np.sort(first), np.sort(own), atol=1e-12)
    press(page, "permute")
    assert not np.allclose(tried(page)[0], first)
    press(page, "furthest that keeps the answer")
    for epsilon, key in ((0.01, None), (0.5, "End"), (0.001, "Home")):
        if key:
            page.get_by_label("epsilon").focus()
            page.keyboard.press(key)
        check_answer(page, cell, LONG, maximise(own, values[:, 1] - values[:, 0], bias[1] - bias[0], epsilon).attention)
    press(page, "smallest set that flips it")
    assert tried(page)[1].argmax() != softmax(own @ values + bias).argmax() or "No removal" in page.inner_text(".outcome")
    press(page, "the model’s own")
    np.testing.assert_allclose(tried(page)[0], own, atol=1e-12)
    page.get_by_role("slider").nth(2).focus()
    press(page, "remove token")
    page.get_by_role("slider").nth(0).focus()
    page.keyboard.press("Delete")
    left = np.where(np.isin(np.arange(len(own)), (0, 2)), 0.0, own)
    check_answer(page, cell, LONG, left / left.sum())


def test_a_weight_is_dragged_and_set_by_keys(page, cell):
    go_to(page, cell, LONG)
    own, bar = read_out(cell, LONG)[0], page.get_by_role("slider").nth(1)
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.9)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.25)
    page.mouse.up()
    weights, rest = tried(page)[0], np.delete(own, 1)
    assert weights[1] == pytest.approx(0.75**2, abs=0.02)  # a bar is as high as the square root of its weight
    np.testing.assert_allclose(np.delete(weights, 1), rest / rest.sum() * (1 - weights[1]), atol=1e-9)
    check_answer(page, cell, LONG, weights)
    for key, value in (("End", 1.0), ("ArrowDown", 0.99), ("ArrowUp", 1.0), ("Home", 0.0)):
        page.keyboard.press(key)
        weights = tried(page)[0]
        assert weights[1] == pytest.approx(value, abs=1e-9) and weights.sum() == pytest.approx(1, abs=1e-9)
        assert float(bar.get_attribute("aria-valuenow")) == pytest.approx(100 * value, abs=0.01)
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("slider").nth(2).evaluate("bar => bar === document.activeElement")


def order_of(page, cell, most):
    """The first texts of the list, in its order."""
    names = page.locator("[role=option] > span:first-child > bdi").all_inner_texts()[:most]
    return [cell.instance_ids.index(name) for name in names]


def test_texts_are_sorted_and_filtered(page, cell):
    tau, labelled = cell.tau("attention", "gradient").astype(np.float32), ~np.isnan(cell.labels)
    gold = [np.nan if np.isnan(label) else cell.probs[row, int(label)] for row, label in enumerate(cell.labels)]
    largest = [max(row, default=np.nan) for row in cell.attention]
    for way, sign in (("up", 1), ("down", -1)):
        page.locator("[name=order]").select_option(way)
        for name, values in {"largest": largest, "gold": gold, "length": cell.lengths, "tau": tau}.items():
            page.locator("[name=by]").select_option(name)
            order = sorted(range(COUNT), key=lambda row: (np.isnan(values[row]), sign * values[row], row))
            assert order_of(page, cell, 12) == order[:12], (name, way)
    page.locator("[name=by]").select_option("place")
    page.locator("[name=order]").select_option("up")
    words = [set(text) for text in cell.table.column("tokens").to_pylist()]
    expected = {
        "tauLow": ("0.2", tau >= 0.2),
        "tauHigh": ("0", tau <= 0),
        "error": ("wrong", labelled & (cell.labels != cell.predicted)),
        "label": ("1", cell.labels == 1),
        "predicted": ("0", cell.predicted == 0),
        "word": ("GOOD not", np.array([{"good", "not"} <= text for text in words])),
    }
    for name, (value, members) in expected.items():
        control = page.locator(f".sieve [name={name}]")
        control.select_option(value) if control.evaluate("node => node.tagName") == "SELECT" else control.fill(value)
        assert page.locator(".count").inner_text() == f"{members.sum()} of {COUNT} texts", name
        assert order_of(page, cell, 3) == np.flatnonzero(members)[:3].tolist(), name
        press(page, "all texts")
        page.wait_for_function(f"() => document.querySelector('.count').textContent.startsWith('{COUNT} of')")


def test_texts_without_another_attention(page, cell):
    go_to(page, cell, 0)
    assert "A text without tokens." in page.locator(".chosen").inner_text()
    press(page, "uniform")
    assert "has no other attention" in page.locator(".outcome").inner_text()
    go_to(page, cell, 1)
    for name in ("furthest that keeps the answer", "smallest set that flips it"):
        press(page, name)
        assert page.locator(".outcome").inner_text().startswith("One token has all the weight there is")


def test_hostile_texts_stay_text_and_fit(opens):
    names = ["<img src=x onerror=window.hit=1>", "</script><script>window.hit=1</script>"]
    cell = drawn_cell(5, tokens=HOSTILE, label_names=names, dataset="<script>window.hit=1</script>")
    page = opens(html_of(cell), width=400, scheme="dark")
    go_to(page, cell, 2)
    for name in ("uniform", "smallest set that flips it", "remove token", "furthest that keeps the answer"):
        press(page, name)
    assert page.locator(".chosen .line").first.locator("bdi").all_text_contents() == [visible(token) for token in HOSTILE]
    assert names[0] in page.locator(".classes").inner_text() and fits(page)
