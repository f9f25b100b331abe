"""What a notebook shows of a record: the report's sentences, the cards' verdicts, texts as heat maps, all of it escaped."""

import re
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.errors import AttnfaithError
from attnfaith.reporting import render, sections
from attnfaith.reporting.cards.findings import Checkpoint
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.notebook import Overview, Shown
from attnfaith.reporting.page.heatmap import HUES, choose
from tests.records import build, draw


ATTACK = "</span></div><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """Tags that are open where they should be closed, the text, the attributes, and the tags that there are."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.tags, self.attributes, self.wrong = [], "", set(), [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes
        self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text += data


def page(html):
    read = Page(html)
    assert not read.wrong and not read.open
    assert read.tags <= {"div", "style", "p", "b", "bdi", "span", "small", "ul", "li", "h4", "i"}
    assert not [name for name, _ in read.attributes if name.startswith("on") or name in ("href", "src")]
    return read


def with_settings(table, **made):
    """The record with what made its one cell."""
    return records.with_settings(table, [{"identity": asdict(one_cell(table).identity), **made}])


def text(**fields):
    return {"id": "one", "tokens": ["a", "b", "c"], "attention": [0.5, 0.3, 0.2], **fields}


def test_the_words_are_those_of_the_report_and_the_cards():
    cell = one_cell(draw(40))
    overview = Overview([cell])
    shown = page(overview.html()).text
    said = render.sentences(sections.known()["agreement"], cell)
    verdict = Checkpoint({}, cell.table).verdict
    assert said and overview.lead == said
    for words in [*said, verdict.headline, verdict.reason, verdict.advice]:
        assert words in shown and words in str(overview)
    best, worst, _ = choose(cell, 2)
    for row in [*best, *worst]:
        assert cell.instance_ids[row] in shown
    assert shown.index("Highest agreement") < shown.index("Lowest agreement")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_texts(count):
    """Among them one without a token and one of a single token."""
    overview = Overview([one_cell(draw(count))])
    assert "undefined" in str(overview)
    assert "1 of " in page(overview.html()).text
    assert (" · 1 text" in str(overview)) == (count == 1)


def test_a_record_without_measures():
    overview = Overview([one_cell(draw(9, measures=()))])
    assert "First texts" in overview.html()
    assert "The record holds no importance measure" in str(overview)


def test_everything_is_escaped():
    names = [f"{ATTACK}0", f"{ATTACK}1"]
    table = build([text(id=ATTACK, tokens=[ATTACK, "b", "c"], gradient=[1, 2, 3], label=0)], measures=["gradient"])
    table = with_settings(table, label_names=names)
    query = records.OPTIONAL_COLUMNS["query_tokens"].field("query_tokens")
    table = table.append_column(query, pa.array([[ATTACK]], query.type))
    cell = one_cell(table)
    assert cell.class_names == tuple(names)
    for html in (Overview([cell]).html(), Shown(cell, 0).html()):
        assert "<script" not in html and "<img" not in html and "onerror=alert(1)>" not in html
        page(html)
    assert ATTACK in page(Shown(cell, 0).html()).text


def test_what_a_terminal_cannot_show_is_written_out():
    table = build([text(tokens=["\x1b[31mred", "\u202eback", "\n"], gradient=[1, 2, 3])], measures=["gradient"])
    for said in (str(Shown(one_cell(table), 0)), str(Overview([one_cell(table)]))):
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", said)
    assert "[U+202E]back" in str(Shown(one_cell(table), 0))


def test_shades_follow_the_scores():
    table = build([text(lime=[2.0, -1.0, 0.0])], measures=["lime"])
    cell = one_cell(table)
    shown = Shown(cell, 0)
    html = shown.html()
    negative, other = len(HUES) + 1, len(HUES)
    assert f"var(--b{other}-10)" in html and f"var(--b{negative}-5)" in html and f"var(--b{other}-0)" in html
    assert html.index(f"var(--b{other}-10)") < html.index(f"var(--b{negative}-5)")
    assert "lime: -1, −50 % of the largest" in html.lower() and "below 0, against what is explained" in html
    assert "below 0, against what is explained" not in Shown(cell, 0, []).html()
    assert [line.signed for line in shown.lines] == [False, True]


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
    shown = Shown(one_cell(with_settings(table, **made)), 0)
    assert [line.explains for line in shown.lines] == ["", "", said]
    assert said in shown.html()
    assert f"LIME: {said}" in str(shown)
    assert shown.title.startswith("predicted 1 positive (probability 0.60)")
    assert ("gold 0 negative (wrong)" in shown.title) == (label == 0) and ("wrong" in shown.html().split("</style>")[1]) == (
        label == 0
    )


def test_measures_are_chosen():
    cell = one_cell(draw(5))
    assert Shown(cell, 3).names == ["attention", "gradient", "leave_one_out"]
    assert (
        Shown(cell, 3, ["leave_one_out"]).names
        == ["attention", "leave_one_out"]
        == Shown(cell, 3, ["attention", "leave_one_out"]).names
    )
    with pytest.raises(AttnfaithError, match="no measure 'lime'; "):
        Shown(cell, 0, ["lime"])


def test_texts_that_have_nothing_to_show():
    cell = one_cell(draw(5))
    assert "A text without tokens." in page(Shown(cell, 0).html()).text and "(no token)" in str(Shown(cell, 0))
    assert "1 token ·" in page(Shown(cell, 1).html()).text and "undefined" in str(Shown(cell, 1))
    long = one_cell(build([text(tokens=["w"] * 500, attention=[1 / 500] * 500)]))
    assert "First 400 of 500." in Shown(long, 0).html() and "The first 400 of 500 tokens." in str(Shown(long, 0))


def test_undefined_scores():
    cell = one_cell(build([text(lime=[np.nan, np.nan, np.nan])], measures=["lime"]))
    assert "LIME: undefined" in Shown(cell, 0).html() and str(Shown(cell, 0)).splitlines()[-1].split() == ["c", "0.2", "–"]


def test_light_and_dark_colours_can_be_read():
    """Every word has the ink that goes with its ground, on both."""
    html = Shown(one_cell(draw(5)), 3).html()
    style, body = html.split("</style>")
    used = set(re.findall(r"var\(--b(\d+-\d+)\);color:var\(--i(\d+-\d+)\)", body))
    assert used and all(ground == ink for ground, ink in used)
    for ground, _ in used:
        assert style.count(f"--b{ground}:#") == style.count(f"--i{ground}:#") == 3  # light, dark by wish, dark by theme
