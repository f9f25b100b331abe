"""A pair of sentences as it is shown: what each target word reads of each source word, the links read off it, and gold.

Shapes: T source words, G target words, N pairs.
"""

from dataclasses import dataclass

import numpy as np

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import POSSIBLE, SURE, alignment_scores
from attnfaith.metrics.extraction import extract_links
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.heatmap import Score, direction_of, scores_of, visible
from attnfaith.reporting.links import Reading, at, columns, has_gold, reading_of, readings
from attnfaith.reporting.spec import per_cell


MOST_WORDS = 60  # of either sentence on the page; more cannot be looked over
LINKS = {SURE: "sure", POSSIBLE: "possible", 0: ""}


@dataclass(frozen=True)
class Pair:
    """A pair of sentences as it is shown, of each at most MOST_WORDS words.

    probabilities: of target words. scores: the shades of weights, by target and source word. gold (G,T): as `gold_links`.
    read (G,T): links by the reading. error: the alignment error rate, "" without gold. sizes: words of either.
    """

    instance_id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    probabilities: tuple[float, ...]
    scores: tuple[list[Score], ...]
    gold: np.ndarray
    read: np.ndarray
    error: str
    sizes: tuple[int, int]
    truncated: bool
    directions: tuple[str, str]

    def link(self, target: int, source: int) -> str:
        """ "sure", "possible" or "" in gold."""
        return LINKS[int(self.gold[target, source])]

    def words(self, target: int, source: int) -> str:
        """A weight and its links, for reading."""
        link = self.link(target, source)
        parts = [f"{self.target[target]} – {self.source[source]}", self.scores[target][source].words]
        parts += [f"{link} link in gold"] if link else []
        return "; ".join([*parts, *(["read as a link"] if self.read[target, source] else [])])


@per_cell
def page_reading(cell: Cell) -> Reading | None:
    """How the pairs of a cell are shown: with gold links by the reading that is chosen of all; without, by the first measure
    that has layers and no heads, else the first that there is. None of a cell without any measure.
    """
    measures = columns(cell)
    if has_gold(cell) and (place := readings(cell).chosen()) is not None:
        return readings(cell).readings[place]
    without_heads = (name for name, column in measures.items() if "L" in column.axes and "A" not in column.axes)
    return reading_of(cell, next(without_heads, next(iter(measures)))) if measures else None


def reading_label(reading: Reading) -> str:
    """A reading with its measure, for reading."""
    return ", ".join(filter(None, (measure_label(reading.place.measure), reading.label)))


def page_pairs(cell: Cell, count: int) -> dict[str, object]:
    """The pairs that a page shows: groups [(heading, pairs)], a note on them, and whether gold links are known."""
    reading = page_reading(cell)
    groups = [] if reading is None else extreme_pairs(cell, count)
    note = "Nothing was measured that could be shown." if reading is None else f"Shown is {reading_label(reading)}."
    if len(groups) > 1:
        note += " The extremes, not a sample: pairs of lowest and of highest alignment error rate among those that this "
        note += "reading was not chosen on."
    pairs = [(heading, [pair(cell, row, reading) for row in rows]) for heading, rows in groups]
    return {"note": note, "groups": pairs, "has_gold": has_gold(cell)}


def extreme_pairs(cell: Cell, count: int) -> list[tuple[str, list[int]]]:
    """(heading, rows) of the pairs of lowest and of highest error by the shown reading, among those that it was not chosen
    on; without gold the first by instance id.
    """
    ids, rates = cell.instance_ids, errors(cell, page_reading(cell))
    if rates is None:
        return [("First pairs", sorted(range(len(cell)), key=lambda row: ids[row])[:count])]
    judged = np.flatnonzero(~np.isnan(rates) & ~readings(cell).chooses).tolist()
    best = sorted(judged, key=lambda row: (rates[row], ids[row]))[: min(count, (len(judged) + 1) // 2)]
    worst = sorted({*judged} - {*best}, key=lambda row: (-rates[row], ids[row]))[:count]
    return [(heading, rows) for heading, rows in (("Lowest error rate", best), ("Highest error rate", worst)) if rows]


def errors(cell: Cell, reading: Reading | None) -> np.ndarray | None:
    """The alignment error rate of each pair by a reading, [N]; None without gold."""
    if reading is None or not has_gold(cell):
        return None
    counts = readings(cell).counts[:, readings(cell).readings.index(reading)]
    return alignment_scores(counts)[:, 0]


def pair(cell: Cell, row: int, reading: Reading) -> Pair:
    """A pair of sentences as a page and a terminal show it."""
    values, first_words = at(cell, reading.place, row), np.s_[:MOST_WORDS, :MOST_WORDS]
    fields = ("tokens", "target_tokens", "target_probs", "truncated")
    source, target, probs, truncated = (cell.table.column(name)[row].as_py() for name in fields)
    scores, rates = scores_of(values.ravel(), measure_label(reading.place.measure)), errors(cell, reading)
    return Pair(
        instance_id=visible(cell.instance_ids[row]),
        source=tuple(map(visible, source[:MOST_WORDS])),
        target=tuple(map(visible, target[:MOST_WORDS])),
        probabilities=tuple(probs[:MOST_WORDS]),
        scores=tuple(scores[g * len(source) :][: min(len(source), MOST_WORDS)] for g in range(len(target))),
        gold=(cell.rows("gold_links")[row] if has_gold(cell) else np.zeros(values.shape, int))[first_words],
        read=extract_links(values, (reading.rule,))[0][first_words],
        error="" if rates is None else "undefined" if np.isnan(rates[row]) else f"{rates[row]:.2f}",
        sizes=(len(source), len(target)),
        truncated=bool(truncated),
        directions=(direction_of(source), direction_of(target)),
    )
