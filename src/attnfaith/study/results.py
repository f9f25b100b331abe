"""The results of a study, made from the records of its complete cells alone: tables, figures, the status of every cell,
their provenance, and a page of all that.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith import record
from attnfaith.reporting.analysis import Analysis, analyse, check_identities, study_figures, study_tables
from attnfaith.reporting.cells import Cell as MeasuredCell
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.charts import figure_files
from attnfaith.reporting.html import template
from attnfaith.reporting.seed_tables import FORMATS, overview
from attnfaith.reporting.tables import table_files
from attnfaith.study.plan import Cell, Study, complete
from attnfaith.support.files import RECORD, STATE, is_locked, read_object, write_atomically


PROVENANCE = ("version", "commit", "dirty", "libraries", "python", "device")
"""The keys of a record's provenance that tell apart how cells were made."""


def cells_table(planned: Sequence[Cell]) -> pd.DataFrame:
    """Return a row for each planned cell: cell, block, status, n (texts measured) and reason (why it is not complete).

    status: complete, running, failed (its log holds an error), stopped, or not run.
    """
    rows, ready = [], {cell.name for cell in planned if complete(cell.whole_recipe)}
    for cell in planned:
        status, n, reason = "not run", math.nan, ""
        if cell.name in ready:
            status, n = "complete", pq.read_metadata(cell.folder / RECORD).num_rows
        elif cell.log.is_file():
            text = cell.log.read_bytes()[-8192:].decode("utf-8", "replace")
            lines = [line for line in text.splitlines() if line.strip()]
            errors = [line for line in lines if "error: " in line.lower()]
            status = "running" if is_locked(cell.folder) else "failed" if errors else "stopped"
            reason = ["", *(errors if status == "failed" else lines)][-1].strip()
            reason = reason.partition("error: ")[2] or reason  # a progress bar may stand before it
        elif needed := [name for name in cell.after if name not in ready]:
            reason = f"it needs {', '.join(needed)}"
        rows.append({"cell": cell.name, "block": cell.block, "status": status, "n": n, "reason": reason})
    return pd.DataFrame(rows).astype({"n": "Int64"})


def write_results(study: Study, cells: pd.DataFrame, folders: Mapping[str, Path], *, mix_versions: bool = False) -> Path:
    """Write tables, figures, texts, provenance and page from the records alone; return the path of the page.

    cells: `cells_table`. folders: those of complete cells, by name. Raises RecordError where different versions of the
    package measured the records, unless mix_versions, and where two have one identity.
    """
    records = {name: record.load(folder / RECORD) for name, folder in folders.items()}
    if not mix_versions:
        remedy = "delete their record.parquet and run the study again, or take all as they are with --mix-versions"
        record.check_one_version(records.values(), remedy=remedy)
    parts = {name: split_cells(table) for name, table in records.items()}
    check_identities(parts)
    measured = [cell for cells in parts.values() for cell in cells]
    output, tables = Path(study.results), study_tables(measured, study.tables)
    own = analyse(vars(study), measured, tables)
    tables = {**tables, **own.tables}
    texts = {**own.texts, **{f"{name}.md": grid.formatted("markdown") for name, grid in own.grids.items()}}
    figures = {**study_figures(measured, study.tables), **own.figures}
    files = {"made.json": json.dumps(provenance(len(cells), folders, records), indent=1) + "\n"}
    for name, table in tables.items():
        files |= table_files(table, name)
    files |= texts  # what a page shows of a table stands in place of its whole Markdown
    for name, figure in figures.items():
        files |= figure_files(figure, f"figures/{name}", ["png"], dpi=90)  # small enough for a repository to keep
        files |= figure_files(figure, f"figures/{name}", ["pdf"])
    for path, content in files.items():
        write_atomically(output / path, content)
    return write_page(output, cells, folders, Analysis(tables, own.grids, texts, figures), measured)


def provenance(planned: int, folders: Mapping[str, Path], records: Mapping[str, pa.Table]) -> dict:
    """Return the content of made.json.

    cells: how many are planned, and complete. seconds: the sum over complete ones; a run that was stopped counts from where
    it went on. made_by: for each distinct provenance (`PROVENANCE`), it and how many cells have it, the most common first.
    One entry whose dirty is false shows that everything beside this file comes from one commit.
    """
    entries = [part.get("provenance") or {} for table in records.values() for part in record.settings(table)]
    counts = Counter(json.dumps({name: entry.get(name) for name in PROVENANCE}, sort_keys=True) for entry in entries)
    return {
        "cells": {"planned": planned, "complete": len(records)},
        "seconds": round(sum(read_object(folder / STATE).get("seconds", 0.0) for folder in folders.values()), 1),
        "made_by": [{"cells": count, **json.loads(entry)} for entry, count in counts.most_common()],
    }


def write_page(
    output: Path, cells: pd.DataFrame, folders: Mapping[str, Path], written: Analysis, measured: Sequence[MeasuredCell]
) -> Path:
    """Write <output>/index.html, and the wide tables as Markdown, LaTeX and CSV into <output>/wide; return its path."""
    grids = []
    for table in overview(measured):
        for kind in ("markdown", "latex", "csv"):
            write_atomically(output / "wide" / f"{table.name}{FORMATS[kind]}", table.formatted(kind))
        grids.append(replace(table.grid, stem=f"wide/{table.name}"))
    pages = {name: folder / "report" / "index.html" for name, folder in folders.items()}
    html = template("study.html.j2").render(
        title=f"Study: {output.parent.name if output.name == 'results' else output.name}",
        datasets=dict.fromkeys(cell.identity.dataset for cell in measured),
        seeds=sorted({cell.identity.seed for cell in measured}),
        own=list(written.grids.values()),
        grids=[grid for grid in grids if grid.rows],
        cells=cells.to_dict("records"),
        counts=Counter(cells["status"]),
        pages={name: quote(os.path.relpath(page, output)) for name, page in pages.items() if page.is_file()},
        tables=sorted(written.tables),
        texts=sorted(written.texts),
        figures=sorted(written.figures),
    )
    return write_atomically(output / "index.html", html)
