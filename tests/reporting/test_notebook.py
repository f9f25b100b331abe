"""A record in a notebook and a terminal: sentences and verdict, texts as heat maps and as tables, all escaped."""

import re
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.reporting import sections
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.heatmap import HUES, NEGATIVE, middle_text
from attnfaith.reporting.notebook import Overview, ShownText, row_of
from attnfaith.support.errors import AttnfaithError
from tests.records import build, draw
from tests.reporting.test_page import Page


ATTACK = "</span></div><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def page_text(html):
    """The text of a heat map that has no tag or attribute by which code could run."""
    page = Page(html)
    assert page.names <= {"div", "style", "p", "b", "bdi", "span", "small", "ul", "li", "h4", "i"}
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert not attributes & {"href", "src"} and not [name for name in attributes if name.startswith("on")]
    return "".join(data for _, data in page.texts)


def cell_of(*, table_columns=(), settings=(), **text):
    """A cell of one text of three tokens. table_columns: {optional column: values}."""
    measures = [name for name in text if name in ("gradient", "lime")]
    table = build([{"id": "one", "tokens": ["a", "b", "c"], "attention": [0.5, 0.3, 0.2], **text}], measures=measures)
    for name, values in dict(table_columns).items():
        field = records.OPTIONAL_COLUMNS[name].field(name)
        table = table.append_column(field, pa.array(values, field.type))
    settings = {"identity": asdict(one_cell(table).identity), **dict(settings)}
    return one_cell(records.with_settings(table, [settings]))


def words(shown):
    return [line.split() for line in str(shown).splitlines()]


def test_an_overview_has_the_sentences_of_the_report_and_one_text():
    cell = one_cell(draw(40))
    overview, (row, why) = Overview([cell]), middle_text(cell)
    text = page_text(overview.html())
    assert overview.lead == sections.registry()["agreement"].sentences(cell) != []
    assert all(sentence in text and sentence in str(overview) for sentence in overview.lead)
    assert cell.instance_ids[row] in text and why in text


def test_everything_is_escaped():
    cell = cell_of(
        id=ATTACK,
        tokens=[ATTACK, "\x1b[31mred", "\u202e"],
        gradient=[1, 2, 3],
        settings={"label_names": [ATTACK, "b"]},
        table_columns={"query_tokens": [[ATTACK]]},
    )
    for shown in (Overview([cell]), ShownText(cell, 0)):
        assert "<script" not in shown.html() and "onerror=alert(1)>" not in shown.html() and page_text(shown.html())
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", str(shown))
    assert ATTACK in page_text(ShownText(cell, 0).html()) and "[U+202E]" in str(ShownText(cell, 0))


def test_shades_follow_the_scores():
    cell = cell_of(lime=[2.0, -1.0, np.inf])
    body = ShownText(cell, 0).html().split("</style>")[1]
    assert re.findall(r'class="m(\d+)" style="--s:(\d+)" title="LIME: ([^"]*)"', body) == [
        (f"{len(HUES)}", "100", "2, 100 % of the largest"),
        (f"{NEGATIVE}", "50", "-1, −50 % of the largest"),
        (f"{len(HUES)}", "0", "infinite"),
    ]


def test_a_row_for_each_token():
    cell = cell_of(label=1, gradient=[-2.0, 4.0, 0.0], lime=[np.nan, 0.5, 2.0])
    assert str(ShownText(cell, 0)).splitlines()[0] == "one  (text 0 of 1)" and "label: 1" in str(ShownText(cell, 0))
    assert words(ShownText(cell, 0))[-4:] == [
        ["attention", "gradient", "LIME"],
        ["a", "0.5", "-2", "–"],
        ["b", "0.3", "4", "0.5"],
        ["c", "0.2", "0", "2"],
    ]
    assert ShownText(cell, 0, ["lime"]).names == ShownText(cell, 0, ["lime", "attention"]).names == ["attention", "lime"]
    with pytest.raises(AttnfaithError, match="'limes'; did you mean 'lime'"):
        ShownText(cell, 0, ["limes"])


def test_short_long_marked_and_nested_texts():
    cell = one_cell(draw(5))
    assert "A text without tokens." in page_text(ShownText(cell, 0).html()) and "(no token)" in str(ShownText(cell, 0))
    assert "1 token ·" in page_text(ShownText(cell, 1).html()) and "undefined" in str(ShownText(cell, 1))
    long = ShownText(cell_of(tokens=["w" * 90] * 500, attention=[1 / 500] * 500), 0)
    assert "First 400 of 500" in long.html() and "The first 400 of 500 tokens." in str(long)
    assert max(map(len, str(long).splitlines())) <= 100
    marked = one_cell(build([{"attention": [1.0, 0.0], "gold": [1.0, 0.0]}], rationale=True))
    assert words(ShownText(marked, 0))[-2:] == [["w0", "1", "*"], ["w1", "0"]]
    columns = {"words": [[["one", "two"], ["three"], ["x"]]], "word_attention": [[[0.5, 0.5], [1.0], [1.0]]]}
    nested = cell_of(tokens=["one two", "three", "x"], gradient=[1.0, 2.0, 3.0], table_columns=columns)
    assert words(ShownText(nested, 0))[-3] == ["one", "two", "0.5", "1"]


def test_a_text_by_number_and_by_id():
    cell = one_cell(draw(30))
    assert row_of(cell, "17") == row_of(cell, "t/017") == row_of(cell, "017") == 17
    for word, message in (("30", "no text '30'"), ("t/0177", "did you mean 't/017'"), ("xyz", "xyz")):
        with pytest.raises(AttnfaithError, match=message):
            row_of(cell, word)
