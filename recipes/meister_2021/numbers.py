"""Numbers per text of a cell, by name: arrays [N], NaN where undefined; a cell that lacks the columns lacks the name."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, support_size
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau, tie_ceiling
from attnfaith.metrics.attention_faithfulness.support_agreement import support_auprc, top_k_overlap
from attnfaith.reporting.cells import Cell, match


INPUTS = ("gradient_norm", "leave_one_out")
STATES = ("gradient_norm_hidden", "leave_one_out_hidden", "leave_one_out_reproject_hidden")
MEASURES = (*INPUTS, *STATES)
DETACHED = ("gradient_norm_detached", "gradient_norm_detached_hidden")
DIFFERENT = 1e-4  # the least difference of two importances that counts as one


def above_chance(value: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """(value - chance) / (1 - chance): 0 at chance, 1 at best."""
    room = 1 - chance
    return np.where(room > 0, (value - chance) / np.where(room > 0, room, 1), np.nan)


AGREEMENTS: dict[str, Callable[[Sequence, Sequence], np.ndarray]] = {
    "tau": lambda attention, importance: kendall_tau(attention, importance)[0],
    "overlap_above_chance": lambda attention, importance: above_chance(*top_k_overlap(attention, importance)),
    "auprc_above_chance": lambda attention, importance: above_chance(*support_auprc(attention, importance)),
}
"""Kendall's tau-b, and two agreements that ties do not limit: the overlap of the fifth of tokens of largest attention with
as many of largest importance, and the average precision of importance against the support of attention.
"""


def null_of(measure: str) -> str:
    """The column that attention at random places is compared with: of inputs the model's own importance; of states, whose
    importance follows their weight, that under this very attention, which cannot be projected again without scores.
    """
    return f"importance_{measure}" if measure in INPUTS else f"random_support_{measure.replace('_reproject', '')}"


@cache
def of_cell(cell: Cell) -> dict[str, np.ndarray]:
    """accuracy: 1 where the predicted class is the gold label. support, support_share: tokens with weight. entropy,
    entropy_<measure>: normalised, of attention and importance. <agreement>_<measure>, see AGREEMENTS; tau_over_ceiling: over
    the largest tau-b that the ties of the two rows allow. random_tau_<measure>: tau-b when the weights stand at random
    places, mean over the draws. hidden_to_input_<name>: mean over states. tokens_that_differ: share of tokens whose
    importance differs between the two ways to remove a state.
    """
    attention, held = cell.attention, set(cell.table.column_names)
    numbers = {
        "accuracy": np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels),
        "support": support_size(attention),
        "support_share": support_size(attention) / np.maximum(cell.lengths, 1),
        "entropy": normalised_entropy(attention),
    }
    for name in set(cell.measures) & {*MEASURES, *DETACHED}:
        scores = cell.scores(name)
        numbers |= {f"{kind}_{name}": agreement(attention, scores) for kind, agreement in AGREEMENTS.items()}
        numbers[f"tau_over_ceiling_{name}"] = numbers[f"tau_{name}"] / tie_ceiling(attention, scores)
        if name in INPUTS:
            numbers[f"entropy_{name}"] = normalised_entropy(scores)
    for column in held & {"hidden_to_input_entropy", "hidden_to_input_own"}:
        numbers[column] = _mean_by_text(records.rows(cell.table, column))
    if set(STATES[1:]) <= set(cell.measures):
        pairs = zip(*(cell.scores(name) for name in STATES[1:]), strict=True)
        numbers["tokens_that_differ"] = _mean_by_text([np.abs(first - second) > DIFFERENT for first, second in pairs])
    for name in MEASURES:
        if {"random_support_attention", null_of(name)} <= held:
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


@cache
def of_cut(cell: Cell, dense: Cell) -> dict[str, np.ndarray]:
    """cut_tau_<measure>: tau-b of a dense model's own attention and importance of inputs, once in each text its attention
    keeps the largest weights alone, as many as `cell` has, and the others are 0, hence tied. What tau-b then loses is due to
    ties alone: neither model nor importance has changed. (Importance of states would change with attention.)
    """
    rows, others = match(cell, dense)
    cut = [np.zeros_like(dense.attention[other]) for other in others]
    for weights, row, other in zip(cut, rows, others, strict=True):
        kept = np.argsort(-dense.attention[other], kind="stable")[: np.count_nonzero(cell.attention[row])]
        weights[kept] = dense.attention[other][kept]
    numbers = {}
    for name in set(INPUTS) & set(dense.measures):
        importance, numbers[f"cut_tau_{name}"] = dense.scores(name), np.full(len(cell), np.nan)
        numbers[f"cut_tau_{name}"][rows] = kendall_tau(cut, [importance[other] for other in others])[0]
    return numbers


@cache
def of_adversary(cell: Cell, base: Cell) -> dict[str, np.ndarray]:
    """jsd: the Jensen-Shannon divergence of two models' attention, 0..ln 2 nats."""
    rows, others = match(cell, base)
    jsd = np.full(len(cell), np.nan)
    jsd[rows] = jensen_shannon_divergence([cell.attention[i] for i in rows], [base.attention[j] for j in others])
    return {"jsd": jsd}
