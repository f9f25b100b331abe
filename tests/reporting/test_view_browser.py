"""The page of a view in a real browser, used as a reader would: its numbers are those of the view.

Skipped where no browser is installed.
"""

import io
import re

import numpy as np
import pytest
from PIL import Image

from attnfaith.reporting.heatmap import contrast
from tests.browsers import BROWSER, NO_BROWSER, percent, said, shown
from tests.views import HOSTILE, drawn_view


pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)]
LENGTH, LAYERS, HEADS = 9, 3, 4


@pytest.fixture(scope="module")
def view():
    return drawn_view(LENGTH, layers=LAYERS, heads=HEADS)


def expected(view, shares, most=8):
    order = [place for place in np.argsort(-np.asarray(shares), kind="stable") if view.inside[place]][:most]
    return [(view.tokens[place], percent(shares[place])) for place in order if shares[place] > 0]


def alike(made, wanted):
    """The same tokens, in order, and shares that differ by no more than what the page rounds."""
    assert [token for token, _ in made] == [token for token, _ in wanted]
    numbers = [[float(share.replace("\u00a0", " ").strip(" %<")) for _, share in one] for one in (made, wanted)]
    np.testing.assert_allclose(*numbers, atol=0.11)


def test_it_opens_on_what_the_answer_is_made_of(opens, view):
    page = opens(view)
    assert page.get_by_role("radio", name="Attention").is_checked()
    alike(shown(page, "reads"), expected(view, view.answer("attention"), 16))
    assert shown(page, "readers") == []
    assert said(page).startswith("The answer, “good”, takes most of “")
    assert page.get_by_role("heading", level=1).inner_text() == "good 0.75"


def test_markers_are_hidden_until_they_are_asked_for(opens, view):
    page = opens(view)
    share = percent(view.answer("attention")[0])
    assert not page.locator("#words button").first.is_visible() and said(page).endswith(f"; {share} lies on markers.")
    page.get_by_label("show markers").check()
    assert page.locator("#words button").first.is_visible() and "markers" not in said(page)
    wanted = sorted(view.answer("attention"), reverse=True)[0]
    assert shown(page, "reads")[0][1].replace("\u00a0", " ") == percent(wanted)


@pytest.mark.parametrize(("name", "title"), [("rollout", "Rollout"), ("alti", "ALTI"), ("value_zeroing", "Value zeroing")])
def test_each_measure_has_its_numbers(opens, view, name, title):
    page = opens(view)
    page.get_by_text(title, exact=True).click()
    alike(shown(page, "reads"), expected(view, view.answer(name), 16))
    page.get_by_role("button", name="word4", exact=True).first.click()
    through = view.through(name)[-1]
    alike(shown(page, "reads"), expected(view, through[4]))
    alike(shown(page, "readers"), expected(view, through[:, 4]))
    assert f"{percent(view.answer(name)[4])} of the answer is of it." in said(page)
    assert page.get_by_role("button", name="word4", exact=True).first.get_attribute("aria-pressed") == "true"


def test_a_dot_is_a_token_at_a_layer(opens, view):
    """After layer 1 word5 reads what two layers give it, and the last layer alone reads it."""
    page = opens(view, "#alti.3.1.2.-1")
    box = page.locator("#lines").bounding_box()
    step, last = 23, LAYERS + 1
    page.mouse.click(box["x"] + 10 + (box["width"] - 34) * 2 / last, box["y"] + 27 + step * 4.5)
    alike(shown(page, "reads"), expected(view, view.through("alti")[1][5]))
    alike(shown(page, "readers"), expected(view, view.matrices["alti"][2][:, 5]))
    assert said(page).startswith("“word5” after layer 1 reads ")
    share = view.reads @ view.matrices["alti"][2][:, 5]
    assert said(page).endswith(f"{percent(share)} of the answer goes through it.")


