"""How the prediction changes when attention or the text does: weights permuted, moved, equal or erased; tokens left out.

Undefined for a text of fewer than two tokens. Erased weights (Serrano & Smith 2019): i*, r: the weight that a ranking puts
first, the earlier one on ties, and a random other one; p without a weight is the prediction with it set to 0 and the rest
renormalised. Several weights are removed by decreasing rank until the decision first changes. N: texts of a cell.
"""

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import (
    decision_flips,
    jensen_shannon_divergence,
    total_variation_distance,
)
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.charts import Chart, binned, text_chart
from attnfaith.reporting.html import DECLARED
from attnfaith.reporting.spec import Quantity, Section, section


@per_cell
def changes(cell: Cell, name: str) -> tuple[np.ndarray, np.ndarray]:
    """How far the predictions in a column, [C] or [K][C], lie from the cell's own: per text [N] float64, NaN without draws
    and below two tokens, the median TVD over the draws and the share of draws with another decision, both 0..1.
    """
    medians, flips = np.full((2, len(cell)), np.nan)
    for row, (own, changed) in enumerate(zip(cell.probs.astype(np.float64), cell.rows(name), strict=True)):
        if cell.lengths[row] > 1 and len(changed) and not np.isnan(changed).any():
            changed = changed.reshape(-1, len(own))
            medians[row] = np.median(np.abs(changed - own).sum(axis=1)) / 2
            flips[row] = (changed.argmax(axis=1) != own.argmax()).mean()
    return medians, flips


def by_largest_weight(cell: Cell) -> Chart:
    """The TVD of permuted attention by the largest weight of a text."""
    largest = np.array([row.max() if len(row) else np.nan for row in cell.attention], np.float64)
    values = binned(changes(cell, "permuted_probs")[0], largest, (0, 0.25, 0.5, 0.75), "largest weight")
    return text_chart("permutation_by_max_attention", values)


def _changed(name: str, **code) -> Section:
    """A section on the predictions in its first column, under other attention or of another text."""
    declared, names = DECLARED["sections"][name], (f"{name}_tvd", f"{name}_flips")
    quantities = (Quantity("change of the prediction (TVD)", below=0.05), Quantity("share of changed decisions"))
    note = (
        "Per text, the total variation distance between the prediction and the changed one: 0 no change, 1 another "
        "decision with certainty; of several draws the median. Undefined: texts of fewer than two tokens. "
    )
    return section(
        name,
        chapter="interventions",
        per_text=lambda cell: dict(zip(names, changes(cell, declared["needs"][0]), strict=True)),
        quantities=dict(zip(names, quantities, strict=True)),
        note=note + declared.get("note", ""),
        lead=names,
        **code,
    )


PERMUTATION = _changed("permutation", chart=by_largest_weight)
MAP_PERMUTATION = _changed("map_permutation")
MAP_UNIFORM = _changed("map_uniform")
RANDOM_SUPPORT = _changed("random_support")
PERMISSIBLE_ONLY = _changed("permissible_only")
FROZEN_FLIP_SET = _changed("frozen_flip_set")


RANKINGS = {"attention": "attention", "gradient": "gradient", "attention_gradient": "attention × gradient"}
ORDERS = {"random": "random order", **RANKINGS}


@per_cell
def single_weight(cell: Cell, ranking: str) -> dict[str, np.ndarray]:
    """The test of one weight against a random other one, of the first random order of the record, for one of RANKINGS,
    numbers per text as `erasure` describes.
    """
    probs, gradients, orders = (cell.rows(f"erasure_{name}") for name in ("probs", "gradient", "order"))
    without_top, without_random = [None] * len(cell), [None] * len(cell)
    for row in np.flatnonzero(cell.lengths > 1):
        weights, order = cell.attention[row].astype(np.float64), orders[row][0]
        scores = {"attention": weights, "gradient": gradients[row], "attention_gradient": weights * gradients[row]}
        top = int(scores[ranking].argmax())
        without_top[row], without_random[row] = probs[row][top], probs[row][order[0] if order[0] != top else order[1]]
    top, other = (jensen_shannon_divergence(cell.probs, without) for without in (without_top, without_random))
    flips, random_flips = (decision_flips(cell.probs, without) for without in (without_top, without_random))
    return {
        "delta_jsd": top - other,
        "top_flips": flips,
        "random_flips": random_flips,
        "only_top": flips * (1 - random_flips),
        "only_random": random_flips * (1 - flips),
    }


def removal(cell: Cell, start: str, end: str) -> dict[str, np.ndarray]:
    """Where the decision first changes, from the columns <start>size<end>, …, of the first draw of those with draws: numbers
    per text as `erasure` describes.
    """
    size, mass, empty = (cell.column(f"{start}{part}{end}") for part in ("size", "mass", "empty"))
    numbers = {"fraction": size / np.maximum(cell.lengths, 1), "never": np.isnan(size), "empty": empty, "mass": mass}
    return {name: np.where(cell.lengths > 1, values, np.nan) for name, values in numbers.items()}


