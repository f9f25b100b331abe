"""Generated texts that ask: does the first of two digits come more often than the second?

A text is the two digits that are asked about, then a run of digits. The label is 1 ("more") where the first of the two comes
more often in that run than the second, else 0. The evidence is known exactly: all places of the two digits, those of the
question among them. How many places hold one of the two, which places, which digits are asked about and all other digits are
drawn without the label: only which of the two stands at each of these places tells it.

A row depends on (seed, stream, its index) and the knobs only: more rows never change the earlier ones.

Source: the toy task of De Cao et al. 2020 (DiffMask), section 4. There the question has symbols of its own, and labels are
as unequal as chance makes them.
"""

from attnfaith.data.generator_knobs import Bounds, Number, knobs
from attnfaith.support.errors import DatasetError


VERSION = 1
"""Raised whenever the same arguments give other rows."""

DIGITS = tuple("0123456789")
ASKED = 2
"""How many words at the beginning of a text ask."""


@knobs
def generate(
    n: Number,
    seed: Number,
    *,
    stream: Number = 0,
    length: Bounds = (6, 14),
) -> list[dict]:
    """n rows {"text": str, "label": int, "rationale": list of 0/1 per word between blanks}; 1 marks the two words that ask
    and every place of the run with either digit.

    Args:
        n: number of rows.
        seed, stream: the random stream; `stream` tells splits of one seed apart.
        length: least and greatest number of words, the two that ask included, drawn uniformly.

    Raises DatasetError for a knob out of range.
    """
    import numpy as np

    low, high = length
    if low <= ASKED:
        raise DatasetError(f"length={length} must be at least {ASKED + 1} words, the two that ask and one digit")

    rows = []
    for index in range(n):
        # the question, the places and all other digits have a stream of their own, which never sees the label
        neutral = np.random.default_rng([seed, stream, index, 0])
        choice = np.random.default_rng([seed, stream, index, 1])
        asked, others = np.split(neutral.permutation(len(DIGITS)), [ASKED])
        size = int(neutral.integers(low, high, endpoint=True)) - ASKED
        run = others[neutral.integers(len(others), size=size)]
        held = max(1, int(neutral.binomial(size, 0.5)))
        places = neutral.permutation(size)[:held]

        label = int(choice.random() >= 0.5)
        first = _first(choice, held, label)
        run[places] = choice.permutation(np.repeat(asked, [first, held - first]))
        words = [DIGITS[digit] for digit in (*asked, *run)]
        marks = [int(digit in asked) for digit in (*asked, *run)]
        rows.append({"text": " ".join(words), "label": label, "rationale": marks})
    return rows


def _first(random, held: int, label: int) -> int:
    """How many of `held` places have the first digit: of tosses of a fair coin, one that makes the label true."""
    while True:
        first = int(random.binomial(held, 0.5))
        if (2 * first > held) == bool(label):
            return first
