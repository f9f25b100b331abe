"""Attention times its gradient, for a subject that says what it predicts under other weights, and for one that has maps.

Shapes: B instances, L input positions, T places of attention, H heads, C classes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from attnfaith.subjects.attention_hook import Edit


Explain = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the logits (n,C) of the instances rows (n,) to what is explained of them (n,)."""


class Slopes(NamedTuple):
    """Instances that were read together: rows (n,), their length, and of each layer the weights (n,H,length,length) and
    their slopes; matter (n,length) bool: the rows of the last layer that the logits depend on.
    """

    rows: torch.Tensor
    length: int
    weights: list[torch.Tensor]
    slopes: list[torch.Tensor]
    matter: torch.Tensor


class _Leaves(Edit):
    """Weights that gradients can be taken of."""

    def weights(self, number, weights):
        return weights if weights.requires_grad else weights.detach().requires_grad_()


def map_slopes(subject, batch, explain: Explain, layers: Sequence[int]) -> Iterator[Slopes]:
    """The weights of some layers, counted from 0, and the slopes of what is explained in them; see `Slopes`."""
    numbers = {subject.sites.layers[layer] for layer in layers}
    for rows, length in subject.groups(batch):
        part = batch.take(rows, length)
        with torch.enable_grad():
            read = subject.read(part, _Leaves(), keep=numbers.__contains__, rows=True)
            weights = [one.weights for one in read.maps]
            value = explain(read.logits, rows).sum()
            slopes = torch.autograd.grad(value, weights, allow_unused=True)
        slopes = [torch.zeros_like(one) if slope is None else slope for one, slope in zip(weights, slopes, strict=True)]
        yield Slopes(rows, length, [one.detach() for one in weights], slopes, read.rows)


def products_of_maps(subject, batch, explain: Explain) -> torch.Tensor:
    """(B,L): a df/da, summed over the rows that matter and over the layers and heads of the subject's reduction."""
    layers = subject.reduction.chosen(len(subject.sites.layers))
    whole = torch.zeros(batch["input_ids"].shape, dtype=torch.float64, device=subject.device)
    for part in map_slopes(subject, batch, explain, layers):
        for weights, slopes in zip(part.weights, part.slopes, strict=True):
            products = (weights.double() * slopes.double() * part.matter[:, None, :, None]).sum(2)
            of_heads = products.sum(1) if subject.reduction.head is None else products[:, subject.reduction.head]
            whole[part.rows, : part.length] += of_heads
    return whole


def products_of_intervention(subject, batch, explain: Explain) -> torch.Tensor:
    """(B,T): a df/da of the subject's attention, states held fixed and each weight a free variable."""
    attention = subject.attention(batch)
    rows = torch.arange(len(attention), device=attention.device)
    with torch.enable_grad():
        weights = attention.detach().requires_grad_()
        f = explain(subject.intervene(batch, weights), rows)
        slopes = torch.zeros_like(weights)
        if f.requires_grad:  # an empty batch of places depends on nothing
            slopes = torch.autograd.grad(f.sum(), [weights], materialize_grads=True)[0]
    return torch.where(attention == 0, 0.0, attention.double() * slopes.double()).detach()
