import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.reporting import heatmap, write_report
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.heatmap import COLOURS, HUES, NEGATIVE, contrast, example, extreme_texts, shades, visible
from attnfaith.reporting.html import PAPER, script


VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """Tags with attributes, texts by tag, and whether every element is closed in order.

    data: of each script element that holds data; code: what runs. Neither is a tag or a text, but a script that is not one
    of the package's is a tag.
    """

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.open, self.data, self.code = [], [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            is_data = self.tags[-1][1] == {"type": "application/json"}
            if is_data or data == script("parts", "what_if", "explorer").code:
                self.tags.pop()
                (self.data if is_data else self.code).append(data)
            return
        self.texts.append((self.open[-1] if self.open else "", data))

    def with_class(self, name):
        return [attrs for _, attrs in self.tags if name in attrs.get("class", "").split()]

    def text(self, tag=None):
        return " ".join(" ".join(data for where, data in self.texts if tag in (None, where)).split())


@pytest.fixture
def page_of(tmp_path, quick_figures):
    def make(record, **options):
        return write_report(record, tmp_path / "report", **options).read_text(encoding="utf-8")

    return make


def first_screen(html):
    """The first screen of a page."""
    (part,) = re.findall(r'<section class="summary".*?</section>', html, re.S)
    return part


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "&amp;",
    "'",
    "{{ 7*7 }}",
    "\u202eevil",
    "\x00\x1b",
    "شكرا",
    "",
    "  ",
    "</table>",
]


def test_texts_facts_and_names_are_escaped(build_record, page_of):
    count = len(HOSTILE)
    weights = np.arange(1, count + 1) / sum(range(1, count + 1))
    record = build_record(
        [
            {
                "id": "<i>id</i>",
                "tokens": HOSTILE,
                "attention": weights,
                "gradient": weights[::-1],
            }
        ],
        measures=("gradient",),
        dataset="<script>d</script>",
    )
    html = page_of(record, title="<script>t</script>", facts={"<u>k</u>": "<script>v</script>", "n": {"x": ["<", 1]}})
    page = Page(html)
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "i", "b", "u"} - {"i", "b"}  # our own page uses i (legend) and b (tau)
    assert "<i>id</i>" not in html and "<u>" not in html
    assert len([tag for tag, _ in page.tags if tag == "img"]) <= 1  # our figure only
    for part in ("<script>t</script>", "<script>d</script>", "<i>id</i>", "<u>k</u>", "<script>v</script>", "{{ 7*7 }}"):
        assert part in page.text()
    assert "n.x" in page.text() and "49" not in page.text("bdi")
    cells = [data for where, data in page.texts if where == "bdi"]
    for token in HOSTILE:
        assert visible(token) in cells
    assert not re.search("[\x00-\x08\x0e-\x1f\u202e]", html)


@pytest.mark.parametrize(
    ("token", "shown"),
    [("a", "a"), ("", "(empty)"), (" \t", "␣␣"), ("\x00", "␀"), ("a\u202eb", "a[U+202E]b"), ("\x7f", "[U+007F]")]
    + [("شكرا", "شكرا"), ("👩\u200d🔬", "👩\u200d🔬"), ("a\nb", "a␊b"), ("\ufeffx", "[U+FEFF]x")],
)
def test_nothing_unseen_in_a_token(token, shown):
    assert visible(token) == shown


def test_the_page_needs_nothing_beside_it(draw_record, page_of):
    html = page_of(draw_record(20, rationale=True))
    page = Page(html)
    inlined = re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)
    for kept in (*page.data, *page.code):
        inlined = inlined.replace(kept, "")
    assert not re.search(r"https?:|//", inlined) and not re.search(
        r"https?:|fetch|XMLHttp|import\(|eval", "".join(page.code)
    )
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object"}
    assert all(attrs["src"].startswith("data:image/png;base64,") for tag, attrs in page.tags if tag == "img")
    assert "url(" not in html and "@import" not in html
    (policy,) = [attrs["content"] for _, attrs in page.tags if "default-src" in attrs.get("content", "")]
    (digest,) = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in page.code]
    assert policy == f"default-src 'none'; img-src data:; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]


def test_links_lead_to_files_of_the_report(draw_record, tmp_path, quick_figures):
    two = records.concatenate([draw_record(20, seed=seed, rationale=True) for seed in (0, 1)])
    index = write_report(two, tmp_path / "report")
    links = [attrs["href"] for tag, attrs in Page(index.read_text(encoding="utf-8")).tags if tag == "a"]
    linked = {(index.parent / link).resolve() for link in links if not link.startswith("#")}
    assert linked == {path.resolve() for path in index.parent.rglob("*.*") if path.is_file()} - {index.resolve()}


