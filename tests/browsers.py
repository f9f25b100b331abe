"""A real browser for tests of pages, used as a reader would use it; and what its pages show."""

import shutil

import numpy as np
import pytest


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
LONGEST_WAIT = 120_000  # milliseconds; all of them pass only where a page does not come
IN_A_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no browser is installed: chromium, chromium-browser or google-chrome"),
]


class Pages:
    """Pages that are open in a browser; what went wrong in them, and the addresses they asked for."""

    def __init__(self, browser, path):
        self.browser, self.path = browser, path
        self.faults, self.addresses, self.pages = [], [], []

    def __call__(self, html, place="", width=1280, scheme="light"):
        self.path.write_text(html, encoding="utf-8")
        page = self.browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(LONGEST_WAIT)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda line: self.faults.append(line.text) if line.type in ("error", "warning") else None)
        page.on("request", lambda request: self.addresses.append(request.url))
        page.goto(self.path.as_uri() + place)
        page.wait_for_function("() => document.documentElement.dataset.ready")
        self.pages.append(page)
        return page

    def close(self):
        """Close them. Nothing went wrong, no code of their texts ran, and they asked for nothing but their file."""
        hits = [page.evaluate("window.hit") for page in self.pages]
        for page in self.pages:
            page.close()
        assert not self.faults and hits == [None] * len(hits), self.faults
        files = {url.partition("#")[0] for url in self.addresses if not url.startswith("data:")}
        assert files <= {self.path.as_uri()}, files


def fits(page):
    """Whether nothing is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def listed(page, name):
    """A list of the page, by its id: (words, number) of each line."""
    items = page.locator(f"#{name} button")
    return [tuple(text.split("\n")) for text in items.all_inner_texts()] if items.count() else []


def number_of(text):
    """The number in a text of the page, such as "12.5 %"."""
    return float(text.replace("\u00a0", " ").strip(" %<").replace("−", "-"))


def same_largest(lines, words, values, atol=0.51):
    """The lines are the words of the eight largest values above 0, in order, each with its value."""
    order = [place for place in np.argsort(-np.asarray(values), kind="stable")[:8] if values[place] > 0]
    assert [word for word, _ in lines] == [words[place] for place in order]
    np.testing.assert_allclose([number_of(number) for _, number in lines], np.asarray(values)[order], atol=atol)


def sentence(page, name="sentence"):
    """A sentence of the page, with plain blanks."""
    return page.locator(f"#{name}").inner_text().replace("\u00a0", " ")
