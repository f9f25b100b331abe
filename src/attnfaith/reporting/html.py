"""The parts of pages: templates, declared words, scripts and packed numbers."""

import base64
import functools
import hashlib
import zlib
from importlib.resources import files

import jinja2
import numpy as np
import yaml
from markupsafe import Markup

from attnfaith import __version__
from attnfaith.support.errors import counted
from attnfaith.support.escaping import html, markdown


FOLDER = files("attnfaith.reporting")
DECLARED: dict[str, dict] = yaml.safe_load((FOLDER / "sections.yaml").read_text(encoding="utf-8"))
"""What "sections", "tables", "charts", a "card", tests of "saliency" and rows "left_out" read and say, by name."""


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
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}  # of the filter tojson
    environment.globals |= {"version": __version__}
    return environment.get_template(name)


def script(*names: str) -> dict[str, str]:
    """The code of the scripts of these names one after the other, and its digest: its SHA-256 in base64, by which the page's
    policy lets it run.
    """
    text = "\n".join((FOLDER / "templates" / f"{name}.js").read_text(encoding="utf-8") for name in names)
    return {"code": Markup(text), "digest": base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}


def packed(*parts: np.ndarray) -> str:
    """Numbers as scripts unpack them: their bytes, one part after the other, deflated, in base64."""
    return base64.b64encode(zlib.compress(b"".join(np.ascontiguousarray(part).tobytes() for part in parts), 9)).decode()
