"""The whole report in one folder: tables, figures and the page."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting import sections
from attnfaith.reporting.cells import Cell, ReportError, describe, split_cells
from attnfaith.reporting.charts import draw, figure_files
from attnfaith.reporting.facts import record_facts
from attnfaith.reporting.page import differing_keys, figure_stem, render_page
from attnfaith.reporting.tables import table_files
from attnfaith.support.errors import FileError
from attnfaith.support.files import write_atomically


PAGE, MARK = "index.html", '<meta name="generator" content="attnfaith report'
KINDS = {"tables": {".csv", ".md", ".parquet"}, "figures": {".png", ".svg", ".pdf"}}


def write_report(
    record: pa.Table,
    out_dir: str | os.PathLike,
    *,
    title: str | None = None,
    facts: Mapping[str, object] | None = None,
    n_examples: int = 5,
) -> Path:
    """Write a record's report into `out_dir` and return the path of its index.html.

    The folder holds index.html (one page that needs nothing beside it), tables/*.csv, *.md and *.parquet, and
    figures/*.png, *.svg and *.pdf. The same record gives the same bytes. facts: how the run was made, by
    name; None for the facts that the record holds. n_examples: pairs of sentences shown of lowest and of highest
    error in each cell.

    Nothing is written before all is made, and each file whole or not at all, the page last; then what an older report had
    more goes. Other files in the folder stay.

    Raises RecordError where the record breaks a rule or has no rows, ReportError for n_examples below 1, FileError where
    `out_dir` is a file or a folder with anything in it but a report, PlotsError where matplotlib is missing.
    """
    if n_examples < 1:
        raise ReportError(f"n_examples is {n_examples}; a report shows at least 1 text")
    records.validate(record)
    if record.num_rows == 0:
        raise records.RecordError("a record without rows has nothing to report: measure at least one instance")
    target = Path(out_dir).resolve()
    if target.exists() and not target.is_dir():
        raise FileError(f"{target} is a file; a report is a folder: give another path")
    index = target / PAGE
    is_report = index.is_file() and MARK in index.read_text(encoding="utf-8", errors="replace")
    if target.exists() and any(target.iterdir()) and not is_report:
        raise FileError(f"{target} is not empty and not a report: give another path, or empty it first")
    cells = split_cells(record)
    tables = sections.frames(cells)
    contents = {path: file for name, table in tables.items() for path, file in table_files(table, f"tables/{name}").items()}
    for place, cell in enumerate(cells):
        for chart in filter(None, (section.chart_of(cell) for section in sections.of_cell(cell))):
            stem = figure_stem(cell, place, differing_keys(cells), chart)
            contents |= figure_files(draw(chart, describe(cell.heading), len(cell)), stem)
    facts = record_facts(record) if facts is None else facts
    page = render_page(cells, tables, title=title or _title(cells), facts=facts, n_examples=n_examples, files=True)
    for path, content in {**contents, PAGE: page}.items():
        write_atomically(target / path, content)
    for path in (path for kind in KINDS for path in (target / kind).glob("*")):
        if path.suffix in KINDS[path.parent.name] and f"{path.parent.name}/{path.name}" not in contents:
            path.unlink()
    return index


def _title(cells: Sequence[Cell]) -> str:
    """The model's own name and its data set; what tells cells apart where the record names no model."""
    if len(cells) > 1:
        return f"{len(cells)} models"
    settings, heading = cells[0].settings, cells[0].heading
    name = settings.get("recipe", {}).get("name") or PurePath(settings.get("source", "")).name
    return f"{name} on {heading['dataset']} ({heading['split']})" if name else describe(heading)
