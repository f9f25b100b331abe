"""Do a model's weights between the words of two sentences say which word translates which? Alignment error rates.

Every reading (`attnfaith.reporting.readings`) of a record with gold links: chosen on one half of the sentence pairs and
judged on the other; and by layer, head and row with the heaviest source word of each target word, where nothing is chosen.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_scores
from attnfaith.reporting.blocks import Grid, differing, number_with_interval
from attnfaith.reporting.cells import CELL, Cell, measure_label, one_cell
from attnfaith.reporting.figures import Drawn, Kind
from attnfaith.reporting.readings import FIXED, NONE, POSITIONS, ROW_WORDS, ROWS, Reading, Readings, readings
from attnfaith.reporting.spec import Case, Column, Key, Row, Section, Table, per_cell
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.reporting.tables import format_number


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ANY = "any_measure"
"""The reading that is chosen of all measures."""
MOST_WRITTEN = 16  # heads of a layer whose numbers can be read in the figure


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


# ------------------------------------------------------------------------------------------------- tables


def _numbers(known: Readings, place: int, least: float, count: int) -> dict[str, float]:
    """What the tables of chosen readings say of one: on the half that is judged; least: of the lowest of `count` there."""
    judged = ~known.chooses
    rate, precision, recall = known.scores(judged)[place]
    low, high = known.intervals(judged, [place])[0]
    return {
        "n": int(judged.sum()),
        "n_chosen_on": int(known.chooses.sum()),
        "error_rate": rate,
        "ci_low": low,
        "ci_high": high,
        "precision": precision,
        "recall": recall,
        "error_rate_chosen_on": known.chosen_rates[place],
        "error_rate_least": least,
        "readings": count,
    }


@per_cell
def _chosen(cell: Cell) -> list[tuple[str, Reading, dict[str, float]]]:
    """(measure, its chosen reading, numbers), of ANY first; a measure that nothing decides is left out."""
    known = readings(cell)
    rates = known.scores(~known.chooses)[:, 0]
    made = []
    for measure in (ANY, *known.measures):
        place = known.chosen(None if measure == ANY else measure)
        if place is None:
            continue
        among = known.of(None if measure == ANY else measure)
        least = np.nan if np.isnan(rates[among]).all() else float(np.nanmin(rates[among]))
        made.append((measure, known.readings[place], _numbers(known, place, least, len(among))))
    return made


def _chosen_cases(cell: Cell) -> Iterator[Case]:
    for measure, reading, numbers in _chosen(cell):
        yield Case(keys={"measure": measure, "of": reading.place.measure, **reading.keys}, given=numbers)


def _measure_cases(cell: Cell) -> Iterator[Case]:
    for measure, _, numbers in _chosen(cell):
        yield Case(keys={"measure": measure}, given=numbers)


def _rule_cases(cell: Cell) -> Iterator[Case]:
    """For each measure and rule the best place of it."""
    known = readings(cell)
    rates = known.scores(~known.chooses)[:, 0]
    for measure in known.measures:
        for rule in dict.fromkeys(known.readings[place].rule for place in known.of(measure)):
            place = known.chosen(measure, rule)
            if place is not None:
                among = known.of(measure, rule)
                least = np.nan if np.isnan(rates[among]).all() else float(np.nanmin(rates[among]))
                yield Case(keys={"measure": measure, "rule": rule.label}, given=_numbers(known, place, least, len(among)))


def _fixed_cases(cell: Cell, heads: bool) -> Iterator[Case]:
    """The places of measures with, or without, heads, that have layers or rows."""
    known, everything = readings(cell), np.ones(len(cell), bool)
    places = [
        place
        for place, reading in enumerate(known.readings)
        if reading.rule == FIXED and (reading.place.head is not None) == heads
    ]
    scores, intervals = known.scores(everything), known.intervals(everything, places)
    for place, (low, high) in zip(places, intervals, strict=True):
        of = known.readings[place].place
        given = dict(zip(("error_rate", "precision", "recall"), scores[place], strict=True))
        given = {"n": len(cell), "error_rate": given.pop("error_rate"), "ci_low": low, "ci_high": high, **given}
        yield Case(keys={"measure": of.measure, **of.keys}, given=given)


def _reading_cases(cell: Cell) -> Iterator[Case]:
    known = readings(cell)
    chosen = {known.chosen(measure) for measure in known.measures}
    scores = known.scores(~known.chooses)
    intervals = known.intervals(~known.chooses, range(len(known.readings)))
    for place, reading in enumerate(known.readings):
        given = {
            "n": int((~known.chooses).sum()),
            **dict(zip(("error_rate", "precision", "recall"), scores[place], strict=True)),
            **dict(zip(("ci_low", "ci_high"), intervals[place], strict=True)),
            "error_rate_chosen_on": known.chosen_rates[place],
            "chosen": int(place in chosen),
        }
        yield Case(keys={"measure": reading.place.measure, **reading.keys}, given=given)


def _dash(name: str):
    """A key that some measures do not have, in words of the page."""
    return lambda row: "–" if row[name] == NONE else ROW_WORDS.get(row[name], row[name])


def _measure_words(row: Row) -> str:
    own = measure_label(row["measure"])
    return f"{own}: {measure_label(row['of'])}" if row["measure"] == ANY else own


_MEASURE = Key("measure", "measure", _measure_words)
_LAYER, _HEAD, _ROW = (
    Key("layer", "layer", _dash("layer")),
    Key("head", "head", _dash("head")),
    Key("row", "row", _dash("row")),
)
_RATE = Column("error_rate", "error rate [95 % interval]", lambda row: number_with_interval(row, "error_rate"))
_CHOSEN = (
    Column("n", "pairs"),
    Column("n_chosen_on"),
    _RATE,
    Column("ci_low"),
    Column("ci_high"),
    Column("precision", "precision"),
    Column("recall", "recall"),
    Column("error_rate_chosen_on", "where it was chosen"),
    Column("error_rate_least", "lowest here"),
    Column("readings", "chosen of"),
)
_FIXED = (Column("n", "pairs"), _RATE, Column("ci_low"), Column("ci_high"), Column("precision"), Column("recall"))
NOTE = (
    "Alignment error rate against gold links: 0 all sure links are read and nothing that is not at least possible, 1 no "
    "link is. It is a quotient of sums over sentence pairs, and its interval is a bootstrap over these."
)
WHOLE = Table(
    name="alignment",
    cases=_chosen_cases,
    by=(_MEASURE, Key("of"), _LAYER, _HEAD, _ROW, Key("rule", "rule")),
    columns=_CHOSEN,
    caption="Alignment error rate by measure",
    note=f"{NOTE} Layer, head, row and rule are those of the lowest rate on one half of the sentence pairs; all numbers but "
    "“where it was chosen” are of the other half. Lowest here: what the best reading of this half would have claimed. "
    "Chosen of: how many readings were compared. Positions only: each target word with the source word at its relative "
    "place. Layers and heads are counted from 0. Every reading is in the file alignment_readings.",
    studies=False,
)
BY_MEASURE = Table(name="alignment_by_measure", cases=_measure_cases, by=(_MEASURE,), columns=_CHOSEN)
BY_RULE = Table(
    name="alignment_by_rule",
    cases=_rule_cases,
    by=(_MEASURE, Key("rule", "rule")),
    columns=_CHOSEN,
    caption="Alignment error rate by rule",
    grid=lambda df, cells: _pivot(BY_RULE, df, ("measure",), "rule"),
    note="As above, but for each rule by itself: the layer, head and row of its lowest rate on one half, judged on the "
    "other. At least 0.2: pairs with a weight of 0.2 or more; of the row’s largest: as a share of the largest weight of the "
    "target word. Intersection, union and grow diagonal combine the argmax of both directions.",
)
BY_LAYER = Table(
    name="alignment_by_layer",
    cases=lambda cell: _fixed_cases(cell, heads=False),
    by=(_MEASURE, _LAYER, Key("head"), _ROW),
    columns=_FIXED,
    caption="Alignment error rate by layer and row",
    grid=lambda df, cells: _pivot(BY_LAYER, df, ("measure", "row"), "layer"),
    note="Each target word with its heaviest source word, over all sentence pairs: nothing is chosen here, so that the "
    "numbers can stand beside published ones of this kind. Single heads are in the file alignment_by_head.",
)
BY_HEAD = Table(
    name="alignment_by_head",
    cases=lambda cell: _fixed_cases(cell, heads=True),
    by=(_MEASURE, _LAYER, _HEAD, _ROW),
    columns=_FIXED,
)
READINGS = Table(
    name="alignment_readings",
    cases=_reading_cases,
    by=(_MEASURE, _LAYER, _HEAD, _ROW, Key("rule", "rule")),
    columns=(
        *_FIXED,
        Column("error_rate_chosen_on"),
        Column("chosen"),
    ),
    studies=False,
)


def _pivot(table: Table, df: pd.DataFrame, heads: Sequence[str], across: str) -> Grid:
    """The error rates of a table's frame with a column for each value of `across`."""
    keys = differing(df, CELL)
    by = {key.name: key for key in table.by}
    named = list(dict.fromkeys(df[across]))
    lines: dict[tuple, dict[str, float]] = {}
    for row in df.to_dict("records"):
        head = (*(str(row[key]) for key in keys), *(by[name].text(row) for name in heads))
        lines.setdefault(head, {})[row[across]] = row["error_rate"]
    rows = [
        (*head, *(format_number(values[name]) if name in values else "–" for name in named))
        for head, values in lines.items()
    ]
    shown = ["without layers" if name == NONE else f"layer {name}" if across == "layer" else name for name in named]
    headings = (*keys, *(by[name].heading for name in heads), *shown)
    note = table.note if isinstance(table.note, str) else table.note(df)
    return Grid(table.caption, headings, tuple(rows), len(keys) + len(heads), note, f"tables/{table.name}")


