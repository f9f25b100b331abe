"""The parts of pages: templates, tables and pictures as a page shows them, and scripts."""

import base64
import functools
import hashlib
import io
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from attnfaith import __version__
from attnfaith.support.errors import counted
from attnfaith.support.escaping import html, markdown
from attnfaith.support.files import write_atomically


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
        keep_trailing_newline=is_card,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"counted": counted}
    environment.globals |= {"version": __version__}
    return environment.get_template(name)


def largest_classes(counts: Mapping[str, int], how: str) -> tuple[set[str], str]:
    """The classes (as numbers) of the MOST_CLASSES largest counts, and what to say where that leaves some out."""
    if len(counts) <= MOST_CLASSES:
        return set(counts), ""
    order = sorted(counts, key=lambda number: (-counts[number], int(number)))
    return set(order[:MOST_CLASSES]), f" Of {len(counts)} classes the {MOST_CLASSES} {how} are shown; the files hold all."


# ---------- scripts


class Script(NamedTuple):
    """Code that runs in a page, and its SHA-256 in base64, by which the page's policy lets it run."""

    code: Markup
    digest: str


def script(*names: str) -> Script:
    """The scripts of these names one after the other, with their digest."""
    folder = files("attnfaith.reporting").joinpath("templates")
    text = "\n".join(folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in names)
    return Script(Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())


def packed(*parts: np.ndarray) -> str:
    """Numbers as scripts unpack them: their bytes, one part after the other, deflated, in base64."""
    return base64.b64encode(zlib.compress(b"".join(np.ascontiguousarray(part).tobytes() for part in parts), 9)).decode()


class PageFile:
    """An object with a page that a notebook shows. page: its HTML."""

    page: str

    def save(self, path: str | os.PathLike) -> Path:
        """Write the page, whole or not at all; returns its path. Raises as `page` does, and FileError."""
        return write_atomically(path, self.page)

    def _repr_html_(self) -> str:
        frame = 'sandbox="allow-scripts" style="width:100%;height:60rem;border:0" title="attention at a glance"'
        return f'<iframe srcdoc="{html(self.page)}" {frame}></iframe>'
