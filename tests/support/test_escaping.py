"""Texts of strangers in every kind of output: they show as they are, and do nothing."""

import csv
import html as html_library
import io
import re
import unicodedata
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
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
from attnfaith.support.escaping import csv_frame, html, markdown, markdown_table, printable
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
TURNS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
DIRECTION = {c for c in map(chr, range(0x2070)) if unicodedata.bidirectional(c) in TURNS} | {*"\u061c\u200e\u200f"}


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
def test_a_text_stays_one_text(text):
    """In HTML, Markdown, a terminal and a file name."""
    page = f'<p title="{html(text)}">{html(text)}</p>'
    page.encode()
    assert Elements(page).elements == [("p", ("title",))]
    read = html_library.unescape(str(html(text)))
    assert all(new in (old, "\N{REPLACEMENT CHARACTER}") for new, old in zip(read, text, strict=True))
    written = markdown(text)
    assert len(written.splitlines()) <= 1 and markdown(written) is written
    plain = re.sub(r"\\([-+=.)\\`*_\[\]|#~$])", r"\1", written).replace("\N{WORD JOINER}", "")
    assert html_library.unescape(plain) == printable(re.sub(r"\s+", " ", text)).replace("\N{WORD JOINER}", "")
    assert not [c for c in printable(text) if unicodedata.category(c) in ("Cc", "Cs") or c in DIRECTION]
    assert printable("a\u200db נ é 漢") == "a\u200db נ é 漢", "joiners are parts of words"
    assert re.fullmatch(r"(?!\.)[A-Za-z0-9.=-]{0,60}", escaping.file_name(text))


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


@pytest.mark.slow
def test_what_is_written_of_a_hostile_record(tmp_path, monkeypatch):
    """Pages have the elements of a plain one, Markdown no live part, and no terminal text moves the cursor."""
    monkeypatch.setattr(SAVE, without_pixels)
    plain_files, files = (outputs(hostile, tmp_path / name) for name, hostile in (("plain", False), ("hostile", True)))
    assert files.keys() == plain_files.keys() and {name.rpartition(".")[2] for name in files} > {"html", "svg", "md", "txt"}
    for name, text in files.items():
        plain, kind = plain_files[name], name.rpartition(".")[2]
        if kind in ("html", "svg"):
            page = Elements(text)
            assert page.elements == Elements(plain).elements, name
            assert not [link for link in page.links if re.match(r"\s*(javascript|vbscript|https?:)", link, re.I)]
            assert "<img src=x" not in text and ("img src=x" in text or kind == "svg"), name
            for script in re.findall(r"<script\b[^>]*>(.*?)</script>", text, re.S):
                assert "<img" not in script and "<!--" not in script, name
        elif kind in ("md", "markdown"):
            pipes = [[len(re.findall(r"(?<!\\)\|", line)) for line in file.splitlines()] for file in (text, plain)]
            assert pipes[0] == pipes[1], name
            body = text.split("---\n", 2)[-1] if text.startswith("---\n") else text
            assert not re.search(r"<(img|script|/td)|(?<!\\)!?\[[xy]\]\(|(?<!\\)`c`|@nobody|www\.evil", body), name
        elif kind in ("txt", "text"):
            assert "\x1b" not in text and "\u202e" not in text, name
    cells = [cell for name, text in files.items() if name.endswith(".csv") for cell in cells_of(text)]
    assert [cell for cell in cells if FORMULA.match(cell)] == []
    assert sum(bool(re.match("'[-=+@]", cell)) for cell in cells) > 20
