"""Texts under their own attention and under another one that keeps the prediction: what else could be shown of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell, name_class
from attnfaith.reporting.heatmap import (
    HUES,
    MOST_TOKENS,
    SHADES,
    SHORTEST_EXAMPLE,
    Score,
    direction_of,
    query_of,
    visible,
)
from attnfaith.reporting.sections import adversary, identifiability
from attnfaith.reporting.spec import largest_weights
from attnfaith.support.errors import counted


NAMED = 3
"""Weights of one text that a line names."""


@dataclass(frozen=True)
class Alternative:
    """One text with its own attention and another. line: what is said of it, parts of text and whether each is a token."""

    instance_id: str
    line: tuple[tuple[str, bool], ...]
    tokens: tuple[tuple[str, tuple[Score, Score]], ...]
    length: int
    query: tuple[str, ...] | None
    direction: str


def of_section(name: str, cell: Cell, n_examples: int) -> str:
    """The texts of a section as safe HTML; "" where it has none to show."""
    part = PARTS.get(name)
    return part(cell, n_examples) if part else ""


def _adversary(cell: Cell, n_examples: int) -> str:
    """The texts with the largest product of largest weight and divergence: where attention seems to say most, and can say
    something else. Source: Jain & Wallace (2019), figure 1.
    """
    shown = [way for way in adversary.shown_ways(cell) if not np.isnan(way.jsd).all()]
    if not shown:
        return ""
    way, predicted = shown[0], cell.predicted
    chosen, rule = extreme_texts(cell, ~np.isnan(way.jsd), np.nan_to_num(largest_weights(cell)) * way.jsd, n_examples)
    exact = way.method == "exact" and set(way.certainty[chosen]) == {"exact"}
    texts = []
    for row in chosen:
        other, probs = adversary.adversarial_attention(cell, way, row)
        number = int(predicted[row])
        line = (
            f"predicted class {name_class(str(number), cell.class_names)}: probability {cell.probs[row, number]:.3f} under "
            f"the model's attention, {probs[number]:.3f} under the adversarial one · divergence {way.jsd[row]:.3f} of at "
            f"most 0.693 · largest weight {cell.attention[row].max():.2f}"
        )
        texts.append(_alternative(cell, row, other, ((line, False),)))
    return template("alternatives.html.j2").render(
        title="The same prediction under another attention",
        rule=f"{rule} with the largest product of largest weight and divergence: the extremes, not a sample.",
        other=f"the attention furthest from it that moves the prediction by no more than {way.epsilon:g}"
        + (" (the exact maximum)" if exact else ""),
        column="adversarial",
        texts=texts,
        hues=(list(HUES).index("attention"), len(HUES)),
        of_sentences=cell.words is not None,
    )


def _identifiability(cell: Cell, n_examples: int) -> str:
    """The texts with the widest intervals of the most attended token; "" where attention is determined in all of them."""
    begin, values = identifiability.BEGIN, identifiability.per_text(cell)
    tvd = values[f"{begin}tvd"]
    chosen, rule = extreme_texts(cell, tvd > identifiability.DETERMINED, values[f"{begin}width"], n_examples)
    if not chosen:
        return ""
    texts = []
    for row in chosen:
        part, own = cell.table.slice(row, 1), cell.attention[row]
        low, high, other = (records.rows(part, f"{begin}{name}")[0] for name in ("low", "high", "attention"))
        tokens, line = part.column("tokens")[0].as_py(), []
        for place in np.argsort(-own, kind="stable")[:NAMED]:
            line += [(f"The weight {own[place]:.2f} of ", False), (visible(tokens[place]), True)]
            line += [(f" could be anything from {low[place]:.2f} to {high[place]:.2f}. ", False)]
        exact = part.column(f"{begin}certainty")[0].as_py() == "exact"
        bound = ", the largest there is" if exact else f"; none is above {values[f'{begin}bound'][row]:.3f}"
        line.append(
            (f"Nothing in the model would notice. Total variation distance of the two rows: {tvd[row]:.3f}{bound}.", False)
        )
        texts.append(_alternative(cell, row, other, tuple(line)))
    return template("alternatives.html.j2").render(
        title="What else could be shown of these texts",
        rule=f"{rule} whose largest weight has the widest interval: the extremes, not a sample.",
        other="the furthest from it that was reached and leaves what the model reads as it is",
        column="alternative",
        texts=texts,
        hues=(list(HUES).index("attention"), len(HUES)),
        of_sentences=cell.words is not None,
    )


PARTS: dict[str, Callable[[Cell, int], str]] = {"adversary": _adversary, "identifiability": _identifiability}


def _alternative(cell: Cell, row: int, other: np.ndarray, line: tuple[tuple[str, bool], ...]) -> Alternative:
    own, tokens = cell.attention[row], [visible(token) for token in cell.table.column("tokens")[row].as_py()]
    weights = zip(weight_scores(own, "attention"), weight_scores(other, "other attention"), strict=True)
    return Alternative(
        instance_id=visible(cell.instance_ids[row]),
        line=line,
        tokens=tuple(zip(tokens, weights, strict=True))[:MOST_TOKENS],
        length=len(own),
        query=query_of(cell, row),
        direction=direction_of(tokens),
    )


def extreme_texts(cell: Cell, shown: np.ndarray, score: np.ndarray, n_examples: int) -> tuple[list[int], str]:
    """The rows of the texts of largest score [N] among those that are shown, [N] bool, and words on how long they are.

    Short texts are passed over where there are enough others. Equal scores: by instance id.
    """
    candidates, score = np.flatnonzero(shown), np.round(score.astype(np.float64), 4)
    long_enough = candidates[cell.lengths[candidates] >= SHORTEST_EXAMPLE]
    shortest = 2
    if len(long_enough) >= n_examples:
        candidates, shortest = long_enough, SHORTEST_EXAMPLE
    chosen = sorted(candidates, key=lambda row: (-score[row], cell.instance_ids[row]))[:n_examples]
    return chosen, f"The {counted(len(chosen))} of at least {shortest} {'sentences' if cell.words else 'tokens'}"


def weight_scores(values: np.ndarray, name: str) -> list[Score]:
    """Weights (T,) in percent, each with its shade in parts of the largest; what they are, for reading."""
    shades = np.rint(values / values.max() * (SHADES - 1)).astype(int)
    return [Score(f"{100 * v:.0f}", int(s), f"{name}: {v:.4g}") for v, s in zip(values, shades, strict=True)]
