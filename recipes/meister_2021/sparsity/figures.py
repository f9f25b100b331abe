"""Is sparse attention more interpretable? Tables and figures of Meister et al. (2021), beside what the paper prints.

The tables are in `tables`, where it is said which cells they are of. The figures show the same cells: 1 and 4 are
bar charts of Table 6, of inputs and of states; 2 and 3 show the sweep over lambda, entropies and tau.

Source: Meister, Lazov, Augenstein & Cotterell (2021), Is Sparse Attention more Interpretable?
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import Cell, measure_label, pair_name
from attnfaith.reporting.style import GRADIENT, LEAVE_ONE_OUT, PALETTE, own_style, titled_figure

from .models import Model
from .numbers import INPUTS, entropy, tau
from .sweep import sparsegen_lambda
from .tables import Published, levels, over_texts, paper_models, read_published
from .trends import sharpness


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STATES = ("gradient_norm_hidden", "leave_one_out_reproject_hidden")
BARS = {"softmax": PALETTE[0], "sparsemax": PALETTE[1]}
COLOURS = {"gradient_norm": GRADIENT, "leave_one_out": LEAVE_ONE_OUT}
MARKERS = {"gradient_norm": "o", "leave_one_out": "s"}
DIAMOND = {"marker": "D", "facecolors": "white", "linewidths": 1.4, "zorder": 5}
ENDS = ("softmax", "uniform")
TELLING = ("texts", "training_texts", "split", "vectors")
"""Identity columns that tell data sets of one name apart."""
END = 0.26
"""Distance of the end points from the sweep and from one another, as a share of the sweep's width."""


def figures(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> "dict[str, Figure]":
    """The paper's four figures, of those models and data sets that there are; one with nothing to show is left out.

    published: what `tables.read_published` takes; its values are drawn as diamonds. Raises ValueError where it is
    no such table.
    """
    known, shown = read_published(published), paper_models(cells)
    drawn = {
        "meister_figure1": _bars(shown, INPUTS, "Does attention rank the input tokens as importance does?", known),
        "meister_figure2": _sweep(shown, entropy, "How even is the importance of input tokens?", "normalised entropy", {}),
        "meister_figure3": _sweep(shown, tau, "Attention and the importance of input tokens", "mean Kendall's τ", known),
        "meister_figure4": _bars(shown, STATES, "Does attention rank the encoder states as importance does?", known),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


# ------------------------------------------------------------------------------------------------- what panels share


def _data_names(shown: Sequence[Model]) -> list[str]:
    """The data set of each model, with texts, split and vectors where data sets of one name differ in them."""
    names = []
    for model in shown:
        alike = [other.heading for other in shown if other.heading["dataset"] == model.heading["dataset"]]
        differ = [name for name in TELLING if len({other[name] for other in alike}) > 1]
        names.append(", ".join(model.heading[name] for name in ("dataset", *differ)))
    return names


def _empty(title: str, shown: Sequence[Model], width: float, height: float) -> "Figure":
    """A figure that says which models it is of, and counts the texts of each data set once."""
    data = dict(zip(_data_names(shown), shown, strict=True))
    seeds = sorted({cell.heading["seed"] for model in shown for group in levels(model).values() for cell in group})
    names = dict.fromkeys(model.name for model in shown)
    subject = f"{', '.join(data)} · {', '.join(names)} · seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    count = sum(_texts(model) for model in data.values())
    return titled_figure(title, shown[0].cells[0], width, height, subject=subject, count=count)


def _texts(model: Model) -> int:
    return max(len(cell) for group in levels(model).values() for cell in group)


def _published(known: Published, model: Model, projection: str, measure: str) -> float:
    """The mean tau that Table 6 has, NaN where it has none."""
    place = tuple(model.heading[name] for name in ("dataset", "encoder", "alignment"))
    return known.get(("6", *place, projection, "", f"tau {pair_name('attention', measure)}"), (np.nan, np.nan))[0]


def _legend(axes: "Axes", **other) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), alignment="left", **other)


# --------------------------------------------------------------------------------------------------- figures 1 and 4


