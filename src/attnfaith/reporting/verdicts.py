"""The numbers that the rule of `attnfaith.verdict` reads from a record, and the verdict on a model."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.record import ABSOLUTE
from attnfaith.reporting.cells import Cell, readable
from attnfaith.verdict import CANNOT_TELL, SCOPE, Losses, Verdict, judge


NEEDS = ("comprehensiveness_orders", "comprehensiveness_losses", "comprehensiveness_random")
UNMEASURED = Verdict(
    CANNOT_TELL,
    "Cannot be told: not measured",
    "What the model loses without the words that attention ranks first was not measured.",
    "Measure integrated_gradients and comprehensiveness too: --add, in Python add=[…].",
    remarks=(SCOPE,),
)


def verdict(cells: Sequence[Cell]) -> Verdict:
    """Return the verdict on one model from its cells: the first in which comprehensiveness was measured decides."""
    measured = [cell for cell in cells if cell.has(*NEEDS)]
    if not measured and cells[0].heading["projection"] != "uniform":
        return UNMEASURED
    return judge(losses(measured[0] if measured else cells[0]))


def losses(cell: Cell) -> Losses:
    """Return the numbers of one cell that the rule reads; NaN where not measured or where a text has the words of an earlier
    one, since such a text is no further evidence.
    """
    nothing = np.full(len(cell), np.nan)
    names = [name for name in ("tokens", "query_tokens") if cell.has(name)]
    words = list(map(repr, zip(*(cell.table.column(name).to_pylist() for name in names), strict=True)))
    repeated = pd.Series(words, dtype=str).duplicated().to_numpy()
    columns = dict.fromkeys(("attention", "reference", "random", "evidence", "evidence_random"), nothing)
    reference = f"{ABSOLUTE}integrated_gradients"
    if cell.has(*NEEDS):
        orders, lost = (cell.table.column(name).to_pylist() for name in NEEDS[:2])
        lost = np.array([[*row, np.nan][:2] for row in lost], np.float64)
        reference = next((row[1] for row in orders if len(row) > 1), reference)
        columns |= {"attention": lost[:, 0], "reference": lost[:, 1]}
        for name in ("random", "evidence", "evidence_random"):
            columns[name] = cell.column(f"comprehensiveness_{name}")
        columns = {name: np.where(repeated, np.nan, values) for name, values in columns.items()}
    return Losses(
        predicted=cell.predicted,
        labels=np.where(repeated, np.nan, cell.labels),
        class_names=cell.class_names or tuple(map(str, range(cell.probs.shape[1]))),
        reference_name=readable(reference.removeprefix(ABSOLUTE)),
        uniform=cell.heading["projection"] == "uniform",
        precision=average_precision(cell.attention, cell.rows("rationale")) if cell.has("rationale") else nothing,
        **columns,
    )
