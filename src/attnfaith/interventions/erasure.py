"""Erasing attention weights: one alone, and one after the other until the decision changes (Serrano & Smith 2019).

Shapes: B instances, T tokens, C classes, K random orders, R orders in all.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from attnfaith.interventions.erasing import RANKINGS, Erasing, prepare
from attnfaith.interventions.targets import projected, softmax
from attnfaith.measurement.options import Draws
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


ORDERS = ("random", *RANKINGS)
PLACES_AT_ONCE = 2**20  # weights of re-projected attentions dealt with together


def _columns() -> dict[str, Column]:
    columns = {
        "erasure_gradient": Column(
            ("T",),
            "float64",
            signed=True,
            doc="dp/da of each weight a, the others fixed; p: probability of the predicted class",
        ),
        "erasure_probs": Column(("T", "C"), distribution=True, doc="prediction with one weight 0, the rest renormalised"),
        "erasure_reprojected_probs": Column(
            ("T", "C"), distribution=True, doc="prediction with one token left out and the other scores projected again"
        ),
        "erasure_order": Column(("K", "T"), "int32", doc="positions in random orders"),
    }
    for name in ORDERS:
        axes, by = (("K",), "random order") if name == "random" else ((), f"decreasing {name.replace('_', ' x ')}")
        columns[f"erasure_flip_size_{name}"] = Column(
            axes,
            undefined="the decision never changes",
            doc=f"weights set to 0 by {by} until the decision first changes, 1..T",
        )
        columns[f"erasure_flip_mass_{name}"] = Column(
            axes, range=(0.0, 1.0), undefined="the decision never changes", doc="attention on them"
        )
        columns[f"erasure_flip_empty_{name}"] = Column(
            axes, "bool", doc="the decision changed only when no weight was left: the bias decided"
        )
        columns[f"erasure_reprojected_flip_size_{name}"] = Column(
            axes,
            undefined="the decision never changes",
            doc=f"tokens left out by {by}, the other scores projected again, until the decision changes",
        )
    return columns


@register
class Erasure(Measure):
    """Erasing attention weights: one alone, and one after the other until the decision changes (Serrano & Smith 2019).

    What the model decides when attention weights are set to 0 and the rest is divided by its sum.

    Erased weights are never filled by a new softmax, and no rank is computed again after a removal. Orders: decreasing
    attention, gradient, attention x gradient, and `draws` random ones. The gradient is the signed derivative of the
    predicted class's probability with respect to a weight, at the model's attention and without the constraint that weights
    sum to 1; it is p(1 - p) times that of the log-odds. Orders are made by the latter, so that they exist where p rounds
    to 1. Equal ranks go by position: for uniform attention the order by attention is the order of the text.

    A removal counts whether the token had weight or not. Under sparse attention the tokens without weight come last by
    attention, but not in the other orders, where removing them changes nothing. When no weight is left the decoder's bias
    decides, which is reached when the tokens that had weight are gone.

    Re-projected: the scores of the tokens left out are dropped and the others projected again, so that tokens may gain
    weight that had none; the bias decides when all tokens are gone. For softmax and uniform attention this is
    renormalising, and the numbers are the same ones.

    With an affine decoder one pass over cumulative sums in each order gives all removals; with another, or at the word level
    of a hierarchical model (`WordLevel`), as many attentions are decoded as there are tokens.

    Undefined for texts with fewer than two tokens: no orders, sizes and masses NaN; erasing the only weight leaves the bias.

    Source: Serrano & Smith 2019, sections 4 and 5, and their code; re-projection: Meister et al. 2021 remove states so.

    Shapes: B instances, T tokens, C classes, K random orders, R orders in all.
    """

    name, cost = "erasure", "reading"
    needs = frozenset({"classes", "intervention"})
    columns = {
        name: replace(column, needs=frozenset({"states"})) if "reprojected" in name else column
        for name, column in _columns().items()
    }
    metric = {"counterfactual_probs": "erasure_probs"}

    draws: Draws = 5

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        erasing = prepare(subject, batch)
        random = erasing.random_orders(seed, batch["instance_id"], self.draws)
        orders = np.stack([*random, *erasing.orders().values()], 1)
        flips = [erasing.first_flip(orders[:, place]) for place in range(orders.shape[1])]
        sizes, masses, empties = (np.stack(part, 1) for part in zip(*flips, strict=True))
        erased = softmax(erasing.without_each())
        slope, spread = erasing.gradient
        lengths = erasing.lengths
        columns = {
            "erasure_gradient": _cut(spread[:, None] * slope, lengths),
            "erasure_probs": _cut(erased.astype(np.float32), lengths),
            "erasure_order": [
                random[: self.draws if length > 1 else 0, row, :length].astype(np.int32)
                for row, length in enumerate(lengths)
            ],
        }
        made = {
            "erasure_flip_size": sizes.astype(np.float32),
            "erasure_flip_mass": masses.clip(max=1).astype(np.float32),
            "erasure_flip_empty": empties,
        }
        if "states" in subject.capabilities:
            erased_again, sizes_again = _reprojected(subject, batch, erasing, orders, (erased, sizes))
            columns["erasure_reprojected_probs"] = _cut(erased_again.astype(np.float32), lengths)
            made["erasure_reprojected_flip_size"] = sizes_again.astype(np.float32)
        for name, values in made.items():
            columns[f"{name}_random"] = [
                row[: self.draws if length > 1 else 0] for row, length in zip(values[:, : self.draws], lengths, strict=True)
            ]
            for place, ranking in enumerate(RANKINGS, start=self.draws):
                columns[f"{name}_{ranking}"] = values[:, place].tolist()
        return {name: columns[name] for name in self.columns if name in columns}


def _cut(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Padded (B,T,...) as one array (T_b,...) per instance."""
    return [row[:length] for row, length in zip(values, lengths, strict=True)]


