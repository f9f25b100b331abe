"""What engines share: work in pieces, states of whole texts, lengths of vectors and their derivatives."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn


STATES_AT_ONCE = 2**15  # states of changed texts made together: 32 MiB for H = 256 in float32


class View(NamedTuple):
    """What is read of a state h (H,): weight h + bias, with weight (O,H) and bias (O,) or, of each text another, (B,O)."""

    weight: torch.Tensor
    bias: torch.Tensor

    def of(self, states: torch.Tensor) -> torch.Tensor:
        """(V,B,p,H) to (V,B,p,O)."""
        return states @ self.weight.t() + (self.bias if self.bias.dim() == 1 else self.bias.unsqueeze(1))


def pieces(start: int, stop: int, cost: int, limit: int) -> Iterator[tuple[int, int]]:
    """start..stop in pieces that cost at most `limit`, where one place costs `cost`; a single place where that is more."""
    step = max(1, limit // cost)
    for begin in range(start, stop, step):
        yield begin, min(begin + step, stop)


def whole_states(encoder, embedded: torch.Tensor) -> torch.Tensor:
    """States (B,T,H) of texts (B,T,E) that are all of the full length."""
    return encoder(embedded, torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device))[0]


def norms(values: torch.Tensor) -> torch.Tensor:
    """(..., D) to (...): lengths of vectors, in float32 where they are coarser."""
    return torch.linalg.vector_norm(values, dim=-1, dtype=torch.promote_types(values.dtype, torch.float32))


def direction(states: torch.Tensor) -> torch.Tensor:
    """h / ||h||_2, the gradient of the length of h; 0 for the zero vector."""
    return nn.functional.normalize(states.double(), dim=-1, eps=torch.finfo(torch.float64).tiny).to(states.dtype)


def slope_of_tanh(values: torch.Tensor) -> torch.Tensor:
    """1 - tanh(x)^2, exact where tanh rounds to 1."""
    return 4 * values.mul(2).sigmoid() * values.mul(-2).sigmoid()


def of_one_length(mask: torch.Tensor, lengths: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, int, int]]:
    """(length, rows, start, stop) of the texts of each length that have something attendable, so that nothing is padded.

    mask (B,T): attendable places, start..stop-1 in all texts of one length. lengths (B,): places that are read.
    """
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero().squeeze(1)
        positions = mask[rows[0]].nonzero().squeeze(1)
        if len(positions):
            yield length, rows, int(positions[0]), int(positions[-1]) + 1
