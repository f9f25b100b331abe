"""Changes of the prediction when attention weights are erased, from the columns of `erasure` and `minimal_flip_set`.

i*, r: the weight that a ranking puts first, the earlier one on ties, and a random other one; p without a weight is the
prediction with it set to 0 and the rest renormalised. Several weights are removed by decreasing rank until the decision
first changes. Undefined for a text of fewer than two tokens. N: texts of a cell. Source: Serrano & Smith (2019).
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, jensen_shannon_divergence
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.figures import drawing, ranges
from attnfaith.reporting.spec import Row, Section, Table, bin_of, main, per_cell, plain, share
from attnfaith.stats import estimate
from attnfaith.support.errors import counted


RANKINGS = {"attention": "attention", "gradient": "gradient", "attention_gradient": "attention × gradient"}
OUTCOMES = {"both": "both", "only_top": "only i*", "only_random": "only r", "neither": "neither"}
LABELS = {"random": "random order", **RANKINGS, "minimum": "smallest set"}
EDGES = (0.0, 0.25, 0.5, 0.75)  # of a_i* - a_r
BINS = ("below 0", "[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")


# ---------- numbers per text


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
    probs, gradients, orders = (cell.rows(f"erasure_{name}") for name in ("probs", "gradient", "order"))
    without_top, without_random, difference = [None] * len(cell), [None] * len(cell), np.full(len(cell), np.nan)
    for row in np.flatnonzero(cell.lengths > 1):
        weights, order = cell.attention[row].astype(np.float64), orders[row][0]
        scores = {"attention": weights, "gradient": gradients[row], "attention_gradient": weights * gradients[row]}
        top = int(scores[ranking].argmax())
        other = int(order[0] if order[0] != top else order[1])
        without_top[row], without_random[row] = probs[row][top], probs[row][other]
        difference[row] = weights[top] - weights[other]
    top, other = (jensen_shannon_divergence(cell.probs, without) for without in (without_top, without_random))
    flips = (decision_flips(cell.probs, without) for without in (without_top, without_random))
    return SingleWeight(top - other, difference, *flips)


@per_cell
def removals(cell: Cell) -> dict[str, Removal]:
    """Where the decision first changes, by ranking.

    "random" is the first random order. "minimum", the smallest set, is there where the record holds it.
    """
    starts = {ranking: ("erasure_flip_", f"_{ranking}") for ranking in ("random", *RANKINGS)}
    if cell.has("minimal_flip_size"):
        starts["minimum"] = ("minimal_flip_", "")
    results = {}
    for ranking, (start, end) in starts.items():
        size, mass, empty = (first_draws(cell, start + part + end) for part in Removal._fields)
        results[ranking] = Removal(size, mass, empty == 1)
    return results


def first_draws(cell: Cell, name: str) -> np.ndarray:
    """A column as [N] float64: the first draw of those with draws, NaN without any."""
    if name.endswith("_random"):
        return np.array([row[0] if len(row) else np.nan for row in cell.rows(name)], dtype=np.float64)
    return cell.column(name)


def outcomes(test: SingleWeight) -> dict[str, np.ndarray]:
    """Whether each outcome is a text's, [N] 1 or 0, NaN where undefined: whether its decision changes without i* and without
    r (both), only without i* (only_top), only without r (only_random), or in neither case.
    """
    top, other = test.top_flips == 1, test.random_flips == 1
    results = {"both": top & other, "only_top": top & ~other, "only_random": ~top & other, "neither": ~top & ~other}
    return {name: np.where(np.isnan(test.delta), np.nan, happened) for name, happened in results.items()}


def fractions(cell: Cell, removal: Removal) -> np.ndarray:
    """Share of a text's tokens removed until its decision changes, [N]; NaN where it never does, and below two tokens."""
    return np.where(cell.lengths > 1, removal.size / np.maximum(cell.lengths, 1), np.nan)


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """<ranking>: attention, gradient, attention_gradient (and random where r is not needed).

    erasure_delta_jsd_<ranking>: JSD(p, p without i*) - JSD(p, p without r), nats. erasure_flip_fraction_<ranking>: share of
    tokens removed until the decision changes, in 0..1. With the smallest set in the record, minimal_flip_fraction, its share
    of the tokens, and erasure_flip_ratio_<ranking>: tokens removed over the smallest number that is enough, >= 1. NaN where
    undefined or the decision never changes.
    """
    numbers = {f"erasure_delta_jsd_{ranking}": single_weight(cell, ranking).delta for ranking in RANKINGS}
    results = dict(removals(cell))
    minimum = results.pop("minimum", None)
    for ranking, removal in results.items():
        numbers[f"erasure_flip_fraction_{ranking}"] = fractions(cell, removal)
        if minimum:
            numbers[f"erasure_flip_ratio_{ranking}"] = removal.size / minimum.size
    if minimum:
        numbers["minimal_flip_fraction"] = fractions(cell, minimum)
    return numbers


