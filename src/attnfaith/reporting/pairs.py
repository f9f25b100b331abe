"""One pair of sentences as it is shown: what each target word reads of each source word, the links read off it, and gold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import POSSIBLE, SURE, alignment_scores
from attnfaith.metrics.extraction import extract_links
from attnfaith.reporting.cells import Cell, describe, measure_label
from attnfaith.reporting.heatmap import Score, direction_of, scores_of, visible
from attnfaith.reporting.readings import Reading, at, columns, has_gold, reading_of, readings
from attnfaith.reporting.spec import per_cell
from attnfaith.reporting.tables import as_text, short_number
from attnfaith.support.errors import AttnfaithError, counted, excerpt, nearest
from attnfaith.support.escaping import html, printable


MOST_WORDS = 60  # of either sentence on the page; more cannot be looked over
HEAVIEST = 3  # source words that a terminal names of each target word
LINKS = {SURE: "sure", POSSIBLE: "possible", 0: ""}


@dataclass(frozen=True)
class Mark:
    """One target word and one source word. value: its weight, and score this as a shade; link: "sure", "possible" or "" in
    gold; read: linked by the reading; words: all of it, for reading.
    """

    value: float
    score: Score
    link: str
    read: bool
    words: str


@dataclass(frozen=True)
class Target:
    """A target word with its probability and its marks, one for each source word that is shown."""

    word: str
    probability: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Pair:
    """A pair of sentences. error: its alignment error rate by the reading, "" without gold. sizes: words of either."""

    instance_id: str
    source: tuple[str, ...]
    targets: tuple[Target, ...]
    error: str
    sizes: tuple[int, int]
    truncated: bool
    directions: tuple[str, str]


@per_cell
def shown_reading(cell: Cell) -> Reading | None:
    """How the pairs of a cell are shown: with gold links by the reading that is chosen of all; without, by the first measure
    that has layers and no heads, else the first that there is. None of a cell without any measure.
    """
    known = columns(cell)
    if has_gold(cell) and (place := readings(cell).chosen()) is not None:
        return readings(cell).readings[place]
    without_heads = (name for name, column in known.items() if "L" in column.axes and "A" not in column.axes)
    return reading_of(cell, next(without_heads, next(iter(known)))) if known else None


def reading_label(reading: Reading) -> str:
    """A reading with its measure, for reading."""
    return ", ".join(filter(None, (measure_label(reading.place.measure), reading.label)))


def choose_pairs(cell: Cell, count: int) -> list[tuple[str, list[int]]]:
    """(heading, rows) of the pairs that a page shows: of lowest and of highest error by the shown reading, among those that
    it was not chosen on; without gold the first by instance id.
    """
    ids = np.array(cell.instance_ids, dtype=object)
    rates = errors(cell, shown_reading(cell))
    if rates is None:
        return [("First pairs", sorted(range(len(cell)), key=lambda row: ids[row])[:count])]
    judged = np.flatnonzero(~np.isnan(rates) & ~readings(cell).chooses)
    best = sorted(judged, key=lambda row: (rates[row], ids[row]))[: min(count, (len(judged) + 1) // 2)]
    worst = sorted(np.setdiff1d(judged, best), key=lambda row: (-rates[row], ids[row]))[:count]
    groups = (("Lowest error rate", best), ("Highest error rate", worst))
    return [(head, [int(row) for row in rows]) for head, rows in groups if len(rows)]


def errors(cell: Cell, reading: Reading | None) -> np.ndarray | None:
    """The alignment error rate of each pair by a reading, [N]; None without gold."""
    if reading is None or not has_gold(cell):
        return None
    known = readings(cell)
    return alignment_scores(known.counts[:, known.readings.index(reading)])[:, 0]


def pair(cell: Cell, row: int, reading: Reading) -> Pair:
    """What is shown of one pair."""
    part = cell.table.slice(row, 1)
    source, targets = (part.column(name)[0].as_py() for name in ("tokens", "target_tokens"))
    values = at(cell, reading.place, row)
    links = extract_links(values, (reading.rule,))[0]
    kinds = records.rows(part, "gold_links")[0] if has_gold(cell) else np.zeros(values.shape, int)
    rates = errors(cell, reading)
    words, name = [visible(word) for word in source[:MOST_WORDS]], measure_label(reading.place.measure)
    scores = scores_of(values.ravel(), name)
    lines = []
    for g, target in enumerate(map(visible, targets[:MOST_WORDS])):
        marks = []
        for t, word in enumerate(words):
            score, link = scores[g * values.shape[1] + t], LINKS[int(kinds[g, t])]
            facts = [f"{target} – {word}", score.value, link and f"{link} link in gold", links[g, t] and "read as a link"]
            marks.append(Mark(float(values[g, t]), score, link, bool(links[g, t]), "; ".join(filter(None, facts))))
        lines.append(Target(target, f"{part.column('target_probs')[0][g].as_py():.2f}", tuple(marks)))
    return Pair(
        instance_id=visible(cell.instance_ids[row]),
        source=tuple(words),
        targets=tuple(lines),
        error="" if rates is None else "undefined" if np.isnan(rates[row]) else f"{rates[row]:.2f}",
        sizes=(len(source), len(targets)),
        truncated=bool(part.column("truncated")[0].as_py()),
        directions=(direction_of(source), direction_of(targets)),
    )


class ShownPair:
    """One pair of sentences of a record as lines of text: the HEAVIEST source words of each target word, with their weights.

    measures: those to show; without any the one whose links had the lowest error rate where they were chosen. Raises
    AttnfaithError for one that the cell does not hold.
    """

    def __init__(self, cell: Cell, row: int, measures: Sequence[str] | None = None):
        known = columns(cell)
        for name in measures or ():
            if name not in known:
                raise AttnfaithError(f"the record holds no measure {excerpt(name)}{nearest(name, known)}")
        chosen = shown_reading(cell)
        self.cell, self.row = cell, row
        self.readings = [reading_of(cell, name) for name in measures or ()] or ([] if chosen is None else [chosen])

    def __str__(self) -> str:
        cell, row = self.cell, self.row
        source, target = (" ".join(cell.table.column(name)[row].as_py()) for name in ("tokens", "target_tokens"))
        lines = [f"{cell.instance_ids[row]}  (pair {row} of {len(cell):,})", describe(cell.heading)]
        lines += [f"source: {source}", f"target: {target}"]
        if cell.table.column("truncated")[row].as_py():
            lines.append("A sentence was longer than the model reads, and was cut.")
        for reading in self.readings:
            found = pair(cell, row, reading)
            lines += ["", reading_label(reading), *([f"error rate of this pair: {found.error}"] if found.error else [])]
            lines += _table(found, has_gold(cell)).split("\n")
            if len(found.targets) < found.sizes[1] or len(found.source) < found.sizes[0]:
                lines.append(f"The first {len(found.source)} source and {counted(len(found.targets), 'target word')}.")
        if self.readings:
            lines += ["", "*: read as a link. p: probability of the target word. (…): a possible link."]
        else:
            lines.append("Nothing was measured that links their words.")
        return "\n".join(map(printable, lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html(str(self))}</pre>"


def _table(found: Pair, gold: bool) -> str:
    """A row for each target word."""
    rows = []
    for target in found.targets:
        order = sorted(range(len(found.source)), key=lambda place: -target.marks[place].value)
        kept = [place for number, place in enumerate(order) if number < HEAVIEST or target.marks[place].read]
        reads = [
            f"{'*' if target.marks[place].read else ''}{found.source[place]} {short_number(target.marks[place].value)}"
            for place in kept
        ]
        row = {"p": target.probability, "reads most of": " · ".join(reads)}
        if gold:
            linked = [(word, mark.link) for word, mark in zip(found.source, target.marks, strict=True) if mark.link]
            row["gold"] = " ".join(f"({word})" if link == "possible" else word for word, link in linked) or "–"
        rows.append(row)
    return as_text(pd.DataFrame(rows, index=[target.word for target in found.targets]))
