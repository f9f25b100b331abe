"""The page of a pair of sentences in a real browser: its numbers are those of the record.

Skipped where no browser is installed.
"""

import numpy as np
import pytest

from attnfaith.reporting.alignment_view import PairView
from tests.browsers import BROWSER, NO_BROWSER, said, shown
from tests.sequence_records import build
from tests.views import HOSTILE


pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)]
SOURCE, TARGET = (
    ["die", "grüne", "katze", "schläft", "heute", "im", "garten", "."],
    ["the", "green", "cat", "sleeps", "in", "the", "garden", "."],
)
LAYERS, HEADS = 3, 2


def drawn(source=SOURCE, target=TARGET, links=None, seed=0):
    """A record of one pair; occlusion is signed, and has neither layers nor heads."""
    generator, g, t = np.random.default_rng(seed), len(target), len(source)
    weights = generator.dirichlet(np.full(t + 1, 0.5), (LAYERS, HEADS, 2, g)).astype(np.float32)[..., :t]
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
    for target, source in enumerate([0, 1, 2, 3, 5, 5, 6, 7]):
        gold[target, source] = 2
    gold[1, 0] = gold[7, 4] = 1
    return gold


@pytest.fixture(scope="module")
def view(links):
    return PairView.of(drawn(links=links))


def alike(made, words, values):
    """The words of the largest values, in order, and these to three digits."""
    order = [place for place in np.argsort(-values, kind="stable")[:8] if values[place] > 0]
    assert [word for word, _ in made] == [words[place] for place in order]
    numbers = [float(number.replace("\u00a0", " ").strip(" %<").replace("−", "-")) for _, number in made]
    return numbers, values[order]


def error_rate(weights, gold):
    """The alignment error rate of the largest weight of each row, as it is defined."""
    read = {(target, int(np.argmax(row))) for target, row in enumerate(weights)}
    sure, possible = ({tuple(map(int, one)) for one in np.argwhere(gold >= least)} for least in (2, 1))
    return 1 - (len(read & sure) + len(read & possible)) / (len(read) + len(sure))


def said_rate(page):
    return float(said(page).rpartition("Error rate of this pair: ")[2].rstrip("."))


def test_the_links_of_each_map_are_held_against_gold(opens, view, links):
    page = opens(view)
    weights = view.measures["attention"]
    assert page.locator("#map-head").inner_text() == "attention, layer 2, mean of heads"
    assert said_rate(page) == pytest.approx(error_rate(weights[2, :, 0].mean(0), links), abs=0.0051)
    page.get_by_role("gridcell", name="attention, layer 1, head 1").click()
    assert said_rate(page) == pytest.approx(error_rate(weights[1, 1, 0], links), abs=0.0051)
    page.get_by_text("row of the word as input").click()
    assert said_rate(page) == pytest.approx(error_rate(weights[1, 1, 1], links), abs=0.0051)
    page.get_by_text("norm", exact=True).click()
    assert page.locator("#map-head").inner_text() == "norm, layer 1"
    assert said_rate(page) == pytest.approx(error_rate(view.measures["norm"][1, 1], links), abs=0.0051)
    page.get_by_text("occlusion", exact=True).click()
    assert said_rate(page) == pytest.approx(error_rate(view.measures["occlusion"], links), abs=0.0051)
    assert page.get_by_role("gridcell").count() == 1
    assert page.get_by_role("radio", name="row of the word as input").is_disabled()


def test_a_word_says_what_it_reads_and_who_reads_it(opens, view):
    page = opens(view, "#attention.0.0.1.-1.-1")
    weights = view.measures["attention"][0, 1, 0]
    page.locator("#target button").nth(6).click()
    numbers, expected = alike(shown(page, "reads"), SOURCE, weights[6])
    np.testing.assert_allclose(numbers, 100 * expected, atol=0.51)
    assert said(page).startswith("“garden” reads “") and said(page).endswith("; in gold “garten”.")
    page.locator("#source button").nth(5).click()
    alike(shown(page, "readers"), TARGET, weights[:, 5])
    assert shown(page, "reads") == [] and said(page).endswith("; in gold by “in”, “the”.")
    page.goto(page.url.replace("attention", "occlusion"))
    page.reload()
    page.wait_for_function("document.documentElement.dataset.ready")
    numbers, expected = alike(shown(page, "readers"), TARGET, view.measures["occlusion"][:, 5])
    np.testing.assert_allclose(numbers, expected, atol=0.006)


def test_keys_go_through_the_map(opens, view):
    page = opens(view, "#occlusion.0.0.-1.-1.-1")
    page.locator("#matrix").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    weight = float(view.measures["occlusion"][1, 0])
    text = said(page).replace("−", "-")
    assert text.startswith("“green” reads “die”: ") and text.endswith("; a possible link in gold.")
    assert float(text.split(": ")[1].split(";")[0]) == pytest.approx(weight, abs=0.006)
    page.keyboard.press("Escape")
    assert said(page).startswith("Linked by its largest weight")


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1600, "light")])
def test_it_fits_and_gold_links_are_drawn(opens, view, links, width, scheme):
    page = opens(view, "#norm.0.2.-1.-1.-1", width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    centres = page.evaluate(
        """([wide, high]) => { const one = document.getElementById("cells"), {width, height} = one, colours = [];
        const {data} = one.getContext("2d").getImageData(0, 0, width, height);
        for (let row = 0; row < high; row++) for (let column = 0; column < wide; column++) {
          const [x, y] = [Math.floor((column + 0.5) * width / wide), Math.floor((row + 0.5) * height / high)];
          colours.push([...data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)]); }
        return [colours, ["--readers", "--paper"].map((name) => getComputedStyle(document.documentElement)
        .getPropertyValue(name).trim())]; }""",
        [len(SOURCE), len(TARGET)],
    )
    colours, (sure, possible) = centres
    drawn_ones = np.array(["#" + "".join(f"{value:02x}" for value in one) for one in colours]).reshape(links.shape)
    assert (drawn_ones[links == 2] == sure).all() and (drawn_ones[links == 1] == possible).all()
    assert (drawn_ones[links == 0] != sure).all()


def test_hostile_words_are_words(opens):
    page = opens(PairView.of(drawn(HOSTILE, HOSTILE[::-1])), width=400)
    page.locator("#source button").nth(1).click()
    page.locator("#target button").nth(1).click()
    assert page.evaluate("window.hit") is None and page.locator("img").count() == 0
    assert page.locator("#source button").nth(1).inner_text() == HOSTILE[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert "gold" not in said(page)  # of which nothing is known
