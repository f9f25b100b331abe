"""How the prediction changes when attention or the text does: weights permuted, moved or made equal; tokens left out.

Undefined for a text of fewer than two tokens.
"""

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.charts import Chart, binned, text_chart
from attnfaith.reporting.sections.erasure import RANKINGS, first_draws
from attnfaith.reporting.spec import Quantity, Section


# ---------- weights permuted, moved or made equal


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
    return text_chart(
        name="permutation_by_max_attention",
        title="How far permuted attention moves the prediction",
        axis="Median change of the prediction (TVD), by the largest weight",
        values=binned(changes(cell, "permuted_probs")[0], largest, (0, 0.25, 0.5, 0.75), "largest weight"),
    )


def _changed(name: str, place: int, column: str, caption: str, note: str = "", **fields) -> Section:
    """A section on the predictions in a column, under other attention."""
    return Section(
        name=name,
        place=place,
        chapter="interventions",
        needs=(column, "probs", "attention"),
        per_text=lambda cell: dict(zip((f"{name}_tvd", f"{name}_flips"), changes(cell, column), strict=True)),
        quantities={
            f"{name}_tvd": Quantity("change of the prediction (TVD)", below=0.05),
            f"{name}_flips": Quantity("share of changed decisions"),
        },
        caption=caption,
        note="Per text, the total variation distance between the prediction and the changed one: 0 no change, 1 another "
        "decision with certainty; of several draws the median. Undefined: texts of fewer than two tokens." + note,
        lead=(f"{name}_tvd", f"{name}_flips"),
        **fields,
    )


PERMUTATION = _changed("permutation", 50, "permuted_probs", "Permuted attention", chart=by_largest_weight)
MAP_PERMUTATION = _changed(
    *("map_permutation", 51, "map_permuted_probs", "Permuted attention maps"),
    " The weights on tokens are in another order, the same in all rows and heads of the changed layers.",
)
MAP_UNIFORM = _changed(
    *("map_uniform", 52, "map_uniform_probs", "Uniform attention maps"),
    " Each row gives all tokens the same weight.",
)
RANDOM_SUPPORT = _changed("random_support", 53, "random_support_probs", "Weights at random places")


# ---------- maps: erased, and furthest by a search


SCORES = {
    "attention": "attention",
    "gradient": "map_erasure_gradient",
    "attention_gradient": "map_erasure_attention_gradient",
}


@per_cell
def map_erasure(cell: Cell) -> dict[str, np.ndarray]:
    """For each order of tokens, attention, gradient, attention_gradient and random (its first draw): map_erasure_tvd_<order>
    and map_erasure_top_flips_<order>, how far the prediction moves without the first token (the earlier one on ties) and
    whether the decision changes; map_erasure_flip_fraction_<order>, the share of tokens erased until it does, NaN where it
    never does; map_erasure_mass_<order>, the attention on those.
    """
    probs, orders = cell.rows("map_erasure_probs"), cell.rows("map_erasure_order")
    scores, numbers = {name: cell.rows(column) for name, column in SCORES.items()}, {}
    for ranking in ("random", *RANKINGS):
        without = [None] * len(cell)
        for row in np.flatnonzero(cell.lengths > 1):
            without[row] = probs[row][orders[row][0][0] if ranking == "random" else scores[ranking][row].argmax()]
        size = first_draws(cell, f"map_erasure_flip_size_{ranking}")
        numbers |= {
            f"map_erasure_tvd_{ranking}": total_variation_distance(cell.probs, without),
            f"map_erasure_top_flips_{ranking}": decision_flips(cell.probs, without),
            f"map_erasure_flip_fraction_{ranking}": size / np.maximum(cell.lengths, 1),
            f"map_erasure_mass_{ranking}": first_draws(cell, f"map_erasure_flip_mass_{ranking}"),
        }
    return numbers


