"""Texts of strangers in every kind of output: they show as they are, and do nothing."""

import csv
import html as html_library
import io
import json
import re
import unicodedata
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from attnfaith import record
from attnfaith.reporting import cards
from attnfaith.reporting.analysis import Analysis
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.compare import compare, comparison_page
from attnfaith.reporting.notebook import Overview, ShownText
from attnfaith.reporting.page import explorer, write_report
from attnfaith.reporting.seed_tables import overview
from attnfaith.study.results import write_page
from attnfaith.support import escaping
from attnfaith.support.escaping import csv_frame, html, markdown, markdown_table, printable, script_data
from tests.figures import SAVE, without_pixels
from tests.records import draw
from tests.views import drawn_view


LIKELY = "=+-@'\t\r\n|`[]()<>&\"\\*_#~$:/.w1 ,;\u202e\x00\x1b\ud800\uff1d"
ANY = st.lists(st.one_of(st.sampled_from(LIKELY), st.characters()), max_size=30).map("".join)  # halves of letters too
PAYLOAD = (
    "\"><img src=x onerror=hit()><script>hit()</script></td></svg><!--]]>' onmouseover='hit()' [x](javascript:hit()) "
    "![y](https://evil.example/y.png) | `c` @nobody www.evil.example {{ 7*7 }} \x1b[2J\u202e ${hit()}"
)
FORMULA = re.compile("[=@\t\r\n＝＋－＠]|[-+](?!(\\d+\\.?\\d*|\\.\\d+)([eE][-+]?\\d+)?$)")
"""Beginnings of cells that a spreadsheet carries out; numbers with a sign are none."""
DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