@own_style
def _bars(shown: Sequence[Model], measures: Sequence[str], title: str, known: Published) -> "Figure | None":
    """Mean tau of attention with each measure, softmax beside sparsemax, by data set: one column of panels for each model.

    Bar: mean over seeds. Line: one standard deviation over texts, mean over seeds, to both sides. Dots: seeds. Diamond: the
    published mean. None where nothing is defined.
    """
    numbers = {}
    for model, data in zip(shown, _data_names(shown), strict=True):
        for projection in BARS:
            for measure in measures:
                spreads = over_texts(levels(model).get(projection, []), tau, measure)
                if len(defined := spreads[~np.isnan(spreads[:, 0])]):
                    value = _published(known, model, projection, measure)
                    numbers[measure, model.name, data, projection] = (defined, value)
    if not numbers:
        return None
    columns, data = (list(dict.fromkeys(key[place] for key in numbers)) for place in (1, 2))
    width = max(7.0, 1.6 + len(columns) * max(2.4, 1.1 * len(data)))
    figure = _empty(title, shown, width, 2.3 * len(measures))
    panels = figure.subplots(len(measures), len(columns), sharex=True, sharey=True, squeeze=False)
    for (measure, column, name, projection), (values, value) in numbers.items():
        axes = panels[measures.index(measure), columns.index(column)]
        place = data.index(name) + (0.4 * (projection == "sparsemax") - 0.2)
        mean, std = values.mean(axis=0)
        axes.bar(place, mean, 0.36, color=BARS[projection], alpha=0.55)
        axes.errorbar(place, mean, std, color="#333333", linewidth=1, capsize=2)
        places = place + 0.05 * (np.arange(len(values)) - (len(values) - 1) / 2)
        axes.scatter(places, values[:, 0], s=9, color="#1a1a1a", zorder=4, linewidths=0)
        axes.scatter([place + 0.13], [value], s=26, edgecolors="#1a1a1a", **DIAMOND)
    for line, axes in zip(measures, panels, strict=True):
        axes[0].set_ylabel("τ with\n" + measure_label(line).replace(" ", "\n"), fontsize=10)
    for axes in panels.ravel():
        axes.axhline(0, color="#777777", linewidth=1)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xticks(range(len(data)), [name.replace(", ", "\n") for name in data], fontsize=9)
        axes.set_xlim(-0.6, len(data) - 0.4)
    for axes, name in zip(panels[0], columns, strict=True):
        axes.set_title(name, parse_math=False)
    corner = panels[0, -1]
    for projection, colour in BARS.items():
        corner.bar([np.nan], [np.nan], color=colour, alpha=0.55, label=projection)
    corner.scatter([], [], s=9, color="#1a1a1a", linewidths=0, label="one seed")
    corner.errorbar([], [], [], color="#333333", linewidth=1, capsize=2, label="sd over texts")
    if any(not np.isnan(value) for _, value in numbers.values()):
        corner.scatter([], [], s=26, edgecolors="#1a1a1a", label="published", **DIAMOND)
    _legend(corner)
    return figure


# --------------------------------------------------------------------------------------------------- figures 2 and 3


@own_style
def _sweep(shown: Sequence[Model], number: Callable, title: str, label: str, known: Published) -> "Figure | None":
    """Means over texts of a number of each input measure against lambda, a panel for each data set and model.

    Dots: seeds. Line: mean over seeds. lambda is spaced by log(1 - lambda), since sparsegen is sparsemax of scores over
    1 - lambda; uniform attention and softmax lie on no such axis and stand apart, on grey. Diamond: published. None where no
    cell of a sweep has a value.
    """
    shown = [model for model in shown if any(_on_axis(_points(model, number, measure)) for measure in INPUTS)]
    if not shown:
        return None
    names = _data_names(shown)
    lines, columns = list(dict.fromkeys(names)), list(dict.fromkeys(model.name for model in shown))
    figure = _empty(title, shown, 1.9 + max(5.0, 4.4 * len(columns)), 2.5 * len(lines))
    panels = figure.subplots(len(lines), len(columns), sharey=True, squeeze=False)
    used = {(lines.index(name), columns.index(model.name)): model for model, name in zip(shown, names, strict=True)}
    for place, axes in np.ndenumerate(panels):
        if place in used:
            _sweep_panel(axes, used[place], number, known)
            name = f"{lines[place[0]]} · {used[place].name}, n = {_texts(used[place]):,}"
            axes.set_title(name, fontsize=10, parse_math=False)
        else:
            axes.axis("off")
    for line in range(len(lines)):
        axes = panels[line, min(column for other, column in used if other == line)]
        axes.set_ylabel(label, fontsize=10)
        axes.tick_params(labelleft=True)
    for column in range(len(columns)):
        lowest = max(line for line, other in used if other == column)
        panels[lowest, column].set_xlabel("λ, spaced by log(1 − λ): dense to sparse")
    corner = panels[0, -1]
    for measure in INPUTS:
        style = {"color": COLOURS[measure], "marker": MARKERS[measure], "markersize": 4}
        corner.plot([], [], label=measure_label(measure), **style)
    if known:
        corner.scatter([], [], s=26, edgecolors="#1a1a1a", label="published", **DIAMOND)
    _legend(corner, title="line: mean over seeds", title_fontsize=9)
    return figure


