"""The page of `attnfaith compare` in a real browser: every control is used, and its numbers are those of the comparison.

Skipped where no browser is installed; what axe-core says is skipped where that is not.
"""

from contextlib import chdir

import numpy as np
import pyarrow.parquet as pq
import pytest

from attnfaith.cli.compare import main
from attnfaith.reporting.blocks import unbroken
from attnfaith.reporting.compare import compare
from attnfaith.reporting.page.compare_page import comparison_page
from attnfaith.reporting.page.heatmap import visible
from tests.browsers import AXE, BROWSER, NO_AXE, NO_BROWSER, WIDTHS, violations
from tests.records import build
from tests.views import HOSTILE


pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)]
COUNT, SIDES = 40, ("soft.parquet", "sparse.parquet")


@pytest.fixture(scope="module")
def tables():
    """Two models of the same texts, one of which has attention near its gradient; the first text is empty."""
    generator, instances = np.random.default_rng(0), ([], [])
    for number in range(COUNT):
        length = 0 if number == 0 else 9 + number % 9
        tokens, hidden = [f"word{place}" for place in generator.integers(0, 50, length)], generator.normal(size=length)
        for made, noise in zip(instances, (2.0, 0.3), strict=True):
            weights = np.exp(hidden + noise * generator.normal(size=length))
            made.append(
                {
                    "tokens": tokens,
                    "attention": weights / weights.sum() if length else [],
                    "probs": generator.dirichlet([1, 1]),
                    "label": number % 2,
                    "gradient": np.exp(hidden),
                    "leave_one_out": np.exp(hidden + generator.normal(size=length)),
                }
            )
    measures = ("gradient", "leave_one_out")
    return [
        build(one, measures=measures, projection=name) for one, name in zip(instances, ("softmax", "sparsemax"), strict=True)
    ]


def hostile():
    """Texts, classes and ids that are code elsewhere, of three models that are called so, too."""
    generator, made = np.random.default_rng(0), []
    for projection in ("softmax", "sparsemax", "entmax15"):
        weights = [generator.dirichlet(np.ones(len(HOSTILE))) for _ in HOSTILE]
        made.append(
            build(
                [
                    {"id": f"{text}{place}", "tokens": HOSTILE, "attention": one, "gradient": one[::-1], "label": place % 2}
                    for place, (text, one) in enumerate(zip(HOSTILE, weights, strict=True))
                ],
                measures=("gradient",),
                dataset=HOSTILE[0],
                projection=projection,
            )
        )
    return compare(made, [HOSTILE[0], HOSTILE[1], HOSTILE[-1]])


