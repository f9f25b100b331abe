"""What changes when attention or the text does: weights permuted or at random places; maps; tokens left out.

Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.erased_weights import RANKINGS, first_draws
from attnfaith.reporting.explanation_tests import column, stacked
from attnfaith.reporting.figures import VIOLINS, violins, violins_in_words
from attnfaith.reporting.spec import Drawing, Quantity, Section, per_cell
from attnfaith.support.errors import counted


BLOCK = 1 << 18  # probabilities compared at a time
MOVED = Quantity("change of the prediction (TVD), {}", below=0.05)


@per_cell
def changes(cell: Cell, name: str) -> tuple[np.ndarray, np.ndarray]:
    """How far the predictions in a column, [C] or [K][C], lie from the cell's own: per text [N] float64, NaN without draws
    and below two tokens, the median TVD over the draws and the share of draws with another decision, both 0..1.
    """
    if len(records.column_of(cell.table.schema.field(name)).axes) == 1:
        probs, short = stacked(cell, name), cell.lengths < 2
        distances, flips = total_variation_distance(cell.probs, probs), decision_flips(cell.probs, probs)
        return np.where(short, np.nan, distances), np.where(short, np.nan, flips)
    draws = records.rows(cell.table, name)
    counts = np.array([len(drawn) for drawn in draws])
    medians, flips = np.full((2, len(cell)), np.nan)
    for number in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == number)
        parts = -(-len(rows) * number * cell.probs.shape[1] // BLOCK)
        for part in np.array_split(rows, min(len(rows), parts)):
            others, own = np.concatenate([draws[row] for row in part]), np.repeat(cell.probs[part], number, axis=0)
            medians[part] = np.median(total_variation_distance(own, others).reshape(-1, number), axis=1)
            flips[part] = decision_flips(own, others).reshape(-1, number).mean(axis=1)
    return medians, flips


def _changed(start: str, name: str):
    """<start>_tvd and <start>_flips of `changes`."""
    return lambda cell: dict(zip((f"{start}_tvd", f"{start}_flips"), changes(cell, name), strict=True))


def _moved(start: str, name: str, words: str, sentence: str, **fields: object) -> Section:
    """A section on predictions under other attention, from one column."""
    return Section(
        name=start,
        chapter="interventions",
        needs=(name, "probs", "attention"),
        per_text=_changed(start, name),
        by_class=True,
        quantities={
            f"{start}_tvd": Quantity(MOVED.label.format(words), below=0.05),
            f"{start}_flips": Quantity(f"share of changed decisions, {words}"),
        },
        sentences=(
            f"{sentence} moves the prediction of a text by a total variation distance of {{{start}_tvd.mean:.3f}} on "
            f"average over {{{start}_tvd.texts}}{{{start}_tvd.interval}}; in {{{start}_tvd.share:.0%}} of them by less than "
            f"0.05. It changes {{{start}_flips.mean:.1%}} of the decisions.",
        ),
        **fields,
    )


NOTE = (
    "Per text, the total variation distance between the prediction and the prediction then: 0 no change, 1 another decision "
    "with certainty. Undefined: texts of fewer than two tokens."
)
DRAWS = f"{NOTE} Of several draws it is the median."


def _by_weight(cell: Cell):
    axis = "median change of the prediction (TVD)"
    return violins(cell, "Permuted attention", changes(cell, "permuted_probs")[0], axis)


def _by_weight_words(cell: Cell) -> tuple[str, str]:
    parts = violins_in_words(cell, changes(cell, "permuted_probs")[0])
    caption = "How far the prediction moves when the weights of a text are permuted, by how much weight one token has."
    alt = "Violins of the median change of the prediction per text, by largest attention weight."
    return f"{alt} {parts}.", f"{caption} {VIOLINS}"


PERMUTATION = _moved(
    "permutation",
    "permuted_probs",
    "permuted",
    "Permuting the attention weights",
    source="Jain & Wallace (2019), section 4.2.1",
    place=50,
    caption="Permuted attention",
    note=DRAWS,
    figures=(Drawing("permutation_by_max_attention", _by_weight, _by_weight_words),),
)
RANDOM_SUPPORT = _moved(
    "random_support",
    "random_support_probs",
    "at random places",
    "Moving the weights to random places",
    place=53,
    caption="Weights at random places",
    note=DRAWS,
)
MAP_PERMUTATION = _moved(
    "map_permutation",
    "map_permuted_probs",
    "maps permuted",
    "Permuting the weights on tokens in all heads of the changed layers",
    source="Jain & Wallace (2019), section 4.2.1, for one attention; here for the maps of a stack of layers",
    place=51,
    caption="Permuted attention maps",
    note=f"{DRAWS} The weights on tokens are in another order, the same in all rows and heads of the changed layers.",
)
MAP_UNIFORM = _moved(
    "map_uniform",
    "map_uniform_probs",
    "maps uniform",
    "Dividing weight equally among tokens in all heads of the changed layers",
    place=52,
    caption="Uniform attention maps",
    note=f"{NOTE} Each row divides what it gives tokens equally.",
)


# ---------- maps: erased, and furthest by a search


ORDERS = {"random": "random order", **RANKINGS}
SCORES = {"gradient": "map_erasure_gradient", "attention_gradient": "map_erasure_attention_gradient"}


@per_cell
def map_erasure(cell: Cell) -> dict[str, np.ndarray]:
    """What erasing tokens from the maps changes; <ranking>: attention, gradient, attention_gradient, random (first draw).

    map_erasure_tvd_<ranking>: how far the prediction moves without the token that it puts first, the earlier one on ties;
    map_erasure_top_flips_<ranking>: 1 where the decision changes. map_erasure_flip_fraction_<ranking>: share of tokens
    erased until the decision changes, 0..1; NaN where it never does. map_erasure_mass_<ranking>: attention on them.
    """
    probs, orders = (records.rows(cell.table, f"map_erasure_{name}") for name in ("probs", "order"))
    scores = {name: records.rows(cell.table, of) for name, of in SCORES.items()} | {"attention": cell.attention}
    defined = np.flatnonzero(cell.lengths > 1)
    numbers = {}
    for ranking in ORDERS:
        tvd, flips = np.full(len(cell), np.nan), np.full(len(cell), np.nan)
        if len(defined):
            first = [orders[row][0][0] if ranking == "random" else np.argmax(scores[ranking][row]) for row in defined]
            without = np.stack([probs[row][token] for row, token in zip(defined, first, strict=True)])
            tvd[defined] = total_variation_distance(cell.probs[defined], without)
            flips[defined] = decision_flips(cell.probs[defined], without)
        size = first_draws(cell, f"map_erasure_flip_size_{ranking}")
        numbers |= {
            f"map_erasure_tvd_{ranking}": tvd,
            f"map_erasure_top_flips_{ranking}": flips,
            f"map_erasure_flip_fraction_{ranking}": size / np.maximum(cell.lengths, 1),
            f"map_erasure_mass_{ranking}": first_draws(cell, f"map_erasure_flip_mass_{ranking}"),
        }
    return numbers


MAP_ERASURE = Section(
    name="map_erasure",
    source="Serrano & Smith (2019), for one attention; here for the maps of a stack of layers",
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
    note="A token is erased where no row of the changed layers has weight on it. First: how far the prediction moves (total "
    "variation distance) without the token that the order puts first, and how often the decision changes. Then: share of a "
    "text’s tokens erased until the decision first changes. Undefined: texts of fewer than two tokens, and, of shares, "
    "those whose decision never changes.",
    sentences=(
        "Without any weight on the token with most attention the prediction moves by a total variation distance of "
        "{map_erasure_tvd_attention.mean:.3f} on average over {map_erasure_tvd_attention.texts}; without any on a token "
        "drawn at random by {map_erasure_tvd_random.mean:.3f}.",
        "Tokens erased one after the other until the decision changes: by attention "
        "{map_erasure_flip_fraction_attention.mean:.0%} on average over {map_erasure_flip_fraction_attention.texts}, in "
        "random order {map_erasure_flip_fraction_random.mean:.0%} over {map_erasure_flip_fraction_random.texts}.",
    ),
)


@per_cell
def map_adversary(cell: Cell) -> dict[str, np.ndarray]:
    """How far the attention that is shown can be moved while the prediction stays: the furthest that a search met.

    map_adversary_jsd: Jensen-Shannon divergence in nats, a lower bound of what there is; map_adversary_tvd: total variation
    distance of the two attentions; map_adversary_change: that of the two predictions.
    """
    jsd, change = (column(cell, f"map_adversary_{name}") for name in ("jsd", "change"))
    distances = total_variation_distance(cell.attention, records.rows(cell.table, "map_adversary_attention"))
    return {
        "map_adversary_jsd": jsd,
        "map_adversary_change": change,
        "map_adversary_tvd": np.where(np.isnan(jsd), np.nan, distances),
    }


MAP_ADVERSARY = Section(
    name="map_adversary",
    source="Jain & Wallace (2019), section 4.2.2, for one attention; here for the maps of a stack of layers",
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
    note="Jensen–Shannon divergence (nats, at most 0.693) between the attention that is shown and what would be shown under "
    "other maps that keep the prediction within the epsilon of the search; and the change of the prediction that was "
    "measured. A search met them: others may be further. Undefined: texts of fewer than two tokens.",
    sentences=(
        "Other attention maps were met that would show an attention {map_adversary_jsd.mean:.3f} nats away on average over "
        "{map_adversary_jsd.texts}{map_adversary_jsd.interval}, at most 0.693, and change the prediction by "
        "{map_adversary_change.mean:.3f} (total variation distance); others may be further.",
    ),
)


# ---------- tokens left out


@per_cell
def permissible_only(cell: Cell) -> dict[str, np.ndarray]:
    """What a model predicts without the impermissible tokens; NaN where a text has none of them, or no other.

    permissible_only_correct: 1 where the class is the gold label then, 0 where not; _before: with the whole text;
    _accuracy_lost: the second less the first; NaN without a label. _flips: 1 where the decision changes. _tvd: how far the
    prediction moves, 0..1.
    """
    probs = stacked(cell, "permissible_only_probs")
    defined = ~np.isnan(probs).any(1)
    labelled = defined & ~np.isnan(cell.labels)
    correct = np.where(labelled, probs.argmax(1) == cell.labels, np.nan)
    before = np.where(labelled, cell.probs.argmax(1) == cell.labels, np.nan)
    tvd = np.full(len(cell), np.nan)
    tvd[defined] = total_variation_distance(cell.probs[defined], probs[defined])
    return {
        "permissible_only_tvd": tvd,
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
    note="The same texts read whole, and without their impermissible tokens. Accuracy is of those that have a label; TVD: "
    "total variation distance of the two predictions. Undefined: texts without impermissible tokens, or with no other.",
    sentences=(
        "Without the impermissible tokens the decision changes in {permissible_only_flips.mean:.1%} of "
        "{permissible_only_flips.texts}.",
        "Accuracy is {permissible_only_correct.mean:.1%} then, in place of {permissible_only_before.mean:.1%}; lost are "
        "{permissible_only_accuracy_lost.mean:.3f}{permissible_only_accuracy_lost.interval}. A shortened text is unlike "
        "those of training, which may be part of the loss.",
    ),
)


@per_cell
def frozen_flip_set(cell: Cell) -> dict[str, np.ndarray]:
    """The smallest set of tokens that carries the frozen network's decision; NaN where no set changes it.

    frozen_flip_tokens and _share: size of the set, and its share of the tokens; _agrees and _same_class, 1 or 0: the model's
    own decision changes without it, and to the class of the frozen network; _random: share of random sets that change it.
    """
    sizes, classes, random = (column(cell, f"frozen_flip_{name}") for name in ("size", "class", "random"))
    decided = stacked(cell, "frozen_flip_probs").argmax(1)
    defined = ~np.isnan(sizes)
    return {
        "frozen_flip_tokens": sizes,
        "frozen_flip_share": np.divide(sizes, cell.lengths, out=np.full(len(cell), np.nan), where=defined),
        "frozen_flip_agrees": np.where(defined, decided != cell.probs.argmax(1), np.nan),
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
    "which another class wins is known exactly. The model agrees where its own decision changes when these tokens are taken "
    "away; at random: where as many tokens, drawn by chance, are. Undefined: no set changes the frozen decision, or the "
    "text has no tokens.",
    sentences=(
        "With attention and slopes held fixed, {frozen_flip_tokens.median:.0f} tokens carry the decision of a text (median "
        "over {frozen_flip_tokens.texts}, exact); without them the model itself decides otherwise in "
        "{frozen_flip_agrees.mean:.0%}{frozen_flip_agrees.interval}, without as many at random in "
        "{frozen_flip_random.mean:.0%}.",
    ),
)


# ---------- signs, and limits of AOPC


@per_cell
def sign_violations(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """Whether the sign of a measure's first token contradicts what taking that token away does, {measure: {number: [N]}}.

    violated: 1 or 0, NaN where the measure is undefined, or gives every token 0; what has no sign says of its first token
    that it speaks for the class. effect: how far the class's probability falls, -1..1.
    """
    signs, effects = stacked(cell, "sign_violations_signs"), stacked(cell, "sign_violations_effects")
    violated = np.where(np.isnan(signs) | (signs == 0), np.nan, signs * effects < 0)
    names = cell.table.column("sign_violations_measures")[0].as_py()
    return {name: {"violated": violated[:, place], "effect": effects[:, place]} for place, name in enumerate(names)}


def _sign_numbers(cell: Cell) -> dict[str, np.ndarray]:
    """sign_violated_by_<measure> and effect_of_<measure>."""
    starts = {"violated": "sign_violated_by", "effect": "effect_of"}
    every = sign_violations(cell).items()
    return {f"{start}_{name}": values[kind] for kind, start in starts.items() for name, values in every}


SIGN_VIOLATIONS = Section(
    name="sign_violations",
    source="Liu et al. (2022)",
    place=85,
    needs=("sign_violations_measures", "sign_violations_signs", "sign_violations_effects"),
    uses=("importance_*", "attention"),
    per_text=_sign_numbers,
    compared=("sign_violated_by_attention",),
    quantities={"sign_violated_by_*": Quantity("sign violated, {}"), "effect_of_*": Quantity("fall of the probability, {}")},
    caption="Signs that are violated",
    note="Share of texts whose token of largest score is said to speak for the predicted class while the class is more "
    "probable without it, or the other way round. A measure without a sign, and “absolute”, the size of a signed one, say "
    "of every token that it speaks for the class. Undefined: every score is 0, or one is undefined.",
    sentences=(
        "Read as evidence for the class, attention’s first token is contradicted by taking it away in "
        "{sign_violated_by_attention.mean:.0%} of {sign_violated_by_attention.texts}{sign_violated_by_attention.interval}.",
    ),
)

REMOVALS = {"aopc_limits": "tokens taken away", "weight_aopc_limits": "weights erased"}
ALIKE = 1e-9  # limits that are as close are of orders that make no difference


@per_cell
def aopc_limits(cell: Cell, removal: str) -> dict[str, dict[str, np.ndarray]]:
    """Where measures lie between the worst and the best order of tokens, {measure: {number: [N]}}; {} if unmeasured.

    naopc: (AOPC - low) / (high - low), 0 for the worst order that is known and 1 for the best; naopc_low, naopc_high: what
    is certain where the limits are not exact, (AOPC - low) / (bound - low) and (AOPC - bound) / (high - bound). NaN of a
    text all of whose orders are alike, such as one of one token. exact: 1 where the limits are. Source: Edin et al. (2025).
    """
    if f"{removal}_aopc" not in cell.table.column_names:
        return {}
    names, aopc = cell.table.column(f"{removal}_measures")[0].as_py(), stacked(cell, f"{removal}_aopc")
    low, high = (column(cell, f"{removal}_{end}") for end in ("low", "high"))
    low_bound, high_bound = (column(cell, f"{removal}_{end}_bound") for end in ("low", "high"))
    certainty = np.array(cell.table.column(f"{removal}_certainty").to_pylist(), dtype=object)
    differ = high - low > ALIKE

    def between(values: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
        return np.divide(values - least, most - least, out=np.full(len(cell), np.nan), where=differ)

    return {
        name: {
            "naopc": between(aopc[:, place], low, high),
            "naopc_low": between(aopc[:, place], low, high_bound),
            "naopc_high": between(aopc[:, place], low_bound, high),
            "aopc": aopc[:, place],
            "low": low,
            "high": high,
            "exact": np.where(np.isnan(low), np.nan, certainty == "exact"),
        }
        for place, name in enumerate(names)
    }


def _aopc_numbers(cell: Cell) -> dict[str, np.ndarray]:
    """Of tokens taken away naopc_<measure>, naopc_low_, naopc_high_ and aopc_<measure>, then aopc_limit_low, _high and
    _exact; the same with weight_ of weights erased.
    """
    numbers = {}
    for removal in REMOVALS:
        start, every = removal.removesuffix("aopc_limits"), aopc_limits(cell, removal)
        for kind in ("naopc", "naopc_low", "naopc_high", "aopc"):
            numbers |= {f"{start}{kind}_{name}": values[kind] for name, values in every.items()}
        for kind in ("low", "high", "exact"):
            numbers |= {f"{start}aopc_limit_{kind}": values[kind] for values in every.values()}
    return numbers


def _aopc_sentences(cell: Cell) -> Iterator[str]:
    rows = {row["quantity"]: row for row in AOPC_LIMITS.summary(cell)}
    for removal, words in REMOVALS.items():
        start, names = removal.removesuffix("aopc_limits"), list(aopc_limits(cell, removal))
        defined = {name: rows[f"{start}naopc_{name}"]["mean"] for name in names if rows[f"{start}naopc_{name}"]["n"]}
        if not defined:
            if names:
                yield f"No text has orders that differ ({words})."
            continue
        shares = ", ".join(
            f"{measure_label(name)} {defined[name]:.2f}" for name in sorted(defined, key=lambda n: -defined[n])
        )
        exact = rows[f"{start}aopc_limit_exact"]
        yield (
            f"Between the worst order (0) and the best one (1) that were met, with {words}: {shares}; limits are exact in "
            f"{exact['mean']:.0%} of {counted(exact['n'])}."
        )


def _aopc_quantities(start: str, words: str) -> dict[str, Quantity]:
    return {
        f"{start}naopc_low_*": Quantity(f"certainly from, {{}} ({words})"),
        f"{start}naopc_high_*": Quantity(f"certainly to, {{}} ({words})"),
        f"{start}naopc_*": Quantity(f"normalised AOPC, {{}} ({words})"),
        f"{start}aopc_limit_low": Quantity(f"AOPC of the worst order met ({words})"),
        f"{start}aopc_limit_high": Quantity(f"AOPC of the best order met ({words})"),
        f"{start}aopc_limit_exact": Quantity(f"limits exact ({words})"),
        f"{start}aopc_*": Quantity(f"AOPC, {{}} ({words})"),
    }


AOPC_LIMITS = Section(
    name="aopc_limits",
    source="Edin et al. (2025), Normalized AOPC",
    place=81,
    one_of=("aopc_limits_aopc", "weight_aopc_limits_aopc"),
    uses=("aopc_limits_*", "weight_aopc_limits_*"),
    per_text=_aopc_numbers,
    compared=("naopc_[!lh]*", "weight_naopc_[!lh]*"),
    quantities=_aopc_quantities("", "tokens taken away") | _aopc_quantities("weight_", "weights erased"),
    caption="AOPC between its limits",
    note="AOPC: mean fall of the probability of the predicted class while one token after the other goes, in a measure’s "
    "order. Normalised: 0 for the worst order of the text’s tokens that was met, 1 for the best. Where limits are not "
    "exact, an order that was not met may be worse or better: certainly from … to are the means of what the proved bounds "
    "leave. Undefined: texts without limits, such as those of one token, and measures that are.",
    sentences=_aopc_sentences,
)
