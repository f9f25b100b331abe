"""The tables and figures of a study: many cells, of which not all hold the same columns. Needs no model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from attnfaith.record import Identity, RecordError
from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.cells import Cell, describe
from attnfaith.reporting.tables import over_seeds
from attnfaith.support.escaping import file_name


if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    tables = sections.frames(cells, names)
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
    """
    names = (*names, "dispersion") if "agreement" in names else names
    first = {cell.heading["dataset"]: cell for cell in reversed(cells)}
    return {
        f"{file_name(dataset)}-{drawing.name}": drawing.draw(cell)
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
    if published and not path:
        raise StudyError("published without analysis: name the analysis that shows them, or leave published out")
    if not path:
        return Analysis()
    settings = Settings(Path(published) if published else None, study.get("stand_ins", {}), tables)
    analysis = load_analysis(path).tables(cells, settings)
    if not isinstance(analysis, Analysis):
        kind = type(analysis).__name__
        raise StudyError(f"analysis: tables(cells, settings) of {path} returned {kind}; return an Analysis")
    twice = sorted(set(analysis.tables) & set(tables))
    if twice:
        raise StudyError(f"analysis: {path} makes the tables {twice}, which the study makes itself; give them other names")
    return replace(analysis, tables={name: table for name, table in analysis.tables.items() if len(table)})
