"""One text as a plain table: its tokens, and the score that every measure gives each."""

import difflib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.errors import AttnfaithError, cut, excerpt, nearest
from attnfaith.escaping import printable
from attnfaith.reporting.cells import Cell, describe
from attnfaith.reporting.explained import class_label, explained
from attnfaith.reporting.page.heatmap import example, shown_measures
from attnfaith.reporting.tables import as_text


LONGEST_TOKEN, LONGEST_SENTENCE = 24, 60  # characters


def row_of(cell: Cell, word: str) -> int:
    """The row of a text: its instance id, or the end of it after a slash where that is one text's, or its number from 0.

    Raises AttnfaithError for another word, with the nearest id.
    """
    ids = cell.instance_ids
    if word in ids:
        return ids.index(word)
    if word.isdecimal():
        if int(word) < len(ids):
            return int(word)
        raise AttnfaithError(f"there is no text {cut(word, 20)}: the record holds {len(ids):,}, numbered from 0")
    ends = [row for row, name in enumerate(ids) if name.endswith(f"/{word}")]
    if len(ends) == 1:
        return ends[0]
    near = difflib.get_close_matches(word, ids, 1)
    hint = f"did you mean {near[0]}?" if near else f"give a number from 0 to {len(ids) - 1:,}, or an id such as {ids[0]}"
    raise AttnfaithError(f"no text is called {excerpt(word)}; {hint}")


def measures_of(cell: Cell, names: Sequence[str]) -> list[str]:
    """Attention, then the measures that are named, or all that heat maps show. Raises AttnfaithError for one that the cell
    does not hold.
    """
    for name in names:
        if name != "attention" and name not in cell.measures:
            raise AttnfaithError(f"the record holds no measure {excerpt(name)}{nearest(name, cell.measures)}")
    return list(dict.fromkeys(["attention", *names])) if names else list(shown_measures(cell))


def show(cell: Cell, row: int, measures: Sequence[str] = ()) -> str:
    """Return one text of a cell as lines of text: prediction, label, agreement, and a table of tokens and their scores."""
    names = measures_of(cell, measures)
    text = example(cell, row, names)
    label = "unknown" if text.label is None else class_label(cell, text.label)
    lines = [
        f"{text.instance_id}  (text {row} of {len(cell):,})",
        describe(cell.heading),
        f"predicted: {class_label(cell, text.predicted)} ({text.probability:.2f})   label: {label}",
    ]
    targets = {label: explained(cell, row, name) for label, name in zip(text.measures, names, strict=True)}
    lines += [f"{label}: {target}" for label, target in targets.items() if target]
    if text.query is not None:
        lines.append(f"second text, which nothing attends to: {' '.join(text.query)}")
    lines += [f"τ {pair}: {value}" for pair, value in text.taus]
    if text.truncated:
        lines.append("The text was longer than the model reads, and was cut.")
    if len(text.tokens) < text.length:
        lines.append(f"The first {len(text.tokens)} of {text.length} {'sentences' if text.of_sentences else 'tokens'}.")
    most = LONGEST_SENTENCE if text.of_sentences else LONGEST_TOKEN
    scores = np.stack([cell.scores(name)[row][: len(text.tokens)] for name in names], axis=1)
    gold = {"gold": ["*" if token.gold else "" for token in text.tokens]} if text.has_rationale else {}
    columns = {name: [_rounded(value) for value in scores[:, place]] for place, name in enumerate(text.measures)}
    table = pd.DataFrame(columns | gold, index=[cut(token.text, most) for token in text.tokens])
    return "\n".join([*map(printable, lines), "", as_text(table) if text.tokens else "(no token)"]) + "\n"


def _rounded(score: float) -> str:
    return "–" if np.isnan(score) else f"{score:.3g}"
