"""What the page is built from: tables and pictures as it shows them."""

import base64
import functools
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2
import numpy as np
import pandas as pd

from attnfaith.support.errors import counted
from attnfaith.support.escaping import code, html, markdown


CLASS_COLUMN = "predicted class"
MOST_CLASSES = 12  # with rows of their own in the tables of the page


@dataclass(frozen=True)
class Grid:
    """A table as the page shows it: text only. The first `heads` columns name the row.

    In a column called CLASS_COLUMN the page writes the names of the classes beside their numbers.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int
    note: str = ""
    stem: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it: PNG inside the page, in words for those who do not see it; section: whose it is."""

    source: str
    alt: str
    caption: str
    stem: str
    section: str


def picture(png: bytes, alt: str, caption: str, stem: str, section: str) -> Picture:
    """A picture that lies inside the page; stem: its path without suffix, as seen from the page.

    There it has 128 colours, which makes it three times smaller; the file beside the page has all.
    """
    from PIL import Image

    fewer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(fewer, "PNG", optimize=True)
    return Picture("data:image/png;base64," + base64.b64encode(fewer.getvalue()).decode(), alt, caption, stem, section)


def differing(df: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns that tell the rows of the table apart."""
    return [name for name in names if name in df.columns and df[name].nunique(dropna=False) > 1]


def number_with_interval(row: Mapping[str, object], name: str) -> str:
    """ "0.123 [0.100, 0.150]" of a row with ci_low and ci_high; "undefined" where the number is."""
    if np.isnan(row[name]):
        return "undefined"
    value, low, high = (f"{round(row[key], 3) + 0.0:.3f}" for key in (name, "ci_low", "ci_high"))  # never -0.000
    return value if np.isnan(row["ci_low"]) else f"{value} [{low}, {high}]"


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this package by its file name: values are escaped, in Markdown (.md.j2) too."""
    is_card = name.endswith(".md.j2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attnfaith.reporting"),
        autoescape=not is_card,
        finalize=markdown if is_card else html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=is_card,
    )
    environment.filters |= {"unbroken": unbroken, "counted": counted, "code": code}
    return environment.get_template(name)


def unbroken(text: str) -> str:
    """The text in which a line never ends between a number and its percent sign."""
    return re.sub(r"(?<=\d) %", "\u00a0%", text)


def largest_classes(counts: Mapping[str, int], how: str) -> tuple[set[str], str]:
    """The classes (as numbers) of the MOST_CLASSES largest counts, and what to say where that leaves some out."""
    if len(counts) <= MOST_CLASSES:
        return set(counts), ""
    order = sorted(counts, key=lambda number: (-counts[number], int(number)))
    return set(order[:MOST_CLASSES]), f" Of {len(counts)} classes the {MOST_CLASSES} {how} are shown; the files hold all."
