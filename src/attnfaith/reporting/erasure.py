"""What erasing attention weights changed: tables, figures, sentences from the columns of `erasure`, `minimal_flip_set`.

One weight: i* is the weight that a ranking puts first (the earlier one on ties), r a random other one; p without a weight is
the prediction with it set to 0 and the rest renormalised. Several weights: how many are removed, by decreasing rank, until
the decision first changes. Both are undefined for a text of fewer than two tokens. Source: Serrano & Smith (2019).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.errors import AttnfaithError
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, jensen_shannon_divergence
from attnfaith.reporting.blocks import Grid, differing, number_with_interval
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.figures import PALETTE, _figure, _note, _own_style
from attnfaith.reporting.tables import format_number
from attnfaith.stats import bootstrap_interval, described, mean, with_interval


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = ("erasure_probs", "erasure_gradient", "erasure_order", "erasure_flip_size_attention")
RANKINGS = {"attention": "attention", "gradient": "gradient", "attention_gradient": "attention × gradient"}
LABELS = {"random": "random order", **RANKINGS, "minimum": "smallest set"}
COLOURS = dict(zip(LABELS, (PALETTE[6], PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[2]), strict=True))
BOUNDS = (0.0, 0.25, 0.5, 0.75)  # of a_i* - a_r; a bin holds its lower bound, the last one 1 as well
BINS = ("below 0", "[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
OUTCOMES = {"both": "both", "only_top": "only i*", "only_random": "only r", "neither": "neither"}
SINGLE, MULTI = "erasure_single_weight", "erasure_multi_weight"
SINGLE_COLUMNS = (
    *CELL,
    "ranking",
    "weight_difference",
    "n",
    "n_length1",
    "n_undefined",
    "delta_jsd_mean",
    "ci_low",
    "ci_high",
    *with_interval("share_negative"),
)
DECISION_COLUMNS = (*CELL, "ranking", "outcome", "n", "n_length1", "n_undefined", "share", "ci_low", "ci_high")
MULTI_COLUMNS = (
    *CELL,
    "ranking",
    "removal",
    "allow_empty",
    "n",
    "n_length1",
    "n_undefined",
    "n_never",
    "n_averaged",
    *with_interval("share_empty"),
    "fraction_mean",
    "ci_low",
    "ci_high",
    *with_interval("fraction_median"),
    *with_interval("censored_median"),
    *with_interval("mass_mean"),
    "n_ratio",
    *with_interval("ratio_mean"),
    "share_exact",
)


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


def single_weight(cell: Cell, ranking: str, *, random_reference: str = "other") -> SingleWeight:
    """The test of one weight against a random one, for a ranking of RANKINGS.

    random_reference: "other", r uniform over all weights but i*, or "s19_code": uniform over all positions but the first of
    the text, whatever i* is, so that r may be i*. The code of Serrano & Smith draws a rank below the first and uses it as a
    position; this reproduces it. r comes from the first random order of the record.

    Raises ValueError for another random_reference.
    """
    if random_reference not in ("other", "s19_code"):
        raise AttnfaithError(f"random_reference is {random_reference!r}; it is 'other' or 's19_code'")
    columns = {name: records.rows(cell.table, f"erasure_{name}") for name in ("probs", "gradient", "order")}
    defined = np.flatnonzero(cell.lengths > 1)
    without_top, without_random = [], []
    difference = np.full(len(cell), np.nan)
    for row in defined:
        weights = cell.attention[row].astype(np.float64)
        gradient, (order, *_) = columns["gradient"][row], columns["order"][row]
        top = int(np.argmax({"attention": weights, "gradient": gradient, "attention_gradient": weights * gradient}[ranking]))
        avoided = top if random_reference == "other" else 0
        other = int(order[0] if order[0] != avoided else order[1])
        without_top.append(columns["probs"][row][top])
        without_random.append(columns["probs"][row][other])
        difference[row] = weights[top] - weights[other]
    delta, top_flips, random_flips = (np.full(len(cell), np.nan) for _ in range(3))
    if len(defined):
        own = cell.probs[defined]
        delta[defined] = jensen_shannon_divergence(own, without_top) - jensen_shannon_divergence(own, without_random)
        top_flips[defined] = decision_flips(own, without_top)
        random_flips[defined] = decision_flips(own, without_random)
    return SingleWeight(delta, difference, top_flips, random_flips)


def removals(cell: Cell) -> dict[tuple[str, str], Removal]:
    """(ranking, "renormalised" or "reprojected") -> where the decision first changes.

    "random" is the first random order. "minimum", the smallest set, is there where the record holds it. Re-projection is
    left out where it is renormalising (softmax, uniform).
    """
    found = {}
    for ranking in ("random", *RANKINGS):
        parts = (_values(cell, f"erasure_flip_{part}_{ranking}") for part in ("size", "mass", "empty"))
        size, mass, empty = parts
        found[ranking, "renormalised"] = Removal(size, mass, empty == 1)
    if "minimal_flip_size" in cell.table.column_names:
        size, mass, empty = (_values(cell, f"minimal_flip_{part}") for part in ("size", "mass", "empty"))
        found["minimum", "renormalised"] = Removal(size, mass, empty == 1)
    if cell.heading["projection"] not in ("softmax", "uniform"):
        for ranking in ("random", *RANKINGS):
            size = _values(cell, f"erasure_reprojected_flip_size_{ranking}")
            found[ranking, "reprojected"] = Removal(size, np.full(len(cell), np.nan), size == cell.lengths)
    return found


def _values(cell: Cell, column: str) -> np.ndarray:
    """A column as [N] float64: the first draw of those with draws, NaN without any."""
    if column.endswith("_random"):
        return np.array([row[0] if len(row) else np.nan for row in records.rows(cell.table, column)], dtype=np.float64)
    return cell.table.column(column).to_numpy().astype(np.float64)


def instance_statistics(cell: Cell) -> dict[str, np.ndarray]:
    """Per instance [N] float64, NaN where undefined or the decision never changes; <ranking>: attention, gradient,
    attention_gradient (and random where r is not needed):

    erasure_delta_jsd_<ranking>: JSD(p, p without i*) - JSD(p, p without r), nats. erasure_flip_fraction_<ranking>: share of
    tokens removed until the decision changes, in 0..1. With the smallest set in the record, minimal_flip_fraction, its share
    of the tokens, and erasure_flip_ratio_<ranking>: tokens removed over the smallest number that is enough, >= 1.
    """
    found = {f"erasure_delta_jsd_{ranking}": single_weight(cell, ranking).delta for ranking in RANKINGS}
    every = removals(cell)
    minimum = every.get(("minimum", "renormalised"))
    for ranking in ("random", *RANKINGS):
        size = every[ranking, "renormalised"].size
        found[f"erasure_flip_fraction_{ranking}"] = size / np.maximum(cell.lengths, 1)
        if minimum:
            found[f"erasure_flip_ratio_{ranking}"] = size / minimum.size
    if minimum:
        found["minimal_flip_fraction"] = minimum.size / np.maximum(cell.lengths, 1)
    return found


def tables(cells: Sequence[Cell], *, random_reference: str = "other", discard: str = "never") -> dict[str, pd.DataFrame]:
    """Of the cells that hold erasures; none without such a cell. Rankings: attention, gradient, attention_gradient.

    n: texts a number is over; n_undefined: texts with fewer than two tokens, n_length1 of them with one.
    ci_low, ci_high: 95 % bootstrap interval of the mean or share before them; <name>_ci_low, <name>_ci_high of the number of
    that name.

    "erasure_single_weight": one row per cell x ranking x weight_difference ("all", then bins of a_i* - a_r).
    delta_jsd_mean: mean of JSD(p, p without i*) - JSD(p, p without r), nats, in -ln 2..ln 2. share_negative: texts in which
    the random weight mattered more.

    "erasure_decision_flips": one row per cell x ranking x outcome; share: texts whose decision changes without i* and
    without r (both), only without i* (only_top), only without r (only_random), or in neither case.

    "erasure_multi_weight": one row per cell x ranking (also random and minimum) x removal x allow_empty. allow_empty False
    counts a change that needs all weight gone, where the bias decides, as none. n_never: texts whose decision never changes.
    fraction_mean, fraction_median: share of the text's tokens removed, over n_averaged texts; censored_median: the median
    over n with 1 for those that never change. share_empty: texts whose decision changes only when no weight is left, of n.
    mass_mean: attention removed, over texts whose decision changes. ratio_mean: tokens removed over the size of the smallest
    set, n_ratio texts. share_exact: of the smallest sets those proven smallest.

    random_reference: see `single_weight`. discard: "never" leaves texts whose decision never changes out of
    fraction_mean and fraction_median, as the paper does; "nothing" keeps them with a fraction of 1. They are counted anyway.

    Raises ValueError for another random_reference or discard.
    """
    if discard not in ("never", "nothing"):
        raise AttnfaithError(f"discard is {discard!r}; it is 'never' or 'nothing'")
    single, decisions, several = [], [], []
    for cell in cells:
        if not set(NEEDS) <= set(cell.table.column_names):
            continue
        left_out = {"n_length1": int((cell.lengths == 1).sum()), "n_undefined": int((cell.lengths < 2).sum())}
        for ranking in RANKINGS:
            start = {**cell.heading, "ranking": ranking, **left_out}
            test = single_weight(cell, ranking, random_reference=random_reference)
            single.extend({**start, **row} for row in _single_rows(test))
            decisions.extend({**start, **row} for row in _decision_rows(test))
        several.extend({**cell.heading, **left_out, **row} for row in _multi_rows(cell, discard))
    if not single:
        return {}
    return {
        SINGLE: pd.DataFrame(single, columns=list(SINGLE_COLUMNS)),
        "erasure_decision_flips": pd.DataFrame(decisions, columns=list(DECISION_COLUMNS)),
        MULTI: pd.DataFrame(several, columns=list(MULTI_COLUMNS)),
    }


def _single_rows(test: SingleWeight) -> list[dict]:
    defined = ~np.isnan(test.delta)
    place = np.searchsorted(BOUNDS, test.difference, side="right")
    rows = []
    for name, members in (("all", defined), *((label, defined & (place == number)) for number, label in enumerate(BINS))):
        delta = test.delta[members]
        low, high = bootstrap_interval(delta)
        numbers = {"delta_jsd_mean": mean(delta), "ci_low": low, "ci_high": high}
        numbers |= described("share_negative", delta < 0)
        rows.append({"weight_difference": name, "n": len(delta), **numbers})
    return rows


def _outcomes(test: SingleWeight) -> dict[str, np.ndarray]:
    """Whether each outcome is a text's, bool, over the texts that are defined."""
    defined = ~np.isnan(test.delta)
    top, other = test.top_flips[defined] == 1, test.random_flips[defined] == 1
    return {"both": top & other, "only_top": top & ~other, "only_random": ~top & other, "neither": ~top & ~other}


