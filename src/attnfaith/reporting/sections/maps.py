"""Interventions on the attention maps of a stack of layers: permuted, uniform, erased, and furthest by a search.

Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.erased_weights import RANKINGS, first_draws
from attnfaith.reporting.explanation_tests import column, stacked
from attnfaith.reporting.sections.permutation import changes
from attnfaith.reporting.spec import (
    MAIN,
    Case,
    Classes,
    Column,
    Count,
    Key,
    Largest,
    Mean,
    Median,
    Share,
    counts,
    per_cell,
    summary_section,
)


# ---------------------------------------------------------------------------------------------- permuted and uniform


PERMUTED, UNIFORM = "map_permuted_probs", "map_uniform_probs"
LABELS = {"map_permutation": "permuted", "map_uniform": "uniform"}
WORDS = {"map_permutation": "Permuting the weights on tokens", "map_uniform": "Dividing weight equally among tokens"}


@per_cell
def map_interventions(cell: Cell) -> dict[str, np.ndarray]:
    """map_permutation_tvd and map_permutation_flips, as those of `permutation`; map_uniform_tvd and map_uniform_flips."""
    numbers, names = {}, cell.table.column_names
    if PERMUTED in names:
        numbers["map_permutation_tvd"], numbers["map_permutation_flips"] = changes(cell, PERMUTED)
    if UNIFORM in names:
        probs, short = stacked(cell, UNIFORM), cell.lengths < 2
        numbers["map_uniform_tvd"] = np.where(short, np.nan, total_variation_distance(cell.probs, probs))
        numbers["map_uniform_flips"] = np.where(short, np.nan, decision_flips(cell.probs, probs))
    return numbers


def _intervention_cases(cell: Cell) -> Iterator[Case]:
    values = map_interventions(cell)
    for name in LABELS:
        if f"{name}_tvd" in values:
            yield Case({"tvd": values[f"{name}_tvd"], "flips": values[f"{name}_flips"]}, {"maps": name})


def _intervention_sentences(cell: Cell) -> Iterator[str]:
    for row in render.rows(MAP_INTERVENTIONS.table, cell):
        if row["class"] != "overall":
            continue
        if not row["n"]:
            yield f"No text has two tokens, so attention maps stay as they are ({len(cell):,} undefined)."
            continue
        median = "a median" if row["maps"] == "map_permutation" else "a"
        text = (
            f"{WORDS[row['maps']]} in all heads of the changed layers moves the prediction by {median} total variation "
            f"distance of {row['tvd_mean']:.3f} on average over {counted(row['n'])}, in {row['share_below_0.05']:.0%} of "
            f"them by less than 0.05, and changes {row['flip_share']:.1%} of the decisions."
        )
        if row["n_undefined"]:
            text += f" Left out for want of two tokens: {row['n_undefined']:,}."
        yield text


MAP_INTERVENTIONS = summary_section(
    "map_interventions",
    map_interventions,
    (
        *counts("tvd"),
        Mean("tvd_mean", "mean TVD [95 % interval]", of="tvd", interval=MAIN),
        Median("tvd_median", "median", of="tvd"),
        Share("share_below_0.05", "share below .05", of="tvd", below=0.05),
        Share("share_below_0.01", "share below .01", of="tvd", below=0.01),
        Mean("flip_share", "flip the decision", of="flips"),
    ),
    by=(Key("maps", "attention maps", lambda row: LABELS[row["maps"]]), Classes()),
    cases=_intervention_cases,
    source="Jain & Wallace (2019), section 4.2.1, for one attention; here for the maps of a stack of layers",
    place=51,
    chapter="interventions",
    needs=("probs", "attention"),
    one_of=(PERMUTED, UNIFORM),
    caption="Other attention maps",
    note="Total variation distance between the prediction and the prediction with other attention maps, all that follows "
    "them computed anew: 0 no change, 1 another decision with certainty. Permuted: the weights on tokens in another order, "
    "the same in all rows and heads of the changed layers; the median over the draws. Uniform: each row divides what it "
    "gives tokens equally. Undefined: texts of fewer than two tokens; they are in no mean.",
    sentences=_intervention_sentences,
)


# ------------------------------------------------------------------------------------------------------------ erased


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


def _erasure_cases(cell: Cell) -> Iterator[Case]:
    numbers, long_enough = map_erasure(cell), cell.lengths > 1
    for ranking in ORDERS:
        fraction = numbers[f"map_erasure_flip_fraction_{ranking}"]
        never = long_enough & np.isnan(fraction)
        values = {
            "tvd": numbers[f"map_erasure_tvd_{ranking}"],
            "flips": numbers[f"map_erasure_top_flips_{ranking}"],
            "fraction": fraction,
            "mass": numbers[f"map_erasure_mass_{ranking}"],
            "censored": np.where(long_enough, np.where(never, 1, fraction), np.nan),
        }
        yield Case(values, {"ranking": ranking}, {"n_never": int(never.sum())})


def _erasure_sentences(cell: Cell) -> list[str]:
    rows = {row["ranking"]: row for row in render.rows(MAP_ERASURE.table, cell)}
    if not rows["attention"]["n"]:
        return [f"No text has two tokens, so no token could be erased ({len(cell):,} undefined)."]
    parts = []
    for ranking, label in ORDERS.items():
        row = rows[ranking]
        by = "in random order" if ranking == "random" else f"by {label}"
        if row["n_averaged"]:
            never = f" ({row['n_never']:,} never change)" if row["n_never"] else ""
            parts.append(f"{by} {row['fraction_mean']:.0%} on average{never}")
        else:
            parts.append(f"{by}, no decision changes")
    return [
        "Without any weight on the token with most attention the prediction moves by a total variation distance of "
        f"{rows['attention']['tvd_mean']:.3f} on average over {counted(rows['attention']['n'])}; without any on a token "
        f"drawn at random by {rows['random']['tvd_mean']:.3f}.",
        f"Tokens erased one after the other until the decision changes: {'; '.join(parts)}.",
    ]


MAP_ERASURE = summary_section(
    "map_erasure",
    map_erasure,
    (
        *counts("tvd"),
        Mean("tvd_mean", "TVD without the first [95 % interval]", of="tvd", interval=MAIN),
        Share("share_below_0.05", "below .05", of="tvd", below=0.05),
        Mean("flip_share", "changes the decision", of="flips"),
        Column("n_never", "never"),
        Count("n_averaged", of="fraction"),
        Mean("fraction_mean", "share erased until it changes", of="fraction", dash=True),
        Median("censored_median", "censored median", of="censored", dash=True),
        Mean("mass_mean", "attention on them", of="mass", dash=True),
    ),
    by=(Key("ranking", "erased by", lambda row: ORDERS[row["ranking"]]),),
    cases=_erasure_cases,
    source="Serrano & Smith (2019), for one attention; here for the maps of a stack of layers",
    place=71,
    chapter="interventions",
    needs=("probs", "attention", "map_erasure_probs", "map_erasure_order", "map_erasure_flip_size_attention"),
    uses=("map_erasure_*",),
    caption="Tokens erased from attention maps",
    note="A token is erased where no row of the changed layers has weight on it. First: how far the prediction moves (total "
    "variation distance) without the token that the order puts first, and how often the decision changes. Then: share of a "
    "text’s tokens erased until the decision first changes, over the texts whose decision does; in the censored median with "
    "1 for those whose decision never does, whose number is under never. Undefined: texts of fewer than two tokens.",
    sentences=_erasure_sentences,
)


# --------------------------------------------------------------------------------------------------------- adversary


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


MAP_ADVERSARY = summary_section(
    "map_adversary",
    map_adversary,
    (
        *counts("map_adversary_jsd"),
        Mean("jsd_mean", "mean JSD reached [95 % interval]", of="map_adversary_jsd", interval=MAIN),
        Median("jsd_median", "median", of="map_adversary_jsd"),
        Share("share_above_half", "more than half of ln 2", of="map_adversary_jsd", above=np.log(2) / 2),
        Mean("tvd_mean", "mean TVD of attentions", of="map_adversary_tvd"),
        Mean("change_mean", "mean change of the prediction", of="map_adversary_change"),
        Largest("change_max", "largest", of="map_adversary_change"),
    ),
    source="Jain & Wallace (2019), section 4.2.2, for one attention; here for the maps of a stack of layers",
    place=61,
    chapter="interventions",
    needs=("probs", "attention", "map_adversary_attention", "map_adversary_jsd", "map_adversary_change"),
    caption="Adversarial attention maps",
    note="Jensen–Shannon divergence (nats, at most 0.693) between the attention that is shown and what would be shown under "
    "other maps that keep the prediction within the epsilon of the search; and the change of the prediction that was "
    "measured. A search met them: others may be further. Undefined: texts of fewer than two tokens.",
    sentences={
        "text": "Other attention maps were met that would show an attention {row[jsd_mean]:.3f} nats away on average over "
        "{texts}{interval}, at most 0.693, and change the prediction by no more than {row[change_max]:.3f} (total "
        "variation distance); others may be further.",
        "left_out": "Left out for want of two tokens: {row[n_undefined]:,}.",
        "nothing": "No text has two tokens, so there is no other attention ({row[n_undefined]:,} undefined).",
    },
)
