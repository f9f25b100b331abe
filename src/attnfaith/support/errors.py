"""What a user can mend: the one error base of the package.

The command line turns an `AttnfaithError` into one line and exit code 2; any other exception is a fault of the package and
shows its traceback.
"""

import difflib
from collections.abc import Iterable

from attnfaith.support.escaping import printable


MOST = 120  # characters of a value in a message
MOST_SAID, END_SAID = 1200, 300  # characters of a whole message, and of its end, which says what to do


class AttnfaithError(ValueError):
    """Something given, or something on this machine, that the work cannot be done with. The message says what was given,
    what is allowed and what to do.

    As a text it is one line that any terminal and page can show, whatever a file or a library put into it: characters that
    cannot be seen are written as their escapes, and of more than MOST_SAID the middle is left out.
    """

    def __init__(self, message: str = ""):
        super().__init__(str(message))

    def __str__(self) -> str:
        message = super().__str__()
        if not message.isprintable():
            message = printable(" ".join(message.split()))
        return message if len(message) <= MOST_SAID else f"{message[: MOST_SAID - END_SAID - 3]} … {message[-END_SAID:]}"


class DatasetError(AttnfaithError):
    """A data set, file, column, label or text that cannot be used as asked."""


class RecordError(AttnfaithError):
    """A record that breaks a rule, or a file that is not one. The message names the column and the row."""


class FileError(AttnfaithError, OSError):
    """A file or folder that cannot be read, written or locked."""


def excerpt(value: object, most: int = MOST) -> str:
    """A value as a message shows it: its repr, of an error its own words, cut after `most` characters."""
    try:
        return cut(" ".join(str(value).split()) if isinstance(value, Exception) else repr(value), most)
    except ValueError:  # Python writes no whole number of thousands of digits
        return f"a {type(value).__name__} too long to be shown"


def counted(number: float, noun: str = "text") -> str:
    """Return a number with its noun: "1 text", "1,234 texts"."""
    return f"{number:,.10g} {noun}{'' if number == 1 else 's'}"


def cut(text: str, most: int = MOST) -> str:
    """Return a text, or its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like another; "" where none is."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), "")


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest one, or all that there are. Case, "-" and " " do not count."""
    plain = {entry.lower().replace("-", "_").replace(" ", "_"): entry for entry in known}
    if near := closest(str(name).lower().replace("-", "_").replace(" ", "_"), plain):
        return f"; did you mean {plain[near]!r}?"
    return f"; there are {cut(', '.join(plain.values()), 400) or 'none'}"
