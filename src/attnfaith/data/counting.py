"""Generated texts with the question: does the first of two digits occur more often than the second?

A text is the two digits of the question, then a run of digits. The label is 1 ("more") where the first digit occurs more
often in the run than the second, else 0. The evidence is exact: all places of the two digits, including the question. How
many places hold one of the two, which places, which digits the question names and all other digits are drawn without the
label: it depends only on which of the two digits stands at each of these places.

Source: the toy task of De Cao et al. 2020 (DiffMask), section 4. There the question has symbols of its own, and labels are
as unequal as chance makes them.
"""

from attnfaith.data.generators import Bounds, Number, checked
from attnfaith.support.errors import DatasetError


VERSION = 1
"""Raised whenever the same arguments give other rows."""

DIGITS = tuple("0123456789")
QUESTION = 2
"""Number of words at the beginning of a text that are the question."""


@checked
def generate(n: Number, seed: Number, *, stream: Number = 0, length: Bounds = (6, 14)) -> list[dict]:
    """n rows {"text": str, "label": int, "rationale": list of 0/1 per word between blanks}; 1 marks the question
    and every place of the run with either of its digits.

    length: least and greatest number of words, including the question, drawn uniformly. Raises DatasetError for less than 3.
    """
    import numpy as np

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
