"""A study carried out: its cells that are not complete, then the tables of all that are."""

import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from attnfaith import recipes
from attnfaith.recipes import Recipe, library
from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.study import DEFAULT, analyse, check_names
from attnfaith.study.execute import CONTROL, run_cells
from attnfaith.study.plan import Cell, cells, check_distinct, choose, complete, load_recipe, read_study
from attnfaith.study.results import cells_table, seconds, write_made, write_page, write_tables
from attnfaith.support import provenance
from attnfaith.support.errors import counted
from attnfaith.support.escaping import csv_frame
from attnfaith.support.files import is_locked, write_atomically


NOT_IN_ALL = {"release.yaml"}
"""Studies of the package whose tables no document shows."""


def prepare(study: Mapping) -> tuple[list[Cell], dict[str, Recipe]]:
    """The cells of a study and their recipes by name. Raises RecipeError or StudyError for what could not be run or
    tabulated.
    """
    check_names(study.get("tables", DEFAULT))
    analyse(study)
    planned = cells(study)
    wanted = {cell.name: load_recipe(cell) for cell in planned}
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
        recipes.check_models({name: wanted[name] for name in chosen if not complete(wanted[name])})
        run_cells(study, [*chosen.values()], wanted, **how)
    table = cells_table(study, planned, wanted)
    write_atomically(Path(study["results"]) / "cells.csv", csv_frame(table))
    left = table[table["cell"].isin(chosen) & (table["status"] != "complete")] if run else table.head(0)
    for row in left[left["reason"] != ""].itertuples():
        print(f"{row.cell} {row.status}: {row.reason}")
    missing = "; ".join(
        f"{counted(len(part), 'cell')} {status}: {part['cell'].to_list()}" for status, part in left.groupby("status")
    )
    ready = {name: Path(wanted[name].output_dir) for name in table["cell"][table["status"] == "complete"]}
    if not ready:
        raise StudyError(f"no cell of the study is complete: there is nothing to tabulate{missing and f'; {missing}'}")
    made = write_tables(study, ready, mix_versions=mix_versions or study.get("mix_versions", False))
    write_made(study, len(planned), ready)
    page = write_page(study, table, ready, made)
    print(f"tables of {len(ready)} of {counted(len(planned), 'cell')}: {study['results']}\npage: {page}")
    if missing:
        missing += f"; logs lie beside the cells in {study['output_dir']}"
    return ready, missing


def show_status(study: Mapping) -> None:
    """Print how far a study is, at work or not; nothing is written. Raises StudyError where nothing of it was ever run."""
    control = Path(study["output_dir"]) / CONTROL
    if not control.is_dir():
        raise StudyError(f"no {CONTROL} in {study['output_dir']}: nothing of this study has been run there")
    planned = cells(study)
    table = cells_table(study, planned, {cell.name: load_recipe(cell) for cell in planned})
    print(pd.crosstab(table["block"], table["status"], margins=True, margins_name="all").to_string())
    for row in table[table["reason"] != ""].itertuples():
        print(f"{row.cell} {row.status}: {row.reason}")
    if not is_locked(control):
        print("no study is at work there")


def carry_out_all(*, run: bool = True, only_status: bool = False, **how) -> str:
    """Carry out every study of the package whose tables the documents show, one after another, then print what each took.

    All are read and checked before the first begins, and none keeps another from running. Returns in words what is missing.
    Raises StudyError where the code has changes that no commit holds while cells are missing.
    """
    folder = library.folder()
    paths = [path for path in sorted(folder.rglob("*.yaml")) if re.search(r"^blocks:", path.read_text("utf-8"), re.M)]
    names = [name for path in paths if (name := path.relative_to(folder).as_posix()) not in NOT_IN_ALL]
    studies = {name: read_study(folder / name) for name in names}
    wanted = {name: prepare(study)[1].values() for name, study in studies.items()}
    failures, whole = [], all(complete(recipe) for of_study in wanted.values() for recipe in of_study)
    if run and not only_status and not whole and provenance.checkout()[1]:
        raise StudyError("the code has uncommitted changes, so no commit could be named for the tables: commit them first")
    for number, (name, study) in enumerate({} if only_status else studies.items(), start=1):
        print(f"{name} ({number} of {len(studies)})", flush=True)
        try:
            _, missing = carry_out(study, run=run, **how)
        except StudyError as error:
            missing = str(error)
        failures += [f"{name}: {missing}"] if missing else []
    rows = []
    for name, of_study in wanted.items():
        done = [Path(recipe.output_dir) for recipe in of_study if complete(recipe)]
        rows.append({"study": name, "done": len(done), "cells": len(of_study), "hours": sum(map(seconds, done)) / 3600})
    table = pd.DataFrame(rows).set_index("study")
    table.loc["all"] = table.sum()
    print(table.astype({"done": int, "cells": int}).round({"hours": 2}).to_string())
    return "; ".join(failures)