def _decision_rows(test: SingleWeight) -> list[dict]:
    rows = []
    for name, members in _outcomes(test).items():
        low, high = bootstrap_interval(members.astype(np.float64))
        rows.append({"outcome": name, "n": len(members), "share": mean(members), "ci_low": low, "ci_high": high})
    return rows


def _multi_rows(cell: Cell, discard: str) -> list[dict]:
    asked = cell.lengths > 1
    every = removals(cell)
    minimum = every.get(("minimum", "renormalised"))
    rows = []
    for (ranking, how), (size, mass, empty) in every.items():
        for allow_empty in (True, False):
            flips = (asked & ~np.isnan(size)) if allow_empty else (asked & ~np.isnan(size) & ~empty)
            censored = np.where(flips, size / np.maximum(cell.lengths, 1), 1.0)[asked]
            fraction = censored if discard == "nothing" else censored[flips[asked]]
            low, high = bootstrap_interval(fraction)
            compared = minimum is not None and how == "renormalised" and ranking != "minimum"
            ratio = size[flips] / minimum.size[flips] if compared else np.empty(0)
            row = {
                "ranking": ranking,
                "removal": how,
                "allow_empty": allow_empty,
                "n": int(asked.sum()),
                "n_never": int((asked & ~flips).sum()),
                "n_averaged": len(fraction),
                **described("share_empty", empty[asked]),
                "fraction_mean": mean(fraction),
                "ci_low": low,
                "ci_high": high,
                **described("fraction_median", fraction, np.median),
                **described("censored_median", censored, np.median),
                **described("mass_mean", mass[flips]),
                "n_ratio": len(ratio),
                **described("ratio_mean", ratio),
                "share_exact": np.nan,
            }
            if ranking == "minimum":
                certainty = np.array(cell.table.column("minimal_flip_certainty").to_pylist(), dtype=object)
                row["share_exact"] = mean(certainty[asked] == "exact")
            rows.append(row)
    return rows