@pytest.fixture(scope="module")
def files(tables, tmp_path_factory):
    """The page that the command writes of two records, and one of hostile texts."""
    folder = tmp_path_factory.mktemp("compared")
    for name, table in zip(SIDES, tables, strict=True):
        pq.write_table(table, folder / name)
    with chdir(folder):  # models are called as they are named
        main([*SIDES, "--page", "two.html"])
    (folder / "hostile.html").write_text(comparison_page(hostile()), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def made(tables):
    return compare(tables, list(SIDES))


def plain(text):
    return text.replace("−", "-")


def test_the_table_and_the_chart_are_the_comparison(opened, made):
    page = opened("two")
    for place, (title, headings, lines) in enumerate(made.blocks):
        fold = page.locator("#tables details").nth(place)
        assert fold.locator("summary").inner_text() == title
        assert fold.locator("thead th").all_inner_texts() == [unbroken(name or "statistic") for name in headings]
        rows = fold.locator("tbody tr").evaluate_all(
            "all => all.map((row) => Array.from(row.cells, (one) => one.textContent))"
        )
        assert rows == [list(line) for line in lines]
    taus = made.frame[made.frame.quantity.str.startswith("tau ") & made.frame.difference.notna()]
    drawn = page.locator("#answer circle").evaluate_all("all => all.map((one) => Number(one.getAttribute('cx')))")
    slope, start = np.polyfit(taus.difference, drawn, 1)  # of the scale
    assert slope > 0 and np.abs(start + slope * taus.difference - drawn).max() < 0.06, "circles lie where the numbers do"
    (line,) = page.locator("#answer path[stroke-dasharray]").evaluate_all("all => all.map((one) => one.getAttribute('d'))")
    assert float(line[1:].split()[0]) == pytest.approx(start, abs=0.06), "no difference is at 0"


def test_the_texts_are_those_of_both_records(opened, made):
    page = opened("two")
    articles = page.locator("#texts article")
    names = articles.locator("h4").all_inner_texts()
    rows = [[cell.instance_ids.index(name) for cell in made.cells] for name in names]
    first, second = made.cells
    far = [np.abs(first.attention[one] - second.attention[other]).sum() / 2 for one, other in rows]
    every = sorted((np.abs(a - b).sum() / 2 for a, b in zip(first.attention, second.attention, strict=True)), reverse=True)
    np.testing.assert_allclose(far[:5], every[:5], atol=1e-6)
    for place, distance in enumerate(far):
        article = articles.nth(place)
        said = plain(article.locator("p").first.inner_text())
        assert said.endswith(f"Attention apart: {SIDES[1]} {distance:.2f}.")
        heads = article.locator("thead th").all_inner_texts()
        cells = article.locator("tbody tr").evaluate_all(
            "all => all.map((row) => Array.from(row.cells, (one) => one.textContent))"
        )
        assert [row[0] for row in cells] == first.table.column("tokens")[rows[place][0]].as_py()
        for side, cell, row in zip(SIDES, made.cells, rows[place], strict=True):
            weights = np.abs(cell.attention[row])
            shown = [int(line[heads.index(f"attention, {side}")]) for line in cells]
            assert np.abs(np.array(shown) - 100 * weights / weights.max()).max() <= 0.51
            tau = cell.tau("attention", "leave_one_out")[row]
            assert f"{side}: {cell.predicted[row]} ({cell.probs[row].max():.2f}), τ {tau:.2f}" in said


def test_every_control_is_used(opened):
    """Links of the contents, folds by click and by key, and tables that are scrolled by keys."""
    page = opened("two", width=400)
    links = page.get_by_role("navigation").get_by_role("link")
    assert links.all_inner_texts() == ["Answer", "Texts", "Tables", "How it was made"]
    for place in range(links.count()):
        links.nth(place).click()
        assert page.locator(f"section#{page.url.partition('#')[2]}").bounding_box()["y"] >= 0
    for place in range(page.locator("#tables details").count()):
        fold = page.locator("#tables details").nth(place)
        region = fold.get_by_role("region")
        assert region.is_visible()
        region.focus()
        page.keyboard.press("End")
        if region.evaluate("one => one.scrollWidth > one.clientWidth"):
            page.keyboard.press("ArrowRight")
            page.wait_for_function("() => document.activeElement.scrollLeft > 0")
        fold.locator("summary").click()
        assert not region.is_visible()
        fold.locator("summary").focus()
        page.keyboard.press("Enter")
        assert region.is_visible()


@pytest.mark.parametrize("name", ["two", "hostile"])
def test_nothing_is_wider_than_the_window(opened, name):
    for width in WIDTHS:
        page = opened(name, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_texts_and_names_stay_text(opened):
    page = opened("hostile")
    assert page.locator("script, img").count() == 0
    assert HOSTILE[1] in page.locator(".answer").first.inner_text()
    article = page.locator("#texts article").first
    assert article.locator("tbody th").all_text_contents() == [visible(token) for token in HOSTILE]
    assert "default-src 'none'" in page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")


@pytest.mark.skipif(not AXE.is_file(), reason=NO_AXE)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["two", "hostile"])
def test_axe_finds_nothing_serious(opened, name, scheme):
    assert violations(opened(name, scheme=scheme, bypass_csp=True)) == []
