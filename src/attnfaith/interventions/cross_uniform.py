"""Uniform cross-attention: what is the weighting of source words worth to each target word?"""

import numpy as np
import torch

from attnfaith.interventions.outcomes import outcomes
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.attention import Edit


class Uniform(Edit):
    """The tokens of words share what they have together; inside (S,) bool, layers (n,): of each copy, -1 for all."""

    per_copy = {"layers": ""}

    def __init__(self, inside: torch.Tensor, layers: torch.Tensor):
        self.inside, self.layers = inside, layers

    def weights(self, layer, weights, rows):
        mass = weights[..., self.inside].sum(3, keepdim=True)
        other = torch.where(self.inside, mass / self.inside.sum().clamp(min=1), weights)
        asked = (self.layers < 0) | (self.layers == layer)
        return torch.where(asked[:, None, None, None], other, weights)


@register
class CrossUniform(Measure):
    """Uniform cross-attention: what is the weighting of source words worth to each target word?

    What the model says of the target where it cannot choose among source words: in all layers at once, and in each alone.

    In every row and head the weight that the source words' tokens have together is shared alike among them; markers keep
    theirs, and what follows is computed anew.

    Source: Wiegreffe & Pinter 2019, section 3.2, who train models so; of a model as it is, this is an intervention.
    """

    name, cost = "cross_uniform", "reading"
    reads = "pairs"
    needs = frozenset({"cross-attention"})
    columns = {
        "cross_uniform_probs": Column(
            ("G",),
            range=(0.0, 1.0),
            doc="probability of the target word where all heads and layers weigh the source words' tokens alike",
        ),
        "cross_uniform_tvd": Column(
            ("G",),
            range=(0.0, 1.0),
            doc="total variation distance of the next token's distribution from the model's own, mean over the word's "
            "tokens",
        ),
        "cross_uniform_layer_probs": Column(("L", "G"), range=(0.0, 1.0), doc="the probability where one layer alone does"),
        "cross_uniform_layer_tvd": Column(("L", "G"), range=(0.0, 1.0), doc="the distance where one layer alone does"),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        columns = {name: [] for name in self.columns}
        for row in range(len(batch)):
            pair = batch.alone(row)
            layers = torch.arange(-1, subject.attention(pair).shape[1], device=subject.device)
            log_probs, distances = outcomes(subject, pair, Uniform(pair["source_words"][0] >= 0, layers), len(layers))
            probs = log_probs.exp().float().cpu().numpy()
            distances = distances.numpy().astype(np.float32)
            for name, value in zip(self.columns, (probs[0], distances[0], probs[1:], distances[1:]), strict=True):
                columns[name].append(value)
        return columns
