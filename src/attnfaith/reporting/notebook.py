"""A record in a notebook or a terminal: its verdict, and single texts as heat maps.

All styles are in the HTML itself, on a ground of their own, so that it can be read in light and dark notebooks alike.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.record import of_sequences
from attnfaith.reporting.cells import Cell, describe, main_measures, readable, undefined
from attnfaith.reporting.heatmap import SHADES, example, heat_measures, middle_text
from attnfaith.reporting.html import template
from attnfaith.reporting.sections import agreement
from attnfaith.reporting.sections.performance import accuracy_in_words
from attnfaith.reporting.tables import as_text, signed
from attnfaith.reporting.verdicts import verdict
from attnfaith.support.errors import AttnfaithError, counted, cut, excerpt, nearest
from attnfaith.support.escaping import printable


MOST_CELLS = 6  # that are described one by one
LONGEST_TOKEN = {"token": 24, "sentence": 60}  # characters of it in a terminal


def row_of(cell: Cell, word: str) -> int:
    """The row of a text: its instance id, or the end of it after a slash where that is unique, or its number from 0.

    Raises AttnfaithError for another word, with the nearest id.
    """
    ids = cell.instance_ids
    if word in ids:
        return ids.index(word)
    if word.isdecimal() and int(word) < len(ids):
        return int(word)
    ends = [row for row, name in enumerate(ids) if name.endswith(f"/{word}")]
    if len(ends) == 1:
        return ends[0]
    counts = f"{len(ids):,}, numbered from 0"
    raise AttnfaithError(f"there is no text {excerpt(word)}: the record holds {counts}{nearest(word, ids)}")


class ShownText:
    """One text of a record as a heat map: HTML in a notebook, a table of scores where it is printed.

    measures: those to show after attention, None all of inputs. Raises AttnfaithError for one that the cell does not hold.
    """

    def __init__(self, cell: Cell, row: int, measures: Sequence[str] | None = None):
        for name in measures or ():
            if name != "attention" and name not in cell.measures:
                raise AttnfaithError(f"the record holds no measure {excerpt(name)}{nearest(name, cell.measures)}")
        names = heat_measures(cell) if measures is None else dict.fromkeys(("attention", *measures))
        self.cell, self.row, self.names = cell, row, list(names)
        self.example = example(cell, row, self.names)

    @property
    def taus(self) -> list[tuple[str, str]]:
        """Kendall's tau of attention with each measure that is shown."""
        return [(readable(name), signed(self.cell.tau("attention", name)[self.row])) for name in self.names[1:]]

    def html(self) -> str:
        """A heat map that needs nothing beside it; all text in it is escaped."""
        return template("notebook.html.j2").render(overview=None, texts=[("", self)], **SHADES)

    _repr_html_ = html

    def __str__(self) -> str:
        text, cell = self.example, self.cell
        lines = [
            f"{text.instance_id}  (text {self.row} of {len(cell):,})",
            describe(cell.heading),
            f"predicted: {text.predicted} ({text.probability:.2f})   label: {text.label or 'unknown'}",
        ]
        if text.query is not None:
            lines.append(f"second text, which nothing attends to: {' '.join(text.query)}")
        lines += [f"τ with {measure}: {tau}" for measure, tau in self.taus]
        if text.truncated:
            lines.append("The text was longer than the model reads, and was cut.")
        if len(text.tokens) < text.length:
            lines.append(f"The first {len(text.tokens)} of {text.length} {text.unit}s.")
        scores = {readable(name): cell.scores(name)[self.row][: len(text.tokens)] for name in self.names}
        columns = {name: ["–" if np.isnan(value) else f"{value:.3g}" for value in row] for name, row in scores.items()}
        if text.gold:
            columns["gold"] = ["*" if gold else "" for gold in text.gold]
        table = pd.DataFrame(columns, index=[cut(token, LONGEST_TOKEN[text.unit]) for token in text.tokens])
        return "\n".join([*map(printable, lines), "", as_text(table) if text.tokens else "(no token)"])

    __repr__ = __str__


class Overview:
    """A record in short: what it is, its verdict and numbers, and one text of the middle."""

    def __init__(self, cells: Sequence[Cell]):
        self.cells = cells

    @property
    def lead(self) -> list[str]:
        """The report's sentences on agreement; of several cells those that compare them."""
        single = len(self.cells) == 1
        return agreement.SECTION.sentences(self.cells[0]) if single else agreement.side_by_side(self.cells)

    @property
    def verdict(self) -> list[str]:
        """The verdict on one model of texts, a sentence each; [] for several models and for pairs."""
        if len(self.cells) != 1 or of_sequences(self.cells[0].table):
            return []
        outcome = verdict(self.cells)
        return [f"{outcome.headline}.", outcome.reason, outcome.advice, *outcome.remarks]

    @property
    def heads(self) -> list[str]:
        """A line about each cell; of very many about the first."""
        lines = [
            " · ".join(filter(None, (describe(cell.heading), counted(len(cell)), accuracy_in_words(cell))))
            for cell in self.cells[:MOST_CELLS]
        ]
        more = len(self.cells) - len(lines)
        return [*lines, *([f"and {more} more"] if more else [])]

    @property
    def remarks(self) -> list[str]:
        """Lines on texts that were cut or are undefined."""
        count = sum(map(len, self.cells))
        truncated = sum(int(cell.column("truncated").sum()) for cell in self.cells)
        empty = sum(int((cell.lengths == 0).sum()) for cell in self.cells)
        both = ((truncated, "cut at the length limit"), (empty, "without a token"))
        texts = [f"{number:,} of {counted(count)}: {words}" for number, words in both if number]
        return texts + [line for cell in self.cells[:MOST_CELLS] for line in undefined(cell.table)]

    def html(self) -> str:
        """The record in a notebook, with one text that is no extreme of a single cell; all text in it is escaped."""
        texts = []
        for cell in self.cells if len(self.cells) == 1 else ():
            row, why = middle_text(cell)
            texts.append((why, ShownText(cell, row, main_measures(cell))))
        return template("notebook.html.j2").render(overview=self, texts=texts, **SHADES)

    def __str__(self) -> str:
        return "\n".join(map(printable, [*self.heads, *self.verdict, *self.lead, *self.remarks]))
