"""ALTI (Ferrando et al. 2022): how near each token's vector brings a state after attention, multiplied over the layers."""

from collections.abc import Sequence
from functools import partial

import torch

from attnfaith.importance._mixing import rolled_out, shares
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_alti": Column(
        ("T",),
        words="sum",
        range=(0.0, 1.0),
        undefined="where the logits depend on no row of the last layer",
        doc="what the rows that matter take of a token: the product over layers of how much of a state after attention a "
        "token's vector accounts for in L1, rows divided by their sums",
    ),
}
NEEDS = frozenset({"attention maps", "layer parts"})
COST = "reading"


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """How much of a token the rows that matter take, by distances to the vectors that tokens add; shares, 0..1.

    In every layer y_i is the state after attention, its residual connection and, where it follows these, the norm; T_i(j)
    what j adds to it: its projected values, weighed and summed over the heads, at i itself the state, through that norm with
    its scale held. c_ij = max(0, |y_i| - |y_i - T_i(j)|) in L1; rows are divided by their sums, and the layers are
    multiplied, without adding the identity. What lies on markers is left out, so the scores of a text sum to less than 1.

    A text is read once, with a gradient that says which rows matter; the vectors cost about as much again.

    Source: Ferrando et al. 2022.
    """
    return {"importance_alti": rolled_out(subject, batch, partial(matrices, subject))}


def matrices(subject, text, layers: Sequence) -> list[torch.Tensor]:
    """(L,L) in float64 of each layer of one text: row i says by what share each position makes state i; rows sum to 1.

    subject: asked for `parts` alone.
    """
    return [shares(nearness(subject.parts(one))) for one in layers]


def nearness(layer) -> torch.Tensor:
    """(L,L) in float64: by how much each place's vector shortens the way to each state."""
    nearer = []
    for rows, parts in layer.all():
        state = layer.whole[rows].unsqueeze(1)
        # summed term by term, so that two long sums do not cancel
        nearer.append((state.abs() - (state - parts).abs()).sum(-1, dtype=torch.float64).clamp(min=0))
    return torch.cat(nearer)
