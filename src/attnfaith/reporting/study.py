"""The tables and figures of a study: many cells, of which not all hold the same columns. Needs no model."""

import inspect
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pandas as pd

from attnfaith.files import write_atomically
from attnfaith.record import Identity, RecordError
from attnfaith.reporting import planted, saliency_page, sparsity, sparsity_questions, stability
from attnfaith.reporting.cells import Cell, describe
from attnfaith.reporting.comparisons import FACTORS, paired_comparison
from attnfaith.reporting.dispersion import dispersion_table
from attnfaith.reporting.figures import _own_style, all_figures
from attnfaith.reporting.interventions import PLUGINS
from attnfaith.reporting.tables import agreement_table, performance_table, plausibility_table, seed_summary


OF_A_CELL = {
    "performance": performance_table,
    "agreement": agreement_table,
    "plausibility": plausibility_table,
    "dispersion": dispersion_table,
}
INTERVENTIONS: dict[str, ModuleType] = {plugin.__name__.rpartition(".")[2]: plugin for plugin in PLUGINS}
PROTOCOLS: dict[str, ModuleType] = {
    "stability": stability,
    "planted": planted,
    "sparsity": sparsity,
    "sparsity_questions": sparsity_questions,
    "attention_or_saliency": saliency_page,
}
DEFAULT = (*OF_A_CELL, *INTERVENTIONS)
KNOWN = (*DEFAULT, *PROTOCOLS)
"""Names a study may ask tables by: what every cell has, one for each intervention, and protocols over several cells."""


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


def study_tables(
    cells: Sequence[Cell],
    names: Sequence[str] = DEFAULT,
    compare: Sequence[str] = (),
    published: pd.DataFrame | None = None,
) -> dict[str, pd.DataFrame]:
    """The named tables (see KNOWN) of those cells that hold what a table needs; tables without rows are left out.

    compare: identity columns; the cells that differ in that column alone are compared in pairs ("comparisons"). Where cells
    have several seeds, each table of single cells has a twin "<name>_over_seeds". published: the paper's numbers, for those
    protocols whose `tables` take them.

    Raises ValueError for a name that is not known, or a column that is none of the identity's.
    """
    check_names(names, compare)
    found = {}
    for name in names:
        if name in OF_A_CELL:
            found[name] = OF_A_CELL[name](cells)
        elif name in INTERVENTIONS:
            found |= INTERVENTIONS[name].tables(cells)
    if len({cell.heading["seed"] for cell in cells}) > 1:
        found |= {f"{name}_over_seeds": _over_seeds(table) for name, table in list(found.items()) if len(table)}
    for name in names:
        if name in PROTOCOLS:
            found |= _with_published(PROTOCOLS[name].tables, cells, published)
    compared = [table for factor in compare if len(table := paired_comparison(cells, factor))]
    if compared:
        found["comparisons"] = pd.concat(compared, ignore_index=True)
    return {name: table for name, table in found.items() if len(table)}


def study_texts(
    cells: Sequence[Cell], names: Sequence[str] = DEFAULT, published: pd.DataFrame | None = None
) -> dict[str, str]:
    """What the named protocols have to say in words, by file name, such as "summary.md"."""
    found = {}
    for name in names:
        if hasattr(PROTOCOLS.get(name), "texts"):
            found |= _with_published(PROTOCOLS[name].texts, cells, published)
    return found


def _with_published(make: Callable, cells: Sequence[Cell], published: pd.DataFrame | None) -> dict:
    return make(cells, published=published) if "published" in inspect.signature(make).parameters else make(cells)


def _over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """`seed_summary` of a table in which what names a row stands before `n`, numbers such as an epsilon too."""
    names = table.columns[: table.columns.get_loc("n")].drop("seed")
    return seed_summary(table.astype(dict.fromkeys(names, str)))


def check_names(names: Sequence[str], compare: Sequence[str]) -> None:
    """Raises ValueError for the name of a table, or of a column to compare by, that does not exist."""
    if unknown := [name for name in names if name not in KNOWN]:
        raise ValueError(f"tables {unknown} are not known; choose from {', '.join(KNOWN)}")
    if unknown := [name for name in compare if name not in FACTORS]:
        raise ValueError(f"compare {unknown}: cells can be compared by {', '.join(FACTORS)}")


def study_figures(
    cells: Sequence[Cell], names: Sequence[str] = DEFAULT, published: pd.DataFrame | None = None
) -> "dict[str, Figure]":  # noqa: F821
    """Figures of the first cell of each data set, and those of the protocols, by file name.

    The figures of a cell are those of the interventions that are named, and with "agreement" those of its measures.
    """
    found = {}
    first = {cell.heading["dataset"]: cell for cell in reversed(cells)}
    for dataset, cell in reversed(first.items()):
        if "agreement" in names and cell.measures:
            found |= {f"{dataset}-{name}": figure for name, figure in all_figures(cell).items()}
        for name in names:
            plugin = INTERVENTIONS.get(name)
            if plugin is not None and set(plugin.NEEDS) <= set(cell.table.column_names):
                found |= {f"{dataset}-{key}": figure for key, figure in plugin.figures(cell).items()}
    for name in names:
        if name in PROTOCOLS:
            found |= _with_published(PROTOCOLS[name].figures, cells, published)
    return found


@_own_style
def save_png(figure: "Figure", path: str | os.PathLike) -> Path:  # noqa: F821
    """Write a figure whole or not at all, as PNG of 90 dpi: small enough for a repository to keep."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90, facecolor="white", metadata={"Software": None})
    return write_atomically(path, buffer.getvalue())
