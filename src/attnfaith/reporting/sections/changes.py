"""How the prediction changes when attention or the text does: weights permuted, moved or made equal; tokens left out.

Undefined for a text of fewer than two tokens.
"""

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.figures import VIOLINS, violins, violins_in_words
from attnfaith.reporting.sections.erasure import RANKINGS, first_draws
from attnfaith.reporting.spec import Drawing, Quantity, Section, per_cell


# ---------- weights permuted, moved or made equal


@per_cell
def changes(cell: Cell, name: str) -> tuple[np.ndarray, np.ndarray]:
    """How far the predictions in a column, [C] or [K][C], lie from the cell's own: per text [N] float64, NaN without draws
    and below two tokens, the median TVD over the draws and the share of draws with another decision, both 0..1.
    """
    medians, flips = np.full((2, len(cell)), np.nan)
    for row, (own, changed) in enumerate(zip(cell.probs.astype(np.float64), cell.rows(name), strict=True)):
        if cell.lengths[row] > 1 and len(changed):
            changed = changed.reshape(-1, len(own))
            medians[row] = np.median(np.abs(changed - own).sum(axis=1)) / 2
            flips[row] = (changed.argmax(axis=1) != own.argmax()).mean()
    return medians, flips


def _changed(name: str, column: str, words: str, sentence: str, **fields: object) -> Section:
    """A section on the predictions in a column, under other attention."""
    return Section(
        name=name,
        chapter="interventions",
        needs=(column, "probs", "attention"),
        per_text=lambda cell: dict(zip((f"{name}_tvd", f"{name}_flips"), changes(cell, column), strict=True)),
        by_class=True,
        quantities={
            f"{name}_tvd": Quantity(f"change of the prediction (TVD), {words}", below=0.05),
            f"{name}_flips": Quantity(f"share of changed decisions, {words}"),
        },
        sentences=(
            f"{sentence} moves the prediction of a text by a total variation distance of {{{name}_tvd.mean:.3f}} on "
            f"average over {{{name}_tvd.texts}}{{{name}_tvd.interval}}; in {{{name}_tvd.share:.0%}} of them by less than "
            f"0.05. It changes {{{name}_flips.mean:.1%}} of the decisions.",
        ),
        **fields,
    )


NOTE = (
    "Per text, the total variation distance between the prediction and the changed one: 0 no change, 1 another decision "
    "with certainty; of several draws the median. Undefined: texts of fewer than two tokens."
)


def _violins(cell: Cell):
    axis = "median change of the prediction (TVD)"
    return violins(cell, "Permuted attention", changes(cell, "permuted_probs")[0], axis)


def _violin_words(cell: Cell) -> tuple[str, str]:
    parts = violins_in_words(cell, changes(cell, "permuted_probs")[0])
    caption = "How far the prediction moves when the weights of a text are permuted, by how much weight one token has."
    alt = "Violins of the median change of the prediction per text, by largest attention weight."
    return f"{alt} {parts}.", f"{caption} {VIOLINS}"


PERMUTATION = _changed(
    "permutation",
    "permuted_probs",
    "permuted",
    "Permuting the attention weights",
    source="Jain & Wallace (2019), section 4.2.1",
    place=50,
    caption="Permuted attention",
    note=NOTE,
    figure=Drawing("permutation_by_max_attention", _violins, _violin_words),
)
MAP_PERMUTATION = _changed(
    "map_permutation",
    "map_permuted_probs",
    "maps permuted",
    "Permuting the weights on tokens in all heads of the changed layers",
    source="after Jain & Wallace (2019), section 4.2.1",
    place=51,
    caption="Permuted attention maps",
    note=f"{NOTE} The weights on tokens are in another order, the same in all rows and heads of the changed layers.",
)
MAP_UNIFORM = _changed(
    "map_uniform",
    "map_uniform_probs",
    "maps uniform",
    "Dividing weight equally among tokens in all heads of the changed layers",
    place=52,
    caption="Uniform attention maps",
    note=f"{NOTE} Each row gives all tokens the same weight.",
)
RANDOM_SUPPORT = _changed(
    "random_support",
    "random_support_probs",
    "at random places",
    "Moving the weights to random places",
    place=53,
    caption="Weights at random places",
    note=NOTE,
)


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
        numbers |= {
            f"map_erasure_tvd_{ranking}": total_variation_distance(cell.probs, without),
            f"map_erasure_top_flips_{ranking}": decision_flips(cell.probs, without),
            f"map_erasure_flip_fraction_{ranking}": first_draws(cell, f"map_erasure_flip_size_{ranking}")
            / np.maximum(cell.lengths, 1),
            f"map_erasure_mass_{ranking}": first_draws(cell, f"map_erasure_flip_mass_{ranking}"),
        }
    return numbers


