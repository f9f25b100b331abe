"""Figures over seeds and texts: every measure by four tests, and how far another attention can be from the model's own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.sections import identifiability
from attnfaith.reporting.style import PALETTE, own_style, titled_figure

from .ranking import CRITERIA, KIND, kinds, panel


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = ("aopc_removed", "aopc_kept", "accuracy_removed", "accuracy_kept")
FLOORS = ("random", "uniform")
APART = 0.16  # of a line: the two forms of a signed measure, one above the other


# ------------------------------------------------------------------------------------------------- measures


def of_measures(ranked: pd.DataFrame, published: pd.DataFrame | None) -> "dict[str, Figure]":
    """A figure of each kind of model in "measures_ranking", named after its data set and numbered beyond the first."""
    if not len(ranked):
        return {}
    drawn = {}
    for _, rows in ranked.groupby(list(KIND), sort=False, dropna=False):
        dataset = rows["dataset"].iloc[0]
        theirs = None if published is None else published[published["dataset"] == dataset]
        several = sum(name.startswith(f"{dataset}-measures") for name in drawn)
        drawn[f"{dataset}-measures{f'-{several + 1}' if several else ''}"] = measures_figure(rows, theirs)
    return drawn


@own_style
def measures_figure(ranked: pd.DataFrame, published: pd.DataFrame | None = None) -> "Figure":
    """Each measure by the tests SHOWN, a panel each: mean and 95 % interval over seeds and texts, signed measures with their
    sign and by their size on one line; the best AOPC on top. A cross: the published number of the same definition.
    """
    row = ranked.iloc[0]
    by_test = {test: ranked[ranked["test"] == test].set_index("measure") for test in SHOWN if test in set(ranked["test"])}
    first = next(iter(by_test.values()))["mean"]
    best = first.groupby(first.index.str.removeprefix(records.ABSOLUTE)).max().sort_values()
    subject = f"{row['dataset']} ({row['split']}) · {row['encoder']} + {row['projection']} · seeds: {row['n_seeds']}"
    figure = titled_figure(
        "Which tokens decide?",
        None,
        3.0 * len(by_test) + 1.4,
        0.9 + 0.27 * len(best),
        subject=subject,
        count=int(ranked["n"].max() // max(row["n_seeds"], 1)),
    )
    panels = figure.subplots(1, len(by_test), sharey=True, squeeze=False)[0]
    for axes, (test, values) in zip(panels, by_test.items(), strict=True):
        for height, name in enumerate(best.index):
            signed = records.ABSOLUTE + name in values.index
            _interval(axes, values, name, height + APART * signed, filled=True)
            _interval(axes, values, records.ABSOLUTE + name, height - APART, filled=False)
        if published is not None:
            theirs = published[(published["test"] == test) & (published["definition"] == "the same")]
            theirs = theirs[theirs["measure"].isin(best.index)]
            heights = [best.index.get_loc(name) for name in theirs["measure"]]
            axes.plot(theirs["published"], heights, "x", color=PALETTE[6], markersize=6)
        axes.set_yticks(range(len(best)), [*map(measure_label, best.index)], fontsize=9)
        good = "large" if CRITERIA[test].better > 0 else "small"
        label = CRITERIA[test].label.replace(", ", ",\n")
        axes.set_title(f"{label}\n({good} is good)", fontsize=10)
        axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
    signs = [("o", "full", "with its sign, if it has one"), ("o", "none", "by its size alone")]
    handles = [
        panels[0].plot([], [], marker, color=PALETTE[0], fillstyle=style, label=label)[0] for marker, style, label in signs
    ]
    if published is not None:
        handles += panels[0].plot([], [], "x", color=PALETTE[6], label="published, BERT-base on SST-2")
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=9)
    return figure


def _interval(axes: "Axes", values: pd.DataFrame, name: str, height: float, *, filled: bool) -> None:
    if name not in values.index or np.isnan(values.loc[name, "mean"]):
        return
    row = values.loc[name]
    colour = PALETTE[1] if name in FLOORS else PALETTE[0]
    axes.plot([row["ci_low"], row["ci_high"]], [height, height], color=colour, linewidth=1.4)
    axes.plot([row["mean"]], [height], "o", color=colour, markerfacecolor=colour if filled else "white", markersize=5)


# ------------------------------------------------------------------------------------------------- reach


def of_reach(cells: Sequence[Cell]) -> "dict[str, Figure]":
    """One figure over all data sets; none without a cell that holds what attention could be."""
    cells = [cell for cell in cells if identifiability.SECTION.applies(cell)]
    return {"reach": reach_figure(cells)} if cells else {}


@own_style
def reach_figure(cells: Sequence[Cell]) -> "Figure":
    """How far away another attention is that leaves the model's output as it is: a column for each data set, a colour for
    each projection. Above, the share of texts at each distance (TVD), all seeds together; in the middle, by length, the mean
    of each range of lengths of at least five texts; below, by layer, with 95 % intervals over seeds and texts.
    """
    datasets = list(dict.fromkeys(cell.heading["dataset"] for cell in cells))
    projections = list(dict.fromkeys(cell.heading["projection"] for cell in cells))
    colours = dict(zip(projections, PALETTE, strict=False))
    seeds = sorted({cell.heading["seed"] for cell in cells})
    farthest = max((float(np.nanmax(_distances(group))) for group in kinds(cells).values()), default=0.0)
    bins = np.linspace(0, max(farthest, 0.1), 26)
    figure = titled_figure(
        "How far attention is from being determined",
        None,
        3.6 * max(2, len(datasets)) + 0.6,
        7.6,
        subject=f"{', '.join(datasets)} · {' and '.join(projections)} · seeds {', '.join(map(str, seeds))}",
        count=sum(map(len, cells)),
    )
    panels = figure.subplots(3, len(datasets), squeeze=False, sharey="row")
    for column, dataset in enumerate(datasets):
        of_data = {kind: group for kind, group in kinds(cells).items() if group[0].heading["dataset"] == dataset}
        for group in of_data.values():
            _of_model(panels[:, column], group, colours[group[0].heading["projection"]], bins)
        panels[0, column].set_title(dataset)
        panels[0, column].set_xlabel("TVD of a text")
        panels[1, column].set_xlabel("tokens of the text")
        panels[2, column].set_xlabel("layer, counted from 0")
    for axes, label in zip(panels[:, 0], ("share of texts", "mean TVD", "mean TVD of a row"), strict=True):
        axes.set_ylabel(label)
    for axes in panels.ravel():
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
    handles = [panels[0, 0].plot([], [], color=colour, linewidth=3, label=name)[0] for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize=9)
    return figure


def _distances(cells: Sequence[Cell]) -> np.ndarray:
    """The TVD reached of each text of all seeds, NaN where undefined."""
    return np.concatenate([identifiability.per_text(cell)["identifiability_tvd"] for cell in cells])


def _of_model(panels: "Sequence[Axes]", cells: Sequence[Cell], colour: str, bins: np.ndarray) -> None:
    """One kind of model in the three panels of its data set."""
    tvd = _distances(cells)
    lengths = np.concatenate([cell.lengths for cell in cells])[~np.isnan(tvd)]
    tvd = tvd[~np.isnan(tvd)]
    if len(tvd):
        weights = np.full(len(tvd), 1 / len(tvd))
        panels[0].hist(tvd, bins, weights=weights, histtype="stepfilled", color=colour, alpha=0.25)
        panels[0].hist(tvd, bins, weights=weights, histtype="step", color=colour, linewidth=1.6)
    number = np.digitize(lengths, identifiability.LENGTHS)
    places = [place for place in np.unique(number) if (number == place).sum() >= 5]
    middle = [np.median(lengths[number == place]) for place in places]
    panels[1].plot(middle, [tvd[number == place].mean() for place in places], color=colour, marker="o", linewidth=1.6)
    layers = [_by_layer(cell) for cell in cells]
    if not layers[0]:
        return
    by_layer = panel(cells, layers)
    low, high = by_layer.intervals()
    places = np.arange(len(by_layer.means))
    panels[2].plot(places, by_layer.means, color=colour, marker="o", linewidth=1.6)
    panels[2].vlines(places, low, high, color=colour, linewidth=1.4)
    panels[2].set_xticks(places)


def _by_layer(cell: Cell) -> dict[str, np.ndarray]:
    """The mean TVD of the rows of each layer, [N], by the layer's number; {} for a model without attention maps."""
    if identifiability.LAYERS not in cell.table.column_names:
        return {}
    rows = records.rows(cell.table, identifiability.LAYERS)
    count = max(map(len, rows), default=0)
    return {str(layer): np.array([row[layer] if len(row) else np.nan for row in rows], float) for layer in range(count)}
