"""What the model says without the impermissible tokens: whether it needs them, whatever its attention shows."""

import numpy as np

from attnfaith.interventions.impermissible import both_kinds, check_marked, impermissible
from attnfaith.interventions.subsets import check_absent_model, read_parts
from attnfaith.measurement.options import Absent
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


@register
class PermissibleOnly(Measure):
    """What the model says without the impermissible tokens: whether it needs them, whatever its attention shows.

    Whether a model whose attention shows none of the impermissible tokens does without them.

    They are taken away (of a model over sentences the sentences that hold one) and the rest is read anew; absent: what
    becomes of them, see `subjects.removal`. Where predictions get worse the model needs them, and attention that hides them
    deceives. A shortened text is unlike those that the model was trained on, so some of the fall is due to that: a model
    trained on texts without them says how much the rest can tell.

    Undefined (NaN): a text without impermissible tokens, where nothing would be taken away, and one with no other, of which
    nothing would be left. Nothing is random.

    Source: Pruthi et al. 2020, table 3 ("I used: no"), where models are trained without them.
    """

    name, cost = "permissible_only", "reading"
    needs = frozenset({"classes", "token deletion"})
    columns = {
        "permissible_only_probs": Column(
            ("C",),
            "float64",
            undefined="no token of the text is impermissible, or all are",
            doc="class probabilities when the impermissible tokens are taken away",
        ),
    }

    absent: Absent = "deleted"

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for an absence that the subject cannot read, and where nothing says which tokens are
        impermissible.
        """
        check_absent_model(subject, self.absent, "permissible_only")
        check_marked(dataset, "permissible_only")

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        check_absent_model(subject, self.absent, "permissible_only")
        marks, mask = impermissible(subject, batch, "permissible_only"), subject.attendable(batch)
        stays = [~of_text[inside].cpu().numpy() for of_text, inside in zip(marks, mask, strict=True)]
        parts = [
            row[None] if some else row[None][:0] for row, some in zip(stays, both_kinds(marks, mask).tolist(), strict=True)
        ]
        nothing = np.full(subject.num_labels, np.nan)
        said = read_parts(subject, batch, parts, self.absent)
        return {"permissible_only_probs": [probs[0] if len(probs) else nothing for probs in said]}
