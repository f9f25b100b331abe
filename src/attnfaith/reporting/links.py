"""The ways to read links off a record of sentence pairs; one is chosen on half of the pairs and judged on the others.

A reading is a measure, a layer, a head and a row of it where it has these, and a rule that makes links of weights
(`attnfaith.metrics.extraction`). The pairs with gold links are cut in halves by their instance ids, so that the halves of
two records of the same sentences are the same. Of all readings of a measure the one of the lowest alignment error rate on
one half is chosen, the first of equal ones, and judged on the other half.

Shapes: N sentence pairs, S readings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_scores, quotients
from attnfaith.metrics.extraction import RULES, SHARE_RULES, Rule, count_links, diagonal, extract_links, halves
from attnfaith.record import column_of
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.spec import per_cell
from attnfaith.stats import ratio_intervals


PREFIX = "alignment_"
ATTENTION = "attention"
POSITIONS = "positions_only"
"""The reading by the places of words alone, which a measure has to beat."""
ROWS = ("predicting", "input")
"""The rows of a target word: that which predicts it, and that in which it is the input."""
ROW_WORDS = dict(zip(ROWS, ("that predicts the word", "in which the word is the input"), strict=True))
NONE = "none"
"""Stands for a layer, head or row that a measure does not have."""
FIXED = Rule("target_argmax")
"""The rule where nothing is chosen, as in published tables of layers."""
AXES = {"L": "layer", "A": "head", "R": "row"}
"""The field of a Place along each axis."""


@dataclass(frozen=True)
class Place:
    """A measure of a record, or POSITIONS, at a layer, head and row; None where it has no such axis."""

    measure: str
    layer: int | None = None
    head: int | None = None
    row: int | None = None

    @property
    def keys(self) -> dict[str, str]:
        """In words of tables."""
        layer, head = (NONE if number is None else str(number) for number in (self.layer, self.head))
        return {"layer": layer, "head": head, "row": NONE if self.row is None else ROWS[self.row]}

    @property
    def label(self) -> str:
        """For reading: "layer 1, head 3, the row that predicts the word"; "" of a measure without any of these."""
        parts = [f"{name} {number}" for name, number in (("layer", self.layer), ("head", self.head)) if number is not None]
        if self.row is not None:
            parts.append(f"the row {ROW_WORDS[ROWS[self.row]]}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Reading:
    """One way to read links."""

    place: Place
    rule: Rule

    @property
    def keys(self) -> dict[str, str]:
        return {**self.place.keys, "rule": self.rule.label}

    @property
    def label(self) -> str:
        """For reading, with what of the place applies."""
        return ", ".join(filter(None, (self.place.label, self.rule.label)))


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
        return tuple(dict.fromkeys(reading.place.measure for reading in self.readings))

    @cached_property
    def chosen_rates(self) -> np.ndarray:
        """The error rate of each reading on the half that is chosen on, [S]."""
        return self.scores(self.chooses)[:, 0]

    def scores(self, members: np.ndarray) -> np.ndarray:
        """Error rate, precision and recall of each reading over some pairs, [S, 3]; members [N] bool."""
        return alignment_scores(self.counts[members].sum(axis=0))

    def intervals(self, members: np.ndarray, places: Sequence[int]) -> np.ndarray:
        """The 95 % bootstrap intervals of the error rates of some readings over some pairs, [len(places), 2]."""
        above, below = (part[..., 0] for part in quotients(self.counts[members][:, list(places)]))
        return 1 - ratio_intervals(above, below)[:, ::-1]

    def places(self, measure: str | None = None, rule: Rule | None = None) -> list[int]:
        """The readings of a measure, None all but POSITIONS, and of a rule, None all."""
        return [
            place
            for place, reading in enumerate(self.readings)
            if (reading.place.measure == measure if measure else reading.place.measure != POSITIONS)
            and rule in (None, reading.rule)
        ]

    def chosen(self, measure: str | None = None, rule: Rule | None = None) -> int | None:
        """The number of the reading that is chosen among these; None without readings, or without a pair that decides."""
        among = self.places(measure, rule)
        rates = self.chosen_rates[among]
        return None if np.isnan(rates).all() else among[int(np.nanargmin(rates))]


def columns(cell: Cell) -> dict[str, records.Column]:
    """The columns of a cell that weigh source words in target words, by measure; a signed one also by its size."""
    held: dict[str, records.Column] = {}
    for field in cell.table.schema:
        column = column_of(field)
        if field.name.startswith(PREFIX) and column.axes[-2:] == ("G", "T"):
            name = field.name.removeprefix(PREFIX)
            held |= {name: column, records.ABSOLUTE + name: column} if column.signed else {name: column}
    return held


def weights(table: pa.Table, measure: str) -> list[np.ndarray]:
    """The weights of a measure in each sentence pair of a record, with the axes of its column, (..., G, T) each."""
    if measure == POSITIONS:
        lengths = (records.list_lengths(table.column(name).combine_chunks()) for name in ("target_tokens", "tokens"))
        return [diagonal(*sizes) for sizes in zip(*lengths, strict=True)]
    if PREFIX + measure in table.column_names:
        return records.rows(table, PREFIX + measure)
    return [np.abs(values) for values in records.rows(table, PREFIX + measure.removeprefix(records.ABSOLUTE))]


def at(cell: Cell, place: Place, row: int) -> np.ndarray:
    """The weights (G, T) of one sentence pair at a place."""
    index = tuple(number for number in (place.layer, place.head, place.row) if number is not None)
    return weights(cell.table.slice(row, 1), place.measure)[0][index]


def has_gold(cell: Cell) -> bool:
    return cell.has("gold_links")


def reading_of(cell: Cell, measure: str) -> Reading:
    """The reading of a measure that is shown: the one chosen by gold links. Where there are none or they decide nothing, its
    last layer, the first head, the row that predicts the word, by the heaviest source word of each target word.
    """
    place = readings(cell).chosen(measure) if has_gold(cell) else None
    if place is not None:
        return readings(cell).readings[place]
    axes = columns(cell)[measure].axes
    last = {"L": lambda: weights(cell.table.slice(0, 1), measure)[0].shape[0] - 1}
    return Reading(Place(measure, **{AXES[axis]: last.get(axis, int)() for axis in axes[:-2]}), FIXED)


def gold(cell: Cell) -> list[np.ndarray]:
    """The gold links (G, T) of each sentence pair."""
    return cell.rows("gold_links")


@per_cell
def readings(cell: Cell) -> Readings:
    """All readings of a cell that has gold links."""
    counts, ways, gold_links = [], [], gold(cell)
    for measure, column in {**columns(cell), POSITIONS: records.Column(("G", "T"))}.items():
        values = weights(cell.table, measure)
        rules = (FIXED,) if measure == POSITIONS else SHARE_RULES if column.range == (0.0, 1.0) else RULES
        pairs = zip(values, gold_links, strict=True)
        counts.append(np.stack([count_links(extract_links(value, rules), links).reshape(-1, 4) for value, links in pairs]))
        for index in np.ndindex(*values[0].shape[:-2]):
            place = Place(measure, **dict(zip((AXES[axis] for axis in column.axes[:-2]), index, strict=True)))
            ways += [Reading(place, rule) for rule in rules]
    return Readings(tuple(ways), np.concatenate(counts, axis=1), halves(cell.instance_ids))
