"""A browser that is opened once, for tests of pages."""

import pytest

from tests.browsers import Pages, opened_browser


@pytest.fixture(scope="package")
def browser():
    yield from opened_browser()


@pytest.fixture
def opens(browser, tmp_path):
    """Opens the page of a view; at the end nothing went wrong in it, and it asked for nothing but its file."""
    pages = Pages(browser, tmp_path / "view.html")
    yield pages
    pages.close()
