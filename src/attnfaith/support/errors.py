"""Errors that a user can mend, and the words of their messages.

The command line turns an `AttnfaithError` into one line and exit code 2; any other exception is a fault of the package and
shows its traceback.
"""

import difflib
from collections.abc import Iterable

from attnfaith.support.escaping import printable


MOST = 120  # characters of a value in a message
LONGEST, END = 1200, 300  # characters of a message, and of its end, which names what to do


class AttnfaithError(ValueError):
    """Input, or something on this machine, with which the work cannot be done. The message names what was given, what is
    allowed and what to do.

    Its text is one line that any terminal and page can show: invisible characters are escaped, and the middle of more than
    LONGEST characters is left out.
    """

    def __str__(self) -> str:
        message = super().__str__()
        if not message.isprintable():
            message = printable(" ".join(message.split()))
        return message if len(message) <= LONGEST else f"{message[: LONGEST - END - 3]} … {message[-END:]}"


class DatasetError(AttnfaithError):
    """A data set, file, column, label or text that cannot be used."""


class RecordError(AttnfaithError):
    """A record that breaks a rule, or a file that is no record. The message names the column and the row."""


class FileError(AttnfaithError, OSError):
    """A file or folder that cannot be read, written or locked."""


def excerpt(value: object, most: int = MOST) -> str:
    """Return a value as a message shows it: its repr, or the message of an error, cut after `most` characters."""
    return cut(" ".join(str(value).split()) if isinstance(value, Exception) else repr(value), most)


def counted(number: float, noun: str = "text") -> str:
    """Return a number with its noun: "1 text", "1,234 texts"."""
    return f"{number:,.10g} {noun}{'' if number == 1 else 's'}"


def cut(text: str, most: int = MOST) -> str:
    """Return a text, or its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def closest(name: str, names: Iterable[str]) -> str:
    """Return the most similar of some names; "" where none is similar."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), "")


def nearest(name: object, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest of those that exist, or all of them. Case, "-" and " "
    do not count.
    """
    plain = {entry.lower().replace("-", "_").replace(" ", "_"): entry for entry in names}
    near = closest(str(name).lower().replace("-", "_").replace(" ", "_"), plain)
    if near:
        return f"; did you mean {plain[near]!r}?"
    return f"; there are {cut(', '.join(plain.values()), 400) or 'none'}"
