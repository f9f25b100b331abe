"""Measures of context mixing: matrices of layers, multiplied to the rows that matter, read at the tokens.

A text is read once, with a gradient that says which rows the logits depend on; what a measure costs beyond that, its
docstring says. What lies on markers is left out at the end, so the scores of a text sum to less than 1.

Shapes: L input positions, T tokens of a text.
"""

from collections.abc import Sequence

import torch

from attnfaith.importance.matrix_products import rolled_out, shares
from attnfaith.importance.targets import share
from attnfaith.measurement.registry import Measure, register
from attnfaith.subjects import per_token
from attnfaith.subjects.layers import LayerParts
from attnfaith.subjects.reduction import Reduction


@register
class Rollout(Measure):
    """Attention rollout (Abnar & Zuidema 2020): attention multiplied over the layers, half of each a residual connection.

    The attention of all layers as one, whatever the model's reduction is. It knows weights alone: neither what they weigh,
    nor the norms, nor the feed-forward parts. A subject whose reduction is "rollout" shows the same, divided by its sum.

    Source: Abnar & Zuidema 2020, section 3.
    """

    name, cost = "rollout", "reading"
    needs = frozenset({"attention maps", "stacked maps"})
    columns = {
        "importance_rollout": share("the product over layers of (A + I) / 2, A the mean of the heads"),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        read = subject.read(batch, rows=True)
        weights = Reduction("rollout")([layer.weights.double() for layer in read.maps], read.rows)
        return {"importance_rollout": per_token(subject, batch, weights)}


def alti_matrices(subject, text, layers: Sequence) -> list[torch.Tensor]:
    """(L,L) in float64 of each layer of a text: row i, which sums to 1, is the share of each position in state i."""
    return [shares(nearness(LayerParts(layer))) for layer in layers]


def nearness(layer) -> torch.Tensor:
    """(L,L) in float64: by how much each place's vector shortens the way to each state."""
    nearer = []
    for rows, parts in layer.all():
        state = layer.whole[rows].unsqueeze(1)
        # summed term by term, so that two long sums do not cancel
        nearer.append((state.abs() - (state - parts).abs()).sum(-1, dtype=torch.float64).clamp(min=0))
    return torch.cat(nearer)


@register
class Alti(Measure):
    """ALTI (Ferrando et al. 2022): how near each token's vector brings a state after attention, multiplied over the layers.

    In every layer y_i is the state after attention, its residual connection and, where it follows these, the norm; T_i(j)
    what j adds to it: its projected values, weighed and summed over the heads, at i itself the state, through that norm with
    its scale held. The residual connection is in T, so no identity is added. The vectors cost about as much as the reading.

    Source: Ferrando et al. 2022.
    """

    name, cost = "alti", "reading"
    needs = frozenset({"attention maps", "layer parts"})
    columns = {
        "importance_alti": share(
            "the product over layers of max(0, |y_i| - |y_i - T_i(j)|) in L1, rows divided by their sums, y_i the state "
            "after attention and T_i(j) what token j adds to it, weights and the norm's scale held"
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        return {"importance_alti": rolled_out(subject, batch, alti_matrices)}


def _vector_lengths(subject, text, layers: Sequence) -> list[torch.Tensor]:
    """(L,L) in float64 of each layer: the lengths of the vectors that each place adds to each."""
    matrices = []
    for layer in map(LayerParts, layers):
        lengths = [torch.linalg.vector_norm(layer.handed_on(parts, rows), dim=-1) for rows, parts in layer.all()]
        matrices.append(torch.cat(lengths).double())
    return matrices


@register
class GlobEnc(Measure):
    """GlobEnc (Modarressi et al. 2022): the length of what each token adds to a layer's states, rolled out over the layers.

    In every layer N_ij is the length of what j adds to the result at i: its projected values, weighed and summed over the
    heads, at i itself the state, both through the norms of the layer with their scales held. What the feed-forward part
    reads is left out, the residual connection around it and the norm after it are not. The residual connection is in N, so
    no identity is added. Scores are divided by their sum since products of lengths grow without bound; this changes no
    order. In a layer whose norms stand before its parts nothing lies on the way but sums. The vectors cost about as much as
    the reading.

    Source: Modarressi et al. 2022.
    """

    name, cost = "globenc", "reading"
    needs = frozenset({"attention maps", "layer parts"})
    columns = {
        "importance_globenc": share(
            "the product over layers of the lengths of the vectors that tokens add to a layer's result, weights and the "
            "scales of norms held, without the feed-forward part; rows are not divided by their sums"
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        return {"importance_globenc": rolled_out(subject, batch, _vector_lengths)}
