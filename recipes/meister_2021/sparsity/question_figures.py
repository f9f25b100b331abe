"""Figures of the open questions: a row of panels for each model, drawn from the tables of `questions` alone.

Lines join means over seeds and texts; bands and bars are their 95 % intervals. Lambda stands on the axis of 1 / (1 -
lambda), where equal steps sharpen the scores by equal factors; dotted is softmax, which has no lambda.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.style import PALETTE, QUIET_COLOUR, TEXT_COLOUR, note, own_style, titled_figure

from .models import IDENTITY, model_names, models
from .numbers import MEASURES
from .trends import sharpness


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHED = (0, (4, 2))
CUT = ("tau_ties_alone", "overlap_cut", "auprc_cut")


def figures(tables: Mapping[str, pd.DataFrame], cells: Sequence[Cell]) -> "dict[str, Figure]":
    """The figure of each question that has its table, by file name."""
    shown = dict(tables)
    if "question_b_published" in tables:
        published = tables["question_b_published"][[*IDENTITY, "projection", "measure", "null", "published"]]
        shown["question_b_nulls"] = tables["question_b_nulls"].merge(published, "left")
    return {name: draw(shown[name], cells) for name, draw in FIGURES.items() if name in shown}


def _panels(
    title: str, cells: Sequence[Cell], table: pd.DataFrame, columns: Sequence[str], width: float = 2.9
) -> "tuple[Figure, list[tuple[pd.DataFrame, str, Axes]]]":
    """A figure and its panels, each with the rows of its model and its column, titled by them at the left and above. What
    identifies the figure are the cells of the models that it shows.
    """
    known = set(table[list(IDENTITY)].itertuples(index=False, name=None))
    shown = [cell for model in models(cells) if tuple(model.heading.values()) in known for cell in model.cells]
    seeds = sorted({cell.heading["seed"] for cell in shown})
    subject = f"{', '.join(dict.fromkeys(str(cell.heading['dataset']) for cell in shown))} · "
    subject += f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))} · {len(shown)} models"
    parts = list(table.groupby(model_names(table), sort=False))
    size = max(6.5, 0.6 + width * len(columns)), 0.7 + 2.3 * len(parts)
    figure = titled_figure(title, shown[0], *size, subject=subject, count=sum(map(len, shown)))
    axes = figure.subplots(len(parts), len(columns), sharex=True, squeeze=False)
    panels = []
    for down, (name, rows) in enumerate(parts):
        axes[down, 0].set_ylabel(name.replace(" · ", "\n"), fontsize=9.5)
        for right, column in enumerate(columns):
            axes[0, right].set_title(column, fontsize=10.5)
            axes[down, right].grid(axis="y", color="#e4e4e4", linewidth=0.8)
            axes[down, right].set_axisbelow(True)
            axes[down, right].tick_params(labelsize=8.5)
            panels.append((rows, column, axes[down, right]))
    return figure, panels


def _finish(figure: "Figure", xlabel: str) -> "Figure":
    """One legend below all panels, of the labels that any has, and the name of the axis."""
    handles = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
        if not axes.lines:
            note(axes, "not measured")
    legend = figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(4, len(handles)), fontsize=9.5, title=xlabel
    )
    legend.get_title().set(color=QUIET_COLOUR, fontsize=10)
    return figure


def _line(axes: "Axes", rows: pd.DataFrame, x: np.ndarray, name: str, colour: str, label: str, style: object = "-") -> None:
    """Means over x with their band; nothing where no mean is defined."""
    known = rows[name].notna().to_numpy() & ~np.isnan(x)
    if known.any():
        rows, x = rows[known].iloc[np.argsort(x[known])], np.sort(x[known])
        axes.plot(x, rows[name], color=colour, label=label, marker="o", markersize=3.5, linewidth=1.6, linestyle=style)
        axes.fill_between(x, rows[f"{name}_ci_low"], rows[f"{name}_ci_high"], color=colour, alpha=0.18, linewidth=0)


def _cut_line(axes: "Axes", rows: pd.DataFrame, x: np.ndarray, name: str, colour: str, label: str) -> None:
    """What softmax attention cut to the same support gives: thin, dashed, above the others, without a band."""
    known = rows[name].notna().to_numpy() & ~np.isnan(x)
    if known.any():
        order = np.argsort(x[known])
        style = {"linewidth": 1.2, "linestyle": DASHED, "zorder": 3}
        axes.plot(x[known][order], rows[name][known].iloc[order], color=colour, label=label, **style)


def _lambda_axis(axes: "Axes", lambdas: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    values = sorted({value for value in lambdas if not np.isnan(value)})
    axes.set_xticks(sharpness(values), [f"{value:g}".replace("-", "−") for value in values], rotation=90, fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())


def _softmax(axes: "Axes", rows: pd.DataFrame, name: str, colour: str) -> None:
    """A dotted line at the value under softmax."""
    values = rows.loc[rows["projection"] == "softmax", name]
    if len(values) and values.notna().all():
        axes.axhline(float(values.iloc[0]), color=colour, linewidth=1, linestyle=":")


def _over_lambda(axes: "Axes", rows: pd.DataFrame, lines: Mapping[str, tuple[str, str]], ticks: pd.Series) -> None:
    """lines: column -> (colour, label); those of softmax attention cut to the same support are `CUT`. ticks: all lambdas, of
    the other models too, since panels share their axis.
    """
    x = sharpness(rows["lambda"])
    for name, (colour, label) in lines.items():
        if name in CUT:
            _cut_line(axes, rows, x, name, colour, label)
        else:
            _line(axes, rows, x, name, colour, label)
            _softmax(axes, rows, name, colour)
    _lambda_axis(axes, ticks)


LAMBDA = "lambda, on the axis of 1 / (1 − lambda): sparser to the right; dotted: softmax"


def _by_measure(title: str, table: pd.DataFrame, cells: Sequence[Cell], lines: Mapping[str, tuple[str, str]]) -> "Figure":
    """Columns of numbers against lambda: a row of panels for each model, a column for each measure."""
    labels = {measure_label(name): name for name in MEASURES if name in set(table["measure"])}
    figure, panels = _panels(title, cells, table, list(labels))
    for rows, column, axes in panels:
        _over_lambda(axes, rows[rows["measure"] == labels[column]], lines, table["lambda"])
        axes.set_ylim(top=1.04)
    return _finish(figure, LAMBDA)


@own_style
def tie_ceiling(table: pd.DataFrame, cells: Sequence[Cell]) -> "Figure":
    """(a) tau, its ceiling, tau over the ceiling and tau of ties alone against lambda."""
    lines = {
        "tau": (PALETTE[0], "τ"),
        "ceiling": (PALETTE[6], "its ceiling"),
        "tau_over_ceiling": (PALETTE[1], "τ over its ceiling"),
        "tau_ties_alone": (TEXT_COLOUR, "τ of softmax attention cut to the same support"),
    }
    return _by_measure("How much of the fall of τ is ties?", table, cells, lines)


@own_style
def nulls(table: pd.DataFrame, cells: Sequence[Cell]) -> "Figure":
    """(b) tau of trained models beside the nulls, under softmax and sparsemax, or what else there is without them; with a
    column "published", what the paper states.
    """
    measures = [name for name in MEASURES if name in set(table["measure"])]
    shown = table[table["projection"].isin(["softmax", "sparsemax"])]
    shown = shown if len(shown) else table
    columns = list(dict.fromkeys(shown["projection"]))
    figure, panels = _panels("Do correlations exceed what needs no training?", cells, shown, columns, 4.0)
    marks = {"random places": (PALETTE[1], "^"), "untrained model": (PALETTE[2], "s")}
    for part, column, axes in panels:
        part = part[part["projection"] == column]
        for height, measure in enumerate(reversed(measures)):
            mine = part[part["measure"] == measure]
            for offset, (null, (colour, mark)) in zip((0.0, -0.26), marks.items(), strict=True):
                of_null = mine[mine["null"] == null]
                _point(axes, of_null, "null_tau", height + offset, colour, mark, null)
            _point(axes, mine.head(1), "tau", height + 0.26, PALETTE[0], "o", "trained model")
            if "published" in mine:
                said = mine["published"].dropna().head(1)
                axes.plot(said, [height + 0.26] * len(said), color=PALETTE[6], marker="x", linestyle="", label="published")
        names = [measure_label(name) for name in reversed(measures)] if column == columns[0] else [""] * len(measures)
        axes.set_yticks(range(len(measures)), names, fontsize=8.5)
        axes.set_ylim(-0.6, len(measures) - 0.4)
        axes.axvline(0, color="#777777", linewidth=1)
    return _finish(figure, "Kendall's τ of attention with the importance")


def _point(axes: "Axes", rows: pd.DataFrame, name: str, height: float, colour: str, mark: str, label: str) -> None:
    for row in rows.to_dict("records"):
        axes.plot([row[f"{name}_ci_low"], row[f"{name}_ci_high"]], [height, height], color=colour, linewidth=1.4)
        axes.plot([row[name]], [height], color=colour, marker=mark, markersize=5, linestyle="", label=label)


@own_style
def detached(table: pd.DataFrame, cells: Sequence[Cell]) -> "Figure":
    """(c) tau with the gradient through attention and with attention held fixed, against lambda."""
    figure, panels = _panels("Attention held fixed in the gradient", cells, table, ["inputs", "states"], 4.2)
    lines = {"tau": (PALETTE[0], "gradient through attention"), "tau_detached": (PALETTE[1], "attention held fixed")}
    for rows, column, axes in panels:
        _over_lambda(axes, rows[rows["place"] == column], lines, table["lambda"])
    return _finish(figure, LAMBDA)


@own_style
def removal(table: pd.DataFrame, cells: Sequence[Cell]) -> "Figure":
    """(d) tau, mean importance, and share of tokens that differ between the two ways to remove a state."""
    columns: dict[str, dict[str, tuple[str, str]]] = {
        "τ with attention": {
            "tau_renormalise": (PALETTE[0], "weights renormalised"),
            "tau_reproject": (PALETTE[1], "scores projected again"),
        },
        "mean importance (TVD)": {
            "importance_renormalise": (PALETTE[0], "weights renormalised"),
            "importance_reproject": (PALETTE[1], "scores projected again"),
        },
        "share that differs": {
            "tokens_that_differ": (PALETTE[2], "share of tokens whose importances differ"),
            "texts_that_differ": (PALETTE[3], "share of texts with such a token"),
        },
    }
    figure, panels = _panels("Two ways to remove a state", cells, table, list(columns), 3.4)
    for rows, column, axes in panels:
        _over_lambda(axes, rows, columns[column], table["lambda"])
    return _finish(figure, LAMBDA)


@own_style
def without_ties(table: pd.DataFrame, cells: Sequence[Cell]) -> "Figure":
    """(e) tau beside top-k overlap and AUPRC above chance, against lambda."""
    lines = {
        "tau": (PALETTE[0], "τ"),
        "overlap_above_chance": (PALETTE[1], "top-k overlap above chance"),
        "overlap_cut": (PALETTE[1], "overlap, softmax cut to the same support"),
        "auprc_above_chance": (PALETTE[2], "AUPRC of the support above chance"),
        "auprc_cut": (PALETTE[2], "AUPRC, softmax cut to the same support"),
    }
    return _by_measure("Agreement that ties do not limit", table, cells, lines)


STATISTICS = {
    "entropy of attention": "entropy",
    "share of tokens with weight": "support_share",
    "τ, gradient norm": "tau_gradient_norm",
    "τ, leave-one-out": "tau_leave_one_out",
    "accuracy": "accuracy",
}


@own_style
def temperature(table: pd.DataFrame, cells: Sequence[Cell]) -> "Figure":
    """(f) Each statistic against lambda, a line for each variant."""
    variants = list(dict.fromkeys(table[["scale", "attention_rate"]].itertuples(index=False, name=None)))
    figure, panels = _panels("Is lambda a temperature that the model undoes?", cells, table, list(STATISTICS))
    for rows, column, axes in panels:
        for (scale, rate), colour in zip(variants, PALETTE * len(variants), strict=False):
            mine = rows[(rows["scale"] == scale) & (rows["attention_rate"] == rate)]
            label = f"{'free scores' if scale == 'free' else f'scores of sd {scale}'}, attention rate x {rate:g}"
            style = "-" if scale == "free" else DASHED
            _line(axes, mine, sharpness(mine["lambda"]), STATISTICS[column], colour, label, style)
        _lambda_axis(axes, table["lambda"])
    return _finish(figure, LAMBDA.partition(";")[0])


@own_style
def entmax(table: pd.DataFrame, cells: Sequence[Cell]) -> "Figure":
    """(g) Each statistic against alpha."""
    figure, panels = _panels("Entmax as the knob", cells, table, list(STATISTICS))
    for rows, column, axes in panels:
        alphas = rows["alpha"].to_numpy(np.float64)
        name = STATISTICS[column]
        _line(axes, rows, alphas, name, PALETTE[0], "as measured")
        if name.startswith("tau_"):
            _line(axes, rows, alphas, name.replace("tau_", "tau_over_ceiling_"), PALETTE[1], "τ over its ceiling")
        ticks = sorted(set(table["alpha"]))
        axes.set_xticks(ticks, [f"{value:g}" for value in ticks], fontsize=8)
    return _finish(figure, "alpha: 1 is softmax, 2 sparsemax")


FIGURES: dict[str, Callable[[pd.DataFrame, Sequence[Cell]], "Figure"]] = {
    "question_a_tie_ceiling": tie_ceiling,
    "question_b_nulls": nulls,
    "question_c_detached": detached,
    "question_d_removal": removal,
    "question_e_without_ties": without_ties,
    "question_f_temperature": temperature,
    "question_g_entmax": entmax,
}
