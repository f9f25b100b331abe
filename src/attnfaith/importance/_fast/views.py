"""What a classifier's alignment and affine decoder read of states: scores and values per class, linear where that is known.

Shapes: B instances, H hidden, A alignment size, C classes, V changes made together.
"""

import torch

from attnfaith.importance._fast.shared import View
from attnfaith.models.alignments import Additive, Dot
from attnfaith.models.queries import state_of


class Reading:
    """A model's scores and class values of states (V,B,p,H) of B texts, which a query may have been read with.

    view: what is linear in states, for engines that need not make them; None where the alignment is not known by its type
    to be so, and then `of` takes states. bias (C,) or (B,C): what is added to the sum of class values.
    """

    def __init__(self, model, query=None):
        self.model, self.query = model.model, query
        self.weight, self.bias = model.decoder_weights(query)
        keys = KEYS.get(type(self.model.alignment), _no_keys)(self.model.alignment, query)
        self.view = None
        if keys is not None:
            weight, bias, self.score = keys
            nothing = bias.new_zeros(*bias.shape[:-1], len(self.weight))
            self.view = View(torch.cat([weight, self.weight]), torch.cat([bias, nothing], -1))

    def of(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores (V,B,p) and class values (V,B,p,C) of what the view reads of states, or of states."""
        if self.view is None:
            deletions, batch = seen.shape[:2]
            flat = seen.flatten(0, 1)
            scores = self.model.scores(flat, repeated(self.query, deletions, batch, seen.device)).view(seen.shape[:3])
            return scores, seen @ self.weight.t()
        size = len(self.weight)
        return self.score(seen[..., :-size]), seen[..., -size:]


def repeated(query, deletions: int, batch: int, device):
    """The queries of B texts for V changes of each, V B rows."""
    return None if query is None else query[torch.arange(batch, device=device).repeat(deletions)]


def _additive_keys(alignment, query):
    bias = alignment.key.bias
    if alignment.query is not None:
        bias = bias + alignment.query(state_of(query))
    # tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is several times faster: the keys come doubled, and v . tanh is halved
    weight = 2 * alignment.value.weight[0]
    return 2 * alignment.key.weight, 2 * bias, lambda keys: keys.sigmoid().sub_(0.5) @ weight


def _dot_keys(alignment, query):
    if alignment.query is None:
        return None  # every text is asked by another vector
    weight = alignment.query.weight
    return weight, weight.new_zeros(1), lambda keys: keys.squeeze(-1) * alignment.scale


def _no_keys(alignment, query):
    return None


KEYS = {Additive: _additive_keys, Dot: _dot_keys}
"""Of an alignment of exactly this type: weight (A,H) and bias (A,) or (B,A) of its keys, and what makes scores of keys."""
