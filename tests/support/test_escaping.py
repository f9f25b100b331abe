"""Texts of strangers in every kind of output: they show as they are, and do nothing."""

import csv
import html as html_library
import io
import json
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from attnfaith import record
from attnfaith.reporting import cards, write_report
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.compare import compare
from attnfaith.reporting.notebook import Overview, ShownText
from attnfaith.reporting.page.comparison import comparison_page
from attnfaith.reporting.page.explorer import explorer
from attnfaith.reporting.seed_tables import overview
from attnfaith.study.results import Results, write_page
from attnfaith.support import escaping
from attnfaith.support.escaping import (
    csv_frame,
    csv_value,
    file_name,
    html,
    markdown,
    printable,
    read_csv,
    script_data,
)
from tests.records import draw
from tests.views import drawn_view


ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "attnfaith"
LIKELY = "=+-@'\t\r\n|`[]()<>&\"\\*_#~$:/.w1 ,;\u202e\x00\x1b\ud800\uff1d"
ANY = st.lists(st.one_of(st.sampled_from(LIKELY), st.characters()), max_size=30).map("".join)  # halves of letters too
PAYLOAD = (
    "\"><img src=x onerror=hit()><script>hit()</script></td></svg><!--]]>' onmouseover='hit()' [x](javascript:hit()) "
    "![y](https://evil.example/y.png) | `c` @nobody www.evil.example {{ 7*7 }} \x1b[2J\u202e ${hit()}"
)


