"""What holds of every section of a report."""

import pandas as pd

from attnfaith import record as records
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell


def check_columns(section, cell):
    """The section says the same of a cell without the columns that it does not say it uses."""
    kept = {"instance_id", *records.IDENTITY_COLUMNS, "tokens", *section.columns(cell.table.column_names)}
    assert set(section.needs) <= kept < set(cell.table.column_names)
    bare = Cell(cell.identity, cell.table.select([name for name in cell.table.column_names if name in kept]))
    made, again = (render.frames(section, [of]) for of in (cell, bare))
    assert made and made.keys() == again.keys()
    for name, df in made.items():
        pd.testing.assert_frame_equal(again[name], df)
    assert render.sentences(section, bare) == render.sentences(section, cell)
