"""A real browser for tests of pages, used as a reader would use it; and what its pages show."""

import os
import shutil
from pathlib import Path


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
NO_BROWSER = "no browser is installed: chromium, chromium-browser or google-chrome"
LONGEST_WAIT = 120_000  # milliseconds; all of them pass only where a page does not come
WIDTHS = (400, 900, 1600)  # pixels: of a telephone, half a screen, a large screen
AXE = Path(os.environ.get("AXE_CORE", Path(__file__).parents[1] / "node_modules/axe-core/axe.min.js"))
NO_AXE = "axe-core is not there: npm install axe-core in the project, or name its axe.min.js in AXE_CORE"


def opened_browser():
    """Chromium without a window, open while it is iterated over."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=LONGEST_WAIT)
        yield browser
        browser.close()


def violations(page):
    """What axe-core calls serious or critical in a page that was opened with bypass_csp, all its folds opened."""
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    every = page.evaluate(
        "axe.run().then(made => made.violations.map(v => [v.impact, v.id, v.nodes[0].html.slice(0, 120)]))"
    )
    return [one for one in every if one[0] in ("serious", "critical")]


class Pages:
    """Pages of one file, open in a browser; what went wrong in them, and what they asked for."""

    def __init__(self, browser, path):
        self.browser, self.path = browser, path
        self.faults, self.asked, self.open = [], [], []

    def __call__(self, view, place="", width=1280, scheme="light", **how):
        view.save(self.path)
        page = self.browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, **how)
        page.set_default_timeout(LONGEST_WAIT)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda sent: self.asked.append(sent.url))
        page.goto(self.path.as_uri() + place)
        page.wait_for_function("() => document.documentElement.dataset.ready")
        self.open.append(page)
        return page

    def close(self):
        for page in self.open:
            page.close()
        assert not self.faults, self.faults
        assert {url.partition("#")[0] for url in self.asked} <= {self.path.as_uri()}, self.asked


def percent(share):
    """As pages write a share."""
    if share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{round(100 * share)} %"


def shown(page, name):
    """A list of the page, by its id: (words, number) of each line."""
    items = page.locator(f"#{name} button")
    return [tuple(one.split("\n")) for one in items.all_inner_texts()] if items.count() else []


def said(page, name="sentence"):
    """A sentence of the page, with plain blanks."""
    return page.locator(f"#{name}").inner_text().replace("\u00a0", " ")
