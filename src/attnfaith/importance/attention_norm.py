"""Attention times the length of what it weighs (Kobayashi et al. 2020)."""

import torch

from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_attention_norm": Column(
        ("T",),
        words="sum",
        range=(0.0, None),
        undefined="where the logits depend on no row that attention makes",
        doc="||a h||_2 of a token's attention a and its encoder state h; of layers with heads h are the values, projected, "
        "and a h is summed over the heads: the mean over the rows that matter",
    ),
}
NEEDS = frozenset({"weighed vectors"})
COST = "reading"


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """How long each summand of what attention makes is: a small weight on a long vector may be more than a large one on a
    short.

    It knows nothing of what comes after, so not which way a summand points, nor whether the decoder reads it: compare
    `exact_contribution`. In the classifiers of this package what attention sums is the states themselves; at the word level
    of a hierarchical model h is the state of a word, and a its sentence's attention times its weight within the sentence. In
    a classifier of transformers it is the sum over heads of a_ij f(x_j), where f projects values and leaves out the bias; of
    the layers, or the head, of the model's reduction, the mean over layers and rows that matter.

    Source: Kobayashi et al. 2020; for pooled states with the identity as the transformation of what is weighed.
    """
    counts = subject.attendable(batch).sum(1).tolist()
    lengths = [torch.zeros(count, dtype=torch.float64, device=subject.device) for count in counts]
    sums = [0] * len(counts)
    for row, vectors in subject.summands(batch):
        lengths[row] += torch.linalg.vector_norm(vectors, dim=-1).sum(0)
        sums[row] += len(vectors)
    means = [length / (count or torch.nan) for length, count in zip(lengths, sums, strict=True)]
    return {"importance_attention_norm": [one.float().cpu().numpy() for one in means]}
