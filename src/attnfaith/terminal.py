"""Text for a terminal: columns that line up whatever the script, and colours only where they are seen."""

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from attnfaith.escaping import printable


ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
NARROWEST, WIDEST = 40, 120  # columns that a text is laid out for


def coloured(stream: TextIO | None = None) -> bool:
    """Whether colours are shown: on a terminal that is not dumb, unless NO_COLOR is set (https://no-color.org);
    FORCE_COLOR shows them anywhere.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """How wide the terminal is, within bounds that can be read."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, NARROWEST), WIDEST)


def width(text: str) -> int:
    """Columns that a text takes: 2 for a wide character of East Asia or an emoji, 0 for a combining or joining one and for
    colours.
    """
    return sum(map(_width, ESCAPE.sub("", text)))


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, most: int) -> str:
    """A text of at most so many columns, its end an ellipsis where it is cut."""
    if width(text) <= most:
        return text
    kept, used = [], 1
    for character in text:
        used += _width(character)
        if used > most:
            break
        kept.append(character)
    return "".join(kept) + "…"


def pad(text: str, to: int, *, right: bool = False) -> str:
    """A text and the blanks that make it so many columns wide."""
    blanks = " " * max(0, to - width(text))
    return blanks + text if right else text + blanks


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Rows under their headings; the first `left` columns begin at the left, the others end at the right."""
    lines = [list(map(printable, line)) for line in (headings, *rows)]
    widths = [max(width(line[place]) for line in lines) for place in range(len(headings))]
    made = ("  ".join(pad(text, widths[i], right=i >= left) for i, text in enumerate(line)).rstrip() for line in lines)
    return "\n".join(made)
