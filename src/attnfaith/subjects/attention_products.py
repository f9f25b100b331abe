"""Attention times its gradient, for a subject that says what it predicts under other weights, and for one that has maps.

Shapes: B instances, L input positions, T places of attention, H heads, C classes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from attnfaith.subjects.attention_hook import Edit


Explain = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the logits (n,C) of the instances rows (n,) to what is explained of them (n,)."""


class Products(NamedTuple):
    """Of instances that were read together, weights times slopes, in float64: rows (n,), their length, and by layer, counted
    from 0, positive (n,length,length), the mean over heads of what is positive, and of_rows (n,H,length), the sum over the
    rows that matter; matter (n,length) bool: the rows of the last layer that the logits depend on.
    """

    rows: torch.Tensor
    length: int
    positive: dict[int, torch.Tensor]
    of_rows: dict[int, torch.Tensor]
    matter: torch.Tensor


class _Leaves(Edit):
    """Weights that gradients can be taken of."""

    def weights(self, number, weights):
        return weights if weights.requires_grad else weights.detach().requires_grad_()


def map_products(subject, batch, explain: Explain, layers: Sequence[int]) -> list[Products]:
    """The weights of some layers, counted from 0, times the slopes of what is explained in them; see `Products`.

    Kept in the batch, for an equal `explain`: what is known of more layers serves for fewer. Of H heads no more than one
    map's worth is kept of a layer.
    """
    if "map_products" in batch:
        for (known, of_layers), products in batch["map_products"].items():
            if known == explain and of_layers.issuperset(layers):
                return products
    key = explain, frozenset(layers)
    return batch.once("map_products", key, lambda: list(_map_products(subject, batch, explain, sorted(layers))))


def _map_products(subject, batch, explain: Explain, layers: list[int]) -> Iterator[Products]:
    numbers = {subject.sites.layers[layer] for layer in layers}
    for rows, length in subject.groups(batch):
        part = batch.take(rows, length)
        with torch.enable_grad():
            read = subject.read(part, _Leaves(), keep=numbers.__contains__, rows=True)
            weights = [one.weights for one in read.maps]
            value = explain(read.logits, rows).sum()
            slopes = torch.autograd.grad(value, weights, allow_unused=True)
        made = Products(rows, length, {}, {}, read.rows)
        for layer, one, slope in zip(layers, weights, slopes, strict=True):
            slope = torch.zeros_like(one) if slope is None else slope
            products = one.detach().double() * slope.double()
            made.of_rows[layer] = (products * read.rows[:, None, :, None]).sum(2)
            made.positive[layer] = products.clamp_(min=0).mean(1)
        yield made


def products_of_maps(subject, batch, explain: Explain) -> torch.Tensor:
    """(B,L): a df/da, summed over the rows that matter and over the layers and heads of the subject's reduction."""
    layers = subject.reduction.chosen(len(subject.sites.layers))
    whole = torch.zeros(batch["input_ids"].shape, dtype=torch.float64, device=subject.device)
    for part in map_products(subject, batch, explain, layers):
        for layer in layers:
            products = part.of_rows[layer]
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
