"""Permutation of cross-attention: does it matter which source word has which weight?"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.outcomes import chosen_layers, outcomes
from attnfaith.measurement.options import CrossLayers, Draws
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.attention import Edit


_FEW = "below two source tokens: no draws"


class Permuted(Edit):
    """Each place has the weight that was another's: sources (n,S), themselves where a place is no word's."""

    per_copy = {"sources": "S"}

    def __init__(self, layers: frozenset[int], sources: torch.Tensor):
        self.layers, self.sources = layers, sources

    def weights(self, layer, weights, rows):
        if layer not in self.layers:
            return weights
        return weights.gather(3, self.sources[:, None, None].expand_as(weights))


@register
class CrossPermutation(Measure):
    """Permutation of cross-attention: does it matter which source word has which weight?

    What the model says of the target when the weights of the source are dealt out anew among its tokens, `draws` times.

    In each draw one of the orders of the source words' tokens, all equally likely, says which token gets which one's weight,
    in all heads and rows of the chosen layers alike; markers keep theirs, and what follows is computed anew. layers: "all",
    or numbers from 0 on. A source of one token has one order only: K = 0.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2, for one attention over a text.
    """

    name, cost = "cross_permutation", "draws"
    reads = "pairs"
    needs = frozenset({"cross-attention"})
    columns = {
        "cross_permuted_probs": Column(
            ("K", "G"),
            range=(0.0, 1.0),
            undefined=_FEW,
            doc="probability of each target word after each random permutation of the weights on the source words' "
            "tokens, the "
            "same one in every row, head and chosen layer",
        ),
        "cross_permuted_tvd": Column(
            ("K", "G"),
            range=(0.0, 1.0),
            undefined=_FEW,
            doc="total variation distance of the next token's distribution from the model's own, mean over the word's "
            "tokens",
        ),
    }

    draws: Draws = 10
    layers: CrossLayers = "all"

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        columns = {name: [] for name in self.columns}
        for row, name in enumerate(batch["instance_id"]):
            pair = batch.alone(row)
            chosen = chosen_layers(self.layers, subject.attention(pair).shape[1])
            places = np.flatnonzero((pair["source_words"][0] >= 0).cpu().numpy())
            count = self.draws if len(places) > 1 else 0
            orders = generator(seed, name, "cross_permutation").permuted(
                np.broadcast_to(places, (count, len(places))), axis=1
            )
            sources = np.tile(np.arange(pair["input_ids"].shape[1]), (count, 1))
            sources[:, places] = orders
            edit = Permuted(chosen, torch.from_numpy(sources).to(subject.device))
            log_probs, distances = outcomes(subject, pair, edit, count)
            columns["cross_permuted_probs"].append(log_probs.exp().float().cpu().numpy())
            columns["cross_permuted_tvd"].append(distances.numpy().astype(np.float32))
        return columns
