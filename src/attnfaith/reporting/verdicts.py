"""The numbers that the rule of `attnfaith.verdict` reads from a record, and the verdict on a model."""

from collections.abc import Sequence

import numpy as np

from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.record import ABSOLUTE
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.verdict import CANNOT_TELL, SCOPE, Losses, Verdict, judge


NEEDS = ("comprehensiveness_orders", "comprehensiveness_losses", "comprehensiveness_random")
UNMEASURED = Verdict(
    CANNOT_TELL,
    "Cannot be told: not measured",
    "What the model loses without the words that attention ranks first was not measured.",
    'Measure it: add=["integrated_gradients", "comprehensiveness"].',
    remarks=(SCOPE,),
)


def verdict(cells: Sequence[Cell]) -> Verdict:
    """Return the verdict on one model from its cells: the first in which comprehensiveness was measured decides."""
    uniform = cells[0].heading["projection"] == "uniform"
    measured = [cell for cell in cells if cell.has(*NEEDS)]
    if not measured and not uniform:
        return UNMEASURED
    return judge(losses(measured[0] if measured else cells[0]))


def repetitions(cell: Cell) -> np.ndarray:
    """Return which texts (N,) bool have the words of an earlier one: such a text is no further evidence."""
    names = [name for name in ("tokens", "query_tokens") if name in cell.table.column_names]
    words = list(map(repr, zip(*(cell.table.column(name).to_pylist() for name in names), strict=True)))
    first = {text: row for row, text in reversed(list(enumerate(words)))}
    return np.array([first[text] != row for row, text in enumerate(words)], bool)


def losses(cell: Cell) -> Losses:
    """Return the numbers of one cell that the rule reads; NaN where not measured or where a text repeats an earlier one."""
    nothing = np.full(len(cell), np.nan)
    repeated = repetitions(cell)
    columns = dict.fromkeys(("attention", "reference", "random", "evidence", "evidence_random"), nothing)
    reference = f"{ABSOLUTE}integrated_gradients"
    if cell.has(*NEEDS):
        orders = cell.table.column("comprehensiveness_orders").to_pylist()
        lost = np.array(
            [[*row, np.nan][:2] for row in cell.table.column("comprehensiveness_losses").to_pylist()], np.float64
        )
        reference = next((row[1] for row in orders if len(row) > 1), reference)
        columns |= {"attention": lost[:, 0], "reference": lost[:, 1]}
        for name in ("random", "evidence", "evidence_random"):
            columns[name] = cell.column(f"comprehensiveness_{name}")
        columns = {name: np.where(repeated, np.nan, values) for name, values in columns.items()}
    precision = nothing
    if cell.has("rationale"):
        precision = average_precision(cell.attention, cell.rows("rationale"))
    return Losses(
        predicted=cell.predicted,
        labels=np.where(repeated, np.nan, cell.labels),
        class_names=cell.class_names or tuple(map(str, range(cell.probs.shape[1]))),
        reference_name=measure_label(reference.removeprefix(ABSOLUTE)),
        uniform=cell.heading["projection"] == "uniform",
        precision=precision,
        **columns,
    )
