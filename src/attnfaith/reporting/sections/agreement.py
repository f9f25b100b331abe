"""How far attention and importance rank the tokens of a text alike: Kendall's tau-b, text by text.

Undefined for a text of fewer than two tokens, or where all scores of one of the two are equal.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement
from attnfaith.reporting.blocks import CLASS_COLUMN
from attnfaith.reporting.cells import Cell, main_measures, measure_label, one_cell, pair_name, reference_measure
from attnfaith.reporting.figures import RANGES, ranges, ranges_in_words
from attnfaith.reporting.render import frame, rows
from attnfaith.reporting.spec import Drawing, Quantity, Row, Section, Table, cells_of, largest_weights, per_cell
from attnfaith.reporting.style import (
    ATTENTION,
    PALETTE,
    TEXT_COLOUR,
    histogram,
    mean_in_words,
    note,
    own_style,
    percent_axis,
    titled_figure,
)
from attnfaith.reporting.tables import seed_summary
from attnfaith.stats import t_interval
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lower bounds of mean tau and the words for it. A convention of this report, printed on the page; the field has none.
DEGREES = (
    (0.7, "nearly the same order"),
    (0.5, "a similar order"),
    (0.3, "a somewhat similar order"),
    (0.1, "an only slightly similar order"),
    (-0.1, "unrelated orders"),
    (-1.0, "rather opposite orders"),
)
NO_MEASURE = "The record holds no importance measure, so agreement with attention was not measured."
ALIKE = 0.999  # tau of rankings that differ by rounding only
YARDSTICK = (("attention", "gradient"), ("attention", "leave_one_out"), ("gradient", "leave_one_out"))


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Tau of attention with each measure of the cell, [N] in -1..1: "tau attention–gradient", ..."""
    return {f"tau {pair_name('attention', name)}": cell.tau("attention", name) for name in cell.measures}


# ---------- tables


def _rows(cell: Cell) -> Iterator[Row]:
    for first, second in cell.pairs:
        by_class = agreement(cell.scores(first), cell.scores(second), cell.predicted)
        for name, summary in by_class.items():
            yield {"pair": pair_name(first, second), "class": name, **summary}


def pair_label(row: Row) -> str:
    """A row's pair for reading: "attention – leave-one-out"."""
    return " – ".join(measure_label(name) for name in row["pair"].split("–"))


TABLE = Table(
    name="agreement",
    rows=_rows,
    heads=2,
    shown={
        "pair": ("pair", pair_label),
        "class": CLASS_COLUMN,
        "n": "texts",
        "n_undefined": "undefined",
        "tau_mean": "mean τ [95 % interval]",
        "tau_std": "std",
        "share_significant": "significant",
        "tie_ceiling": "tie ceiling",
        "tau_over_ceiling": "τ / ceiling",
    },
    caption="Agreement of token rankings",
    note="Kendall’s τ-b of two token rankings, one text at a time: 1 same order, 0 no relation, −1 reversed. "
    "Undefined: texts with fewer than two tokens or with all scores equal; they are in no mean. Significant: "
    "share of texts with p ≤ 0.05. Tie ceiling: the largest τ that tied scores allow, mean over texts.",
)


def agreement_table(record: "pa.Table | Sequence[Cell]") -> pd.DataFrame:
    """How far attention and importance rank the tokens of a text alike (Kendall's tau-b).

    One row per cell x pair x predicted class. Pairs: attention with every importance measure of the record, and
    gradient with leave-one-out, which says how far two importance measures agree with each other. Classes: "overall",
    then "0", "1", ... as the model predicted them.

    n: instances with a defined tau. n_undefined: instances without one (fewer than two tokens, or a constant vector);
    they enter no mean. tau_mean, tau_std: in -1..1, population standard deviation. share_significant: of the defined,
    those with p <= 0.05, in 0..1. ci_low, ci_high: Student's 95 % interval of the mean over instances. tie_ceiling: mean of
    the largest tau that the ties of a text allow. tau_over_ceiling: mean of tau over that of the same text.

    Source: Jain & Wallace (2019), section 4.1.
    """
    return frame(TABLE, cells_of(record))


def _seeds(cells: Sequence[Cell]) -> pd.DataFrame:
    table = frame(TABLE, cells)
    summary = seed_summary(table) if len(table) else table.assign(n_seeds=[])
    return summary[summary["n_seeds"] > 1]


SEEDS = Table(
    name="seeds",
    frame=_seeds,
    heads=2,
    shown={
        "pair": ("pair", pair_label),
        "class": CLASS_COLUMN,
        **{
            "n_seeds": "seeds",
            "n_undefined": "undefined",
            "mean": "mean τ",
            "std": "std",
            "min": "lowest",
            "max": "highest",
        },
    },
    caption="Spread over training seeds",
    note="Mean τ of each training seed, summarised over seeds; sample standard deviation.",
    page_rows=lambda df: df[df["statistic"] == "tau_mean"],
    studies=False,
)


# ---------- sentences


def degree(tau: float) -> str:
    """A mean tau in words, by DEGREES; of the two decimals that are printed beside the words."""
    return next(words for bound, words in DEGREES if round(tau, 2) >= bound)


