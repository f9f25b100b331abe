"""The tables and figures of a study: many cells, of which not all hold the same columns. Needs no model."""

import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from attnfaith.record import Identity, RecordError
from attnfaith.reporting import render, sections
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.cells import FINGERPRINTS, Cell, describe
from attnfaith.reporting.html import Grid
from attnfaith.reporting.tables import over_seeds, short_number
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS, MOST_PAIRS, MOST_KEYS, LONGEST_KEY = 16, 3, 4, 40
"""Of the table of published numbers on the first screen: rows, pairs of columns, columns that name a row, letters there."""
DEFAULT = tuple(sections.registry())
"""Names of the sections that a study has unless it names some."""


def check_identities(cells: Mapping[str, Sequence[Cell]]) -> None:
    """Raises RecordError where two cells of a study have one identity: no table could tell them apart."""
    owners: dict[Identity, str] = {}
    for name, parts in cells.items():
        for cell in parts:
            if cell.identity in owners:
                raise RecordError(
                    f"cells {owners[cell.identity]!r} and {name!r} have one identity ({describe(cell.heading)}): tables "
                    "cannot tell them apart; give them different seeds or keep them in different studies"
                )
            owners[cell.identity] = name


def study_tables(cells: Sequence[Cell], names: Sequence[str] = DEFAULT) -> dict[str, pd.DataFrame]:
    """The named tables (see DEFAULT) of those cells that hold what a table needs; tables without rows are left out.

    Where cells have several seeds, each table has a twin "<name>_over_seeds". Raises StudyError for an unknown name.
    """
    check_names(names)
    tables = sections.frames(cells, names, study=True)
    if len({cell.heading["seed"] for cell in cells}) > 1:
        tables |= {f"{name}_over_seeds": over_seeds(table) for name, table in tables.items()}
    return tables


def check_names(names: Sequence[str]) -> None:
    """Raises StudyError for the name of a table that does not exist."""
    unknown = [name for name in names if name not in sections.registry()]
    if unknown:
        raise StudyError(f"tables {unknown} are not known; choose from {', '.join(sections.registry())}")


def study_figures(cells: Sequence[Cell], names: Sequence[str] = DEFAULT) -> "dict[str, Figure]":
    """The figures of the named sections, and with "agreement" that of dispersion, of the first cell of each data set, by
    file name.

    Raises ReportError for a data set of a name that no file can have.
    """
    names = (*names, "dispersion") if "agreement" in names else names
    first = {cell.heading["dataset"]: cell for cell in reversed(cells)}
    return {
        render.file_name(f"{dataset}-{drawing.name}"): drawing.draw(cell)
        for dataset, cell in reversed(first.items())
        for section, drawing in sections.figures(cell)
        if section in names
    }


def analyse(study: Mapping, cells: Sequence[Cell] = (), tables: Mapping[str, pd.DataFrame] | None = None) -> Analysis:
    """Return what the analysis that a study names makes of its cells, tables without rows left out; nothing without one.

    study: its keys analysis (a path), published (a path) and stand_ins, each optional. tables: those that `study_tables`
    made. Without cells, the analysis checks the keys of the study.

    Raises StudyError for an analysis that cannot be loaded, returns something else than an Analysis, makes a table that the
    study makes itself, or refuses the keys of the study; for stand-ins without published numbers, and for published numbers
    without an analysis to show them.
    """
    path, published, tables = study.get("analysis"), study.get("published"), tables or {}
    if study.get("stand_ins") and not published:
        raise StudyError("stand_ins without published: name the CSV of published numbers, or leave stand_ins out")
    if not path:
        if published:
            raise StudyError("published without analysis: name the analysis that shows them, or leave published out")
        return Analysis()
    settings = Settings(Path(published) if published else None, study.get("stand_ins", {}), tables)
    analysis = load_analysis(path).tables(cells, settings)
    if not isinstance(analysis, Analysis):
        kind = type(analysis).__name__
        raise StudyError(f"analysis: tables(cells, settings) of {path} returned {kind}; return an Analysis")
    twice = sorted(set(analysis.tables) & set(tables))
    if twice:
        raise StudyError(f"analysis: {path} makes the tables {twice}, which the study makes itself; give them other names")
    return Analysis({name: table for name, table in analysis.tables.items() if len(table)}, analysis.texts, analysis.figures)


def markdown_grid(name: str, text: str) -> Grid | None:
    """The table that an analysis wrote as Markdown, by its file name, for the page; None of any other text.

    The columns before the first one that is set to the right name a row.
    """
    lines = text.splitlines()
    if len(lines) < 3 or not all(line.startswith("| ") for line in lines):
        return None
    head, kinds, *rows = ([_plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    heads = next((place for place, kind in enumerate(kinds) if kind.endswith(":")), len(kinds))
    return Grid(name.removesuffix(".md").replace("_", " ").capitalize(), tuple(head), tuple(map(tuple, rows)), heads)


def _plain(cell: str) -> str:
    """A cell of a Markdown table as it reads, without signs that format or that keep others from formatting."""
    return re.sub(r"\\(.)|\*", r"\1", unescape(cell.strip()))


def beside_published(name: str, table: pd.DataFrame) -> Grid | None:
    """A table's measured numbers, each beside the published one; None of a table without published numbers.

    A column with "published" in its name belongs to the one of the same name without it; a column that is called just so to
    the first number of the table that is no count.
    """
    numeric = list(table.select_dtypes("number"))
    pairs = []
    for column in numeric:
        rest = column.replace("published", "").strip("_ ")
        own = next((column for column in (rest, "measured", "mean") if column in numeric), None)
        if rest != column and own and not rest.endswith("_bound"):
            pairs.append((own, column))
    rows = table.dropna(subset=[column for _, column in pairs], how="all") if pairs else table.iloc[:0]
    if rows.empty:
        return None
    keys = [column for column in table.columns if column not in (*numeric, *FINGERPRINTS)]
    keys = [column for column in keys if table[column].nunique(dropna=False) > 1]
    keys = [column for column in keys if table[column].astype(str).str.len().max() <= LONGEST_KEY][:MOST_KEYS]
    numbers = [column for pair in pairs[:MOST_PAIRS] for column in pair]
    first = rows.head(MOST_ROWS)
    lines = [
        (
            *(str(row[key]) for key in keys),
            *("–" if pd.isna(row[column]) else short_number(row[column]) for column in numbers),
        )
        for row in first.to_dict("records")
    ]
    note = f"{len(first)} of {counted(len(rows), 'row')} of {name}." if len(first) < len(rows) else ""
    headings = tuple(column.replace("_", " ") for column in (*keys, *numbers))
    return Grid("Measured beside published", headings, tuple(lines), len(keys), note)
