"""Generated texts that ask: does the first of two digits come more often than the second?

A text is the two digits that are asked about, then a run of digits. The label is 1 ("more") where the first of the two comes
more often in that run than the second, else 0. The evidence is known exactly: all places of the two digits, those of the
question among them. How many places hold one of the two, which places, which digits are asked about and all other digits are
drawn without the label: only which of the two stands at each of these places tells it.

A row depends on (seed, stream, its index) and the knobs only: more rows never change the earlier ones.

Source: the toy task of De Cao et al. 2020 (DiffMask), section 4. There the question has symbols of its own, and labels are
as unequal as chance makes them.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from attnfaith.data.generator_knobs import Bounds, Number, Removed, class_shares, is_removed, knobs
from attnfaith.errors import DatasetError


VERSION = 1
"""Raised whenever the same arguments give other rows."""

DIGITS = tuple("0123456789")
ASKED = 2
"""How many words at the beginning of a text ask."""


def decide(words: Sequence[str]) -> int:
    """The label of a text, or of its evidence alone: 1 where its first word comes more often behind the first two than its
    second, else 0.

    Raises DatasetError where the first two words are not two different digits.
    """
    if len(words) < ASKED or words[0] == words[1] or not {*words[:ASKED]} <= {*DIGITS}:
        raise DatasetError(f"{list(words[:ASKED])} does not ask about two different digits.")
    run = list(words[ASKED:])
    return int(run.count(words[0]) > run.count(words[1]))


@knobs
def generate(
    n: Number,
    seed: Number,
    *,
    stream: Number = 0,
    length: Bounds = (6, 14),
    asked_share: Annotated[float, Field(gt=0, le=1)] = 0.5,
    vocabulary_size: Annotated[int, Field(ge=3, le=10)] = len(DIGITS),
    class_balance: Sequence[float] | None = None,
    evidence_removed: Removed = (),
) -> list[dict]:
    """n rows {"text": str, "label": int, "rationale": list of 0/1 per word between blanks}; 1 marks the two words that ask
    and every place of the run with either digit.

    Args:
        n: number of rows.
        seed, stream: the random stream; `stream` tells splits of one seed apart.
        length: least and greatest number of words, the two that ask included, drawn uniformly.
        asked_share: expected share of the run that holds one of the two digits; one place at least does.
        vocabulary_size: number of different digits.
        class_balance: probability of each label; None is uniform.
        evidence_removed: splits in whose runs other digits stand in place of the two. Their rows keep label, length,
            question and every other digit, and mark nothing.

    Raises DatasetError for a knob out of range.
    """
    import numpy as np

    threshold = class_shares(class_balance, 2)[0]
    low, high = length
    if low <= ASKED:
        raise DatasetError(f"length={length} must be at least {ASKED + 1} words, the two that ask and one digit")
    removed = is_removed(evidence_removed, stream)

    rows = []
    for index in range(n):
        # the question, the places and all other digits have a stream of their own, which never sees the label
        neutral = np.random.default_rng([seed, stream, index, 0])
        choice = np.random.default_rng([seed, stream, index, 1])
        asked, others = np.split(neutral.permutation(vocabulary_size), [ASKED])
        size = int(neutral.integers(low, high, endpoint=True)) - ASKED
        run = others[neutral.integers(len(others), size=size)]
        held = max(1, int(neutral.binomial(size, asked_share)))
        places = neutral.permutation(size)[:held]

        label = int(choice.random() >= threshold)
        first = _first(choice, held, label)
        if not removed:
            run[places] = choice.permutation(np.repeat(asked, [first, held - first]))
        words = [DIGITS[digit] for digit in (*asked, *run)]
        marks = [0 if removed else int(digit in asked) for digit in (*asked, *run)]
        rows.append({"text": " ".join(words), "label": label, "rationale": marks})
    return rows


def _first(random, held: int, label: int) -> int:
    """How many of `held` places have the first digit: of tosses of a fair coin, one that makes the label true."""
    while True:
        first = int(random.binomial(held, 0.5))
        if (2 * first > held) == bool(label):
            return first