# ---------- tables


def _left_out(cell: Cell) -> dict[str, int]:
    return {"n_length1": int((cell.lengths == 1).sum()), "n_undefined": int((cell.lengths < 2).sum())}


def _single_rows(cell: Cell) -> Iterator[Row]:
    for ranking in RANKINGS:
        test = single_weight(cell, ranking)
        place = bin_of(test.difference, EDGES)
        parts = {"all": np.ones(len(cell), bool)} | {label: place == number for number, label in enumerate(BINS)}
        for label, members in parts.items():
            delta = test.delta[members]
            row = {"ranking": ranking, "weight_difference": label, "n": int((~np.isnan(delta)).sum()), **_left_out(cell)}
            yield row | main("delta_jsd_mean", delta) | estimate("share_negative", share(delta, below=0))


def _decision_rows(cell: Cell) -> Iterator[Row]:
    for ranking in RANKINGS:
        for name, happened in outcomes(single_weight(cell, ranking)).items():
            row = {"ranking": ranking, "outcome": name, "n": int((~np.isnan(happened)).sum()), **_left_out(cell)}
            yield row | main("share", happened)


def _multi_rows(cell: Cell) -> Iterator[Row]:
    defined, results, undefined = cell.lengths > 1, removals(cell), np.full(len(cell), np.nan)
    minimum = results.get("minimum")
    for ranking, removal in results.items():
        fraction = fractions(cell, removal)
        never = defined & np.isnan(fraction)
        ratio, exact = undefined, undefined
        if ranking == "minimum":
            exact = np.array(cell.table.column("minimal_flip_certainty").to_pylist()) == "exact"
        elif minimum is not None:
            ratio = removal.size / minimum.size
        row = {"ranking": ranking, "n": int(defined.sum()), **_left_out(cell), "n_never": int(never.sum())}
        row |= {"n_averaged": int((~np.isnan(fraction)).sum())} | main("fraction_mean", fraction)
        row |= estimate("fraction_median", fraction, np.median)
        row |= estimate("censored_median", np.where(never, 1.0, fraction), np.median)
        row |= estimate("share_empty", np.where(defined, removal.empty, np.nan))
        row |= estimate("mass_mean", np.where(defined, removal.mass, np.nan))
        ratio = np.where(defined, ratio, np.nan)
        row |= {"n_ratio": int((~np.isnan(ratio)).sum())} | estimate("ratio_mean", ratio)
        yield row | plain(share_exact=np.where(defined, exact, np.nan))


def _ranking(row: Row) -> str:
    return LABELS[row["ranking"]]


