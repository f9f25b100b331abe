"""A browser that is opened once, for tests of pages."""

import pytest

from tests.browsers import LONGEST_WAIT, Pages, opened_browser


@pytest.fixture(scope="package")
def browser():
    yield from opened_browser()


@pytest.fixture
def opens(browser, tmp_path):
    """Opens the page of a view; at the end nothing went wrong in it, and it asked for nothing but its file."""
    pages = Pages(browser, tmp_path / "view.html")
    yield pages
    pages.close()


@pytest.fixture
def opened(browser, files):
    """Opens a page of the folder `files`, which the test's module has; at the end nothing went wrong, no more was asked for,
    and no code of its texts ran.
    """
    faults, asked, open_pages = [], [], []

    def open_page(name="measures", width=1280, scheme="light", **how):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, **how)
        page.set_default_timeout(LONGEST_WAIT)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda sent: asked.append(sent.url))
        page.goto((files / f"{name}.html").as_uri())
        open_pages.append(page)
        return page

    yield open_page
    hits = [page.evaluate("window.hit") for page in open_pages]
    for page in open_pages:
        page.close()
    assert not faults and hits == [None] * len(hits)
    assert {url.partition("#")[0].partition(":")[0] for url in asked} <= {"file", "data"}
