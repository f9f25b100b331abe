"""Alignments: states, and perhaps a query, to scores, which a projection turns into attention.

Shapes: B instances, T tokens, G decoder steps, H hidden, A alignment size. For a text: `forward(hidden (B,T,H), query (B,H)
or None) -> (B,T)`. For a decoder: `keys(hidden)`, computed once for all steps, and `forward(keys, query)`, from a query
(B,H) to (B,T), or from (B,G,H) to (B,G,T). To add one: a module, and a line in ALIGNMENTS or SEQUENCE_ALIGNMENTS.
"""

import math

import torch
from torch import nn


def tanh(values: torch.Tensor) -> torch.Tensor:
    """tanh(x), in float32 on CPUs as 2 sigmoid(2x) - 1: torch's sigmoid is several times faster there; equal to 1e-6."""
    if values.dtype == torch.float32 and values.device.type == "cpu":
        return values.mul(2).sigmoid().mul(2).sub(1)  # not in place: DeepLIFT replaces this sigmoid
    return values.tanh()


class Additive(nn.Module):
    """v . tanh(W1 h + b), and with a second text v . tanh(W1 h + W2 q + b) (Bahdanau et al. 2015).

    The learned query of a single text is absorbed in b, as in Jain & Wallace's code.
    """

    def __init__(self, config):
        super().__init__()
        size = config.alignment_size or config.hidden_size // 2
        self.key = nn.Linear(config.hidden_size, size)
        self.query = nn.Linear(config.hidden_size, size) if config.query == "text" else None
        self.value = nn.Linear(size, 1, bias=False)

    def forward(self, hidden, query=None):
        keys = self.key(hidden)
        if self.query is not None:
            keys = keys + self.query(query).unsqueeze(-2)
        return self.value(tanh(keys)).squeeze(-1)


class Dot(nn.Module):
    """h . q / sqrt(H), q a learned vector or the state of the second text (Vaswani et al. 2017)."""

    def __init__(self, config):
        super().__init__()
        self.scale = 1 / math.sqrt(config.hidden_size)
        self.query = nn.Linear(config.hidden_size, 1, bias=False) if config.query == "learned" else None

    def forward(self, hidden, query=None):
        if self.query is not None:
            return self.query(hidden).squeeze(-1) * self.scale
        return (hidden @ query.unsqueeze(-1)).squeeze(-1) * self.scale


class SequenceAdditive(nn.Module):
    """v . tanh(W1 h + W2 q + b) of a decoder (Bahdanau et al. 2015)."""

    def __init__(self, config):
        super().__init__()
        size = config.alignment_size or config.hidden_size
        self.key = nn.Linear(config.hidden_size, size)
        self.query = nn.Linear(config.hidden_size, size, bias=False)
        self.value = nn.Linear(size, 1, bias=False)

    def forward(self, keys, query):
        if query.dim() == 3:
            keys = keys.unsqueeze(1)
        return self.value(tanh(keys + self.query(query).unsqueeze(-2))).squeeze(-1)


class SequenceDot(nn.Module):
    """h . q of a decoder (Luong et al. 2015)."""

    def __init__(self, config):
        super().__init__()
        self.key = nn.Identity()

    def forward(self, keys, query):
        if query.dim() == 3:
            return query @ keys.transpose(1, 2)
        return (keys @ query.unsqueeze(-1)).squeeze(-1)


ALIGNMENTS = {"additive": Additive, "dot": Dot}
SEQUENCE_ALIGNMENTS = {"additive": SequenceAdditive, "dot": SequenceDot}
