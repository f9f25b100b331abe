"""Value zeroing (Mohebbi et al. 2023): how far each layer turns a token's state when another's values are zeros."""

from collections.abc import Sequence
from functools import partial

import torch

from attnfaith.importance._mixing import rolled_out, shares
from attnfaith.record import Column
from attnfaith.subjects import Edit, asks
from attnfaith.subjects.removal import TOKENS_AT_ONCE


COLUMNS = {
    "importance_value_zeroing": Column(
        ("T",),
        words="sum",
        range=(0.0, 1.0),
        undefined="where the logits depend on no row of the last layer",
        doc="what the rows that matter take of a token: the product over layers of the cosine distances of a layer's result "
        "with and without the token's values, rows divided by their sums",
    ),
}
NEEDS = frozenset({"attention maps", "layer states"})
COST = "tokens"


class Zeroed(Edit):
    """Of each copy the values of one place, in all heads and layers."""

    def __init__(self, places: torch.Tensor):
        self.places = places

    def take(self, rows, length):
        return Zeroed(self.places[rows])

    def values(self, number, values):
        gone = torch.arange(values.shape[2], device=values.device) == self.places.unsqueeze(1)
        return values.masked_fill(gone[:, None, :, None], 0.0)


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """How much of a token the rows that matter take, by what is missed without it; shares, 0..1.

    In every layer, given the states that the text gives it, C_ij is the cosine distance of the result at i when the values
    of j are zeros in all heads, the weights being as they were. Rows of C are divided by their sums, and the layers are
    multiplied; the identity is not added, since a layer's result has its residual connection in it. What lies on markers is
    left out, so the scores of a text sum to less than 1. The result is that of the layer itself, before a norm that a model
    may have after its last one. Each share is right to about 1e-4 of itself in float32.

    A text is read once, and once more for each of its positions, markers included: all layers in one pass.

    Source: Mohebbi et al. 2023.
    """
    return {"importance_value_zeroing": rolled_out(subject, batch, partial(matrices, subject))}


def matrices(subject, text, layers: Sequence) -> list[torch.Tensor]:
    """(L,L) in float64 of each layer of one text: row i says what share of the change at i each position's values are; rows
    sum to 1.

    subject: asked for `device` and `each_layer` alone. L are the positions of the layers' states.
    """
    states = [one.state[0] for one in layers]
    width, distances = len(states[0]), [[] for _ in layers]
    for places in torch.arange(width, device=subject.device).split(max(1, TOKENS_AT_ONCE // max(1, width))):
        copies = text.take(torch.zeros_like(places))
        results = subject.each_layer(copies, states, Zeroed(places))
        for one, layer, other in zip(distances, layers, results, strict=True):
            one.append(cosine_distances(other, layer.result[0]))
    return [shares(torch.cat(one).T) for one in distances]


def cosine_distances(results: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """(N,L): 1 - cos of states (N,L,E) and (L,E), as half the square between unit vectors, which does not cancel."""
    first, second = (torch.nn.functional.normalize(one.double(), dim=-1) for one in (results, result))
    return (first - second).square().sum(-1) / 2
