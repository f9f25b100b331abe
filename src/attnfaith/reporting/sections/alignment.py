"""Do a model's weights between the words of two sentences say which word translates which? Alignment error rates (Och & Ney
2003, section 5.1).

Every reading (`attnfaith.reporting.links`) of a record with gold links: chosen on one half of the sentence pairs and
judged on the other; and by layer, head and row with the heaviest source word of each target word, where nothing is chosen.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_scores
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.links import FIXED, NONE, POSITIONS, ROW_WORDS, readings
from attnfaith.reporting.render import interval_in_words, rows
from attnfaith.reporting.spec import Row, Section, Table, per_cell
from attnfaith.support.errors import counted


ANY = "any_measure"
"""The reading that is chosen of all measures."""


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


def _rates(scores: np.ndarray, interval: np.ndarray) -> dict[str, float]:
    rate, precision, recall = scores
    return {"error_rate": rate, "ci_low": interval[0], "ci_high": interval[1], "precision": precision, "recall": recall}


def _chosen_rows(cell: Cell) -> Iterator[Row]:
    """The chosen reading of each measure, ANY first, on the half that is judged; a measure that nothing decides has none."""
    result = readings(cell)
    judged = result.scores(~result.chooses)
    for measure in (ANY, *result.measures):
        name = None if measure == ANY else measure
        place, among = result.chosen(name), result.places(name)
        if place is not None:
            least = judged[among, 0]
            yield {
                "measure": measure,
                "n": int((~result.chooses).sum()),
                "n_chosen_on": int(result.chooses.sum()),
                **_rates(judged[place], result.intervals(~result.chooses, [place])[0]),
                "error_rate_chosen_on": result.chosen_rates[place],
                "error_rate_least": np.nan if np.isnan(least).all() else float(np.nanmin(least)),
                "readings": len(among),
                "of": result.readings[place].place.measure,
                **result.readings[place].keys,
            }


def _fixed_rows(cell: Cell) -> Iterator[Row]:
    """Each layer, head and row with the heaviest source word of each target word, over all pairs."""
    result, everything = readings(cell), np.ones(len(cell), bool)
    places = [place for place, reading in enumerate(result.readings) if reading.rule == FIXED]
    scores, intervals = result.scores(everything)[places], result.intervals(everything, places)
    for place, own, interval in zip(places, scores, intervals, strict=True):
        reading = result.readings[place]
        yield {"measure": reading.place.measure, **reading.place.keys, "n": len(cell), **_rates(own, interval)}


def _all_rows(cell: Cell) -> Iterator[Row]:
    result = readings(cell)
    scores, intervals = result.scores(~result.chooses), result.intervals(~result.chooses, range(len(result.readings)))
    chosen = {result.chosen(measure) for measure in result.measures}
    for place, (reading, own, interval) in enumerate(zip(result.readings, scores, intervals, strict=True)):
        row = {"measure": reading.place.measure, **reading.keys, "n": int((~result.chooses).sum())} | _rates(own, interval)
        yield row | {"error_rate_chosen_on": result.chosen_rates[place], "chosen": int(place in chosen)}


def _named(name: str):
    """A key in words of the page: a dash where a measure does not have it."""
    return name, lambda row: "–" if row[name] == NONE else ROW_WORDS.get(row[name], row[name])


def _measure_words(row: Row) -> str:
    own = measure_label(row["measure"])
    return f"{own}: {measure_label(row['of'])}" if row["measure"] == ANY else own


PLACE = {name: _named(name) for name in ("layer", "head", "row")}
RATES = {"error_rate": "error rate [95 % interval]", "precision": "precision", "recall": "recall"}
WHOLE = Table(
    name="alignment",
    rows=_chosen_rows,
    headings={
        "measure": ("measure", _measure_words),
        "n": "pairs",
        **RATES,
        "error_rate_chosen_on": "where it was chosen",
        "error_rate_least": "lowest here",
        "readings": "chosen of",
        **PLACE,
        "rule": "rule",
    },
    caption="Alignment error rate by measure",
    note="Alignment error rate against gold links: 0 all sure links are read and nothing that is not at least possible, 1 "
    "no link is. It is a quotient of sums over sentence pairs, and its interval is a bootstrap over these. Layer, head, row "
    "and rule are those of the lowest rate on one half of the sentence pairs; all numbers but "
    "“where it was chosen” are of the other half. Lowest here: what the best reading of this half would have claimed. "
    "Chosen of: how many readings were compared. Positions only: each target word with the source word at its relative "
    "place. Layers and heads are counted from 0. Every reading is in the file alignment_readings.",
)
BY_LAYER = Table(
    name="alignment_by_layer",
    rows=_fixed_rows,
    heads=4,
    headings={"measure": ("measure", lambda row: measure_label(row["measure"])), **PLACE, "n": "pairs", **RATES},
    caption="Alignment error rate by layer, head and row",
    note="Each target word with its heaviest source word, over all sentence pairs: nothing is chosen here, so that the "
    "numbers can stand beside published ones of this kind.",
)
READINGS = Table(name="alignment_readings", rows=_all_rows)


def _sentences(cell: Cell) -> Iterator[str]:
    chosen = {row["measure"]: row for row in rows(cell, WHOLE)}
    if ANY not in chosen:
        yield "No reading could be chosen: there is no gold link, or no measure that says which words belong together."
        return
    best = chosen[ANY]
    yield (
        f"Of {counted(best['readings'], 'way')} to read links, {measure_label(best['of'])} had the lowest alignment error "
        f"rate on one half of the sentence pairs, {best['error_rate_chosen_on']:.3f}; on the other {best['n']:,} it is "
        f"{_rate(best)}."
    )
    if POSITIONS in chosen:
        yield f"Word positions alone have {_rate(chosen[POSITIONS])} there."


def _rate(row: Row) -> str:
    rate = row["error_rate"]
    return "undefined" if np.isnan(rate) else f"{rate:.3f}{interval_in_words(row)}"


SECTION = Section(
    name="alignment",
    place=4,
    needs=("target_tokens", "gold_links"),
    per_text=per_text,
    tables=(WHOLE, BY_LAYER, READINGS),
    sentences=_sentences,
)
