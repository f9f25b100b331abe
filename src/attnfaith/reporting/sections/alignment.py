"""Do a model's weights between the words of two sentences say which word translates which? Alignment error rates.

Every reading (`attnfaith.reporting.links`) of a record with gold links: chosen on one half of the sentence pairs and
judged on the other; and by layer, head and row with the heaviest source word of each target word, where nothing is chosen.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_scores
from attnfaith.reporting.cells import CELL, Cell, measure_label
from attnfaith.reporting.html import Grid, differing
from attnfaith.reporting.links import (
    FIXED,
    NONE,
    POSITIONS,
    ROW_WORDS,
    ROWS,
    Place,
    Reading,
    Readings,
    readings,
)
from attnfaith.reporting.render import interval_in_words
from attnfaith.reporting.spec import Drawing, Row, Section, Table, per_cell
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.reporting.tables import format_number
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ANY = "any_measure"
"""The reading that is chosen of all measures."""
MOST_WRITTEN = 16  # heads of a layer whose numbers can be read in the figure


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """alignment_error_<measure> of each pair of the half that is judged, by the reading chosen on the other; else NaN."""
    result, values = readings(cell), {}
    for measure in result.measures:
        place = result.chosen(measure)
        if place is not None:
            rates = alignment_scores(result.counts[:, place])[:, 0]
            values[f"alignment_error_{measure}"] = np.where(result.chooses, np.nan, rates)
    return values


# ---------- tables


def _judged(result: Readings, place: int, among: Sequence[int]) -> dict[str, float]:
    """The numbers of a reading that was chosen among others, on the half that is judged."""
    scores = result.scores(~result.chooses)
    least = scores[list(among), 0]
    return {
        "n": int((~result.chooses).sum()),
        "n_chosen_on": int(result.chooses.sum()),
        **_rates(scores[place], result.intervals(~result.chooses, [place])[0]),
        "error_rate_chosen_on": result.chosen_rates[place],
        "error_rate_least": np.nan if np.isnan(least).all() else float(np.nanmin(least)),
        "readings": len(among),
    }


def _rates(scores: np.ndarray, interval: np.ndarray) -> dict[str, float]:
    rate, precision, recall = scores
    return {"error_rate": rate, "ci_low": interval[0], "ci_high": interval[1], "precision": precision, "recall": recall}


@per_cell
def _chosen(cell: Cell) -> dict[str, tuple[Reading, dict[str, float]]]:
    """{measure: its chosen reading, numbers}, ANY first; a measure that nothing decides is left out."""
    result, chosen = readings(cell), {}
    for measure in (ANY, *result.measures):
        name = None if measure == ANY else measure
        place = result.chosen(name)
        if place is not None:
            chosen[measure] = result.readings[place], _judged(result, place, result.places(name))
    return chosen


def _chosen_rows(cell: Cell) -> Iterator[Row]:
    for measure, (reading, numbers) in _chosen(cell).items():
        yield {"measure": measure, "of": reading.place.measure, **reading.keys, **numbers}


def _measure_rows(cell: Cell) -> Iterator[Row]:
    for measure, (_, numbers) in _chosen(cell).items():
        yield {"measure": measure, **numbers}


def _rule_rows(cell: Cell) -> Iterator[Row]:
    """For each measure and rule the best place of it."""
    result = readings(cell)
    for measure in result.measures:
        for rule in dict.fromkeys(result.readings[place].rule for place in result.places(measure)):
            place = result.chosen(measure, rule)
            if place is not None:
                yield {"measure": measure, "rule": rule.label, **_judged(result, place, result.places(measure, rule))}


def _fixed_rows(cell: Cell, heads: bool) -> Iterator[Row]:
    """The places of measures with, or without, heads, that have layers or rows, over all pairs."""
    result, everything = readings(cell), np.ones(len(cell), bool)
    wanted = [reading.rule == FIXED and (reading.place.head is not None) == heads for reading in result.readings]
    places, scores = np.flatnonzero(wanted), result.scores(everything)
    for place, interval in zip(places, result.intervals(everything, places), strict=True):
        reading = result.readings[place]
        head = {"measure": reading.place.measure, **reading.place.keys, "n": len(cell)}
        yield head | _rates(scores[place], interval)


def _all_rows(cell: Cell) -> Iterator[Row]:
    result = readings(cell)
    scores, intervals = result.scores(~result.chooses), result.intervals(~result.chooses, range(len(result.readings)))
    chosen = {result.chosen(measure) for measure in result.measures}
    for place, (reading, own, interval) in enumerate(zip(result.readings, scores, intervals, strict=True)):
        row = {"measure": reading.place.measure, **reading.keys, "n": int((~result.chooses).sum())}
        row |= _rates(own, interval)
        yield row | {"error_rate_chosen_on": result.chosen_rates[place], "chosen": int(place in chosen)}


def _named(name: str):
    """A key in words of the page: a dash where a measure does not have it."""
    return name, lambda row: "–" if row[name] == NONE else ROW_WORDS.get(row[name], row[name])


def _measure_words(row: Row) -> str:
    own = measure_label(row["measure"])
    return f"{own}: {measure_label(row['of'])}" if row["measure"] == ANY else own


WHOLE = Table(
    name="alignment",
    rows=_chosen_rows,
    heads=5,
    headings={
        "measure": ("measure", _measure_words),
        **{name: _named(name) for name in ("layer", "head", "row")},
        "rule": "rule",
        "n": "pairs",
        "error_rate": "error rate [95 % interval]",
        "precision": "precision",
        "recall": "recall",
        "error_rate_chosen_on": "where it was chosen",
        "error_rate_least": "lowest here",
        "readings": "chosen of",
    },
    caption="Alignment error rate by measure",
    note="Alignment error rate against gold links: 0 all sure links are read and nothing that is not at least possible, 1 "
    "no link is. It is a quotient of sums over sentence pairs, and its interval is a bootstrap over these. Layer, head, row "
    "and rule are those of the lowest rate on one half of the sentence pairs; all numbers but "
    "“where it was chosen” are of the other half. Lowest here: what the best reading of this half would have claimed. "
    "Chosen of: how many readings were compared. Positions only: each target word with the source word at its relative "
    "place. Layers and heads are counted from 0. Every reading is in the file alignment_readings.",
    studies=False,
)
BY_MEASURE = Table(name="alignment_by_measure", rows=_measure_rows)
BY_RULE = Table(
    name="alignment_by_rule",
    rows=_rule_rows,
    grid=lambda df, cells: _pivot(BY_RULE, df, ("measure",), "rule"),
    caption="Alignment error rate by rule",
    note="As above, but for each rule by itself: the layer, head and row of its lowest rate on one half, judged on the "
    "other. At least 0.2: pairs with a weight of 0.2 or more; of the row’s largest: as a share of the largest weight of the "
    "target word. Intersection, union and grow diagonal combine the argmax of both directions.",
)
BY_LAYER = Table(
    name="alignment_by_layer",
    rows=lambda cell: _fixed_rows(cell, heads=False),
    grid=lambda df, cells: _pivot(BY_LAYER, df, ("measure", "row"), "layer"),
    caption="Alignment error rate by layer and row",
    note="Each target word with its heaviest source word, over all sentence pairs: nothing is chosen here, so that the "
    "numbers can stand beside published ones of this kind. Single heads are in the file alignment_by_head.",
)
BY_HEAD = Table(name="alignment_by_head", rows=lambda cell: _fixed_rows(cell, heads=True))
READINGS = Table(name="alignment_readings", rows=_all_rows, studies=False)


def _pivot(table: Table, df: pd.DataFrame, heads: Sequence[str], across: str) -> Grid:
    """The error rates of a table's frame with a column for each value of `across`."""
    keys = differing(df, CELL)
    lines: dict[tuple, dict[str, str]] = {}
    for row in df.to_dict("records"):
        words = [measure_label(row[name]) if name == "measure" else _named(name)[1](row) for name in heads]
        lines.setdefault((*(str(row[key]) for key in keys), *words), {})[row[across]] = format_number(row["error_rate"])
    names = list(dict.fromkeys(df[across]))
    rows = [(*head, *(rates.get(name, "–") for name in names)) for head, rates in lines.items()]
    headings = ["without layers" if name == NONE else f"layer {name}" if across == "layer" else name for name in names]
    columns = (*keys, *heads, *headings)
    return Grid(table.caption, columns, tuple(rows), len(keys) + len(heads), table.note, f"tables/{table.name}")


