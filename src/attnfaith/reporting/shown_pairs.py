"""One pair of sentences in a terminal: what each target word reads of the source, the links read off it, and gold."""

from collections.abc import Sequence

import pandas as pd

from attnfaith.errors import AttnfaithError, counted, excerpt, nearest
from attnfaith.escaping import html, printable
from attnfaith.reporting.cells import Cell, describe
from attnfaith.reporting.pairs import Pair, Target, pair, reading_label, shown_reading
from attnfaith.reporting.readings import Reading, columns, has_gold, reading_of
from attnfaith.reporting.tables import as_text, short_number


HEAVIEST = 3  # source words that are named of each target word


class ShownPair:
    """One pair of sentences of a record, as text where it is printed.

    measures: those to show; None the one whose links had the lowest error rate where they were chosen. Raises AttnfaithError
    for one that the cell does not hold.
    """

    def __init__(self, cell: Cell, row: int, measures: Sequence[str] | None = None):
        self.cell, self.row, self.readings = cell, row, readings_of(cell, measures or ())

    def __str__(self) -> str:
        return show_pair(self.cell, self.row, self.readings).rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html(str(self))}</pre>"


def readings_of(cell: Cell, measures: Sequence[str]) -> list[Reading]:
    """How each measure is read, by `reading_of`; where none is named, what `shown_reading` takes."""
    known = columns(cell)
    for name in measures:
        if name not in known:
            raise AttnfaithError(f"the record holds no measure {excerpt(name)}{nearest(name, known)}")
    one = shown_reading(cell)
    return [reading_of(cell, name) for name in measures] or ([] if one is None else [one])


def show_pair(cell: Cell, row: int, shown: Sequence[Reading]) -> str:
    """Return one pair as lines of text: the HEAVIEST source words of each target word, with their weights."""
    source, target = (" ".join(cell.table.column(name)[row].as_py()) for name in ("tokens", "target_tokens"))
    lines = [f"{cell.instance_ids[row]}  (pair {row} of {len(cell):,})", describe(cell.heading)]
    lines += [f"source: {source}", f"target: {target}"]
    if cell.table.column("truncated")[row].as_py():
        lines.append("A sentence was longer than the model reads, and was cut.")
    for reading in shown:
        made = pair(cell, row, reading)
        lines += ["", reading_label(reading), *([f"error rate of this pair: {made.error}"] if made.error else [])]
        lines += _table(made, has_gold(cell)).split("\n")
        if len(made.targets) < made.sizes[1] or len(made.source) < made.sizes[0]:
            lines.append(f"The first {len(made.source)} source and {counted(len(made.targets), 'target word')}.")
    lines += (
        ["", "*: read as a link. p: probability of the target word. (…): a possible link."]
        if shown
        else ["Nothing was measured that links their words."]
    )
    return "\n".join(map(printable, lines)) + "\n"


def _table(made: Pair, gold: bool) -> str:
    columns = {
        "p": [target.probability for target in made.targets],
        "reads most of": [_heaviest(made, target) for target in made.targets],
    }
    if gold:
        columns["gold"] = [_linked(made, target) for target in made.targets]
    return as_text(pd.DataFrame(columns, index=[target.word for target in made.targets]))


def _heaviest(made: Pair, target: Target) -> str:
    """The source words that weigh most, and all that are read as links."""
    order = sorted(range(len(made.source)), key=lambda place: -target.marks[place].value)
    kept = [place for number, place in enumerate(order) if number < HEAVIEST or target.marks[place].read]
    return " · ".join(
        f"{'*' if target.marks[place].read else ''}{made.source[place]} {short_number(target.marks[place].value)}"
        for place in kept
    )


def _linked(made: Pair, target: Target) -> str:
    """The source words that are linked in gold."""
    words = [
        f"({word})" if mark.link == "possible" else word
        for word, mark in zip(made.source, target.marks, strict=True)
        if mark.link
    ]
    return " ".join(words) or "–"
