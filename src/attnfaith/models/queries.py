"""A query that also says which answers it allows. Shapes: B instances, H hidden, C classes; leading dimensions are free."""

from dataclasses import dataclass

import torch


BARRED = -1e4  # added to a logit: a probability of exactly 0 in any precision, and finite where logits are subtracted


@dataclass(frozen=True)
class Query:
    """What a decoder is told of instances besides their states.

    state (B,H) or None: the last state of the second text. answers (B,C) bool: the classes that may be predicted.
    Indexing takes instances, or adds dimensions, in both, as it does in the plain tensor that a query without an answer
    mask is.
    """

    state: torch.Tensor | None
    answers: torch.Tensor

    def __getitem__(self, rows):
        return Query(None if self.state is None else self.state[rows], self.answers[rows])


def state_of(query: torch.Tensor | Query | None) -> torch.Tensor | None:
    """The state of the second text, None where there is none."""
    return query.state if isinstance(query, Query) else query


def barring(query: torch.Tensor | Query | None, like: torch.Tensor) -> torch.Tensor | float:
    """What to add to logits (...,C): BARRED for each class that the query does not allow, else 0."""
    return (~query.answers).to(like) * BARRED if isinstance(query, Query) else 0.0


def allowing(query: torch.Tensor | None, answer_mask: torch.Tensor | None, num_labels: int):
    """The query, with an answer mask (B,C) where one is given: 1 or True for each class that may be predicted.

    Raises ValueError for a mask of another shape and for one that leaves an instance without an answer.
    """
    if answer_mask is None:
        return query
    if answer_mask.dim() != 2 or answer_mask.shape[1] != num_labels:
        raise ValueError(f"answer_mask has shape {tuple(answer_mask.shape)}; give (instances, {num_labels} classes)")
    answers = answer_mask.bool()
    if not bool(answers.any(1).all()):
        row = int((~answers.any(1)).nonzero()[0])
        raise ValueError(f"answer_mask allows no class in row {row}: mark at least one with 1")
    return Query(query, answers)