TABLES = (
    Table(
        name="erasure_single_weight",
        rows=_single_rows,
        heads=2,
        headings={
            "ranking": ("i* first by", _ranking),
            "weight_difference": "attention on i* − on r",
            "n": "texts",
            "n_undefined": "undefined",
            "delta_jsd_mean": "mean [95 % interval]",
            "share_negative": "share below 0",
        },
        caption="One weight removed",
        note="How much further the prediction moves (Jensen–Shannon divergence, nats, at most 0.693) without the "
        "weight that the ranking puts first (i*) than without a random other one (r). Below 0: the random one mattered "
        "more. Undefined: texts with fewer than two tokens.",
        page_rows=lambda df: df[(df["weight_difference"] == "all") | (df["n"] > 0)],
    ),
    Table(
        name="erasure_decision_flips",
        rows=_decision_rows,
        heads=2,
        headings={
            "ranking": ("i* first by", _ranking),
            "outcome": ("decision changes without", lambda row: OUTCOMES[row["outcome"]]),
            "n": "texts",
            "n_undefined": "undefined",
            "share": "share [95 % interval]",
        },
        caption="Decisions that change with one weight removed",
        note="Whether the decision changes without the first weight of the ranking (i*), and without a random other (r). "
        "Only i* speaks for the ranking, only r against it. Undefined: texts with fewer than two tokens.",
    ),
    Table(
        name="erasure_multi_weight",
        rows=_multi_rows,
        headings={
            "ranking": ("removed by", _ranking),
            "n": "texts",
            "n_undefined": "undefined",
            "n_never": "never",
            "fraction_mean": "mean [95 % interval]",
            "fraction_median": "median",
            "censored_median": "censored median",
            "share_empty": "bias decides",
            "mass_mean": "attention removed",
            "ratio_mean": "over smallest set",
            "share_exact": "proven smallest",
        },
        caption="Weights removed until the decision changes",
        note="Share of a text's tokens whose weight is removed, the rest renormalised, until the decision first changes; "
        "over the texts whose decision changes, and in the censored median with 1 for those where it never does. Bias "
        "decides: texts whose decision changes only when no weight is left. Over smallest set: as a multiple of "
        "the fewest that are enough. Proven smallest: the share of these sets; the others are the best found. Undefined: "
        "texts with fewer than two tokens.",
    ),
)
"""n: texts a number is over; n_undefined: texts with fewer than two tokens, n_length1 of them with one. ci_low, ci_high: 95
% interval of the mean or share before them.

"erasure_single_weight": one row per cell x ranking x weight_difference ("all", then bins of a_i* - a_r). delta_jsd_mean:
mean of JSD(p, p without i*) - JSD(p, p without r), nats, in -ln 2..ln 2. share_negative: texts in which the random weight
mattered more. "erasure_decision_flips": one row per cell x ranking x outcome; share: texts of each of the `outcomes`.

"erasure_multi_weight": one row per cell x ranking (also random and minimum). n_never: texts whose decision never
changes. fraction_mean, fraction_median: share of the text's tokens removed, over n_averaged texts; censored_median: the
median over n with 1 for those that never change. share_empty: texts whose decision changes only when no weight is left, of
n. mass_mean: attention removed, over texts whose decision changes. ratio_mean: tokens removed over the size of the smallest
set, n_ratio texts. share_exact: of the smallest sets those proven smallest.
"""


# ---------- figure and sentences


def _removed(cell: Cell) -> dict[str, np.ndarray]:
    """The share removed of each text by label."""
    results = removals(cell)
    return {label: fractions(cell, results[name]) for name, label in LABELS.items() if name in results}


def _sentences(cell: Cell) -> Iterator[str]:
    n, undefined = int((cell.lengths > 1).sum()), int((cell.lengths < 2).sum())
    if not n:
        yield f"No text has two tokens, so no weight could be removed ({undefined:,} undefined)."
        return
    shares = {name: np.nanmean(happened) for name, happened in outcomes(single_weight(cell, "attention")).items()}
    yield (
        f"Removing the largest attention weight changes the decision where removing a random other one does not in "
        f"{shares['only_top']:.1%} of {counted(n)}; the reverse holds in {shares['only_random']:.1%}, and in "
        f"{shares['neither']:.1%} neither changes it."
        + (f" Left out because they have fewer than two tokens: {undefined:,}." if undefined else "")
    )
    parts = []
    for label, fraction in _removed(cell).items():
        never = n - int((~np.isnan(fraction)).sum())
        mean = "never" if never == n else f"{np.nanmean(fraction):.0%}"
        parts.append(f"{label} {mean}" + (f" ({never:,} never change)" if 0 < never < n else ""))
    yield f"Share of weights removed until the decision changes, on average: {'; '.join(parts)}."


SECTION = Section(
    name="erasure",
    source="Serrano & Smith (2019)",
    place=70,
    chapter="interventions",
    needs=("probs", "attention", "erasure_probs", "erasure_gradient", "erasure_order", "erasure_flip_size_attention"),
    uses=("erasure_*", "minimal_flip_*"),
    per_text=per_text,
    tables=TABLES,
    figure=drawing(
        "erasure_multi_weight",
        partial(ranges, bounds=(0, 1.02)),
        "Weights removed until the decision changes",
        _removed,
        "share of the text's tokens removed (undefined: never)",
        alt="Share of tokens removed until the decision changes.",
        caption="Weights set to 0 by decreasing rank, the rest renormalised, until the decision first changes: the fewer, "
        "the better the ranking knows what the decision rests on. Texts whose decision never changes are not drawn.",
    ),
    sentences=_sentences,
)
