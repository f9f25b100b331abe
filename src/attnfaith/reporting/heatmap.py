"""Texts as heat maps: which texts are shown, and the scores of their tokens as one of eleven shades.

A shade is a share of the largest absolute value of a line, in tenths. Colours are computed for a light and a dark page, each
with the text colour of the larger contrast, so that every word on a shade can be read (WCAG >= 4.5).
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.cells import PREFIX, Cell, main_measures, measure_label, name_class, reference_measure
from attnfaith.reporting.html import PAPER
from attnfaith.reporting.style import ATTENTION, GRADIENT, LEAVE_ONE_OUT, PALETTE


SHADES = 11
MOST_TOKENS = 400
"""Tokens of a text that are shown; of sentences, the words in them."""
SHORTEST_EXAMPLE = 8
"""Tokens: on two or three a single swap takes tau from one end to the other, so extremes would all be such texts."""
HUES = {"attention": ATTENTION, "gradient": GRADIENT, "leave_one_out": LEAVE_ONE_OUT}
COLOURS = (*HUES.values(), PALETTE[3], PALETTE[6])
"""Hues of the measures above, of all other measures, and of evidence against the class."""
NEGATIVE = len(COLOURS) - 1
INK = ("#000000", "#ffffff")


class Score(NamedTuple):
    """One shaded word: signed `percent` of the line's largest absolute value, its shade 0..10, the value in words."""

    percent: str
    shade: int
    value: str
    negative: bool = False

    def css(self, hue: int) -> str:
        """The name of its colour on a page."""
        return f"m{NEGATIVE if self.negative else hue}s{self.shade}"


class Token(NamedTuple):
    """scores: of each line. words: where the token is a sentence, its words with their attention within it."""

    text: str
    scores: tuple[Score, ...]
    gold: bool = False
    words: tuple[tuple[str, Score], ...] = ()


@dataclass(frozen=True)
class Example:
    """One text as shown.

    predicted, label: classes, label None where unknown. probability: of the predicted class. lines: (label, hue) of each
    line. length: of the whole text, in tokens. query: the words of the second text, None where the cell has none.
    sentences: whether its tokens are sentences. has_rationale: whether gold evidence is known. direction: "ltr" or "rtl".
    """

    instance_id: str
    predicted: int
    probability: float
    label: int | None
    lines: tuple[tuple[str, int], ...]
    tokens: tuple[Token, ...]
    length: int
    truncated: bool
    query: tuple[str, ...] | None
    sentences: bool
    has_rationale: bool
    direction: str


def _channels(colour: str) -> np.ndarray:
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)], dtype=np.float64)


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two "#rrggbb" colours, 1..21; 4.5 is enough for small text."""
    shares = np.stack([_channels(first), _channels(second)]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return float((high + 0.05) / (low + 0.05))


def shades(hue: str, theme: str) -> list[tuple[str, str]]:
    """(background, text colour) of each shade, from the page's colour to the hue; lightened for a dark page."""
    start, end = _channels(PAPER[theme]), _channels(hue)
    if theme == "dark":
        end = end + (255 - end) * 0.35
    colours = []
    for step in range(SHADES):
        mixed = np.rint(start + (end - start) * step / (SHADES - 1)).astype(int)
        background = "#" + "".join(f"{value:02x}" for value in mixed)
        colours.append((background, max(INK, key=lambda ink: contrast(ink, background))))
    return colours


def palette(hues: Iterable[int] = range(len(COLOURS))) -> dict[str, object]:
    """The field of a template that shades words: {theme: [(hue, shades)]} of these hues."""
    hues = list(hues)
    return {"themes": {theme: [(hue, shades(COLOURS[hue], theme)) for hue in hues] for theme in PAPER}}


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
    return "".join(map(_visible, token))


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    joiners = "\u200c\u200d"  # parts of words and emoji in many scripts
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp") and character not in joiners:
        return f"[U+{code:04X}]"
    return character


def direction_of(tokens: Iterable[str]) -> str:
    """ "rtl" where most letters are of scripts that run from right to left, such as Arabic and Hebrew; else "ltr"."""
    kinds = Counter(unicodedata.bidirectional(character) for token in tokens for character in token)
    return "rtl" if kinds["R"] + kinds["AL"] > kinds["L"] else "ltr"


def class_label(cell: Cell, number: int) -> str:
    """A class for reading, such as "1 positive", with nothing unseen in it."""
    return visible(name_class(str(number), cell.class_names))


def explained_class(cell: Cell, row: int, measure: str) -> str:
    """The class that the scores of a measure explain, in words such as "of class 1 positive"; "" without a target."""
    producer = cell.settings.get("columns", {}).get(PREFIX + measure, "")
    target = cell.settings.get("options", {}).get(producer, {}).get("target")
    if target is None:
        return ""
    if isinstance(target, Mapping):
        return f"of class {class_label(cell, target['of'])} against class {class_label(cell, target['against'])}"
    if target not in ("gold", "predicted"):
        return f"of class {class_label(cell, target)}"
    number = cell.labels[row] if target == "gold" else cell.predicted[row]
    return "of no class" if np.isnan(number) else f"of class {class_label(cell, int(number))} ({target})"


