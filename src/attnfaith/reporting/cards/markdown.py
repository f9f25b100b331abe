"""Cards as Markdown: what a template prints is escaped, so that it shows as it is and formats nothing."""

import functools
import re
from collections.abc import Mapping

import jinja2
import yaml
from huggingface_hub.utils import HFValidationError, validate_repo_id

from attnfaith.reporting.errors import ReportError


class Markdown(str):
    """Text that is Markdown already; any other that a template prints is escaped."""

    __slots__ = ()


_SPECIAL = re.compile(r"[\\`*_\[\]|#~$]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape(text: object) -> Markdown:
    """Text as Markdown that shows it and formats nothing: one line, no HTML, no link, no column or code of its own."""
    if isinstance(text, Markdown):
        return text
    line = re.sub(r"\s+", " ", str(text))
    return Markdown(_SPECIAL.sub(r"\\\g<0>", re.sub("[&<>]", lambda character: _ENTITIES[character[0]], line)))


def code(text: object) -> Markdown:
    """Text as inline code in a table, whatever it holds."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""
    return Markdown(f"{ticks}{space}{line}{space}{ticks}") if line else Markdown("")


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this package by its file name: what it writes into a card is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attnfaith.reporting"),
        finalize=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = code
    return environment.get_template(name)


def yaml_head(data: Mapping) -> Markdown:
    """The YAML at the head of a card, as it is."""
    return Markdown(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=120))


def check_name(repo_id: str) -> str:
    """The name itself. Raises ReportError for what is no "owner/name" that the Hub allows."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ReportError(str(error)) from error
    if repo_id.count("/") != 1:
        raise ReportError(f"{repo_id!r} is no name of a repository: give owner/name")
    return repo_id
