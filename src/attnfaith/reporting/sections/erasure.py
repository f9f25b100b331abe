"""What erasing attention weights changed, from the columns of `erasure` and `minimal_flip_set`.

One weight: i* is the weight that a ranking puts first (the earlier one on ties), r a random other one; p without a weight is
the prediction with it set to 0 and the rest renormalised. Several weights: how many are removed, by decreasing rank, until
the decision first changes. Both are undefined for a text of fewer than two tokens. Source: Serrano & Smith (2019).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.errors import counted
from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.erased_weights import (
    RANKINGS,
    Removal,
    SingleWeight,
    check_reference,
    outcomes,
    removals,
    single_weight,
)
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.figures import Drawn
from attnfaith.reporting.spec import MAIN, Bins, Case, Column, Count, Key, Mean, Median, Row, Section, Share, Table, per_cell
from attnfaith.reporting.style import PALETTE, note, own_style, titled_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {"random": "random order", **RANKINGS, "minimum": "smallest set"}
COLOURS = dict(zip(LABELS, (PALETTE[6], PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[2]), strict=True))
EDGES = (0.0, 0.25, 0.5, 0.75)  # of a_i* - a_r
BINS = ("below 0", "[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
OUTCOMES = {"both": "both", "only_top": "only i*", "only_random": "only r", "neither": "neither"}
SINGLE, DECISIONS, MULTI = "erasure_single_weight", "erasure_decision_flips", "erasure_multi_weight"


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """<ranking>: attention, gradient, attention_gradient (and random where r is not needed).

    erasure_delta_jsd_<ranking>: JSD(p, p without i*) - JSD(p, p without r), nats. erasure_flip_fraction_<ranking>: share of
    tokens removed until the decision changes, in 0..1. With the smallest set in the record, minimal_flip_fraction, its share
    of the tokens, and erasure_flip_ratio_<ranking>: tokens removed over the smallest number that is enough, >= 1. NaN where
    undefined or the decision never changes.
    """
    numbers = {f"erasure_delta_jsd_{ranking}": single_weight(cell, ranking).delta for ranking in RANKINGS}
    every = removals(cell)
    minimum = every.get(("minimum", "renormalised"))
    for ranking in ("random", *RANKINGS):
        size = every[ranking, "renormalised"].size
        numbers[f"erasure_flip_fraction_{ranking}"] = size / np.maximum(cell.lengths, 1)
        if minimum:
            numbers[f"erasure_flip_ratio_{ranking}"] = size / minimum.size
    if minimum:
        numbers["minimal_flip_fraction"] = minimum.size / np.maximum(cell.lengths, 1)
    return numbers


# ------------------------------------------------------------------------------------------------- tables


def _left_out(cell: Cell) -> dict[str, int]:
    return {"n_length1": int((cell.lengths == 1).sum()), "n_undefined": int((cell.lengths < 2).sum())}


def _single_cases(cell: Cell, random_reference: str) -> Iterator[Case]:
    for ranking in RANKINGS:
        test = single_weight(cell, ranking, random_reference=random_reference)
        yield Case({"delta": test.delta, "difference": test.difference}, {"ranking": ranking}, _left_out(cell))


def _decision_cases(cell: Cell, random_reference: str) -> Iterator[Case]:
    for ranking in RANKINGS:
        test = single_weight(cell, ranking, random_reference=random_reference)
        for name, happened in outcomes(test).items():
            yield Case({"happened": happened}, {"ranking": ranking, "outcome": name}, _left_out(cell))


def _multi_cases(cell: Cell, discard: str) -> Iterator[Case]:
    asked, nothing = cell.lengths > 1, np.full(len(cell), np.nan)
    every = removals(cell)
    minimum = every.get(("minimum", "renormalised"))
    for (ranking, how), (size, mass, empty) in every.items():
        for allow_empty in (True, False):
            flips = asked & ~np.isnan(size) & (allow_empty | ~empty)
            fraction = np.where(flips, size / np.maximum(cell.lengths, 1), 1.0)
            values = {
                "empty": np.where(asked, empty, np.nan),
                "censored": np.where(asked, fraction, np.nan),
                "fraction": np.where(asked if discard == "nothing" else flips, fraction, np.nan),
                "mass": np.where(flips, mass, np.nan),
                "ratio": nothing,
            }
            if minimum is not None and how == "renormalised" and ranking != "minimum":
                values["ratio"] = np.where(flips, size / minimum.size, np.nan)
            if ranking == "minimum":
                certainty = np.array(cell.table.column("minimal_flip_certainty").to_pylist(), dtype=object)
                values["exact"] = np.where(asked, certainty == "exact", np.nan)
            given = {**_left_out(cell), "n": int(asked.sum()), "n_never": int((asked & ~flips).sum())}
            yield Case(values, {"ranking": ranking, "removal": how, "allow_empty": allow_empty}, given)


def _decision_grid(df: pd.DataFrame, cells: Sequence[Cell]) -> Grid:
    keys = differing(df, CELL)
    rows = []
    for _, part in df.groupby([*CELL, "ranking"], sort=False, dropna=False):
        shares = {row["outcome"]: row for row in part.to_dict("records")}
        first = shares["both"]
        shown = (_percent_with_interval(shares[name]) for name in OUTCOMES)
        numbers = (f"{first['n']:,}", f"{first['n_undefined']:,}")
        rows.append((*(str(first[name]) for name in keys), LABELS[first["ranking"]], *numbers, *shown))
    note = (
        "Does the decision change without the first weight of the ranking (i*), without a random other one (r)? Percent of "
        "texts [95 % interval]. Only i* speaks for the ranking, only r against it. Undefined: texts with fewer than two "
        "tokens."
    )
    columns = (*keys, "i* first by", "texts", "undefined", *OUTCOMES.values())
    stem = f"tables/{DECISIONS}"
    return Grid("Decisions that change with one weight removed", columns, tuple(rows), len(keys) + 1, note, stem)


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
    if (inexact := df["share_exact"].dropna()).lt(1).any():
        note += f" Smallest sets proven smallest: {inexact.min():.0%} at least in each row; the others are the best found."
    return note


def _ranking(row: Row) -> str:
    return LABELS[row["ranking"]] + (", re-projected" if row.get("removal") == "reprojected" else "")


def tables(*, random_reference: str = "other", discard: str = "never") -> tuple[Table, ...]:
    """The tables by the definitions asked for. Rankings: attention, gradient, attention_gradient.

    n: texts a number is over; n_undefined: texts with fewer than two tokens, n_length1 of them with one.
    ci_low, ci_high: 95 % bootstrap interval of the mean or share before them; <name>_ci_low, <name>_ci_high of the number of
    that name.

    "erasure_single_weight": one row per cell x ranking x weight_difference ("all", then bins of a_i* - a_r).
    delta_jsd_mean: mean of JSD(p, p without i*) - JSD(p, p without r), nats, in -ln 2..ln 2. share_negative: texts in which
    the random weight mattered more.

    "erasure_decision_flips": one row per cell x ranking x outcome; share: texts of each of the `outcomes`.

    "erasure_multi_weight": one row per cell x ranking (also random and minimum) x removal x allow_empty. allow_empty False
    counts a change that needs all weight gone, where the bias decides, as none. n_never: texts whose decision never changes.
    fraction_mean, fraction_median: share of the text's tokens removed, over n_averaged texts; censored_median: the median
    over n with 1 for those that never change. share_empty: texts whose decision changes only when no weight is left, of n.
    mass_mean: attention removed, over texts whose decision changes. ratio_mean: tokens removed over the size of the smallest
    set, n_ratio texts. share_exact: of the smallest sets those proven smallest.

    random_reference: see `single_weight`. discard: "never" leaves texts whose decision never changes out of
    fraction_mean and fraction_median, as the paper does; "nothing" keeps them with a fraction of 1. They are counted anyway.

    Raises ReportError for another random_reference or discard.
    """
    check_reference(random_reference)
    if discard not in ("never", "nothing"):
        raise ReportError(f"discard is {discard!r}; it is 'never' or 'nothing'")
    first_by = Key("ranking", "i* first by", _ranking)
    single = Table(
        name=SINGLE,
        cases=partial(_single_cases, random_reference=random_reference),
        by=(
            first_by,
            Bins("weight_difference", "attention on i* − on r", of="difference", edges=EDGES, labels=BINS, whole="all"),
        ),
        columns=(
            Count("n", "texts", of="delta"),
            Column("n_length1"),
            Column("n_undefined", "undefined", lambda row: f"{row['n_undefined']:,}" * (row["weight_difference"] == "all")),
            Mean("delta_jsd_mean", "mean [95 % interval]", of="delta", interval=MAIN),
            Share("share_negative", "share below 0", of="delta", below=0),
        ),
        caption="One weight removed",
        note="How much further the prediction moves (Jensen–Shannon divergence, nats, at most 0.693) without the "
        "weight that the ranking puts first (i*) than without a random other one (r). Below 0: the random one mattered "
        "more. Undefined: texts with fewer than two tokens.",
        page_rows=lambda df: df[(df["weight_difference"] == "all") | (df["n"] > 0)],
    )
    decisions = Table(
        name=DECISIONS,
        cases=partial(_decision_cases, random_reference=random_reference),
        by=(first_by, Key("outcome")),
        columns=(
            Count("n", of="happened"),
            Column("n_length1"),
            Column("n_undefined"),
            Mean("share", of="happened", interval=MAIN),
        ),
        grid=_decision_grid,
    )
    multi = Table(
        name=MULTI,
        cases=partial(_multi_cases, discard=discard),
        by=(Key("ranking", "removed by", _ranking), Key("removal"), Key("allow_empty")),
        columns=(
            Column("n", "texts"),
            Column("n_length1"),
            Column("n_undefined", "undefined"),
            Column("n_never", "never"),
            Count("n_averaged", of="fraction"),
            Mean("share_empty", "bias decides", of="empty", dash=True),
            Mean("fraction_mean", "mean [95 % interval]", of="fraction", interval=MAIN),
            Median("fraction_median", "median", of="fraction", dash=True),
            Median("censored_median", "censored median", of="censored", dash=True),
            Mean("mass_mean", "attention removed", of="mass", dash=True),
            Count("n_ratio", of="ratio"),
            Mean("ratio_mean", "over smallest set", of="ratio", dash=True),
            Mean("share_exact", of="exact", interval=None),
        ),
        caption="Weights removed until the decision changes",
        note=_multi_note,
        page_rows=lambda df: df[df["allow_empty"]],
        page_order=(
            *("ranking", "n", "n_undefined", "n_never", "fraction_mean", "fraction_median", "censored_median"),
            *("share_empty", "mass_mean", "ratio_mean"),
        ),
    )
    return single, decisions, multi


# ------------------------------------------------------------------------------------------------ figures


@own_style
def single_weight_scatter(cell: Cell) -> "Figure":
    """JSD(p, p without i*) - JSD(p, p without r) of each text against a_i* - a_r, a panel per ranking that i* is first of.

    Above the line the ranked weight mattered more, below it the random one. Source: Serrano & Smith (2019), section 4.
    """
    from matplotlib.ticker import MaxNLocator

    tests = {ranking: single_weight(cell, ranking) for ranking in RANKINGS}
    figure = titled_figure("One weight removed: the first of a ranking or a random one", cell, 9.0, 3.5)
    panels = figure.subplots(1, len(tests), sharex=True, sharey=True)
    for axes, (ranking, test) in zip(panels, tests.items(), strict=True):
        axes.set_title(f"{LABELS[ranking]}\n{_delta_in_words(test)}", fontsize=10)
        axes.axhline(0, color="#777777", linewidth=1)
        # as pixels inside the SVG: thousands of points would make the file heavy
        axes.scatter(test.difference, test.delta, s=8, color=COLOURS[ranking], alpha=0.35, linewidths=0, rasterized=True)
        axes.grid(color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        if np.isnan(test.delta).all():
            note(axes, "no text has two tokens")
    panels[0].set_ylabel("JSD without i* − JSD without r (nats)")
    panels[1].set_xlabel("attention on i* − attention on r")
    return figure


def _delta_in_words(test: SingleWeight) -> str:
    delta = test.delta[~np.isnan(test.delta)]
    undefined = f" ({len(test.delta) - len(delta):,} undefined)" if len(delta) < len(test.delta) else ""
    if not len(delta):
        return f"n = 0{undefined}"
    return f"mean {delta.mean():.3f}, {np.mean(delta < 0):.1%} below 0\nn = {len(delta):,}{undefined}"


@own_style
def multi_weight_boxes(cell: Cell) -> "Figure":
    """Share of a text's tokens whose weight is removed until the decision first changes, a box per ranking.

    A change when no weight is left counts; texts whose decision never changes are in no box and are counted beside it.
    Boxes: quartiles and median, whiskers from the 5th to the 95th percentile, a diamond at the mean. Hatched: the scores of
    the other tokens projected again. Source: Serrano & Smith (2019), section 5.
    """
    every = _ordered(removals(cell))
    figure = titled_figure("Weights removed until the decision changes", cell, 9.0, 0.9 + 0.52 * len(every))
    axes = figure.add_subplot()
    for place, ((ranking, how), removal) in enumerate(every.items()):
        fraction = _fractions(cell, removal)
        fraction = fraction[~np.isnan(fraction)]
        if not len(fraction):
            continue
        colour = COLOURS[ranking]
        axes.boxplot(
            fraction,
            positions=[place],
            orientation="horizontal",
            widths=0.6,
            whis=(5, 95),
            showfliers=False,
            showmeans=True,
            patch_artist=True,
            boxprops={"facecolor": colour + "55", "edgecolor": colour, "hatch": "///" if how == "reprojected" else None},
            medianprops={"color": colour, "linewidth": 2.4},
            whiskerprops={"color": colour},
            capprops={"color": colour},
            meanprops={"marker": "D", "markersize": 5, "markerfacecolor": "white", "markeredgecolor": colour},
        )
    labels = [f"{_label(cell, *key)}\n{_fraction_in_words(cell, removal)}" for key, removal in every.items()]
    axes.set_yticks(range(len(every)), labels, fontsize=9.5)
    axes.set_ylim(len(every) - 0.4, -0.6)
    _share_axis(axes)
    axes.set_xlabel("share of the text's tokens removed")
    if all(np.isnan(removal.size).all() for removal in every.values()):
        note(axes, "no decision changes")
    return figure


def _share_axis(axes: "Axes") -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_xlim(0, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def _ordered(every: Mapping[tuple[str, str], Removal]) -> dict[tuple[str, str], Removal]:
    """By ranking, renormalised before re-projected."""
    return {key: every[key] for name in LABELS for key in every if key[0] == name}


def _label(cell: Cell, ranking: str, how: str) -> str:
    if ranking == "minimum" and "upper bound" in cell.table.column("minimal_flip_certainty").to_pylist():
        return "smallest set found"
    return LABELS[ranking] + (", re-projected" if how == "reprojected" else "")


def _fractions(cell: Cell, removal: Removal) -> np.ndarray:
    return np.where(cell.lengths > 1, removal.size / np.maximum(cell.lengths, 1), np.nan)


def _fraction_in_words(cell: Cell, removal: Removal) -> str:
    fraction = _fractions(cell, removal)
    fraction = fraction[~np.isnan(fraction)]
    never = int((cell.lengths > 1).sum()) - len(fraction)
    average = f"mean {fraction.mean():.0%}, " if len(fraction) else ""
    return f"{average}n = {len(fraction):,}" + (f", never: {never:,}" if never else "")


def _scatter_words(cell: Cell) -> tuple[str, str]:
    tests = {ranking: single_weight(cell, ranking) for ranking in RANKINGS}
    parts = [f"{LABELS[ranking]}: {_delta_in_words(test)}".replace("\n", ", ") for ranking, test in tests.items()]
    caption = (
        "How much further the prediction moves when the weight that a ranking puts first (i*) is removed than when a "
        "random other one (r) is, by how much more attention i* had. Below 0 the random weight mattered more."
    )
    return f"Scatter plots, one point per text. {'; '.join(parts)}.", caption


def _boxes_words(cell: Cell) -> tuple[str, str]:
    every = _ordered(removals(cell))
    parts = [f"{_label(cell, *key)}: {_fraction_in_words(cell, removal)}" for key, removal in every.items()]
    caption = (
        "Weights set to 0 by decreasing rank, the rest renormalised, until the decision first changes: the fewer, the "
        "better the ranking knows what the decision rests on. Boxes: quartiles and median; whiskers: 5th to 95th "
        "percentile; diamond: mean. Texts whose decision never changes are in no box."
    )
    return f"Box plots of the share of tokens removed until the decision changes. {'; '.join(parts)}.", caption


# ---------------------------------------------------------------------------------------------- sentences


def _sentences(cell: Cell) -> list[str]:
    n, undefined = int((cell.lengths > 1).sum()), int((cell.lengths < 2).sum())
    if not n:
        return [f"No text has two tokens, so no weight could be removed ({undefined:,} undefined)."]
    share = {name: np.nanmean(happened) for name, happened in outcomes(single_weight(cell, "attention")).items()}
    first = (
        f"Removing the largest attention weight changes the decision where removing a random other one does not in "
        f"{share['only_top']:.1%} of {counted(n)}; the reverse holds in {share['only_random']:.1%}, and in "
        f"{share['neither']:.1%} neither changes it."
    )
    if undefined:
        first += f" Left out because they have fewer than two tokens: {undefined:,}."
    every = {ranking: removal for (ranking, how), removal in removals(cell).items() if how == "renormalised"}
    parts = [_removed_sentence(cell, ranking, every[ranking]) for ranking in LABELS if ranking in every]
    second = f"Weights removed one after the other until the decision changes: {'; '.join(parts)}."
    if "minimum" in every:
        ratio = every["attention"].size / every["minimum"].size
        ratio = ratio[~np.isnan(ratio)]
        if len(ratio):
            second += (
                f" Removal by attention takes {ratio.mean():.1f} times as many weights as the smallest set that is known to "
                f"be enough (n = {len(ratio):,})."
            )
    return [first, second]


def _removed_sentence(cell: Cell, ranking: str, removal: Removal) -> str:
    fraction = _fractions(cell, removal)
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
    compared=True,
    tables=tables(),
    figures=(
        Drawn(SINGLE, figure=single_weight_scatter, describe=_scatter_words),
        Drawn(MULTI, figure=multi_weight_boxes, describe=_boxes_words),
    ),
    sentences=_sentences,
)
