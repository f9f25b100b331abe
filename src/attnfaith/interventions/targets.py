"""What the experiments share: the read-out as one scalar per token and class, and what another attention would say.

Where logits are affine in attention, those of any attention a are sum_t a_t v_t + b, v_t = W h_t: T x C numbers say all
about what another attention would make the model say, and no state is needed again. Elsewhere, with a decoder that is not
affine or at the word level of a hierarchical model, the subject is asked about each attention: `under`.
Shapes: B instances, T tokens, C classes, H hidden, K attentions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnfaith.models.queries import Query
from attnfaith.subjects import Batch, Subject, whole_logits


AFFINE = "affine read-out"


@dataclass(frozen=True)
class Readout:
    """One instance: attention (T,) float64, summing to 1; values (T,C) and bias (C,) float64, None where logits are
    not affine; probs (C,), the prediction; answers (C,) bool: the classes that it may be given; all over the instance's
    attendable tokens.
    """

    attention: np.ndarray
    values: np.ndarray | None
    bias: np.ndarray | None
    probs: np.ndarray
    answers: np.ndarray

    def logits(self, attention: np.ndarray) -> np.ndarray:
        """Logits (..., C) of attentions (..., T). An attention that is all 0 leaves the bias. Only where affine."""
        return attention @ self.values + self.bias


@torch.no_grad()
def read_out(subject: Subject, batch: Batch) -> list[Readout]:
    """What an experiment needs of each instance of a batch, in float64 on the CPU; kept in the batch."""
    if "read_out" not in batch:
        batch["read_out"] = _read_out(subject, batch)
    return batch["read_out"]


def _read_out(subject: Subject, batch: Batch) -> list[Readout]:
    mask = subject.attendable(batch).cpu().numpy()
    weights = subject.attention(batch).double().cpu().numpy() * mask
    total = weights.sum(1, keepdims=True)
    # float32 weights sum to 1 within 1e-7; here exactly, so that nothing below depends on that rounding
    weights = np.divide(weights, total, out=weights, where=total > 0)
    if AFFINE in subject.capabilities:
        hidden, _, query = subject.encoded(batch)
        weight, bias = subject.decoder_weights(query)
        values = (hidden @ weight.t()).double().cpu().numpy()
        biases = bias.double().expand(len(mask), -1).cpu().numpy()
        probs = softmax((weights[:, None] @ values)[:, 0] + biases)
    else:
        values = biases = [None] * len(mask)
        probs = whole_logits(subject, batch).double().softmax(-1).cpu().numpy()
    answers = batch.get("answer_mask")
    answers = np.ones(probs.shape, bool) if answers is None else answers.bool().cpu().numpy()
    return [
        Readout(row[keep], None if value is None else value[keep], bias, predicted, possible)
        for row, keep, value, bias, predicted, possible in zip(weights, mask, values, biases, probs, answers, strict=True)
    ]


@dataclass(frozen=True)
class OfStates:
    """What a subject with states says of some texts under any attention over their tokens, which have no gaps here.

    states (B,T,H), 0 behind shorter texts; query: what the decoder is told besides. Indexing takes instances, T stays.
    """

    subject: Subject
    states: torch.Tensor
    query: torch.Tensor | Query | None

    @property
    def dtype(self) -> torch.dtype:
        return self.states.dtype

    def __getitem__(self, rows) -> "OfStates":
        return replace(self, states=self.states[rows], query=None if self.query is None else self.query[rows])

    def __call__(self, attention: torch.Tensor) -> torch.Tensor:
        """Attention (B,T) to logits (B,C), or (B,K,T) to (B,K,C)."""
        return self.subject.decode(self.states, attention, self.query)


@dataclass(frozen=True)
class OfTexts:
    """The same of a subject that is asked to `intervene`. places (B,T): where the tokens are, -1 behind shorter texts."""

    subject: Subject
    batch: Batch
    places: torch.Tensor
    dtype = torch.float32

    def __getitem__(self, rows) -> "OfTexts":
        every = torch.arange(len(self.places), device=self.places.device)
        return replace(self, batch=self.batch.take(every[rows]), places=self.places[rows])

    def __call__(self, attention: torch.Tensor) -> torch.Tensor:
        """As `OfStates` says."""
        if attention.dim() == 2:
            return self(attention.unsqueeze(1)).squeeze(1)
        places, width = self.places.unsqueeze(1).expand_as(attention), self.subject.attendable(self.batch).shape[1]
        spread = attention.new_zeros(*attention.shape[:2], width + 1)  # the last place takes what is behind a text
        spread = spread.scatter(2, torch.where(places < 0, width, places), attention)
        return self.subject.intervene(self.batch, spread[..., :width])


def under(subject: Subject, batch: Batch, rows: np.ndarray | list[int] | None = None) -> OfStates | OfTexts:
    """What a subject says of the instances `rows`, all by default, under any attention over their tokens ("intervention").

    T is the number of tokens of the longest of them, at least 1.
    """
    rows = torch.arange(len(batch["input_ids"])) if rows is None else torch.as_tensor(np.array(rows))
    rows = rows.to(subject.device)
    if "states" in subject.capabilities:
        hidden, mask, query = subject.encoded(batch)
        return OfStates(subject, attended_states(hidden[rows], mask[rows]), None if query is None else query[rows])
    mask = subject.attendable(batch)[rows]
    places = torch.nn.utils.rnn.pad_sequence([row.nonzero().squeeze(1) for row in mask], batch_first=True, padding_value=-1)
    places = places if places.shape[1] else places.new_full((len(places), 1), -1)
    return OfTexts(subject, batch.take(rows), places)


def projected(subject: Subject, batch: Batch) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A function of rows (N,) and tokens left (N,K,T) that gives the subject's attention (N,K,T) over these ("states")."""
    asked = under(subject, batch)

    def attend(rows, left):
        some = asked[rows]
        return subject.attend(some.states, torch.from_numpy(left).to(some.states.device), some.query).double().cpu().numpy()

    return attend


def attended_states(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """States (B,T,H) that attention is over, from hidden (B,L,H) and mask (B,L); 0 behind shorter texts, T at least 1."""
    states = torch.nn.utils.rnn.pad_sequence([row[keep] for row, keep in zip(hidden, mask, strict=True)], batch_first=True)
    return states if states.shape[1] else torch.nn.functional.pad(states, (0, 0, 0, 1))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
