"""Pages that are one file and need nothing else: styles, script and numbers are inside, and no other code runs in them."""

import base64
import hashlib
import os
import zlib
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from attnfaith import __version__
from attnfaith.reporting.blocks import template
from attnfaith.reporting.heatmap import PAPER
from attnfaith.support.escaping import html, script_data
from attnfaith.support.files import write_atomically


SIZE = f"size-{hashlib.sha256(__version__.encode()).hexdigest()[:16]}"
"""In place of a page's size until it is known; no text that a page shows is this."""


class Script(NamedTuple):
    """Code that runs in a page, and its SHA-256 in base64, by which the page's policy lets it run."""

    code: Markup
    digest: str


def script_of(code: str) -> Script:
    """The code with its digest."""
    return Script(Markup(code), base64.b64encode(hashlib.sha256(code.encode()).digest()).decode())


class OneFile:
    """What has a page, and shows it in a notebook. page: its HTML."""

    page: str

    def save(self, path: str | os.PathLike) -> Path:
        """Write the page, whole or not at all; returns its path. Raises as `page` does, and FileError."""
        return write_atomically(path, self.page)

    def _repr_html_(self) -> str:
        frame = 'sandbox="allow-scripts" style="width:100%;height:60rem;border:0" title="attention at a glance"'
        return f'<iframe srcdoc="{html(self.page)}" {frame}></iframe>'


def one_file(name: str, data: dict, **fields: object) -> str:
    """The page of the template and the script of this name, `data` being what the script reads; all text is escaped.

    It may ask the network for nothing, and its own script is the only one that may run. It says its size.
    """
    folder = files("attnfaith.reporting").joinpath("templates")
    script = "\n".join(folder.joinpath(f"{one}.js").read_text(encoding="utf-8") for one in ("view_parts", name))
    page = template(f"{name}.html.j2").render(
        version=__version__,
        paper=PAPER,
        data=script_data(data),
        script=script_of(script),
        size=SIZE,
        **fields,
    )
    return page.replace(SIZE, f"{len(page.encode()) / 1e3:,.0f}", 1)


def packed(*parts: np.ndarray) -> str:
    """Numbers as the script unpacks them: their bytes, one part after the other, deflated, in base64."""
    return base64.b64encode(zlib.compress(b"".join(np.ascontiguousarray(part).tobytes() for part in parts), 9)).decode()
