"""The page: the first screen, charts, shaded texts, tables cut to the largest classes, text that stays text."""

import base64
import hashlib
import re
import xml.etree.ElementTree as tree
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from markupsafe import escape

from attnfaith import record as records
from attnfaith.reporting import charts, heatmap, sections
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.charts import Bar, Chart, svg
from attnfaith.reporting.heatmap import COLOURS, HUES, NEGATIVE, SHADES, example, middle_text, visible
from attnfaith.reporting.html import script
from attnfaith.reporting.page import first_screen, render_page
from attnfaith.reporting.sections import agreement
from attnfaith.reporting.verdicts import UNMEASURED, verdict
from attnfaith.verdict import BESIDE, CANNOT_TELL, RULE, Verdict
from tests.records import build, draw
from tests.views import HOSTILE as CODE


VOID = {"meta", "img", "br", "link", "input"}
ORDER = np.arange(1.0, 10)
HOSTILE = [*CODE, '"><img src=x onerror=alert(1)>', "{{ 7*7 }}", "\x00\x1b", "شكرا", "", "  ", "</table>"]
WORDS = len(HOSTILE) + 2  # of the two sentences of a document


class Page(HTMLParser):
    """Tags with attributes, texts by tag, and whether every element is closed in order.

    data: of each script element that holds data; code: of each that runs. Neither is a tag or a text, but a script that is
    not one of the package's is a tag.
    """

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.open, self.data, self.code = [], [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []
        self.names = {tag for tag, _ in self.tags}

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            is_data = self.tags[-1][1] == {"type": "application/json"}
            if is_data or data == script("parts", "what_if", "explorer")["code"]:
                self.tags.pop()
                (self.data if is_data else self.code).append(data)
            return
        self.texts.append((self.open[-1] if self.open else "", data))

    def with_class(self, name):
        return [attrs for _, attrs in self.tags if name in attrs.get("class", "").split()]

    def text(self, tag=None):
        return " ".join(" ".join(data for name, data in self.texts if tag in (None, name)).split())


def page_of(*tables, title="t", facts=None):
    cells = [one_cell(table) for table in tables]
    return render_page(cells, sections.frames(cells), title=title, facts=facts or {}, n_examples=1)


def summary_of(html):
    """The first screen of a page."""
    (part,) = re.findall(r'<section class="summary".*?</section>', html, re.S)
    return part


# ---------- text


def test_texts_facts_and_names_are_escaped():
    weights = np.arange(1, len(HOSTILE) + 1) / sum(range(1, len(HOSTILE) + 1))
    text = {"id": "<i>id</i>", "tokens": HOSTILE, "attention": weights, "gradient": weights[::-1], "label": 1}
    table = build([text], measures=("gradient",), dataset="<script>d</script>")
    field = records.OPTIONAL_COLUMNS["query_tokens"].field("query_tokens")
    table = table.append_column(field, pa.array([HOSTILE], field.type))
    html = page_of(table, title="<script>t</script>", facts={"<u>k</u>": "<script>v</script>"})
    page = Page(html)
    assert not page.names & {"script", "img", "u"} and "<i>id</i>" not in html
    for part in ("<script>t</script>", "<script>d</script>", "<i>id</i>", "<u>k</u>", "<script>v</script>", "{{ 7*7 }}"):
        assert part in page.text()
    assert "49" not in page.text("bdi")
    words = [data for name, data in page.texts if name == "bdi"]
    assert all(words.count(visible(token)) >= 2 for token in HOSTILE)  # in the text and in the query
    first = summary_of(html)
    assert first.count('class="query"') == 1 and first.index('class="query"') < first.index('class="lines"')
    assert not re.search("[\x00-\x08\x0e-\x1f\u202e]", html)


@pytest.mark.parametrize(
    ("token", "text"),
    [("a", "a"), ("", "(empty)"), (" \t", "␣␣"), ("\x00", "␀"), ("a\u202eb", "a[U+202E]b"), ("\x7f", "[U+007F]")]
    + [("شكرا", "شكرا"), ("👩\u200d🔬", "👩\u200d🔬"), ("a\nb", "a␊b"), ("\ufeffx", "[U+FEFF]x")],
)
def test_nothing_unseen_in_a_token(token, text):
    assert visible(token) == text


@pytest.mark.parametrize(
    ("tokens", "direction"), [(["שלום", "ok"], "rtl"), (["شكرا", "ok"], "rtl"), (["ש", "ok", "?"], "ltr"), ([], "ltr")]
)
def test_a_text_runs_as_most_of_its_letters(tokens, direction):
    assert heatmap.direction_of(tokens) == direction


def test_the_page_needs_nothing_beside_it_and_runs_its_own_script_alone():
    html = page_of(draw(20, rationale=True))
    page, rest = Page(html), html
    for part in (*page.data, *page.code):
        rest = rest.replace(part, "")
    assert not re.search(r"https?:|//|url\(|@import", rest)
    assert not re.search(r"https?:|fetch|XMLHttp|import\(|eval", "".join(page.code))
    assert not page.names & {"script", "link", "iframe", "object"}
    (policy,) = [attrs["content"] for _, attrs in page.tags if "default-src" in attrs.get("content", "")]
    (digest,) = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in page.code]
    assert policy == f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]