class Elements(HTMLParser):
    """Every element of a page with the names of its attributes, in order; values: of those that lead somewhere."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.values, self.comments = [], [], 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(sorted(name for name, _ in attributes))))
        self.values += [value or "" for name, value in attributes if name in ("href", "src", "srcdoc", "action", "style")]

    def handle_comment(self, data):
        self.comments += 1


# ------------------------------------------------------------------------------------------------ each kind by itself


@given(ANY)
def test_html_holds_one_text_and_no_markup(text):
    page = f'<p title="{html(text)}">{html(text)}</p>'
    page.encode()
    assert Elements(page).elements == [("p", ("title",))]
    shown = html_library.unescape(str(html(text)))
    assert len(shown) == len(text)
    assert all(one == other or one == "\N{REPLACEMENT CHARACTER}" for one, other in zip(shown, text, strict=True))


@given(st.recursive(ANY, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY, inner, max_size=3), max_leaves=5))
def test_data_of_a_script_ends_no_element(data):
    written = str(script_data(data))
    assert "<" not in written and json.loads(written) == data


@given(ANY)
def test_markdown_shows_a_text_in_one_line(text):
    written = markdown(text)
    assert len(written.splitlines()) <= 1 and markdown(written) is written
    plain = re.sub(r"\\([-+=.)\\`*_\[\]|#~$])", r"\1", written).replace("\N{WORD JOINER}", "")
    assert html_library.unescape(plain) == printable(re.sub(r"\s+", " ", text)).replace("\N{WORD JOINER}", "")


LIVE = [
    "[x](javascript:hit())", "![x](https://evil.example/p.png)", "[x]: https://evil.example", "<https://evil.example>",
    "https://evil.example", "http://a.b", "www.evil.example", "WWW.evil.example", "me@evil.example", "@nobody", "# x", "- x",
    "+ x", "* x", "1. x", "2) x", "> x", "---", "===", "-", "***", "```", "~~~", "`x`", "**x**", "__x__", "~~x~~", "$x$",
    "|a|b|", "a | b", "<img src=x onerror=hit()>", "<!-- x", "&lt;img&gt;", "a\n\n# x",
    "\t\tx", "\\[x](javascript:hit())", "\\\\|",
]  # fmt: skip


@pytest.mark.parametrize("text", LIVE)
def test_markdown_as_a_renderer_reads_it(text):
    markdown_it = pytest.importorskip("markdown_it")
    renderer = markdown_it.MarkdownIt("js-default")  # GitHub's tables and strikethrough
    shown = Elements(renderer.render(f"{markdown(text)}\n"))
    assert shown.elements == [("p", ())] and not shown.comments
    table = Elements(renderer.render(escaping.markdown_table([["a", "b"], [text, text]], numeric=[False, True])))
    tags = [tag for tag, _ in table.elements]
    assert tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"], tags
    assert not re.search(r"(?i)https?://|www\.|@\w", markdown(text)), "an address is a link without any mark"


@given(st.text(st.sampled_from("ab `|\n"), min_size=1, max_size=20).filter(str.strip))
def test_code_holds_whatever_it_is_given(text):
    found = escaping.code(text)
    ticks = re.match("`+", found)[0]
    assert found.endswith(ticks) and "\n" not in found
    inside = found[len(ticks) : -len(ticks)]
    assert ticks not in re.findall("`+", inside)
    assert not re.search(r"(?<!\\)\|", inside)


@given(st.lists(st.lists(ANY.map(lambda text: re.sub("[\x00\ud800-\udfff]", "", text)), min_size=2, max_size=2), max_size=4))
def test_csv_gives_the_texts_again_and_holds_no_formula(rows):
    text = csv_frame(pd.DataFrame(rows, columns=["a", "b"], dtype=object))
    _, *cells = csv.reader(io.StringIO(text, newline=""))
    lines = [[cell.replace("\r\n", "\n").replace("\r", "\n") for cell in row] for row in rows]
    assert [[csv_value(cell) for cell in row] for row in cells] == lines
    for cell in (cell for row in cells for cell in row):
        assert not re.match("[=@\t\r\n]", cell)
        assert not re.match("[-+]", cell) or re.fullmatch(r"[-+](\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", cell)


@pytest.mark.parametrize("lead", ["=", "+", "-", "@", "\t", "\n", "'=", "''-", "＝", "＋", "－", "＠"])
def test_a_table_with_formulas_comes_back(lead):
    table = pd.DataFrame(
        {
            f"{lead}name": [f"{lead}HYPERLINK(1)", "plain", "'quoted'", None],
            "number": [-1.5, np.nan, 2.0, -0.0],
            "kind": pd.Categorical([f"{lead}x", "y", "y", f"{lead}x"]),
            "mixed": pd.Series([-3, f"{lead}z", "-4", 5.5], dtype=object),
        }
    )
    text = csv_frame(table, undefined="")
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))]
    again = read_csv(io.StringIO(text), keep_default_na=False, na_values={"number": [""]})
    names = list(again.columns)
    assert names == list(table.columns)
    assert list(again[names[0]]) == [*table[names[0]][:3], ""]
    np.testing.assert_array_equal(again["number"], table["number"])
    assert list(again["kind"]) == list(table["kind"])
    assert list(again["mixed"]) == ["-3", f"{lead}z", "-4", "5.5"]


@given(ANY)
def test_latex_has_no_command_of_the_text(text):
    written = escaping.latex(text)
    bare = re.sub(r"\\text(?:backslash|asciitilde|asciicircum)\{\}|\$\\(?:tau|times)\$|\\[&%$#_{}]", "", written)
    assert not re.search(r"[\\{}$&#%_~^\n]", bare)


@given(ANY)
def test_a_terminal_gets_no_command_and_no_turned_text(text):
    direction = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    assert not [c for c in printable(text) if unicodedata.category(c) in ("Cc", "Cs") or c in direction]
    assert printable("a\u200db נ é 漢") == "a\u200db נ é 漢"  # joiners are parts of words


@given(ANY)
def test_a_file_name_leads_nowhere(text):
    name = file_name(text)
    assert re.fullmatch(r"[A-Za-z0-9.=-]{0,60}", name) and not name.startswith(".") and "/" not in name


def test_the_head_of_a_card_is_what_was_given():
    given_data = {"pretty_name": f"---\n{PAYLOAD}", "tags": ["yes", "null", "1e3", "- a: b", "!!python/object:x"]}
    written = str(escaping.yaml_head(given_data))
    assert yaml.safe_load(written) == given_data and "\n---" not in f"\n{written}"


def test_no_template_says_that_a_text_is_safe():
    for path in sorted((SOURCE / "reporting" / "templates").iterdir()):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape", text), path
        runs = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|new Function|(?<!\.)\beval\("
        assert not re.search(runs, text), path
        for attribute in re.findall(r"=\{\{.*?\}\}", text):
            raise AssertionError(f"{path.name}: {attribute} stands in no quotes")


# ------------------------------------------------------------------------------------------------ a hostile record


def names(kind):
    """Every text that a record can hold from outside: plain ones, or payloads that begin as formulas do."""
    number = iter(range(10**6))

    def text(lead=""):
        place = next(number)
        if kind == "plain":
            return f"{place:04d}{' plain' * 30}"
        return f"{lead or '=+-@'[place % 4]}{place:04d}{PAYLOAD}"

    return text


def made(kind, seed=0, projection="softmax"):
    """A record whose tokens, ids, class names, data set, note and versions are all such texts."""
    text = names(kind)
    table = draw(12, seed=seed, dataset=text(), projection=projection)
    tokens = [[text() for _ in row] for row in table.column("tokens").to_pylist()]
    for name, values in (("tokens", tokens), ("instance_id", [text("=") for _ in range(len(table))])):
        field = table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field, pa.array(values, field.type))
    settings = {
        "source": text(),
        "label_names": [text(), text()],
        "producers": [text()],
        "model": text(),
        "version": text(),
    }
    return record.with_settings(table, [settings])


def outputs(kind, folder):
    """Everything that is written of such a record: {name: content}."""
    text = names(kind)
    first, second = made(kind), made(kind, seed=1)
    (cell,), (other,) = split_cells(first), split_cells(second)
    facts = {text(): text(), "nested": {text(): [text()]}}
    write_report(first, folder / "report", title=text(), facts=facts, n_examples=2)
    sides = [made(kind), made(kind, projection="sparsemax")]
    compared = compare(sides, [text(), text()])
    rows = {"cell": [text()], "block": [text()], "status": ["failed"], "n": [np.nan], "reason": [text()]}
    study = {"results": str(folder / "study"), "output_dir": str(folder)}
    write_page(study, pd.DataFrame(rows), {}, Results({text(): pd.DataFrame()}, [text()], [text()], [cell, other]))
    cells = {"one": cards.cell_facts({}, first, model_repo=None)}
    wide = [(one, form) for one in overview([cell, other]) for form in ("markdown", "csv", "text")]
    view = drawn_view(4, tokens=[text() for _ in range(4)], model=text())
    made_here = {
        "shown.html": ShownText(cell, 3).html(),
        "overview.html": Overview([cell]).html(),
        "compared.html": compared.html(),
        "compare_page.html": comparison_page(compared),
        "explorer.html": str(explorer(cell, 0)),
        "view.html": view.page,
        "view_frame.html": view._repr_html_(),
        "records_card.md": cards.records_card(cells, repo_id="a/b"),
        "shown.txt": str(ShownText(cell, 3)),
        "overview.txt": str(Overview([cell])),
        "compared.txt": str(compared),
        "compared.csv": csv_frame(compared.frame),
        **{f"wide_{one.name}.{form}": one.formatted(form) for one, form in wide},
    }
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    written = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return written | {name: content.encode() for name, content in made_here.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(of a plain record, of a hostile one of the same shape)."""
    with pytest.MonkeyPatch.context() as patch:
        from tests.figures import REPORT, one_small_figure

        patch.setattr(REPORT, one_small_figure())
        return tuple(outputs(kind, tmp_path_factory.mktemp(kind)) for kind in ("plain", "hostile"))


