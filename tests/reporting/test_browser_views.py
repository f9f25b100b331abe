"""The pages of views in a real browser, used as a reader would: their numbers are those of the view and of the record."""

import re

import numpy as np
import pytest

from attnfaith.reporting.view import PairView
from tests.browsers import IN_A_BROWSER, fits, listed, number_of, same_largest, sentence
from tests.sequence_records import build
from tests.views import HOSTILE, drawn_view


pytestmark = IN_A_BROWSER
LENGTH, LAYERS, HEADS = 9, 3, 4


@pytest.fixture(scope="module")
def view():
    return drawn_view(LENGTH, layers=LAYERS, heads=HEADS)


def check_list(page, name, view, shares):
    """A list of the page has the largest shares of the tokens that are no markers, in percent."""
    same_largest(listed(page, name), view.tokens, 100 * np.where(view.inside, shares, 0))


def choose(page, word):
    page.get_by_role("button", name=word, exact=True).first.click()


def test_it_opens_on_the_words_of_the_answer(opens, view):
    page, shares = opens(view.page), view.answer("attention")
    assert page.get_by_role("radio", name="Attention").is_checked()
    assert page.get_by_role("heading", level=1).inner_text() == "good 0.75"
    check_list(page, "reads", view, shares)
    assert listed(page, "readers") == [] and sentence(page).startswith("The answer, “good”, takes most of “")
    share = re.search(r"([\d.]+) % lies on markers\.$", sentence(page))[1]
    assert float(share) == pytest.approx(100 * shares[0], abs=0.51)


@pytest.mark.parametrize(("name", "title"), [("rollout", "Rollout"), ("alti", "ALTI"), ("value_zeroing", "Value zeroing")])
def test_each_measure_has_its_numbers(opens, view, name, title):
    page, matrix = opens(view.page), view.matrices[name][-1]
    page.get_by_text(title, exact=True).click()
    check_list(page, "reads", view, view.answer(name))
    choose(page, "word4")
    check_list(page, "reads", view, matrix[4])
    check_list(page, "readers", view, matrix[:, 4])
    assert re.match("“word4” reads “.*; it is read most by “.*%.$", sentence(page))
    page.keyboard.press("ArrowRight")
    check_list(page, "reads", view, matrix[5])
    page.keyboard.press("Escape")
    assert sentence(page).startswith("The answer, ") and page.url.endswith(f"#{name}.0.2.-1.-1.-1")


def test_heads_and_cells_of_the_map(opens, view):
    page, head = opens(view.page), view.heads[1][3]
    page.get_by_role("gridcell", name="Attention, layer 1, head 3").click()
    choose(page, "word6")
    check_list(page, "reads", view, head[6])
    check_list(page, "readers", view, head[:, 6])
    for hidden in (1, 0):  # the marker, until it is asked for
        assert page.get_by_role("button", name="[CLS]").is_visible() == (not hidden)
        box, size = page.locator("#cells").bounding_box(), LENGTH - hidden
        place = {"x": box["width"] * (2.5 - hidden) / size, "y": box["height"] * (6.5 - hidden) / size}
        page.locator("#cells").hover(position=place)
        share = re.fullmatch("“word6” reads “word2”: ([0-9.]+) %", sentence(page, "cell"))[1]
        assert float(share) == pytest.approx(100 * head[6][2], abs=0.51)
        page.get_by_role("checkbox", name="show markers").click()
    page.get_by_role("gridcell", name="Attention, layer 1, head 3").press("ArrowUp")
    check_list(page, "reads", view, view.heads[0][3][6])
    page.get_by_text("ALTI", exact=True).click()  # which has no heads
    check_list(page, "reads", view, view.matrices["alti"][0][6])


def test_hostile_text_is_text(opens):
    view = drawn_view(len(HOSTILE), tokens=HOSTILE, classes=HOSTILE[:2], model=HOSTILE[0], layers=2)
    pair = PairView.of(build_pair(HOSTILE, HOSTILE[::-1]))
    for html, name in ((view.page, "words"), (pair.page, "source"), (pair.page, "target")):
        page = opens(html, width=400)
        for place in range(1, len(HOSTILE)):
            page.locator(f"#{name} button").nth(place).click()
        texts = page.locator(f"#{name} button").all_inner_texts()
        assert HOSTILE[1] in texts and "[U+202E]esrever" in texts
        assert page.locator("img, #words script").count() == 0 and fits(page)


