"""What the gradient measures share: inputs that gradients can be taken of, and products with their slopes.

Shapes: B instances, L input positions, T tokens, E embedding, H hidden, C classes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch

from attnfaith.subjects import Batch, Subject
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


class Reading:
    """A batch read from embeddings that gradients can be taken of.

    inputs: the embeddings (B,L,E) and, of a subject that has them, the states (B,T,H).
    """

    def __init__(self, subject: Subject, batch: Batch):
        self.subject, self.batch = subject, batch
        self.inputs = [subject.embed(batch).detach().requires_grad_()]
        self.encoded = None
        if "states" in subject.capabilities:
            self.encoded = subject.encoded(batch, self.inputs[0])
            self.attention = subject.attend(*self.encoded)
            self.inputs.append(self.encoded.hidden)

    def logits(self, *, hold: bool = False) -> torch.Tensor:
        """Logits (B,C); hold: no gradient flows through attention."""
        if self.encoded is None:
            return self.subject.predict(self.batch, self.inputs[0], hold=hold)
        attention = self.attention.detach() if hold else self.attention
        return self.subject.decode(self.encoded.hidden, attention, self.encoded.query)


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
    """d sum(output) / d input for each input; zero for one that output does not depend on (an empty text).

    last=False keeps what the encoding needs for the gradients of a further output.
    """
    needed = [value for value in inputs if value.requires_grad]
    if not output.requires_grad or not needed:
        return [torch.zeros_like(value) for value in inputs]
    slopes = iter(torch.autograd.grad(output.sum(), needed, allow_unused=True, retain_graph=not last))
    of_inputs = [next(slopes) if value.requires_grad else None for value in inputs]
    return [torch.zeros_like(value) if slope is None else slope for slope, value in zip(of_inputs, inputs, strict=True)]


class Slopes(NamedTuple):
    """f (B,), and of items' embeddings x and, of a subject that has them, of states: products x . df/dx and norms ||df/dx||
    (B,T).
    """

    f: torch.Tensor
    products: list[torch.Tensor]
    norms: list[torch.Tensor]


def odds_slopes(subject: Subject, batch: Batch, holds: Sequence[bool]) -> list[Slopes]:
    """Slopes of the log-odds of the predicted class, once for each of `holds`: whether attention is held fixed. Kept in the
    batch; not the graph, which is larger than all else that is. Of a model without classes, of its largest output: a label's
    logit is its log-odds.
    """
    explain = log_odds if "classes" in subject.capabilities else largest
    missing = [hold for hold in holds if ("slopes", hold) not in batch.results]
    if missing:
        with differentiable(subject):
            reading = Reading(subject, batch)
            for hold in missing:
                batch.once("slopes", hold, lambda hold=hold: _slopes(reading, explain, hold, last=hold is missing[-1]))
    return [batch.results["slopes", hold] for hold in holds]


def products(
    subject: Subject, batch: Batch, explain: Callable[[torch.Tensor], torch.Tensor], *, hold: bool = False
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """f (B,) and x . df/dx (B,T) of items' embeddings x and, of a subject that has them, of states; f = explain(logits).

    hold: no gradient flows through attention.
    """
    if explain is log_odds:
        (slopes,) = odds_slopes(subject, batch, [hold])
    else:
        with differentiable(subject):
            slopes = _slopes(Reading(subject, batch), explain, hold)
    return slopes.f, slopes.products


def _slopes(reading: Reading, explain: Callable, hold: bool, last: bool = True) -> Slopes:
    f = explain(reading.logits(hold=hold))
    slopes, items = gradients(f, reading.inputs, last), reading.subject.items(reading.batch)
    inward = [value_times_slope(value, slope) for value, slope in zip(reading.inputs, slopes, strict=True)]
    norms = [item_norms(slopes[0], items), *(slope.norm(dim=-1) for slope in slopes[1:])]
    return Slopes(f.detach(), [item_sums(inward[0], items), *inward[1:]], norms)


def value_times_slope(values: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """(...,D) to (...): value times slope, summed in float64."""
    return (values.detach() * slopes).sum(-1, dtype=torch.float64)


def largest(logits: torch.Tensor) -> torch.Tensor:
    """(B,) in float64: the largest of logits (B,C)."""
    return logits.double().amax(-1)
