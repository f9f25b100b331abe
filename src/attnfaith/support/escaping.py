"""Escape texts from outside, one function for each kind of output.

Data, class names, model names, paths and recipes may come from anybody. In a page they make no element, in Markdown no link,
in a spreadsheet no formula, in a terminal no command, in a file name no way out of its folder.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape as entities

from markupsafe import Markup, escape


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def html(text: object) -> Markup:
    """Return a text for HTML or SVG, between tags or within a quoted attribute; Markup stays. Control characters and halves
    of letters, which neither XML nor UTF-8 can hold, become U+FFFD.
    """
    return text if isinstance(text, Markup) else escape(_NOT_IN_MARKUP.sub("\N{REPLACEMENT CHARACTER}", str(text)))


_NOT_IN_MARKUP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


_SPECIAL = re.compile(r"(\[[\d\s.,+−%-]+\](?![(\[:]))|[\\`*_\[\]|#~$]")  # an interval is no link: it stays
_LISTED = re.compile(r"^ ?(\d{1,9}(?=[.)]( |$))|(?=[-+]( |$)|-+ ?$|=+ ?$))")
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=@)(?=\S)|(?<=www)(?=\.)", re.I)
_JOINER = "\N{WORD JOINER}"  # invisible, without width


def markdown(text: object) -> Markdown:
    """Return Markdown that shows a text and formats nothing: one line, no HTML, link, column, code or heading.

    Renderers make links of plain addresses and @names: an invisible character parts them.
    """
    if isinstance(text, Markdown):
        return text
    line = printable(re.sub(r"\s+", " ", str(text)))
    line = _SPECIAL.sub(lambda mark: mark[1] or f"\\{mark[0]}", entities(_ADDRESS.sub(_JOINER, line)))
    return Markdown(_LISTED.sub(r"\g<0>\\", line))


def markdown_table(rows: Iterable[Sequence[object]], *, numeric: Sequence[bool]) -> str:
    """Return a GitHub pipe table of headings and lines. numeric: whether each column is set to the right."""
    head, *lines = [f"| {' | '.join(map(markdown, row))} |\n" for row in rows]
    return "".join([head, f"| {' | '.join('---:' if right else '---' for right in numeric)} |\n", *lines])


_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""Beginnings of a text that a spreadsheet would carry out, also in the wide letters of East Asia."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def csv_cell(value: object) -> object:
    """Return a cell of CSV: a text that a spreadsheet would take for a formula gets an apostrophe in front; carriage returns
    become line feeds. Numbers, also as texts, and other texts stay.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")  # Python 3.11 leaves a carriage return without quotes
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_frame(frame, *, undefined: str = "NaN") -> str:
    """Return a pandas DataFrame as CSV without its index, its cells and the names of its columns by `csv_cell`."""
    numbers = "biufcmM"  # kinds of numpy: whole, real and complex numbers, times

    def changed(column):
        return column if column.dtype.kind in numbers else column.astype(object).map(csv_cell, na_action="ignore")

    return frame.apply(changed).rename(columns=csv_cell).to_csv(index=False, na_rep=undefined, lineterminator="\n")


_DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Invisible marks that reverse the text after them."""


def printable(text: str) -> str:
    """Return a text that cannot move the cursor, change colours or reverse other text: control characters and marks of
    direction become escapes.
    """
    hidden = {c for c in set(text) if c in _DIRECTION or unicodedata.category(c) in ("Cc", "Cs", "Co")}
    return "".join(repr(character)[1:-1] if character in hidden else character for character in text)


def file_name(text: str, most: int = 60) -> str:
    """Return a part of a file name from any text: at most so many letters, digits, ".", "=" and "-", perhaps none."""
    return re.sub(r"[^A-Za-z0-9.=-]+", "-", text).strip("-.")[:most]