def figures(cell: Cell) -> "dict[str, Figure]":
    """The scatter of one weight against a random one, and the box plots of weights removed."""
    return {SINGLE: single_weight_scatter(cell), MULTI: multi_weight_boxes(cell)}


@_own_style
def single_weight_scatter(cell: Cell) -> "Figure":
    """JSD(p, p without i*) - JSD(p, p without r) of each text against a_i* - a_r, a panel per ranking that i* is first of.

    Above the line the ranked weight mattered more, below it the random one. Source: Serrano & Smith (2019), section 4.
    """
    from matplotlib.ticker import MaxNLocator

    tests = {ranking: single_weight(cell, ranking) for ranking in RANKINGS}
    figure = _figure("One weight removed: the first of a ranking or a random one", cell, 9.0, 3.5)
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
            _note(axes, "no text has two tokens")
    panels[0].set_ylabel("JSD without i* − JSD without r (nats)")
    panels[1].set_xlabel("attention on i* − attention on r")
    return figure


def _delta_in_words(test: SingleWeight) -> str:
    delta = test.delta[~np.isnan(test.delta)]
    undefined = f" ({len(test.delta) - len(delta):,} undefined)" if len(delta) < len(test.delta) else ""
    if not len(delta):
        return f"n = 0{undefined}"
    return f"mean {delta.mean():.3f}, {np.mean(delta < 0):.1%} below 0\nn = {len(delta):,}{undefined}"


