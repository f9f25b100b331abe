"""Permutation of the attention maps of a stack of layers: does it matter which token has which weight?"""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith._random import generator
from attnfaith.experiments._maps import Asked, Changed, check_layers, chosen_layers
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "map_permuted_probs": Column(
        ("K", "C"),
        distribution=True,
        undefined="below two tokens: no draws",
        doc="class probabilities after each random permutation of the weights on a text's tokens, the same one in every row "
        "and head of the chosen layers",
    ),
}
NEEDS = frozenset({"classes", "attention maps"})
COST = "draws"
METRIC = {"counterfactual_probs": "map_permuted_probs"}


def check(*, draws: int = 20, layers: str | Sequence[int] = "shown", rows: str = "all") -> None:
    """Raises ValueError for draws < 1, and for layers and rows as `_maps.check_layers` says."""
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise ValueError(f"draws={draws!r}; give the number of permutations of each text, a whole number of at least 1")
    check_layers(layers, rows)


def check_model(subject, dataset, *, layers: str | Sequence[int] = "shown", **_options) -> None:
    """Raises ValueError for a layer that there is not."""
    chosen_layers(subject, layers)


@asks(NEEDS)
def measure(
    subject, batch, *, seed: int = 0, draws: int = 20, layers: str | Sequence[int] = "shown", rows: str = "all"
) -> dict[str, list]:
    """What the model says when the weights of a text are dealt out anew among its tokens, `draws` times.

    In each draw one of the T! orders of the text's tokens, all equally likely, says which token gets which token's weight:
    in all heads and rows of the chosen layers the same one. Markers keep their weight, and everything behind a changed layer
    is computed anew, later attention too. A row that may not look at all tokens, as in a decoder, deals out what it has
    among those that it may look at, in the same order. Of a pair the tokens of both texts are one text.

    layers: "shown", those that the reduction takes; "last"; "all"; or numbers from 0 on. rows: "all", or "matter", the rows
    of the last layer that the logits depend on; in the last layer that is the same. Every draw is kept, [K][C]. A text of
    fewer than two tokens has one order only: K = 0. A draw costs what the model computes from the first changed layer on.

    Raises ValueError as `check` and `check_model` say.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2, for the one attention of their models.
    """
    check(draws=draws, layers=layers, rows=rows)
    asked = Asked(subject, batch, layers, rows)
    orders = [_orders(asked.places(row), seed, name, draws) for row, name in enumerate(batch["instance_id"])]
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
