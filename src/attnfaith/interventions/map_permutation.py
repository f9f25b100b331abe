"""Permutation of the attention maps of a stack of layers: does it matter which token has which weight?"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.maps import Asked, Changed, chosen_layers
from attnfaith.measurement.options import Draws, Layers, Rows
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


@register
class MapPermutation(Measure):
    """Permutation of the attention maps of a stack of layers: does it matter which token has which weight?

    What the model says when the weights of a text are dealt out anew among its tokens, `draws` times.

    In each draw one of the T! orders of the text's tokens, all equally likely, says which token gets which token's weight:
    in all heads and rows of the chosen layers the same one. Markers keep their weight, and everything behind a changed layer
    is computed anew, later attention too. A row that may not look at all tokens, as in a decoder, deals out what it has
    among those that it may look at, in the same order. Of a pair the tokens of both texts are one text.

    layers: "shown", those that the reduction takes; "last"; "all"; or numbers from 0 on. rows: "all", or "matter", the rows
    of the last layer that the logits depend on; in the last layer that is the same. Every draw is kept, [K][C]. A text of
    fewer than two tokens has one order only: K = 0. A draw costs what the model computes from the first changed layer on.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2, for the one attention of their models.
    """

    name, cost = "map_permutation", "draws"
    needs = frozenset({"attention maps", "classes"})
    columns = {
        "map_permuted_probs": Column(
            ("K", "C"),
            distribution=True,
            undefined="below two tokens: no draws",
            doc="class probabilities after each random permutation of the weights on a text's tokens, the same one in "
            "every row "
            "and head of the chosen layers",
        ),
    }
    metric = {"counterfactual_probs": "map_permuted_probs"}

    draws: Draws = 20
    layers: Layers = "shown"
    rows: Rows = "all"

    def check(self, subject, dataset) -> None:
        """Raises ValueError for a layer that there is not."""
        chosen_layers(subject, self.layers)

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        asked = Asked(subject, batch, self.layers, self.rows)
        orders = [_orders(asked.places(row), seed, name, self.draws) for row, name in enumerate(batch["instance_id"])]
        logits = _permuted(asked, orders)
        counts = np.cumsum([len(order) for order in orders])[:-1]
        return {"map_permuted_probs": np.split(logits.softmax(-1).float().cpu().numpy(), counts)}


def _orders(places: np.ndarray, seed: int, name: str, draws: int) -> np.ndarray:
    """(K,T): which place's weight each token gets."""
    draws = draws if len(places) > 1 else 0
    return generator(seed, name, "permutation").permuted(np.broadcast_to(places, (draws, len(places))), axis=1)


def _permuted(asked: Asked, orders: list[np.ndarray]) -> torch.Tensor:
    """Logits (N,C) of all draws of all instances, those of an instance together."""
    width, device = asked.inside.shape[1], asked.inside.device
    owner = torch.from_numpy(np.repeat(np.arange(len(orders)), [len(order) for order in orders])).to(device)
    sources = np.tile(np.arange(width), (len(owner), 1))
    start = 0
    for row, order in enumerate(orders):
        sources[start : start + len(order), asked.places(row)] = order
        start += len(order)
    return asked.logits(owner, asked.edit(Permuted, owner, torch.from_numpy(sources).to(device)))


class Permuted(Changed):
    """Each place has the weight that was another's: sources (N,L), themselves where places are no token's."""

    per_copy = ("sources",)

    def __init__(self, numbers, inside, rows, sources):
        super().__init__(numbers, inside, rows)
        self.sources = sources

    def row(self, weights, reach):
        sources = self.sources[:, None, None].expand(-1, 1, weights.shape[2], -1)
        dealt = reach & self.inside[:, None, None]
        if bool((dealt == self.inside[:, None, None]).all()):
            return weights.gather(3, sources.expand_as(weights))
        # of the tokens in order, and of those whose weight they would get, the ones that the row may look at
        targets = (~dealt).byte().argsort(dim=3, stable=True)
        given = sources.gather(3, (~dealt.gather(3, sources)).byte().argsort(dim=3, stable=True))
        other = torch.zeros_like(weights).scatter(3, targets.expand_as(weights), weights.gather(3, given.expand_as(weights)))
        return torch.where(dealt, other, weights)
