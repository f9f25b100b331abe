"""What permuting attention changed: tables, figure and sentences from a record's `permuted_probs`.

Per text: the total variation distance (TVD, 0..1) between the prediction and the prediction under each permutation, and its
median over the draws. Undefined for a text of fewer than two tokens, which has no draws. Source: Jain & Wallace (2019),
section 4.2.1.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting.blocks import CLASS_COLUMN, Grid, differing, number_with_interval
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.figures import PALETTE, _class_groups, _figure, _note, _own_style, mean_in_words
from attnfaith.reporting.tables import format_number
from attnfaith.stats import bootstrap_interval, described, with_interval


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = ("permuted_probs",)
FIGURE = "permutation_by_max_attention"
BOUNDS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the largest weight; a bin holds its lower bound, the last one 1 as well
BINS = ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
FEWEST_FOR_A_VIOLIN = 20
TABLE_COLUMNS = (
    *CELL,
    "class",
    "n",
    "n_undefined",
    "tvd_mean",
    "ci_low",
    "ci_high",
    *with_interval("tvd_median"),
    *with_interval("share_below_0.05"),
    *with_interval("share_below_0.01"),
    *with_interval("flip_share"),
)
BIN_COLUMNS = (*CELL, "class", "max_attention", "n", "n_undefined", "tvd_mean", "ci_low", "ci_high")


def instance_statistics(cell: Cell) -> dict[str, np.ndarray]:
    """Per instance [N] float64, NaN where there are no draws: permutation_tvd, the median TVD over the draws, 0..1;
    permutation_flips, the share of draws that change the decision, 0..1.
    """
    return dict(zip(("permutation_tvd", "permutation_flips"), moved(cell, "permuted_probs"), strict=True))


def moved(cell: Cell, column: str) -> tuple[np.ndarray, np.ndarray]:
    """How far the predictions [K][C] in a column lie from the cell's own: per instance [N] float64, NaN without draws, the
    median TVD over the draws and the share of draws with another decision, both 0..1.
    """
    draws = records.rows(cell.table, column)
    counts = np.array([len(rows) for rows in draws])
    if not counts.any():
        return np.full(len(cell), np.nan), np.full(len(cell), np.nan)
    others, own = np.concatenate([rows for rows in draws if len(rows)]), np.repeat(cell.probs, counts, axis=0)
    ends = np.cumsum(counts)[:-1]
    distances, flips = total_variation_distance(own, others), decision_flips(own, others)
    return _each(np.median, np.split(distances, ends)), _each(np.mean, np.split(flips, ends))


def _each(statistic, parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([statistic(part) if len(part) else np.nan for part in parts])


def tables(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Of the cells that hold permutations; none without such a cell.

    "permutation": one row per cell x predicted class ("overall", then "0", "1", ...). n: texts with a median TVD;
    n_undefined: those without. tvd_mean, tvd_median: mean and median over texts of the median TVD of a text, in 0..1;
    ci_low, ci_high: 95 % bootstrap interval of the mean. share_below_0.05, share_below_0.01: texts whose median TVD is
    smaller. flip_share: mean share of draws that change the decision. <name>_ci_low, <name>_ci_high: the interval of the
    number of that name.

    "permutation_by_max_attention": the same mean, by the largest weight of a text; one without tokens is in no bin.
    """
    whole, binned = [], []
    for cell in cells:
        if not set(NEEDS) <= set(cell.table.column_names):
            continue
        found = instance_statistics(cell)
        tvd, place = found["permutation_tvd"], _bin_of(cell)
        for name, members in cell.classes:
            flips = found["permutation_flips"][members]
            row = {**cell.heading, "class": name, **_mean_of(tvd[members])}
            defined = tvd[members][~np.isnan(tvd[members])]
            row |= described("tvd_median", defined, np.median)
            for bound in (0.05, 0.01):
                row |= described(f"share_below_{bound}", defined < bound)
            row |= described("flip_share", flips[~np.isnan(flips)])
            whole.append(row)
            for number, label in enumerate(BINS):
                inside = members & (place == number)
                binned.append({**cell.heading, "class": name, "max_attention": label, **_mean_of(tvd[inside])})
    if not whole:
        return {}
    return {
        "permutation": pd.DataFrame(whole, columns=list(TABLE_COLUMNS)),
        "permutation_by_max_attention": pd.DataFrame(binned, columns=list(BIN_COLUMNS)),
    }