@pytest.mark.parametrize("theme", PAPER)
@pytest.mark.parametrize("hue", COLOURS)
def test_numbers_on_every_shade_can_be_read(hue, theme):
    steps = shades(hue, theme)
    assert len(steps) == 11
    assert steps[0][0] == PAPER[theme]
    assert all(contrast(background, ink) >= 4.5 for background, ink in steps)
    assert len({background for background, _ in steps}) == 11


def test_heat_of_one_text(build_record):
    record = build_record(
        [
            {
                "attention": [0.5, 0.25, 0.25, 0],
                "gradient": [0.0, -4.0, 2.0, 0.125],
                "leave_one_out": [0, 0, 0, 0],
                "gold": [0, 1, 0, 0],
                "label": 0,
            }
        ],
        measures=("gradient", "leave_one_out"),
        rationale=True,
    )
    shown = example(one_cell(record), 0)
    assert shown.lines == (("attention", 0), ("gradient", 1), ("leave-one-out", 2))
    by_row = list(zip(*(token.scores for token in shown.tokens), strict=True))
    assert [score.percent for score in by_row[0]] == ["100", "50", "50", "0"]
    assert [score.shade for score in by_row[0]] == [10, 5, 5, 0]
    assert [score.percent for score in by_row[1]] == ["0", "−100", "50", "3"]
    assert [score.shade for score in by_row[1]] == [0, 10, 5, 0]
    assert {score.percent for score in by_row[2]} == {"0"}
    assert by_row[1][1].value == "gradient: -4, −100 % of the largest"
    assert [token.gold for token in shown.tokens] == [False, True, False, False]
    assert (shown.predicted, shown.label) == (1, 0)
    assert shown.probability == pytest.approx(0.6)


def test_rationale_is_underlined(build_record, page_of):
    record = build_record(
        [{"tokens": ["good", "film"], "attention": [0.9, 0.1], "gold": [1, 0], "label": 0, "gradient": [2, 1]}],
        measures=("gradient",),
        rationale=True,
    )
    html = first_screen(page_of(record))
    assert len(Page(html).with_class("gold")) == 2  # in each of the lines
    assert "Underlined: gold evidence." in Page(html).text("p")


EVERY = ("leave_one_out", "lrp", "gradient_hidden", "gradient", "occlusion")


def test_every_measure_of_inputs_has_a_line(build_record):
    """Signed ones with what speaks against the class in a hue of its own."""
    scores = {"attention": [0.9, 0.1], "gradient": [2, 1], "leave_one_out": [2, 1], "gradient_hidden": [1, 2]}
    cell = one_cell(build_record([{**scores, "lrp": [-4, 1], "occlusion": [1, 3]}], measures=EVERY))
    assert heatmap.main_measures(cell) == ("attention", "gradient", "leave_one_out")
    assert heatmap.shown_measures(cell) == ("attention", "gradient", "leave_one_out", "lrp", "occlusion")
    shown = example(cell, 0)
    assert [label for label, _ in shown.lines] == ["attention", "gradient", "leave-one-out", "LRP", "occlusion"]
    against, small = (token.scores[3] for token in shown.tokens)
    assert against.css(len(HUES)) == f"m{NEGATIVE}s10" and against.value == "LRP: -4, −100 % of the largest"
    assert small.css(len(HUES)) == f"m{len(HUES)}s2"


@pytest.mark.parametrize("words", [HOSTILE, []])
def test_the_question_stands_above_its_text(build_record, page_of, words):
    record = build_record([{"attention": [0.9, 0.1], "gradient": [2, 1], "label": 1}], measures=("gradient",))
    field = records.OPTIONAL_COLUMNS["query_tokens"].field("query_tokens")
    html = page_of(record.append_column(field, pa.array([words], field.type)))
    assert Page(html).open == [] and "script" not in {tag for tag, _ in Page(html).tags}
    page = Page(first_screen(html))
    if not words:
        return
    (query,) = page.with_class("query")
    cells = [data for where, data in page.texts if where == "bdi"]
    assert all(visible(word) in cells for word in words)
    assert page.text().index("query: <script>") < page.text().index("w0")


@pytest.fixture
def documents(build_record):
    """Two documents of two sentences as a record: one with hostile words, one with a sentence of 399 words and one of 2."""
    scores = {"tokens": ["first sentence", "second sentence"], "attention": [0.9, 0.1], "gradient": [2, 1], "label": 1}
    record = build_record([scores, {**scores, "gradient": [1, 2]}], measures=("gradient",))
    words = [[HOSTILE, ["good", "bad"]], [["w"] * 399, ["late", "later"]]]
    weights = [[np.full(len(HOSTILE), 1 / len(HOSTILE)), [0.2, 0.8]], [np.full(399, 1 / 399), [0.5, 0.5]]]
    for name, values in (("words", words), ("word_attention", weights)):
        field = records.OPTIONAL_COLUMNS[name].field(name)
        record = record.append_column(field, pa.array(values, field.type))
    return record


