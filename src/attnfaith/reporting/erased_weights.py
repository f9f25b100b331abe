"""What happens to single texts when attention weights are erased, from the columns of `erasure` and `minimal_flip_set`.

i*, r: the weight that a ranking puts first, the earlier one on ties, and a random other one; p without a weight is the
prediction with it set to 0 and the rest renormalised. Undefined for a text of fewer than two tokens. N: texts of a cell.
"""

from typing import NamedTuple

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, jensen_shannon_divergence
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.spec import per_cell


RANKINGS = {"attention": "attention", "gradient": "gradient", "attention_gradient": "attention × gradient"}


class SingleWeight(NamedTuple):
    """Per instance [N] float64, NaN where undefined. delta: JSD(p, p without i*) - JSD(p, p without r) in nats; difference:
    a_i* - a_r; top_flips, random_flips: 1 where the decision changes without i*, without r.
    """

    delta: np.ndarray
    difference: np.ndarray
    top_flips: np.ndarray
    random_flips: np.ndarray


class Removal(NamedTuple):
    """Per instance [N] float64: tokens removed until the decision changes (NaN: never, or undefined), attention removed
    (NaN likewise, or unknown); and whether no weight was left then, bool.
    """

    size: np.ndarray
    mass: np.ndarray
    empty: np.ndarray


@per_cell
def single_weight(cell: Cell, ranking: str) -> SingleWeight:
    """The test of one weight against a random other one, of the first random order of the record, for one of RANKINGS."""
    columns = {name: records.rows(cell.table, f"erasure_{name}") for name in ("probs", "gradient", "order")}
    defined = np.flatnonzero(cell.lengths > 1)
    without_top, without_random = [], []
    difference = np.full(len(cell), np.nan)
    for row in defined:
        weights = cell.attention[row].astype(np.float64)
        gradient, (order, *_) = columns["gradient"][row], columns["order"][row]
        top = int(np.argmax({"attention": weights, "gradient": gradient, "attention_gradient": weights * gradient}[ranking]))
        other = int(order[0] if order[0] != top else order[1])
        without_top.append(columns["probs"][row][top])
        without_random.append(columns["probs"][row][other])
        difference[row] = weights[top] - weights[other]
    delta, top_flips, random_flips = (np.full(len(cell), np.nan) for _ in range(3))
    if len(defined):
        own = cell.probs[defined]
        delta[defined] = jensen_shannon_divergence(own, without_top) - jensen_shannon_divergence(own, without_random)
        top_flips[defined] = decision_flips(own, without_top)
        random_flips[defined] = decision_flips(own, without_random)
    return SingleWeight(delta, difference, top_flips, random_flips)


@per_cell
def removals(cell: Cell) -> dict[tuple[str, str], Removal]:
    """(ranking, "renormalised" or "reprojected") -> where the decision first changes.

    "random" is the first random order. "minimum", the smallest set, is there where the record holds it. Re-projection is
    left out where it is renormalising (`Identity.removal_renormalises`), and where the model could not be asked for it.
    """
    every = {}
    for ranking in ("random", *RANKINGS):
        size, mass, empty = (first_draws(cell, f"erasure_flip_{part}_{ranking}") for part in ("size", "mass", "empty"))
        every[ranking, "renormalised"] = Removal(size, mass, empty == 1)
    if "minimal_flip_size" in cell.table.column_names:
        size, mass, empty = (first_draws(cell, f"minimal_flip_{part}") for part in ("size", "mass", "empty"))
        every["minimum", "renormalised"] = Removal(size, mass, empty == 1)
    again = {ranking: f"erasure_reprojected_flip_size_{ranking}" for ranking in ("random", *RANKINGS)}
    if not cell.identity.removal_renormalises and set(again.values()) <= set(cell.table.column_names):
        for ranking, name in again.items():
            size = first_draws(cell, name)
            every[ranking, "reprojected"] = Removal(size, np.full(len(cell), np.nan), size == cell.lengths)
    return every


def first_draws(cell: Cell, name: str) -> np.ndarray:
    """A column as [N] float64: the first draw of those with draws, NaN without any."""
    if name.endswith("_random"):
        return np.array([row[0] if len(row) else np.nan for row in records.rows(cell.table, name)], dtype=np.float64)
    return column(cell, name)


def outcomes(test: SingleWeight) -> dict[str, np.ndarray]:
    """Whether each outcome is a text's, [N] 1 or 0, NaN where undefined: whether its decision changes without i* and without
    r (both), only without i* (only_top), only without r (only_random), or in neither case.
    """
    top, other = test.top_flips == 1, test.random_flips == 1
    every = {"both": top & other, "only_top": top & ~other, "only_random": ~top & other, "neither": ~top & ~other}
    return {name: np.where(np.isnan(test.delta), np.nan, happened) for name, happened in every.items()}