@_own_style
def multi_weight_boxes(cell: Cell) -> "Figure":
    """Share of a text's tokens whose weight is removed until the decision first changes, a box per ranking.

    A change when no weight is left counts; texts whose decision never changes are in no box and are counted beside it.
    Boxes: quartiles and median, whiskers from the 5th to the 95th percentile, a diamond at the mean. Hatched: the scores of
    the other tokens projected again. Source: Serrano & Smith (2019), section 5.
    """
    every = _ordered(removals(cell))
    figure = _figure("Weights removed until the decision changes", cell, 9.0, 0.9 + 0.52 * len(every))
    axes = figure.add_subplot()
    for place, ((ranking, how), found) in enumerate(every.items()):
        fraction = _fractions(cell, found)
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
    labels = [f"{_label(cell, *key)}\n{_fraction_in_words(cell, found)}" for key, found in every.items()]
    axes.set_yticks(range(len(every)), labels, fontsize=9.5)
    axes.set_ylim(len(every) - 0.4, -0.6)
    _share_axis(axes)
    axes.set_xlabel("share of the text's tokens removed")
    if all(np.isnan(found.size).all() for found in every.values()):
        _note(axes, "no decision changes")
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


def _fractions(cell: Cell, found: Removal) -> np.ndarray:
    return np.where(cell.lengths > 1, found.size / np.maximum(cell.lengths, 1), np.nan)


def _fraction_in_words(cell: Cell, found: Removal) -> str:
    fraction = _fractions(cell, found)
    fraction = fraction[~np.isnan(fraction)]
    never = int((cell.lengths > 1).sum()) - len(fraction)
    average = f"mean {fraction.mean():.0%}, " if len(fraction) else ""
    return f"{average}n = {len(fraction):,}" + (f", never: {never:,}" if never else "")


def describe_figure(cell: Cell, name: str) -> tuple[str, str]:
    """Alternative text and caption."""
    if name == SINGLE:
        tests = {ranking: single_weight(cell, ranking) for ranking in RANKINGS}
        parts = [f"{LABELS[ranking]}: {_delta_in_words(test)}".replace("\n", ", ") for ranking, test in tests.items()]
        caption = (
            "How much further the prediction moves when the weight that a ranking puts first (i*) is removed than when a "
            "random other one (r) is, by how much more attention i* had. Below 0 the random weight mattered more."
        )
        return f"Scatter plots, one point per text. {'; '.join(parts)}.", caption
    every = _ordered(removals(cell))
    parts = [f"{_label(cell, *key)}: {_fraction_in_words(cell, found)}" for key, found in every.items()]
    caption = (
        "Weights set to 0 by decreasing rank, the rest renormalised, until the decision first changes: the fewer, the "
        "better the ranking knows what the decision rests on. Boxes: quartiles and median; whiskers: 5th to 95th "
        "percentile; diamond: mean. Texts whose decision never changes are in no box."
    )
    return f"Box plots of the share of tokens removed until the decision changes. {'; '.join(parts)}.", caption


def grids(tables: Mapping[str, pd.DataFrame]) -> list[Grid]:
    """What the page shows of its tables."""
    if SINGLE not in tables:
        return []
    return [_single_grid(tables[SINGLE]), _decision_grid(tables["erasure_decision_flips"]), _multi_grid(tables[MULTI])]


def _single_grid(df: pd.DataFrame) -> Grid:
    df = df[(df["weight_difference"] == "all") | (df["n"] > 0)]
    keys = differing(df, CELL)
    rows = [
        (
            *(str(row[name]) for name in keys),
            LABELS[row["ranking"]],
            row["weight_difference"],
            f"{row['n']:,}",
            f"{row['n_undefined']:,}" if row["weight_difference"] == "all" else "",
            number_with_interval(row, "delta_jsd_mean"),
            format_number(row["share_negative"]),
        )
        for row in df.to_dict("records")
    ]
    note = (
        "How much further the prediction moves (Jensen–Shannon divergence, nats, at most 0.693) without the weight that the "
        "ranking puts first (i*) than without a random other one (r). Below 0: the random one mattered more. Undefined: "
        "texts with fewer than two tokens."
    )
    columns = (*keys, "i* first by", "attention on i* − on r", "texts", "undefined", "mean [95 % interval]", "share below 0")
    return Grid("One weight removed", columns, tuple(rows), len(keys) + 2, note, f"tables/{SINGLE}")


