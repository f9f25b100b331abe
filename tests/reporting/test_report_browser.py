"""The page of a report in a real browser, at three widths, in the light and the dark, by keyboard and in print.

Skipped where no browser is installed; what axe-core reports is skipped where that is not.
"""

import itertools

import numpy as np
import pytest

from attnfaith.reporting import sections
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.heatmap import contrast
from attnfaith.reporting.html import Picture, script
from attnfaith.reporting.page.page import render_page
from tests.browsers import AXE, BROWSER, NO_AXE, NO_BROWSER, WIDTHS, violations
from tests.records import build, draw
from tests.sections import SIX, ten_tokens
from tests.views import HOSTILE


pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)]
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def html_of(cells):
    pictures = [[Picture(PIXEL, "one pixel", "a figure", "figures/one", "agreement")] for _ in cells]
    return render_page(cells, sections.frames(cells), pictures, title=" ".join(HOSTILE), facts={})


def hostile():
    """Texts, names and ids that are code elsewhere."""
    generator = np.random.default_rng(0)
    instances = [
        {"id": f"{text}{number}", "tokens": HOSTILE, "attention": weights, "gradient": weights[::-1], "label": number % 2}
        for number, text in enumerate(HOSTILE * 4)
        for weights in [generator.dirichlet(np.ones(len(HOSTILE)))]
    ]
    return split_cells(build(instances, measures=("gradient",), dataset=HOSTILE[0]))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pages: of measures and evidence, of tests by erasure, of hostile texts, of two models."""
    folder = tmp_path_factory.mktemp("pages")
    falls = {"attention": 0.2 + np.tile(SIX, 6), "good": 0.2 + 2 * np.tile(SIX, 6), "random": np.full(36, 0.1)}
    cells = {
        "measures": split_cells(draw(40, rationale=True)),
        "erasure": [ten_tokens(falls)],
        "hostile": hostile(),
        "two": [split_cells(draw(40, seed=seed))[0] for seed in (0, 1)],
    }
    for name, part in cells.items():
        (folder / f"{name}.html").write_text(html_of(part), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["measures", "erasure", "hostile", "two"])
def test_nothing_is_wider_than_the_window(opened, name):
    for width in WIDTHS:
        page = opened(name, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        answer = page.locator(".answer").first.bounding_box()
        assert answer["x"] >= 0 and answer["x"] + answer["width"] <= width
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["measures", "erasure"])
def test_the_first_screen_holds_the_answer(opened, name):
    """Without scrolling at 1,280 x 900: the verdict, its reason, the chart and the first line of the text."""
    page = opened(name)
    for part in (".answer", ".answer ~ p", ".chart"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 900, part
    assert page.locator(".one .words").first.bounding_box()["y"] < 850


def test_the_command_is_copied_as_it_is_pasted(opened):
    """On a telephone too it stands in one line, which scrolls."""
    command = opened(width=390).locator(".summary code").first
    text = "attnfaith measure RUN --add integrated_gradients comprehensiveness"
    assert command.evaluate("one => { getSelection().selectAllChildren(one); return getSelection().toString(); }") == text
    assert command.bounding_box()["height"] < 50


def test_contents_by_keyboard(opened):
    page = opened()
    names = page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert names == ["Verdict", "Texts", "Measures", "Tables", "How it was made"]
    for _ in names[:4]:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#tables") and page.get_by_role("heading", name="Tables").bounding_box()["y"] >= 0
    assert page.get_by_role("navigation").bounding_box()["y"] == pytest.approx(0, abs=60)
    rules = page.locator(".rules")
    rules.locator("summary").focus()
    assert not rules.locator(".note").is_visible()
    page.keyboard.press("Enter")
    assert rules.locator(".note").is_visible()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("part", [".answer", ".note", ".chart text", "summary", "nav a"])
def test_text_can_be_read(opened, scheme, part):
    page = opened(scheme=scheme)
    colours = page.evaluate(
        """part => {
            const of = (element, name) => getComputedStyle(element)[name].match(/[\\d.]+/g).map(Number);
            const element = document.querySelector(part);
            return [of(element, element.tagName === "text" ? "fill" : "color"), of(document.body, "backgroundColor")];
        }""",
        part,
    )
    ink, paper = ("#" + "".join(f"{round(value):02x}" for value in colour[:3]) for colour in colours)
    assert contrast(ink, paper) >= 4.5
    assert (contrast(paper, "#ffffff") > 4.5) == (scheme == "dark")


def test_in_print_all_folds_are_open_and_no_contents(opened):
    page = opened()
    page.emulate_media(media="print")
    assert not page.get_by_role("navigation").is_visible()
    folds = page.locator("main details:visible")
    assert folds.count() > 3
    for place in range(folds.count()):
        height = folds.nth(place).bounding_box()["height"]
        assert height > folds.nth(place).locator("summary").bounding_box()["height"] + 40
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("name", ["measures", "two"])
def test_headings_are_in_order_and_ids_unique(opened, name):
    page = opened(name)
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(one => Number(one.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    labels = page.evaluate("[...document.querySelectorAll('[aria-labelledby]')].map(e => e.getAttribute('aria-labelledby'))")
    assert len(ids) == len(set(ids)) and {name for words in labels for name in words.split()} <= set(ids)


def test_hostile_texts_stay_text(opened):
    page = opened("hostile")
    code = page.locator("script:not([type='application/json'])").all_text_contents()
    assert code == [script("parts", "what_if", "explorer").code] and page.locator("img[onerror]").count() == 0
    assert page.get_by_role("heading", level=1).inner_text().startswith("<img src=x onerror=")
    assert page.locator("bdi", has_text="{{window.hit=1}}").count() > 0


@pytest.mark.skipif(not AXE.is_file(), reason=NO_AXE)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["measures", "erasure", "two"])
def test_axe_finds_nothing_serious(opened, name, scheme):
    assert violations(opened(name, scheme=scheme, bypass_csp=True)) == []
