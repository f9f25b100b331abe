"""The whole report in one folder: tables, figures and the page."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting import sections
from attnfaith.reporting.cells import CELL, Cell, describe, split_cells
from attnfaith.reporting.errors import FolderError, ReportError
from attnfaith.reporting.facts import record_facts
from attnfaith.reporting.html import picture
from attnfaith.reporting.page.page import render_page
from attnfaith.reporting.sections import figures
from attnfaith.reporting.style import require_matplotlib, save_figure
from attnfaith.reporting.tables import save_table
from attnfaith.support.escaping import file_name
from attnfaith.support.files import folder_lock, write_atomically


MARK = '<meta name="generator" content="attnfaith report'
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

    All is made in a folder beside `out_dir` and put in its place when complete: an error leaves the old report whole. One
    process makes it at a time; what a killed one left goes with the next.

    Raises RecordError where the record breaks a rule or has no rows, ReportError for n_examples below 1 and for a column
    after which no file can be named, FolderError where `out_dir` is a file or a folder with anything in it but a report,
    FileError where another process makes it, PlotsError where matplotlib is missing.
    """
    if n_examples < 1:
        raise ReportError(f"n_examples is {n_examples}; a report shows at least 1 text")
    require_matplotlib()
    records.validate(record)
    if record.num_rows == 0:
        raise records.RecordError("a record without rows has nothing to report: measure at least one instance")
    target = Path(out_dir).resolve()
    _refuse_foreign(target)
    cells = split_cells(record)
    facts = record_facts(record) if facts is None else facts
    place = target.with_name(f".{target.name}.tmp")
    with folder_lock(place, "a report"):
        try:
            for left in ("new", "old"):
                shutil.rmtree(place / left, ignore_errors=True)
            (place / "new").mkdir()
            _fill(place / "new", cells, title or _title(cells), facts, n_examples)
            _put_in_place(place / "new", target, place / "old")
        finally:
            shutil.rmtree(place, ignore_errors=True)  # with its lock, which no other process can take before
    return target / "index.html"


def _title(cells: Sequence[Cell]) -> str:
    """The model's own name and its data set; what tells cells apart where the record names no model."""
    if len(cells) > 1:
        return f"{len(cells)} models"
    settings, heading = cells[0].settings, cells[0].heading
    name = settings.get("recipe", {}).get("name") or PurePath(settings.get("source", "")).name
    return f"{name} on {heading['dataset']} ({heading['split']})" if name else describe(heading)


def _fill(folder: Path, cells: Sequence[Cell], title: str, facts: Mapping[str, object], n_examples: int) -> None:
    tables = sections.frames(cells)
    for name, table in tables.items():
        save_table(table, folder / "tables" / name)
    differing = [name for name in CELL if len({str(cell.heading[name]) for cell in cells}) > 1]
    pictures: list[list] = []
    for number, cell in enumerate(cells, start=1):
        words = file_name("_".join(f"{cell.heading[name]}" for name in differing))
        prefix = f"{number:02d}_{words}_" if len(cells) > 1 else ""
        pictures.append([])
        for section, drawing in figures(cell):
            stem = f"figures/{prefix}{drawing.name}"
            png, *_ = save_figure(drawing.draw(cell), folder / stem)
            pictures[-1].append(picture(png.read_bytes(), *drawing.words(cell), stem, section))
    page = render_page(cells, tables, pictures, title=title, facts=facts, n_examples=n_examples)
    write_atomically(folder / "index.html", page)


def _refuse_foreign(target: Path) -> None:
    """Raises FolderError unless `target` is absent, an empty folder, or a report and nothing else."""
    if not target.exists():
        return
    if not target.is_dir():
        raise FolderError(f"{target} is a file; a report is a folder: give another path")
    entries, index = sorted(target.rglob("*")), target / "index.html"
    if entries and not (index.is_file() and MARK in index.read_text(encoding="utf-8", errors="replace")):
        raise FolderError(f"{target} is not empty and not a report: give another path, or empty it first")
    own = {index, *(target / kind for kind in KINDS)}
    for entry in entries:
        if entry not in own and not (entry.parent in own and entry.suffix in KINDS.get(entry.parent.name, ())):
            raise FolderError(f"{target} holds '{entry.relative_to(target)}', which no report wrote: move it away first")


def _put_in_place(building: Path, target: Path, aside: Path) -> None:
    """Rename the finished folder to `target`; an old report steps aside first and comes back if that fails."""
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(building, target)
    except BaseException:
        if aside.exists():
            os.rename(aside, target)
        raise
