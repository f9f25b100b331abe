"""Numbers per text of a cell.

A number is an array [N] over the texts of a cell, NaN where undefined, or None where the cell lacks the columns it needs.
Numbers are computed once for each cell.
"""

import functools
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, support_size
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau, tie_ceiling
from attnfaith.metrics.attention_faithfulness.support_agreement import support_auprc, top_k_overlap
from attnfaith.reporting.cells import Cell, match


INPUTS = ("gradient_norm", "leave_one_out")
STATES = ("gradient_norm_hidden", "leave_one_out_hidden", "leave_one_out_reproject_hidden")
MEASURES = (*INPUTS, *STATES)
DIFFERENT = 1e-4
"""Least difference of two total variation distances that counts as one."""


# ------------------------------------------------------------------------------------------------- numbers per text


def remembered(number: Callable) -> Callable:
    """The same function, computed once for each cell and arguments, and forgotten with the cell."""
    known: WeakKeyDictionary[Cell, dict] = WeakKeyDictionary()

    @functools.wraps(number)
    def asked(cell: Cell, *arguments):
        answers = known.setdefault(cell, {})
        if arguments not in answers:
            answers[arguments] = number(cell, *arguments)
        return answers[arguments]

    return asked


def tau(cell: Cell, measure: str) -> np.ndarray | None:
    """Kendall's tau-b of attention with one measure, -1..1."""
    return cell.tau("attention", measure) if measure in cell.measures else None


@remembered
def ceiling(cell: Cell, measure: str) -> np.ndarray | None:
    """The largest tau-b that the ties of the two rows allow, 0..1."""
    return tie_ceiling(cell.attention, cell.scores(measure)) if measure in cell.measures else None


def tau_over_ceiling(cell: Cell, measure: str) -> np.ndarray | None:
    """tau-b over its ceiling. Where attention alone has ties it is Goodman & Kruskal's gamma, -1..1."""
    return tau(cell, measure) / ceiling(cell, measure) if measure in cell.measures else None


@remembered
def tied_pairs(cell: Cell) -> np.ndarray:
    """Share of the pairs of tokens with equal attention, 0..1; NaN below two tokens."""
    untied = tie_ceiling(cell.attention) ** 2  # against scores without ties the ceiling is the root of the untied share
    return np.where(cell.lengths < 2, np.nan, 1 - np.nan_to_num(untied))


@remembered
def _cut(cell: Cell, dense: Cell) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Rows of `cell`, for each the dense model's attention cut to the cell's support size, and the dense model's rows."""
    rows, others = match(cell, dense)
    sizes = [int(np.count_nonzero(cell.attention[row])) for row in rows]
    return rows, [_largest(dense.attention[row], size) for row, size in zip(others, sizes, strict=True)], others


def _with_cut(cell: Cell, dense: Cell, measure: str, agreement: Callable) -> np.ndarray:
    """`agreement` of the cut attention with the dense model's importance, [N of cell]; NaN for texts it lacks."""
    rows, cut, others = _cut(cell, dense)
    importance = dense.scores(measure)
    values = np.full(len(cell), np.nan)
    values[rows] = agreement(cut, [importance[row] for row in others])
    return values


@remembered
def tau_of_ties_alone(cell: Cell, dense: Cell, measure: str) -> np.ndarray | None:
    """tau-b of a dense model's own attention and importance, once its attention is cut to the support size of `cell`.

    In each text the largest weights of the dense attention stay, as many as `cell` gives a weight above zero, and the others
    are set to 0, hence tied. What tau-b then loses is due to ties alone: neither model nor importance has changed.
    """
    if measure not in dense.measures:
        return None
    return _with_cut(cell, dense, measure, lambda cut, importance: kendall_tau(cut, importance)[0])


def _largest(weights: np.ndarray, count: int) -> np.ndarray:
    """The `count` largest weights where they stand, 0 elsewhere; of equal weights at the border the first."""
    if count >= len(weights):
        return weights
    cut = np.zeros_like(weights)
    kept = np.argsort(-weights, kind="stable")[:count]
    cut[kept] = weights[kept]
    return cut


