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


ALLOWED = 0.01
"""Share of the number handed out that may be left: what integrated gradients aim at unless told otherwise."""
COLUMNS = (
    *CELL,
    "measure",
    "n",
    "n_undefined",
    "left_median",
    "left_max",
    "share_incomplete",
    "steps_median",
    "steps_max",
)
LEFT = {
    "integrated_gradients": ("integrated_gradients_residual", "integrated_gradients_steps"),
    "integrated_gradients_hidden": ("integrated_gradients_residual_hidden", "integrated_gradients_steps_hidden"),
    "lrp": ("lrp_unaccounted", None),
}
"""Measure -> the column of what is left, and that of the steps taken."""


def table(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row per cell and measure that the cell holds with what is left of it.

    n: texts where it is defined and there is something to hand out; n_undefined: the others. left_median, left_max: |what is
    left| / |number handed out|, 0 is complete. share_incomplete: texts with more than `ALLOWED` of it. steps_median,
    steps_max: points of the line, NaN for relevance.
    """
    return pd.DataFrame([row for cell in cells for row in _rows(cell)], columns=list(COLUMNS))


def _rows(cell: Cell) -> Iterator[dict]:
    for measure, (left_column, steps_column) in LEFT.items():
        if measure not in cell.measures or left_column not in cell.table.column_names:
            continue
        if cell.table.column(left_column).null_count == len(cell):  # measured in other cells of the record only
            continue
        given = np.array([np.sum(row, dtype=np.float64) for row in records.rows(cell.table, PREFIX + measure)])
        left = cell.table.column(left_column).to_numpy().astype(np.float64)
        if measure == "lrp":
            whole = given + cell.table.column("lrp_residual").to_numpy().astype(np.float64)
        else:
            whole = given - left
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.abs(left) / np.abs(whole)
        known = np.isfinite(shares)
        shares = shares[known]
        steps = cell.table.column(steps_column).to_numpy() if steps_column else np.array([])
        yield {
            **cell.heading,
            "measure": measure,
            "n": len(shares),
            "n_undefined": len(known) - len(shares),
            "left_median": np.median(shares) if len(shares) else np.nan,
            "left_max": shares.max() if len(shares) else np.nan,
            "share_incomplete": np.mean(shares > ALLOWED) if len(shares) else np.nan,
            "steps_median": np.median(steps) if len(steps) else np.nan,
            "steps_max": steps.max() if len(steps) else np.nan,
        }


def grid(df: pd.DataFrame) -> Grid:
    """The table for reading."""
    keys = differing(df, CELL)
    for name in ("texts", "training_texts"):
        if name in keys and df.groupby("dataset")[name].nunique().max() == 1:
            keys.remove(name)  # the data set says it
    rows = [
        (
            *(str(row[name]) for name in keys),
            measure_label(row["measure"]),
            f"{row['n']:,}",
            *(_percent(row[name]) for name in ("left_median", "left_max", "share_incomplete")),
            *("–" if np.isnan(row[name]) else f"{row[name]:,.0f}" for name in ("steps_median", "steps_max")),
        )
        for row in df.to_dict("records")
    ]
    heads = ("texts", "left, median", "left, most", f"texts with over {ALLOWED:.0%}", "steps, median", "steps, most")
    note = (
        "What the tokens’ parts, with what the rules give to no token, leave of the number explained, as a share of it. "
        "Where much is left, the scores of single tokens are not to be trusted, whatever their rank."
    )
    return Grid("Do the parts add up?", (*keys, "measure", *heads), tuple(rows), len(keys) + 1, note)


def _percent(share: float) -> str:
    if np.isnan(share):
        return "undefined"
    return f"{share:.2%}" if share < 10 else f"{share:.1e} ×"
