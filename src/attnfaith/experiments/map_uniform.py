"""Uniform attention maps: does it matter how a stack of layers weights what it attends to?"""

from collections.abc import Sequence

import torch

from attnfaith.experiments._maps import Asked, Changed, check_layers, chosen_layers
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "map_uniform_probs": Column(
        ("C",),
        distribution=True,
        doc="class probabilities when every row of the chosen layers is uniform over what it attends to",
    ),
}
NEEDS = frozenset({"classes", "attention maps"})
COST = "reading"
METRIC: dict[str, str] = {}  # of one other attention, not of draws
OVER = ("text", "all")


def check(*, layers: str | Sequence[int] = "shown", rows: str = "all", over: str = "text") -> None:
    """Raises ValueError for an unknown `over`, and for layers and rows as `_maps.check_layers` says."""
    if over not in OVER:
        raise ValueError(f"over={over!r}; give one of {', '.join(OVER)}")
    check_layers(layers, rows)


def check_model(subject, dataset, *, layers: str | Sequence[int] = "shown", **_options) -> None:
    """Raises ValueError for a layer that there is not."""
    chosen_layers(subject, layers)


@asks(NEEDS)
def measure(
    subject, batch, *, seed: int = 0, layers: str | Sequence[int] = "shown", rows: str = "all", over: str = "text"
) -> dict[str, list]:
    """What the model says when its maps make no difference between tokens.

    over: "text", each row divides what it gives the text's tokens equally among those that it may look at, and markers keep
    their share; "all", it divides all that it gives equally among all positions that it may look at, markers too. layers and
    rows: as for `map_permutation`. Values are the model's own, so that this is the model with its attention made a mean, not
    one trained so. A text without tokens stays as it is ("text"). Nothing is random.

    Raises ValueError as `check` and `check_model` say.

    Source: Wiegreffe & Pinter 2019, section 4.1, who train with such weights; here the trained model is read with them.
    """
    check(layers=layers, rows=rows, over=over)
    asked = Asked(subject, batch, layers, rows)
    owner = torch.arange(len(asked.inside), device=asked.inside.device)
    edit = asked.edit(Uniform, owner)
    if over == "all":
        edit.inside = batch["attention_mask"].bool()
    return {"map_uniform_probs": list(asked.logits(owner, edit).softmax(-1).float().cpu().numpy())}


class Uniform(Changed):
    """Rows whose weight on `inside` is divided equally among those places of it that the row may look at."""

    def row(self, weights, reach):
        dealt = reach & self.inside[:, None, None]
        share = weights.masked_fill(~dealt, 0).sum(3, keepdim=True) / dealt.sum(3, keepdim=True).clamp(min=1)
        return torch.where(dealt, share, weights)