MAP_ERASURE = Section(
    name="map_erasure",
    source="after Serrano & Smith (2019)",
    place=71,
    chapter="interventions",
    needs=("probs", "attention", "map_erasure_probs", "map_erasure_order", "map_erasure_flip_size_attention"),
    uses=("map_erasure_*",),
    per_text=map_erasure,
    quantities={
        "map_erasure_tvd_*": Quantity("TVD without the first token by {}", below=0.05),
        "map_erasure_top_flips_*": Quantity("changed decisions without the first by {}"),
        "map_erasure_flip_fraction_*": Quantity("share erased until the decision changes, by {}"),
        "map_erasure_mass_*": Quantity("attention on the tokens erased, by {}"),
    },
    caption="Tokens erased from attention maps",
    note="A token is erased where no row of the changed layers has weight on it. TVD: how far the prediction moves. Share "
    "erased: of a text’s tokens, in this order. Undefined: texts of fewer than two tokens, and, of shares, texts whose "
    "decision never changes.",
    sentences=(
        "Without any weight on the token with most attention the prediction moves by a total variation distance of "
        "{map_erasure_tvd_attention.mean:.3f} on average over {map_erasure_tvd_attention.texts}; without any on a token "
        "drawn at random by {map_erasure_tvd_random.mean:.3f}.",
    ),
)


@per_cell
def map_adversary(cell: Cell) -> dict[str, np.ndarray]:
    """map_adversary_jsd: divergence in nats of the furthest attention that a search met, a lower bound; map_adversary_tvd:
    total variation distance of the two attentions; map_adversary_change: of the two predictions.
    """
    jsd, change = (cell.column(f"map_adversary_{name}") for name in ("jsd", "change"))
    distances = total_variation_distance(cell.attention, cell.rows("map_adversary_attention"))
    return {
        "map_adversary_jsd": jsd,
        "map_adversary_change": change,
        "map_adversary_tvd": np.where(np.isnan(jsd), np.nan, distances),
    }


MAP_ADVERSARY = Section(
    name="map_adversary",
    source="after Jain & Wallace (2019), section 4.2.2",
    place=61,
    chapter="interventions",
    needs=("probs", "attention", "map_adversary_attention", "map_adversary_jsd", "map_adversary_change"),
    per_text=map_adversary,
    by_class=True,
    quantities={
        "map_adversary_jsd": Quantity("JSD of the attentions reached (nats)", above=round(float(np.log(2) / 2), 3)),
        "map_adversary_change": Quantity("change of the prediction (TVD)"),
        "map_adversary_tvd": Quantity("TVD of the attentions"),
    },
    caption="Adversarial attention maps",
    note="Jensen–Shannon divergence (nats, at most 0.693) between the attention that is shown and the attention under other "
    "maps that keep the prediction within the epsilon of the search. Others may be further. Undefined: texts of fewer than "
    "two tokens.",
    sentences=(
        "Other attention maps were met that would show an attention {map_adversary_jsd.mean:.3f} nats away on average over "
        "{map_adversary_jsd.texts}{map_adversary_jsd.interval}, at most 0.693, and change the prediction by "
        "{map_adversary_change.mean:.3f}.",
    ),
)


# ---------- tokens left out


@per_cell
def permissible_only(cell: Cell) -> dict[str, np.ndarray]:
    """The prediction without the impermissible tokens; NaN where a text has none of them, or no others.

    permissible_only_correct: whether the class is the gold label; _before: with the whole text; _accuracy_lost: the second
    less the first; NaN without a label. _flips: whether the decision changes. _tvd: how far the prediction moves, 0..1.
    """
    probs = cell.stacked("permissible_only_probs")
    defined = ~np.isnan(probs).any(1)
    labelled = defined & ~np.isnan(cell.labels)
    correct = np.where(labelled, probs.argmax(1) == cell.labels, np.nan)
    before = np.where(labelled, cell.predicted == cell.labels, np.nan)
    return {
        "permissible_only_tvd": total_variation_distance(cell.probs, probs),
        "permissible_only_flips": np.where(defined, probs.argmax(1) != cell.predicted, np.nan),
        "permissible_only_before": before,
        "permissible_only_correct": correct,
        "permissible_only_accuracy_lost": before - correct,
    }


PERMISSIBLE_ONLY = Section(
    name="permissible_only",
    source="Pruthi et al. (2020), table 3",
    place=49,
    chapter="interventions",
    needs=("permissible_only_probs", "probs", "label", "attention"),
    per_text=permissible_only,
    compared=("*_correct", "*_accuracy_lost", "*_flips", "*_tvd"),
    by_class=True,
    quantities={
        "permissible_only_tvd": Quantity("TVD of the predictions"),
        "permissible_only_flips": Quantity("changes the decision"),
        "permissible_only_before": Quantity("accuracy of whole texts"),
        "permissible_only_correct": Quantity("accuracy without impermissible tokens"),
        "permissible_only_accuracy_lost": Quantity("accuracy lost"),
    },
    caption="Without the impermissible tokens",
    note="The same texts whole, and without their impermissible tokens. A shortened text is unlike those of training, which "
    "may be part of the loss. Undefined: texts without impermissible tokens, or with no others.",
    sentences=(
        "Without the impermissible tokens the decision changes in {permissible_only_flips.mean:.1%} of "
        "{permissible_only_flips.texts}.",
    ),
)


