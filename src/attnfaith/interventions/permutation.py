"""Permutation of attention (Jain & Wallace 2019, Algorithm 2): does it matter which token has which weight?"""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.targets import AFFINE, Readout, read_out, softmax, under
from attnfaith.measurement.options import Draws
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import asks


@register
class Permutation(Measure):
    """Permutation of attention (Jain & Wallace 2019, Algorithm 2): does it matter which token has which weight?

    What the model says when the weights of a text are dealt out anew among its tokens, `draws` times.

    Each draw is one of the T! orders of the attendable weights, all equally likely and each draw independent of the others;
    the weights and the encoder's states stay what they are. Every draw is kept, [K][C]: a table takes the median of its
    total variation distances to the prediction. A text of fewer than two tokens has one order only: K = 0.

    With an affine decoder a draw costs T C products; with another, a pass of the decoder.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2.
    """

    name, cost = "permutation", "reading"
    needs = frozenset({"classes", "intervention"})
    columns = {
        "permuted_probs": Column(
            ("K", "C"),
            distribution=True,
            undefined="below two tokens: no draws",
            doc="class probabilities after each random permutation of the attention weights, states fixed",
        ),
    }
    metric = {"counterfactual_probs": "permuted_probs"}

    draws: Draws = 100

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        read = read_out(subject, batch)
        orders = []
        for one, name in zip(read, batch["instance_id"], strict=True):
            length = len(one.attention)
            places = np.broadcast_to(np.arange(length), (self.draws if length > 1 else 0, length))
            orders.append(generator(seed, name, "permutation").permuted(places, axis=1))
        return {"permuted_probs": [probs.astype(np.float32) for probs in _reread(subject, batch, read, orders)]}


@asks(Permutation.needs)
def permuted(subject, batch, orders: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Class probabilities (K,C) in float64 of each instance when its attention is read in given orders.

    orders: one array (K,T) of integers per instance; under order o, token t has the weight that was token o[t]'s. Instances
    may differ in K. Raises ValueError where there is not one array per instance, or a row of one is not an order of the
    instance's tokens.
    """
    read = read_out(subject, batch)
    if len(orders) != len(read):
        raise ValueError(f"orders of {len(orders)} instances for a batch of {len(read)}: give one array (K,T) for each")
    orders = [np.asarray(order) for order in orders]
    for row, (one, order) in enumerate(zip(read, orders, strict=True)):
        length = len(one.attention)
        if order.ndim != 2 or order.shape[1] != length or not (np.sort(order, axis=1) == np.arange(length)).all():
            raise ValueError(f"orders of instance {row}: give (K,T) with each of 0..T-1 once in a row; T={length} tokens")
    return _reread(subject, batch, read, orders)


@torch.no_grad()
def _reread(subject, batch, read: list[Readout], orders: list[np.ndarray]) -> list[np.ndarray]:
    if AFFINE in subject.capabilities:
        logits = [one.logits(one.attention[order]) for one, order in zip(read, orders, strict=True)]
        return np.split(softmax(np.concatenate(logits)), np.cumsum([len(part) for part in logits[:-1]]))
    predictions = []
    for row, (one, order) in enumerate(zip(read, orders, strict=True)):
        if not len(order):
            predictions.append(np.empty((0, len(one.probs))))
            continue
        asked = under(subject, batch, [row])
        weights = np.pad(one.attention[order], ((0, 0), (0, 0 if len(one.attention) else 1)))  # T is at least 1 there
        logits = asked(torch.from_numpy(weights).to(subject.device, asked.dtype)[None])
        predictions.append(logits[0].double().softmax(-1).cpu().numpy())
    return predictions