def _bin_of(cell: Cell) -> np.ndarray:
    """Bin of each text's largest weight, [N]; -1 for a text without tokens."""
    largest = np.array([row.max() if len(row) else -1.0 for row in cell.attention])
    return np.where(largest < 0, -1, np.searchsorted(BOUNDS[1:-1], largest, side="right"))


def _mean_of(values: np.ndarray) -> dict[str, float]:
    defined = values[~np.isnan(values)]
    low, high = bootstrap_interval(defined)
    mean = float(defined.mean()) if len(defined) else np.nan
    return {"n": len(defined), "n_undefined": len(values) - len(defined), "tvd_mean": mean, "ci_low": low, "ci_high": high}


def figures(cell: Cell) -> "dict[str, Figure]":
    """Median TVD per text in four bins of the largest weight, a violin per predicted class."""
    return {FIGURE: permutation_by_max_attention(cell)}


@_own_style
def permutation_by_max_attention(cell: Cell) -> "Figure":
    """How far permuting attention moves the prediction of a text, by how concentrated its attention is.

    Violins of the median TVD over the draws, one per predicted class in each of four bins of the largest weight; the line
    across a violin is its median, the number above it its texts. Below 20 texts every text is a point. Source: Jain &
    Wallace (2019), section 4.2.1.
    """
    tvd = instance_statistics(cell)["permutation_tvd"]
    highest = max(np.nanmax(tvd), 1e-3) if not np.isnan(tvd).all() else 1.0
    ylabel = "median change of the prediction (TVD)"
    return violins_by_max_attention(cell, tvd, "Permuted attention", ylabel, highest, "no text has two tokens to permute")


