"""The three kinds of attention that interventions change, and what a model predicts under other weights.

Pooled attention is one vector for each text; maps are layers x heads x rows; cross-attention is target x source. A target
gives the outcomes of copies of its texts under a `TokenEdit`. Markers are no tokens: they keep their weight. Where logits
are affine in pooled attention a they are sum_t a_t v_t + b, v_t = W h_t; elsewhere `under` asks the subject.

Shapes: B instances, N copies of instances, L input positions (S of a source), T tokens, Q queries, H heads, C classes, G
target words, K attentions of one instance.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import ClassVar

import numpy as np
import scipy.special
import torch

from attnfaith.measurement.registry import Measure
from attnfaith.record import ragged
from attnfaith.subjects import Batch, Edit, Subject, whole_logits
from attnfaith.subjects.attention import ALL, Reduction
from attnfaith.subjects.layers import Prefix
from attnfaith.subjects.protocol import cached, log_odds
from attnfaith.subjects.translator import PairBatch, by_target_words, label_log_probs, word_sums
from attnfaith.support.draws import generator


AFFINE = "affine read-out"
MASKED = -5000.0
"""A score that is lower is a mask's: models add -10,000 and less to what must not be seen."""
PREFIX_PAYS = 3  # passes of a batch from which on what comes before the edited layers is kept
TIE = 1e-12  # logits that differ by less, of 1 or of the largest difference that a token alone makes, are equal
WEIGHTS_AT_ONCE = 2**22  # of pooled attentions that are read together

softmax = partial(scipy.special.softmax, axis=-1)


