"""One text in a terminal: its tokens, and below each what every measure says of it, in colour where colours are seen."""

import difflib
import os
from collections.abc import Sequence

from attnfaith.errors import AttnfaithError, cut, excerpt
from attnfaith.reporting.cells import Cell, describe, name_class
from attnfaith.reporting.explained import explained
from attnfaith.reporting.page.heatmap import (
    HUES,
    OTHER_HUE,
    Example,
    Score,
    example,
    shades,
    shown_measures,
)
from attnfaith.terminal import fit, pad, width


BOLD, FAINT, END = "\x1b[1m", "\x1b[2m", "\x1b[0m"
LONGEST_TOKEN = 24  # columns
NEGATIVE = "#e5383b"  # red: on a dark ground the grey of the page would look like a small score
STEPS = (0, 95, 135, 175, 215, 255)
CODES = {
    (r, g, b): 16 + 36 * i + 6 * j + k for i, r in enumerate(STEPS) for j, g in enumerate(STEPS) for k, b in enumerate(STEPS)
}
CODES |= {(8 + 10 * step,) * 3: 232 + step for step in range(24)}
"""The 256 colours that every terminal knows but for its own sixteen: (red, green, blue): number."""


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
            near = difflib.get_close_matches(name, cell.measures, 1)
            hint = f"did you mean {near[0]}?" if near else f"it holds {', '.join(cell.measures) or 'none'}"
            raise AttnfaithError(f"the record holds no measure {excerpt(name)}; {hint}")
    return list(dict.fromkeys(["attention", *names])) if names else list(shown_measures(cell))


def show(cell: Cell, row: int, measures: Sequence[str] = (), *, columns: int = 100, colour: bool = False) -> str:
    """One text of a cell for reading, at most so many columns wide.

    Each score is in percent of the largest absolute one of its measure in the text; a negative one, evidence against the
    class, has a sign and, in colour, another hue.
    """
    names = measures_of(cell, measures)
    text = example(cell, row, names)
    hues = [HUES.get(name, OTHER_HUE) for name in names]
    lines = [_bold(f"{text.instance_id}  (text {row} of {len(cell):,})", colour), fit(describe(cell.heading), columns)]
    lines += _classes(cell, text)
    own = {label: explained(cell, row, name) for label, name in zip(text.measures, names, strict=True)}
    lines += [f"{label}: {said}" for label, said in own.items() if said and not said.endswith("(predicted)")]
    if text.query is not None:
        lines += ["second text, which nothing attends to: " + fit(" ".join(text.query), columns - 39)]
    if text.taus:
        lines.append("τ " + ", ".join(f"{pair} {value}" for pair, value in text.taus))
    if text.truncated:
        lines.append("The text was longer than the model reads, and was cut.")
    lines += ["", *(_sentences if text.of_sentences else _tokens)(text, hues, columns, colour), ""]
    if len(text.tokens) < text.length:
        unit = "sentences" if text.of_sentences else "tokens"
        lines.append(f"The first {len(text.tokens)} of {text.length} {unit}.")
    said = "Numbers: percent of the largest of each measure in this text"
    if any(score.negative for token in text.tokens for score in token.scores):
        said += f"; below 0: against the class{', in red' if colour else ''}"
    if any(token.gold for token in text.tokens):
        said += "; *: gold evidence"
    return "\n".join([*lines, f"{said}."]) + "\n"


def _classes(cell: Cell, text: Example) -> list[str]:
    def named(number: int | None) -> str:
        return "unknown" if number is None else name_class(str(number), cell.class_names)

    right = "" if text.label is None else ", right" if text.label == text.predicted else ", wrong"
    said = f"predicted: {named(text.predicted)} ({text.probability:.2f}){right}   label: {named(text.label)}"
    return [said, f"measures explain: {named(text.predicted)}, the predicted class"]


def _bold(text: str, colour: bool) -> str:
    return f"{BOLD}{text}{END}" if colour else text


def _token_text(token) -> str:
    return ("*" if token.gold else "") + token.text


def _tokens(text: Example, hues: Sequence[str], columns: int, colour: bool) -> list[str]:
    """Tokens in lines, and below each line a line for every measure."""
    if not text.tokens:
        return ["(no token)"]
    side = max(map(width, text.measures))
    lines, block, used = [], [], 0
    room = max(12, columns - side - 2)
    for token in text.tokens:
        shown = fit(_token_text(token), min(LONGEST_TOKEN, room))
        size = max(width(shown), *(width(score.percent) for score in token.scores))
        if block and used + size + 1 > room:
            lines += [*_block(block, text.measures, hues, side, colour), ""]
            block, used = [], 0
        block.append((shown, size, token.scores))
        used += size + 1
    return lines + _block(block, text.measures, hues, side, colour)


def _block(block: Sequence[tuple], measures: Sequence[str], hues: Sequence[str], side: int, colour: bool) -> list[str]:
    head = " ".join(_bold(pad(shown, size), colour) for shown, size, _ in block)
    made = [f"{' ' * side}  {head}".rstrip()]
    for place, (name, hue) in enumerate(zip(measures, hues, strict=True)):
        cells = " ".join(_shaded(pad(scores[place].percent, size), scores[place], hue, colour) for _, size, scores in block)
        made.append(f"{pad(name, side)}  {cells}".rstrip())
    return made


def _sentences(text: Example, hues: Sequence[str], columns: int, colour: bool) -> list[str]:
    """A line for each sentence, the scores of every measure before it."""
    sizes = [max(5, width(name)) for name in text.measures]
    lines = ["  ".join(pad(name, size, right=True) for name, size in zip(text.measures, sizes, strict=True))]
    for token in text.tokens:
        scores = zip(token.scores, sizes, hues, strict=True)
        cells = "  ".join(_shaded(pad(score.percent, size, right=True), score, hue, colour) for score, size, hue in scores)
        lines.append(f"{cells}  {fit(_token_text(token), max(20, columns - sum(sizes) - 2 * len(sizes)))}")
    return lines


def _shaded(text: str, score: Score, hue: str, colour: bool) -> str:
    if not colour or not score.shade:
        return text
    theme = "light" if os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"
    back, front = shades(NEGATIVE if score.negative else hue, theme)[score.shade]
    return f"\x1b[48;{_code(back)};38;{_code(front)}m{text}{END}"


def _code(colour: str) -> str:
    """A colour "#rrggbb" as the terminal takes it: as it is where it says that it can, else the nearest of 256."""
    channels = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return f"2;{channels[0]};{channels[1]};{channels[2]}"
    near = min(CODES, key=lambda known: sum((one - other) ** 2 for one, other in zip(known, channels, strict=True)))
    return f"5;{CODES[near]}"
