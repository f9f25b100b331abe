"""Products of matrices of layers, from the rows that matter down to the tokens.

Shapes: L input positions, T tokens of a text.
"""

from collections.abc import Callable, Iterable

import torch

from attnfaith.subjects import Batch, Subject


@torch.no_grad()
def rolled_out(subject: Subject, batch: Batch, mixing: Callable[..., Iterable[torch.Tensor]]) -> list:
    """(T,) of each instance: the mean of the rows that matter of M_n ... M_1, divided by its sum, at the tokens; M_l are the
    matrices (L,L) in float64 of mixing(subject, text, layers). Each text is read alone, so without padding.
    """
    scores = []
    for row in range(len(batch["input_ids"])):
        text = batch.alone(row)
        layers, matter = subject.layers(text)
        scores.append(carried(mixing(subject, text, layers), matter)[subject.attendable(text)[0]].float().cpu().numpy())
    return scores


def carried(matrices: Iterable[torch.Tensor], matter: torch.Tensor) -> torch.Tensor:
    """(L,): the mean of the rows `matter` (L,) bool of the product of matrices (L,L), first layer first, over its sum."""
    rows = matter.double() / matter.sum()
    for matrix in reversed(list(matrices)):
        rows = rows @ matrix
        rows = rows / rows.sum()  # at every step: products of many layers are too large for any number
    return rows


def shares(matrix: torch.Tensor) -> torch.Tensor:
    """Rows divided by their sums; one of zeros as it is."""
    total = matrix.sum(1, keepdim=True)
    return torch.where(total > 0, matrix / total, 0.0)
