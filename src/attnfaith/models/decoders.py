"""Decoders: context vector, and perhaps a query, to class logits.

Shapes: B instances, T words, H hidden, C classes; leading dimensions are free. To add a decoder: one module
`forward(context (..., H), query (..., H) or None) -> (..., C)` with an attribute `affine` (in the context), and one line in
DECODERS.
"""

from torch import nn


class Affine(nn.Module):
    """W c + b; with a second text W c + W_q q + b, so that the query is a bias per class."""

    affine = True

    def __init__(self, config):
        super().__init__()
        self.context = nn.Linear(config.hidden_size, config.num_labels)
        self.query = nn.Linear(config.hidden_size, config.num_labels, bias=False) if config.query == "text" else None

    def forward(self, context, query=None):
        logits = self.context(context)
        return logits if self.query is None else logits + self.query(query)


class Tanh(nn.Module):
    """W tanh(W_c c + W_q q + b) + b', Jain & Wallace's read-out for pairs: not affine in c."""

    affine = False

    def __init__(self, config):
        super().__init__()
        size = config.hidden_size // 2
        self.context = nn.Linear(config.hidden_size, size)
        self.query = nn.Linear(config.hidden_size, size) if config.query == "text" else None
        self.output = nn.Linear(size, config.num_labels)

    def forward(self, context, query=None):
        inner = self.context(context)
        if self.query is not None:
            inner = inner + self.query(query)
        return self.output(inner.tanh())


DECODERS = {"affine": Affine, "tanh": Tanh}