def heat_measures(cell: Cell) -> tuple[str, ...]:
    """Lines of a heat map: the main measures, then every other one of inputs, in the record's order."""
    first = main_measures(cell)
    return (*first, *(name for name in cell.measures if name not in first and not name.endswith("_hidden")))


def extreme_texts(cell: Cell, count: int) -> tuple[list[int], list[int]]:
    """Rows of the `count` texts of highest and of lowest agreement.

    Ordered by tau of attention with leave-one-out (else gradient, else the first measure), then by instance id. Texts
    below SHORTEST_EXAMPLE tokens are passed over where enough longer ones are left; a text is never in both lists.
    Texts without a tau are in neither. Without a measure the first texts by instance id stand in the first list.
    """
    measure = reference_measure(cell)
    ids = np.array(cell.instance_ids, dtype=object)
    if measure is None:
        return sorted(range(len(cell)), key=lambda row: ids[row])[:count], []
    tau = cell.tau("attention", measure)
    candidates = np.flatnonzero(~np.isnan(tau))
    long_enough = candidates[cell.lengths[candidates] >= SHORTEST_EXAMPLE]
    if len(long_enough) >= 2 * count:
        candidates = long_enough
    best = sorted(candidates, key=lambda row: (-tau[row], ids[row]))[: min(count, (len(candidates) + 1) // 2)]
    worst = sorted(np.setdiff1d(candidates, best), key=lambda row: (tau[row], ids[row]))[:count]
    return [int(row) for row in best], [int(row) for row in worst]


def query_of(cell: Cell, row: int) -> tuple[str, ...] | None:
    """The words of an instance's second text, such as a question; None in a cell of single texts."""
    return None if cell.queries is None else tuple(map(visible, cell.queries[row]))


def signed(value: float) -> str:
    """ "−0.12"; "undefined" of NaN."""
    return "undefined" if np.isnan(value) else f"{value:.2f}".replace("-", "−")


def example(cell: Cell, row: int, measures: Sequence[str] | None = None, most: int | None = None) -> Example:
    """One instance as it is shown. measures: None for `heat_measures`. most: tokens, None for MOST_TOKENS; of sentences as
    many as hold no more words, and at least one.
    """
    measures = heat_measures(cell) if measures is None else measures
    part, most = cell.table.slice(row, 1), MOST_TOKENS if most is None else most
    texts = part.column("tokens")[0].as_py()
    scores = [scores_of(cell.scores(name)[row], measure_label(name)) for name in measures]
    has_rationale = "rationale" in cell.table.column_names
    gold = records.rows(part, "rationale")[0] > 0 if has_rationale else np.zeros(len(texts), bool)
    words = [()] * len(texts)
    if cell.words:
        words = _words(cell, row)
        ends = np.cumsum([len(sentence) for sentence in words])
        most = max(1, int(np.searchsorted(ends, most, side="right")))
    columns = zip(map(visible, texts), zip(*scores, strict=True), map(bool, gold), words, strict=True)
    predicted, label = int(cell.predicted[row]), cell.labels[row]
    return Example(
        instance_id=visible(cell.instance_ids[row]),
        predicted=predicted,
        probability=float(cell.probs[row, predicted]),
        label=None if np.isnan(label) else int(label),
        lines=tuple((measure_label(name), hue_of(name)) for name in measures),
        tokens=tuple(Token(*column) for column in columns)[:most],
        length=len(texts),
        truncated=bool(part.column("truncated")[0].as_py()),
        query=query_of(cell, row),
        sentences=cell.words is not None,
        has_rationale=has_rationale,
        direction=direction_of(texts),
    )


def _words(cell: Cell, row: int) -> list[tuple[tuple[str, Score], ...]]:
    """The words of each sentence with their attention, in percent of the sentence's largest."""
    weights = records.rows(cell.table.slice(row, 1), "word_attention")[0]
    return [
        tuple(zip(map(visible, words), scores_of(values, "attention within the sentence"), strict=True))
        for words, values in zip(cell.words[row], weights, strict=True)
    ]


def scores_of(values: np.ndarray, name: str) -> list[Score]:
    """Each value against the largest finite absolute value of its line; all at 0 % where the line is zero. What is not
    finite has no share: it is undefined or infinite.
    """
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    scores = []
    for value in values:
        if not np.isfinite(value):
            scores.append(Score("–", 0, f"{name}: {'undefined' if np.isnan(value) else 'infinite'}"))
            continue
        share = float(value / largest) if largest > 0 else 0.0
        percent = f"{round(100 * share):d}".replace("-", "−")
        words = f"{name}: {value:.4g}, {percent} % of the largest"
        scores.append(Score(percent, round(abs(share) * (SHADES - 1)), words, negative=share < 0))
    return scores
