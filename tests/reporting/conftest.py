"""A browser that is opened once, for tests of pages."""

import pytest

from tests.browsers import BROWSER, LONGEST_WAIT, Pages


@pytest.fixture(scope="package")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=LONGEST_WAIT)
        yield browser
        browser.close()


@pytest.fixture
def opens(browser, tmp_path):
    """Opens a page of this HTML; at the end nothing went wrong in it."""
    pages = Pages(browser, tmp_path / "page.html")
    yield pages
    pages.close()
