"""The command `attnfaith study`: the cells of a study that are not complete, then its tables."""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnfaith import recipes
from attnfaith.errors import counted
from attnfaith.files import is_locked
from attnfaith.recipes import Recipe
from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.study import DEFAULT, analyse, check_names
from attnfaith.study import status
from attnfaith.study.arguments import read, study_parser
from attnfaith.study.execute import run_cells
from attnfaith.study.made import write_made
from attnfaith.study.page import write_page
from attnfaith.study.plan import Cell, cells, check_distinct, choose, complete, load_recipe, read_study
from attnfaith.study.tables import write_cells, write_tables
from attnfaith.usage import Parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a study, show how far it is, or make its tables again."""
    known, how = options(study_parser(), arguments)
    if known is None:
        return
    if known.tables and known.remeasure:
        raise StudyError("--tables only reads records: leave it out to measure them anew with --remeasure")
    study = read_study(known.study)
    if known.status:
        return show_status(study)
    _, missing = carry_out(study, run=not known.tables, only=known.only, mix_versions=known.mix_versions, **how)
    if missing:
        raise StudyError(f"{missing}; logs lie beside the cells in {study['output_dir']}")


def options(parser: Parser, arguments: Sequence[str] | None) -> tuple[Namespace | None, dict]:
    """The arguments of a command that runs cells, and how `run_cells` is to run them; (None, {}) in a process that has
    nothing to do.

    Raises StudyError for cores below 1.
    """
    known, rest = read(parser, arguments)
    if int(os.environ.get("RANK", 0)) > 0:
        return None, {}  # launched as several processes: the first one starts those that are needed
    if known.cores is not None and known.cores < 1:
        raise StudyError(f"--cores {known.cores}: at least 1 cell at a time")
    return known, {"cores": known.cores, "executor": known.executor, "options": rest, "remeasure": known.remeasure}


def carry_out(
    study: Mapping, *, run: bool = True, only: str | None = None, mix_versions: bool = False, **how
) -> tuple[dict[str, Path], str]:
    """Run the cells of a study that are not complete, unless run is false, and make its tables from all that are.

    how: the options of `run_cells`. Returns the folders of the complete cells by name, and in words which of those that were
    to be run failed or were not, "" where there are none. Raises StudyError or RecipeError before any cell is run for a
    study that cannot be, and where no cell is complete at the end.
    """
    planned, wanted = prepare(study)
    states = {}
    if run:
        chosen = choose(planned, only)
        recipes.check_models({cell.name: wanted[cell.name] for cell in chosen if not complete(wanted[cell.name])})
        states = run_cells(study, chosen, wanted, **how)
    ready = {name: Path(recipe.output_dir) for name, recipe in wanted.items() if complete(recipe)}
    lines = write_cells(study, planned, ready)
    missing = "; ".join(
        f"{counted(len(names), 'cell')} {kind}: {names}"
        for kind in ("failed", "not run")
        if (names := [name for name, state in states.items() if state.status == kind])
    )
    if not ready:
        raise StudyError(f"no cell of the study is complete: there is nothing to tabulate{missing and f'; {missing}'}")
    made = write_tables(study, ready, mix_versions=mix_versions or study.get("mix_versions", False))
    write_made(study, planned, ready)
    page = write_page(study, lines, ready, made)
    left = len(planned) - len(ready)
    print(
        f"tables of {counted(len(ready), 'cell')}: {study['results']}"
        + (f"; {counted(left, 'cell')} missing" if left else "")
    )
    print(f"page: {page}")
    return ready, missing


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


def show_status(study: Mapping) -> None:
    """Print how far a study is, at work or not; nothing is written. Raises StudyError where nothing of it was ever run."""
    root = Path(study["output_dir"])
    if not (root / status.CONTROL).is_dir():
        raise StudyError(f"no {status.CONTROL} in {root}: nothing of this study has been run there")
    planned = cells(study)
    states = {cell.name: status.state_of(root, cell, ready=complete(load_recipe(cell))) for cell in planned}
    status.mark_not_run(planned, states)
    print("\n".join(status.overview(states.values(), root)))
    if not is_locked(root / status.CONTROL):
        print("no study is at work there")
