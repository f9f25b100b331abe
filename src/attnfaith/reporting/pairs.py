"""Pairs of sentences on a page: what each target word reads of each source word, the links read off it, and gold.

Shapes: T source words, G target words, N pairs.
"""

import numpy as np

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import POSSIBLE, SURE, alignment_scores
from attnfaith.metrics.extraction import extract_links
from attnfaith.reporting.cells import Cell, per_cell, readable
from attnfaith.reporting.heatmap import direction_of, scores_of, visible
from attnfaith.reporting.sections.alignment import ANY, AXES, Reading, at, columns, readings, weights


MOST_WORDS = 60  # of either sentence on the page; more cannot be looked over
LINKS = {SURE: "sure", POSSIBLE: "possible", 0: ""}


@per_cell
def page_reading(cell: Cell) -> Reading | None:
    """How the pairs of a cell are shown: with gold links by the reading that is chosen of all; without, by the first measure
    that has layers and no heads, else the first that there is, in its last layer, first head and the row that predicts the
    word. None of a cell without any measure.
    """
    measures = columns(cell)
    place = readings(cell).chosen.get(ANY) if cell.has("gold_links") else None
    if place is not None or not measures:
        return None if place is None else readings(cell).readings[place]
    without_heads = (name for name, column in measures.items() if "L" in column.axes and "A" not in column.axes)
    name = next(without_heads, next(iter(measures)))
    axes = [AXES[axis] for axis in measures[name].axes[:-2]]
    return Reading(name, **{axis: len(weights(cell, name)[0]) - 1 if axis == "layer" else 0 for axis in axes})


def page_pairs(cell: Cell, count: int) -> dict[str, object]:
    """The pairs that a page shows: groups [(heading, pairs)], a note on them, and whether gold links are known."""
    reading = page_reading(cell)
    groups = [] if reading is None else extreme_pairs(cell, count)
    note = "Nothing was measured that could be shown." if reading is None else f"Shown is {reading.label}."
    if len(groups) > 1:
        note += " The extremes, not a sample: pairs of lowest and of highest alignment error rate among those that this "
        note += "reading was not chosen on."
    pairs = [(heading, [pair(cell, row, reading) for row in rows]) for heading, rows in groups]
    return {"note": note, "groups": pairs, "has_gold": cell.has("gold_links")}


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
    if reading is None or not cell.has("gold_links"):
        return None
    return alignment_scores(readings(cell).counts[:, readings(cell).readings.index(reading)])[:, 0]


def pair(cell: Cell, row: int, reading: Reading) -> dict[str, object]:
    """A pair of sentences as a page shows it, of each at most MOST_WORDS words.

    lines: of each target word it, its probability, and for each source word (score, kind of gold link, words, whether it is
    read as a link). error: the alignment error rate, "" without gold. sizes: words of either.
    """
    values, rates = at(cell, reading, row), errors(cell, reading)
    source, target, probs, truncated = (
        cell.table.column(name)[row].as_py() for name in ("tokens", "target_tokens", "target_probs", "truncated")
    )
    scores = scores_of(values.ravel(), readable(reading.measure))
    gold = cell.rows("gold_links")[row] if cell.has("gold_links") else np.zeros(values.shape, int)
    read = extract_links(values, (reading.rule,))[0]
    sources, targets = (list(map(visible, words[:MOST_WORDS])) for words in (source, target))
    lines = []
    for g, word in enumerate(targets):
        line = []
        for t, other in enumerate(sources):
            score, link = scores[g * len(source) + t], LINKS[int(gold[g, t])]
            parts = [f"{word} – {other}", score.words, f"{link} link in gold" if link else ""]
            parts += ["read as a link" if read[g, t] else ""]
            line.append((score, link, "; ".join(filter(None, parts)), bool(read[g, t])))
        lines.append((word, probs[g], line))
    return {
        "instance_id": visible(cell.instance_ids[row]),
        "source": sources,
        "lines": lines,
        "error": "" if rates is None else "undefined" if np.isnan(rates[row]) else f"{rates[row]:.2f}",
        "sizes": (len(source), len(target)),
        "truncated": bool(truncated),
        "directions": (direction_of(source), direction_of(target)),
    }
