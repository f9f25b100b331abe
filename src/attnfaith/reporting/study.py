"""The tables and figures of a study: many cells, of which not all hold the same columns. Needs no model."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from attnfaith.record import Identity, RecordError
from attnfaith.reporting import render, sections
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.blocks import Grid
from attnfaith.reporting.cells import Cell, describe
from attnfaith.reporting.style import save_figure
from attnfaith.reporting.tables import over_seeds, short_number
from attnfaith.support.errors import counted


MOST_ROWS, MOST_PAIRS, MOST_KEYS, LONGEST_KEY = 12, 3, 4, 40
"""Of the table of published numbers on the first screen: rows, pairs of columns, columns that name a row, letters there."""
DEFAULT = tuple(sections.registry())
"""Names of the sections that a study has unless it says otherwise."""


def check_identities(cells: Mapping[str, Sequence[Cell]]) -> None:
    """Raises RecordError where two cells of a study have one identity: no table could tell them apart."""
    owners: dict[Identity, str] = {}
    for name, parts in cells.items():
        for cell in parts:
            key = cell.identity
            if key in owners:
                raise RecordError(
                    f"cells {owners[key]!r} and {name!r} have one identity ({describe(cell.heading)}): tables cannot "
                    "tell them apart; "
                    "give them different seeds or keep them in different studies"
                )
            owners[key] = name


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
    if unknown := [name for name in names if name not in sections.registry()]:
        raise StudyError(f"tables {unknown} are not known; choose from {', '.join(sections.registry())}")


def study_figures(cells: Sequence[Cell], names: Sequence[str] = DEFAULT) -> "dict[str, Figure]":  # noqa: F821
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
    """What the analysis that a study names makes of its cells, tables without rows left out; nothing where it names none.

    study: its keys analysis (a path), published (a path) and stand_ins, each optional. tables: those that `study_tables`
    made. Without cells, the analysis checks what the study says.

    Raises StudyError for an analysis that cannot be loaded, returns something else than an Analysis, makes a table that the
    study makes itself, or refuses what the study says; for stand-ins without published numbers, and for published numbers
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
    made = load_analysis(path).tables(cells, settings)
    if not isinstance(made, Analysis):
        raise StudyError(f"analysis: tables(cells, settings) of {path} returned {type(made).__name__}; return an Analysis")
    if twice := sorted(set(made.tables) & set(tables)):
        raise StudyError(f"analysis: {path} makes the tables {twice}, which the study makes itself; give them other names")
    return Analysis({name: table for name, table in made.tables.items() if len(table)}, made.texts, made.figures)


def save_png(figure: "Figure", path: str | os.PathLike) -> Path:  # noqa: F821
    """Write a figure whole or not at all, as PNG of 90 dpi: small enough for a repository to keep."""
    (written,) = save_figure(figure, Path(path).with_suffix(""), ["png"], dpi=90)
    return written


def beside_published(named: tuple[str, pd.DataFrame]) -> Grid | None:
    """A table's measured numbers, each beside the published one; None of a table without published numbers.

    named: (name, table). A column with "published" in its name belongs to the one of the same name without it; a column
    that is called just so to the first number of the table that is no count.
    """
    name, table = named
    numeric = [column for column in table.columns if pd.api.types.is_numeric_dtype(table[column])]
    pairs = []
    for column in numeric:
        rest = column.replace("published", "").strip("_ ")
        if rest == column:
            continue
        own = rest if rest in numeric else next((one for one in ("measured", "mean") if one in numeric), None)
        if own and not rest.endswith("_bound"):
            pairs.append((own, column))
    rows = table.dropna(subset=[column for _, column in pairs], how="all") if pairs else table.iloc[:0]
    if rows.empty:
        return None
    keys = [column for column in table.columns if column not in numeric and table[column].nunique(dropna=False) > 1]
    keys = [column for column in keys if table[column].astype(str).str.len().max() <= LONGEST_KEY][:MOST_KEYS]
    seen = [column for pair in pairs[:MOST_PAIRS] for column in pair]
    shown = rows.head(MOST_ROWS)
    lines = tuple(
        (*(str(row[key]) for key in keys), *("–" if pd.isna(row[column]) else short_number(row[column]) for column in seen))
        for row in shown.to_dict("records")
    )
    note = f"{len(shown)} of {counted(len(rows), 'row')} of {name}." if len(shown) < len(rows) else ""
    headings = (*(key.replace("_", " ") for key in keys), *(column.replace("_", " ") for column in seen))
    return Grid("Measured beside published", headings, lines, len(keys), note)
