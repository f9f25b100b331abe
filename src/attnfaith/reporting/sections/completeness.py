"""Do the parts add up? What is left of a number that integrated gradients or relevance propagation hands out to tokens.

Integrated gradients should sum to the difference of what is explained between the text and the baseline; relevance, with
what its rules give to no token, to what is explained itself. Where they do not, scores of single tokens mean little, however
they are ranked: a model that switches abruptly along the line from the baseline needs more points than were taken, and
relevance that grows from step to step of a long text is lost in rounding.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, PREFIX, Cell, measure_label
from attnfaith.reporting.render import declared_grid
from attnfaith.reporting.spec import Case, Column, Count, Key, Largest, Median, Section, Share, Table


ALLOWED = 0.01
"""Share of the number handed out that may be left: what integrated gradients aim at unless told otherwise."""
LEFT = {
    "integrated_gradients": ("integrated_gradients_residual", "integrated_gradients_steps"),
    "integrated_gradients_hidden": ("integrated_gradients_residual_hidden", "integrated_gradients_steps_hidden"),
    "lrp": ("lrp_unaccounted", None),
}
"""Measure -> the column of what is left, and that of the steps taken."""


def _cases(cell: Cell) -> Iterator[Case]:
    for measure, (left_column, steps_column) in LEFT.items():
        if measure not in cell.measures or left_column not in cell.table.column_names:
            continue
        if cell.table.column(left_column).null_count == len(cell):  # measured in other cells of the record only
            continue
        parts = np.array([np.sum(row, dtype=np.float64) for row in records.rows(cell.table, PREFIX + measure)])
        left = cell.table.column(left_column).to_numpy().astype(np.float64)
        whole = parts - left if measure != "lrp" else parts + cell.table.column("lrp_residual").to_numpy().astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.abs(left) / np.abs(whole)
        steps = cell.table.column(steps_column).to_numpy() if steps_column else np.array([])
        given = {
            "steps_median": np.median(steps) if len(steps) else np.nan,
            "steps_max": steps.max() if len(steps) else np.nan,
        }
        yield Case({"left": np.where(np.isfinite(shares), shares, np.nan)}, {"measure": measure}, given)


def _percent(name: str, heading: str) -> dict:
    return {"name": name, "heading": heading, "words": lambda row: _share_in_words(row[name]), "interval": None}


def _share_in_words(share: float) -> str:
    if np.isnan(share):
        return "undefined"
    return f"{share:.2%}" if share < 10 else f"{share:.1e} ×"


def _steps(name: str, heading: str) -> Column:
    return Column(name, heading, lambda row: "–" if np.isnan(row[name]) else f"{row[name]:,.0f}")


def grid(df: pd.DataFrame, cells: Sequence[Cell] = ()) -> Grid:
    """The table for reading."""
    keys = differing(df, CELL)
    for name in ("texts", "training_texts"):
        if name in keys and df.groupby("dataset")[name].nunique().max() == 1:
            keys.remove(name)  # the data set says it
    return declared_grid(TABLE, df, keys)


TABLE = Table(
    name="completeness",
    cases=_cases,
    by=(Key("measure", "measure", lambda row: measure_label(row["measure"])),),
    columns=(
        Count("n", "texts", of="left"),
        Count("n_undefined", of="left", undefined=True),
        Median(**_percent("left_median", "left, median"), of="left"),
        Largest(**_percent("left_max", "left, most"), of="left"),
        Share(**_percent("share_incomplete", f"texts with over {ALLOWED:.0%}"), of="left", above=ALLOWED),
        _steps("steps_median", "steps, median"),
        _steps("steps_max", "steps, most"),
    ),
    grid=grid,
    caption="Do the parts add up?",
    note="What the tokens’ parts, with what the rules give to no token, leave of the number explained, as a share of it. "
    "Where much is left, the scores of single tokens are not to be trusted, whatever their rank.",
)
"""One row per cell and measure that the cell holds with what is left of it.

n: texts where it is defined and there is something to hand out; n_undefined: the others. left_median, left_max: |what is
left| / |number handed out|, 0 is complete. share_incomplete: texts with more than `ALLOWED` of it. steps_median,
steps_max: points of the line, NaN for relevance.
"""
SECTION = Section(
    name="completeness",
    place=90,
    uses=("integrated_gradients_*", "lrp_*", "importance_integrated_gradients*", "importance_lrp"),
    tables=(TABLE,),
    reported=False,
)
