"""GlobEnc (Modarressi et al. 2022): the length of what each token adds to a layer's states, rolled out over the layers."""

import torch

from attnfaith.importance._mixing import rolled_out
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_globenc": Column(
        ("T",),
        words="sum",
        range=(0.0, 1.0),
        undefined="where the logits depend on no row of the last layer",
        doc="what the rows that matter take of a token: the product over layers of the lengths of the vectors that tokens "
        "add to a layer's result, over the sum of all input positions",
    ),
}
NEEDS = frozenset({"attention maps", "layer parts"})
COST = "reading"


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """How much of a token the rows that matter take, by the lengths of vectors; shares, 0..1.

    In every layer N_ij is the length of what j adds to the result at i: its projected values, weighed and summed over the
    heads, at i itself the state, both through the norms of the layer with their scales held. What the feed-forward part
    reads is left out, the residual connection around it and the norm after it are not. Layers are multiplied as they are:
    the residual connection is in N, so no identity is added, and rows are not divided by their sums. At the end scores are
    divided by their sum over all input positions, since products of lengths grow without bound; this changes no order. What
    lies on markers is left out. In a layer whose norms stand before its parts nothing lies on the way but sums.

    A text is read once, with a gradient that says which rows matter; the vectors cost about as much again.

    Source: Modarressi et al. 2022.
    """

    def mixing(text, layers):
        return [_lengths(subject.parts(one)) for one in layers]

    return {"importance_globenc": rolled_out(subject, batch, mixing)}


def _lengths(layer) -> torch.Tensor:
    """(L,L) in float64: the lengths of the vectors that each place adds to each."""
    lengths = [torch.linalg.vector_norm(layer.handed_on(parts, rows), dim=-1) for rows, parts in layer.all()]
    return torch.cat(lengths).double()
