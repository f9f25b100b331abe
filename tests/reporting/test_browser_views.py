"""The pages of views in a real browser, used as a reader would: their numbers are those of the view and of the record."""

import re

import numpy as np
import pytest

from attnfaith.reporting.alignment_view import PairView
from tests.browsers import IN_A_BROWSER, fits, listed, number_of, same_largest, sentence
from tests.sequence_records import build
from tests.views import HOSTILE, drawn_view


pytestmark = IN_A_BROWSER
LENGTH, LAYERS, HEADS = 9, 3, 4


@pytest.fixture(scope="module")
def view():
    return drawn_view(LENGTH, layers=LAYERS, heads=HEADS)


def check_list(page, name, view, shares, most=8):
    """A list of the page has the largest shares of the tokens that are no markers, in percent."""
    same_largest(listed(page, name), view.tokens, 100 * np.where(view.inside, shares, 0), most, atol=0.51)


def choose(page, word):
    page.get_by_role("button", name=word, exact=True).first.click()


def test_it_opens_on_the_answer_and_hides_markers(opens, view):
    page, shares = opens(view.page), view.answer("attention")
    assert page.get_by_role("radio", name="Attention").is_checked()
    assert page.get_by_role("heading", level=1).inner_text() == "good 0.75"
    check_list(page, "reads", view, shares, 16)
    assert listed(page, "readers") == [] and sentence(page).startswith("The answer, “good”, takes most of “")
    marker = page.locator("#words button").first
    assert not marker.is_visible() and sentence(page).endswith("lies on markers.")
    page.get_by_label("show markers").check()
    assert marker.is_visible() and "markers" not in sentence(page)
    assert number_of(listed(page, "reads")[0][1]) == pytest.approx(100 * max(shares), abs=0.51)


@pytest.mark.parametrize(("name", "title"), [("rollout", "Rollout"), ("alti", "ALTI"), ("value_zeroing", "Value zeroing")])
def test_each_measure_has_its_numbers(opens, view, name, title):
    page, through = opens(view.page), view.through(name)[-1]
    page.get_by_text(title, exact=True).click()
    check_list(page, "reads", view, view.answer(name), 16)
    choose(page, "word4")
    check_list(page, "reads", view, through[4])
    check_list(page, "readers", view, through[:, 4])
    share = re.search(r"([\d.]+) % of the answer is of it\.", sentence(page))[1]
    assert float(share) == pytest.approx(100 * view.answer(name)[4], abs=0.51)


def test_pointer_and_keys_go_through_the_graph(opens, view):
    """After layer 1 word5 reads what two layers give it, and the last layer alone reads it."""
    page, last = opens(view.page, "#alti.3.1.2.-1"), view.matrices["alti"][2]
    box = page.locator("#lines").bounding_box()
    page.mouse.click(box["x"] + 10 + (box["width"] - 34) * 2 / (LAYERS + 1), box["y"] + 27 + 23 * 4.5)
    check_list(page, "reads", view, view.through("alti")[1][5])
    check_list(page, "readers", view, last[:, 5])
    share = re.search(r"^“word5” after layer 1 reads .* ([\d.]+) % of the answer goes through it\.$", sentence(page))[1]
    assert float(share) == pytest.approx(100 * view.reads @ last[:, 5], abs=0.51)
    page = opens(view.page, "#alti.4.0.2.-1")
    page.locator("#graph").focus()
    starts = {
        "ArrowDown ArrowDown": "“word3”: as the last layer leaves it",
        "ArrowRight ArrowRight": "“word3” after layer 1 reads ",
        "ArrowLeft ArrowLeft": "“word3” as a token is read most by ",
        "Escape": "The answer, ",
    }
    for keys, start in starts.items():
        for key in keys.split():
            page.keyboard.press(key)
        assert sentence(page).startswith(start)
    assert page.url.endswith("#alti.4.3.2.-1")


def test_a_head_takes_the_place_of_its_layer(opens, view):
    page, head = opens(view.page), view.heads[2][3]
    page.get_by_role("gridcell", name="layer 2, head 3").click()
    layers = [*view.matrices["attention"][:2], head]
    check_list(page, "reads", view, np.linalg.multi_dot([view.reads, *layers[::-1]]), 16)
    choose(page, "word6")
    best = 1 + int(np.argmax(head[6][1:]))
    share = re.match(f"In this map “word6” reads “{view.tokens[best]}” ([0-9.]+) %", sentence(page, "cell"))[1]
    assert float(share) == pytest.approx(100 * head[6][best], abs=1)  # of single heads 256 steps are stored
    box = page.locator("#cells").bounding_box()
    position = {"x": box["width"] * (best - 0.5) / (LENGTH - 1), "y": box["height"] * 5.5 / (LENGTH - 1)}
    page.locator("#cells").hover(position=position)
    share = re.fullmatch(f"“word6” reads “{view.tokens[best]}”: ([0-9.]+) %", sentence(page, "cell"))[1]
    assert float(share) == pytest.approx(100 * head[6][best], abs=1)
    page.get_by_text("ALTI", exact=True).click()  # which has no heads
    check_list(page, "reads", view, view.through("alti")[-1][6])


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