MAP_ERASURE = Section(
    name="map_erasure",
    place=71,
    chapter="interventions",
    needs=("probs", "attention", "map_erasure_probs", "map_erasure_order", "map_erasure_flip_size_attention"),
    uses=("map_erasure_*",),
    per_text=map_erasure,
    quantities={"map_erasure_tvd_*": Quantity("TVD without the first token by {}", below=0.05)},
    caption="Tokens erased from attention maps",
    note="A token is erased where no row of the changed layers has weight on it (after Serrano & Smith 2019). TVD: how far "
    "the prediction moves. Share erased: of a text’s tokens, in this order. Undefined: texts of fewer than two tokens, and, "
    "of shares, texts whose decision never changes.",
)
MAP_ADVERSARY = Section(
    name="map_adversary",
    place=61,
    chapter="interventions",
    needs=("probs", "attention", "map_adversary_jsd", "map_adversary_change"),
    quantities={
        "map_adversary_jsd": Quantity("JSD of the attentions reached (nats)", above=round(float(np.log(2) / 2), 3)),
        "map_adversary_change": Quantity("change of the prediction (TVD)"),
    },
    caption="Adversarial attention maps",
    note="Jensen–Shannon divergence (nats, at most 0.693) between the attention that is shown and the attention under other "
    "maps that keep the prediction within the epsilon of the search. Others may be further. Undefined: texts of fewer than "
    "two tokens.",
)


# ---------- tokens left out


PERMISSIBLE_ONLY = _changed(
    *("permissible_only", 49, "permissible_only_probs", "Without the impermissible tokens"),
    " The same texts without their impermissible tokens (Pruthi et al. 2020, table 3), undefined where there are none, or "
    "no others. A shortened text is unlike those of training, which may be part of the change.",
)
FROZEN_FLIP_SET = _changed(
    *("frozen_flip_set", 75, "frozen_flip_probs", "The fewest tokens that carry the decision"),
    " With attention, divisors and slopes held fixed a logit is a sum of parts of tokens (Modarressi et al. 2023), and the "
    "smallest set without which another class wins is known exactly; here the model itself reads the text without it. "
    "Undefined too: no set changes the frozen decision.",
)


# ---------- signs, and limits of AOPC


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


SIGN_VIOLATIONS = Section(
    name="sign_violations",
    place=85,
    needs=("sign_violations_measures", "sign_violations_signs", "sign_violations_effects"),
    per_text=sign_violations,
    compared=("sign_violated_by_attention",),
    caption="Signs that are violated",
    note="Share of texts whose token of largest score speaks for the predicted class by its sign while the class is more "
    "probable without it, or the other way round (Liu et al. 2022). A measure without a sign speaks for the class. "
    "Undefined: every score is 0, or one is undefined.",
)

REMOVALS = ("", "weight_")
ALIKE = 1e-9  # limits that are as close are of orders that make no difference


def aopc_limits(cell: Cell) -> dict[str, np.ndarray]:
    """Where measures lie between the worst and the best order of tokens, taken away or, with the prefix weight_, erased.

    naopc_<measure>: (AOPC - low) / (high - low), 0 for the worst order that is known and 1 for the best; NaN of a text whose
    orders are all alike. aopc_<measure>: AOPC itself. aopc_limit_low, _high, _exact: the limits, and whether they are exact.
    Source: Edin et al. (2025).
    """
    numbers = {}
    for start in REMOVALS:
        removal = f"{start}aopc_limits"
        if cell.has(f"{removal}_aopc"):
            low, high = (cell.column(f"{removal}_{end}") for end in ("low", "high"))
            width = np.where(high - low > ALIKE, high - low, np.nan)
            for name, aopc in zip(cell.shared(f"{removal}_measures"), cell.stacked(f"{removal}_aopc").T, strict=True):
                numbers |= {f"{start}naopc_{name}": (aopc - low) / width, f"{start}aopc_{name}": aopc}
            limits = {"low": low, "high": high, "exact": cell.is_exact(removal, ~np.isnan(low))}
            numbers |= {f"{start}aopc_limit_{end}": values for end, values in limits.items()}
    return numbers


AOPC_LIMITS = Section(
    name="aopc_limits",
    place=81,
    one_of=("aopc_limits_aopc", "weight_aopc_limits_aopc"),
    uses=("aopc_limits_*", "weight_aopc_limits_*"),
    per_text=aopc_limits,
    compared=("naopc_*", "weight_naopc_*"),
    caption="AOPC between its limits",
    note="AOPC: mean fall of the probability of the predicted class while the tokens go one after another, in a measure’s "
    "order. Normalised: 0 for the worst order of the text’s tokens that was met, 1 for the best. Where limits are not "
    "exact, another order may be worse or better. Undefined: texts without limits, such as those of one token.",
)
