"""Do a model's weights between the words of two sentences say which word translates which? Alignment error rates (Och & Ney
2003, section 5.1).

A reading is a measure, a layer, a head and a row of it where it has these, and a rule that makes links of weights
(`attnfaith.metrics.extraction`). The pairs with gold links are cut in halves by their instance ids, so that the halves of
two records of the same sentences are the same. Of all readings of a measure the one of the lowest alignment error rate on
one half is chosen, the first of equal ones, and judged on the other half. By layer, head and row, with the heaviest source
word of each target word, nothing is chosen.

Shapes: N sentence pairs, S readings, G target words, T source words.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_scores, quotients
from attnfaith.metrics.extraction import RULES, SHARE_RULES, Rule, count_links, diagonal, extract_links, halves
from attnfaith.reporting.cells import Cell, measure_label, per_cell
from attnfaith.reporting.spec import Row, interval_in_words, section, table
from attnfaith.stats import ratio_intervals
from attnfaith.support.errors import counted


PREFIX = "alignment_"
ATTENTION = "attention"
POSITIONS = "positions_only"
"""The reading by the places of words alone, which a measure has to beat."""
ANY = "any_measure"
"""The reading that is chosen of all measures."""
ROWS = ("predicting", "input")
"""The rows of a target word: that which predicts it, and that in which it is the input."""
ROW_WORDS = dict(zip(ROWS, ("that predicts the word", "in which the word is the input"), strict=True))
NONE = "none"
"""Stands for a layer, head or row that a measure does not have."""
FIXED = Rule("target_argmax")
"""The rule where nothing is chosen, as in published tables of layers."""
AXES = {"L": "layer", "A": "head", "R": "row"}
"""The field of a Reading along each axis of a column."""


# ---------- readings


@dataclass(frozen=True)
class Reading:
    """One way to read links: a measure of a record, or POSITIONS, at a layer, head and row, None where it has no such axis,
    and a rule.
    """

    measure: str
    layer: int | None = None
    head: int | None = None
    row: int | None = None
    rule: Rule = FIXED

    @property
    def place(self) -> dict[str, str]:
        """Layer, head and row in words of tables."""
        layer, head = (NONE if number is None else str(number) for number in (self.layer, self.head))
        return {"layer": layer, "head": head, "row": NONE if self.row is None else ROWS[self.row]}

    @property
    def keys(self) -> dict[str, str]:
        """The same and the rule."""
        return {**self.place, "rule": self.rule.label}

    @property
    def label(self) -> str:
        """For reading: "attention, layer 1, head 3, the row that predicts the word, target argmax"."""
        parts = [f"{name} {number}" for name, number in (("layer", self.layer), ("head", self.head)) if number is not None]
        parts += [] if self.row is None else [f"the row {ROW_WORDS[ROWS[self.row]]}"]
        return ", ".join([measure_label(self.measure), *parts, self.rule.label])


@dataclass(frozen=True, eq=False)
class Readings:
    """The counts of each reading in each sentence pair of a cell.

    counts [N, S, 4]: as `link_counts`. chooses [N]: whether a pair is of the half that is chosen on.
    """

    readings: tuple[Reading, ...]
    counts: np.ndarray
    chooses: np.ndarray

    @cached_property
    def measures(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reading.measure for reading in self.readings))

    @cached_property
    def chosen_rates(self) -> np.ndarray:
        """The error rate of each reading on the half that is chosen on, [S]."""
        return self.scores(self.chooses)[:, 0]

    def scores(self, members: np.ndarray) -> np.ndarray:
        """Error rate, precision and recall of each reading over some pairs, [S, 3]; members [N] bool."""
        return alignment_scores(self.counts[members].sum(axis=0))

    def rates(self, members: np.ndarray, places: Iterable[int]) -> list[dict[str, float]]:
        """The scores of some readings over some pairs as columns, with 95 % bootstrap intervals of the error rates."""
        places = list(places)
        above, below = (part[..., 0] for part in quotients(self.counts[members][:, places]))
        intervals = 1 - ratio_intervals(above, below)[:, ::-1]
        names = ("error_rate", "ci_low", "ci_high", "precision", "recall")
        scores = self.scores(members)[places]
        numbers = np.concatenate([scores[:, :1], intervals, scores[:, 1:]], axis=1)
        return [dict(zip(names, row, strict=True)) for row in numbers.tolist()]

    def places(self, measure: str | None = None) -> list[int]:
        """The readings of a measure, None all but POSITIONS."""
        return [
            place
            for place, reading in enumerate(self.readings)
            if (reading.measure == measure if measure else reading.measure != POSITIONS)
        ]

    def chosen(self, measure: str | None = None) -> int | None:
        """The number of the reading that is chosen among these; None without readings, or without a pair that decides."""
        among = self.places(measure)
        rates = self.chosen_rates[among]
        return None if np.isnan(rates).all() else among[int(np.nanargmin(rates))]


def columns(cell: Cell) -> dict[str, records.Column]:
    """The columns of a cell that weigh source words in target words, by measure; a signed one also by its size."""
    held: dict[str, records.Column] = {}
    for part in cell.table.schema:
        column, name = records.column_of(part), part.name.removeprefix(PREFIX)
        if part.name.startswith(PREFIX) and column.axes[-2:] == ("G", "T"):
            held |= {name: column, records.ABSOLUTE + name: column} if column.signed else {name: column}
    return held


def weights(cell: Cell, measure: str) -> list[np.ndarray]:
    """The weights of a measure in each sentence pair of a cell, with the axes of its column, (..., G, T) each."""
    if measure == POSITIONS:
        lengths = (records.list_lengths(cell.table.column(name).combine_chunks()) for name in ("target_tokens", "tokens"))
        return [diagonal(*sizes) for sizes in zip(*lengths, strict=True)]
    if cell.has(PREFIX + measure):
        return cell.rows(PREFIX + measure)
    return [np.abs(values) for values in cell.rows(PREFIX + measure.removeprefix(records.ABSOLUTE))]


def at(cell: Cell, reading: Reading, row: int) -> np.ndarray:
    """The weights (G, T) of one sentence pair that a reading reads."""
    index = tuple(number for number in (reading.layer, reading.head, reading.row) if number is not None)
    return weights(Cell(cell.identity, cell.table.slice(row, 1)), reading.measure)[0][index]


@per_cell
def readings(cell: Cell) -> Readings:
    """All readings of a cell that has gold links."""
    counts, ways, gold = [], [], cell.rows("gold_links")
    for measure, column in {**columns(cell), POSITIONS: records.Column(("G", "T"))}.items():
        values = weights(cell, measure)
        rules = (FIXED,) if measure == POSITIONS else SHARE_RULES if column.range == (0.0, 1.0) else RULES
        pairs = zip(values, gold, strict=True)
        counts.append(np.stack([count_links(extract_links(value, rules), links).reshape(-1, 4) for value, links in pairs]))
        axes = [AXES[axis] for axis in column.axes[:-2]]
        for index in np.ndindex(*values[0].shape[:-2]):
            ways += [Reading(measure, rule=rule, **dict(zip(axes, index, strict=True))) for rule in rules]
    return Readings(tuple(ways), np.concatenate(counts, axis=1), halves(cell.instance_ids))


# ---------- the section


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
                **result.rates(~result.chooses, [place])[0],
                "error_rate_chosen_on": result.chosen_rates[place],
                "error_rate_least": np.nan if np.isnan(least).all() else float(np.nanmin(least)),
                "readings": len(among),
                "of": result.readings[place].measure,
                **result.readings[place].keys,
            }


def _fixed_rows(cell: Cell) -> Iterator[Row]:
    """Each layer, head and row with the heaviest source word of each target word, over all pairs."""
    result = readings(cell)
    places = [place for place, reading in enumerate(result.readings) if reading.rule == FIXED]
    for place, rates in zip(places, result.rates(np.ones(len(cell), bool), places), strict=True):
        reading = result.readings[place]
        yield {"measure": reading.measure, **reading.place, "n": len(cell), **rates}


def _all_rows(cell: Cell) -> Iterator[Row]:
    result = readings(cell)
    chosen = {result.chosen(measure) for measure in result.measures}
    for place, rates in enumerate(result.rates(~result.chooses, range(len(result.readings)))):
        reading = result.readings[place]
        row = {"measure": reading.measure, **reading.keys, "n": int((~result.chooses).sum()), **rates}
        yield row | {"error_rate_chosen_on": result.chosen_rates[place], "chosen": int(place in chosen)}


def _measure_words(row: Row) -> str:
    own = measure_label(row["measure"])
    return f"{own}: {measure_label(row['of'])}" if row["measure"] == ANY else own


def _place_words(name: str):
    """A layer, head or row in words of the page: a dash where a measure does not have it."""
    return lambda row: "–" if row[name] == NONE else ROW_WORDS.get(row[name], row[name])


PLACES = {name: _place_words(name) for name in AXES.values()}
WHOLE = table("alignment", rows=_chosen_rows, words={"measure": _measure_words, **PLACES})
BY_LAYER = table("alignment_by_layer", rows=_fixed_rows, words=PLACES)
READINGS = table("alignment_readings", rows=_all_rows)


def _sentences(cell: Cell) -> Iterator[str]:
    chosen = {row["measure"]: row for row in WHOLE.rows_of(cell)}
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


SECTION = section("alignment", per_text=per_text, tables=(WHOLE, BY_LAYER, READINGS), words=_sentences)
