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

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import alignment_scores, quotients
from attnfaith.metrics.extraction import RULES, SHARE_RULES, Rule, count_links, diagonal, extract_links, halves
from attnfaith.reporting.cells import Cell, per_cell, readable
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
    def keys(self) -> dict[str, str]:
        """Measure, layer, head, row and rule in words of tables."""
        places = {"layer": self.layer, "head": self.head, "row": None if self.row is None else ROWS[self.row]}
        words = {name: NONE if place is None else str(place) for name, place in places.items()}
        return {"measure": self.measure, **words, "rule": self.rule.label}

    @property
    def label(self) -> str:
        """For reading: "attention, layer 1, head 3, the row that predicts the word, target argmax"."""
        parts = [f"{name} {number}" for name, number in (("layer", self.layer), ("head", self.head)) if number is not None]
        parts += [] if self.row is None else [f"the row {ROW_WORDS[ROWS[self.row]]}"]
        return ", ".join([readable(self.measure), *parts, self.rule.label])


@dataclass(frozen=True, eq=False)
class Readings:
    """The counts of each reading in each sentence pair of a cell, and which readings are chosen.

    counts [N, S, 4]: as `link_counts`. chooses [N]: whether a pair is of the half that is chosen on. places: the numbers of
    the readings of each measure, and before these of ANY, all but POSITIONS. chosen: the number of the reading that is
    chosen for each of these; none where there is no pair that decides. chosen_rates [S]: the error rate on that half.
    """

    readings: tuple[Reading, ...]
    counts: np.ndarray
    chooses: np.ndarray
    places: dict[str, list[int]]
    chosen: dict[str, int]
    chosen_rates: np.ndarray

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
    joined, chooses = np.concatenate(counts, axis=1), halves(cell.instance_ids)
    rates = alignment_scores(joined[chooses].sum(axis=0))[:, 0]
    places = {ANY: [place for place, reading in enumerate(ways) if reading.measure != POSITIONS]}
    for place, reading in enumerate(ways):
        places.setdefault(reading.measure, []).append(place)
    decided = {name: own for name, own in places.items() if not np.isnan(rates[own]).all()}
    chosen = {name: own[int(np.nanargmin(rates[own]))] for name, own in decided.items()}
    return Readings(tuple(ways), joined, chooses, places, chosen, rates)


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """alignment_error_<measure> of each pair of the half that is judged, by the reading chosen on the other; else NaN."""
    result = readings(cell)
    rates = {name: alignment_scores(result.counts[:, place])[:, 0] for name, place in result.chosen.items() if name != ANY}
    return {f"alignment_error_{name}": np.where(result.chooses, np.nan, own) for name, own in rates.items()}


def _chosen_rows(cell: Cell) -> Iterator[Row]:
    """The chosen reading of each measure, ANY first, on the half that is judged; a measure that nothing decides has none."""
    result, half = readings(cell), ~readings(cell).chooses
    judged = result.scores(half)[:, 0]
    for measure, place in result.chosen.items():
        keys, places = result.readings[place].keys, result.places[measure]
        yield {
            "measure": measure,
            "n": int(half.sum()),
            "n_chosen_on": int((~half).sum()),
            **result.rates(half, [place])[0],
            "error_rate_chosen_on": result.chosen_rates[place],
            "error_rate_least": float(np.fmin.reduce(judged[places])),
            "readings": len(places),
            "of": keys.pop("measure"),
            **keys,
        }


def _fixed_rows(cell: Cell) -> Iterator[Row]:
    """Each layer, head and row with the heaviest source word of each target word, over all pairs."""
    result = readings(cell)
    fixed = [place for place, reading in enumerate(result.readings) if reading.rule == FIXED]
    for place, rates in zip(fixed, result.rates(np.ones(len(cell), bool), fixed), strict=True):
        keys = result.readings[place].keys
        del keys["rule"]
        yield {**keys, "n": len(cell), **rates}


def _all_rows(cell: Cell) -> Iterator[Row]:
    result, half = readings(cell), ~readings(cell).chooses
    chosen, rates = {*result.chosen.values()}, result.rates(half, range(len(result.readings)))
    for place, (reading, own) in enumerate(zip(result.readings, rates, strict=True)):
        last = {"error_rate_chosen_on": result.chosen_rates[place], "chosen": int(place in chosen)}
        yield {**reading.keys, "n": int(half.sum()), **own, **last}


def _measure_words(row: Row) -> str:
    own = readable(row["measure"])
    return f"{own}: {readable(row['of'])}" if row["measure"] == ANY else own


# a dash where a measure does not have a layer, head or row
PLACES = {name: lambda row, name=name: {NONE: "–", **ROW_WORDS}.get(row[name], row[name]) for name in AXES.values()}
WHOLE = table("alignment", rows=_chosen_rows, words={"measure": _measure_words, **PLACES})
BY_LAYER = table("alignment_by_layer", rows=_fixed_rows, words=PLACES)
READINGS = table("alignment_readings", rows=_all_rows)


def _sentences(cell: Cell) -> Iterator[str]:
    chosen = {row["measure"]: row for row in WHOLE.rows_of(cell)}
    if ANY not in chosen or not chosen[ANY]["n"]:
        yield (
            "No reading could be chosen and judged: fewer than two pairs have gold links, or no measure says which words "
            "belong together."
        )
        return
    best = chosen[ANY]
    yield (
        f"Of {counted(best['readings'], 'way')} to read links, {readable(best['of'])} had the lowest alignment error "
        f"rate on one half of the sentence pairs, {best['error_rate_chosen_on']:.3f}; on the other {best['n']:,} it is "
        f"{_rate(best)}."
    )
    if POSITIONS in chosen:
        yield f"Word positions alone have {_rate(chosen[POSITIONS])} there."


def _rate(row: Row) -> str:
    rate = row["error_rate"]
    return "undefined" if np.isnan(rate) else f"{rate:.3f}{interval_in_words(row)}"


SECTION = section("alignment", per_text=per_text, tables=(WHOLE, BY_LAYER, READINGS), words=_sentences)
