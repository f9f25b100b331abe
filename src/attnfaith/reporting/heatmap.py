"""Texts as heat maps: which texts are shown, and the scores of their tokens as shades.

A shade is the share of the largest absolute value of its line. Pages mix it by CSS, at most 60 % of the hue over the
page's colour, so that every word on a shade can be read (WCAG >= 4.5).
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from attnfaith.reporting.cells import Cell, main_measures, name_class, readable
from attnfaith.reporting.charts import ATTENTION, GRADIENT, LEAVE_ONE_OUT, PALETTE
from attnfaith.reporting.tables import signed


MOST_TOKENS, MOST_SENTENCES = 400, 20
"""Tokens of a text that are shown, or sentences."""
SHORTEST, LONGEST = 8, 60
"""Tokens of the one text that is shown first: on two or three a single swap takes tau from one end to the other."""
HUES = {"attention": ATTENTION, "gradient": GRADIENT, "leave_one_out": LEAVE_ONE_OUT}
COLOURS = (*HUES.values(), PALETTE[3], PALETTE[6])
"""Hues of the measures above, of all other measures, and of evidence against the class."""
NEGATIVE = len(COLOURS) - 1
SHADES = {"colours": COLOURS, "mix": 0.6}
"""The fields of a template that shades words. mix: share of the hue in the darkest shade."""


class Score(NamedTuple):
    """One shaded word: its share of the line's largest absolute value, -1..1, and the value in words."""

    share: float
    words: str

    @property
    def depth(self) -> int:
        """The size of the share in percent."""
        return round(100 * abs(self.share))

    def hue(self, own: int) -> int:
        """The place in COLOURS of its hue. own: that of its measure."""
        return NEGATIVE if self.share < 0 else own


def hue_of(measure: str) -> int:
    """The place in COLOURS of a measure's hue."""
    return [*HUES].index(measure) if measure in HUES else len(HUES)


def visible(token: str) -> str:
    """A token with nothing unseen in it: spaces, control characters and text-direction marks are written out.

    An unseen direction mark would turn round the text beside it, and an empty word would look like a missing token.
    """
    if not token:
        return "(empty)"
    if token.isspace():
        return "␣" * len(token)
    joiners = "\u200c\u200d"  # parts of words and emoji in many scripts
    written = []
    for character in token:
        hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp") and character not in joiners
        symbol = chr(0x2400 + ord(character)) if ord(character) < 0x20 else f"[U+{ord(character):04X}]"
        written.append(symbol if hidden else character)
    return "".join(written)


def direction_of(tokens: Iterable[str]) -> str:
    """ "rtl" where most letters are of scripts that run from right to left, such as Arabic and Hebrew; else "ltr"."""
    kinds = Counter(unicodedata.bidirectional(character) for token in tokens for character in token)
    return "rtl" if kinds["R"] + kinds["AL"] > kinds["L"] else "ltr"


def class_label(cell: Cell, number: int) -> str:
    """A class for reading, such as "1 positive", with nothing unseen in it."""
    return visible(name_class(str(number), cell.class_names))


def heat_measures(cell: Cell) -> tuple[str, ...]:
    """Lines of a heat map: the main measures, then every other one of inputs, in the record's order."""
    return tuple(dict.fromkeys((*main_measures(cell), *cell.inputs)))


def middle_text(cell: Cell) -> tuple[int, str]:
    """The row of one text that is no extreme, and why it is this one: of those of SHORTEST to LONGEST tokens the one whose
    tau is nearest to the median of all; of equals, and without a tau, the first by instance id.
    """
    fitting = (cell.lengths >= SHORTEST) & (cell.lengths <= LONGEST)
    rows = np.flatnonzero(fitting if fitting.any() else cell.lengths == cell.lengths.max())
    *_, measure = main_measures(cell)
    tau = np.full(len(cell), np.nan) if measure == "attention" else cell.tau("attention", measure)
    defined = rows[~np.isnan(tau[rows])]
    if not len(defined):
        return min(rows.tolist(), key=lambda row: cell.instance_ids[row]), "The first text by instance id."
    median = float(np.nanmedian(tau))
    distances = np.abs(tau - median).round(12)
    row = min(defined.tolist(), key=lambda row: (distances[row], cell.instance_ids[row]))
    label = readable(measure)
    return row, f"No extreme: its τ of attention and {label}, {signed(tau[row])}, is next to the median, {signed(median)}."


def example(cell: Cell, row: int, measures: Sequence[str], most: int = MOST_TOKENS) -> SimpleNamespace:
    """One text as it is shown. most: tokens.

    predicted, label: classes in words, label "" where unknown; wrong: whether they differ. probability: of the predicted
    class. lines: of each measure its label, the place of its hue in COLOURS, and the scores. tokens: as many as are shown,
    of `length`. gold: whether each is gold evidence; [] where that is not known. query: the words of the second text, None
    where the cell has none. unit: "token" or "sentence". direction: "ltr" or "rtl".
    """
    texts, label, predicted = cell.table.column("tokens")[row].as_py(), cell.labels[row], int(cell.predicted[row])
    part = slice(MOST_SENTENCES if cell.nested else most)
    scores = {name: scores_of(cell.scores(name)[row], readable(name))[part] for name in measures}
    return SimpleNamespace(
        instance_id=visible(cell.instance_ids[row]),
        predicted=class_label(cell, predicted),
        probability=float(cell.probs[row, predicted]),
        label="" if np.isnan(label) else class_label(cell, int(label)),
        wrong=not np.isnan(label) and label != predicted,
        lines=[(readable(name), hue_of(name), values) for name, values in scores.items()],
        tokens=list(map(visible, texts[part])),
        gold=(cell.rows("rationale")[row][part] > 0).tolist() if cell.has("rationale") else [],
        length=len(texts),
        truncated=bool(cell.table.column("truncated")[row].as_py()),
        query=None if cell.queries is None else list(map(visible, cell.queries[row])),
        unit="sentence" if cell.nested else "token",
        direction=direction_of(texts),
    )


def scores_of(values: np.ndarray, name: str) -> list[Score]:
    """Each value against the largest finite absolute value of its line; all at 0 % where the line is zero. What is not
    finite has no share: it is undefined or infinite.
    """
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    scores = []
    for value in values:
        share = float(value / largest) if np.isfinite(value) and largest > 0 else 0.0
        words = f"{value:.4g}, {round(100 * share):d}".replace(", -", ", −") + " % of the largest"
        if not np.isfinite(value):
            words = "undefined" if np.isnan(value) else "infinite"
        scores.append(Score(share, f"{name}: {words}"))
    return scores
