"""Figures of a view: what flows through the layers to the answer, and the small maps of layers and heads.

Shapes: L positions of a text, N layers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.reporting.heatmap import visible
from attnfaith.reporting.style import ATTENTION, QUIET_COLOUR, own_style, titled_figure
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"attention": "Attention", "rollout": "Rollout", "alti": "ALTI", "value_zeroing": "Value zeroing"}
"""The measures of a view, by name, with their titles."""

LEAST = 0.02
"""Of the largest share, below which no line is drawn."""
GAP = 0.12
"""Between small maps, of the side of a map."""


def flow_to_answer(view, measure: str) -> list[np.ndarray]:
    """The flow along each line: for each layer, the first first, (L,L); row i is the share that position i, as the layer
    leaves it, passes on from each position below. Each sums to 1. Of layers that are no stack the last one alone.
    """
    shares, flows = view.reads, []
    for matrix in reversed(view.matrices[measure][0 if view.stacked else -1 :]):
        flow = shares[:, None] * matrix
        flows.append(flow / flow.sum())
        shares = flows[-1].sum(0)
    return flows[::-1]


@own_style
def graph_figure(view, measures: Sequence[str]) -> "Figure":
    """A panel for each measure: the text from top to bottom, layers from left to right, and lines as dark and wide as the
    share of the answer that flows along them.
    """
    step = 0.16 if len(view.tokens) > 40 else 0.2
    height = max(2.0, step * len(view.tokens) + 0.5)
    title = "What the answer takes of each token, through the layers"
    figure = titled_figure(title, None, 1.3 + 3.2 * len(measures), height, subject=_subject(view), count=1)
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        _panel(axes, view, measure)
    ticks = {"labels": list(map(visible, view.tokens)), "fontsize": 8 if step < 0.2 else 9, "parse_math": False}
    panels[0].set_yticks(range(len(view.tokens)), **ticks)
    return figure


def _panel(axes: "Axes", view, measure: str) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    flows = flow_to_answer(view, measure)
    answer, last = float(view.reads @ np.arange(len(view.reads))), len(flows)
    lines, strengths = [], []

    def connect(column: int, upper: float, flow: np.ndarray, largest: float) -> None:
        for place in np.flatnonzero(flow >= LEAST * largest):
            ends = [(column + 1, upper), (column + 0.5, upper), (column + 0.5, place), (column, place)]
            lines.append(Path(ends, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]))
            strengths.append(float(flow[place] / largest))

    largest = max(float(flow.max()) for flow in flows)
    for column, flow in enumerate(flows):
        for reader, row in enumerate(flow):
            connect(column, reader, row, largest)
    connect(last, answer, view.reads, float(view.reads.max()))
    order = np.argsort(strengths, kind="stable")
    strength = np.array(strengths)[order]
    colours = np.tile([*(int(ATTENTION[place : place + 2], 16) / 255 for place in (1, 3, 5)), 1.0], (len(order), 1))
    colours[:, 3] = 0.1 + 0.9 * np.sqrt(strength)
    drawn, widths = [lines[place] for place in order], 0.4 + 3.2 * strength
    axes.add_collection(PathCollection(drawn, facecolors="none", edgecolors=colours, linewidths=widths, capstyle="round"))
    for column, shares in enumerate([*(flow.sum(0) for flow in flows), view.reads]):
        sizes = 2 + 26 * shares / max(float(shares.max()), 1e-12)
        axes.scatter(np.full(len(shares), column), np.arange(len(shares)), s=sizes, color=ATTENTION, linewidths=0, zorder=3)
    axes.scatter([last + 1], [answer], s=60, color=ATTENTION, zorder=3)
    columns = range(1, last + 1, -(-last // 7))
    labels = ["in", *(str(view.depth - last + column - 1) for column in columns), "answer"]
    axes.set_xticks([0, *columns, last + 1], labels=labels, fontsize=8)
    axes.tick_params(length=0, colors=QUIET_COLOUR)
    axes.set(xlim=(-0.3, last + 1.4), ylim=(len(view.tokens) - 0.4, -0.6), title=TITLES[measure])
    axes.spines[:].set_visible(False)


@own_style
def heads_figure(view) -> "Figure":
    """The maps of all heads, a row for each layer, the mean of its heads before them; as dark as square roots of weights."""
    from matplotlib.patches import Rectangle

    side, count = len(view.tokens), 1 + max(map(len, view.heads))
    pitch, size = side + max(1, round(GAP * side)), min(0.75, 12 / count)
    figure = titled_figure(
        "Layers and heads: rows read columns",
        None,
        max(4.5, 0.6 + size * count),
        0.5 + size * view.depth,
        subject=_subject(view),
        count=1,
    )
    axes = figure.subplots()
    whole = np.full((pitch * view.depth, pitch * count), np.nan)
    for layer, heads in enumerate(view.heads):
        for place, weights in enumerate([heads.mean(0), *heads]):
            whole[pitch * layer :, pitch * place :][:side, :side] = np.sqrt(weights)
            corner = (pitch * place - 0.5, pitch * layer - 0.5)
            axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor="#d5dae0", linewidth=0.6))
    axes.imshow(whole, cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
    middles = pitch * np.arange(max(count, view.depth)) + side / 2
    axes.set_xticks(middles[:count], labels=["mean", *map(str, range(count - 1))], fontsize=8)
    axes.set_yticks(middles[: view.depth], labels=[f"layer {layer}" for layer in range(view.depth)], fontsize=8)
    axes.tick_params(length=0, colors=QUIET_COLOUR, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    return figure


def _subject(view) -> str:
    answer = f"{visible(view.classes[view.predicted])} ({view.probs[view.predicted]:.2f})"
    return f"{visible(view.model)} predicts {answer} · {counted(len(view.tokens), 'position')}"
