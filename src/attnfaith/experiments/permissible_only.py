"""What the model says without the impermissible tokens: whether it needs them, whatever its attention shows."""

import numpy as np

from attnfaith.experiments._impermissible import both_kinds, check_marked, impermissible
from attnfaith.experiments._subsets import check_absent, check_absent_model, read_parts
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "permissible_only_probs": Column(
        ("C",),
        "float64",
        undefined="no token of the text is impermissible, or all are",
        doc="class probabilities when the impermissible tokens are taken away",
    ),
}
NEEDS = frozenset({"classes", "token deletion"})
COST = "reading"
METRIC: dict[str, str] = {}  # of a part of a text, no intervention on attention


def check(absent: str = "deleted") -> None:
    """Raises ValueError for an absence that there is not."""
    check_absent(absent)


def check_model(subject, dataset, *, absent: str = "deleted") -> None:
    """Raises SubjectError for an absence that the subject cannot read, and where nothing says which tokens are
    impermissible.
    """
    check_absent_model(subject, absent, "permissible_only")
    check_marked(dataset, "permissible_only")


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0, absent: str = "deleted") -> dict[str, list]:
    """Whether a model whose attention shows none of the impermissible tokens does without them.

    They are taken away (of a model over sentences the sentences that hold one) and the rest is read anew; absent: what
    becomes of them, see `subjects.removal`. Where predictions get worse the model needs them, and attention that hides them
    deceives. A shortened text is unlike those that the model was trained on, so some of the fall is due to that: a model
    trained on texts without them says how much the rest can tell.

    Undefined (NaN): a text without impermissible tokens, where nothing would be taken away, and one with no other, of which
    nothing would be left. Nothing is random.

    Raises ValueError as `check` says, SubjectError for an absence that the subject cannot read and for a batch that does not
    mark impermissible tokens.

    Source: Pruthi et al. 2020, table 3 ("I used: no"), where models are trained without them.
    """
    check(absent)
    check_absent_model(subject, absent, "permissible_only")
    marks, mask = impermissible(subject, batch, "permissible_only"), subject.attendable(batch)
    stays = [~of_text[inside].cpu().numpy() for of_text, inside in zip(marks, mask, strict=True)]
    parts = [row[None] if some else row[None][:0] for row, some in zip(stays, both_kinds(marks, mask).tolist(), strict=True)]
    nothing = np.full(subject.num_labels, np.nan)
    said = read_parts(subject, batch, parts, absent)
    return {"permissible_only_probs": [probs[0] if len(probs) else nothing for probs in said]}
