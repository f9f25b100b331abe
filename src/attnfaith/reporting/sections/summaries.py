"""Sections of one table that summarises numbers per text: where attention lies, states, signs, limits of AOPC."""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import column, shared, stacked
from attnfaith.reporting.spec import (
    MAIN,
    Case,
    Key,
    Mean,
    Median,
    Row,
    Share,
    counts,
    per_cell,
    summary_cases,
    summary_section,
)


# --------------------------------------------------------------------------------------------- where attention lies


def marker_attention(cell: Cell) -> dict[str, np.ndarray]:
    """marker_attention, the share of the attention that lies on markers, 0..1."""
    return {"marker_attention": column(cell, "marker_attention")}


MARKER_ATTENTION = summary_section(
    "marker_attention",
    marker_attention,
    (
        *counts("marker_attention"),
        Mean("share_mean", "mean share [95 % interval]", of="marker_attention", interval=MAIN),
        Median("share_median", "median", of="marker_attention"),
        Share("share_above_0.5", "texts with more than half", of="marker_attention", above=0.5),
    ),
    place=45,
    needs=("marker_attention", "probs"),
    caption="Attention on markers",
    note="Share of the rows that are shown that lies on no token of the text but on markers such as [CLS] and [SEP]. What "
    "is shown of a text is the rest, divided by its sum.",
    sentences={
        "text": "On average {row[share_mean]:.0%} of the attention that is shown lies on markers{interval}, more than half "
        "in {row[share_above_0.5]:.0%} of {texts}: the weights of tokens are parts of the rest.",
        "nothing": "No text has a known share of attention on markers ({row[n_undefined]:,} undefined).",
    },
)

GROUP_HEADS = "group_mass_head_max"
IMPERMISSIBLE, MARKERS, PUNCTUATION = "impermissible", "markers", "punctuation"