# ------------------------------------------------------------------------------------------------ figure


@own_style
def by_head(record) -> "Figure":
    """The error rate of each layer and head of attention, of either row, with the chosen one framed."""
    cell = one_cell(record)
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


def _figures(cell: Cell) -> Sequence[Kind]:
    """Where there is more than one head."""
    places = {reading.place for reading in readings(cell).readings if reading.place.head is not None}
    return (Drawn("alignment_by_head", figure=by_head, describe=_head_words),) if len(places) > len(ROWS) else ()


# ---------------------------------------------------------------------------------------------- sentences


def _sentences(cell: Cell) -> list[str]:
    made = {measure: (reading, numbers) for measure, reading, numbers in _chosen(cell)}
    if ANY not in made:
        return ["No reading could be chosen: there is no gold link, or no measure that says which words belong together."]
    reading, numbers = made[ANY]
    said = [
        f"Of {counted(numbers['readings'], 'way')} to read links, {measure_label(reading.place.measure)} ({reading.label}) "
        f"had the lowest alignment error rate on one half of the sentence pairs, {numbers['error_rate_chosen_on']:.3f}; on "
        f"the other {numbers['n']:,} it is {_said(numbers)}."
    ]
    if POSITIONS in made:
        said.append(f"Word positions alone have {_said(made[POSITIONS][1])} there.")
    return said


def _said(numbers: Row) -> str:
    if np.isnan(numbers["error_rate"]):
        return "undefined"
    interval = f" (95 % interval {numbers['ci_low']:.3f} to {numbers['ci_high']:.3f})"
    return f"{numbers['error_rate']:.3f}{'' if np.isnan(numbers['ci_low']) else interval}"


SECTION = Section(
    name="alignment",
    source="Och & Ney (2003), section 5.1",
    place=4,
    needs=("target_tokens", "gold_links"),
    uses=("alignment_*",),
    per_text=per_text,
    compared=True,
    tables=(WHOLE, BY_RULE, BY_LAYER, BY_MEASURE, BY_HEAD, READINGS),
    figures=_figures,
    sentences=_sentences,
)
