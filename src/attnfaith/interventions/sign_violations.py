"""Does a measure know for from against? The sign of its first token held against what taking it away does (Liu et al. 2022).

Shapes: B instances, T items of attention (tokens; of hierarchical models sentences or words), M measures.
"""

import numpy as np

from attnfaith.draws import generator
from attnfaith.interventions.subsets import check_absent_model, distinct, read_parts, scores_of, whole
from attnfaith.measurement.options import Absent
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


@register
class SignViolations(Measure):
    """Does a measure know for from against? The sign of its first token held against what taking it away does (Liu et al.
    2022).

    What the model says without the token that each measure gives the score of largest size, and that score's sign.

    A sign is violated where a token is said to speak for the class, and the class is more probable without it, or the other
    way round. Measures without a sign say of every token that it speaks for the class: so does attention. A signed one is
    there twice, with its sign and by its size, whose first token is the same: what its sign is worth is the difference.

    Of equal sizes one is drawn, for each text, the same for all measures. absent: what becomes of the token, see
    `subjects.removal`. The measures are those of `scores`; without it attention alone. Undefined: a text without
    tokens; a measure with a NaN score.

    Source: Liu et al. 2022 (the faithfulness violation test).

    Shapes: B instances, T items of attention (tokens; of hierarchical models sentences or words), M measures.
    """

    name, cost = "sign_violations", "reading"
    needs = frozenset({"classes", "token deletion"})
    columns = {
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

    absent: Absent = "deleted"

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for an absence that the subject cannot read."""
        check_absent_model(subject, self.absent, "sign_violations")

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        given, probs = scores_of(subject, batch, scores), whole(subject, batch)
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
        said = read_parts(subject, batch, asked, self.absent)
        effects = np.full_like(signs, np.nan)
        for row, (of_text, number, defined) in enumerate(zip(said, numbers, places, strict=True)):
            predicted = int(probs[row].argmax())
            effects[row, defined] = probs[row, predicted] - of_text[number, predicted]
        return dict(zip(self.columns, ([list(given)] * len(probs), list(signs), list(effects)), strict=True))
