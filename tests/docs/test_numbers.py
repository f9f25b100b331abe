"""Every number in README.md and docs/ is read from its table, or is of a kind that no table holds and listed as such."""

import re
from functools import cache

import evidence
import pages
import pandas as pd
import pytest
import yaml

from tests.docs.documents import DOCUMENTS, ROOT, TEMPLATES, source_of, text_of


GIVEN = yaml.safe_load((ROOT / "tests" / "docs" / "given.yaml").read_text(encoding="utf-8"))
KINDS = {"definition", "setting", "name", "tolerance", "how many things"}
EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.S)
NOT_PROSE = (
    re.compile(r"<!--.*?-->", re.S),
    re.compile(r"^```.*?^```", re.M | re.S),
    re.compile(r"`[^`\n]+`"),
    re.compile(r"\]\([^)\s]*\)"),
)
YEAR = re.compile(r"\b(19|20)\d\d\b")
WORD = re.compile(r"\b[A-Za-z_]\w*|\b20News\b")  # digits within a name, such as F1 or babi_3
STEP = re.compile(r"^\s*\d+\. ", re.M)
NUMBER = re.compile(r"[−-]?\d*[.,]?\d+(?:[.,]\d+)*(?: ?%)?")


def untied(text, phrases=()):
    """Numbers in the prose and tables of a document's source that no expression makes and no phrase lists."""
    for pattern in (EXPRESSION, *NOT_PROSE):
        text = pattern.sub(" ", text)
    for phrase in sorted(phrases, key=len, reverse=True):
        text = text.replace(phrase, " ")
    for pattern in (STEP, YEAR, WORD):
        text = pattern.sub(" ", text)
    return NUMBER.findall(text)


def phrases_of(document):
    return [phrase for listed in GIVEN.values() for phrase in listed.get(document, ()) or ()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_number_is_untied(document):
    """A measured number is an expression of a template; any other stands in given.yaml, with its kind."""
    assert untied(source_of(document).read_text(encoding="utf-8"), phrases_of(document)) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_given_is_there(document):
    text = source_of(document).read_text(encoding="utf-8")
    assert [phrase for phrase in phrases_of(document) if phrase not in text] == []


def test_given_numbers_are_of_few_kinds():
    assert set(GIVEN) == KINDS
    assert {document for listed in GIVEN.values() for document in listed} <= set(DOCUMENTS)
    assert all(re.search(r"\d", phrase) for listed in GIVEN.values() for said in listed.values() for phrase in said)


@pytest.mark.parametrize("template", pages.templates(), ids=lambda path: str(path.relative_to(TEMPLATES)))
def test_a_page_is_what_its_template_and_the_tables_give(template):
    """A digit changed in a page, or in a table alone, is seen here: `make docs` writes the page anew."""
    assert pages.target(template).read_text(encoding="utf-8") == pages.render(template)


@pytest.mark.parametrize("template", pages.templates(), ids=lambda path: str(path.relative_to(TEMPLATES)))
def test_no_expression_is_a_number_by_itself(template):
    """{{ 0.68 }} would tie a number to nothing; so would a variable that is set to one, or a text that holds one."""
    said = EXPRESSION.findall(template.read_text(encoding="utf-8"))
    assert said
    assert not [one for one in said if re.match(r"\{\{-?\s*[\"']?[−\-.]?\d", one)]
    assert not [one for one in said if re.match(r"\{%-?\s*set [^%]*=\s*[\"']?-?\.?\d[\d.]*[\"']?\s*-?%\}", one)]
    for one in said:  # a text with a decimal number selects rows, and is never shown
        for before, text in re.findall(r"(\S*?)[\"']([^\"']*\d\.\d[^\"']*)[\"']", one):
            assert re.search(r"\w=\[?$", before), (one, text)


def test_what_is_typed_by_hand_is_seen():
    for sentence in (
        "attention has .68.",
        "τ = −0.31 here",
        "in 12 % of texts",
        "57 ms a text",
        "of 1,725 texts",
        "| .301 |",
        "3×",
    ):
        assert untied(sentence), sentence
    assert untied("τ is {{ rows.tau | number }} and .72") == [".72"]
    for sentence in ("Table `2.0`", "Jain & Wallace 2019", "F1 of babi_3", "1. First", "[page](a/3.md)"):
        assert not untied(sentence), sentence


@pytest.mark.parametrize("template", pages.templates(), ids=lambda path: str(path.relative_to(TEMPLATES)))
def test_a_number_follows_its_table(template, monkeypatch):
    """A page changes where its tables do: it holds no numbers of its own."""

    @cache
    def other(source):
        frame = pd.read_csv(ROOT / "recipes" / source)
        changing = [name for name in frame if frame[name].dtype == float and name not in ("epsilon", "share", "lambda")]
        return evidence.Evidence(source, frame.assign(**{name: frame[name] * 0.9 + 0.003 for name in changing}))

    monkeypatch.setitem(evidence.GLOBALS, "table", other)
    before, after = (
        re.findall(r"\.\d\d+", text) for text in (pages.target(template).read_text(encoding="utf-8"), pages.render(template))
    )
    assert before and sum(old == new for old, new in zip(before, after, strict=False)) < len(before) / 2


def test_rows_and_columns_that_are_not_there_stop_the_build():
    rows = evidence.table("bastings_filippova_2020/results/roar_sst.csv")
    with pytest.raises(evidence.EvidenceError, match="no row"):
        rows.where(measure="nobody")
    with pytest.raises(evidence.EvidenceError, match="no column"):
        rows.where(measures="lrp")
    with pytest.raises(evidence.EvidenceError, match="one value is wanted"):
        evidence.number(rows.accuracy)
    with pytest.raises(evidence.EvidenceError, match="no table"):
        evidence.table("nobody/results/none.csv")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.2171, 3, ".217"),
        (-0.0171, 3, "−.017"),
        (1.0, 2, "1.00"),
        (1725, 0, "1,725"),
        (float("nan"), 3, "—"),
        (-0.0001, 3, "−.000"),
    ],
)
def test_how_a_number_is_written(value, digits, text):
    assert evidence.number(value, digits) == text


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= 150