def _conventions() -> str:
    steps = [f"“{words}” from {bound:g}".replace("-", "−") for bound, words in DEGREES[:-1]]
    return f"Words for mean τ are a convention of this report: {', '.join(steps)}, “{DEGREES[-1][1]}” below."


def summarise(cell: Cell, entries: Sequence[Row]) -> Iterator[str]:
    """What the numbers of one cell say, in plain sentences made from the rows that the agreement table has of it."""
    overall = {row["pair"]: row for row in entries if row["class"] == "overall"}
    if not overall:
        yield NO_MEASURE
        return
    compared = [name for name in main_measures(cell) if name != "attention"]
    taus = {name: overall[pair_name("attention", name)] for name in compared}
    for name, row in taus.items():
        yield _agreement_sentence(measure_label(name), row)
    between = overall.get(pair_name("gradient", "leave_one_out"), {"tau_mean": np.nan})["tau_mean"]
    if not np.isnan(between):
        own = [row["tau_mean"] for row in taus.values() if not np.isnan(row["tau_mean"])]
        more = "more than attention agrees with one of them and less than with the other"
        if own and not min(own) <= between <= max(own):
            more = f"{'more' if between > max(own) else 'less'} than attention agrees with either"
        words = f", {more}" if own else ""
        yield f"Gradient and leave-one-out agree with each other at τ = {between:.2f}{words}."


def _agreement_sentence(name: str, row: Row) -> str:
    if not row["n"]:
        return (
            f"Kendall’s τ between attention and {name} is undefined for every text ({row['n_undefined']:,}): none has two "
            "tokens whose weights differ and two whose scores do."
        )
    known = not np.isnan(row["ci_low"])
    interval = f"95 % interval {row['ci_low']:.2f} to {row['ci_high']:.2f}" if known else "interval undefined"
    text = (
        f"Attention and {name} put the tokens of a text in {degree(row['tau_mean'])}: Kendall’s τ is "
        f"{row['tau_mean']:.2f} on average over {counted(row['n'])} ({interval}), and differs from chance "
        f"(p ≤ 0.05) in {row['share_significant']:.0%} of them."
    )
    if row["tie_ceiling"] < 0.995:
        text += f" Tied tokens allow {row['tie_ceiling']:.2f} at most; of that, {row['tau_over_ceiling']:.0%} is reached."
    if row["n_undefined"]:
        text += f" Left out because τ is undefined: {row['n_undefined']:,}."
    return text


def _across(table: pd.DataFrame | None) -> Iterator[str]:
    """How far mean tau goes apart between several cells, per pair."""
    if table is None:
        yield NO_MEASURE
        return
    for _, members in table[table["class"] == "overall"].groupby("pair", sort=False):
        taus = members["tau_mean"].dropna()
        text = (
            f"mean Kendall’s τ lies between {taus.min():.2f} and {taus.max():.2f}" if len(taus) else "no cell has a mean τ"
        )
        missing = len(members) - len(taus)
        without = f" ({counted(missing, 'cell')} without one)" if missing and len(taus) else ""
        yield f"{pair_label(members.iloc[0])}: {text}{without}."


# ---------- figures


def taus_of_measures(cell: Cell) -> tuple[dict[str, np.ndarray], list[str]]:
    """Tau [N] of attention with each measure, by label, and the labels of measures that attention orders alike always."""
    taus = {measure_label(name): cell.tau("attention", name) for name in cell.measures}
    alike = [label for label, tau in taus.items() if np.nanmin(tau, initial=1.0) > ALIKE and not np.isnan(tau).all()]
    return {label: tau for label, tau in taus.items() if label not in alike}, alike


def tau_by_measure(cell: Cell) -> "Figure":
    """Per-instance tau of attention with every importance measure, a line each; those of tau 1 everywhere are left out."""
    axis = "Kendall's τ per text (1: same order, 0: no relation)"
    return ranges(cell, "Attention and each importance measure", taus_of_measures(cell)[0], (-1, 1), axis, mark=0)


def _tau_words(cell: Cell) -> tuple[str, str]:
    taus, alike = taus_of_measures(cell)
    caption = f"Agreement of attention with importance in single texts ({RANGES})."
    if alike:
        caption += f" Not drawn, because they order every text as attention does: {', '.join(alike)}."
    return f"Range of τ per text, one line for each measure. {ranges_in_words(taus)}.", caption


def _yardstick(cell: Cell) -> dict[str, np.ndarray]:
    return {f"{measure_label(first)} and {measure_label(second)}": cell.tau(first, second) for first, second in YARDSTICK}


