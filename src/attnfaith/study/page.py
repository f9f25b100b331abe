"""The page of a study: its wide tables, what became of each cell and where its report is, all its tables and figures."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pandas as pd

from attnfaith import __version__
from attnfaith.errors import counted
from attnfaith.files import write_atomically
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.page.heatmap import PAPER
from attnfaith.reporting.wide import FORMATS, overview


WIDE = "wide"
PAGE = "index.html"


class Line(NamedTuple):
    """One cell of the study. report: its page as seen from the study's, "" where there is none."""

    name: str
    status: str
    texts: str
    reason: str
    report: str


class Made(NamedTuple):
    """What lies in the folder of results, by name: tables and figures without ending, texts with it; the measured cells."""

    tables: Sequence[str]
    texts: Sequence[str]
    figures: Sequence[str]
    measured: Sequence[Cell]


def write_page(study: Mapping, cells: pd.DataFrame, folders: Mapping[str, Path], made: Made) -> Path:
    """Write <results>/index.html, and the wide tables as Markdown, LaTeX and CSV into <results>/wide.

    cells: the table of `tables.write_cells`. folders: those of complete cells, by name. Returns the path of the page.
    """
    output = Path(study["results"])
    grids = []
    for table in overview(made.measured):
        for kind in ("markdown", "latex", "csv"):
            write_atomically(output / WIDE / f"{table.name}{FORMATS[kind]}", table.formatted(kind))
        grids.append(replace(table.grid, stem=f"{WIDE}/{table.name}"))
    lines = [_line(row, folders, output) for row in cells.to_dict("records")]
    html = template("study.html.j2").render(
        title=f"Study: {output.parent.name if output.name == 'results' else output.name}",
        version=__version__,
        lead=_lead(lines, made.measured),
        grids=[grid for grid in grids if grid.rows],
        cells=lines,
        reasons=any(line.reason for line in lines),
        tables=sorted(made.tables),
        texts=sorted(made.texts),
        figures=sorted(made.figures),
        paper=PAPER,
    )
    return write_atomically(output / PAGE, html)


def _line(row: Mapping, folders: Mapping[str, Path], output: Path) -> Line:
    page = folders.get(row["cell"], Path()) / "report" / PAGE
    report = quote(os.path.relpath(page, output)) if row["cell"] in folders and page.is_file() else ""
    texts = "" if pd.isna(row["n"]) else f"{row['n']:,}"
    return Line(row["cell"], row["status"], texts, str(row["reason"] or ""), report)


def _lead(lines: Sequence[Line], measured: Sequence[Cell]) -> list[str]:
    """What the study holds, in sentences."""
    count = {status: sum(line.status == status for line in lines) for status in ("complete", "failed", "not run")}
    said = [f"Complete: {count['complete']} of {counted(len(lines), 'cell')}."]
    said += [
        f"{count[status]} {words}." for status, words in (("failed", "failed"), ("not run", "were not run")) if count[status]
    ]
    seeds = sorted({cell.identity.seed for cell in measured})
    data = dict.fromkeys(cell.identity.dataset for cell in measured)
    said.append(f"Data sets: {', '.join(data)}. Seeds: {', '.join(map(str, seeds))}.")
    return [" ".join(said)]
