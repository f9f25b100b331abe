"""The tables and figures of a study: many cells, of which not all hold the same columns; and a paper's own tables, figures
and words: code that stands beside its study and that the study names. Needs no model.

`analysis: analysis.py` in a study file names a Python file, by its path from the study file. It defines one function

    tables(cells, settings) -> Analysis

It is called twice: before anything runs without any cell, when it must read what it needs, raise where it cannot use it, and
return an empty `Analysis`; and at the end with the measured cells of the study. Its folder is a package: it can import the
modules beside it and, with two dots, what lies in the folder above (`from ..shared import summary`).

Who runs a study runs the code that it names: read the analysis of a study that others wrote before you run it.
"""

import hashlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from attnfaith.record import Identity, RecordError
from attnfaith.reporting import sections
from attnfaith.reporting.cells import Cell, describe
from attnfaith.reporting.charts import draw
from attnfaith.reporting.tables import Grid, over_seeds
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.escaping import file_name


if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StudyError(AttnfaithError):
    """A study asks for tables that do not exist, names an analysis that cannot be loaded, or has an unusable key."""


@dataclass(frozen=True)
class Settings:
    """The settings that a study gives its analysis.

    published: the file of published numbers, None without one. tables: those of single cells that the study asks for, by
    file name; {} where there are no cells yet.
    """

    published: Path | None = None
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """Results of an analysis: tables, grids and figures by file name without ending, texts by whole file name ("made.md").

    grids: tables as the page of the study shows them; each is a Markdown file too.
    """

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    grids: Mapping[str, Grid] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    figures: "Mapping[str, Figure]" = field(default_factory=dict)


def load_analysis(path: str | Path) -> ModuleType:
    """Return the module of an analysis; its folder is its package, in the package of the folder above.

    Raises StudyError where there is no such file or it has no function `tables`; what the code itself raises goes on.
    """
    path = Path(path).resolve()
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise StudyError(f"analysis: {path.name!r} is no name of a Python module; give a file such as analysis.py")
    if not path.is_file():
        raise StudyError(f"analysis: no file at {path}; its path is read from the study file")
    root = f"attnfaith_{hashlib.sha256(str(path.parent.parent).encode()).hexdigest()[:12]}"
    package = f"{root}.{path.parent.name.replace('.', '%')}"
    for name, folder in ((root, path.parent.parent), (package, path.parent)):
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = [str(folder)]
    importlib.invalidate_caches()  # the file may be younger than Python's list of its folder
    module = importlib.import_module(f"{package}.{path.stem}")
    if not callable(getattr(module, "tables", None)):
        raise StudyError(f"analysis: {path} has no function tables(cells, settings); define it")
    return module


DEFAULT = tuple(sections.registry())
"""Names of the sections that a study has unless it names some."""


def check_identities(cells: Mapping[str, Sequence[Cell]]) -> None:
    """Raises RecordError where two cells of a study have one identity: no table could tell them apart."""
    owners: dict[Identity, str] = {}
    for name, cell in ((name, cell) for name, parts in cells.items() for cell in parts):
        if (owner := owners.setdefault(cell.identity, name)) != name:
            raise RecordError(
                f"cells {owner!r} and {name!r} have one identity ({describe(cell.heading)}): tables cannot tell them apart; "
                "give them different seeds or keep them in different studies"
            )


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
    names = {*names, *(["dispersion"] if "agreement" in names else [])}
    figures, first = {}, {}
    for cell in cells:
        first.setdefault(cell.heading["dataset"], cell)
    for dataset, cell in first.items():
        for section in (section for section in sections.of_cell(cell) if section.name in names):
            if chart := section.chart_of(cell):
                figures[f"{file_name(dataset)}-{chart.name}"] = draw(chart, describe(cell.heading), len(cell))
    return figures


def analyse(study: Mapping, cells: Sequence[Cell] = (), tables: Mapping[str, pd.DataFrame] | None = None) -> Analysis:
    """Return what the analysis that a study names makes of its cells, tables without rows left out; nothing without one.

    study: its keys analysis and published, paths, each optional. tables: those that `study_tables` made. Without cells, the
    analysis checks the keys of the study.

    Raises StudyError for an analysis that cannot be loaded, returns something else than an Analysis, makes a table that the
    study makes itself, or refuses the keys of the study; and for published numbers without an analysis to show them.
    """
    path, published, tables = study.get("analysis"), study.get("published"), tables or {}
    if published and not path:
        raise StudyError("published without analysis: name the analysis that shows them, or leave published out")
    if not path:
        return Analysis()
    settings = Settings(Path(published) if published else None, tables)
    analysis = load_analysis(path).tables(cells, settings)
    if not isinstance(analysis, Analysis):
        kind = type(analysis).__name__
        raise StudyError(f"analysis: tables(cells, settings) of {path} returned {kind}; return an Analysis")
    twice = sorted(set(analysis.tables) & set(tables))
    if twice:
        raise StudyError(f"analysis: {path} makes the tables {twice}, which the study makes itself; give them other names")
    return replace(analysis, tables={name: table for name, table in analysis.tables.items() if len(table)})