@per_cell
def group_mass(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """How much of attention lies on groups of tokens, {group: {number: [N] in 0..1}}.

    mass: NaN where a text has no token of the group, or no other. whole: the same over all texts that have tokens, 0 where
    there is none of the group and 1 where there is no other, as published means have it. tokens: the group's share of the
    tokens where the mass is defined; NaN of markers. head_max: of a model with many heads.
    """
    names = shared(cell, "group_mass_names")
    masses, token_counts = stacked(cell, "group_mass"), stacked(cell, "group_mass_tokens")
    heads = stacked(cell, GROUP_HEADS) if GROUP_HEADS in cell.table.column_names else None
    lengths = np.where(cell.lengths > 0, cell.lengths, np.nan)
    groups = {}
    for place, name in enumerate(names):
        mass, shares = masses[:, place], token_counts[:, place] / lengths
        groups[name] = {
            "mass": mass,
            "whole": np.where(np.isnan(mass), np.minimum(shares, 1), mass),
            "tokens": np.where(np.isnan(mass) | (name == MARKERS), np.nan, shares),
        }
        if heads is not None:
            groups[name]["head_max"] = heads[:, place]
    return groups


def _group_numbers(cell: Cell) -> dict[str, np.ndarray]:
    """group_mass_<group in lower case> of each text, and of many heads group_mass_head_max_<group>."""
    groups = group_mass(cell)
    numbers = {f"group_mass_{name.lower()}": values["mass"] for name, values in groups.items()}
    heads = {f"{GROUP_HEADS}_{name.lower()}": values["head_max"] for name, values in groups.items() if "head_max" in values}
    return numbers | heads


def _group_label(row: Row) -> str:
    return "impermissible tokens" if row["group"] == IMPERMISSIBLE else row["group"]


def _group_sentences(cell: Cell) -> Iterator[str]:
    for row in render.rows(GROUP_MASS.table, cell):
        if row["group"] not in (IMPERMISSIBLE, PUNCTUATION):
            continue
        if not row["n"]:
            yield f"No text has both {_group_label(row)} and other tokens, so that attention could choose between them."
            continue
        text = (
            f"On average {row['mass_mean']:.1%} of the attention lies on {_group_label(row)}"
            f"{render.interval_in_words(row)}, which are {row['tokens_mean']:.1%} of the tokens of {counted(row['n'])}"
        )
        if "head_max_mean" in row:
            text += f"; {row['head_max_mean']:.1%} in the head that has most there"
        yield f"{text}."
        if row["group"] == IMPERMISSIBLE:
            yield "Little attention on them does not say that the model does without them: it may be trained to hide them."


GROUP_MASS = summary_section(
    "group_mass",
    _group_numbers,
    (
        *counts("mass"),
        Mean("mass_mean", "share of attention [95 % interval]", of="mass", interval=MAIN),
        Median("mass_median", "median", of="mass"),
        Share("share_above_0.5", "texts with more than half", of="mass", above=0.5),
        Mean("head_max_mean", "in the head with most", of="head_max", optional=True),
        Mean("tokens_mean", "share of tokens", of="tokens", interval=None, dash=True),
        Mean("whole_mean", "of attention, all texts", of="whole"),
    ),
    by=(Key("group", "tokens", _group_label),),
    cases=summary_cases(group_mass, "group"),
    page_rows=lambda df: df[df["n"] > 0],
    source="Pruthi et al. (2020), section 3; Mohankumar et al. (2020), section 5.4",
    place=47,
    needs=("group_mass_names", "group_mass", "group_mass_tokens", "attention"),
    uses=(GROUP_HEADS,),
    caption="Attention on groups of tokens",
    note="Sum of the weights on the tokens of a group, mean over the texts that have such tokens and others; undefined: the "
    "rest. All texts: 0 where there is no such token and 1 where there is no other, as published means have it. Of a model "
    "with many heads it is a share of the whole rows, of which markers take a part; the head with most: of each text, the "
    "one of those shown whose mass is largest. Groups overlap. Parts of speech are a tagger’s estimate.",
    sentences=_group_sentences,
)

NORM_HEADS = "value_norm_share_head_max"


@per_cell
def value_norm_share(cell: Cell) -> dict[str, np.ndarray]:
    """value_norm_share, the impermissible tokens' share of the length of all vectors, 0..1; value_norm_excess, what it is
    above the attention shown on the same tokens, -1..1. NaN where a text has no impermissible token, or no other.
    """
    shares, marks = column(cell, "value_norm_share"), records.rows(cell.table, "impermissible")
    shown = [weights[np.asarray(marked, bool)].sum() for weights, marked in zip(cell.attention, marks, strict=True)]
    return {"value_norm_share": shares, "value_norm_excess": shares - np.array(shown, np.float64)}


def _norm_cases(cell: Cell) -> Iterator[Case]:
    values = value_norm_share(cell)
    values = {**values, "attention": values["value_norm_share"] - values["value_norm_excess"]}
    if NORM_HEADS in cell.table.column_names:
        values["head_max"] = column(cell, NORM_HEADS)
    yield Case(values)


VALUE_NORM_SHARE = summary_section(
    "value_norm_share",
    value_norm_share,
    (
        *counts("value_norm_share"),
        Mean("share_mean", "share of length [95 % interval]", of="value_norm_share", interval=MAIN),
        Median("share_median", "median", of="value_norm_share"),
        Mean("head_max_mean", "in the head with most", of="head_max", optional=True),
        Mean("attention_mean", "attention shown on them", of="attention"),
        Mean("excess_mean", "length less attention", of="value_norm_excess"),
    ),
    cases=_norm_cases,
    source="the code of Pruthi et al. (2020)",
    place=48,
    needs=("value_norm_share", "impermissible", "probs", "attention"),
    uses=(NORM_HEADS,),
    caption="Length of impermissible tokens’ vectors",
    note="Sum of the lengths of the vectors that attention weighs, of impermissible tokens as a share of all; beside it the "
    "attention shown on them. Where the share of length is far above that of attention, a little weight is enough to carry "
    "them. Of a model with many heads vectors are the heads’ values, markers included. Undefined: texts without "
    "impermissible tokens, or with no other; they are in no mean.",
    sentences={
        "text": "Impermissible tokens have {row[share_mean]:.1%} of the length of all vectors that attention "
        "weighs{interval} and {row[attention_mean]:.1%} of the attention shown (means over {texts}). Long vectors under "
        "little weight are a sign that they are read all the same, and no proof.",
        "left_out": "Left out because they have none of them, or nothing else: {row[n_undefined]:,}.",
        "nothing": "No text has both impermissible tokens and others ({row[n_undefined]:,} undefined).",
    },
)


@per_cell
def permissible_only(cell: Cell) -> dict[str, np.ndarray]:
    """What a model predicts without the impermissible tokens; NaN where a text has none of them, or no other.

    permissible_only_correct: 1 where the class is the gold label then, 0 where not; _accuracy_lost: 1 where it was right
    with the whole text and no longer is, -1 the other way round, else 0; both NaN without a label. _flips: 1 where the
    decision changes. _tvd: how far the prediction moves, 0..1.
    """
    probs = stacked(cell, "permissible_only_probs")
    defined = ~np.isnan(probs).any(1)
    labelled = defined & ~np.isnan(cell.labels)
    correct = np.where(labelled, probs.argmax(1) == cell.labels, np.nan)
    correct_before = np.where(labelled, cell.probs.argmax(1) == cell.labels, np.nan)
    tvd = np.full(len(cell), np.nan)
    tvd[defined] = total_variation_distance(cell.probs[defined], probs[defined])
    return {
        "permissible_only_correct": correct,
        "permissible_only_accuracy_lost": correct_before - correct,
        "permissible_only_flips": np.where(defined, probs.argmax(1) != cell.predicted, np.nan),
        "permissible_only_tvd": tvd,
    }


def _permissible_cases(cell: Cell) -> Iterator[Case]:
    values = permissible_only(cell)
    before = values["permissible_only_correct"] + values["permissible_only_accuracy_lost"]
    yield Case({**values, "before": before})


def _permissible_sentences(cell: Cell) -> list[str]:
    row = render.rows(PERMISSIBLE_ONLY.table, cell)[0]
    if not row["n"]:
        return ["No text has both impermissible tokens and others, so that a model could be asked what the others tell it."]
    text = f"Without the impermissible tokens the decision changes in {row['flip_share']:.1%} of {counted(row['n'])}"
    if not np.isnan(row["lost_mean"]):
        text += (
            f" and accuracy is {row['correct_mean']:.1%} in place of {row['before_mean']:.1%}; lost are "
            f"{row['lost_mean']:.3f}{render.interval_in_words(row)}"
        )
    return [f"{text}.", "Some of it may be that a shortened text is unlike those of training."]


PERMISSIBLE_ONLY = summary_section(
    "permissible_only",
    permissible_only,
    (
        *counts("permissible_only_tvd"),
        Mean("lost_mean", "accuracy lost [95 % interval]", of="permissible_only_accuracy_lost", interval=MAIN),
        Mean("before_mean", "accuracy of whole texts", of="before", interval=None),
        Mean("correct_mean", "without impermissible tokens", of="permissible_only_correct"),
        Mean("flip_share", "changes the decision", of="permissible_only_flips"),
        Mean("tvd_mean", "TVD of the predictions", of="permissible_only_tvd"),
    ),
    cases=_permissible_cases,
    source="Pruthi et al. (2020), table 3",
    place=49,
    chapter="interventions",
    needs=("permissible_only_probs", "probs", "label", "attention"),
    caption="Without the impermissible tokens",
    note="The same texts read whole, and without their impermissible tokens. Accuracy is of those that have a label; TVD: "
    "total variation distance of the two predictions. Undefined: texts without impermissible tokens, or with no other; they "
    "are in no mean.",
    sentences=_permissible_sentences,
)


# ------------------------------------------------------------------------------------------ states, sets and signs


def conicity(cell: Cell) -> dict[str, np.ndarray]:
    """conicity_absolute and conicity_signed: how alike a text's states are, -1..1; NaN below two tokens."""
    return {name: column(cell, name) for name in ("conicity_absolute", "conicity_signed")}


def _conicity_cases(cell: Cell) -> Iterator[Case]:
    values = conicity(cell)
    lengths = np.where(np.isnan(values["conicity_absolute"]), np.nan, cell.lengths)
    yield Case({**values, "orthogonal": 1 / np.sqrt(lengths)})


CONICITY = summary_section(
    "conicity",
    conicity,
    (
        *counts("conicity_absolute"),
        Mean("absolute_mean", "absolute cosine [95 % interval]", of="conicity_absolute", interval=MAIN),
        Median("absolute_median", "median", of="conicity_absolute"),
        Mean("signed_mean", "signed cosine", of="conicity_signed"),
        Mean("orthogonal_mean", "of as many orthogonal states", of="orthogonal", interval=None),
    ),
    cases=_conicity_cases,
    source="Mohankumar et al. (2020), section 3.1",
    place=46,
    needs=("conicity_absolute", "conicity_signed", "probs", "attention"),
    caption="Conicity of states",
    note="Mean over the tokens of a text of the cosine between a token’s state and the mean of all, by its size (as in the "
    "code of Mohankumar et al.) and with its sign; markers and padding are left out. 1: all states point one way, so that "
    "other weights give nearly the same sum. It is never 0 of few tokens: n orthogonal states of one length have 1/√n, the "
    "last column. Undefined: texts of fewer than two tokens; they are in no mean.",
    sentences={
        "text": "The conicity of a text’s states is {row[absolute_mean]:.2f}{interval} on average over {texts}; as "
        "many orthogonal states would have {row[orthogonal_mean]:.2f}. At 1 all point one way, and other weights would give "
        "nearly the same sum. It says nothing of which weights are right.",
        "left_out": "Left out because they have fewer than two tokens: {row[n_undefined]:,}.",
        "nothing": "No text has two tokens, so none has a conicity ({row[n_undefined]:,} undefined).",
    },
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


FROZEN_FLIP_SET = summary_section(
    "frozen_flip_set",
    frozen_flip_set,
    (
        *counts("frozen_flip_tokens"),
        Median("tokens_median", "tokens in the set, median", of="frozen_flip_tokens"),
        Mean("share_mean", "share of the tokens", of="frozen_flip_share"),
        Mean("agreement", "the model agrees [95 % interval]", of="frozen_flip_agrees", interval=MAIN),
        Mean("same_class", "and on the class", of="frozen_flip_same_class"),
        Mean("random_share", "as many at random", of="frozen_flip_random"),
    ),
    source="Modarressi et al. (2023), section 3",
    place=75,
    chapter="interventions",
    needs=("frozen_flip_size", "frozen_flip_class", "frozen_flip_probs", "frozen_flip_random", "probs", "attention"),
    uses=("frozen_flip_set",),
    caption="The fewest tokens that carry the decision",
    note="With attention, divisors and slopes held fixed a logit is a sum of parts of tokens, and the smallest set without "
    "which another class wins is known exactly. The model agrees where its own decision changes when these tokens are taken "
    "away; at random: where as many tokens, drawn by chance, are. Undefined: no set changes the frozen decision, or the "
    "text has no tokens; they are in no mean.",
    sentences={
        "text": "With attention and slopes held fixed, {row[tokens_median]:.0f} tokens carry the decision of a text (median "
        "over {texts}, exact); without them the model itself decides otherwise in {row[agreement]:.0%}{interval}, "
        "without as many at random in {row[random_share]:.0%}.",
        "left_out": "In {undefined} no tokens do.",
        "nothing": "In no text do tokens carry the decision with attention and slopes held fixed ({row[n_undefined]:,} "
        "undefined).",
    },
)


@per_cell
def sign_violations(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """Whether the sign of a measure's first token contradicts what taking that token away does, {measure: {number: [N]}}.

    violated: 1 or 0, NaN where the measure is undefined, or gives every token 0; what has no sign says of its first token
    that it speaks for the class. effect: how far the class's probability falls, -1..1.
    """
    signs, effects = stacked(cell, "sign_violations_signs"), stacked(cell, "sign_violations_effects")
    violated = np.where(np.isnan(signs) | (signs == 0), np.nan, signs * effects < 0)
    names = shared(cell, "sign_violations_measures")
    return {name: {"violated": violated[:, place], "effect": effects[:, place]} for place, name in enumerate(names)}


def _attention_sign(cell: Cell) -> dict[str, np.ndarray]:
    """Whether the sign of attention, which is always plus, is violated."""
    return {"sign_violated_by_attention": sign_violations(cell)["attention"]["violated"]}


def _sign_sentences(cell: Cell) -> list[str]:
    shares = {row["measure"]: row["violated_share"] for row in render.rows(SIGN_VIOLATIONS.table, cell) if row["n"]}
    if not shares:
        return ["No measure has a first token whose sign could be violated."]
    least = min(shares, key=shares.get)
    text = (
        f"The sign of {measure_label(least)} is contradicted by taking its first token away in {shares[least]:.0%} of "
        "the texts, the least of all measures"
    )
    if least != "attention" and "attention" in shares:
        text += f"; attention, read as evidence for the class, in {shares['attention']:.0%}"
    return [f"{text}."]


SIGN_VIOLATIONS = summary_section(
    "sign_violations",
    _attention_sign,
    (
        *counts("violated"),
        Mean("violated_share", "sign violated [95 % interval]", of="violated", interval=MAIN),
        Mean("effect_mean", "fall of the probability", of="effect"),
    ),
    by=(Key("measure", "measure", lambda row: measure_label(row["measure"])),),
    cases=summary_cases(sign_violations, "measure"),
    source="Liu et al. (2022)",
    place=85,
    needs=("sign_violations_measures", "sign_violations_signs", "sign_violations_effects"),
    uses=("importance_*", "attention"),
    caption="Signs that are violated",
    note="Share of texts whose token of largest score is said to speak for the predicted class while the class is more "
    "probable without it, or the other way round. A measure without a sign, and “absolute”, the size of a signed one, say "
    "of every token that it speaks for the class. Undefined: every score is 0, or one is undefined; such texts are in no "
    "mean.",
    sentences=_sign_sentences,
)


# ------------------------------------------------------------------------------------------------- limits of AOPC


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
    names, aopc = shared(cell, f"{removal}_measures"), stacked(cell, f"{removal}_aopc")
    low, high = (column(cell, f"{removal}_{end}") for end in ("low", "high"))
    low_bound, high_bound = (column(cell, f"{removal}_{end}_bound") for end in ("low", "high"))
    certainty = np.array(cell.table.column(f"{removal}_certainty").to_pylist(), dtype=object)
    differ = high - low > ALIKE

    def share(values: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
        return np.divide(values - least, most - least, out=np.full(len(cell), np.nan), where=differ)

    return {
        name: {
            "aopc": aopc[:, place],
            "naopc": share(aopc[:, place], low, high),
            "naopc_low": share(aopc[:, place], low, high_bound),
            "naopc_high": share(aopc[:, place], low_bound, high),
            "low": low,
            "high": high,
            "exact": np.where(np.isnan(low), np.nan, certainty == "exact"),
        }
        for place, name in enumerate(names)
    }


def _normalised_aopc(cell: Cell) -> dict[str, np.ndarray]:
    """naopc_<measure>, of tokens taken away, and weight_naopc_<measure>: by the orders that were met, 0..1."""
    numbers = {}
    for removal in REMOVALS:
        for name, values in aopc_limits(cell, removal).items():
            numbers[f"{removal.removesuffix('aopc_limits')}naopc_{name}"] = values["naopc"]
    return numbers


def _aopc_cases(cell: Cell) -> Iterator[Case]:
    for removal in REMOVALS:
        for name, values in aopc_limits(cell, removal).items():
            yield Case(values, {"removal": removal, "scores": name})


def _aopc_sentences(cell: Cell) -> Iterator[str]:
    for removal, words in REMOVALS.items():
        rows = [row for row in render.rows(AOPC_LIMITS.table, cell) if row["removal"] == removal]
        defined = [row for row in rows if row["n"]]
        if not defined:
            if rows:
                yield f"No text has orders that differ ({words})."
            continue
        defined.sort(key=lambda row: -row["naopc_mean"])
        shares = ", ".join(f"{measure_label(row['scores'])} {row['naopc_mean']:.2f}" for row in defined)
        with_limits = int((~np.isnan(column(cell, f"{removal}_low"))).sum())
        yield (
            f"Between the worst order (0) and the best one (1) that were met, with {words}: {shares}; limits "
            f"are exact in {rows[0]['share_exact']:.0%} of {counted(with_limits)}."
        )


AOPC_LIMITS = summary_section(
    "aopc_limits",
    _normalised_aopc,
    (
        *counts("naopc"),
        Mean("naopc_mean", "normalised AOPC [95 % interval]", of="naopc", interval=MAIN),
        Mean("naopc_low_mean", "certainly from", of="naopc_low", interval=None),
        Mean("naopc_high_mean", "to", of="naopc_high", interval=None),
        Mean("aopc_mean", "AOPC", of="aopc"),
        Mean("low_mean", "worst order met", of="low", interval=None),
        Mean("high_mean", "best order met", of="high", interval=None),
        Mean("share_exact", "limits exact", of="exact", interval=None),
    ),
    by=(
        Key("removal", "removal", lambda row: REMOVALS[row["removal"]]),
        Key("scores", "order of", lambda row: measure_label(row["scores"])),
    ),
    cases=_aopc_cases,
    source="Edin et al. (2025), Normalized AOPC",
    place=81,
    one_of=("aopc_limits_aopc", "weight_aopc_limits_aopc"),
    uses=("aopc_limits_*", "weight_aopc_limits_*"),
    caption="AOPC between its limits",
    note="AOPC: mean fall of the probability of the predicted class while one token after the other goes, in a measure’s "
    "order. Normalised: 0 for the worst order of the text’s tokens that was met, 1 for the best. Where limits are not "
    "exact, an order that was not met may be worse or better: certainly from … to are the means of what the proved bounds "
    "leave. Undefined: texts without limits, such as those of one token, and measures that are.",
    sentences=_aopc_sentences,
)
