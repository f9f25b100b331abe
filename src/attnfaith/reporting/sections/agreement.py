"""How far attention and importance rank the tokens of a text alike: Kendall's tau-b, text by text.

Undefined for a text of fewer than two tokens, or where all scores of one of the two are equal.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement
from attnfaith.reporting.blocks import number_with_interval
from attnfaith.reporting.cells import CELL, Cell, measure_label, one_cell, pair_name
from attnfaith.reporting.figures import RANGES, Drawn, Histograms, Kind, draw_ranges
from attnfaith.reporting.render import frame, rows
from attnfaith.reporting.spec import Case, Classes, Column, Key, Row, Section, Table, cells_of, largest_weights, per_cell
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
TAU_LABEL = "Kendall's τ per text (1: same order, 0: no relation; dashed: mean)"
ALIKE = 0.999  # tau of rankings that differ by rounding only
TAU_BINS = np.linspace(-1, 1, 41)
YARDSTICK = (("attention", "gradient"), ("attention", "leave_one_out"), ("gradient", "leave_one_out"))


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Tau of attention with each measure of the cell, [N] in -1..1: "tau attention–gradient", ..."""
    return {_tau_name(name): cell.tau("attention", name) for name in cell.measures}


def _tau_name(measure: str) -> str:
    return f"tau {pair_name('attention', measure)}"


def reference_measure(cell: Cell) -> str | None:
    """The measure that attention is held against where one is shown: leave-one-out, else gradient, else the first."""
    for name in ("leave_one_out", "gradient", *cell.measures):
        if name in cell.measures:
            return name
    return None


def main_measures(cell: Cell) -> tuple[str, ...]:
    """What the page speaks of: attention, then gradient and leave-one-out; without either, the first measure there is."""
    known = tuple(name for name in ("gradient", "leave_one_out") if name in cell.measures)
    return ("attention", *(known or cell.measures[:1]))


# ------------------------------------------------------------------------------------------------- tables


def _cases(cell: Cell, seed: int = 0) -> Iterator[Case]:
    for first, second in cell.pairs:
        by_class = agreement(cell.scores(first), cell.scores(second), cell.predicted, seed=seed)
        for name, summary in by_class.items():
            yield Case(keys={"pair": pair_name(first, second), "class": name}, given=summary)


def pair_label(row: Row) -> str:
    """A row's pair for reading: "attention – leave-one-out"."""
    return " – ".join(measure_label(name) for name in row["pair"].split("–"))


_BY = (Key("pair", "pair", pair_label), Key("class", Classes().heading))
TABLE = Table(
    name="agreement",
    cases=_cases,
    by=_BY,
    columns=(
        Column("n", "texts"),
        Column("n_undefined", "undefined"),
        Column("tau_mean", "mean τ [95 % interval]", lambda row: number_with_interval(row, "tau_mean")),
        Column("tau_std", "std"),
        Column("share_significant", "significant"),
        Column("ci_low"),
        Column("ci_high"),
        Column("tie_ceiling", "tie ceiling"),
        Column("tau_over_ceiling", "τ / ceiling"),
    ),
    caption="Agreement of token rankings",
    note="Kendall’s τ-b of two token rankings, one text at a time: 1 same order, 0 no relation, −1 reversed. "
    "Undefined: texts with fewer than two tokens or with all scores equal; they are in no mean. Significant: "
    "share of texts with p ≤ 0.05. Tie ceiling: the largest τ that tied scores allow, mean over texts.",
)


COLUMNS = (*CELL, *TABLE.names)


def agreement_table(record: "pa.Table | Sequence[Cell]") -> pd.DataFrame:
    """How far attention and importance rank the tokens of a text alike (Kendall's tau-b).

    One row per cell x pair x predicted class. Pairs: attention with every importance measure of the record, and
    gradient with leave-one-out, which says how far two importance measures agree with each other. Classes: "overall",
    then "0", "1", ... as the model predicted them.

    n: instances with a defined tau. n_undefined: instances without one (fewer than two tokens, or a constant vector);
    they enter no mean. tau_mean, tau_std: in -1..1, population standard deviation. share_significant: of the defined,
    those with p <= 0.05, in 0..1. ci_low, ci_high: 95 % bootstrap interval of the mean over instances. tie_ceiling: mean of
    the largest tau that the ties of a text allow. tau_over_ceiling: mean of tau over that of the same text.

    Source: Jain & Wallace (2019), section 4.1.
    """
    return frame(TABLE, cells_of(record))