class Elements(HTMLParser):
    """Every element and comment of a page, with the names of its attributes, in order; links: values that lead somewhere."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.links = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(sorted(name for name, _ in attributes))))
        self.links += [value or "" for name, value in attributes if name in ("href", "src", "srcdoc", "action", "style")]

    def handle_comment(self, _):
        self.elements.append(("comment", ()))


def cells_of(text):
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


# ------------------------------------------------------------------------------------------------ each kind by itself


@given(ANY)
@example("τ × ± − … \\{}$&#%_~^")
def test_a_text_stays_one_text(text):
    """In HTML, Markdown, LaTeX, a terminal and a file name."""
    page = f'<p title="{html(text)}">{html(text)}</p>'
    page.encode()
    assert Elements(page).elements == [("p", ("title",))]
    read = html_library.unescape(str(html(text)))
    assert all(new in (old, "\N{REPLACEMENT CHARACTER}") for new, old in zip(read, text, strict=True))
    written = markdown(text)
    assert len(written.splitlines()) <= 1 and markdown(written) is written
    plain = re.sub(r"\\([-+=.)\\`*_\[\]|#~$])", r"\1", written).replace("\N{WORD JOINER}", "")
    assert html_library.unescape(plain) == printable(re.sub(r"\s+", " ", text)).replace("\N{WORD JOINER}", "")
    shown = escaping.latex(text)
    bare = re.sub(r"\\text(?:backslash|asciitilde|asciicircum)\{\}|\$\\(?:tau|times|pm)\$|\\[&%$#_{}]", "", shown)
    assert not re.search(r"[\\{}$&#%_~^\n]", bare)
    assert not [c for c in printable(text) if unicodedata.category(c) in ("Cc", "Cs") or c in DIRECTION]
    assert printable("a\u200db נ é 漢") == "a\u200db נ é 漢", "joiners are parts of words"
    assert re.fullmatch(r"(?!\.)[A-Za-z0-9.=-]{0,60}", escaping.file_name(text))


@given(st.recursive(ANY, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY, inner, max_size=3), max_leaves=5))
def test_data_of_a_script_ends_no_element(data):
    written = str(script_data(data))
    assert "<" not in written and json.loads(written) == data


LIVE = [
    "[1](javascript:hit())", "[1]: https://evil.example", "![.5][1]",
    "[x](javascript:hit())", "![x](https://evil.example/p.png)", "[x]: https://evil.example", "<https://evil.example>",
    "WWW.evil.example", "me@evil.example", "# x", "- x", "1. x", "2) x", "> x", "---", "===", "```", "~~~", "**x**", "~~x~~",
    "$x$", "|a|b|", "<img src=x onerror=hit()>", "<!-- x", "&lt;img&gt;", "a\n\n# x", "\t\tx", "\\[x](javascript:hit())",
]  # fmt: skip


@pytest.mark.parametrize("text", LIVE)
def test_markdown_as_a_renderer_reads_it(text):
    renderer = pytest.importorskip("markdown_it").MarkdownIt("js-default")  # GitHub's tables and strikethrough
    assert Elements(renderer.render(f"{markdown(text)}\n")).elements == [("p", ())]
    table = Elements(renderer.render(markdown_table([["a", "b"], [text, text]], numeric=[False, True])))
    assert " ".join(tag for tag, _ in table.elements) == "table thead tr th th tbody tr td td"
    assert not re.search(r"(?i)https?://|www\.|@\w", markdown(text)), "an address is a link without any mark"


@given(st.lists(ANY.map(lambda text: re.sub("[\x00\ud800-\udfff]", "", text)), min_size=2, max_size=8))
def test_csv_gives_the_texts_again_and_holds_no_formula(texts):
    cells = cells_of(csv_frame(pd.DataFrame({texts[0]: texts[1:]}, dtype=object)))
    assert not [cell for cell in cells if FORMULA.match(cell)]
    for cell, text in zip(cells, texts, strict=True):
        plain = re.sub("\r\n?", "\n", text)
        assert cell in (plain, f"'{plain}")


def test_the_head_of_a_card_is_yaml():
    data = {"pretty_name": f"---\n{PAYLOAD}", "tags": ["yes", "null", "1e3", "- a: b", "!!python/object:x"]}
    written = str(escaping.yaml_head(data))
    assert yaml.safe_load(written) == data and "\n---" not in f"\n{written}"


# ------------------------------------------------------------------------------------------------ a hostile record


def texts_of(hostile):
    """A function that gives another text at each call: plain ones, or payloads that begin as formulas do."""
    number = iter(range(10**6))

    def text(lead=None):
        place = next(number)
        return f"{lead or '=+-@'[place % 4]}{place:04d}{PAYLOAD}" if hostile else f"{place:04d}{' plain' * 30}"

    return text


def drawn(hostile, seed=0, projection="softmax"):
    """A record whose tokens, ids, class names, data set, model and versions are such texts."""
    text = texts_of(hostile)
    table = draw(12, seed=seed, dataset=text(), projection=projection)
    tokens = [[text() for _ in row] for row in table.column("tokens").to_pylist()]
    for name, values in (("tokens", tokens), ("instance_id", [text("=") for _ in range(len(table))])):
        field = table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field, pa.array(values, field.type))
    settings = {name: text() for name in ("source", "model", "version")}
    return record.with_settings(table, [{**settings, "label_names": [text(), text()], "producers": [text()]}])


def outputs(hostile, folder):
    """All that is written of such records: {name: text}."""
    text, first = texts_of(hostile), drawn(hostile)
    cell, other = (split_cells(table)[0] for table in (first, drawn(hostile, seed=1)))
    write_report(first, folder / "report", title=text(), n_examples=2)
    compared = compare([first, drawn(hostile, projection="sparsemax")], [text(), text()])
    rows = {"cell": [text()], "block": [text()], "status": ["failed"], "n": [np.nan], "reason": [text()]}
    table = markdown_table([[text(), text()], [text(), text()]], numeric=[False, True])
    written = Analysis({text(): pd.DataFrame()}, {}, {text(): table}, {text(): None})
    write_page(folder / "study", pd.DataFrame(rows), {}, written, [cell, other])
    facts = cards.cell_facts({}, first, model_repo=None)
    view = drawn_view(4, tokens=[text() for _ in range(4)], model=text())
    pages = {
        "shown.html": ShownText(cell, 3).html(),
        "overview.html": Overview([cell]).html(),
        "compared.html": compared.html(),
        "compare_page.html": comparison_page(compared),
        "explorer.html": explorer(cell, 0),
        "view.html": view.page,
        "view_frame.html": view._repr_html_(),
        "records_card.md": cards.records_card({"a": facts}, repo_id="a/b", datasets={}),
        **{"shown.txt": ShownText(cell, 3), "overview.txt": Overview([cell]), "compared.txt": compared},
        "compared.csv": csv_frame(compared.frame),
    }
    for table in overview([cell, other]):
        pages |= {f"{table.name}.{kind}": table.formatted(kind) for kind in ("markdown", "csv", "text")}
    ends = (".html", ".svg", ".csv", ".md", ".txt")
    files = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.suffix in ends}
    return files | {name: str(page) for name, page in pages.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(outputs of plain records, of hostile ones of the same shape)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SAVE, without_pixels)
        plain, hostile = (outputs(kind, tmp_path_factory.mktemp("records")) for kind in (False, True))
    assert plain.keys() == hostile.keys()
    return plain, hostile


@pytest.mark.slow
def test_what_is_written_of_a_hostile_record(both):
    """Pages have the elements of a plain one, Markdown no live part, and no terminal text moves the cursor."""
    checked = {"html": 0, "md": 0, "txt": 0}
    for name, plain, hostile in [(name, plain, both[1][name]) for name, plain in both[0].items()]:
        if name.endswith((".html", ".svg")):
            page = Elements(hostile)
            assert page.elements == Elements(plain).elements, name
            assert not [link for link in page.links if re.match(r"\s*(javascript|vbscript|https?:)", link, re.I)]
            assert "<img src=x" not in hostile and ("img src=x" in hostile or name.endswith(".svg")), name
            for script in re.findall(r"<script\b[^>]*>(.*?)</script>", hostile, re.S):
                assert "<img" not in script and "<!--" not in script, name
            checked["html"] += 1
        elif name.endswith((".md", ".markdown")):
            pipes, expected = (
                [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()] for text in (hostile, plain)
            )
            assert pipes == expected, name
            body = hostile.split("---\n", 2)[-1] if hostile.startswith("---\n") else hostile
            assert not re.search(r"<(img|script|/td)|(?<!\\)!?\[[xy]\]\(|(?<!\\)`c`|@nobody|www\.evil", body), name
            checked["md"] += 1
        elif name.endswith((".txt", ".text")):
            assert "\x1b" not in hostile and "\u202e" not in hostile, name
            checked["txt"] += 1
    assert checked["html"] >= 10 and checked["md"] >= 5 and checked["txt"] >= 4
    cells = [cell for name, hostile in both[1].items() if name.endswith(".csv") for cell in cells_of(hostile)]
    assert [cell for cell in cells if FORMULA.match(cell)] == []
    assert sum(bool(re.match("'[-=+@]", cell)) for cell in cells) > 20
