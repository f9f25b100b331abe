"""Alignments of a decoder: its state and the encoder's states to one score per source token.

Shapes: B instances, G decoder steps, T source tokens, H hidden, A alignment size. `keys` is what is made of the encoder's
states once for all steps; `forward(keys, query)` takes one query (B,H) to (B,T), or many (B,G,H) to (B,G,T). To add one: a
module and a line in ALIGNMENTS, and its name in the configuration.
"""

import torch
from torch import nn

from .alignments import tanh


class Additive(nn.Module):
    """v . tanh(W1 h + W2 q + b) (Bahdanau et al. 2015)."""

    def __init__(self, config):
        super().__init__()
        size = config.alignment_size or config.hidden_size
        self.key = nn.Linear(config.hidden_size, size)
        self.query = nn.Linear(config.hidden_size, size, bias=False)
        self.value = nn.Linear(size, 1, bias=False)

    def keys(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B,T,H) to (B,T,A)."""
        return self.key(hidden)

    def forward(self, keys, query):
        if query.dim() == 3:
            keys = keys.unsqueeze(1)
        return self.value(tanh(keys + self.query(query).unsqueeze(-2))).squeeze(-1)


class Dot(nn.Module):
    """h . q (Luong et al. 2015)."""

    def __init__(self, config):
        super().__init__()

    def keys(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B,T,H), as they are."""
        return hidden

    def forward(self, keys, query):
        if query.dim() == 3:
            return query @ keys.transpose(1, 2)
        return (keys @ query.unsqueeze(-1)).squeeze(-1)


class General(Dot):
    """h . W q (Luong et al. 2015)."""

    def __init__(self, config):
        super().__init__(config)
        self.key = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def keys(self, hidden):
        """(B,T,H) to (B,T,H)."""
        return self.key(hidden)


ALIGNMENTS = {"additive": Additive, "dot": Dot, "general": General}
