"""A hook of mkdocs: pages of what code knows, the notebooks, and the files outside of docs/ that pages link to."""

import contextlib
import io
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

import attnfaith
from attnfaith import cli, record
from attnfaith.data.registry import DATASETS, PAIRS
from attnfaith.measurement import registry
from attnfaith.subjects import CAPABILITIES
from attnfaith.subjects.protocol import PAIR_CAPABILITIES


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
    rows = []
    for name, column in described.items():
        axes = "".join(f"[{axis}]" for axis in column.axes)
        low, high = ("" if bound is None else bound for bound in column.range or (None, None))
        bounds = f"{low} … {high}" if column.range else "sums to 1" * column.distribution
        limits = ", ".join(filter(None, (bounds, column.unit, "signed" * column.signed)))
        rows.append((f"`{name}`", column.doc, axes, column.dtype, limits, column.undefined))
    return table(("column", "meaning", "axes", "type", "range, unit, sign", "undefined"), rows)


def producers_page(title: str, of: str, needs: Mapping[str, str]) -> str:
    """Every measure and experiment of texts or of sentence pairs, with the columns that it adds to a record."""
    explained = "Names for `--measure.producers`. A model that lacks what a producer needs is refused."
    parts = [f"# {title}", explained, table(("need", "meaning"), sorted(needs.items()))]
    for measure in registry.classes(of):
        facts = (
            f"* {measure.role()}; needs {', '.join(sorted(measure.needs)) or 'nothing'}",
            f"* cost: {registry.COSTS[measure.cost]}",
            f"* options: {', '.join(f'`{name}={default!r}`' for name, default in measure.options().items()) or 'none'}",
        )
        parts += [f"## {measure.name}", measure.summary(), "\n".join(facts), columns(measure.columns)]
    return "\n\n".join(parts)


def record_page() -> str:
    tables = {
        "Which model, on which texts": record.IDENTITY_COLUMNS,
        "Every record of texts": record.COLUMNS,
        "Every record of sentence pairs": record.SEQUENCE_COLUMNS,
        "Some data or models": record.OPTIONAL_COLUMNS,
    }
    how = "[How to read it](../how_to/notebook.md#a-record-without-this-package)"
    parts = [f"# Columns of a record\n\nVersion {record.VERSION}. {how}."]
    return "\n\n".join([*parts, *(f"## {title}\n\n{columns(described)}" for title, described in tables.items())])


def command_line_page() -> str:
    parts = ["# The command line", "`attnfaith train --help` ends with every key of a recipe."]
    for name in cli.COMMANDS:
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
            cli.main([name, "--help"])
        parts += [f"## {name}", f"```text\n{shown.getvalue().rstrip()}\n```"]
    return "\n\n".join(parts)


def data_sets_page() -> str:
    def listed(second: str, entries: Mapping, value: Callable) -> str:
        rows = ((f"`{name}`", value(entry), entry.licence, entry.citation, entry.notes) for name, entry in entries.items())
        return table(("name", second, "licence", "from", "notes"), rows)

    texts = listed("classes", DATASETS, lambda entry: ", ".join(map(str, entry.label_names)))
    pairs = listed("links", PAIRS, lambda entry: "exact" if entry.built_in else entry.gold)
    return f"# Data sets\n\nNames for `--data.name`.\n\n{texts}\n\nSentence pairs, with `model.type`:\n\n{pairs}"


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
        "reference/pairs.md": producers_page("Of sentence pairs", "pairs", PAIR_CAPABILITIES),
        "reference/data_sets.md": data_sets_page(),
        "reference/command_line.md": command_line_page(),
        "reference/python.md": python_page(),
    }
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        executed = ROOT / "build" / "notebooks" / path.name
        source = executed if executed.exists() else path
        text, resources = MarkdownExporter().from_filename(str(source), {"output_files_dir": path.stem})
        generated[f"notebooks/{path.stem}.md"] = text
        generated |= {f"notebooks/{name}": content for name, content in resources["outputs"].items()}
    for uri, content in generated.items():
        files.append(File.generated(config, uri, content=content))
    pages = list(files.documentation_pages())
    while pages:
        page = pages.pop()
        for link in LINK.findall(FENCED.sub("", page.content_string)):
            if (uri := place(link, page)) and files.get_file_from_path(str(uri)) is None:
                file = File.generated(config, str(uri), abs_src_path=str(ROOT / uri.relative_to(ELSEWHERE)))
                files.append(file)
                pages += [file] if file.is_documentation_page() else []
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead links to files of the repository to where the site has them."""

    def lead(match):
        uri = place(match[0], page.file)
        return os.path.relpath(uri, PurePosixPath(page.file.src_uri).parent) if uri else match[0]

    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in FENCED.split(markdown))
