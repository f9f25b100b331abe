"""Impermissible tokens by the length of their vectors: what is hidden from attention may be long where it is summed."""

import torch

from attnfaith.interventions.impermissible import both_kinds, check_marked, impermissible
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


UNDEFINED = "no token of the text is impermissible, or all are, or every vector is zero"


@register
class ValueNormShare(Measure):
    """Impermissible tokens by the length of their vectors: what is hidden from attention may be long where it is summed.

    Whether tokens that get next to no weight have long vectors, so that little weight is enough.

    sum over impermissible i of ||v_i||_2, over the sum of all ||v_i||_2. v_i is what attention weighs: the state of a token,
    sentence or word; in a classifier of transformers the value of a head, before the projection, in the layers or the head
    that are shown, markers included as in the authors' code. No weight enters: compare it with `group_mass`. An honest model
    has no reason to make them differ much; that they do is a sign, no proof.

    Undefined (NaN): a text without impermissible tokens, or with no other. Nothing is random.

    Raises SubjectError for a batch that does not mark impermissible tokens.

    Source: the code of Pruthi et al. 2020 (quantify_norms; value_norm_fraction).
    """

    name, cost = "value_norm_share", "reading"
    needs = frozenset({"weighed vectors"})
    columns = {
        "value_norm_share": Column(
            (),
            "float64",
            range=(0.0, 1.0),
            undefined=UNDEFINED,
            doc="sum of the lengths of impermissible tokens' vectors over that of all, weights aside; of layers with "
            "heads the "
            "mean over these",
        ),
        "value_norm_share_head_max": Column(
            (),
            "float64",
            range=(0.0, 1.0),
            undefined=UNDEFINED,
            doc="the same in the head where it is largest",
            needs=frozenset({"attention maps"}),
        ),
    }

    def check(self, subject, dataset) -> None:
        """Raises SubjectError where nothing says which tokens are impermissible."""
        check_marked(dataset, "value_norm_share")

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        marks = impermissible(subject, batch, "value_norm_share")
        norms, mask = subject.value_norms(batch), subject.attendable(batch)
        shares = (norms * marks.unsqueeze(1)).sum(2) / norms.sum(2)  # (B,N); 0 / 0 is NaN
        some = both_kinds(marks, mask)
        columns = {"value_norm_share": shares.mean(1)}
        if "attention maps" in subject.capabilities:
            columns["value_norm_share_head_max"] = shares.amax(1)
        return {name: torch.where(some, values, torch.nan).tolist() for name, values in columns.items()}