def _reprojected(subject, batch, erasing: Erasing, orders: np.ndarray, renormalised) -> tuple[np.ndarray, np.ndarray]:
    """Predictions (B,T,C) without each token and sizes (B,R) where scores are projected again; given those renormalised."""
    if subject.removal_renormalises:
        return renormalised
    project, ignores = projected(subject, batch), subject.ignores_weightless
    return (
        softmax(_reprojected_without_each(erasing, project, ignores)),
        _reprojected_sizes(erasing, project, orders, ignores),
    )


def _reprojected_without_each(erasing: Erasing, project: Callable, ignores_weightless: bool) -> np.ndarray:
    """Logits (B,T,C) with each token left out alone; where the model ignores tokens without weight, of the others alone."""
    width = erasing.attention.shape[1]
    logits = np.repeat(erasing.logits(erasing.whole()), width, 1)
    for row, length in enumerate(erasing.lengths):
        places = np.flatnonzero(erasing.attention[row]) if ignores_weightless else np.arange(length)
        step = max(1, PLACES_AT_ONCE // width)
        for part in (places[start : start + step] for start in range(0, len(places), step)):
            left = (np.arange(width) != part[:, None]) & (np.arange(width) < length)
            weights = project(np.array([row]), left[None])[0]
            contents = erasing.content[row] @ weights.T
            logits[row, part] = erasing.logits(contents[None], slice(row, row + 1))[0]
    return logits


def _reprojected_sizes(erasing: Erasing, project: Callable, orders: np.ndarray, ignores_weightless: bool) -> np.ndarray:
    """Tokens left out (B,R) until the decision changes, in each order (B,R,T); NaN: never.

    Where the model ignores tokens without weight, each round goes on to the next token with weight, for all orders together:
    as many projections as there are changes of attention, not as there are tokens.
    """
    ranks = np.argsort(orders, 2)
    weights = np.repeat(erasing.attention[:, None], orders.shape[1], 1)
    sizes = np.full(orders.shape[:2], np.nan)
    going = np.repeat((erasing.lengths > 1)[:, None], orders.shape[1], 1)
    inside = np.broadcast_to((np.arange(weights.shape[2]) < erasing.lengths[:, None])[:, None], weights.shape)
    counts = weights > 0 if ignores_weightless else inside.copy()
    while going.any():
        rows = going.any(1).nonzero()[0]
        last = np.where(counts[rows], ranks[rows], ranks.shape[2]).min(2)
        left = (ranks[rows] > last[..., None]) & inside[rows]
        weights = project(rows, left)
        counts[rows] = weights > 0 if ignores_weightless else left
        sums = erasing.evidence[rows] @ weights.swapaxes(1, 2)
        changed = erasing.changed(sums, weights.sum(2), rows) & going[rows]
        sizes[rows] = np.where(changed, last + 1, sizes[rows])
        going[rows] &= ~changed & left.any(2)
    return sizes
