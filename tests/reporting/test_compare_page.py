"""The page of a comparison: its numbers are those of `compare`, its texts those of the records, and nothing in it runs."""

import re

import numpy as np
import pytest
from markupsafe import escape

from attnfaith.reporting.blocks import unbroken
from attnfaith.reporting.compare import compare
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.page.compare_page import _with_bounds, comparison_page
from tests.records import build, draw
from tests.reporting.test_report_page import Page, chapter
from tests.views import HOSTILE


def pair(count=12):
    """Two records of the same texts. Attention of the second is of the reverse order in the first text, and as that of the
    first in all others but the second, in which it is flatter.
    """
    order = np.arange(1.0, 10) / 45
    plain = [{"id": f"t/{number:02}", "attention": order, "gradient": order, "label": 1} for number in range(count)]
    changed = [dict(one) for one in plain]
    changed[0]["attention"], changed[1]["attention"] = order[::-1], np.full(9, 1 / 9)
    changed[1]["probs"] = [0.9, 0.1]
    return build(plain, measures=("gradient",)), build(changed, measures=("gradient",), projection="sparsemax")


def test_the_sentence_and_the_table_hold_what_was_compared():
    tables = [draw(40, seed=0), draw(40, seed=0, projection="sparsemax")]
    made = compare(tables, ["one", "<b>two</b>"])
    html = comparison_page(made, n_examples=1)
    assert Page(html).open == [] and "<b>two</b>" not in html
    assert "no difference is told" in html and f"on {made.n_texts:,} texts" in html
    assert f"Of {len(made.frame)} numbers {len(made.frame)} cannot be told apart" in html
    for _, headings, lines in made.blocks:
        assert all(f"<td>{escape(value)}</td>" in html for line in lines for value in line[1:])
        assert all(unbroken(escape(heading or "statistic")) in html for heading in headings)
    assert all(unbroken(escape(note)) in chapter(html, "made") for note in made.notes)
    assert f"{made.frame['quantity'].str.startswith('tau ').sum()}" == str(html.count("<circle"))


def test_a_difference_that_is_told_is_named_with_its_interval():
    generator = np.random.default_rng(0)
    texts = [np.arange(1.0, 10) + generator.normal(size=9) / 10 for _ in range(40)]
    near = [{"attention": row / row.sum(), "gradient": np.arange(9.0)} for row in texts]
    far = [{"attention": row[::-1] / row.sum(), "gradient": np.arange(9.0)} for row in texts]
    tables = [build(near, measures=("gradient",)), build(far, measures=("gradient",), projection="sparsemax")]
    made = compare(tables, ["near", "far"])
    (row,) = [row for row in made.frame.to_dict("records") if row["quantity"] == "tau attention–gradient"]
    assert row["verdict"] == "lower" and row["difference"] < -1.5
    said = f"far against near, on 40 texts: τ attention–gradient is lower ({_with_bounds(row)})"
    assert said in comparison_page(made)
    assert re.fullmatch(r"−\d\.\d{3} \[−\d\.\d{3}, −\d\.\d{3}\]", _with_bounds(row))


def test_texts_stand_side_by_side_the_furthest_first():
    html = comparison_page(compare(pair(), ["soft", "sparse"]), n_examples=2)
    texts = re.findall(r"<article.*?</article>", chapter(html, "texts"), re.S)
    assert [re.search(r"<bdi>(t/\d+)</bdi>", text)[1] for text in texts] == ["t/00", "t/01", "t/02", "t/03"]
    heads = re.findall(r'<th role="columnheader" scope="col">([^<]+)</th>', texts[0])
    assert heads == ["token", "attention, soft", "gradient, soft", "attention, sparse", "gradient, sparse"]
    rows = re.findall(r'<tr role="row"><th role="rowheader".*?</tr>', texts[0], re.S)
    percents = [re.findall(r'role="cell"[^>]*>(\d+)<', row) for row in rows]
    assert [one[0] for one in percents] == [str(round(100 * place / 9)) for place in range(1, 10)]
    assert [one[2] for one in percents] == [one[0] for one in percents][::-1]
    # the reverse of weights 1..9 in parts of 45 is 40 / 45 / 2 away: |9 - 1| + |8 - 2| + ... = 40
    assert "Attention apart: sparse 0.44." in texts[0]
    assert "<b>soft</b>: 1 (0.60), τ 1.00; <b>sparse</b>: 1 (0.60), τ −1.00." in texts[0]
    assert "<b>sparse</b>: 0 (0.90), τ undefined." in texts[1]
    assert "Attention apart: sparse 0.00." in texts[2]


def test_hostile_texts_and_names_stay_text():
    weights = np.arange(1.0, len(HOSTILE) + 1)
    given = {"tokens": HOSTILE, "attention": weights / weights.sum(), "gradient": weights}
    instances = [{**given, "id": f"{text}{number}"} for number, text in enumerate(HOSTILE)]
    tables = [build(instances, measures=("gradient",), projection=name) for name in ("softmax", "sparsemax")]
    html = comparison_page(compare(tables, HOSTILE[:2]))
    assert Page(html).open == [] and not {tag for tag, _ in Page(html).tags} & {"script", "img"}
    assert "default-src 'none'" in html


def test_a_page_without_texts_is_refused():
    with pytest.raises(ReportError, match="at least 1 text"):
        comparison_page(compare(pair(), ["a", "b"]), n_examples=0)
