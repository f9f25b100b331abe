"""Attention rollout (Abnar & Zuidema 2020): attention multiplied over the layers, half of each a residual connection."""

import torch

from attnfaith.importance._mixing import reduced
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_rollout": Column(
        ("T",),
        words="sum",
        range=(0.0, 1.0),
        undefined="where the logits depend on no row of the last layer",
        doc="what the rows that matter take of a token: the product over layers of (A + I) / 2, A the mean of the heads",
    ),
}
NEEDS = frozenset({"attention maps", "stacked maps"})
COST = "reading"


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """The attention of all layers as one, whatever the model's reduction is; shares, 0..1.

    It knows weights alone: neither what they weigh, nor the norms, nor the feed-forward parts. What lies on markers is left
    out, so the scores of a text sum to less than 1. A subject whose reduction is "rollout" shows the same, divided by its
    sum.

    A text is read once, with a gradient that says which rows matter.

    Source: Abnar & Zuidema 2020, section 3.
    """
    return {"importance_rollout": reduced(subject, batch, "rollout")}
