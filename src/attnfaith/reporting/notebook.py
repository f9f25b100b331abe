"""What a notebook, or a terminal, shows of a record: its verdict, and single texts as heat maps.

Sentences are those of the report, the verdict is that of `attnfaith.verdict`. All styles are in the HTML itself, on a
ground of their own, so that they can be read in light and dark notebooks alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnfaith.errors import counted
from attnfaith.escaping import printable
from attnfaith.reporting import render, sections
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell, describe, measure_label, undefined
from attnfaith.reporting.explained import class_label, explained
from attnfaith.reporting.page.heatmap import (
    HUES,
    NEGATIVE_HUE,
    OTHER_HUE,
    PAPER,
    Example,
    choose,
    example,
    shades,
    shown_measures,
)
from attnfaith.reporting.sections.agreement import main_measures
from attnfaith.reporting.sections.performance import accuracy_in_words
from attnfaith.reporting.shown import measures_of, show
from attnfaith.reporting.verdicts import verdict


EXAMPLES = 2  # texts of highest, and of lowest agreement
MOST_CELLS = 6  # that are described one by one


@dataclass(frozen=True)
class Line:
    """One measure's scores of a text: `place` names its hue, explains what its scores are of; signed: one is below 0."""

    label: str
    place: int
    explains: str
    signed: bool


class Shown:
    """One text of a record as a heat map: HTML in a notebook, a table of scores where it is printed.

    measures: those to show after attention, None all of inputs. Raises AttnfaithError for one that the cell does not hold.
    """

    def __init__(self, cell: Cell, row: int, measures: Sequence[str] | None = None):
        if measures is None:
            names = list(shown_measures(cell))
        else:
            names = measures_of(cell, ["attention", *(name for name in measures if name != "attention")])
        self.cell, self.row, self.names = cell, row, names

    @cached_property
    def example(self) -> Example:
        return example(self.cell, self.row, self.names)

    @property
    def lines(self) -> list[Line]:
        return [
            Line(
                measure_label(name),
                _place(name),
                "" if name == "attention" else explained(self.cell, self.row, name),
                bool(np.nanmin(self.cell.scores(name)[self.row], initial=0.0) < 0),
            )
            for name in self.names
        ]

    @property
    def prediction(self) -> str:
        """What the model says of the text."""
        return f"predicted {class_label(self.cell, self.example.predicted)} (probability {self.example.probability:.2f})"

    @property
    def gold(self) -> str:
        """What is right; "" where it is not known."""
        label = self.example.label
        if label is None:
            return ""
        return f"gold {class_label(self.cell, label)}{'' if label == self.example.predicted else ' (wrong)'}"

    @property
    def size(self) -> str:
        """How long the text is."""
        shown, unit = self.example, "sentence" if self.example.of_sentences else "token"
        said = f"{shown.length} {unit}{'' if shown.length == 1 else 's'}"
        return said + (", cut at the length limit" if shown.truncated else "")

    @property
    def title(self) -> str:
        """All three in a line."""
        return " · ".join([", ".join(filter(None, (self.prediction, self.gold))), self.size])

    @property
    def taus(self) -> list[tuple[str, str]]:
        """Kendall's tau of attention with each measure that is shown."""
        tau = {name: self.cell.tau("attention", name)[self.row] for name in self.names[1:]}
        return [
            (measure_label(name), "undefined" if np.isnan(v) else f"{v:.2f}".replace("-", "−")) for name, v in tau.items()
        ]

    def html(self) -> str:
        """A heat map that needs nothing beside it; all text in it is escaped."""
        return template("notebook.html.j2").render(**_style([self]), overview=None, groups=[("", [self])])

    _repr_html_ = html

    def __str__(self) -> str:
        return show(self.cell, self.row, self.names[1:] or ["attention"]).rstrip()

    __repr__ = __str__


class Overview:
    """A record in short: what it is, what its numbers say, and the texts of highest and lowest agreement."""

    def __init__(self, cells: Sequence[Cell]):
        self.cells = cells

    @cached_property
    def lead(self) -> list[str]:
        """The report's sentences on agreement; of several cells what they say side by side."""
        section = sections.known()["agreement"]
        if len(self.cells) == 1:
            return render.sentences(section, self.cells[0])
        tables = render.frames(section, self.cells)
        return list(section.across(tables.get(section.tables[0].name)))

    @cached_property
    def verdict(self) -> list[str]:
        """The verdict on one model of texts, a sentence each; [] for several models and for pairs."""
        if len(self.cells) != 1 or self.cells[0].of_sequences:
            return []
        found = verdict([self.cells[0].of_inputs])
        return [f"{found.headline}.", found.reason, found.advice, *found.remarks]

    @property
    def heads(self) -> list[str]:
        """What each cell is, in a line; of very many the first."""
        lines = [
            " · ".join(filter(None, (describe(cell.heading), counted(len(cell)), accuracy_in_words(cell))))
            for cell in self.cells[:MOST_CELLS]
        ]
        more = len(self.cells) - len(lines)
        return [*lines, *([f"and {more} more"] if more else [])]

    @property
    def remarks(self) -> list[str]:
        """What of the texts was cut or cannot say anything."""
        count = sum(map(len, self.cells))
        cut = sum(int(np.sum(cell.table.column("truncated").to_numpy())) for cell in self.cells)
        empty = sum(int((cell.lengths == 0).sum()) for cell in self.cells)
        said = ((cut, "cut at the length limit"), (empty, "without a token"))
        texts = [f"{number:,} of {counted(count)}: {what}" for number, what in said if number]
        return texts + [line for cell in self.cells[:MOST_CELLS] for line in undefined(cell.table)]

    @property
    def groups(self) -> list[tuple[str, list[Shown]]]:
        """(heading, texts): highest and lowest agreement of one cell."""
        if len(self.cells) != 1:
            return []
        (cell,) = self.cells
        best, worst, _ = choose(cell, EXAMPLES)
        main = main_measures(cell)
        heads = [f"{word} agreement with {measure_label(main[-1])}" for word in ("Highest", "Lowest")]
        heads = ["First texts", ""] if len(main) == 1 else heads
        both = zip(heads, (best, worst), strict=True)
        return [(head, [Shown(cell, row, main) for row in rows]) for head, rows in both if rows]

    def html(self) -> str:
        """The record in a notebook; all text in it is escaped."""
        groups = self.groups
        return template("notebook.html.j2").render(
            **_style([shown for _, texts in groups for shown in texts]), overview=self, groups=groups
        )

    def __str__(self) -> str:
        parts = [*self.heads, *self.verdict, *self.lead, *self.remarks]
        return "\n".join(map(printable, parts))


def _place(measure: str) -> int:
    """Which hue a measure has."""
    hues = [*HUES]
    return hues.index(measure) if measure in hues else len(hues)


def _style(texts: Sequence[Shown]) -> dict[str, object]:
    """The colours that these texts use, for light and dark ground."""
    hues = [*HUES.values(), OTHER_HUE, NEGATIVE_HUE]
    lines = [line for text in texts for line in text.lines]
    used = {line.place for line in lines} | ({len(hues) - 1} if any(line.signed for line in lines) else set())
    themes = {theme: [(place, shades(hues[place], theme)) for place in sorted(used)] for theme in PAPER}
    return {"themes": themes, "paper": PAPER, "negative": len(hues) - 1}
