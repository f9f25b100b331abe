"""Uniform attention maps: does it matter how a stack of layers weights what it attends to?"""

from typing import Literal

import torch

from attnfaith.interventions.maps import Asked, Changed, chosen_layers
from attnfaith.measurement.options import Layers, Rows
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


OVER = ("text", "all")


@register
class MapUniform(Measure):
    """Uniform attention maps: does it matter how a stack of layers weights what it attends to?

    What the model says when its maps make no difference between tokens.

    over: "text", each row divides what it gives the text's tokens equally among those that it may look at, and markers keep
    their share; "all", it divides all that it gives equally among all positions that it may look at, markers too. layers and
    rows: as for `map_permutation`. Values are the model's own, so that this is the model with its attention made a mean, not
    one trained so. A text without tokens stays as it is ("text"). Nothing is random.

    Source: Wiegreffe & Pinter 2019, section 4.1, who train with such weights; here the trained model is read with them.
    """

    name, cost = "map_uniform", "reading"
    needs = frozenset({"attention maps", "classes"})
    columns = {
        "map_uniform_probs": Column(
            ("C",),
            distribution=True,
            doc="class probabilities when every row of the chosen layers is uniform over what it attends to",
        ),
    }

    layers: Layers = "shown"
    rows: Rows = "all"
    over: Literal["text", "all"] = "text"

    def check(self, subject, dataset) -> None:
        """Raises ValueError for a layer that there is not."""
        chosen_layers(subject, self.layers)

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        asked = Asked(subject, batch, self.layers, self.rows)
        owner = torch.arange(len(asked.inside), device=asked.inside.device)
        edit = asked.edit(Uniform, owner)
        if self.over == "all":
            edit.inside = batch["attention_mask"].bool()
        return {"map_uniform_probs": list(asked.logits(owner, edit).softmax(-1).float().cpu().numpy())}


class Uniform(Changed):
    """Rows whose weight on `inside` is divided equally among those places of it that the row may look at."""

    def row(self, weights, reach):
        dealt = reach & self.inside[:, None, None]
        share = weights.masked_fill(~dealt, 0).sum(3, keepdim=True) / dealt.sum(3, keepdim=True).clamp(min=1)
        return torch.where(dealt, share, weights)