def test_words_of_sentences_are_shaded_by_their_own_attention(documents, page_of):
    html = page_of(documents.slice(0, 1))
    assert Page(html).open == [] and not {tag for tag, _ in Page(html).tags} & {"script"}
    html = first_screen(html)
    page = Page(html)
    assert len(page.with_class("sentences")) == 1
    # 0.2 is a quarter of the largest weight of its sentence, and a quarter of ten shades is rounded to even
    assert '<i class="m0s2" title="attention within the sentence: 0.2, 25 % of the largest"><bdi>good</bdi></i>' in html
    assert '<i class="m0s10" title="attention within the sentence: 0.8, 100 % of the largest"><bdi>bad</bdi></i>' in html
    cells = [data for where, data in page.texts if where == "bdi"]
    assert all(visible(word) in cells for word in HOSTILE)


@pytest.mark.parametrize(("row", "most", "shown"), [(0, None, 2), (0, 13, 2), (0, 12, 1), (0, 1, 1), (1, None, 1)])
def test_the_first_sentence_is_always_shown(documents, row, most, shown):
    """The sentence of 399 words fits, the next two words would be 401."""
    assert len(example(one_cell(documents), row, most=most).tokens) == shown


def rows_of(page, caption):
    """The texts of each row of a table of the page."""
    (body,) = re.findall(rf"<caption>{caption}</caption>.*?<tbody>(.*?)</tbody>", page, re.S)
    return [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in body.split("</tr>")[:-1]]


@pytest.mark.parametrize("classes", [6, 30])
def test_many_classes_are_cut_to_the_largest(draw_record, tmp_path, quick_figures, classes):
    record = draw_record(300, classes=classes)
    cell = one_cell(record)
    html = write_report(record, tmp_path / "report").read_text(encoding="utf-8")
    counts = np.bincount(cell.predicted, minlength=classes)
    shown = rows_of(html, "Agreement of token rankings")
    largest = sorted(range(classes), key=lambda number: (-counts[number], number))[:12]
    expected = ["overall", *map(str, sorted(largest))]
    assert [row[1] for row in shown] == expected * 3
    saved = (tmp_path / "report/tables/agreement.csv").read_text().splitlines()
    assert len(saved) == 1 + 3 * (1 + classes)
    support = np.bincount(cell.labels[~np.isnan(cell.labels)].astype(int), minlength=classes)
    most = sorted(sorted(range(classes), key=lambda number: (-support[number], number))[:12])
    performance = [row[0] for row in rows_of(html, "Performance and attention")]
    assert [name for name in performance if name.startswith("F1")] == [f"F1, class {number}" for number in most]
    assert [row[1] for row in rows_of(html, "Performance and attention") if row[0].startswith("texts of gold class")] == [
        str(support[number]) for number in most
    ]
    assert "area under the ROC curve" not in performance
    assert html.count("the 12 predicted most often are shown; the files hold all") == (classes > 12)
    assert html.count("Of 30 classes the 12 with most texts are shown") == (classes > 12)


def test_two_classes_keep_an_undefined_roc(build_record, page_of):
    html = page_of(build_record([{"attention": [0.4, 0.6], "label": 1}]))
    assert ["area under the ROC curve", "undefined"] in rows_of(html, "Performance and attention")


def ranked(build_record, measures=("leave_one_out",)):
    """Nine-token texts whose tau falls with their number; 3 and 4 tie; one short text of tau 1 and one undefined."""
    order = np.arange(1.0, 10)
    instances = []
    for number, swaps in enumerate((0, 1, 2, 3, 3, 5, 6, 8)):
        scores = np.r_[order[:swaps][::-1], order[swaps:]]
        instances.append({"id": f"t/{9 - number}", "attention": order / order.sum(), "leave_one_out": scores})
    instances.append({"id": "t/short", "attention": [0.4, 0.6], "leave_one_out": [1, 2]})
    instances.append({"id": "t/constant", "attention": order / order.sum(), "leave_one_out": np.ones(9)})
    return build_record(instances, measures=measures)


def test_texts_of_highest_and_lowest_agreement_in_order(build_record):
    cell = one_cell(ranked(build_record))
    ids = cell.instance_ids
    best, worst = extreme_texts(cell, 4)
    # zero and one swaps give tau 1: ties in order of the instance id
    assert [ids[row] for row in best] == ["t/8", "t/9", "t/7", "t/5"]
    assert [ids[row] for row in worst] == ["t/2", "t/3", "t/4", "t/6"]


def test_long_texts_are_cut_and_say_so(build_record, page_of):
    weights = np.arange(1, 502) / sum(range(1, 502))
    html = page_of(build_record([{"attention": weights, "gradient": weights}], measures=("gradient",)))
    assert "First 60 of 501 tokens." in html  # of the one text on the first screen
