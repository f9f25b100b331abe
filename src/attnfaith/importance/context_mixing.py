"""Measures of context mixing: matrices of layers, multiplied to the rows that matter, read at the tokens.

A text is read once, with a gradient that says which rows the logits depend on; what a measure costs beyond that, its
docstring says. What lies on markers is left out at the end, so the scores of a text sum to less than 1.

Shapes: L input positions, T tokens of a text.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch

from attnfaith.importance.targets import share
from attnfaith.measurement.registry import Measure, register
from attnfaith.subjects import Edit, per_token
from attnfaith.subjects.attention import Reduction
from attnfaith.subjects.layers import LayerParts
from attnfaith.subjects.protocol import TOKENS_AT_ONCE


@register
class Rollout(Measure):
    """Attention rollout (Abnar & Zuidema 2020): attention multiplied over the layers, half of each a residual connection.

    The attention of all layers as one, whatever the model's reduction is. It knows weights alone: neither what they weigh,
    nor the norms, nor the feed-forward parts. A subject whose reduction is "rollout" shows the same, divided by its sum.

    Source: Abnar & Zuidema 2020, section 3.
    """

    name, cost, needs = "rollout", "reading", frozenset({"attention maps", "stacked maps"})
    columns = {
        "importance_rollout": share("the product over layers of (A + I) / 2, A the mean of the heads"),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        read = subject.read(batch, rows=True)
        weights = Reduction("rollout")([layer.weights.double() for layer in read.maps], read.rows)
        return {"importance_rollout": per_token(subject, batch, weights)}


def _shares(matrix: torch.Tensor) -> torch.Tensor:
    """Rows divided by their sums; one of zeros as it is."""
    total = matrix.sum(1, keepdim=True)
    return torch.where(total > 0, matrix / total, 0.0)


class _RolledOut(Measure):
    """The mean of the rows that matter of M_n ... M_1, divided by its sum, at the tokens; each text alone, without padding.

    matrices(subject, text, layers): M_l (L,L) in float64 of each layer of a text; rows sum to 1, but those of lengths.
    """

    matrices: ClassVar[Callable]

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        (column,), scores = self.columns, []
        for row in range(len(batch["input_ids"])):
            text = batch.alone(row)
            layers, matter = subject.layers(text)
            rows = matter.double() / matter.sum()
            for matrix in reversed(self.matrices(subject, text, layers)):
                rows = rows @ matrix
                rows = rows / rows.sum()  # at every step: products of many layers are too large for any number
            scores.append(rows[subject.attendable(text)[0]].float().cpu().numpy())
        return {column: scores}


def nearness(layer) -> torch.Tensor:
    """(L,L) in float64: by how much each place's vector shortens the way to each state, rows divided by their sums."""
    nearer = []
    for rows, parts in layer.all():
        state = layer.whole[rows].unsqueeze(1)
        # summed term by term, so that two long sums do not cancel
        nearer.append((state.abs() - (state - parts).abs()).sum(-1, dtype=torch.float64).clamp(min=0))
    return _shares(torch.cat(nearer))


@register
class Alti(_RolledOut):
    """ALTI (Ferrando et al. 2022): how near each token's vector brings a state after attention, multiplied over the layers.

    In every layer y_i is the state after attention, its residual connection and, where it follows these, the norm; T_i(j)
    what j adds to it: its projected values, weighed and summed over the heads, at i itself the state, through that norm with
    its scale held. The residual connection is in T, so no identity is added. The vectors cost about as much as the reading.

    Source: Ferrando et al. 2022.
    """

    name, cost, needs = "alti", "reading", frozenset({"attention maps", "layer parts"})
    columns = {
        "importance_alti": share(
            "the product over layers of max(0, |y_i| - |y_i - T_i(j)|) in L1, rows divided by their sums, y_i the state "
            "after attention and T_i(j) what token j adds to it, weights and the norm's scale held"
        ),
    }

    @staticmethod
    def matrices(subject, text, layers: Sequence) -> list[torch.Tensor]:
        """Row i is the share of each position in state i."""
        return [nearness(LayerParts(layer)) for layer in layers]


@register
class GlobEnc(_RolledOut):
    """GlobEnc (Modarressi et al. 2022): the length of what each token adds to a layer's states, rolled out over the layers.

    In every layer N_ij is the length of what j adds to the result at i: its projected values, weighed and summed over the
    heads, at i itself the state, both through the norms of the layer with their scales held. What the feed-forward part
    reads is left out, the residual connection around it and the norm after it are not; so no identity is added. Scores are
    divided by their sum, which changes no order. The vectors cost about as much as the reading.

    Source: Modarressi et al. 2022.
    """

    name, cost, needs = "globenc", "reading", frozenset({"attention maps", "layer parts"})
    columns = {
        "importance_globenc": share(
            "the product over layers of the lengths of the vectors that tokens add to a layer's result, weights and the "
            "scales of norms held, without the feed-forward part; rows are not divided by their sums"
        ),
    }

    @staticmethod
    def matrices(subject, text, layers: Sequence) -> list[torch.Tensor]:
        """The lengths of the vectors that each place adds to each."""
        matrices = []
        for layer in map(LayerParts, layers):
            lengths = [torch.linalg.vector_norm(layer.handed_on(parts, rows), dim=-1) for rows, parts in layer.all()]
            matrices.append(torch.cat(lengths).double())
        return matrices


class Zeroed(Edit):
    """The values of one place of each copy are zeros, in all heads and layers."""

    per_copy = {"places": ""}

    def __init__(self, places: torch.Tensor):
        self.places = places

    def values(self, number, values):
        gone = torch.arange(values.shape[2], device=values.device) == self.places.unsqueeze(1)
        return values.masked_fill(gone[:, None, :, None], 0.0)


def cosine_distances(results: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """(N,L): 1 - cos of states (N,L,E) and (L,E), as half the square between unit vectors, which does not cancel."""
    first, second = (torch.nn.functional.normalize(states.double(), dim=-1) for states in (results, result))
    return (first - second).square().sum(-1) / 2


@register
class ValueZeroing(_RolledOut):
    """Value zeroing (Mohebbi et al. 2023): how far each layer turns a token's state when another's values are zeros.

    The identity is not added, since a layer's result has its residual connection in it. The result is that of the layer
    itself, before a norm behind the last one. Each share is right to about 1e-4 of itself in float32. A text is read once
    more for each of its positions, markers included: all layers in one pass.

    Source: Mohebbi et al. 2023.
    """

    name, cost, needs = "value_zeroing", "tokens", frozenset({"attention maps", "layer states"})
    columns = {
        "importance_value_zeroing": share(
            "the product over layers of the cosine distance of a layer's result at i with and without the values of j in "
            "all heads, weights and the layer's input held, rows divided by their sums"
        ),
    }

    @staticmethod
    def matrices(subject, text, layers: Sequence) -> list[torch.Tensor]:
        """Row i is the share of each position's values in the change at i. subject: any object with `device` and
        `each_layer`; L are the positions of the layers' states.
        """
        states, parts = [layer.state[0] for layer in layers], []
        width = len(states[0])
        for places in torch.arange(width, device=subject.device).split(max(1, TOKENS_AT_ONCE // max(1, width))):
            results = subject.each_layer(text.take(torch.zeros_like(places)), states, Zeroed(places))
            parts.append([cosine_distances(result, layer.result[0]) for layer, result in zip(layers, results, strict=True)])
        return [_shares(torch.cat(distances).T) for distances in zip(*parts, strict=True)]