def violins_by_max_attention(
    cell: Cell, values: np.ndarray, title: str, ylabel: str, highest: float, nothing: str
) -> "Figure":
    """A number per instance [N], NaN undefined, in four bins of the largest weight, a violin per predicted class.

    highest: upper end of the axis. nothing: what is written where no number is defined.
    """
    place, groups = _bin_of(cell), _class_groups(cell)
    defined = ~np.isnan(values)
    figure = _figure(title, cell, 9.0, 4.2)
    axes = figure.add_subplot()
    axes.set_ylim(0, highest * 1.12)
    axes.set_ylabel(ylabel)
    axes.set_xlabel("largest attention weight of the text")
    axes.set_xticks(range(len(BINS)), BINS)
    axes.set_xlim(-0.5, len(BINS) - 0.5)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    width = 0.84 / len(groups)
    for number, ((name, members), colour) in enumerate(zip(groups, PALETTE, strict=False)):
        for position in range(len(BINS)):
            shown = values[members & defined & (place == position)]
            if len(shown):
                _violin(axes, shown, position + (number - (len(groups) - 1) / 2) * width, width, colour, highest)
        axes.plot([], [], color=colour, linewidth=6, alpha=0.6, label=f"{name}\n{mean_in_words(values[members])}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="predicted", alignment="left", labelspacing=0.8)
    if not defined.any():
        _note(axes, nothing)
    return figure


def _violin(axes: "Axes", values: np.ndarray, at: float, width: float, colour: str, highest: float) -> None:
    if len(values) < FEWEST_FOR_A_VIOLIN:
        spread = np.linspace(-1, 1, len(values)) * width / 4 if len(values) > 1 else np.zeros(1)
        axes.scatter(at + spread, values, s=14, color=colour, alpha=0.7, linewidths=0)
    else:
        (body,) = axes.violinplot(values, [at], widths=width * 0.92, showextrema=False, points=200)["bodies"]
        body.set(facecolor=colour, edgecolor=colour, alpha=0.45, linewidth=1)
    middle = np.median(values)
    axes.plot([at - width / 4, at + width / 4], [middle, middle], color=colour, linewidth=2)
    text = {"ha": "center", "va": "bottom", "fontsize": 9, "color": colour}
    axes.text(at, values.max() + highest * 0.015, f"{len(values):,}", **text)


def describe_figure(cell: Cell, name: str) -> tuple[str, str]:
    """Alternative text and caption."""
    tvd, place = instance_statistics(cell)["permutation_tvd"], _bin_of(cell)
    parts = [
        f"{label}: {mean_in_words(tvd[place == number])}" for number, label in enumerate(BINS) if (place == number).any()
    ]
    alt = f"Violins of the median change of the prediction per text, by largest attention weight. {'; '.join(parts)}."
    caption = (
        "How far the prediction moves when the weights of a text are permuted, by how much weight one token has. "
        "The line in a violin is its median, the number above it its texts; fewer than "
        f"{FEWEST_FOR_A_VIOLIN} texts are shown as points."
    )
    return alt, caption


def grids(tables: Mapping[str, pd.DataFrame]) -> list[Grid]:
    """What the page shows of its tables."""
    if "permutation" not in tables:
        return []
    return [_whole_grid(tables["permutation"]), _binned_grid(tables["permutation_by_max_attention"])]


def _whole_grid(df: pd.DataFrame) -> Grid:
    keys = differing(df, CELL)
    shown = ("tvd_median", "share_below_0.05", "share_below_0.01", "flip_share")
    rows = [
        (
            *(str(row[name]) for name in keys),
            row["class"],
            f"{row['n']:,}",
            f"{row['n_undefined']:,}",
            number_with_interval(row, "tvd_mean"),
            *(format_number(row[name]) for name in shown),
        )
        for row in df.to_dict("records")
    ]
    names = ("mean TVD [95 % interval]", "median", "share below .05", "share below .01", "draws that flip the decision")
    note = (
        "Per text, the median over random permutations of its attention weights of the total variation distance between the "
        "prediction and the prediction then: 0 no change, 1 another decision with certainty. Undefined: texts of fewer than "
        "two tokens; they are in no mean."
    )
    columns = (*keys, CLASS_COLUMN, "texts", "undefined", *names)
    return Grid("Permuted attention", columns, tuple(rows), len(keys) + 1, note, "tables/permutation")


def _binned_grid(df: pd.DataFrame) -> Grid:
    keys = differing(df, CELL)
    rows = [
        (
            *(str(row[name]) for name in keys),
            row["class"],
            row["max_attention"],
            f"{row['n']:,}",
            f"{row['n_undefined']:,}",
            number_with_interval(row, "tvd_mean"),
        )
        for row in df[df["n"] + df["n_undefined"] > 0].to_dict("records")
    ]
    columns = (*keys, CLASS_COLUMN, "largest weight", "texts", "undefined", "mean TVD [95 % interval]")
    note = "The same, by the largest attention weight of the text. A text without tokens is in no row."
    stem = "tables/permutation_by_max_attention"
    return Grid("Permuted attention by largest weight", columns, tuple(rows), len(keys) + 2, note, stem)


def sentences(cell: Cell) -> list[str]:
    """What the numbers say."""
    row = tables([cell])["permutation"].iloc[0]
    if not row["n"]:
        return [f"No text has two tokens, so attention could not be permuted ({row['n_undefined']:,} undefined)."]
    interval = "" if np.isnan(row["ci_low"]) else f" (95 % interval {row['ci_low']:.3f} to {row['ci_high']:.3f})"
    text = (
        f"Permuting the attention weights of a text moves its prediction by a median total variation distance of "
        f"{row['tvd_mean']:.3f} on average over {row['n']:,} texts{interval}; in {row['share_below_0.05']:.0%} of them by "
        f"less than 0.05. {row['flip_share']:.1%} of the permutations change the decision."
    )
    if row["n_undefined"]:
        text += f" Left out because there is nothing to permute: {row['n_undefined']:,}."
    return [text]