def _seeds(cells: Sequence[Cell]) -> pd.DataFrame:
    summary = seed_summary(frame(TABLE, cells))
    return summary[summary["n_seeds"] > 1]


SEEDS = Table(
    name="seeds",
    frame=_seeds,
    by=_BY,
    columns=(
        Column("n_seeds", "seeds"),
        Column("n_undefined", "undefined"),
        Column("mean", "mean τ"),
        Column("std", "std"),
        Column("min", "lowest"),
        Column("max", "highest"),
    ),
    caption="Spread over training seeds",
    note="Mean τ of each training seed, summarised over seeds; sample standard deviation.",
    page_rows=lambda df: df[df["statistic"] == "tau_mean"],
    studies=False,
)


# ---------------------------------------------------------------------------------------------- sentences


def degree(tau: float) -> str:
    """A mean tau in words, by DEGREES; of the two decimals that are printed beside the words."""
    return next(words for bound, words in DEGREES if round(tau, 2) >= bound)


def _conventions() -> str:
    steps = [f"“{words}” from {bound:g}".replace("-", "−") for bound, words in DEGREES[:-1]]
    return f"Words for mean τ are a convention of this report: {', '.join(steps)}, “{DEGREES[-1][1]}” below."


def summarise(cell: Cell, entries: Sequence[Row]) -> tuple[str, ...]:
    """What the numbers of one cell say, in plain sentences made from the rows that the agreement table has of it."""
    overall = {row["pair"]: row for row in entries if row["class"] == "overall"}
    if not overall:
        return (NO_MEASURE,)
    compared = [name for name in main_measures(cell) if name != "attention"]
    sentences = [_agreement_sentence(measure_label(name), overall[pair_name("attention", name)]) for name in compared]
    between = overall.get(pair_name("gradient", "leave_one_out"))
    if between and not np.isnan(between["tau_mean"]):
        sentences.append(_between_sentence(between["tau_mean"], [overall[pair_name("attention", n)] for n in compared]))
    return tuple(sentences)


def _summarise_cells(df: pd.DataFrame | None) -> Iterator[str]:
    """How far mean tau goes apart between several cells, per pair."""
    if df is None:
        yield NO_MEASURE
        return
    overall = df[df["class"] == "overall"]
    for _, members in overall.groupby("pair", sort=False):
        taus = members["tau_mean"].dropna()
        text = f"{pair_label(members.iloc[0])}: "
        if len(taus):
            text += f"mean Kendall’s τ lies between {taus.min():.2f} and {taus.max():.2f}"
        else:
            text += "no cell has a defined mean τ"
        missing = len(members) - len(taus)
        yield text + (f" ({counted(missing, 'cell')} without one)." if missing and len(taus) else ".")


def _interval(row: Mapping[str, float]) -> str:
    if np.isnan(row["ci_low"]):
        return "interval undefined"
    return f"95 % interval {row['ci_low']:.2f} to {row['ci_high']:.2f}"


def _agreement_sentence(name: str, row: Mapping[str, float]) -> str:
    if not row["n"]:
        return (
            f"Kendall’s τ between attention and {name} is undefined for every text ({row['n_undefined']:,}): none has two "
            "tokens whose weights differ and two whose scores do."
        )
    text = (
        f"Attention and {name} put the tokens of a text in {degree(row['tau_mean'])}: Kendall’s τ is "
        f"{row['tau_mean']:.2f} on average over {counted(row['n'])} ({_interval(row)}), and differs from chance "
        f"(p ≤ 0.05) in {row['share_significant']:.0%} of them."
    )
    if row["tie_ceiling"] < 0.995:
        text += f" Tied tokens allow {row['tie_ceiling']:.2f} at most; of that, {row['tau_over_ceiling']:.0%} is reached."
    if row["n_undefined"]:
        text += f" Left out because τ is undefined: {row['n_undefined']:,}."
    return text