def test_keys_go_through_the_graph(opens, view):
    page = opens(view, "#alti.4.0.2.-1")
    page.locator("#graph").focus()
    for key in ("ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert said(page).startswith("“word3”: as the last layer leaves it")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("“word3” after layer 1 reads ")
    alike(shown(page, "reads"), expected(view, view.through("alti")[1][3]))
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert said(page).startswith("“word3” as a token is read most by ")
    assert shown(page, "reads") == []
    page.keyboard.press("Escape")
    assert said(page).startswith("The answer, ")
    assert page.url.endswith("#alti.4.3.2.-1")


def test_keys_go_through_text_and_maps(opens, view):
    page = opens(view)
    page.locator("#words button").nth(1).focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "word2"
    page.locator("#grid button[tabindex='0']").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 1, head 0"
    assert page.get_by_role("heading", name="Map: layer 1, head 0").is_visible()
    stops = page.evaluate(
        "[...document.querySelectorAll('button, input, summary, [tabindex]')]"
        ".filter((one) => one.tabIndex >= 0 && !one.closest('ol')).length"
    )
    assert stops < 14  # the text and the maps are one stop each


def test_a_head_takes_the_place_of_its_layer(opens, view):
    page = opens(view)
    page.get_by_role("gridcell", name="layer 2, head 3").click()
    layers = [*view.matrices["attention"][:2], view.heads[2][3]]
    alike(shown(page, "reads"), expected(view, np.linalg.multi_dot([view.reads, *layers[::-1]]), 16))
    page.get_by_role("button", name="word6", exact=True).first.click()
    best = 1 + int(np.argmax(view.heads[2][3][6][1:]))
    text = page.locator("#cell").inner_text().replace("\u00a0", " ")
    share = re.match(f"In this map “word6” reads “{view.tokens[best]}” ([0-9.]+) %", text)[1]
    assert abs(float(share) - 100 * view.heads[2][3][6][best]) < 1  # of single heads 256 steps are kept
    box = page.locator("#cells").bounding_box()
    page.locator("#cells").hover(
        position={"x": box["width"] * (best - 0.5) / (LENGTH - 1), "y": box["height"] * 5.5 / (LENGTH - 1)}
    )
    text = page.locator("#cell").inner_text().replace("\u00a0", " ")
    share = re.fullmatch(f"“word6” reads “{view.tokens[best]}”: ([0-9.]+) %", text)[1]
    assert abs(float(share) - 100 * view.heads[2][3][6][best]) < 1
    page.get_by_text("ALTI", exact=True).click()  # which has no heads
    alike(shown(page, "reads"), expected(view, view.through("alti")[-1][6]))


def test_layers_that_are_no_stack_read_the_tokens(opens):
    """As a decoder reads an encoder: nothing is multiplied."""
    made = drawn_view(LENGTH, layers=LAYERS, heads=HEADS, stacked=False)
    page = opens(made, "#attention.2.4.2.-1")
    maps = made.matrices["attention"]
    alike(shown(page, "reads"), expected(made, maps[1][4]))
    assert said(page).endswith(". 0 % of the answer goes through it.")
    page.get_by_role("button", name="word4", exact=True).first.click()
    alike(shown(page, "reads"), expected(made, maps[-1][4]))
    alike(shown(page, "readers"), expected(made, maps[-1][:, 4]))
    page.get_by_role("button", name="the answer").click()
    alike(shown(page, "reads"), expected(made, made.answer("attention"), 16))


def test_small_maps_are_as_dark_as_their_weights(opens, view):
    """Pixels of one map: the darker, the larger the weight."""
    page = opens(view)
    pixels = page.evaluate(
        "(() => { const one = document.querySelector('[aria-label=\"layer 1, head 2\"] canvas');"
        "return [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]; })()"
    )
    light = np.array(pixels).reshape(LENGTH - 1, LENGTH - 1, 4)[..., :3].sum(-1)
    order = np.argsort(view.heads[1][2][1:, 1:].ravel(), kind="stable")
    assert (np.diff(light.ravel()[order]) <= 2).all() and np.ptp(light) > 200


def test_lines_are_drawn_where_shares_flow(opens, view):
    page = opens(view, "#alti.4.0.2.-1")
    image = np.asarray(Image.open(io.BytesIO(page.locator("#lines").screenshot())).convert("RGB")).astype(int)
    assert (image[..., 2] > image[..., 0] + 60).sum() > 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1600])
def test_it_fits_and_can_be_read(opens, width, scheme):
    page = opens(drawn_view(30, layers=6, heads=12), "#alti.-1.5.2.-1", width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pairs = page.evaluate(
        """[...document.querySelectorAll('#words button, .labels bdi, #about, #sentence, .note, fieldset span, h2')]
        .filter((one) => one.checkVisibility()).map((one) => {
          const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true}), colours = [];
          const over = []; for (let at = one; at; at = at.parentElement) over.unshift(getComputedStyle(at).backgroundColor);
          for (const fill of over) { pen.fillStyle = fill; pen.fillRect(0, 0, 1, 1); }
          colours.push([...pen.getImageData(0, 0, 1, 1).data]);
          pen.fillStyle = getComputedStyle(one).color; pen.fillRect(0, 0, 1, 1);
          colours.push([...pen.getImageData(0, 0, 1, 1).data]);
          return colours; })"""
    )
    assert len(pairs) > 60
    for pair in pairs:
        first, second = ("#" + "".join(f"{value:02x}" for value in one[:3]) for one in pair)
        assert contrast(first, second) >= 4.5, (first, second)


def test_hostile_text_is_text(opens):
    made = drawn_view(len(HOSTILE), tokens=HOSTILE, classes=HOSTILE[:2], model=HOSTILE[0], layers=2)
    page = opens(made, width=400)
    for place in range(1, len(HOSTILE)):
        page.locator("#words button").nth(place).click()
    assert page.evaluate("window.hit") is None
    assert page.locator("#words button").nth(1).inner_text() == HOSTILE[1]
    assert page.locator("#words button").nth(4).inner_text() == "[U+202E]esrever"
    assert page.locator("h1 bdi").inner_text() == HOSTILE[1]
    assert page.locator("img, #words script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