class TokenEdit(Edit):
    """Other weights on the tokens of texts, in all heads of some layers. A subclass defines `other`.

    layers: numbers of maps. inside (N,S) bool: where tokens are. rows (N,Q) bool: the rows that
    change, None for all; `queries` names their axis as `Edit.per_copy` does. tensors: what else a copy has, (N,S) each.
    """

    def __init__(self, layers: Sequence[int], inside: torch.Tensor, rows=None, queries: str = "S", **tensors: torch.Tensor):
        self.layers, self.inside, self.rows, self._scores = frozenset(layers), inside, rows, None
        self.per_copy = dict.fromkeys(("inside", *tensors), "S") | ({} if rows is None else {"rows": queries})
        vars(self).update(tensors)

    def other(self, weights: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return other weights (N,H,Q,S) for all rows; tokens (N,1,Q,S) bool: those that a row may look at."""
        raise NotImplementedError

    def scores(self, number, scores):
        self._scores = scores
        return scores

    def weights(self, number, weights, rows=ALL):
        if number not in self.layers:
            return weights
        tokens = self.inside[:, None, None].expand(-1, 1, weights.shape[2], -1)
        if self._scores is not None:  # without, as in cross-attention of a pair without padding, no mask hides any
            tokens = tokens & visible(weights, self._scores).any(1, keepdim=True)
        other = self.other(weights, tokens)
        return other if self.rows is None else torch.where(self.rows[:, None, rows, None], other, weights)


def visible(weights: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Return where a row may look at, whether or not it does: bool of the shape of weights (N,H,Q,S)."""
    seen = weights > 0
    return seen | (scores.reshape(weights.shape) > MASKED) if scores.numel() == weights.numel() else seen


class Target:
    """One kind of attention in a batch.

    names: of the instances. inside (B,S): where their tokens are; places: the same as integers (T,) of each. numbers: of the
    maps, or of the decoder's layers, that change. changed (B,Q): the rows that change, None for all.
    """

    names: list[str]
    numbers: list[int]
    inside: torch.Tensor
    changed: torch.Tensor | None = None
    queries = "S"

    @classmethod
    def each(cls, subject, batch, **where) -> Iterator["Target"]:
        """Yield the targets of a batch. where: which layers change."""
        yield cls(subject, batch, **where)

    @cached_property
    def places(self) -> list[np.ndarray]:
        return [np.flatnonzero(inside) for inside in self.inside.cpu().numpy()]

    def edit(self, kind: type[TokenEdit], owner: torch.Tensor, rows=None, **tensors: torch.Tensor) -> TokenEdit:
        """Return an edit of the copies `owner` (N,). rows (N,Q): those that change, by default `changed`."""
        rows = rows if self.changed is None else self.changed[owner]
        return kind(self.numbers, self.inside.index_select(0, owner), rows, self.queries, **tensors)

    def outcomes(self, owner: torch.Tensor, edit: TokenEdit) -> tuple[np.ndarray, ...]:
        """Return what the model predicts of the copies `owner` (N,), those of an instance together: arrays with N first."""
        raise NotImplementedError

    def read(self, kind: type[TokenEdit], **tensors: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """Return the outcomes of copies of each instance, by instance; tensors: what an edit needs, (N,S) an instance."""
        device, (parts, *_) = self.inside.device, tensors.values()
        counts = [len(part) for part in parts]
        owner = torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(device)
        tensors = {name: torch.from_numpy(np.concatenate(parts)).to(device) for name, parts in tensors.items()}
        outcomes = self.outcomes(owner, self.edit(kind, owner, **tensors))
        return [np.split(values, np.cumsum(counts)[:-1]) for values in outcomes]

    def decisions(self, row: int, probs: np.ndarray) -> np.ndarray:
        """Return the most probable class (N,) of probabilities (N,C) of an instance; of equal ones the lower."""
        return probs.argmax(1)

    def random_orders(self, draws: int, seed: int, purpose: str) -> list[np.ndarray]:
        """Return random orders (K,T) of the tokens of each instance, by number; K is `draws`, or 0 below two tokens."""
        orders = []
        for places, name in zip(self.places, self.names, strict=True):
            same = np.broadcast_to(np.arange(len(places)), (draws if len(places) > 1 else 0, len(places)))
            orders.append(generator(seed, name, purpose).permuted(same, axis=1))
        return orders


class Intervention(Measure):
    """An intervention written once for several kinds of attention. target: the kind that a registered class changes."""

    target: ClassVar[type[Target]]

    @property
    def where(self) -> dict[str, object]:
        """The option for which layers change."""
        return {"layers": self.layers} if self.target is Maps else {}

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a layer that the model does not have."""
        if self.target is Maps:
            chosen_layers(subject, self.layers)


def shown_attention(subject: Subject, batch: Batch) -> list[np.ndarray]:
    """Return the attention (T,) of each instance, as people see it, in float64."""
    return ragged(subject.attention(batch).double().cpu(), subject.attendable(batch).cpu())


Read = Callable[[torch.Tensor], torch.Tensor]
"""From attentions (B,K,T) over the tokens of B texts, without gaps, to logits (B,K,C); gradients reach the attentions."""


@dataclass(frozen=True)
class Readout:
    """One instance, over its attendable tokens, in float64: attention (T,), summing to 1; values (T,C) and bias (C,), None
    where logits are not affine; probs (C,), the prediction. reader gives the logits of the instance alone.
    """

    attention: np.ndarray
    values: np.ndarray | None
    bias: np.ndarray | None
    probs: np.ndarray
    reader: Callable[[], Read] | None = None

    @torch.no_grad()
    def logits(self, attention: np.ndarray) -> np.ndarray:
        """Return logits (K,C) of attentions (K,T); one that is all 0 leaves the bias."""
        if self.values is not None:
            return attention @ self.values + self.bias
        if not len(attention):
            return np.empty((0, len(self.probs)))
        attention = np.pad(attention, ((0, 0), (0, 0 if attention.shape[1] else 1)))
        return self.reader()(torch.from_numpy(attention)[None])[0].double().cpu().numpy()

    @cached_property
    def tie(self) -> float:
        """How much logits may differ that are equal; 0 where a model is asked."""
        if self.values is None:
            return 0.0
        return TIE * max(1.0, np.ptp(self.values + self.bias, axis=1).max(initial=0.0))

    def decide(self, probs: np.ndarray) -> np.ndarray:
        """Return the most probable class (K,) of probabilities (K,C); of equal ones the lower."""
        return (probs >= probs.max(1, keepdims=True) * (1 - self.tie)).argmax(1)

    @cached_property
    def predicted(self) -> int:
        """The class predicted."""
        return int(self.decide(self.probs[None])[0])


@cached
def read_out(subject: Subject, batch: Batch) -> list[Readout]:
    """Return the read-out of each instance of a batch, on the CPU. It is kept in the batch."""
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
    texts = []
    for row, inside in enumerate(mask):
        value, reader = values[row], cache(partial(under, subject, batch, [row]))
        value = None if value is None else value[inside]
        texts.append(Readout(weights[row][inside], value, biases[row], probs[row], reader))
    return texts


def of_values(texts: Sequence[Readout]) -> Read:
    """Return the logits of texts with an affine read-out, of attentions in float64."""
    values = padded([text.values for text in texts])
    bias = torch.from_numpy(np.stack([text.bias for text in texts])).unsqueeze(1)
    return lambda attention: attention @ values + bias


def under(subject: Subject, batch: Batch, rows: Sequence[int] | None = None) -> Read:
    """Return the logits of the instances `rows`, by default all, as the subject reads them ("intervention")."""
    rows = torch.as_tensor(np.arange(len(batch["input_ids"])) if rows is None else np.array(rows), device=subject.device)
    if "states" in subject.capabilities:
        hidden, mask, query = subject.encoded(batch)
        states = padded([states[inside] for states, inside in zip(hidden[rows], mask[rows], strict=True)])
        query, dtype = None if query is None else query[rows], torch.promote_types(states.dtype, torch.float32)
        return lambda attention: subject.decode(states, attention.to(subject.device, dtype), query)
    mask, texts = subject.attendable(batch)[rows], batch.take(rows)
    places = padded([inside.nonzero().squeeze(1) for inside in mask], -1)
    places = torch.where(places < 0, mask.shape[1], places).unsqueeze(1)  # the last place takes what is behind a text

    def read(attention: torch.Tensor) -> torch.Tensor:
        attention = attention.to(subject.device, torch.float32)
        spread = attention.new_zeros(*attention.shape[:2], mask.shape[1] + 1)
        return subject.intervene(texts, spread.scatter(2, places.expand_as(attention), attention)[..., :-1])

    return read


def padded(rows: Sequence[np.ndarray | torch.Tensor], value: int = 0) -> torch.Tensor:
    """Return rows (T,...) as one tensor (B,T,...); T is at least 1."""
    tensors = [torch.as_tensor(row) for row in rows]
    whole = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
    return whole if whole.shape[1] else whole.new_full((len(rows), 1, *whole.shape[2:]), value)


class Pooled(Target):
    """One attention vector for each text; the states that it weighs stay as they are. Outcomes: probabilities (N,C)."""

    def __init__(self, subject: Subject, batch: Batch):
        self.subject, self.batch, self.texts = subject, batch, read_out(subject, batch)
        self.names, self.numbers = batch["instance_id"], [0]
        lengths = torch.tensor([len(text.attention) for text in self.texts])
        self.inside = torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(1)

    def outcomes(self, owner, edit):
        own = padded([text.attention for text in self.texts])[:, None, None]
        logits = [np.empty((0, len(self.texts[0].probs)))]
        for some in torch.arange(len(owner)).split(max(1, WEIGHTS_AT_ONCE // own.shape[-1])) if len(owner) else ():
            weights = edit.take(some).weights(0, own.index_select(0, owner[some]))[:, 0, 0].numpy()
            rows, first = np.unique(owner[some].numpy(), return_index=True)
            for row, copies in zip(rows, np.split(weights, first[1:]), strict=True):
                text = self.texts[row]
                logits.append(text.logits(copies[:, : len(text.attention)]))
        return (softmax(np.concatenate(logits)),)

    def shown(self) -> list[np.ndarray]:
        """Return the attention (T,) of each instance, as people see it."""
        return [text.attention for text in self.texts]

    def slopes(self) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return the predicted class (B,), its log-odds (B,), and the derivatives (2,T) of these, for each instance, by a
        number added to all weights on a token and by a factor of them; nothing is renormalised.
        """
        affine = AFFINE in self.subject.capabilities
        read = of_values(self.texts) if affine else under(self.subject, self.batch)
        weights = padded([text.attention for text in self.texts]).requires_grad_()
        predicted = np.array([text.predicted for text in self.texts])
        with torch.enable_grad():
            odds = log_odds(read(weights.unsqueeze(1))[:, 0].cpu(), torch.from_numpy(predicted))
            slopes = torch.autograd.grad(odds.sum(), weights, materialize_grads=True)[0].numpy()
        slopes = [slope[: len(text.attention)] for slope, text in zip(slopes, self.texts, strict=True)]
        by_text = [np.stack([slope, text.attention * slope]) for slope, text in zip(slopes, self.texts, strict=True)]
        return predicted, odds.detach().numpy(), by_text

    def decisions(self, row, probs):
        return self.texts[row].decide(probs)


class Scaled(TokenEdit):
    """The weights times factor (N,S) plus added (N,S), here 1 and 0: gradients with respect to these are taken."""

    factor: torch.Tensor
    added: torch.Tensor

    def other(self, weights, tokens):
        return weights * self.factor[:, None, None] + (self.added[:, None, None] * tokens)


def chosen_layers(subject: Subject, layers: str | Sequence[int]) -> list[int]:
    """Return the layers that change, first to last, by their numbers from 0 on; "shown": those that the reduction takes.

    Raises ValueError for one that the model does not have.
    """
    count = len(subject.sites.layers)
    if isinstance(layers, str):
        return (subject.reduction if layers == "shown" else Reduction(layers=layers)).chosen(count)
    if max(layers) >= count:
        raise ValueError(f"layers={list(layers)}: there is no layer {max(layers)}; the model has {count}, counted from 0")
    return sorted(layers)


class Maps(Target):
    """The maps of some layers, of all heads; what follows them is computed anew. Outcomes: probabilities (N,C).

    matter: whether only those rows change that the logits depend on in the last layer.
    """

    def __init__(self, subject: Subject, batch: Batch, layers: str | Sequence[int] = "shown", matter: bool = False):
        chosen = chosen_layers(subject, layers)
        self.subject, self.batch, self.first = subject, batch, chosen[0]
        self.numbers = [subject.sites.layers[layer] for layer in chosen]
        self.inside, self.names = subject.attendable(batch), batch["instance_id"]
        self.changed = subject.matter(batch) if matter else None

    @cached_property
    def prefix(self) -> Prefix | None:
        """What comes before the first of the layers, see `SelfAttention.prefix`."""
        return self.subject.prefix(self.batch, self.first)

    @torch.no_grad()
    def logits(self, owner: torch.Tensor, edit: Edit) -> torch.Tensor:
        """Return logits (N,C) in float64 of the copies `owner` (N,) under an edit of these."""
        owner = owner.to(self.inside.device)
        several = len(owner) > PREFIX_PAYS * len(self.inside)
        return self.subject.edited(self.batch, owner, edit, self.prefix if several else None).double()

    def outcomes(self, owner, edit):
        return (self.logits(owner, edit).softmax(-1).cpu().numpy(),)

    def shown(self):
        return shown_attention(self.subject, self.batch)

    @torch.enable_grad()
    def slopes(self):
        owner = torch.arange(len(self.inside), device=self.inside.device)
        added = torch.zeros_like(self.inside, dtype=torch.float32, requires_grad=True)
        factor = torch.ones_like(added, requires_grad=True)
        start = None if self.prefix is None else (self.prefix, owner)
        edit = self.edit(Scaled, owner, added=added, factor=factor)
        logits = self.subject.read(self.batch, edit, keep=(), after=start).logits
        odds = log_odds(logits)
        slopes = torch.stack(torch.autograd.grad(odds.sum(), [added, factor], materialize_grads=True), 1).double()
        by_text = [slope[:, places] for slope, places in zip(slopes.cpu().numpy(), self.places, strict=True)]
        return logits.argmax(1).cpu().numpy(), odds.detach().cpu().numpy(), by_text


class Cross(Target):
    """The cross-attention of one pair, in all layers of the decoder; what comes behind is computed anew.

    Outcomes: the probability of each target word (N,G), and the total variation distance of the next token's distribution
    from the model's own, mean over the word's tokens (N,G).
    """

    queries = "N"

    def __init__(self, subject, pair: PairBatch):
        self.subject, self.pair, self.names = subject, pair, pair["instance_id"]
        self.numbers, self.inside = list(subject.numbers), pair["source_words"] >= 0

    @classmethod
    def each(cls, subject, batch):
        for row in range(len(batch)):
            yield cls(subject, batch.alone(row))

    @torch.no_grad()
    def outcomes(self, owner, edit):
        own = self.subject.logits(self.pair).softmax(2)
        owner = owner.to(own.device)
        log_probs, distances = own.new_zeros(2, len(owner), own.shape[1], dtype=torch.float64)
        for some, logits in self.subject.edited(self.pair, owner, edit):
            log_probs[some] = label_log_probs(logits, self.pair["labels"].expand(len(some), -1))
            distances[some] = (logits.softmax(2) - own).abs().sum(2).double() / 2
        (by_word,) = by_target_words(self.pair, distances.unsqueeze(0))
        return word_sums(self.pair, log_probs).exp().cpu().numpy(), by_word