def _between_sentence(tau: float, rows: Sequence[Mapping[str, float]]) -> str:
    own = [row["tau_mean"] for row in rows if not np.isnan(row["tau_mean"])]
    text = f"Gradient and leave-one-out agree with each other at τ = {tau:.2f}"
    if not own:
        return f"{text}."
    if tau > max(own):
        return f"{text}, more than attention agrees with either."
    if tau < min(own):
        return f"{text}, less than attention agrees with either."
    return f"{text}, more than attention agrees with one of them and less than with the other."


# ------------------------------------------------------------------------------------------------ figures


def _tau_axis(axes: "Axes") -> None:
    axes.axvline(0, color="#777777", linewidth=1)
    axes.set_xlim(-1, 1)
    axes.set_xticks(np.linspace(-1, 1, 9))
    percent_axis(axes)


def tau_in_words(tau: np.ndarray) -> str:
    """ "mean 0.31, n = 20 (2 undefined)" of per-instance taus."""
    return mean_in_words(tau, 2)


@own_style
def tau_histograms(record: "pa.Table | Cell", importance: str) -> "Figure":
    """Per-instance tau between attention and one importance measure, one histogram per predicted class.

    The dashed lines are class means; the line at 0 is what rankings without relation give on average. Instances
    without a tau are not drawn and are counted. Of more than seven classes the six largest are drawn and
    the others together. Source: Jain & Wallace (2019), section 4.1.

    Raises ValueError where the record holds more than one cell or does not hold the measure.
    """
    cell, label = one_cell(record), measure_label(importance)
    histograms = Histograms(
        f"tau_attention_{importance}",
        title=f"Attention and {label}",
        ways={"": _tau_name(importance)},
        bins=TAU_BINS,
        finish=_tau_axis,
        xlabel=TAU_LABEL,
        in_words=tau_in_words,
        alt=f"Histograms of τ per text, attention and {label}, by predicted class.",
        caption=f"Agreement of attention with {label} in single texts, by predicted class.",
    )
    return histograms.draw(cell, {_tau_name(importance): cell.tau("attention", importance)})


def taus_of_measures(cell: Cell) -> tuple[dict[str, np.ndarray], list[str]]:
    """Tau [N] of attention with each measure, by label, and the labels of measures that attention orders alike always."""
    taus = {measure_label(name): cell.tau("attention", name) for name in cell.measures}
    alike = [label for label, tau in taus.items() if np.nanmin(tau, initial=1.0) > ALIKE and not np.isnan(tau).all()]
    return {label: tau for label, tau in taus.items() if label not in alike}, alike


@own_style
def tau_by_measure(cell: Cell) -> "Figure":
    """Per-instance tau of attention with every importance measure, a line each; those of tau 1 everywhere are left out."""
    taus, _ = taus_of_measures(cell)
    figure = titled_figure("Attention and each importance measure", cell, 9.0, 1.3 + 0.34 * max(len(taus), 1))
    axes = draw_ranges(figure, taus, (-1, 1), "Kendall's τ per text (1: same order, 0: no relation)")
    axes.axvline(0, color="#777777", linewidth=1)
    if not taus:
        note(axes, "every measure orders tokens as attention does")
    return figure


def _tau_words(cell: Cell) -> tuple[str, str]:
    taus, alike = taus_of_measures(cell)
    parts = "; ".join(f"{label}: {tau_in_words(tau)}" for label, tau in taus.items())
    caption = f"Agreement of attention with importance in single texts ({RANGES})."
    if alike:
        caption += f" Not drawn, because they order every text as attention does: {', '.join(alike)}."
    return f"Range of τ per text, one line for each measure. {parts}.", caption