@own_style
def gradient_vs_leave_one_out(record: "pa.Table | Cell") -> "Figure":
    """How far two importance measures agree with each other, under how far attention agrees with each.

    Three histograms of per-instance tau on one axis: attention-gradient, attention-leave-one-out and
    gradient-leave-one-out. Source: Jain & Wallace (2019), section 4.1.

    Raises ValueError where the record holds more than one cell or lacks one of the two measures.
    """
    cell = one_cell(record)
    figure = titled_figure("Do the measures agree with each other?", cell, 9.0, 4.6)
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    for axes, (label, tau), colour in zip(panels, _yardstick(cell).items(), PALETTE, strict=False):
        histogram(axes, tau[~np.isnan(tau)], np.linspace(-1, 1, 41), colour, "")
        axes.axvline(0, color="#777777", linewidth=1)
        axes.set_xlim(-1, 1)
        percent_axis(axes)
        axes.set_title(f"{label}: {mean_in_words(tau, 2)}", color=TEXT_COLOUR, fontsize=10.5)
    panels[-1].set_xlabel("Kendall's τ per text (1: same order, 0: no relation; dashed: mean)")
    panels[1].set_ylabel("share of texts")
    return figure


def _yardstick_words(cell: Cell) -> tuple[str, str]:
    caption = (
        "How far two importance measures agree with each other is the yardstick for how far attention agrees with them."
    )
    return f"Histograms of τ per text. {ranges_in_words(_yardstick(cell))}.", caption


@own_style
def attention_overview(record: "pa.Table | Cell") -> "Figure":
    """Two panels: how concentrated attention is, and how agreement changes with the length of the text.

    Left: histogram of the largest weight of each text, empty texts excluded and counted. Right: tau per text against
    its tokens (log scale), attention with leave-one-out, else gradient, else the first measure of the record; the line
    joins medians of ten equally filled groups. Without a measure the right panel is a histogram of lengths.

    Raises ValueError where the record holds more than one cell.
    """
    cell = one_cell(record)
    figure = titled_figure("Attention and length of text", cell, 9.0, 3.4)
    left, right = figure.subplots(1, 2)
    largest, measure = largest_weights(cell), reference_measure(cell)
    histogram(left, largest[~np.isnan(largest)], np.linspace(0, 1, 31), ATTENTION, "")
    left.set_title(f"largest weight: {mean_in_words(largest, 2)}")
    left.set_xlim(0, 1)
    left.set_xlabel("largest weight in the text (dashed: mean)")
    left.set_ylabel("share of texts")
    percent_axis(left)
    if measure is not None:
        _tau_by_length(right, cell, measure)
        return figure
    histogram(right, cell.lengths.astype(np.float64), np.linspace(-0.5, cell.lengths.max() + 0.5, 31), PALETTE[-1], "")
    right.set_title(f"length: mean {cell.lengths.mean():.1f}")
    right.set_xlabel("tokens in the text (dashed: mean)")
    right.set_ylabel("share of texts")
    percent_axis(right)
    return figure


def _tau_by_length(axes: "Axes", cell: Cell, measure: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    tau = cell.tau("attention", measure)
    defined = ~np.isnan(tau)
    axes.set_title(f"attention and {measure_label(measure)}, by length")
    axes.set_xlabel("tokens in the text" + (" (line: median)" if defined.any() else ""))
    axes.set_ylabel("Kendall's τ")
    axes.set_ylim(-1.05, 1.05)
    axes.axhline(0, color="#777777", linewidth=1)
    if not defined.any():
        axes.set_xticks([])
        note(axes, "no text has a defined τ")
        return
    lengths, tau = cell.lengths[defined], tau[defined]
    # as pixels inside the SVG: thousands of points would make the file heavy
    axes.scatter(lengths, tau, s=9, color=PALETTE[4], alpha=0.35, linewidths=0, rasterized=True)
    parts = np.array_split(np.argsort(lengths, kind="stable"), min(10, len(lengths)))
    middle = [(np.median(lengths[part]), np.median(tau[part])) for part in parts]
    axes.plot(*zip(*middle, strict=True), color=ATTENTION, linewidth=2, marker="o", markersize=4)
    axes.set_xscale("log")
    axes.set_xlim(lengths.min() * 0.85, lengths.max() * 1.18)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _overview_words(cell: Cell) -> tuple[str, str]:
    right = "agreement changes with length of text" if cell.measures else "long the texts are"
    mean = mean_in_words(largest_weights(cell), 2).partition(",")[0]
    alt = f"Two panels: histogram of the largest attention weight per text ({mean}), and "
    return f"{alt}how {right}.", f"How concentrated attention is, and how {right}."


def _figures(cell: Cell) -> Iterator[Drawing]:
    if cell.measures:
        yield Drawing("tau_by_measure", tau_by_measure, _tau_words)
    if {"gradient", "leave_one_out"} <= set(cell.measures):
        yield Drawing("gradient_vs_leave_one_out", gradient_vs_leave_one_out, _yardstick_words)
    yield Drawing("attention_overview", attention_overview, _overview_words)


SECTION = Section(
    name="agreement",
    source="Jain & Wallace (2019), section 4.1",
    place=10,
    needs=("attention", "probs"),
    uses=("importance_*",),
    per_text=per_text,
    quantities={"tau *": Quantity(interval=t_interval)},
    tables=(TABLE, SEEDS),
    figures=_figures,
    sentences=lambda cell: summarise(cell, rows(TABLE, cell)),
    across=_across,
    conventions=_conventions(),
)
