"""The benchmark of the page says what it measured: size, and that it opens and sorts."""

import importlib

import pytest

from attnfaith.recipes import library
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.page.instrument import instrument
from tests.browsers import BROWSER, NO_BROWSER


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(str(library.folder()))
    return importlib.import_module("benchmark_page")


def test_what_is_drawn_is_a_record_that_the_page_computes_with(pages):
    record = pages.drawn(12, 8)
    assert record.num_rows == 12 and pages.drawn(12, 8) == record
    one = instrument(one_cell(record), 0)
    assert one.shown == 12 and 'data-do="furthest"' in one.html


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)
def test_a_line_for_each_number_of_texts(pages, capsys, monkeypatch):
    monkeypatch.setattr(pages, "REPEATS", 1)
    pages.main(["--texts", "6", "12", "--tokens", "6", "--browser", BROWSER])
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[:2] for line in lines] == [["6", "6"], ["12", "6"]]
    assert all(0 < float(line[2]) < 1 and float(line[3]) > 0 and float(line[4]) > 0 for line in lines)