# ---------- figures


@own_style
def by_head(cell: Cell) -> "Figure":
    """The error rate of each layer and head of attention, of either row, with the chosen one framed."""
    grids, chosen = _of_heads(cell)
    layers, heads = next(iter(grids.values())).shape
    wide = max(4.5, 0.62 * heads + 1.6)
    figure = titled_figure("Alignment error rate by layer and head", cell, max(9.0, 2 * wide), 1.3 + 0.5 * layers)
    panels = figure.subplots(1, len(grids), squeeze=False)[0]
    for axes, (row, grid) in zip(panels, grids.items(), strict=True):
        image = _draw_grid(axes, grid)
        axes.set_title(f"row {ROW_WORDS[row]}")
        if chosen is not None and chosen.row == ROWS.index(row):
            frame = {"fill": False, "edgecolor": PALETTE[1], "linewidth": 2.5, "clip_on": False}
            from matplotlib.patches import Rectangle

            axes.add_patch(Rectangle((chosen.head - 0.5, chosen.layer - 0.5), 1, 1, **frame))
    panels[0].set_ylabel("layer")
    figure.colorbar(image, ax=panels, label="error rate", shrink=0.9, pad=0.02)
    return figure


def _draw_grid(axes: "Axes", grid: np.ndarray):
    """Layers by heads, dark where the rate is low, with its number where there is room."""
    image = axes.imshow(grid, cmap="Blues_r", vmin=0, vmax=1, aspect="auto")
    layers, heads = grid.shape
    axes.set_xticks(range(0, heads, 1 if heads <= MOST_WRITTEN else 4))
    axes.set_yticks(range(layers))
    axes.set_xlabel("head")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if heads <= MOST_WRITTEN:
        for (layer, head), rate in np.ndenumerate(grid):
            colour = "#ffffff" if rate < 0.45 else "#1a1a1a"
            text = "–" if np.isnan(rate) else f"{rate:.2f}"
            axes.text(head, layer, text, ha="center", va="center", fontsize=9, color=colour)
    return image


