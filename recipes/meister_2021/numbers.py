"""Numbers per text of a cell, by name: arrays [N], NaN where undefined; a cell that lacks the columns lacks the name."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.divergences import normalised_entropy
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import performance

from ..shared import match


INPUTS = ("gradient_norm", "leave_one_out")
STATES = ("gradient_norm_hidden", "leave_one_out_reproject_hidden")
"""Importance of inputs and of states. The second of states projects the other scores again: the published D_y(h)."""
MEASURES = (*INPUTS, *STATES)


def null_of(measure: str) -> str:
    """The column that attention at random places is compared with: of inputs the model's own importance; of states, whose
    importance follows their weight, that under this very attention.
    """
    return f"importance_{measure}" if measure in INPUTS else f"random_support_{measure.replace('_reproject', '')}"


@cache
def of_cell(cell: Cell) -> dict[str, np.ndarray]:
    """accuracy: 1 where the predicted class is the gold label. entropy_<measure>: normalised, of importance. tau_<measure>:
    tau-b of attention with it; random_tau_<measure>: with the weights at random places, mean over the draws.
    hidden_to_input_entropy: how evenly a state depends on the tokens, mean over states.
    """
    columns = set(cell.table.column_names)
    numbers = {"accuracy": performance.per_text(cell)["correct"]}
    if "hidden_to_input_entropy" in columns:
        numbers["hidden_to_input_entropy"] = _mean_by_text(records.rows(cell.table, "hidden_to_input_entropy"))
    for name in set(MEASURES) & set(cell.measures):
        numbers[f"tau_{name}"] = cell.tau("attention", name)
        if name in INPUTS:
            numbers[f"entropy_{name}"] = normalised_entropy(cell.scores(name))
        if {"random_support_attention", null_of(name)} <= columns:
            draws, against = (records.rows(cell.table, column) for column in ("random_support_attention", null_of(name)))
            if name in INPUTS:
                against = [[row] * len(places) for row, places in zip(against, draws, strict=True)]
            taus = kendall_tau([row for text in draws for row in text], [row for text in against for row in text])[0]
            numbers[f"random_tau_{name}"] = _mean_by_text(np.split(taus, np.cumsum([len(text) for text in draws])[:-1]))
    return numbers


def _mean_by_text(rows: Sequence[Sequence[float]]) -> np.ndarray:
    """Mean of the defined values of each row, NaN where there are none."""
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    values = pd.Series(np.concatenate([*rows, np.zeros(0)]), dtype=np.float64)
    return values.groupby(owner).mean().reindex(range(len(rows))).to_numpy()


def cut_tau(cell: Cell, dense: Cell, measure: str) -> np.ndarray:
    """tau-b of a dense model's attention and importance of inputs, once in each text its attention keeps the largest weights
    alone, as many as `cell` has: what tau-b then loses is due to ties, for neither model nor importance has changed.
    """
    rows, dense_rows = match(cell, dense)
    cut = [np.zeros_like(dense.attention[dense_row]) for dense_row in dense_rows]
    for weights, row, dense_row in zip(cut, rows, dense_rows, strict=True):
        largest = np.argsort(-dense.attention[dense_row], kind="stable")[: np.count_nonzero(cell.attention[row])]
        weights[largest] = dense.attention[dense_row][largest]
    importance, numbers = dense.scores(measure), np.full(len(cell), np.nan)
    numbers[rows] = kendall_tau(cut, [importance[dense_row] for dense_row in dense_rows])[0]
    return numbers
