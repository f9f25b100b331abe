"""What erasing attention weights changed, from the columns of `erasure` and `minimal_flip_set`.

One weight: i* is the weight that a ranking puts first (the earlier one on ties), r a random other one; p without a weight is
the prediction with it set to 0 and the rest renormalised. Several weights: how many are removed, by decreasing rank, until
the decision first changes. Both are undefined for a text of fewer than two tokens. Source: Serrano & Smith (2019).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.erased_weights import RANKINGS, Removal, outcomes, removals, single_weight
from attnfaith.reporting.figures import grid_behind, ranges, ranges_in_words
from attnfaith.reporting.spec import Drawing, Row, Section, Table, bin_of, main, per_cell, plain, share
from attnfaith.reporting.style import PALETTE, mean_in_words, own_style, titled_figure
from attnfaith.stats import estimate
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {"random": "random order", **RANKINGS, "minimum": "smallest set"}
EDGES = (0.0, 0.25, 0.5, 0.75)  # of a_i* - a_r
BINS = ("below 0", "[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
OUTCOMES = {"both": "both", "only_top": "only i*", "only_random": "only r", "neither": "neither"}
SINGLE, DECISIONS, MULTI = "erasure_single_weight", "erasure_decision_flips", "erasure_multi_weight"


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
    every = {ranking: removal for (ranking, how), removal in removals(cell).items() if how == "renormalised"}
    minimum = every.pop("minimum", None)
    for ranking, removal in every.items():
        numbers[f"erasure_flip_fraction_{ranking}"] = removal.size / np.maximum(cell.lengths, 1)
        if minimum:
            numbers[f"erasure_flip_ratio_{ranking}"] = removal.size / minimum.size
    if minimum:
        numbers["minimal_flip_fraction"] = minimum.size / np.maximum(cell.lengths, 1)
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
    asked, every = cell.lengths > 1, removals(cell)
    minimum = every.get(("minimum", "renormalised"))
    for (ranking, how), removal in every.items():
        fraction = fractions(cell, removal)
        never = asked & np.isnan(fraction)
        ratio = np.full(len(cell), np.nan)
        if minimum is not None and how == "renormalised" and ranking != "minimum":
            ratio = np.where(asked, removal.size / minimum.size, np.nan)
        exact = np.full(len(cell), np.nan)
        if ranking == "minimum":
            exact = np.where(asked, np.array(cell.table.column("minimal_flip_certainty").to_pylist()) == "exact", np.nan)
        row = {"ranking": ranking, "removal": how, "n": int(asked.sum()), **_left_out(cell), "n_never": int(never.sum())}
        row |= {"n_averaged": int((~np.isnan(fraction)).sum())} | main("fraction_mean", fraction)
        row |= estimate("fraction_median", fraction, np.median)
        row |= estimate("censored_median", np.where(never, 1.0, fraction), np.median)
        row |= estimate("share_empty", np.where(asked, removal.empty, np.nan))
        row |= estimate("mass_mean", np.where(asked, removal.mass, np.nan))
        yield row | {"n_ratio": int((~np.isnan(ratio)).sum())} | estimate("ratio_mean", ratio) | plain(share_exact=exact)


def _decision_grid(df: pd.DataFrame, cells: Sequence[Cell]) -> Grid:
    keys, rows = differing(df, CELL), []
    for _, part in df.groupby([*CELL, "ranking"], sort=False, dropna=False):
        shares = {row["outcome"]: row for row in part.to_dict("records")}
        first, texts = shares["both"], (_percent_with_interval(shares[name]) for name in OUTCOMES)
        numbers = (f"{first['n']:,}", f"{first['n_undefined']:,}")
        rows.append((*(str(first[name]) for name in keys), LABELS[first["ranking"]], *numbers, *texts))
    note = (
        "Does the decision change without the first weight of the ranking (i*), without a random other one (r)? Percent of "
        "texts [95 % interval]. Only i* speaks for the ranking, only r against it. Undefined: texts with fewer than two "
        "tokens."
    )
    columns = (*keys, "i* first by", "texts", "undefined", *OUTCOMES.values())
    return Grid(
        "Decisions that change with one weight removed", columns, tuple(rows), len(keys) + 1, note, f"tables/{DECISIONS}"
    )


def _percent_with_interval(row: Row) -> str:
    if np.isnan(row["share"]):
        return "undefined"
    interval = "" if np.isnan(row["ci_low"]) else f" [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]"
    return f"{100 * row['share']:.1f}{interval}"


def _multi_note(df: pd.DataFrame) -> str:
    note = (
        "Share of a text's tokens whose weight is removed, the rest renormalised, until the decision first changes; over "
        "the texts whose decision changes, and in the censored median with 1 for those where it never does. Bias decides: "
        "texts whose decision changes only when no weight is left. Over smallest set: tokens removed, as a multiple of the "
        "fewest that are enough. Undefined: texts with fewer than two tokens."
    )
    inexact = df["share_exact"].dropna()
    if inexact.lt(1).any():
        note += f" Smallest sets proven smallest: {inexact.min():.0%} at least in each row; the others are the best found."
    return note


def _ranking(row: Row) -> str:
    return LABELS[row["ranking"]] + (", re-projected" if row.get("removal") == "reprojected" else "")


TABLES = (
    Table(
        name=SINGLE,
        rows=_single_rows,
        heads=2,
        shown={
            "ranking": ("i* first by", _ranking),
            "weight_difference": "attention on i* − on r",
            "n": "texts",
            "n_undefined": ("undefined", lambda row: f"{row['n_undefined']:,}" if row["weight_difference"] == "all" else ""),
            "delta_jsd_mean": "mean [95 % interval]",
            "share_negative": "share below 0",
        },
        caption="One weight removed",
        note="How much further the prediction moves (Jensen–Shannon divergence, nats, at most 0.693) without the "
        "weight that the ranking puts first (i*) than without a random other one (r). Below 0: the random one mattered "
        "more. Undefined: texts with fewer than two tokens.",
        page_rows=lambda df: df[(df["weight_difference"] == "all") | (df["n"] > 0)],
    ),
    Table(name=DECISIONS, rows=_decision_rows, grid=_decision_grid),
    Table(
        name=MULTI,
        rows=_multi_rows,
        shown={
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
        },
        caption="Weights removed until the decision changes",
        note=_multi_note,
    ),
)
"""n: texts a number is over; n_undefined: texts with fewer than two tokens, n_length1 of them with one. ci_low, ci_high: 95
% interval of the mean or share before them.