@per_cell
def erasure(cell: Cell) -> dict[str, np.ndarray]:
    """Numbers by ranking (attention, gradient, attention_gradient), NaN below two tokens.

    erasure_delta_jsd_<ranking>: JSD(p, p without i*) - JSD(p, p without r), nats. erasure_top_flips_ and _random_flips_: if
    the decision changes without i*, without r; _only_top_, _only_random_: and not without the other.

    And of "random", the first random order: erasure_flip_fraction_<ranking>, share of tokens removed until the decision
    changes, 0..1, NaN where it never does (erasure_flip_never_); erasure_flip_empty_, whether it changes only when no weight
    is left; erasure_flip_mass_, attention removed. With the smallest set in the record, minimal_flip_fraction, _never,
    _empty and _mass of it, _exact, whether it is proved the smallest, and erasure_flip_ratio_<ranking>: tokens removed over
    the smallest number that is enough, >= 1.
    """
    numbers, minimum = {}, removal(cell, "minimal_flip_", "") if cell.has("minimal_flip_size") else {}
    for ranking in RANKINGS:
        numbers |= {f"erasure_{name}_{ranking}": values for name, values in single_weight(cell, ranking).items()}
    for ranking in ORDERS:
        parts = removal(cell, "erasure_flip_", f"_{ranking}")
        if minimum:
            parts["ratio"] = parts["fraction"] / minimum["fraction"]
        numbers |= {f"erasure_flip_{name}_{ranking}": values for name, values in parts.items()}
    if minimum:
        minimum["exact"] = cell.is_exact("minimal_flip", cell.lengths > 1)
    return numbers | {f"minimal_flip_{name}": values for name, values in minimum.items()}


def removed(cell: Cell) -> Chart:
    """The share of weights that is removed of each text until the decision changes, by the order of removal."""
    labels = {f"erasure_flip_fraction_{name}": label for name, label in ORDERS.items()}
    labels["minimal_flip_fraction"] = "smallest set"
    values = {labels[name]: values for name, values in erasure(cell).items() if name in labels}
    return text_chart("erasure_multi_weight", values)


ERASURE = section("erasure", per_text=erasure, chart=removed)


@per_cell
def map_erasure(cell: Cell) -> dict[str, np.ndarray]:
    """For each order of tokens, attention, gradient, attention_gradient and random (its first draw): map_erasure_tvd_<order>
    and map_erasure_top_flips_<order>, how far the prediction moves without the first token (the earlier one on ties) and
    whether the decision changes; map_erasure_flip_fraction_<order>, the share of tokens erased until it does, NaN where it
    never does; map_erasure_mass_<order>, the attention on those.
    """
    probs, orders, numbers = cell.rows("map_erasure_probs"), cell.rows("map_erasure_order"), {}
    scores = {name: cell.rows(f"map_erasure_{name}") for name in ("gradient", "attention_gradient")}
    scores["attention"] = cell.attention
    for ranking in ORDERS:
        without = [None] * len(cell)
        for row in np.flatnonzero(cell.lengths > 1):
            without[row] = probs[row][orders[row][0][0] if ranking == "random" else scores[ranking][row].argmax()]
        parts = removal(cell, "map_erasure_flip_", f"_{ranking}")
        numbers |= {
            f"map_erasure_tvd_{ranking}": total_variation_distance(cell.probs, without),
            f"map_erasure_top_flips_{ranking}": decision_flips(cell.probs, without),
            f"map_erasure_flip_fraction_{ranking}": parts["fraction"],
            f"map_erasure_mass_{ranking}": parts["mass"],
        }
    return numbers


MAP_ERASURE = section("map_erasure", per_text=map_erasure)


@per_cell
def sign_violations(cell: Cell) -> dict[str, np.ndarray]:
    """sign_violated_by_<measure>: whether the sign of the measure's first token contradicts the effect of taking that token
    away, NaN where the measure is undefined or 0 everywhere (a measure without a sign speaks for the class).
    effect_of_<measure>: how far the class's probability falls, -1..1.
    """
    signs, effects = cell.stacked("sign_violations_signs"), cell.stacked("sign_violations_effects")
    violated = np.where(np.isnan(signs) | (signs == 0), np.nan, signs * effects < 0)
    names = cell.shared("sign_violations_measures")
    values = {"sign_violated_by": violated, "effect_of": effects}
    return {f"{start}_{name}": column[:, place] for start, column in values.items() for place, name in enumerate(names)}


SIGN_VIOLATIONS = section("sign_violations", per_text=sign_violations)
ALIKE = 1e-9  # limits that are as close are of orders that make no difference


def aopc_limits(cell: Cell) -> dict[str, np.ndarray]:
    """Where measures lie between the worst and the best order in which tokens are taken away.

    naopc_<measure>: (AOPC - low) / (high - low), 0 for the worst order that is known and 1 for the best; NaN of a text whose
    orders are all alike. aopc_<measure>: AOPC itself. aopc_limit_low, _high, _exact: the limits, and whether they are exact.
    Source: Edin et al. (2025).
    """
    low, high = (cell.column(f"aopc_limits_{end}") for end in ("low", "high"))
    width, numbers = np.where(high - low > ALIKE, high - low, np.nan), {}
    for name, aopc in zip(cell.shared("aopc_limits_measures"), cell.stacked("aopc_limits_aopc").T, strict=True):
        numbers |= {f"naopc_{name}": (aopc - low) / width, f"aopc_{name}": aopc}
    limits = {"low": low, "high": high, "exact": cell.is_exact("aopc_limits", ~np.isnan(low))}
    return numbers | {f"aopc_limit_{end}": values for end, values in limits.items()}


AOPC_LIMITS = section("aopc_limits", per_text=aopc_limits)
