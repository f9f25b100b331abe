"""Erasing the tokens that a measure ranks first: sufficiency, comprehensiveness, insertion and deletion curves.

Shapes: B instances, T tokens (of hierarchical models sentences or words), M measures, S shares.
"""

import math
from collections.abc import Sequence

import numpy as np

from attnfaith.draws import generator
from attnfaith.interventions.subsets import check_absent_model, distinct, read_parts, scores_of, whole
from attnfaith.measurement.options import Absent, Shares
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""ERASER's five bins, and the tenths between the ends of an insertion or deletion curve."""


@register
class RationaleErasure(Measure):
    """Erasing the tokens that a measure ranks first: sufficiency, comprehensiveness, insertion and deletion curves.

    What the model says of the tokens that each measure ranks first, and of the text without them.

    The rationale of a share s are the ceil(s T) tokens of highest score, at least one: of signed measures those with most
    evidence for the class. Equal scores are put in a random order, drawn once per text and the same for all measures, so
    that neither the place of a token nor luck sets two measures apart. Tokens are deleted, not masked, unless `absent` says
    otherwise (`subjects.removal.read_parts` says what there is), and the rest is read anew.

    With p the probability of the class that is predicted for the whole text: p(whole) - p(kept) is sufficiency (small is
    good), p(whole) - p(removed) comprehensiveness (large is good); the same numbers in the order of the shares, between
    p(empty) and p(whole), are the insertion and the deletion curve. What is made of them, see
    `metrics.attention_faithfulness.erasure_curves`. A shortened text is not one of those that the model was trained on: see
    `training.random_erasure`.

    The measures are those of `scores`; without it attention alone. The parts of a text that all measures and shares
    ask for are read in few passes, each part once. Undefined (NaN): a text without tokens; a measure with a NaN score. A
    text of one token has one rationale whatever the measure.

    Source: DeYoung et al. 2020, section 4.2 (sufficiency, comprehensiveness); Petsiuk et al. 2018 (insertion, deletion).

    Shapes: B instances, T tokens (of hierarchical models sentences or words), M measures, S shares.
    """

    name, cost = "rationale_erasure", "tokens"
    needs = frozenset({"classes", "token deletion"})
    columns = {
        "rationale_erasure_measures": Column(("M",), "string", doc="names of the measures whose tokens are erased"),
        "rationale_erasure_shares": Column(
            ("S",),
            "float64",
            range=(0.0, 1.0),
            doc="shares of the tokens, rounded up and at least one token, that a rationale holds",
        ),
        "rationale_erasure_kept_probs": Column(
            ("M", "S"),
            "float64",
            undefined="the measure is undefined here, or the text is empty",
            doc="probability, 0..1, of the class predicted for the whole text when only the share ranked first is left",
        ),
        "rationale_erasure_removed_probs": Column(
            ("M", "S"),
            "float64",
            undefined="the measure is undefined here, or the text is empty",
            doc="the same when the share ranked first is taken away",
        ),
        "rationale_erasure_whole_prob": Column((), "float64", range=(0.0, 1.0), doc="the same for the whole text"),
        "rationale_erasure_empty_prob": Column(
            (), "float64", range=(0.0, 1.0), doc="the same for the text without any token"
        ),
    }

    shares: Shares = SHARES
    absent: Absent = "deleted"

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for an absence that the subject cannot read."""
        check_absent_model(subject, self.absent, "rationale_erasure")

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        given, probs = scores_of(subject, batch, scores), whole(subject, batch)
        asked = [
            rationales([values[row] for values in given.values()], self.shares, generator(seed, name, "rationale_erasure"))
            for row, name in enumerate(batch["instance_id"])
        ]
        parts, numbers = zip(*(distinct(_parts(kept)) for kept in asked), strict=True)
        said = read_parts(subject, batch, parts, self.absent)
        columns: dict[str, list] = {name: [] for name in self.columns}
        for row, number in enumerate(numbers):
            predicted = int(probs[row].argmax())
            of_class = said[row][number, predicted]
            both = of_class[:-1].reshape(2, len(given), len(self.shares))
            undefined = [not len(values[row]) or bool(np.isnan(values[row]).any()) for values in given.values()]
            both[:, undefined] = np.nan
            made = (list(given), np.array(self.shares, np.float64), *both, probs[row, predicted], of_class[-1])
            for column, value in zip(columns.values(), made, strict=True):
                column.append(value)
        return columns


def rationales(values: list[np.ndarray], shares: Sequence[float], random: np.random.Generator) -> np.ndarray:
    """Which tokens (M,S,T) bool each measure's rationale of each share holds; values: one array (T,) per measure."""
    return ranks(values, random)[:, None] < np.array([size_of(share, len(values[0])) for share in shares])[None, :, None]


def size_of(share: float, length: int) -> int:
    """How many of so many tokens a share holds: rounded up, at least one."""
    return max(1, math.ceil(share * length - 1e-9))  # 0.07 x 100 is above 7 in floats


def ranks(values: list[np.ndarray], random: np.random.Generator) -> np.ndarray:
    """The rank (M,T) of each token by each measure, 0 the highest score; equal scores in one random order for all."""
    length = len(values[0])
    tie_breaker = random.permutation(length)
    made = np.empty((len(values), length), np.int64)
    for rank, row in zip(made, values, strict=True):
        rank[np.lexsort((tie_breaker, -np.asarray(row, np.float64)))] = np.arange(length)
    return made


def _parts(kept: np.ndarray) -> np.ndarray:
    """All parts (V,T) of one text that are asked about: the rationales (M,S,T), the text without each, the empty text."""
    length = kept.shape[2]
    flat = kept.reshape(kept.shape[0] * kept.shape[1], length)
    return np.concatenate([flat, ~flat, np.zeros((1, length), bool)])