"erasure_single_weight": one row per cell x ranking x weight_difference ("all", then bins of a_i* - a_r). delta_jsd_mean:
mean of JSD(p, p without i*) - JSD(p, p without r), nats, in -ln 2..ln 2. share_negative: texts in which the random weight
mattered more. "erasure_decision_flips": one row per cell x ranking x outcome; share: texts of each of the `outcomes`.

"erasure_multi_weight": one row per cell x ranking (also random and minimum) x removal. n_never: texts whose decision never
changes. fraction_mean, fraction_median: share of the text's tokens removed, over n_averaged texts; censored_median: the
median over n with 1 for those that never change. share_empty: texts whose decision changes only when no weight is left, of
n. mass_mean: attention removed, over texts whose decision changes. ratio_mean: tokens removed over the size of the smallest
set, n_ratio texts. share_exact: of the smallest sets those proven smallest.
"""


# ---------- figures


@own_style
def single_weight_scatter(cell: Cell) -> "Figure":
    """JSD(p, p without i*) - JSD(p, p without r) of each text against a_i* - a_r, a panel per ranking that i* is first of.

    Above the line the ranked weight mattered more, below it the random one. Source: Serrano & Smith (2019), section 4.
    """
    from matplotlib.ticker import MaxNLocator

    figure = titled_figure("One weight removed: the first of a ranking or a random one", cell, 9.0, 3.5)
    panels = figure.subplots(1, len(RANKINGS), sharex=True, sharey=True)
    for axes, (ranking, label), colour in zip(panels, RANKINGS.items(), PALETTE, strict=False):
        test = single_weight(cell, ranking)
        axes.set_title(f"{label}\n{mean_in_words(test.delta)}", fontsize=10)
        axes.axhline(0, color="#777777", linewidth=1)
        # as pixels inside the SVG: thousands of points would make the file heavy
        axes.scatter(test.difference, test.delta, s=8, color=colour, alpha=0.35, linewidths=0, rasterized=True)
        grid_behind(axes, "both").xaxis.set_major_locator(MaxNLocator(4))
    panels[0].set_ylabel("JSD without i* − JSD without r (nats)")
    panels[1].set_xlabel("attention on i* − attention on r")
    return figure


def _scatter_words(cell: Cell) -> tuple[str, str]:
    parts = [f"{label}: {mean_in_words(single_weight(cell, ranking).delta)}" for ranking, label in RANKINGS.items()]
    caption = (
        "How much further the prediction moves when the weight that a ranking puts first (i*) is removed than when a "
        "random other one (r) is, by how much more attention i* had. Below 0 the random weight mattered more."
    )
    return f"Scatter plots, one point per text. {'; '.join(parts)}.", caption


def _removed(cell: Cell) -> dict[str, np.ndarray]:
    """The share removed of each text by label, renormalised before re-projected."""
    every = removals(cell)
    keys = [key for name in LABELS for key in every if key[0] == name]
    return {_ranking({"ranking": name, "removal": how}): fractions(cell, every[name, how]) for name, how in keys}


def multi_weight_ranges(cell: Cell) -> "Figure":
    """Share of a text's tokens whose weight is removed until the decision first changes, a line per ranking.

    A change when no weight is left counts; texts whose decision never changes are undefined. Source: Serrano & Smith (2019),
    section 5.
    """
    title, axis = "Weights removed until the decision changes", "share of the text's tokens removed (undefined: never)"
    return ranges(cell, title, _removed(cell), (0, 1.02), axis)


def _removed_words(cell: Cell) -> tuple[str, str]:
    caption = (
        "Weights set to 0 by decreasing rank, the rest renormalised, until the decision first changes: the fewer, the "
        "better the ranking knows what the decision rests on. Texts whose decision never changes are not drawn."
    )
    return f"Share of tokens removed until the decision changes. {ranges_in_words(_removed(cell))}.", caption


# ---------- sentences


def _sentences(cell: Cell) -> list[str]:
    n, undefined = int((cell.lengths > 1).sum()), int((cell.lengths < 2).sum())
    if not n:
        return [f"No text has two tokens, so no weight could be removed ({undefined:,} undefined)."]
    shares = {name: np.nanmean(happened) for name, happened in outcomes(single_weight(cell, "attention")).items()}
    first = (
        f"Removing the largest attention weight changes the decision where removing a random other one does not in "
        f"{shares['only_top']:.1%} of {counted(n)}; the reverse holds in {shares['only_random']:.1%}, and in "
        f"{shares['neither']:.1%} neither changes it."
    )
    if undefined:
        first += f" Left out because they have fewer than two tokens: {undefined:,}."
    every = {ranking: removal for (ranking, how), removal in removals(cell).items() if how == "renormalised"}
    parts = [_removed_sentence(cell, ranking, every[ranking]) for ranking in LABELS if ranking in every]
    second = f"Weights removed one after the other until the decision changes: {'; '.join(parts)}."
    ratio = per_text(cell).get("erasure_flip_ratio_attention", np.zeros(0))
    ratio = ratio[~np.isnan(ratio)]
    if len(ratio):
        second += (
            f" Removal by attention takes {ratio.mean():.1f} times as many weights as the smallest set that is known to "
            f"be enough (n = {len(ratio):,})."
        )
    return [first, second]


def _removed_sentence(cell: Cell, ranking: str, removal: Removal) -> str:
    fraction = fractions(cell, removal)
    fraction = fraction[~np.isnan(fraction)]
    by = {"minimum": "the smallest set", "random": "in random order"}.get(ranking, f"by {LABELS[ranking]}")
    never = int((cell.lengths > 1).sum()) - len(fraction)
    if not len(fraction):
        return f"{by}, no decision changes"
    return f"{by} {fraction.mean():.0%} on average" + (f" ({never:,} never change)" if never else "")


SECTION = Section(
    name="erasure",
    source="Serrano & Smith (2019)",
    place=70,
    chapter="interventions",
    needs=("probs", "attention", "erasure_probs", "erasure_gradient", "erasure_order", "erasure_flip_size_attention"),
    uses=("erasure_*", "minimal_flip_*"),
    per_text=per_text,
    tables=TABLES,
    figures=(
        Drawing(SINGLE, single_weight_scatter, _scatter_words),
        Drawing(MULTI, multi_weight_ranges, _removed_words),
    ),
    sentences=_sentences,
)