# ---------- shades


def channels(colour):
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255


def contrast(first, second):
    """WCAG 2 contrast ratio of two colours, 1..21; 4.5 is enough for small text."""
    shares = np.stack([first, second])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_on_the_darkest_shade_can_be_read(scheme):
    style = page_of(draw(5))
    paper, ink, against = (re.findall(rf"--{name}:(#[0-9a-f]{{6}})", style)[scheme] for name in ("paper", "ink", "against"))
    for hue in (*COLOURS[:NEGATIVE], against):
        darkest = SHADES["mix"] * channels(hue) + (1 - SHADES["mix"]) * channels(paper)
        assert contrast(darkest, channels(ink)) >= 4.5, hue


def test_shades_of_one_text():
    """Every measure of inputs has a line; signed ones have a hue of their own for what is against the class."""
    scores = {"attention": [0.5, 0.25, 0.25, 0], "gradient": [0.0, -4.0, 2.0, 0.125], "leave_one_out": [0, 0, 0, 0]}
    scores |= {"lrp": [-4, 1, 0, 0], "gradient_hidden": [1, 2, 3, 4]}
    names = ("leave_one_out", "lrp", "gradient_hidden", "gradient")
    cell = one_cell(build([{**scores, "gold": [0, 1, 0, 0], "label": 0}], measures=names, rationale=True))
    assert heatmap.heat_measures(cell) == ("attention", "gradient", "leave_one_out", "lrp")
    text = example(cell, 0, heatmap.heat_measures(cell))
    lines = {label: scores for label, _, scores in text.lines}
    assert [line[:2] for line in text.lines] == [*zip(lines, range(4), strict=True)]
    assert [[score.share for score in lines[name]] for name in ("attention", "gradient", "leave-one-out")] == [
        [1, 0.5, 0.5, 0],
        [0, -1, 0.5, 0.03125],
        [0] * 4,
    ]
    assert [score.depth for score in lines["gradient"]] == [0, 100, 50, 3]
    assert lines["gradient"][1].words == "gradient: -4, −100 % of the largest"
    assert [score.hue(len(HUES)) for score in lines["LRP"][:2]] == [NEGATIVE, len(HUES)]
    assert text.gold == [False, True, False, False] and text.tokens == ["w0", "w1", "w2", "w3"]
    assert (text.predicted, text.label, text.wrong, text.probability) == ("1", "0", True, pytest.approx(0.6))
    html = summary_of(page_of(cell.table))
    assert len(Page(html).with_class("gold")) == 2 and "Underlined: gold evidence." in Page(html).text("p")


def test_sentences_are_shown_one_below_the_other():
    scores = {"tokens": ["first sentence", "second sentence"], "attention": [0.9, 0.1], "gradient": [2, 1], "label": 1}
    table = build([scores, {**scores, "gradient": [1, 2]}], measures=("gradient",))
    field = records.OPTIONAL_COLUMNS["words"].field("words")
    table = table.append_column(field, pa.array([[["first", "sentence"], ["second", "sentence"]]] * 2, field.type))
    assert len(Page(summary_of(page_of(table))).with_class("sentences")) == 1
    assert example(one_cell(table), 0, ["attention"]).unit == "sentence"


# ---------- which texts


