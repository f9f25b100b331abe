"""Gradients in the embeddings and states of a batch, their products with these, and sums over the items of attention.

Shapes: B instances, L input positions, T tokens, E embedding, H hidden, C classes.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch

from attnfaith.subjects import Batch, Pooled, Subject
from attnfaith.subjects.base import frozen
from attnfaith.subjects.protocol import log_odds


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


def with_dtype(subject: Pooled, dtype: torch.dtype) -> Pooled:
    """A copy of a subject whose weights have a dtype."""
    return Pooled(copy.deepcopy(subject.classifier).to(dtype))


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


def item_norms(vectors: torch.Tensor, items: torch.Tensor | None) -> torch.Tensor:
    """Vectors (B,L,E) of input positions to the length (B,T) of all that belong to an item, taken as one vector."""
    norms = vectors.norm(dim=-1)
    return norms if items is None else item_sums(norms.double().square(), items).sqrt()


def gradients(output: torch.Tensor, inputs: list[torch.Tensor], last: bool = True) -> list[torch.Tensor]:
    """d sum(output) / d input for each input; zero for an input that output does not depend on (an empty text).

    last=False keeps what the encoding needs for the gradients of a further output.
    """
    needed = [value for value in inputs if value.requires_grad]
    if not output.requires_grad or not needed:
        return [torch.zeros_like(value) for value in inputs]
    slopes = torch.autograd.grad(output.sum(), needed, materialize_grads=True, allow_unused=True, retain_graph=not last)
    by_input = dict(zip(map(id, needed), slopes, strict=True))
    return [by_input[id(value)] if id(value) in by_input else torch.zeros_like(value) for value in inputs]


def value_times_slope(values: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """(...,D) to (...): value times slope, summed in float64."""
    return (values.detach() * slopes).sum(-1, dtype=torch.float64)


class Slopes(NamedTuple):
    """f (B,), and of items' embeddings x and, of a subject that has them, of states: products x . df/dx and norms ||df/dx||
    (B,T).
    """

    f: torch.Tensor
    products: list[torch.Tensor]
    norms: list[torch.Tensor]


def input_slopes(subject: Subject, batch: Batch, explain: Callable, holds: Sequence[bool] = (False,)) -> list[Slopes]:
    """Slopes of f = explain(logits (B,C)), once for each of `holds`: whether no gradient flows through attention."""
    with differentiable(subject):
        embedded = subject.embed(batch).detach().requires_grad_()
        inputs, items = [embedded], subject.items(batch)
        if "states" in subject.capabilities:
            encoded = subject.encoded(batch, embedded)
            attention = subject.attend(*encoded)
            inputs.append(encoded.hidden)
        results = []
        for number, hold in enumerate(holds):
            if len(inputs) == 1:
                logits = subject.predict(batch, embedded, hold=hold)
            else:
                logits = subject.decode(encoded.hidden, attention.detach() if hold else attention, encoded.query)
            f = explain(logits)
            slopes = gradients(f, inputs, last=number + 1 == len(holds))
            inward = [value_times_slope(value, slope) for value, slope in zip(inputs, slopes, strict=True)]
            norms = [item_norms(slopes[0], items), *(slope.norm(dim=-1) for slope in slopes[1:])]
            results.append(Slopes(f.detach(), [item_sums(inward[0], items), *inward[1:]], norms))
    return results


def odds_slopes(subject: Subject, batch: Batch, holds: Sequence[bool]) -> list[Slopes]:
    """Slopes of the log-odds of the predicted class, see `input_slopes`; of a model without classes, of its largest output:
    a label's logit is its log-odds. Kept in the batch; not the graph, which is larger than all else that is.
    """
    missing = [hold for hold in holds if ("slopes", hold) not in batch.results]
    if missing:
        slopes = input_slopes(subject, batch, log_odds if "classes" in subject.capabilities else _largest, missing)
        batch.results.update({("slopes", hold): part for hold, part in zip(missing, slopes, strict=True)})
    return [batch.results["slopes", hold] for hold in holds]


def _largest(logits: torch.Tensor) -> torch.Tensor:
    return logits.double().amax(-1)
