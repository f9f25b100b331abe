"""Permutation of attention (Jain & Wallace 2019, Algorithm 2): does it matter which token has which weight?"""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.interventions.targets import Cross, Maps, Pooled, Target, TargetMeasure, TokenEdit
from attnfaith.measurement.options import CrossLayers, Draws, Layers, Rows
from attnfaith.measurement.registry import register
from attnfaith.record import Column


NO_DRAWS = "below two tokens: no draws"


class Permuted(TokenEdit):
    """Each place has the weight that was another's: sources (N,S), themselves where places hold no token."""

    sources: torch.Tensor

    def other(self, weights, reach):
        sources = self.sources[:, None, None].expand(-1, 1, weights.shape[2], -1)
        on_tokens = self.on_tokens(reach)
        if bool((on_tokens == self.inside[:, None, None]).all()):
            return weights.gather(3, sources.expand_as(weights))
        # Some rows see only a part of the tokens. The first token that a row sees, in the order of the text, gets the weight
        # of the first that it sees in the order of `sources`, and so on.
        receivers = (~on_tokens).byte().argsort(dim=3, stable=True)
        givers = sources.gather(3, (~on_tokens.gather(3, sources)).byte().argsort(dim=3, stable=True))
        dealt = torch.zeros_like(weights).scatter(
            3, receivers.expand_as(weights), weights.gather(3, givers.expand_as(weights))
        )
        return torch.where(on_tokens, dealt, weights)


def read_permuted(target: Target, orders: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The outcomes of a target, each as one array (K,...) an instance, under orders (K,T) of the places of each instance."""
    counts = [len(order) for order in orders]
    owner = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    sources = np.tile(np.arange(target.inside.shape[1]), (len(owner), 1))
    first = 0
    for places, order in zip(target.places, orders, strict=True):
        sources[first : first + len(order), places] = order
        first += len(order)
    edit = target.edit(Permuted, owner, sources=torch.from_numpy(sources).to(target.inside.device))
    return [np.split(values, np.cumsum(counts)[:-1]) for values in target.outcomes(owner, edit)]


class _Permutation(TargetMeasure):
    draws: int
    purpose = "permutation"

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        columns = {name: [] for name in self.columns}
        for target in self.target.each(subject, batch, **self.where):
            outcomes = read_permuted(target, target.random_orders(self.draws, seed, self.purpose))
            for name, values in zip(columns, outcomes, strict=True):
                columns[name] += [value.astype(np.float32) for value in values]
        return columns


@register
class Permutation(_Permutation):
    """Permutation of attention (Jain & Wallace 2019, Algorithm 2): does it matter which token has which weight?

    The weights of a text are dealt out anew among its tokens, `draws` times. Each draw is one of the T! orders of the
    attendable weights, all equally likely and independent; the weights and the encoder's states stay what they are. Every
    draw is kept, [K][C]: a table takes the median of its total variation distances to the prediction. A text of fewer than
    two tokens has one order only: K = 0. With an affine decoder a draw costs T C products; with another, a pass of the
    decoder.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2.
    """

    name, cost, needs, target = "permutation", "reading", frozenset({"classes", "intervention"}), Pooled
    columns = {
        "permuted_probs": Column(
            ("K", "C"),
            distribution=True,
            undefined=NO_DRAWS,
            doc="class probabilities after each random permutation of the attention weights, states fixed",
        ),
    }
    metric = {"counterfactual_probs": "permuted_probs"}

    draws: Draws = 100


@register
class MapPermutation(_Permutation):
    """Permutation of the attention maps of a stack of layers: does it matter which token has which weight?

    In each of `draws` draws one of the T! orders of the text's tokens, all equally likely, gives each token another
    token's weight: the same order in all heads and rows of the chosen layers. Markers keep their weight, and everything
    behind a changed layer is computed anew, later attention too. A row that may not look at all tokens, as in a decoder,
    deals out what it has among those that it may look at, in the same order. The tokens of both texts of a pair count as one
    text.

    layers: "shown", those that the reduction takes; "last"; "all"; or numbers from 0 on. rows: "all", or "matter", the rows
    of the last layer that the logits depend on; in the last layer that is the same. Every draw is kept, [K][C]. A text of
    fewer than two tokens has one order only: K = 0. A draw costs what the model computes from the first changed layer on.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2, for the one attention of their models.
    """

    name, cost, needs, target = "map_permutation", "draws", frozenset({"attention maps", "classes"}), Maps
    columns = {
        "map_permuted_probs": Column(
            ("K", "C"),
            distribution=True,
            undefined=NO_DRAWS,
            doc="class probabilities after each random permutation of the weights on a text's tokens, the same one in "
            "every row and head of the chosen layers",
        ),
    }
    metric = {"counterfactual_probs": "map_permuted_probs"}

    draws: Draws = 20
    layers: Layers = "shown"
    rows: Rows = "all"


@register
class CrossPermutation(_Permutation):
    """Permutation of cross-attention: does it matter which source word has which weight?

    In each of `draws` draws one of the orders of the source words' tokens, all equally likely, gives each token another
    one's weight, in all heads and rows of the chosen layers alike; markers keep theirs, and what follows is computed anew.
    layers: "all", or numbers from 0 on. A source of one token has one order only: K = 0.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2, for one attention over a text.
    """

    name, cost, reads, needs, target = "cross_permutation", "draws", "pairs", frozenset({"cross-attention"}), Cross
    purpose = "cross_permutation"
    columns = {
        "cross_permuted_probs": Column(
            ("K", "G"),
            range=(0.0, 1.0),
            undefined="below two source tokens: no draws",
            doc="probability of each target word after each random permutation of the weights on the source words' tokens, "
            "the same one in every row, head and chosen layer",
        ),
        "cross_permuted_tvd": Column(
            ("K", "G"),
            range=(0.0, 1.0),
            undefined="below two source tokens: no draws",
            doc="total variation distance of the next token's distribution from the model's own, mean over the word's "
            "tokens",
        ),
    }

    draws: Draws = 10
    layers: CrossLayers = "all"
