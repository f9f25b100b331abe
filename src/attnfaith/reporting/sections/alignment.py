"""Do a model's weights between the words of two sentences say which word translates which? Alignment error rates.

Every reading (`attnfaith.reporting.readings`) of a record with gold links: chosen on one half of the sentence pairs and
judged on the other; and by layer, head and row with the heaviest source word of each target word, where nothing is chosen.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import POSSIBLE, SURE, alignment_scores
from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, Cell, measure_label
from attnfaith.reporting.heatmap import visible
from attnfaith.reporting.pairs import middle_pair
from attnfaith.reporting.readings import (
    FIXED,
    NONE,
    POSITIONS,
    ROW_WORDS,
    ROWS,
    Place,
    Reading,
    Readings,
    at,
    columns,
    has_gold,
    reading_of,
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
ACROSS = 3  # matrices in a line
LONGEST_WORD = 14  # letters of a word beside a matrix


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """alignment_error_<measure> of each pair of the half that is judged, by the reading chosen on the other; else NaN."""
    known, values = readings(cell), {}
    for measure in known.measures:
        place = known.chosen(measure)
        if place is not None:
            rates = alignment_scores(known.counts[:, place])[:, 0]
            values[f"alignment_error_{measure}"] = np.where(known.chooses, np.nan, rates)
    return values


# ---------- tables


def _judged(known: Readings, place: int, among: Sequence[int]) -> dict[str, float]:
    """The numbers of a reading that was chosen among others, on the half that is judged."""
    judged = ~known.chooses
    scores = known.scores(judged)
    rates = scores[list(among), 0]
    low, high = known.intervals(judged, [place])[0]
    return {
        "n": int(judged.sum()),
        "n_chosen_on": int(known.chooses.sum()),
        **dict(zip(("error_rate", "ci_low", "ci_high"), (scores[place, 0], low, high), strict=True)),
        **dict(zip(("precision", "recall"), scores[place, 1:], strict=True)),
        "error_rate_chosen_on": known.chosen_rates[place],
        "error_rate_least": np.nan if np.isnan(rates).all() else float(np.nanmin(rates)),
        "readings": len(among),
    }


@per_cell
def _chosen(cell: Cell) -> dict[str, tuple[Reading, dict[str, float]]]:
    """{measure: its chosen reading, numbers}, ANY first; a measure that nothing decides is left out."""
    known, found = readings(cell), {}
    for measure in (ANY, *known.measures):
        of = None if measure == ANY else measure
        place = known.chosen(of)
        if place is not None:
            found[measure] = known.readings[place], _judged(known, place, known.of(of))
    return found


def _chosen_rows(cell: Cell) -> Iterator[Row]:
    for measure, (reading, numbers) in _chosen(cell).items():
        yield {"measure": measure, "of": reading.place.measure, **reading.keys, **numbers}


def _measure_rows(cell: Cell) -> Iterator[Row]:
    for measure, (_, numbers) in _chosen(cell).items():
        yield {"measure": measure, **numbers}


def _rule_rows(cell: Cell) -> Iterator[Row]:
    """For each measure and rule the best place of it."""
    known = readings(cell)
    for measure in known.measures:
        for rule in dict.fromkeys(known.readings[place].rule for place in known.of(measure)):
            place = known.chosen(measure, rule)
            if place is not None:
                yield {"measure": measure, "rule": rule.label, **_judged(known, place, known.of(measure, rule))}


def _reading_rows(cell: Cell, places: Sequence[int], members: np.ndarray) -> Iterator[tuple[int, Reading, dict[str, float]]]:
    """Some readings with their numbers over some pairs, members [N] bool."""
    known = readings(cell)
    scores, intervals = known.scores(members), known.intervals(members, places)
    for place, (low, high) in zip(places, intervals, strict=True):
        rate, precision, recall = scores[place]
        numbers = {"n": int(members.sum()), "error_rate": rate, "ci_low": low, "ci_high": high}
        yield place, known.readings[place], {**numbers, "precision": precision, "recall": recall}


def _fixed_rows(cell: Cell, heads: bool) -> Iterator[Row]:
    """The places of measures with, or without, heads, that have layers or rows."""
    fixed = [
        place
        for place, reading in enumerate(readings(cell).readings)
        if reading.rule == FIXED and (reading.place.head is not None) == heads
    ]
    for _, reading, numbers in _reading_rows(cell, fixed, np.ones(len(cell), bool)):
        yield {"measure": reading.place.measure, **reading.place.keys, **numbers}


def _all_rows(cell: Cell) -> Iterator[Row]:
    known = readings(cell)
    chosen = {known.chosen(measure) for measure in known.measures}
    for place, reading, numbers in _reading_rows(cell, range(len(known.readings)), ~known.chooses):
        more = {"error_rate_chosen_on": known.chosen_rates[place], "chosen": int(place in chosen)}
        yield {"measure": reading.place.measure, **reading.keys, **numbers, **more}


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
    shown={
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
    named = list(dict.fromkeys(df[across]))
    words = {"measure": lambda row: measure_label(row["measure"]), "row": _named("row")[1]}
    lines: dict[tuple, dict[str, float]] = {}
    for row in df.to_dict("records"):
        head = (*(str(row[key]) for key in keys), *(words[name](row) for name in heads))
        lines.setdefault(head, {})[row[across]] = row["error_rate"]
    rows = [
        (*head, *(format_number(values[name]) if name in values else "–" for name in named))
        for head, values in lines.items()
    ]
    shown = ["without layers" if name == NONE else f"layer {name}" if across == "layer" else name for name in named]
    stem = f"tables/{table.name}"
    return Grid(table.caption, (*keys, *heads, *shown), tuple(rows), len(keys) + len(heads), table.note, stem)


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


def _of_heads(cell: Cell):
    """{row: rates [L, A]} of attention, and the place of its chosen reading."""
    known = readings(cell)
    scores = known.scores(np.ones(len(cell), bool))[:, 0]
    places = [
        (place, one.place) for place, one in enumerate(known.readings) if one.rule == FIXED and one.place.head is not None
    ]
    layers, heads = (1 + max(getattr(of, name) for _, of in places) for name in ("layer", "head"))
    grids = {row: np.full((layers, heads), np.nan) for row in ROWS}
    for place, of in places:
        grids[ROWS[of.row]][of.layer, of.head] = scores[place]
    chosen = known.chosen(places[0][1].measure)
    return grids, None if chosen is None else known.readings[chosen].place


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


def _figures(cell: Cell) -> Iterator[Drawing]:
    """Where there is more than one head."""
    if len({reading.place for reading in readings(cell).readings if reading.place.head is not None}) > len(ROWS):
        yield Drawing("alignment_by_head", by_head, _head_words)


def places(cell: Cell) -> list[Place]:
    """Where each measure is shown."""
    return [reading_of(cell, measure).place for measure in columns(cell)]


@own_style
def matrices(cell: Cell) -> "Figure":
    """The weights of one pair of sentences by each measure, with gold links where there are any."""
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
        _draw_matrix(axes, at(cell, place, row), links)
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


def _draw_matrix(axes: "Axes", weights: np.ndarray, links: np.ndarray | None) -> None:
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


def _matrix_words(cell: Cell) -> tuple[str, str]:
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


# ---------- sentences


def _sentences(cell: Cell) -> Iterator[str]:
    found = _chosen(cell)
    if ANY not in found:
        yield "No reading could be chosen: there is no gold link, or no measure that says which words belong together."
        return
    reading, numbers = found[ANY]
    yield (
        f"Of {counted(numbers['readings'], 'way')} to read links, {measure_label(reading.place.measure)} ({reading.label}) "
        f"had the lowest alignment error rate on one half of the sentence pairs, {numbers['error_rate_chosen_on']:.3f}; on "
        f"the other {numbers['n']:,} it is {_rate(numbers)}."
    )
    if POSITIONS in found:
        yield f"Word positions alone have {_rate(found[POSITIONS][1])} there."


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
    figures=_figures,
    sentences=_sentences,
)
MAPS = Section(
    name="alignment_maps",
    place=6,
    needs=("target_tokens",),
    uses=("alignment_*", "gold_links"),
    figures=lambda cell: [Drawing("alignment_matrices", matrices, _matrix_words)] if columns(cell) else [],
)
