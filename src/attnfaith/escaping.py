"""How a text that comes from outside stands in what is written: one way for each kind of output, and all of them here.

Data, class names, model names, paths and recipes may be anybody's. In a page they make no element and no attribute, in
Markdown no link, table or heading, in a spreadsheet no formula, in a terminal no command, in a file name no way out of its
folder.

| where | how |
|---|---|
| HTML and SVG, text and attributes in quotes | `html`, in templates by themselves |
| data that a script of a page reads | `script_data` |
| Markdown, also a cell of a table | `markdown`; a sentence of our own: `markdown_sentence`; inline code: `code` |
| the YAML at the head of a card | `yaml_head` |
| CSV | `csv_text`, `csv_frame`; read back by `read_csv` |
| LaTeX | `latex` |
| a terminal, a log | `printable` |
| a file name | `file_name` |
"""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup
from markupsafe import escape as _escape


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


# ------------------------------------------------------------------------------------------------ HTML


def html(text: object) -> Markup:
    """A text in HTML or SVG, between tags or within a quoted attribute. What is Markup already stays. Control characters and
    halves of letters, which neither HTML nor UTF-8 can hold, become U+FFFD.
    """
    return text if isinstance(text, Markup) else _escape(_NOT_IN_MARKUP.sub("\N{REPLACEMENT CHARACTER}", str(text)))


_NOT_IN_MARKUP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def script_data(data: object) -> Markup:
    """JSON that stands in a script element: nothing but its end tag is markup there, and none can be written without "<"."""
    return Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


# ------------------------------------------------------------------------------------------------ Markdown


_SPECIAL = re.compile(r"[\\`*_\[\]|#~$]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LISTED = re.compile(r"^( ?)(?=[-+]( |$)|-+ ?$|=+ ?$)")
_NUMBERED = re.compile(r"^( ?\d{1,9})([.)])(?= |$)")
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=@)(?=\S)|(?<=www)(?=\.)", re.I)
_JOINER = "\N{WORD JOINER}"  # unseen, and of no width


def markdown(text: object) -> Markdown:
    """Text as Markdown that shows it and formats nothing: one line, no HTML, no link, no column, code or heading of its own.

    An address and a @name would become links without any mark: an unseen character parts them.
    """
    if isinstance(text, Markdown):
        return text
    line = printable(re.sub(r"\s+", " ", str(text)))
    line = _ADDRESS.sub(_JOINER, line)
    line = _SPECIAL.sub(r"\\\g<0>", re.sub("[&<>]", lambda character: _ENTITIES[character[0]], line))
    return Markdown(_NUMBERED.sub(r"\1\\\2", _LISTED.sub(r"\1\\", line)))


def markdown_sentence(text: str) -> Markdown:
    """A sentence with emphasis and brackets of our own in which names from outside stand: no HTML, column, code or link of
    theirs.
    """
    line = _ADDRESS.sub(_JOINER, printable(re.sub(r"\s+", " ", text)))
    line = re.sub(r"[\\|`]|(?<=\])[(\[:]", r"\\\g<0>", line)
    return Markdown(re.sub("[&<>]", lambda character: _ENTITIES[character[0]], line))


def code(text: object) -> Markdown:
    """Text as inline code in a table, whatever it holds."""
    line = printable(" ".join(str(text).split())).replace("|", "\\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""
    return Markdown(f"{ticks}{space}{line}{space}{ticks}") if line else Markdown("")


def markdown_table(rows: Iterable[Sequence[object]], *, numeric: Sequence[bool]) -> str:
    """A GitHub pipe table of its headings and lines. numeric: of each column, whether it is set to the right."""
    head, *lines = [f"| {' | '.join(map(markdown, row))} |\n" for row in rows]
    return "".join([head, f"| {' | '.join('---:' if right else '---' for right in numeric)} |\n", *lines])


def yaml_head(data: Mapping) -> Markdown:
    """The YAML at the head of a card."""
    import yaml

    return Markdown(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=120))


# ------------------------------------------------------------------------------------------------ tables for other programs


_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""Beginnings of a text that a spreadsheet would carry out, also in the wide letters of East Asia."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def csv_cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula begins with an apostrophe, one that has it already with one more;
    numbers, a text that is one too, and other texts stay.
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value) else value


def csv_value(cell: str) -> str:
    """The text that `csv_cell` wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; see `csv_cell`."""
    stream = io.StringIO()
    csv.writer(stream).writerows([csv_cell(cell) for cell in row] for row in rows)
    return _unix_lines(stream.getvalue())


def _unix_lines(text: str) -> str:
    """CSV whose rows end with a line feed; within quotes a text keeps its own. Written so from the start, Python 3.11 would
    not quote a text that holds a carriage return, and readers would break the row there.
    """
    return re.sub(r'"(?:[^"]|"")*"|\r\n', lambda part: "\n" if part[0] == "\r\n" else part[0], text)


def csv_frame(frame, *, undefined: str = "NaN") -> str:
    """A pandas DataFrame as CSV without its index; see `csv_cell`, also of the names of columns."""
    safe = frame.copy(deep=False)
    for place, kind in enumerate(frame.dtypes):
        if kind.kind not in "biufcmM":
            safe.isetitem(place, frame.iloc[:, place].astype(object).map(csv_cell, na_action="ignore"))
    safe.columns = [csv_cell(name) for name in frame.columns]
    return _unix_lines(safe.to_csv(index=False, na_rep=undefined, lineterminator="\r\n"))


def read_csv(source, **how):
    """A DataFrame from what `csv_frame` wrote, its texts as they were. how: see `pandas.read_csv`."""
    import pandas as pd

    frame = pd.read_csv(source, **how)
    for place, kind in enumerate(frame.dtypes):
        if kind.kind not in "biufcmM":
            texts = frame.iloc[:, place].map(lambda cell: csv_value(cell) if isinstance(cell, str) else cell)
            frame.isetitem(place, texts)
    frame.columns = [csv_value(name) if isinstance(name, str) else name for name in frame.columns]
    return frame


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "τ": r"$\tau$",
    "–": "--",
    "×": r"$\times$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex(text: str) -> str:
    """A text that LaTeX sets as it is, in one line."""
    return "".join(_LATEX.get(character, character) for character in printable(" ".join(text.split())))


# ------------------------------------------------------------------------------------------------ terminals and names


_DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Unseen marks that turn round the text after them."""


def printable(text: str) -> str:
    """A text that cannot move the cursor, change colours or turn round what stands beside it: control characters and marks
    of direction are shown as they are escaped.
    """
    return "".join(map(_seen, text))


def _seen(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cs", "Co") or character in _DIRECTION
    return repr(character)[1:-1] if hidden else character


def file_name(text: str, most: int = 60) -> str:
    """A part of a file name made of any text: letters, digits, ".", "=" and "-", at most so many; "" where none is left."""
    return re.sub(r"[^A-Za-z0-9.=-]+", "-", text).strip("-.")[:most]
