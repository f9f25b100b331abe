"""What a notebook and a terminal show of a record: sentences and verdict, texts as heat maps and as tables, all escaped."""

import re
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.reporting import render, sections
from attnfaith.reporting.cards import Checkpoint
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.heatmap import HUES, NEGATIVE, extreme_texts, scores_of
from attnfaith.reporting.notebook import Overview, ShownText, row_of
from attnfaith.support.errors import AttnfaithError
from tests.records import build, draw


ATTACK = "</span></div><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """The text of HTML whose elements are closed in order, and its tags."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.tags, self.attributes = [], "", set(), []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += [name for name, _ in attributes]
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page(html):
    read = Page(html)
    assert read.tags <= {"div", "style", "p", "b", "bdi", "span", "small", "ul", "li", "h4", "i"}
    assert not [name for name in read.attributes if name.startswith("on") or name in ("href", "src")]
    return read.text


def text(**fields):
    return {"id": "one", "tokens": ["a", "b", "c"], "attention": [0.5, 0.3, 0.2], **fields}


def words(shown):
    return [line.split() for line in str(shown).splitlines()]


def test_the_words_are_those_of_the_report_and_the_cards():
    cell = one_cell(draw(40))
    overview = Overview([cell])
    shown, verdict = page(overview.html()), Checkpoint({}, cell.table).verdict
    sentences = list(render.sentences(sections.registry()["agreement"], cell))
    assert sentences and overview.lead == sentences
    for said in [*sentences, verdict.headline, verdict.reason, verdict.advice]:
        assert said in shown and said in str(overview)
    best, worst = extreme_texts(cell, 2)
    assert all(cell.instance_ids[row] in shown for row in [*best, *worst])
    assert shown.index("Highest agreement") < shown.index("Lowest agreement")


@pytest.mark.parametrize("count", [1, 3])
def test_few_texts(count):
    """Among them one without a token and one of a single token."""
    overview = Overview([one_cell(draw(count))])
    assert "undefined" in str(overview) and "1 of " in page(overview.html())
    assert (" · 1 text" in str(overview)) == (count == 1)
    assert "First texts" in Overview([one_cell(draw(9, measures=()))]).html()


def test_everything_is_escaped():
    table = build([text(id=ATTACK, tokens=[ATTACK, "\x1b[31mred", "\u202e"], gradient=[1, 2, 3])], measures=["gradient"])
    table = records.with_settings(table, [{"identity": asdict(one_cell(table).identity), "label_names": [ATTACK, "b"]}])
    query = records.OPTIONAL_COLUMNS["query_tokens"].field("query_tokens")
    cell = one_cell(table.append_column(query, pa.array([[ATTACK]], query.type)))
    for shown in (Overview([cell]), ShownText(cell, 0)):
        assert "<script" not in shown.html() and "onerror=alert(1)>" not in shown.html() and page(shown.html())
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", str(shown))
    assert ATTACK in page(ShownText(cell, 0).html()) and "[U+202E]" in str(ShownText(cell, 0))


def test_shades_follow_the_scores():
    cell = one_cell(build([text(lime=[2.0, -1.0, np.inf])], measures=["lime"]))
    body = ShownText(cell, 0).html().split("</style>")[1]
    shades = re.findall(r'class="(m\d+s\d+)" title="LIME: ([^"]*)"', body)
    assert shades == [
        (f"m{len(HUES)}s10", "2, 100 % of the largest"),
        (f"m{NEGATIVE}s5", "-1, −50 % of the largest"),
        (f"m{len(HUES)}s0", "infinite"),
    ]
    assert "against what is explained" in body and "against what is explained" not in ShownText(cell, 0, []).html()
    assert scores_of(np.array([np.nan, 1.0]), "lime")[0].value == "lime: undefined"


def test_light_and_dark_colours_are_there():
    """Of each hue that is used, for light, for dark by wish and for dark by theme."""
    style, body = ShownText(one_cell(draw(5)), 3).html().split("</style>")
    used = set(re.findall(r'class="m(\d+)s(\d+)', body))
    assert used and all(style.count(f"--b{hue}-{step}:#") == style.count(f"--i{hue}-{step}:#") == 3 for hue, step in used)


@pytest.mark.parametrize(
    ("target", "label", "said"),
    [
        ("predicted", 0, "of class 1 positive (predicted)"),
        ("gold", 0, "of class 0 negative (gold)"),
        ("gold", None, "of no class"),
        (0, 0, "of class 0 negative"),
        ({"of": 1, "against": 0}, 0, "of class 1 positive against class 0 negative"),
    ],
)
def test_the_class_that_is_explained_is_said(target, label, said):
    options = {"lime": {"target": target}}
    columns = {f"importance_{name}": name for name in ("lime", "gradient")}
    table = build([text(lime=[2.0, -1.0, 0.0], gradient=[1, 2, 3], label=label)], measures=["lime", "gradient"])
    made = {"label_names": ["negative", "positive"], "options": options, "columns": columns}
    table = records.with_settings(table, [{"identity": asdict(one_cell(table).identity), **made}])
    shown = ShownText(one_cell(table), 0)
    assert shown.explained == {"LIME": said} and said in shown.html() and f"LIME: {said}" in str(shown)
    assert ("gold 0 negative (wrong)" in shown.html()) == (label == 0)


def test_a_row_for_each_token():
    nothing = float("nan")
    cell = one_cell(
        build([text(label=1, gradient=[-2.0, 4.0, 0.0], lime=[nothing, 0.5, 2.0])], measures=("gradient", "lime"))
    )
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


def test_texts_that_have_nothing_to_show_and_long_ones():
    cell = one_cell(draw(5))
    assert "A text without tokens." in page(ShownText(cell, 0).html()) and "(no token)" in str(ShownText(cell, 0))
    assert "1 token ·" in page(ShownText(cell, 1).html()) and "undefined" in str(ShownText(cell, 1))
    long = one_cell(build([text(tokens=["w" * 90] * 500, attention=[1 / 500] * 500)]))
    assert "First 400 of 500" in ShownText(long, 0).html() and "The first 400 of 500 tokens." in str(ShownText(long, 0))
    assert max(map(len, str(ShownText(long, 0)).splitlines())) <= 100


def test_gold_evidence_and_sentences():
    cell = one_cell(build([{"attention": [1.0, 0.0], "gold": [1.0, 0.0]}], rationale=True, measures=()))
    assert words(ShownText(cell, 0))[-2:] == [["w0", "1", "*"], ["w1", "0"]]
    table = build([text(tokens=["one two", "three", "x"], gradient=[1.0, 2.0, 3.0])], measures=["gradient"])
    given = {"words": [[["one", "two"], ["three"], ["x"]]], "word_attention": [[[0.5, 0.5], [1.0], [1.0]]]}
    for name, values in given.items():
        field = records.OPTIONAL_COLUMNS[name].field(name)
        table = table.append_column(field, pa.array(values, field.type))
    assert words(ShownText(one_cell(table), 0))[-3] == ["one", "two", "0.5", "1"]


def test_a_text_by_number_and_by_id():
    cell = one_cell(draw(30))
    assert row_of(cell, "17") == 17 and row_of(cell, "t/017") == 17 and row_of(cell, "017") == 17
    for word, message in (("30", "no text 30"), ("t/0177", "did you mean t/017"), ("xyz", "xyz")):
        with pytest.raises(AttnfaithError, match=message):
            row_of(cell, word)
