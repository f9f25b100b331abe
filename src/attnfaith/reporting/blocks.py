"""What the page is built from: tables and pictures as it shows them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table as the page shows it: text only. The first `heads` columns name the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int
    note: str = ""
    stem: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it: PNG inside the page, in words for those who do not see it."""

    source: str
    alt: str
    caption: str
    stem: str
