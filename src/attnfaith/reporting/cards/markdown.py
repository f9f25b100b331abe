"""Cards as Markdown: what a template prints is escaped, so that it shows as it is and formats nothing."""

import functools

import jinja2
from huggingface_hub.utils import HFValidationError, validate_repo_id

from attnfaith.reporting.errors import ReportError
from attnfaith.support.errors import counted
from attnfaith.support.escaping import code, markdown


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this package by its file name: what it writes into a card is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attnfaith.reporting"),
        finalize=markdown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = code
    environment.filters["counted"] = counted
    return environment.get_template(name)


def check_name(repo_id: str) -> str:
    """The name itself. Raises ReportError for what is no "owner/name" that the Hub allows."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ReportError(str(error)) from error
    if repo_id.count("/") != 1:
        raise ReportError(f"{repo_id!r} is no name of a repository: give owner/name")
    return repo_id
