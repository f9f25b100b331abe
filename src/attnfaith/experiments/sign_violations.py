"""Does a measure know for from against? The sign of its first token held against what taking it away does (Liu et al. 2022).

Shapes: B instances, T items of attention (tokens; of hierarchical models sentences or words), M measures.
"""

import numpy as np

from attnfaith._random import generator
from attnfaith.experiments._subsets import check_absent, check_absent_model, distinct, read_parts, scores, whole
from attnfaith.record import Column
from attnfaith.subjects import asks


AFTER = True  # the measures whose signs it tests are measured first
COLUMNS = {
    "sign_violations_measures": Column(("M",), "string", doc="names of the measures whose first tokens are taken away"),
    "sign_violations_signs": Column(
        ("M",),
        "float64",
        range=(-1.0, 1.0),
        undefined="the measure is undefined here, or the text is empty",
        doc="sign of the score of largest size: 1 for the class, -1 against it, 0 where all scores are 0",
    ),
    "sign_violations_effects": Column(
        ("M",),
        "float64",
        range=(-1.0, 1.0),
        undefined="the measure is undefined here, or the text is empty",
        doc="probability of the class predicted for the whole text, minus that without the token of this score",
    ),
}
NEEDS = frozenset({"classes", "token deletion"})
COST = "reading"
METRIC: dict[str, str] = {}  # one class's probability is no distribution


def check(absent: str = "deleted") -> None:
    """Raises ValueError for what cannot become of a token that is taken away."""
    check_absent(absent)


def check_model(subject, dataset, *, absent: str = "deleted") -> None:
    """Raises SubjectError for an absence that the subject cannot read."""
    check_absent_model(subject, absent, "sign_violations")


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0, absent: str = "deleted") -> dict[str, list]:
    """What the model says without the token that each measure gives the score of largest size, and that score's sign.

    A sign is violated where a token is said to speak for the class, and the class is more probable without it, or the other
    way round. Measures without a sign say of every token that it speaks for the class: so does attention. A signed one is
    there twice, with its sign and by its size, whose first token is the same: what its sign is worth is the difference.

    Of equal sizes one is drawn, for each text, the same for all measures. absent: what becomes of the token, see
    `subjects.removal`. The measures are those of batch["scores"]; without it attention alone. Undefined: a text without
    tokens; a measure with a NaN score.

    Raises ValueError as `check` says, SubjectError as `check_model` does.

    Source: Liu et al. 2022 (the faithfulness violation test).
    """
    check(absent)
    check_model(subject, None, absent=absent)
    given, probs = scores(subject, batch), whole(subject, batch)
    signs = np.full((len(probs), len(given)), np.nan)
    asked, numbers, places = [], [], []
    for row, name in enumerate(batch["instance_id"]):
        values = np.stack([np.asarray(one[row], np.float64) for one in given.values()])
        defined = np.flatnonzero(~np.isnan(values).any(1) & (values.shape[1] > 0))
        tie_breaker = generator(seed, name, "sign_violations").permutation(values.shape[1])
        first = [np.lexsort((tie_breaker, -np.abs(values[place])))[0] for place in defined]
        signs[row, defined] = np.sign(values[defined, first])
        parts, number = distinct(np.arange(values.shape[1]) != np.reshape(first, (-1, 1)))
        asked.append(parts)
        numbers.append(number)
        places.append(defined)
    said = read_parts(subject, batch, asked, absent)
    effects = np.full_like(signs, np.nan)
    for row, (of_text, number, defined) in enumerate(zip(said, numbers, places, strict=True)):
        predicted = int(probs[row].argmax())
        effects[row, defined] = probs[row, predicted] - of_text[number, predicted]
    return dict(zip(COLUMNS, ([list(given)] * len(probs), list(signs), list(effects)), strict=True))