def _points(model: Model, number: Callable, measure: str) -> dict[str, np.ndarray]:
    """The mean over texts of each seed, by projection; those without a value are left out."""
    means = {name: over_texts(group, number, measure)[:, 0] for name, group in levels(model).items()}
    means = {name: values[~np.isnan(values)] for name, values in means.items()}
    return {name: values for name, values in means.items() if len(values)}


def _on_axis(points: dict[str, np.ndarray]) -> list[str]:
    return [name for name in points if name not in ENDS]


def _places(model: Model) -> dict[str, float]:
    """Where each projection of a model stands: lambda by its logarithm, softmax and uniform attention to the left."""
    lambdas = {name: sparsegen_lambda(group[0]) for name, group in levels(model).items()}
    places = {name: float(sharpness([value])[0]) for name, value in lambdas.items() if value is not None}
    first, width = min(places.values()), max(np.ptp(list(places.values())), 0.5)
    ends = {name: first - (1 + number) * END * width for number, name in enumerate(ENDS)}
    return places | {name: place for name, place in ends.items() if name in lambdas}


def _sweep_panel(axes: "Axes", model: Model, number: Callable, known: Published) -> None:
    places = _places(model)
    left = min(place for name, place in places.items() if name not in ENDS)
    first, width = min(places.values()), max(max(places.values()) - left, 0.5)
    dash, margin = 0.3 * END * width, 0.5 * END * width
    without = set(places)
    for measure in INPUTS:
        points, colour = _points(model, number, measure), COLOURS[measure]
        without -= set(points)
        for name, values in points.items():
            where = np.full(len(values), places[name])
            axes.scatter(where, values, s=13, marker=MARKERS[measure], color=colour, alpha=0.55, linewidths=0)
        line = sorted((places[name], points[name].mean()) for name in _on_axis(points))
        if line:
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=1.6)
        for name in ENDS:
            if name in points:
                axes.hlines(points[name].mean(), places[name] - dash, places[name] + dash, color=colour, linewidth=1.6)
        for name in ("softmax", "sparsemax"):
            if name in places:
                value = _published(known, model, name, measure)
                axes.scatter([places[name]], [value], s=26, edgecolors=colour, **DIAMOND)
    for name in without:
        axes.text(
            places[name], 0.5, "no value", rotation=90, fontsize=8, color="#777777", ha="center", va="center",
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    if left > first:
        axes.axvspan(first - margin, left - margin, color="#f2f2f2", zorder=0)
    axes.set_xlim(first - margin, max(places.values()) + 0.06 * width)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    _lambda_ticks(axes, model, places)


def _lambda_ticks(axes: "Axes", model: Model, places: dict[str, float]) -> None:
    """A tick for each projection, named where the names have room: sparsemax first, then outwards from it."""
    lambdas = {name: sparsegen_lambda(group[0]) for name, group in levels(model).items()}
    names = {
        name: name if value is None else re.sub(r"\b0\.", ".", f"{value:g}").replace("-", "−")
        for name, value in lambdas.items()
    }
    width, labelled = np.ptp(axes.get_xlim()), []
    for name in sorted(places, key=lambda name: (lambdas[name] is None, abs(places[name]))):
        room = [0.012 + 0.009 * (len(names[name]) + len(names[other])) for other in labelled]
        if all(abs(places[name] - places[other]) >= width * gap for other, gap in zip(labelled, room, strict=True)):
            labelled.append(name)
    axes.set_xticks(list(places.values()), [names[name] if name in labelled else "" for name in places], fontsize=8)
