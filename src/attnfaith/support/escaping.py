"""Escape texts from outside, one function for each kind of output.

Data, class names, model names, paths and recipes may be anybody's. In a page they make no element, in Markdown no link, in a
spreadsheet no formula, in a terminal no command, in a file name no way out of its folder.
"""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from markupsafe import Markup, escape


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def html(text: object) -> Markup:
    """A text in HTML or SVG, between tags or within a quoted attribute. What is Markup already stays. Control characters and
    halves of letters, which neither HTML nor UTF-8 can hold, become U+FFFD.
    """
    return text if isinstance(text, Markup) else escape(_NOT_IN_MARKUP.sub("\N{REPLACEMENT CHARACTER}", str(text)))


_NOT_IN_MARKUP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def script_data(data: object) -> Markup:
    """JSON that stands in a script element: nothing but its end tag is markup there, and none can be written without "<"."""
    return Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


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


_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""Beginnings of a text that a spreadsheet would carry out, also in the wide letters of East Asia."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def csv_cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula begins with an apostrophe, one that has it already with one more;
    numbers, a text that is one too, and other texts stay.
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value) else value


def csv_value(cell: object) -> object:
    """The value that `csv_cell` was given."""
    return cell[1:] if isinstance(cell, str) and cell.startswith("'") and _FORMULA.match(cell) else cell


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, their cells as `csv_cell` makes them."""
    stream = io.StringIO()
    csv.writer(stream).writerows([csv_cell(cell) for cell in row] for row in rows)
    return _unix_lines(stream.getvalue())


def csv_frame(frame, *, undefined: str = "NaN") -> str:
    """A pandas DataFrame as CSV without its index, its cells and the names of its columns as `csv_cell` makes them."""
    safe = _each_text(frame, csv_cell)
    return _unix_lines(safe.to_csv(index=False, na_rep=undefined, lineterminator="\r\n"))


def read_csv(source, **how):
    """A DataFrame from what `csv_frame` wrote, its texts as they were. how: arguments of `pandas.read_csv`."""
    import pandas as pd

    return _each_text(pd.read_csv(source, **how), csv_value)


def _each_text(frame, change: Callable):
    """The frame with its texts and the names of its columns changed."""
    changed = frame.copy(deep=False)
    for place, kind in enumerate(frame.dtypes):
        if kind.kind not in "biufcmM":
            changed.isetitem(place, frame.iloc[:, place].astype(object).map(change, na_action="ignore"))
    changed.columns = [change(name) for name in frame.columns]
    return changed


def _unix_lines(text: str) -> str:
    """CSV whose rows end with a line feed; within quotes a text keeps its own. Written so from the start, Python 3.11 would
    not quote a text that holds a carriage return, and readers would break the row there.
    """
    return re.sub(r'"(?:[^"]|"")*"|\r\n', lambda part: "\n" if part[0] == "\r\n" else part[0], text)


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


_DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Unseen marks that turn round the text after them."""


def printable(text: str) -> str:
    """A text that cannot move the cursor, change colours or turn round what stands beside it: control characters and marks
    of direction are shown as they are escaped.
    """
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cs", "Co") or character in _DIRECTION
    return repr(character)[1:-1] if hidden else character


def file_name(text: str, most: int = 60) -> str:
    """A part of a file name made of any text: letters, digits, ".", "=" and "-", at most so many; "" where none is left."""
    return re.sub(r"[^A-Za-z0-9.=-]+", "-", text).strip("-.")[:most]