@pytest.mark.slow
def test_pages_of_a_hostile_record_have_the_elements_of_a_plain_one(both):
    plain, hostile = both
    pages = [name for name in hostile if name.endswith((".html", ".svg"))]
    assert len(pages) >= 10 and set(pages) <= set(plain)
    for name in pages:
        one, other = (Elements(side[name].decode()) for side in both)
        assert other.elements == one.elements, name
        assert other.comments == one.comments
        assert not [value for value in other.values if re.match(r"\s*(javascript|vbscript|https?:)", value, re.I)]
        assert b"<img src=x" not in hostile[name] and (b"img src=x" in hostile[name] or name.endswith(".svg")), name
        for script in re.findall(r"<script\b[^>]*>(.*?)</script>", hostile[name].decode(), re.S):
            assert "<img" not in script and "<!--" not in script, name


def test_no_cell_of_a_table_is_a_formula(both):
    tables = {name: content.decode() for name, content in both[1].items() if name.endswith(".csv")}
    assert len(tables) >= 8
    guarded = 0
    for name, content in tables.items():
        for row in csv.reader(io.StringIO(content, newline="")):
            for cell in row:
                assert not re.match("[=@\t\r\n]", cell), (name, cell)
                assert not cell.startswith(("-", "+")) or float(cell) is not None, (name, cell)
                guarded += bool(re.match("'[-=+@]", cell))
    assert guarded > 20


def test_markdown_of_a_hostile_record_has_no_live_part(both):
    ends = (".md", ".markdown")
    plain, hostile = ({name: text.decode() for name, text in side.items() if name.endswith(ends)} for side in both)
    assert len(hostile) >= 5 and set(plain) == set(hostile)
    for name, text in hostile.items():
        pipes = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()]
        assert pipes == [len(re.findall(r"(?<!\\)\|", line)) for line in plain[name].splitlines()], name
        body = text.split("---\n", 2)[-1] if text.startswith("---\n") else text
        assert not re.search(r"<(img|script|/td)|(?<!\\)!?\[[xy]\]\(|(?<!\\)`c`|@nobody|www\.evil", body), name


def test_terminal_text_of_a_hostile_record_moves_no_cursor(both):
    shown = {name: content.decode() for name, content in both[1].items() if name.endswith((".txt", ".text"))}
    assert len(shown) >= 4
    for name, text in shown.items():
        assert "\x1b" not in text and "\u202e" not in text, name