def _decision_grid(df: pd.DataFrame) -> Grid:
    keys = differing(df, CELL)
    rows = []
    for _, part in df.groupby([*CELL, "ranking"], sort=False, dropna=False):
        shares = {row["outcome"]: row for row in part.to_dict("records")}
        first = shares["both"]
        shown = (_percent_with_interval(shares[name]) for name in OUTCOMES)
        counts = (f"{first['n']:,}", f"{first['n_undefined']:,}")
        rows.append((*(str(first[name]) for name in keys), LABELS[first["ranking"]], *counts, *shown))
    note = (
        "Does the decision change without the first weight of the ranking (i*), without a random other one (r)? Percent of "
        "texts [95 % interval]. Only i* speaks for the ranking, only r against it. Undefined: texts with fewer than two "
        "tokens."
    )
    columns = (*keys, "i* first by", "texts", "undefined", *OUTCOMES.values())
    stem = "tables/erasure_decision_flips"
    return Grid("Decisions that change with one weight removed", columns, tuple(rows), len(keys) + 1, note, stem)


def _percent_with_interval(row: Mapping[str, float]) -> str:
    if np.isnan(row["share"]):
        return "undefined"
    interval = "" if np.isnan(row["ci_low"]) else f" [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]"
    return f"{100 * row['share']:.1f}{interval}"


def _multi_grid(df: pd.DataFrame) -> Grid:
    df = df[df["allow_empty"]]
    keys = differing(df, CELL)
    shown = ("fraction_median", "censored_median", "share_empty", "mass_mean", "ratio_mean")
    rows = [
        (
            *(str(row[name]) for name in keys),
            LABELS[row["ranking"]] + (", re-projected" if row["removal"] == "reprojected" else ""),
            f"{row['n']:,}",
            f"{row['n_undefined']:,}",
            f"{row['n_never']:,}",
            number_with_interval(row, "fraction_mean"),
            *(format_number(row[name]) if not np.isnan(row[name]) else "–" for name in shown),
        )
        for row in df.to_dict("records")
    ]
    note = (
        "Share of a text's tokens whose weight is removed, the rest renormalised, until the decision first changes; over "
        "the texts whose decision changes, and in the censored median with 1 for those where it never does. Bias decides: "
        "texts whose decision changes only when no weight is left. Over smallest set: tokens removed, as a multiple of the "
        "fewest that are enough. Undefined: texts with fewer than two tokens."
    )
    if (inexact := df["share_exact"].dropna()).lt(1).any():
        note += f" Smallest sets proven smallest: {inexact.min():.0%} at least in each row; the others are the best found."
    names = ("mean [95 % interval]", "median", "censored median", "bias decides", "attention removed", "over smallest set")
    columns = (*keys, "removed by", "texts", "undefined", "never", *names)
    return Grid("Weights removed until the decision changes", columns, tuple(rows), len(keys) + 1, note, f"tables/{MULTI}")


def sentences(cell: Cell) -> list[str]:
    """What the numbers say."""
    n, undefined = int((cell.lengths > 1).sum()), int((cell.lengths < 2).sum())
    if not n:
        return [f"No text has two tokens, so no weight could be removed ({undefined:,} undefined)."]
    share = {name: members.mean() for name, members in _outcomes(single_weight(cell, "attention")).items()}
    first = (
        f"Removing the largest attention weight changes the decision where removing a random other one does not in "
        f"{share['only_top']:.1%} of {n:,} texts; the reverse holds in {share['only_random']:.1%}, and in "
        f"{share['neither']:.1%} neither changes it."
    )
    if undefined:
        first += f" Left out because they have fewer than two tokens: {undefined:,}."
    every = {ranking: found for (ranking, how), found in removals(cell).items() if how == "renormalised"}
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


def _removed_sentence(cell: Cell, ranking: str, found: Removal) -> str:
    fraction = _fractions(cell, found)
    fraction = fraction[~np.isnan(fraction)]
    by = {"minimum": "the smallest set", "random": "in random order"}.get(ranking, f"by {LABELS[ranking]}")
    never = int((cell.lengths > 1).sum()) - len(fraction)
    if not len(fraction):
        return f"{by}, no decision changes"
    return f"{by} {fraction.mean():.0%} on average" + (f" ({never:,} never change)" if never else "")
