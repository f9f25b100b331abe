"""The tables of a study: made from the records of its complete cells alone, and of what became of every cell."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from attnfaith import record
from attnfaith.escaping import csv_frame
from attnfaith.files import write_atomically
from attnfaith.reporting import save_figure, save_table
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.study import DEFAULT, analyse, check_identities, save_png, study_figures, study_tables
from attnfaith.study import status
from attnfaith.study.page import Made
from attnfaith.study.plan import Cell


def write_tables(study: Mapping, folders: Mapping[str, Path], *, mix_versions: bool = False) -> Made:
    """Tables, figures and texts from the records alone, by cell name; returns their names.

    Raises RecordError where different versions of the package measured the records, unless mix_versions, and where two have
    one identity.
    """
    records = {name: record.load(folder / "record.parquet") for name, folder in folders.items()}
    if not mix_versions:
        record.check_one_version(
            records.values(),
            remedy="--remeasure measures anew what another version measured, --mix-versions takes all as they are",
        )
    parts = {name: split_cells(table) for name, table in records.items()}
    check_identities(parts)
    measured = [cell for of_one in parts.values() for cell in of_one]
    names, output = study.get("tables", DEFAULT), Path(study["results"])
    tables = study_tables(measured, names)
    analysis = analyse(study, measured, tables)
    tables = tables | analysis.tables
    for name, table in tables.items():
        save_table(table, output / name)
    for name, text in analysis.texts.items():
        write_atomically(output / name, text)
    figures = study_figures(measured, names) | analysis.figures
    for name, figure in figures.items():
        save_png(figure, output / "figures" / f"{name}.png")
        save_figure(figure, output / "figures" / name, ["pdf"])
    return Made([*tables], [*analysis.texts], [*figures], measured)


def write_cells(study: Mapping, planned: Sequence[Cell], ready: Mapping[str, Path]) -> pd.DataFrame:
    """Every planned cell in <results>/cells.csv: complete, failed or not run; the texts measured; why it is not complete."""
    root = Path(study["output_dir"])
    states = {cell.name: status.state_of(root, cell, ready=cell.name in ready) for cell in planned}
    status.mark_not_run(planned, states)
    rows = []
    for name, state in states.items():
        row = {"cell": name, "block": state.block, "status": "not run", "n": math.nan, "reason": state.reason}
        if name in ready:
            row |= {"status": "complete", "n": pq.read_metadata(ready[name] / "record.parquet").num_rows}
        elif state.status in ("failed", "stopped"):
            row |= {"failed": {"status": "failed"}, "stopped": {"reason": "stopped"}}[state.status]
        rows.append(row)
    table = pd.DataFrame(rows).astype({"n": "Int64"})
    write_atomically(Path(study["results"]) / "cells.csv", csv_frame(table))
    return table