@per_cell
def frozen_flip_set(cell: Cell) -> dict[str, np.ndarray]:
    """The smallest set of tokens that carries the frozen network's decision; NaN where no set changes it.

    frozen_flip_tokens and _share: size of the set, and its share of the tokens; _agrees and _same_class: whether the model's
    own decision changes without it, and to the class of the frozen network; _random: share of random sets that change it.
    """
    sizes, classes, random = (cell.column(f"frozen_flip_{name}") for name in ("size", "class", "random"))
    decided, defined = cell.stacked("frozen_flip_probs").argmax(1), ~np.isnan(sizes)
    return {
        "frozen_flip_tokens": sizes,
        "frozen_flip_share": sizes / np.maximum(cell.lengths, 1),
        "frozen_flip_agrees": np.where(defined, decided != cell.predicted, np.nan),
        "frozen_flip_same_class": np.where(defined, decided == classes, np.nan),
        "frozen_flip_random": random,
    }


FROZEN_FLIP_SET = Section(
    name="frozen_flip_set",
    source="Modarressi et al. (2023), section 3",
    place=75,
    chapter="interventions",
    needs=("frozen_flip_size", "frozen_flip_class", "frozen_flip_probs", "frozen_flip_random", "probs", "attention"),
    uses=("frozen_flip_set",),
    per_text=frozen_flip_set,
    by_class=True,
    quantities={
        "frozen_flip_tokens": Quantity("tokens in the set"),
        "frozen_flip_share": Quantity("share of the tokens"),
        "frozen_flip_agrees": Quantity("the model agrees"),
        "frozen_flip_same_class": Quantity("the model agrees on the class"),
        "frozen_flip_random": Quantity("as many at random"),
    },
    caption="The fewest tokens that carry the decision",
    note="With attention, divisors and slopes held fixed a logit is a sum of parts of tokens, and the smallest set without "
    "which another class wins is known exactly. The model agrees where its own decision changes without these tokens; at "
    "random: without as many tokens drawn by chance. Undefined: no set changes the frozen decision.",
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
    names = cell.table.column("sign_violations_measures")[0].as_py()
    values = {"sign_violated_by": violated, "effect_of": effects}
    return {f"{start}_{name}": column[:, place] for start, column in values.items() for place, name in enumerate(names)}


SIGN_VIOLATIONS = Section(
    name="sign_violations",
    source="Liu et al. (2022)",
    place=85,
    needs=("sign_violations_measures", "sign_violations_signs", "sign_violations_effects"),
    uses=("importance_*", "attention"),
    per_text=sign_violations,
    compared=("sign_violated_by_attention",),
    quantities={"sign_violated_by_*": Quantity("sign violated, {}"), "effect_of_*": Quantity("fall of the probability, {}")},
    caption="Signs that are violated",
    note="Share of texts whose token of largest score speaks for the predicted class by its sign while the class is more "
    "probable without it, or the other way round. A measure without a sign speaks for the class. Undefined: every score is "
    "0, or one is undefined.",
)

ALIKE = 1e-9  # limits that are as close are of orders that make no difference


def aopc_limits(cell: Cell) -> dict[str, np.ndarray]:
    """Where measures lie between the worst and the best order of tokens taken away.

    naopc_<measure>: (AOPC - low) / (high - low), 0 for the worst order that was met and 1 for the best; NaN of a text whose
    orders are all alike. aopc_<measure>: AOPC itself. aopc_limit_low, _high, _exact: the limits, and whether they are exact.
    Source: Edin et al. (2025).
    """
    names, aopc = cell.table.column("aopc_limits_measures")[0].as_py(), cell.stacked("aopc_limits_aopc")
    low, high = (cell.column(f"aopc_limits_{end}") for end in ("low", "high"))
    exact = np.array(cell.table.column("aopc_limits_certainty").to_pylist()) == "exact"
    width = np.where(high - low > ALIKE, high - low, np.nan)
    numbers = {f"naopc_{name}": (aopc[:, place] - low) / width for place, name in enumerate(names)}
    numbers |= {f"aopc_{name}": aopc[:, place] for place, name in enumerate(names)}
    limits = {"low": low, "high": high, "exact": np.where(np.isnan(low), np.nan, exact)}
    return numbers | {f"aopc_limit_{end}": values for end, values in limits.items()}


AOPC_LIMITS = Section(
    name="aopc_limits",
    source="Edin et al. (2025), Normalized AOPC",
    place=81,
    needs=("aopc_limits_aopc",),
    uses=("aopc_limits_*",),
    per_text=aopc_limits,
    compared=("naopc_*",),
    quantities={
        "naopc_*": Quantity("normalised AOPC, {}"),
        "aopc_limit_low": Quantity("AOPC of the worst order met"),
        "aopc_limit_high": Quantity("AOPC of the best order met"),
        "aopc_limit_exact": Quantity("limits exact"),
        "aopc_*": Quantity("AOPC, {}"),
    },
    caption="AOPC between its limits",
    note="AOPC: mean fall of the probability of the predicted class while the tokens go one after another, in a measure’s "
    "order. Normalised: 0 for the worst order of the text’s tokens that was met, 1 for the best. Where limits are not "
    "exact, another order may be worse or better. Undefined: texts without limits, such as those of one token.",
)