RANDOM_SUPPORT = {
    "gradient_norm": "importance_gradient_norm",
    "leave_one_out": "importance_leave_one_out",
    "gradient_norm_hidden": "random_support_gradient_norm_hidden",
    "leave_one_out_hidden": "random_support_leave_one_out_hidden",
    "leave_one_out_reproject_hidden": "random_support_leave_one_out_hidden",
}
"""What attention at random places is held against: of inputs the model's own importance; of states the importance under
that very attention, since a state's importance follows the weight it gets. Weights without scores cannot be projected again,
so that both ways to remove a state have the renormalising one as their null.
"""


def random_support_tau(cell: Cell, measure: str) -> np.ndarray | None:
    """tau-b when the text's weights stand at random places; mean over the draws that define it."""
    return _random_support_taus(cell).get(RANDOM_SUPPORT[measure])


@remembered
def _random_support_taus(cell: Cell) -> dict[str, np.ndarray]:
    """The same for each column that random places are held against; {} without them."""
    held = set(cell.table.column_names)
    if "random_support_attention" not in held:
        return {}
    attention, counts = _draws(cell, "random_support_attention")
    owner = np.repeat(np.arange(len(cell)), counts)
    taus = {}
    for column in held & set(RANDOM_SUPPORT.values()):
        if column.startswith("random_support"):
            against = _draws(cell, column)[0]
        else:
            importance = records.rows(cell.table, column)
            against = [importance[row] for row in owner]
        taus[column] = _mean_by_owner(kendall_tau(attention, against)[0], owner, len(cell))
    return taus


def _draws(cell: Cell, column: str) -> tuple[list[np.ndarray], np.ndarray]:
    """All draws of a column, text after text, and how many each text has [N]."""
    texts = cell.table.column(column).combine_chunks()
    draws = texts.flatten()
    ends = np.cumsum(draws.value_lengths().to_numpy())
    flat = draws.flatten().to_numpy(zero_copy_only=False)
    return np.split(flat, ends[:-1]) if len(ends) else [], texts.value_lengths().to_numpy()


def _mean_by_owner(values: np.ndarray, owner: np.ndarray, count: int) -> np.ndarray:
    """Mean of the defined values of each owner, [count]; NaN where there is none."""
    defined = ~np.isnan(values)
    totals = np.bincount(owner[defined], weights=values[defined], minlength=count)
    number = np.bincount(owner[defined], minlength=count)
    return np.where(number > 0, totals / np.maximum(number, 1), np.nan)


@remembered
def entropy(cell: Cell, scores: str) -> np.ndarray | None:
    """Normalised entropy of "attention" or of a measure, 0..1."""
    if scores != "attention" and scores not in cell.measures:
        return None
    return normalised_entropy(cell.scores(scores))


@remembered
def support(cell: Cell) -> np.ndarray:
    """Tokens with a weight above zero; NaN for an empty text."""
    return support_size(cell.attention)


def support_share(cell: Cell) -> np.ndarray:
    """Tokens with a weight above zero over all, in 0..1."""
    return support(cell) / np.maximum(cell.lengths, 1)


def correct(cell: Cell) -> np.ndarray:
    """1 where the predicted class is the gold label, 0 where not; NaN without a label. Its mean is the accuracy."""
    return np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels)


@remembered
def over_states(cell: Cell, column: str) -> np.ndarray | None:
    """Mean over a text's states of hidden_to_input_entropy or hidden_to_input_own, 0..1; undefined states left out."""
    if column not in cell.table.column_names:
        return None
    rows = records.rows(cell.table, column)
    owner = np.repeat(np.arange(len(cell)), [len(row) for row in rows])
    return _mean_by_owner(np.concatenate([*rows, np.zeros(0)]).astype(np.float64), owner, len(cell))