def ranked(swaps):
    """Nine-token texts whose first k scores are in the reverse order: tau with attention is 1 - 2 k (k - 1) / 72; a short
    text of tau 1 and one without tau.
    """
    texts = [
        {"id": name, "attention": ORDER / 45, "leave_one_out": np.r_[ORDER[:k][::-1], ORDER[k:]]}
        for name, k in swaps.items()
    ]
    texts.append({"id": "t/0", "attention": [0.4, 0.6], "leave_one_out": [1, 2]})
    texts.append({"id": "t/", "attention": ORDER / 45, "leave_one_out": np.ones(9)})
    return one_cell(build(texts, measures=("leave_one_out",)))


def test_the_one_text_is_next_to_the_median():
    """Taus are 1, 1, .944, .833, .167, -1: the median lies between .833 and .944; the first by id is shown."""
    cell = ranked({f"t/{k}": k for k in (9, 6, 3, 2, 1)})
    row, reason = middle_text(cell)
    assert cell.instance_ids[row] == "t/2"
    assert reason == "No extreme: its τ of attention and leave-one-out, 0.94, is next to the median, 0.89."
    cell = ranked({"t/1": 1, "t/9": 9})
    assert cell.instance_ids[middle_text(cell)[0]] == "t/1", "of the texts at the median, t/0 is too short"
    bare = one_cell(build([{"id": "b", "attention": [1.0]}, {"id": "a", "attention": [1.0]}]))
    assert middle_text(bare) == (1, "The first text by instance id.")
    assert first_screen(bare)["chart"] is None and [line[0] for line in first_screen(bare)["text"].lines] == ["attention"]


# ---------- charts


def with_evidence(dataset, gold=(1, 1, 0, 0, 0, 0, 0, 0, 0)):
    """Texts in which the first tokens are marked: gradient finds them, attention puts them last."""
    text = {"attention": ORDER / 45, "gradient": ORDER[::-1], "gold": np.array(gold, float)}
    return one_cell(build([text] * 3, measures=("gradient",), rationale=True, dataset=dataset))


def test_the_chart_draws_evidence_or_agreement():
    chart = agreement.measures_chart([with_evidence("planted_evidence")])
    assert [bar.label for bar in chart.bars] == ["gradient", "attention"] and chart.why == "" and 0 < chart.chance < 1
    # of nine tokens the marked ones come eighth and ninth: precision 1/8, then 2/9
    assert [bar.marks[0][0] for bar in chart.bars] == [1, pytest.approx((1 / 8 + 2 / 9) / 2)]
    marked, cell = with_evidence("sst"), one_cell(draw(40, measures=("gradient", "lime_hidden")))
    chart = agreement.measures_chart([marked])
    assert "τ with attention" in chart.axis and "what convinces people" in chart.why
    assert f"<figcaption>{escape(chart.why)}</figcaption>" in page_of(marked.table)
    all_marked = with_evidence("planted_evidence", (1,) * 9)
    assert "τ with attention" in agreement.measures_chart([all_marked]).axis
    chart, row = agreement.measures_chart([cell]), agreement.TABLE.frame([cell]).iloc[0]
    (bar,) = chart.bars
    assert (bar.label, bar.marks[0][0], bar.low, bar.high) == ("gradient", row["tau_mean"], row["ci_low"], row["ci_high"])
    assert chart.chance == 0 and chart.ticks == charts.TAUS and sum(bar.shares) == pytest.approx(1)
    single = build([{"attention": [1.0], "gradient": [1.0]}], measures=("gradient",))
    assert agreement.measures_chart([one_cell(single)]) is None, "no text has a tau"


