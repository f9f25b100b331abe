"""A measured number in prose is followed by the place of its value, which it must round to.

`.21<!-- recipes/…/x.csv | encoder == 'bilstm' and seed == 10 | tau | mean -->`: table, pandas query (may be empty), column
and mean, std, median, min, max, sum, count or "only" (of exactly one row), then `| × 100` for a percentage.
"""

import re
from pathlib import Path

import pandas as pd
import pytest


ROOT = Path(__file__).parents[2]
TEXTS = {path: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
MARK = re.compile(r"<!--([^|>]*\|.*?)-->")
NUMBER = re.compile(r"([−-]?[\d,]*\.?\d+)(?: ?%)?(?:\*\*)?$")


def value(csv, query, column, how, scale="× 1"):
    rows = pd.read_csv(ROOT / csv)
    rows = rows.query(query) if query else rows
    return float(scale.removeprefix("× ")) * (rows[column].item() if how == "only" else getattr(rows[column], how)())


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_numbers_are_those_of_their_tables(page):
    pieces = MARK.split(TEXTS[page])
    assert len(pieces) // 2 <= 3, "more numbers are a table"
    for prose, mark in zip(pieces[::2], pieces[1::2], strict=False):
        number = NUMBER.search(prose)[1].replace("−", "-").replace(",", "")
        written = f"{value(*map(str.strip, mark.split('|'))):.{len(number.partition('.')[2])}f}"
        assert written in (number, number.replace(".", "0.", 1)), f"{number}<!--{mark}-->"


def test_there_are_marked_numbers():
    assert any(MARK.search(text) for text in TEXTS.values())