def _has_heads(cell: Cell) -> bool:
    """Whether there is more than one head."""
    return len({reading.place for reading in readings(cell).readings if reading.place.head is not None}) > len(ROWS)


def _of_heads(cell: Cell) -> tuple[dict[str, np.ndarray], Place | None]:
    """{row: rates [L, A]} of attention, and the place of its chosen reading."""
    result = readings(cell)
    rates = result.scores(np.ones(len(cell), bool))[:, 0]
    heads = [
        (reading.place, rate)
        for reading, rate in zip(result.readings, rates, strict=True)
        if reading.rule == FIXED and reading.place.head is not None
    ]
    sizes = [1 + max(getattr(place, name) for place, _ in heads) for name in ("layer", "head")]
    grids = {row: np.full(sizes, np.nan) for row in ROWS}
    for place, rate in heads:
        grids[ROWS[place.row]][place.layer, place.head] = rate
    chosen = result.chosen(heads[0][0].measure)
    return grids, None if chosen is None else result.readings[chosen].place


def _head_words(cell: Cell) -> tuple[str, str]:
    grids, _ = _of_heads(cell)
    lowest = {
        row: np.unravel_index(np.nanargmin(grid), grid.shape) for row, grid in grids.items() if not np.isnan(grid).all()
    }
    parts = [
        f"row {ROW_WORDS[row]}: lowest {grids[row][place]:.3f} in layer {place[0]}, head {place[1]}"
        for row, place in lowest.items()
    ]
    pairs = counted(len(cell), "sentence pair")
    alt = f"Alignment error rate of attention by layer and head, over {pairs}. {'; '.join(parts)}."
    caption = (
        "Each target word with the source word that the head gives most weight, over all sentence pairs; a dark square has "
        "a low error rate. Left: the row of attention that predicts the word; right: the row in which the word is the "
        "input. Framed: the layer, head and row that were chosen on one half of the pairs, by whichever rule."
    )
    return alt, caption


# ---------- sentences


def _sentences(cell: Cell) -> Iterator[str]:
    chosen = _chosen(cell)
    if ANY not in chosen:
        yield "No reading could be chosen: there is no gold link, or no measure that says which words belong together."
        return
    reading, numbers = chosen[ANY]
    yield (
        f"Of {counted(numbers['readings'], 'way')} to read links, {measure_label(reading.place.measure)} ({reading.label}) "
        f"had the lowest alignment error rate on one half of the sentence pairs, {numbers['error_rate_chosen_on']:.3f}; on "
        f"the other {numbers['n']:,} it is {_rate(numbers)}."
    )
    if POSITIONS in chosen:
        yield f"Word positions alone have {_rate(chosen[POSITIONS][1])} there."


def _rate(numbers: Row) -> str:
    rate = numbers["error_rate"]
    return "undefined" if np.isnan(rate) else f"{rate:.3f}{interval_in_words(numbers)}"


SECTION = Section(
    name="alignment",
    source="Och & Ney (2003), section 5.1",
    place=4,
    needs=("target_tokens", "gold_links"),
    uses=("alignment_*",),
    per_text=per_text,
    tables=(WHOLE, BY_RULE, BY_LAYER, BY_MEASURE, BY_HEAD, READINGS),
    figure=Drawing("alignment_by_head", by_head, _head_words, when=_has_heads),
    sentences=_sentences,
)