# ---------- a pair of sentences


SOURCE = ["die", "grüne", "katze", "schläft", "heute", "im", "garten", "."]
TARGET = ["the", "green", "cat", "sleeps", "in", "the", "garden", "."]


def build_pair(source=SOURCE, target=TARGET, links=None):
    """A record of one pair; occlusion is signed, and has neither layers nor heads."""
    generator, g, t = np.random.default_rng(0), len(target), len(source)
    weights = generator.dirichlet(np.full(t + 1, 0.5), (LAYERS, 2, 2, g)).astype(np.float32)[..., :t]
    measures = {
        "alignment_attention": [weights],
        "alignment_attention_mean": [weights.mean(1)],
        "alignment_norm": [generator.random((LAYERS, 2, g, t)).astype(np.float32)],
        "alignment_occlusion": [generator.normal(size=(g, t)).astype(np.float32)],
    }
    return build([(source, target)], links=None if links is None else [links], measures=measures)


@pytest.fixture(scope="module")
def links():
    gold = np.zeros((len(TARGET), len(SOURCE)), np.int64)
    gold[np.arange(8), [0, 1, 2, 3, 5, 5, 6, 7]] = 2
    gold[1, 0] = gold[7, 4] = 1
    return gold


@pytest.fixture(scope="module")
def pair(links):
    return PairView.of(build_pair(links=links))


def test_the_links_of_each_map_are_held_against_gold(opens, pair, links):
    page, attention = opens(pair.page), pair.measures["attention"]

    def check_rate(weights):
        """The page reports the error rate of the largest weight of each row, as it is defined."""
        read = {(target, int(np.argmax(row))) for target, row in enumerate(weights)}
        sure, possible = ({tuple(map(int, place)) for place in np.argwhere(links >= least)} for least in (2, 1))
        rate = 1 - (len(read & sure) + len(read & possible)) / (len(read) + len(sure))
        reported = sentence(page).rpartition("Error rate of this pair: ")[2].rstrip(".")
        assert float(reported) == pytest.approx(rate, abs=0.0051)

    assert page.locator("#map-head").inner_text() == "attention, layer 2, mean of heads"
    check_rate(attention[2, :, 0].mean(0))
    page.get_by_role("gridcell", name="attention, layer 1, head 1").click()
    check_rate(attention[1, 1, 0])
    page.get_by_text("row of the word as input").click()
    check_rate(attention[1, 1, 1])
    page.get_by_text("norm", exact=True).click()
    assert page.locator("#map-head").inner_text() == "norm, layer 1"
    check_rate(pair.measures["norm"][1, 1])
    page.get_by_text("occlusion", exact=True).click()
    check_rate(pair.measures["occlusion"])
    assert page.get_by_role("gridcell").count() == 1
    assert page.get_by_role("radio", name="row of the word as input").is_disabled()


def test_words_and_cells_of_a_pair(opens, pair):
    page, weights = opens(pair.page, "#attention.0.0.1.-1.-1"), pair.measures["attention"][0, 1, 0]
    page.locator("#target button").nth(6).click()
    same_largest(listed(page, "reads"), SOURCE, 100 * weights[6])
    assert sentence(page).startswith("“garden” reads “") and sentence(page).endswith("; in gold “garten”.")
    page.locator("#source button").nth(5).click()
    same_largest(listed(page, "readers"), TARGET, 100 * weights[:, 5])
    assert listed(page, "reads") == [] and sentence(page).endswith("; in gold by “in”, “the”.")
    occlusion = pair.measures["occlusion"]
    page = opens(pair.page, "#occlusion.0.0.-1.-1.5")
    same_largest(listed(page, "readers"), TARGET, occlusion[:, 5], atol=0.006)
    page = opens(pair.page, "#occlusion.0.0.-1.-1.-1")
    page.locator("#matrix").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    weight = re.fullmatch("“green” reads “die”: (.*); a possible link in gold.", sentence(page))[1]
    assert number_of(weight) == pytest.approx(float(occlusion[1, 0]), abs=0.006)
    page.keyboard.press("Escape")
    assert sentence(page).startswith("Linked by its largest weight")
