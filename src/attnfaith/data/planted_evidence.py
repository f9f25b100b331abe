"""Generated texts whose label depends on planted words, or on counted digits, and on nothing else.

`generate`: a row is a run of neutral film-review sentences in which some adjectives are replaced by evidence. The neutral
words, the length, the places of the evidence and the distractors are drawn without the label, so they carry no information
about it; the label is a function of the planted words alone. So the gold rationale is exact, as no human annotation is.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import Field

from attnfaith.data.generators import Bounds, Number, Positive, checked
from attnfaith.data.registry import SPLITS
from attnfaith.support.errors import DatasetError


VERSION = 1
"""Raised whenever the same arguments give other rows."""

with open(Path(__file__).with_suffix(".yaml"), encoding="utf-8") as _file:
    _WORDS = yaml.safe_load(_file)
EVIDENCE = {name: words.split() for name, words in _WORDS["evidence"].items()}
"""Evidence words by the name of their class, value 0 and value 1."""
NEGATORS, AFFIRMERS, DISTRACTORS = (_WORDS[name].split() for name in ("negators", "affirmers", "distractors"))
_PATTERNS = [pattern.split() for pattern in _WORDS["patterns"]]
_SLOTS = {slot: words.split() for slot, words in _WORDS["slots"].items()}

VOCABULARY_SIZE = sum(map(len, _SLOTS.values()))

DIGITS = tuple("0123456789")
QUESTION = 2
"""Number of words at the beginning of a text of `count_digits` that are the question."""


@checked
def generate(
    n: Number,
    seed: Number,
    *,
    stream: Number = 0,
    length: Bounds = (10, 30),
    n_evidence: Positive = 1,
    redundancy: Positive = 1,
    needs_context: bool = False,
    vocabulary_size: Annotated[int, Field(ge=len(_SLOTS), le=VOCABULARY_SIZE)] = VOCABULARY_SIZE,
    distractors: Number = 0,
    evidence_removed: tuple[Literal["train", "validation", "test"], ...] = (),
) -> list[dict]:
    """n rows {"text": str, "label": int, "rationale": list of 0/1 per word between blanks}; 1 marks the redundancy *
    n_evidence evidence words and, with needs_context, the modifier before each.

    Args:
        length: least and greatest number of words, drawn uniformly.
        n_evidence: evidence items that decide the label together. Each has the value 0 or 1 and the label is their exclusive
            or: one item names the class, and of several any n_evidence - 1 say nothing.
        redundancy: groups of such items in a text; all decide alike, each is sufficient alone.
        needs_context: an item is two neighbouring words, a modifier and a polarity word ("hardly superb"); a negator
            turns the value round. Both are independent of the label, so no single word decides.
        vocabulary_size: number of neutral words used.
        distractors: words that sound like a judgement and are drawn independently of the label.
        evidence_removed: splits whose evidence is left out: neutral words stand in its place. Rows keep label, length and
            every other word and mark nothing, so a model trained on them cannot use the evidence of the others.

    Raises DatasetError for a length without room for the planted words.
    """
    slots = _vocabulary(vocabulary_size)
    items = n_evidence * redundancy
    planted = items * (2 if needs_context else 1) + distractors
    low, high = length
    if low < planted:
        raise DatasetError(f"length={length} must be at least {planted} words, the number planted")
    removed = stream in map(SPLITS.index, evidence_removed)
    evidence = list(EVIDENCE.values())
    rows = []
    for index in range(n):
        # The neutral text and the places to plant have a stream of their own, which never sees the label.
        neutral = np.random.default_rng([seed, stream, index, 0])
        choice = np.random.default_rng([seed, stream, index, 1])
        substitute = np.random.default_rng([seed, stream, index, 2])
        total = int(neutral.integers(low, high, endpoint=True))
        tokens, adjective = _filler(neutral, total - (items if needs_context else 0), slots)
        order = neutral.permutation(len(tokens))
        places = order[np.argsort(~adjective[order], kind="stable")][: items + distractors]
        places = places[neutral.permutation(len(places))]

        label = int(choice.random() >= 0.5)
        replacement = {int(p): ([DISTRACTORS[neutral.integers(len(DISTRACTORS))]], 0) for p in places[items:]}
        for group in places[:items].reshape(redundancy, n_evidence):
            values = choice.integers(2, size=n_evidence)
            values[-1] = (label - values[:-1].sum()) % 2
            for place, value in zip(group, values, strict=True):
                turn = int(choice.integers(2)) if needs_context else 0
                options = evidence[(value + turn) % 2]
                item = [options[choice.integers(len(options))]]
                if needs_context:
                    modifiers = NEGATORS if turn else AFFIRMERS
                    item.insert(0, modifiers[choice.integers(len(modifiers))])
                if removed:  # an item of two words leaves a gap beside the adjective that it would replace
                    gap = [slots["A"][substitute.integers(len(slots["A"]))]] if needs_context else []
                    item = [*gap, tokens[place]]
                replacement[int(place)] = (item, int(not removed))

        text, rationale = [], []
        for place, token in enumerate(tokens):
            words, gold = replacement.get(place, ([token], 0))
            text += words
            rationale += [gold] * len(words)
        rows.append({"text": " ".join(text), "label": label, "rationale": rationale})
    return rows


def _vocabulary(size: int) -> dict[str, list[str]]:
    """The slot words, cut to `size` in all, in proportion to the size of each list and at least one each."""
    counts = dict.fromkeys(_SLOTS, 1)
    for _ in range(size - len(_SLOTS)):
        counts[min(_SLOTS, key=lambda slot: (counts[slot] / len(_SLOTS[slot]), slot))] += 1
    return {slot: words[: counts[slot]] for slot, words in _SLOTS.items()}


def _filler(rng, length: int, slots: dict) -> tuple:
    """Exactly `length` words of neutral sentences, and which of them are adjectives."""
    tokens, adjective = [], []
    while len(tokens) < length:
        for part in _PATTERNS[rng.integers(len(_PATTERNS))]:
            options = slots.get(part, (part,))
            tokens.append(options[rng.integers(len(options))])
            adjective.append(part == "A")
    return tokens[:length], np.array(adjective[:length], bool)


@checked
def count_digits(n: Number, seed: Number, *, stream: Number = 0, length: Bounds = (6, 14)) -> list[dict]:
    """n rows as of `generate`, with the question: does the first of two digits occur more often than the second?

    A text is the two digits of the question, then a run of digits. The label is 1 ("more") where the first digit occurs more
    often in the run than the second, else 0. The evidence is exact: all places of the two digits, including the question.
    How many places hold one of the two, which places, which digits the question names and all other digits are drawn
    without the label: it depends only on which of the two digits stands at each of these places.

    length: least and greatest number of words, including the question, drawn uniformly. Raises DatasetError for less than 3.

    Source: the toy task of De Cao et al. 2020 (DiffMask), section 4. There the question has symbols of its own, and labels
    are as unequal as chance makes them.
    """
    low, high = length
    if low <= QUESTION:
        raise DatasetError(f"length={length} must be at least {QUESTION + 1} words, the two of the question and one digit")

    rows = []
    for index in range(n):
        # the question, the places and all other digits have a stream of their own, which never sees the label
        neutral = np.random.default_rng([seed, stream, index, 0])
        choice = np.random.default_rng([seed, stream, index, 1])
        question, rest = np.split(neutral.permutation(len(DIGITS)), [QUESTION])
        size = int(neutral.integers(low, high, endpoint=True)) - QUESTION
        run = rest[neutral.integers(len(rest), size=size)]
        count = max(1, int(neutral.binomial(size, 0.5)))
        places = neutral.permutation(size)[:count]

        label = int(choice.random() >= 0.5)
        first = int(choice.binomial(count, 0.5))
        while (2 * first > count) != bool(label):
            first = int(choice.binomial(count, 0.5))
        run[places] = choice.permutation(np.repeat(question, [first, count - first]))
        words = [DIGITS[digit] for digit in (*question, *run)]
        marks = [int(digit in question) for digit in (*question, *run)]
        rows.append({"text": " ".join(words), "label": label, "rationale": marks})
    return rows
