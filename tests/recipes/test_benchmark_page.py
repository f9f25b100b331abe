"""The benchmark of the page says what it measured: size, and that it opens and sorts."""

import importlib
import subprocess
import sys

import pandas as pd
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
def test_a_row_for_each_number_of_texts(tmp_path):
    """In a process of its own, since one process drives one browser."""
    options = ["--texts", "6", "12", "--tokens", "6", "--repeats", "1", "--browser", BROWSER, "--output", tmp_path / "page"]
    subprocess.run([sys.executable, library.folder() / "benchmark_page.py", *options], check=True)
    table = pd.read_csv(tmp_path / "page.csv")
    assert table.texts.tolist() == [6, 12] and (table.tokens == 6).all() and (table.repeats == 1).all()
    assert table.megabytes.between(0.01, 1).all() and (table[["opened_seconds", "sorted_seconds"]] > 0).all().all()
    assert (table[["opened_core_seconds", "sorted_core_seconds", "load"]] >= 0).all().all()  # in steps of hundredths
    assert "Chromium" in (tmp_path / "page.md").read_text()
