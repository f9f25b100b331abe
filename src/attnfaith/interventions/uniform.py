"""Uniform attention: does it matter how a model weights what it attends to?"""

from typing import Literal

import numpy as np
import torch

from attnfaith.interventions.targets import Cross, Maps, TargetMeasure, TokenEdit
from attnfaith.measurement.options import Layers, Rows
from attnfaith.measurement.registry import register
from attnfaith.record import Column
from attnfaith.subjects.attention import ALL


class Uniform(TokenEdit):
    """The weight on tokens is divided equally among those that a row may look at."""

    def other(self, weights, reach):
        on_tokens = self.on_tokens(reach)
        share = weights.masked_fill(~on_tokens, 0).sum(3, keepdim=True) / on_tokens.sum(3, keepdim=True).clamp(min=1)
        return torch.where(on_tokens, share, weights)


class UniformAlone(Uniform):
    """The same in one layer of each copy: alone (N,1), the number of that layer, or -1 for all."""

    alone: torch.Tensor

    def weights(self, number, weights, rows=ALL):
        edited = (self.alone < 0) | (self.alone == number)
        return torch.where(edited[..., None, None], super().weights(number, weights, rows), weights)


@register
class MapUniform(TargetMeasure):
    """Uniform attention maps: does it matter how a stack of layers weights what it attends to?

    over: "text", each row divides what it gives the text's tokens equally among those that it may look at, and markers keep
    their share; "all", it divides all that it gives equally among all positions that it may look at, markers too. layers and
    rows: as for `map_permutation`. Values are the model's own, so this is the model with its attention made a mean, not one
    trained so. A text without tokens stays as it is ("text"). Nothing is random.

    Source: Wiegreffe & Pinter 2019, section 4.1, who train with such weights; here the trained model is read with them.
    """

    name, cost, needs, target = "map_uniform", "reading", frozenset({"attention maps", "classes"}), Maps
    columns = {
        "map_uniform_probs": Column(
            ("C",),
            distribution=True,
            doc="class probabilities when rows of the chosen layers are uniform over what they attend to",
        ),
    }

    layers: Layers = "shown"
    rows: Rows = "all"
    over: Literal["text", "all"] = "text"

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        target = Maps(subject, batch, **self.where)
        owner = torch.arange(len(target.inside), device=target.inside.device)
        edit = target.edit(Uniform, owner)
        if self.over == "all":
            edit.inside = batch["attention_mask"].bool()
        (probs,) = target.outcomes(owner, edit)
        return {"map_uniform_probs": list(probs.astype(np.float32))}


@register
class CrossUniform(TargetMeasure):
    """Uniform cross-attention: what is the weighting of source words worth to each target word?

    The model cannot choose among source words, in all layers at once and in each alone: in every row and head the weight
    that the source words' tokens have together is shared alike among them; markers keep theirs, and what follows is computed
    anew.

    Source: Wiegreffe & Pinter 2019, section 3.2, who train models so; of a model as it is, this is an intervention.
    """

    name, cost, reads, needs, target = "cross_uniform", "reading", "pairs", frozenset({"cross-attention"}), Cross
    columns = {
        "cross_uniform_probs": Column(
            ("G",), range=(0.0, 1.0), doc="probability of the target word where all heads weigh the source's tokens alike"
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
        pairs = []
        for target in Cross.each(subject, batch):
            alone = torch.arange(-1, target.depth, device=target.inside.device).unsqueeze(1)
            owner = torch.zeros(len(alone), dtype=torch.long, device=alone.device)
            outcomes = target.outcomes(owner, target.edit(UniformAlone, owner, alone=alone))
            probs, distances = (values.astype(np.float32) for values in outcomes)
            pairs.append((probs[0], distances[0], probs[1:], distances[1:]))
        return self.in_columns(subject, pairs)
