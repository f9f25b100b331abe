"""Attention flow (Abnar & Zuidema 2020): the most that can flow from a token through attention taken as capacities."""

import torch

from attnfaith.importance._mixing import reduced
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_flow": Column(
        ("T",),
        words="sum",
        range=(0.0, 1.0),
        undefined="where the logits depend on no row of the last layer",
        doc="the largest flow between a token and the rows that matter, the mean of these, over the sum of all input "
        "positions; capacities are (A + I) / 2, A the mean of a layer's heads",
    ),
}
NEEDS = frozenset({"attention maps", "stacked maps"})
COST = "tokens"


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """The attention of all layers as one, whatever the model's reduction is; shares, 0..1.

    Each token's flow is the largest were it the only one, so flows are divided by their sum. What lies on markers is left
    out, so the scores of a text sum to less than 1. A subject whose reduction is "flow" shows the same, divided by its sum.

    A text is read once, with a gradient that says which rows matter; then a flow is solved for each of its positions and
    each row that matters: of 73 positions, six layers and one row in about the time of four readings of a small model, of
    all rows in 73 times that.

    Source: Abnar & Zuidema 2020, section 3.
    """
    return {"importance_flow": reduced(subject, batch, "flow")}
