"""A hook of mkdocs: pages of what code knows, the notebooks, and the files outside of docs/ that pages link to."""

import contextlib
import io
import logging
import os
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

import attnfaith
from attnfaith import catalogue, cli, record
from attnfaith.data.pairs.entries import PAIRS
from attnfaith.data.registry import DATASETS
from attnfaith.subjects import CAPABILITIES
from attnfaith.subjects.sequences import CAPABILITIES as CAPABILITIES_OF_SEQUENCES


ROOT = Path(__file__).parents[1]
ELSEWHERE = PurePosixPath("repository")  # below the site: files from outside of docs/
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)#\s]+")
FENCED = re.compile(r"(^```.*?^```)", re.M | re.S)


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([str(cell).replace("|", "\\|").replace("][", "]\\[").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def columns(described: Mapping[str, record.Column]) -> str:
    """A table of a record's columns."""

    def limits(column: record.Column) -> str:
        low, high = (0, 1) if column.distribution else column.range or (None, None)
        bounds = "" if low is high is None else f"{'' if low is None else low} … {'' if high is None else high}"
        return ", ".join(filter(None, (bounds, "sums to 1" * column.distribution, column.unit, "signed" * column.signed)))

    rows = (
        (f"`{name}`", one.doc, "".join(f"[{axis}]" for axis in one.axes), one.dtype, limits(one), one.undefined)
        for name, one in described.items()
    )
    return table(("column", "meaning", "axes", "type", "range, unit, sign", "undefined"), rows)


def producers_page(title: str, of: str, needs: Mapping[str, str]) -> str:
    """Every measure and experiment of texts or of sentence pairs, with the columns that it adds to a record."""
    explained = (
        "All that `--measure.producers` may name. A model that lacks what one needs is refused with a line that says so."
    )
    parts = [f"# {title}", explained, table(("need", "meaning"), sorted(needs.items()))]
    for entry in catalogue.entries(of):
        facts = (
            f"* {entry.kind}; needs {', '.join(entry.needs) or 'nothing'}",
            f"* cost: {catalogue.COSTS[entry.cost]}",
            f"* options: {', '.join(f'`{name}={default}`' for name, default in entry.options.items()) or 'none'}",
        )
        parts += [f"## {entry.name}", entry.what, "\n".join(facts), columns(import_module(entry.module).COLUMNS)]
    return "\n\n".join(parts)


def record_page() -> str:
    parts = {
        "Which model, on which texts": record.IDENTITY_COLUMNS,
        "Every record of texts": record.COLUMNS,
        "Every record of sentence pairs": record.SEQUENCE_COLUMNS,
        "Some data or models": record.OPTIONAL_COLUMNS,
    }
    listed = [f"## {title}\n\n{columns(described)}" for title, described in parts.items()]
    return "\n\n".join(
        ["# Columns of a record", f"Version {record.VERSION}. [How to read it](../how_to/record.md).", *listed]
    )


def command_line_page() -> str:
    parts = ["# The command line", "`attnfaith train --help` ends with every key of a recipe."]
    for name in cli.COMMANDS:
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
            cli.main([name, "--help"])
        parts += [f"## {name}", f"```text\n{shown.getvalue().rstrip()}\n```"]
    return "\n\n".join(parts)


def data_sets_page() -> str:
    texts = (
        (f"`{name}`", ", ".join(map(str, one.label_names)) or "the answers", one.licence, one.citation, one.notes)
        for name, one in DATASETS.items()
    )
    pairs = (
        (f"`{name}`", "exact" if one.built_in else one.gold, one.licence, one.citation, one.notes)
        for name, one in PAIRS.items()
    )
    heads = ("licence", "from", "notes")
    parts = ["# Data sets", "All that `--data.name` may name.", table(("name", "classes", *heads), texts)]
    return "\n\n".join([*parts, "Sentence pairs, of recipes with `model.type`:", table(("name", "links", *heads), pairs)])


def python_page() -> str:
    """The docstrings of what `import attnfaith` offers, and of `attnfaith.record`."""
    names = [f"{getattr(attnfaith, name).__module__}.{name}" for name in attnfaith.__all__]
    return "\n\n".join(["# Python", *(f"::: {name}" for name in [*names, "attnfaith.record"])])


def place(link: str, page: File) -> PurePosixPath | None:
    """Where the site has the file of the repository that a page links to; None where there is no such file."""
    uri = PurePosixPath(page.src_uri)
    source = ROOT / (uri.relative_to(ELSEWHERE) if uri.is_relative_to(ELSEWHERE) else "docs" / uri)
    target = (source.parent / link).resolve()
    if not target.is_file():
        return None
    path = PurePosixPath(target.relative_to(ROOT))
    path = path.with_suffix(".md") if path.suffix == ".ipynb" else path
    return path.relative_to("docs") if path.is_relative_to("docs") else ELSEWHERE / path


def on_config(config):
    config.extra["polyfills"] = []  # of the offline plugin, which a browser would fetch from a server
    logging.getLogger("mkdocs.plugins.mkdocs_autorefs").setLevel(logging.ERROR)  # shapes such as [T][C] are no links
    return config


def on_files(files: Files, config) -> Files:
    generated = {
        "reference/record.md": record_page(),
        "reference/producers.md": producers_page("Measures and experiments", "texts", CAPABILITIES),
        "reference/pairs.md": producers_page("Of sentence pairs", "sequences", CAPABILITIES_OF_SEQUENCES),
        "reference/data_sets.md": data_sets_page(),
        "reference/command_line.md": command_line_page(),
        "reference/python.md": python_page(),
    }
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        run = ROOT / "build" / "notebooks" / path.name  # with outputs, once `make docs` ran it
        text, made = MarkdownExporter().from_filename(str(run if run.exists() else path), {"output_files_dir": path.stem})
        generated |= {f"notebooks/{name}": content for name, content in {f"{path.stem}.md": text, **made["outputs"]}.items()}
    for uri, content in generated.items():
        files.append(File.generated(config, uri, content=content))
    pages = list(files.documentation_pages())
    while pages:
        page = pages.pop()
        for link in LINK.findall(FENCED.sub("", page.content_string)):
            if (uri := place(link, page)) and files.get_file_from_path(str(uri)) is None:
                added = File.generated(config, str(uri), abs_src_path=str(ROOT / uri.relative_to(ELSEWHERE)))
                files.append(added)
                pages += [added] if added.is_documentation_page() else []
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead links to files of the repository to where the site has them."""

    def lead(match):
        uri = place(match[0], page.file)
        return os.path.relpath(uri, PurePosixPath(page.file.src_uri).parent) if uri else match[0]

    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in FENCED.split(markdown))