def test_marks_stand_where_their_numbers_are():
    chart = Chart("name", "title", "axis", (Bar("a", ((0.4, "red"),), 0.3, 0.5), Bar("<b>", ((-0.1, "blue"),))), chance=0.1)
    root, space = tree.fromstring(svg(chart, alone=True)), "{http://www.w3.org/2000/svg}"
    circles = [(float(node.get("cx")), node.get("fill")) for node in root.iter(f"{space}circle")]
    ticks = {node.text: float(node.get("x")) for node in root.iter(f"{space}text") if node.get("text-anchor") == "middle"}
    scale = ticks["1.00"] - ticks["0.00"]
    assert circles[0] == (pytest.approx(ticks["0.00"] + 0.4 * scale, abs=0.1), "red")
    assert circles[1][0] == pytest.approx(ticks["0.00"] - 0.1 * scale, abs=0.1)
    assert ticks["chance"] == pytest.approx(ticks["0.00"] + 0.1 * scale, abs=0.1)
    ends = sorted(ticks.values())
    assert (ends[0], ends[-1]) == pytest.approx((charts.LABELS, charts.WIDTH - charts.NUMBERS)), "the scale fills its room"
    lines = {node.get("stroke"): node.get("d") for node in root.iter(f"{space}path")}
    expected = [ticks["0.00"] + share * scale for share in (0.3, 0.5)]
    assert [float(end) for end in re.findall(r"[MH]([\d.]+)", lines["red"])] == pytest.approx(expected, abs=0.1)
    assert "blue" not in lines, "without an interval"
    assert root.find(f"{space}desc").text == "axis. a 0.40 (0.30 to 0.50); <b> −0.10. Chance is 0.10."
    assert "<b>" not in svg(chart)


# ---------- the first screen, and tables


def test_the_page_begins_with_the_verdict():
    tables = [draw(40, seed=seed) for seed in (0, 1)]
    html, outcome = summary_of(page_of(tables[0])), verdict([one_cell(tables[0])])
    assert outcome.outcome == CANNOT_TELL and f">{outcome.headline}</p>" in html and html.count("<svg") == 1, "one chart"
    assert all(escape(words) in html for words in (outcome.reason, outcome.advice, RULE))
    html = page_of(*tables)  # each of several models has a verdict and a chart
    for place, table in enumerate(tables):
        screen = first_screen(one_cell(table), f"chart{place}")
        assert screen["verdict"].headline in html and str(screen["chart"]) in html
    assert html.count('<p class="answer') == 2


@pytest.mark.parametrize(
    ("outcome", "command"),
    [
        (UNMEASURED, "attnfaith measure 'runs/a b' --add integrated_gradients comprehensiveness"),
        (Verdict(BESIDE, "", "", ""), "attnfaith show 'runs/a b' --measures leave_one_out"),
        (Verdict(CANNOT_TELL, "", "", "Measure 60 more."), ""),  # which no command on the same texts does
    ],
)
def test_a_command_does_what_the_advice_says(monkeypatch, outcome, command):
    table = draw(40, measures=("leave_one_out",))
    settings = {"identity": asdict(one_cell(table).identity), "recipe": {"output_dir": "runs/a b"}}
    table = records.with_settings(table, [settings])
    monkeypatch.setattr("attnfaith.reporting.page.verdict", lambda cells: outcome)
    assert first_screen(one_cell(table))["command"] == command


def rows_of(html, caption):
    """The texts of each row of a table of the page."""
    (body,) = re.findall(rf"<caption>{caption}</caption>.*?<tbody>(.*?)</tbody>", html, re.S)
    return [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in body.split("</tr>")[:-1]]


@pytest.mark.parametrize("classes", [6, 30])
def test_many_classes_are_cut_to_the_largest(classes):
    table = draw(300, classes=classes)
    cell, html = one_cell(table), page_of(table)

    def largest(numbers):
        counts = np.bincount(numbers, minlength=classes)
        return sorted(sorted(range(classes), key=lambda number: (-counts[number], number))[:12]), counts

    expected = ["overall", *map(str, largest(cell.predicted)[0])]
    assert [row[1] for row in rows_of(html, "Agreement of token rankings")] == expected * 3
    most, support = largest(cell.predicted)[0], np.bincount(cell.labels[~np.isnan(cell.labels)].astype(int))
    performance = dict(rows_of(html, "Performance and attention"))
    assert [name for name in performance if name.startswith("F1")] == [f"F1, class {number}" for number in most]
    texts = {name: count for name, count in performance.items() if name.startswith("texts of gold class")}
    assert texts == {f"texts of gold class {number}": str(support[number]) for number in most}
    assert html.count("the 12 predicted most often are shown; the files hold all") == 2 * (classes > 12)
    two = page_of(build([{"attention": [0.4, 0.6], "label": 1}]))
    assert ["area under the ROC curve, of two classes", "undefined"] in rows_of(two, "Performance and attention")
