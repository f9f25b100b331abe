"""A study carried out: its cells that are not complete, then the tables of all that are."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from attnfaith import recipes
from attnfaith.recipes import Recipe
from attnfaith.reporting.analysis import DEFAULT, StudyError, analyse, check_names
from attnfaith.study.execute import CONTROL, run_cells
from attnfaith.study.plan import Cell, cells, check_distinct, choose, complete
from attnfaith.study.results import cells_table, write_page, write_provenance, write_tables
from attnfaith.support.errors import counted
from attnfaith.support.escaping import csv_frame
from attnfaith.support.files import is_locked, write_atomically


def prepare(study: Mapping) -> tuple[list[Cell], dict[str, Recipe]]:
    """Return the cells of a study and their recipes by name. Raises RecipeError or StudyError for cells that could not be
    run or tabulated.
    """
    check_names(study.get("tables", DEFAULT))
    analyse(study)
    planned = cells(study)
    wanted = {cell.name: cell.load_recipe() for cell in planned}
    check_distinct(wanted)
    return planned, wanted


def carry_out(
    study: Mapping, *, run: bool = True, only: str | None = None, mix_versions: bool = False, **how
) -> tuple[dict[str, Path], str]:
    """Run the cells of a study that are not complete, unless run is false, and make its tables from all that are.

    how: the options of `run_cells`. Returns the folders of the complete cells by name, and in words which of those that were
    to be run are not complete, "" where all are. Raises StudyError or RecipeError before any cell is run for a study that
    cannot be, and where no cell is complete at the end.
    """
    planned, wanted = prepare(study)
    chosen = {cell.name: cell for cell in choose(planned, only)}
    if run:
        for name in chosen:
            if not complete(wanted[name]):
                with recipes.named(name):
                    recipes.check_model(wanted[name])
        run_cells(study, [*chosen.values()], wanted, **how)
    table = cells_table(planned, wanted)
    write_atomically(Path(study["results"]) / "cells.csv", csv_frame(table))
    pending = table[table["cell"].isin(chosen) & (table["status"] != "complete")] if run else table.head(0)
    _print_reasons(pending)
    groups = pending.groupby("status")["cell"]
    missing = "; ".join(f"{counted(len(part), 'cell')} {status}: {part.to_list()}" for status, part in groups)
    ready = {cell.name: cell.folder for cell in planned if cell.name in set(table["cell"][table["status"] == "complete"])}
    if not ready:
        raise StudyError(f"no cell of the study is complete: there is nothing to tabulate{missing and f'; {missing}'}")
    written, measured = write_tables(study, ready, mix_versions=mix_versions or study.get("mix_versions", False))
    write_provenance(study, len(planned), ready)
    page = write_page(study, table, ready, written, measured)
    print(f"tables of {len(ready)} of {counted(len(planned), 'cell')}: {study['results']}\npage: {page}")
    return ready, f"{missing}; logs lie beside the cells in {study['output_dir']}" if missing else ""


def show_status(study: Mapping) -> None:
    """Print how far a study is, at work or not; nothing is written. Raises StudyError where nothing of it was ever run."""
    control = Path(study["output_dir"]) / CONTROL
    if not control.is_dir():
        raise StudyError(f"no {CONTROL} in {study['output_dir']}: nothing of this study has been run there")
    planned = cells(study)
    table = cells_table(planned, {cell.name: cell.load_recipe() for cell in planned})
    print(pd.crosstab(table["block"], table["status"], margins=True, margins_name="all").to_string())
    _print_reasons(table)
    if not is_locked(control):
        print("no study is at work there")


def _print_reasons(table: pd.DataFrame) -> None:
    for row in table[table["reason"] != ""].itertuples():
        print(f"{row.cell} {row.status}: {row.reason}")