@own_style
def gradient_vs_leave_one_out(record: "pa.Table | Cell") -> "Figure":
    """How far two importance measures agree with each other, under how far attention agrees with each.

    Three histograms of per-instance tau on one axis: attention-gradient, attention-leave-one-out and
    gradient-leave-one-out. Source: Jain & Wallace (2019), section 4.1.

    Raises ValueError where the record holds more than one cell or lacks one of the two measures.
    """
    cell = one_cell(record)
    taus = [cell.tau(first, second) for first, second in YARDSTICK]
    figure = titled_figure("Do the measures agree with each other?", cell, 9.0, 4.6)
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    for axes, (first, second), tau, colour in zip(panels, YARDSTICK, taus, PALETTE, strict=False):
        histogram(axes, tau[~np.isnan(tau)], TAU_BINS, colour, "")
        _tau_axis(axes)
        title = f"{measure_label(first)} and {measure_label(second)}: {tau_in_words(tau)}"
        axes.set_title(title, color=TEXT_COLOUR, fontsize=10.5)
    panels[-1].set_xlabel(TAU_LABEL)
    panels[1].set_ylabel("share of texts")
    return figure


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
    largest = largest_weights(cell)[cell.lengths > 0]
    histogram(left, largest, np.linspace(0, 1, 31), ATTENTION, "")
    empty = len(cell) - len(largest)
    shown = f": mean {largest.mean():.2f}" if len(largest) else ""
    left.set_title(f"largest weight{shown}" + (f" ({empty:,} without tokens)" if empty else ""))
    left.set_xlim(0, 1)
    left.set_xlabel("largest weight in the text (dashed: mean)")
    left.set_ylabel("share of texts")
    percent_axis(left)
    measure = reference_measure(cell)
    if measure is None:
        _length_histogram(right, cell.lengths)
    else:
        _tau_by_length(right, cell, measure)
    return figure


def _length_histogram(axes: "Axes", lengths: np.ndarray) -> None:
    highest = max(int(lengths.max()), 1)
    width = max(1, int(np.ceil(highest / 30)))
    bins = np.arange(-0.5, highest + width + 0.5, width)
    histogram(axes, lengths.astype(np.float64), bins, PALETTE[-1], "")
    axes.set_title(f"length: mean {lengths.mean():.1f}")
    axes.set_xlabel("tokens in the text (dashed: mean)")
    axes.set_ylabel("share of texts")
    percent_axis(axes)


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
        return note(axes, "no text has a defined τ")
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
    return None


def _overview_words(cell: Cell) -> tuple[str, str]:
    largest = [float(weights.max()) for weights in cell.attention if len(weights)]
    mean = f"mean {np.mean(largest):.2f}" if largest else "no text has tokens"
    right = "agreement changes with length of text" if cell.measures else "long the texts are"
    alt = f"Two panels: histogram of the largest attention weight per text ({mean}), and how {right}."
    return alt, f"How concentrated attention is, and how {right}."


def _yardstick_words(cell: Cell) -> tuple[str, str]:
    parts = [f"{measure_label(a)} and {measure_label(b)}: {tau_in_words(cell.tau(a, b))}" for a, b in YARDSTICK]
    caption = (
        "How far two importance measures agree with each other is the yardstick for how far attention agrees with them."
    )
    return f"Histograms of τ per text. {'; '.join(parts)}.", caption


def _figures(cell: Cell) -> Iterator[Kind]:
    if cell.measures:
        yield Drawn("tau_by_measure", figure=tau_by_measure, describe=_tau_words)
    if {"gradient", "leave_one_out"} <= set(cell.measures):
        yield Drawn("gradient_vs_leave_one_out", figure=gradient_vs_leave_one_out, describe=_yardstick_words)
    yield Drawn("attention_overview", figure=attention_overview, describe=_overview_words)


SECTION = Section(
    name="agreement",
    source="Jain & Wallace (2019), section 4.1",
    place=10,
    needs=("attention", "probs"),
    uses=("importance_*",),
    per_text=per_text,
    compared=True,
    tables=(TABLE, SEEDS),
    figures=_figures,
    sentences=lambda cell: summarise(cell, rows(TABLE, cell)),
    across=_summarise_cells,
    conventions=_conventions(),
)
