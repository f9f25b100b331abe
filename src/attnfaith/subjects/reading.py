"""What reading a batch gives, the edits that a classifier of transformers asks for, and parts of a batch put together.

Shapes: B instances, L input positions, H heads, C classes, D the size of a head's values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from attnfaith.subjects.attention_hook import Edit, Map


@dataclass(frozen=True)
class Read:
    """What a model makes of a batch: logits (B,C), and its maps over input positions, first layer first; weights
    (B,H,L,L), values (B,H,L,D) and outputs (B,H,L,D), 0 behind shorter texts. rows (B,L): the rows of the last of them that
    matter, None where they were not asked for.
    """

    logits: torch.Tensor
    maps: list[Map] = field(default_factory=list)
    rows: torch.Tensor | None = None


class Held(Edit):
    """Attention that no gradient flows through."""

    def weights(self, number, weights):
        return weights.detach()


def nothing(number: int) -> bool:
    """No map is kept."""
    return False


def lengths_of(mask: torch.Tensor) -> torch.Tensor:
    """(B,): the places up to the last that is attended to, at least 1."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.bool() * places).amax(1).clamp(min=1)


class Given(Edit):
    """Other weights on the tokens of a text, in rows of one head."""

    def __init__(self, layer, head, attention, inside, rows):
        self.layer, self.head, self.attention, self.inside, self.rows = layer, head, attention, inside, rows

    def take(self, chosen, length):
        parts = (part[chosen, :length] for part in (self.attention, self.inside, self.rows))
        return Given(self.layer, self.head, *parts)

    def weights(self, number, weights):
        if number != self.layer:
            return weights
        own, inside = weights[:, self.head], self.inside.unsqueeze(1)
        share = own.masked_fill(~inside, 0).sum(2, keepdim=True)
        other = torch.where(inside, self.attention.unsqueeze(1).to(own) * share, own)
        other = torch.where(self.rows.unsqueeze(2), other, own)
        return torch.cat([weights[:, : self.head], other.unsqueeze(1), weights[:, self.head + 1 :]], 1)


class Watched(Edit):
    """An edit, and the output of one layer as a leaf that gradients are taken of."""

    def __init__(self, edit: Edit, last: int):
        self.edit, self.last, self.leaf = edit, last, None

    def scores(self, number, scores):
        return self.edit.scores(number, scores)

    def weights(self, number, weights):
        return self.edit.weights(number, weights)

    def values(self, number, values):
        return self.edit.values(number, values)

    def output(self, number, output):
        output = self.edit.output(number, output)
        if number != self.last:
            return output
        self.leaf = output if output.requires_grad else output.detach().requires_grad_()
        return self.leaf

    def rows(self, logits: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """(B,Q) bool: the rows whose output the logits depend on, see `rows_that_matter`."""
        return rows_that_matter(logits, [self.leaf], attended)[0]


def rows_that_matter(logits: torch.Tensor, outputs: Sequence[torch.Tensor], attended: torch.Tensor) -> list[torch.Tensor]:
    """The rows (B,Q) bool of each layer's output (B,H,Q,D) that the logits (B,C) depend on, first layer first.

    attended (B,Q): the mask that the model was given. Of the last layer a row matters by structure, whatever the numbers:
    slopes of NaN go back from the logits. NaN times anything is NaN, so it reaches every row with a path to the logits, and
    no rounding, no cancelling sum and no tanh that gives exactly 1 stops it; a row without a path keeps an exact 0. Where a
    model multiplies what is not attended to by 0 NaN would pass, so such a row's own slope must not be 0 either. Before the
    last layer NaN would pass the weights of 0 that a mask leaves in attention: a row matters whose slope is not 0.
    """
    weights = torch.linspace(1, 2, logits.shape[1], dtype=logits.dtype, device=logits.device)  # not all alike
    own, nan = weights.expand_as(logits), torch.full_like(logits, torch.nan)
    slopes = _slopes(logits, outputs, own)
    *rows, last = [(slope != 0).any(3).any(1) for slope in slopes]
    reached = _slopes(logits, outputs[-1:], nan)[0].isnan().any(3).any(1)
    return [*rows, reached & (attended.bool() | last)]


def _slopes(logits: torch.Tensor, outputs: Sequence[torch.Tensor], seed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad([logits], outputs, [seed], retain_graph=True, allow_unused=True, materialize_grads=True)


def joined(parts: list[Read], order: torch.Tensor, width: int) -> Read:
    """Parts of a batch as one, whose instances `order` names."""
    back = order.argsort()

    def padded(values: torch.Tensor, *axes: int) -> torch.Tensor:
        missing = width - values.shape[axes[0]]
        sizes = [0, 0] * values.dim()
        for axis in axes:
            sizes[2 * (values.dim() - 1 - axis) + 1] = missing
        return torch.nn.functional.pad(values, sizes)

    maps = []
    for same in zip(*(part.maps for part in parts), strict=True):
        weights = torch.cat([padded(one.weights, 2, 3) for one in same])[back]
        values, output = (torch.cat([padded(getattr(one, name), 2) for one in same])[back] for name in ("values", "output"))
        maps.append(replace(same[0], weights=weights, values=values, output=output))
    rows = None if parts[0].rows is None else torch.cat([padded(part.rows, 1) for part in parts])[back]
    return Read(torch.cat([part.logits for part in parts])[back], maps, rows)
