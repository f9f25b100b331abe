"""One pair of sentences by every measure: matrices of weights, with gold links drawn where there are any."""

from typing import TYPE_CHECKING

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import POSSIBLE, SURE
from attnfaith.reporting.cells import Cell, measure_label, one_cell
from attnfaith.reporting.figures import Drawn, Kind
from attnfaith.reporting.page.heatmap import visible
from attnfaith.reporting.pairs import middle_pair
from attnfaith.reporting.readings import Place, at, columns, has_gold, reading_of
from attnfaith.reporting.spec import Section
from attnfaith.reporting.style import PALETTE, own_style, titled_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 3  # matrices in a line
LONGEST_WORD = 14  # letters of a word beside a matrix


def places(cell: Cell) -> list[Place]:
    """Where each measure is shown."""
    return [reading_of(cell, measure).place for measure in columns(cell)]


@own_style
def matrices(record) -> "Figure":
    """The weights of one pair of sentences by each measure. Raises ValueError where the record holds more than one cell."""
    cell = one_cell(record)
    row, shown = middle_pair(cell), places(cell)
    part = cell.table.slice(row, 1)
    source, target = (part.column(name)[0].as_py() for name in ("tokens", "target_tokens"))
    links = records.rows(part, "gold_links")[0] if has_gold(cell) else None
    across = min(ACROSS, len(shown))
    down = -(-len(shown) // across)
    size = (0.26 * len(source) + 1.5, 0.26 * len(target) + 1.6)
    title = f"What target words read of source words: {visible(cell.instance_ids[row])}"
    figure = titled_figure(title, cell, max(9.0, across * size[0]), down * size[1])
    panels = figure.subplots(down, across, squeeze=False)
    for axes, place in zip(panels.flat, shown, strict=False):
        _draw(axes, at(cell, place, row), links)
        axes.set_title(measure_label(place.measure) + (f"\n{_short(place)}" if _short(place) else ""), fontsize=9.5)
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_yticks(range(len(target)), [_word(word) for word in target], fontsize=8.5)
    for axes in [panels[(len(shown) - 1 - column) // across, column] for column in range(across)]:
        axes.set_xticks(range(len(source)), [_word(word) for word in source], rotation=90, fontsize=8.5)
    return figure


def _short(place: Place) -> str:
    parts = [f"{name} {number}" for name, number in (("layer", place.layer), ("head", place.head)) if number is not None]
    return ", ".join([*parts, *([] if place.row is None else ["predicting row" if place.row == 0 else "input row"])])


def _word(word: str) -> str:
    """A word beside a matrix; a dollar sign would start a formula."""
    shown = visible(word)
    return (shown if len(shown) <= LONGEST_WORD else shown[: LONGEST_WORD - 1] + "…").replace("$", r"\$")


def _draw(axes: "Axes", weights: np.ndarray, links: np.ndarray | None) -> None:
    """Target words by source words: blue above 0, orange below; a filled square on a sure link, an open one on others."""
    largest = max(float(np.nanmax(np.abs(weights), initial=0.0)), 1e-12)
    signed = bool((weights < 0).any())
    limits = {"vmin": -largest if signed else 0, "vmax": largest}
    axes.imshow(weights, cmap="PuOr" if signed else "Blues", aspect="equal", **limits)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if links is None:
        return
    for kind, face in ((SURE, PALETTE[1]), (POSSIBLE, "none")):
        targets, sources = np.nonzero(links == kind)
        axes.scatter(sources, targets, s=20, marker="s", facecolors=face, edgecolors=PALETTE[1], linewidths=1.1)


def _words(cell: Cell) -> tuple[str, str]:
    row, shown = middle_pair(cell), places(cell)
    part = cell.table.slice(row, 1)
    source, target = (" ".join(map(visible, part.column(name)[0].as_py())) for name in ("tokens", "target_tokens"))
    named = "; ".join(", ".join(filter(None, (measure_label(place.measure), _short(place)))) for place in shown)
    alt = f"Matrices of target words by source words, a dark square for a large weight. Source: {source}. Target: {target}. "
    chosen = "the layer, head and row that were chosen on one half of the pairs"
    caption = (
        "A matrix for each measure, target words down, source words across; its darkest square is its largest weight, and "
        "of measures with a sign purple is above 0 and orange below. "
    )
    if has_gold(cell):
        caption += (
            f"Orange squares are gold links, filled where sure, open where possible. Each measure at {chosen}; the pair "
        )
        caption += "is of middle error rate among those that fit."
    else:
        caption += "Each measure in its last layer, in the row that predicts the word."
    return f"{alt}Shown: {named}.", caption


def _figures(cell: Cell) -> tuple[Kind, ...]:
    return (Drawn("alignment_matrices", figure=matrices, describe=_words),) if columns(cell) else ()


SECTION = Section(
    name="alignment_maps",
    place=6,
    needs=("target_tokens",),
    uses=("alignment_*", "gold_links"),
    figures=_figures,
)
