"""Decoders: context vector, and perhaps a query, to class logits.

Shapes: B instances, T words, H hidden, C classes; leading dimensions are free. To add a decoder: one module
`forward(context (..., H), query (..., H) or None) -> (..., C)` with an attribute `affine` (in the context), and one line in
DECODERS.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from .modeling_common import refuse


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
BARRED = -1e4  # added to a logit: a probability of exactly 0 in any precision, and finite where logits are subtracted


@dataclass(frozen=True)
class Query:
    """What a decoder reads besides states; each field may be None. Indexing selects instances in all fields.

    state (B,H): the last state of the second text. answers (B,C) bool: the classes that may be predicted.
    """

    state: torch.Tensor | None = None
    answers: torch.Tensor | None = None

    def __getitem__(self, rows):
        return Query(*(None if part is None else part[rows] for part in vars(self).values()))


def state_of(query: torch.Tensor | Query | None) -> torch.Tensor | None:
    """Return the state of the second text, or None."""
    return query.state if isinstance(query, Query) else query


def answer_bias(query: torch.Tensor | Query | None, like: torch.Tensor) -> torch.Tensor | float:
    """Return the bias of logits (...,C): BARRED for each class that the query does not allow, else 0."""
    answers = query.answers if isinstance(query, Query) else None
    return 0.0 if answers is None else (~answers).to(like) * BARRED


def with_answers(query: torch.Tensor | Query | None, answer_mask: torch.Tensor | None, num_labels: int):
    """Add an answer mask (B,C) to the query, 1 or True for each class that may be predicted; None changes nothing.

    Raises ValueError for a mask of another shape, and a row without an answer.
    """
    if answer_mask is None:
        return query
    if answer_mask.dim() != 2 or answer_mask.shape[1] != num_labels:
        raise ValueError(f"answer_mask has shape {tuple(answer_mask.shape)}; give (instances, {num_labels} classes)")
    answers = answer_mask.bool()
    refuse(~answers.any(1), "answer_mask allows no class in {row}: mark at least one with 1")
    return replace(query if isinstance(query, Query) else Query(query), answers=answers)
