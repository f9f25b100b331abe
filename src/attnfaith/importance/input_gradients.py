"""Gradients in the embeddings of a batch, and sums over the items of attention.

Shapes: B instances, L input positions, T tokens, E embedding.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from attnfaith.subjects import Batch, Subject
from attnfaith.subjects.base import frozen


@contextmanager
def differentiable(subject: Subject | None = None) -> Iterator[None]:
    """Within, gradients can be taken, and the parameters of the subject take none.

    cuDNN refuses a backward pass through an LSTM in eval mode, and train mode would turn dropout on, so cuDNN is off here.
    """
    with (
        nullcontext() if subject is None else frozen(subject),
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),
    ):
        yield


def inside(subject: Subject, batch: Batch) -> torch.Tensor:
    """(B,L) bool: the input positions that belong to an item of attention."""
    items = subject.items(batch)
    return subject.attendable(batch) if items is None else items >= 0


def item_sums(values: torch.Tensor, items: torch.Tensor | None) -> torch.Tensor:
    """Values (B,L) of input positions, summed over those of each item: (B,T). Of tokens that are items as they are."""
    if items is None:
        return values
    sums = values.new_zeros(len(values), max(1, int(items.max()) + 1) + 1)
    return sums.scatter_add(1, items + 1, values)[:, 1:]  # column 0 takes what belongs to no item


def gradients(output: torch.Tensor, inputs: list[torch.Tensor], retain: bool = False) -> list[torch.Tensor]:
    """d sum(output) / d input for each input; zero for an input that output does not depend on (an empty text)."""
    needed = [value for value in inputs if value.requires_grad]
    if not output.requires_grad or not needed:
        return [torch.zeros_like(value) for value in inputs]
    slopes = torch.autograd.grad(output.sum(), needed, materialize_grads=True, allow_unused=True, retain_graph=retain)
    remaining = iter(slopes)
    return [next(remaining) if value.requires_grad else torch.zeros_like(value) for value in inputs]


def value_times_slope(values: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """(...,D) to (...): value times slope, summed in float64."""
    return (values.detach() * slopes).sum(-1, dtype=torch.float64)
