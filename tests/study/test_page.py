"""The page of a study: its tables to paste, every cell with its report or why it has none, nothing that is not escaped."""

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from attnfaith import record
from attnfaith.study.results import Results, write_page, write_tables
from tests.records import draw


class Links(HTMLParser):
    """What a page leads to, and the texts of its cells."""

    def __init__(self, html):
        super().__init__()
        self.links, self.data = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data):
        self.data.append(data.strip())


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Three complete cells of two kinds, of which one has a report, and one that failed."""
    monkeypatch.chdir(tmp_path)
    folders = {}
    for name, fields in {"a 1": {"seed": 1}, "a-2": {"seed": 2}, "b-1": {"seed": 1, "encoder": "cnn"}}.items():
        folders[name] = Path("runs") / name
        folders[name].mkdir(parents=True)
        record.save(draw(20, **fields), folders[name] / "record.parquet")
    (folders["a 1"] / "report").mkdir()
    (folders["a 1"] / "report" / "index.html").write_text("a report")
    cells = pd.DataFrame(
        {
            "cell": [*folders, "<b>broken</b>"],
            "block": "x",
            "status": ["complete"] * 3 + ["failed"],
            "n": pd.array([20, 20, 20, None], "Int64"),
            "reason": ["", "", "", "it has <script> & no texts"],
        }
    )
    return {"output_dir": "runs", "results": "papers/one/results", "tables": ["agreement"]}, cells, folders


@pytest.mark.slow
def test_the_page(study):
    settings, cells, folders = study
    made = write_tables(settings, folders)
    page = write_page(settings, cells, folders, made)
    html = page.read_text()
    read = Links(html)
    assert page == Path("papers/one/results/index.html") and "Study: one" in read.data
    assert "Complete: 3 of 4 cells. 1 failed. Data sets: sst. Seeds: 1, 2." in read.data
    assert [link for link in read.links if not (page.parent / unquote(link)).is_file()] == [], "every link leads somewhere"
    assert not any(os.path.isabs(link) or "://" in link for link in read.links)
    assert [link for link in read.links if link.endswith("report/index.html")] == ["../../../runs/a%201/report/index.html"]
    assert {"agreement.csv", "agreement_over_seeds.md", "wide/agreement.tex"} <= set(read.links)
    assert "<script>" not in html and "<b>broken" not in html and "it has <script> & no texts" in read.data
    written = (page.parent / "wide" / "agreement.md").read_text()
    spread = re.search(r"\| bilstm \| (\S+ ± \S+) \|", written)[1]
    assert spread in read.data and "| cnn | " in written, "what is pasted is what is seen"


def test_a_study_without_a_number_or_a_reason(study):
    settings, cells, folders = study
    html = write_page(settings, cells.head(3), folders, Results({}, [], [], [])).read_text()
    assert "To paste" not in html and ">why<" not in html and "Figures" not in html