@remembered
def _overlap(cell: Cell, measure: str) -> tuple[np.ndarray, np.ndarray]:
    return top_k_overlap(cell.attention, cell.scores(measure))


@remembered
def _auprc(cell: Cell, measure: str) -> tuple[np.ndarray, np.ndarray]:
    return support_auprc(cell.attention, cell.scores(measure))


def agreement_without_ties(cell: Cell, measure: str, which: str, part: str) -> np.ndarray | None:
    """which: "overlap" of the most attended tokens with the most important, or "auprc" of importance against the support.
    part: "value", its "chance", or "above_chance", (value - chance) / (1 - chance): 0 at chance, 1 at best.
    """
    if measure not in cell.measures:
        return None
    value, chance = (_overlap if which == "overlap" else _auprc)(cell, measure)
    if part == "above_chance":
        return _above_chance(value, chance)
    return np.where(np.isnan(value), np.nan, value if part == "value" else chance)


@remembered
def agreement_of_cut(cell: Cell, dense: Cell, measure: str, which: str) -> np.ndarray | None:
    """The same above chance, for a dense model's attention cut as in `tau_of_ties_alone`."""
    if measure not in dense.measures:
        return None
    agreement = top_k_overlap if which == "overlap" else support_auprc
    return _with_cut(cell, dense, measure, lambda cut, importance: _above_chance(*agreement(cut, importance)))


def _above_chance(value: np.ndarray, chance: np.ndarray) -> np.ndarray:
    room = 1 - chance
    return np.where(room > 0, (value - chance) / np.where(room > 0, room, 1), np.nan)


@remembered
def tau_between(cell: Cell, first: str, second: str) -> np.ndarray | None:
    """tau-b between two measures."""
    return cell.tau(first, second) if {first, second} <= set(cell.measures) else None


@remembered
def mean_importance(cell: Cell, measure: str) -> np.ndarray | None:
    """Mean over the tokens of a text; NaN for an empty one."""
    if measure not in cell.measures:
        return None
    return np.array([row.mean() if len(row) else np.nan for row in cell.scores(measure)], np.float64)


@remembered
def tokens_that_differ(cell: Cell, first: str, second: str) -> np.ndarray | None:
    """Share of a text's tokens whose two importances differ by more than .0001; NaN for an empty text."""
    if not {first, second} <= set(cell.measures):
        return None
    rows = zip(cell.scores(first), cell.scores(second), strict=True)
    return np.array([np.mean(np.abs(one - other) > DIFFERENT) if len(one) else np.nan for one, other in rows], np.float64)


def any_token_differs(cell: Cell, first: str, second: str) -> np.ndarray | None:
    """1 where some token's two importances differ by more than .0001, 0 where none does; NaN for an empty text."""
    share = tokens_that_differ(cell, first, second)
    return None if share is None else np.where(np.isnan(share), np.nan, share > 0)


# ------------------------------------------------------------------------------------------ numbers per text of two models


def _paired(cell: Cell, base: Cell, number: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """A number of the rows of two cells that hold the same text, [N of cell]; NaN for texts that the base lacks."""
    rows, others = match(cell, base)
    values = np.full(len(cell), np.nan)
    values[rows] = number(rows, others)
    return values


@remembered
def attention_divergence(cell: Cell, base: Cell) -> np.ndarray:
    """JSD of two models' attention, 0..ln 2 nats; NaN for an empty text too."""

    def divergence(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        return jensen_shannon_divergence([cell.attention[i] for i in rows], [base.attention[j] for j in others])

    return _paired(cell, base, divergence)


def prediction_change(cell: Cell, base: Cell) -> np.ndarray:
    """TVD of two models' predictions, 0..1."""
    return _paired(cell, base, lambda rows, others: total_variation_distance(cell.probs[rows], base.probs[others]))


def accuracy_difference(cell: Cell, base: Cell) -> np.ndarray:
    """1 where this model alone is right, -1 where the base alone is, else 0; NaN without a label."""
    return _paired(cell, base, lambda rows, others: correct(cell)[rows] - correct(base)[others])
