"""A browser that is opened once, for tests of pages."""

import pytest

from tests.browsers import Pages, opened_browser


@pytest.fixture(scope="package")
def browser():
    yield from opened_browser()


@pytest.fixture
def opens(browser, tmp_path):
    """Opens a page of this HTML; at the end nothing went wrong in it."""
    pages = Pages(browser, tmp_path / "page.html")
    yield pages
    pages.close()
