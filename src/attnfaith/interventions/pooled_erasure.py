"""Erasing weights of pooled attention: they are set to 0, the rest is renormalised, and the decision is looked at.

Erasing a set R leaves the other tokens t the weights a_t / sum_{u not in R} a_u. Sums are taken over what remains, for a
total minus what was removed would cancel where a few tokens hold nearly all weight. Where no weight remains the decoder's
bias decides. The decision is the most probable class, on equal probability the lower one. With an affine decoder, logits
that differ by less than TIE of the largest difference that any single token makes are equal.

Shapes: B instances, T tokens of the batch's longest text (at least 1; shorter texts are padded on the right with weight 0),
C classes, K removals, R orders. Everything is float64 on the CPU, except what a model is asked.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.special import expit, logsumexp

from attnfaith.interventions.targets import AFFINE, Reader, attention_for, read_out, under
from attnfaith.subjects import Batch, Subject
from attnfaith.subjects.protocol import log_odds
from attnfaith.support.draws import generator


RANKINGS = ("attention", "gradient", "attention_gradient")
TIE = 1e-12
ALL = slice(None)


def erasure_orders(scores: np.ndarray, name: str, seed: int, draws: int) -> np.ndarray:
    """Return orders (R,T) of tokens: by decreasing scores (3,T), those of RANKINGS, ties by position; then random ones.

    None below two tokens.
    """
    length = scores.shape[1]
    if length < 2:
        return np.empty((0, length), np.int64)
    random = generator(seed, name, "erasure").permuted(np.tile(np.arange(length), (draws, 1)), axis=1)
    return np.concatenate([np.argsort(-scores, 1, "stable"), random])


def first_flips(changed: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first flip in each order: tokens removed, weight removed, and whether no weight was left; (R,) each.

    changed (R,T): whether the decision is another one after each removal; weights (R,T): those removed. NaN without a flip.
    """
    if not len(changed):
        return np.empty(0), np.empty(0), np.empty(0, bool)
    flips, first = changed.any(1), changed.argmax(1)[:, None]
    mass, rest = (np.take_along_axis(values, first, 1)[:, 0] for values in (weights.cumsum(1), sum_after(weights)))
    return np.where(flips, first[:, 0] + 1.0, np.nan), np.where(flips, mass.clip(max=1), np.nan), flips & (rest == 0)


@dataclass(frozen=True)
class Erasing:
    """A batch of texts whose weights can be taken away. Subclasses read the decision from sums over what remains.

    attention (B,T); lengths (B,); content (B,D,T): what a context averages; evidence (B,E,T): what decisions are read from
    the sums of; predicted (B,): the class with nothing removed.
    """

    attention: np.ndarray
    lengths: np.ndarray
    content: np.ndarray
    evidence: np.ndarray
    predicted: np.ndarray

    @property
    def gradient(self) -> tuple[np.ndarray, np.ndarray]:
        """Derivative (B,T) of the predicted class's log-odds with respect to each weight, the others fixed and nothing
        renormalised; and the log-odds (B,).
        """
        raise NotImplementedError

    def logits(self, contents: np.ndarray, rows: np.ndarray | slice = ALL) -> np.ndarray:
        """Return logits (B,K,C) of averaged contents (B,D,K) of the instances `rows`."""
        raise NotImplementedError

    def changed(self, sums: np.ndarray, remaining: np.ndarray, rows: np.ndarray | slice = ALL) -> np.ndarray:
        """Return whether the decision is another one, (B,K), from sums of weight x evidence (B,E,K) and of weight (B,K)."""
        raise NotImplementedError

    def changed_along(self, orders: np.ndarray) -> np.ndarray:
        """Return whether the decision is another one (B,R,T) after each removal in orders (B,R,T) of positions."""
        changed = np.zeros(orders.shape, bool)
        for place, order in enumerate(orders.swapaxes(0, 1)):
            weights = np.take_along_axis(self.attention, order, 1)
            evidence = np.take_along_axis(self.evidence, order[:, None], 2) * weights[:, None]
            changed[:, place] = self.changed(sum_after(evidence), sum_after(weights))
        return changed

    def without_each(self) -> np.ndarray:
        """Return logits (B,T,C) with each weight removed alone; where that weight is 0, exactly those of the whole."""
        remaining = sum_of_others(self.attention)[:, None]
        removed = self.logits(ratio(sum_of_others(self.attention[:, None] * self.content), remaining))
        return np.where((self.attention == 0)[..., None], self.logits(self.whole()), removed)

    def whole(self) -> np.ndarray:
        """Return the averaged content (B,D,1) with nothing removed."""
        return self.content @ self.attention[..., None]

    def scores(self) -> np.ndarray:
        """Return attention, the slope of the log-odds and their product (B,3,T).

        The factor p(1 - p) > 0 of the gradient is left out: no order depends on it, and a saturated p would erase them.
        """
        slope, _ = self.gradient
        return np.stack([self.attention, slope, self.attention * slope], 1)

    def orders(self, seed: int, names: list[str], draws: int) -> np.ndarray:
        """Return the `erasure_orders` of all instances (B,R,T); padding and the only token of a text keep their place."""
        count, width = self.attention.shape
        orders = np.tile(np.arange(width), (count, len(RANKINGS) + draws, 1))
        for row, (name, length, scores) in enumerate(zip(names, self.lengths, self.scores(), strict=True)):
            if length > 1:
                orders[row, :, :length] = erasure_orders(scores[:, :length], name, seed, draws)
        return orders


@dataclass(frozen=True)
class Affine(Erasing):
    """content: values W h (D = C). evidence: of each rival class j of the predicted class c, in increasing order, the margin
    (w_c - w_j) . h + b_c - b_j that a token alone would give c over j (E = C - 1). A weighted sum of margins is the
    difference of logits times the weight that remains: its sign is the decision.
    """

    bias: np.ndarray
    lower: np.ndarray  # (B,C-1) the rival wins a tie
    largest: np.ndarray  # (B,C-1) largest |margin|, to which a tie is held
    flips_empty: np.ndarray  # (B,) the bias alone decides otherwise

    @cached_property
    def gradient(self):
        rows = np.arange(len(self.lengths))
        logits = self.logits(self.whole())[:, 0]
        rivals = logits.copy()
        rivals[rows, self.predicted] = -np.inf
        total = logsumexp(rivals, 1)
        share = np.exp(rivals - total[:, None])
        slope = self.content[rows, self.predicted] - (share[:, None] @ self.content)[:, 0]
        return slope, logits[rows, self.predicted] - total

    def logits(self, contents, rows=ALL):
        return contents.swapaxes(1, 2) + self.bias[rows, None]

    def wins(self, sums: np.ndarray, remaining: np.ndarray, rows: np.ndarray | slice = ALL) -> np.ndarray:
        """Return which rivals (B,C-1,K) beat the predicted class; remaining weight (B,C-1,K) or (B,1,K) is not 0."""
        tie = TIE * self.largest[rows, :, None] * remaining
        return (sums < -tie) | (self.lower[rows, :, None] & (sums <= tie))

    def changed(self, sums, remaining, rows=ALL):
        beaten = self.wins(sums, remaining[:, None], rows).any(1)
        return np.where(remaining > 0, beaten, self.flips_empty[rows, None])


@dataclass(frozen=True)
class NotAffine(Erasing):
    """content and evidence: all attention on each token (D = E = T), so that averages are what `under` is asked about."""

    under: Reader

    @cached_property
    def gradient(self):
        weights = attention_for(self.under, self.attention).requires_grad_()
        with torch.enable_grad():
            odds = log_odds(self.under(weights), torch.from_numpy(self.predicted).to(weights.device))
            slope = torch.autograd.grad(odds.sum(), weights, materialize_grads=True)[0]
        return slope.double().cpu().numpy(), odds.detach().cpu().numpy()

    @torch.no_grad()
    def logits(self, contents, rows=ALL):
        return self.under[rows](attention_for(self.under, contents.swapaxes(1, 2))).double().cpu().numpy()

    def changed(self, sums, remaining, rows=ALL):
        return self.logits(ratio(sums, remaining[:, None]), rows).argmax(-1) != self.predicted[rows, None]


@torch.no_grad()
def erasing(subject: Subject, batch: Batch) -> Affine | NotAffine:
    """Return the batch ready for erasing."""
    readouts = read_out(subject, batch)
    attention, lengths = _pad([readout.attention for readout in readouts])
    if AFFINE in subject.capabilities:
        values = np.ascontiguousarray(_pad([readout.values for readout in readouts])[0].swapaxes(1, 2))
        return _affine(attention, lengths, values, np.stack([readout.bias for readout in readouts]))
    each = np.broadcast_to(np.eye(attention.shape[1]), (len(lengths), *attention.shape[1:] * 2))
    reader = under(subject, batch)
    predicted = reader(attention_for(reader, attention)).argmax(1).cpu().numpy()
    return NotAffine(attention, lengths, each, each, predicted, reader)


def _affine(attention: np.ndarray, lengths: np.ndarray, values: np.ndarray, bias: np.ndarray) -> Affine:
    """attention (B,T), values (B,C,T) and bias (B,C)."""
    classes, rows = np.arange(bias.shape[1]), np.arange(len(bias))[:, None]
    logits = (values @ attention[..., None])[..., 0] + bias
    inside = (np.arange(values.shape[2]) < lengths[:, None])[:, None]
    predicted = logits.argmax(1)
    while True:  # until no lower class ties with the predicted one
        rivals = np.sort((predicted[:, None] + 1 + classes[:-1]) % len(classes), 1)
        margins = values[rows, predicted[:, None]] - values[rows, rivals]
        margins += (bias[rows, predicted[:, None]] - bias[rows, rivals])[..., None]
        margins *= inside
        largest = np.maximum(margins.max(2), -margins.min(2))
        lower = rivals < predicted[:, None]
        ties = lower & (logits[rows, predicted[:, None]] - logits[rows, rivals] <= TIE * largest)
        if not ties.any():
            return Affine(attention, lengths, values, margins, predicted, bias, lower, largest, bias.argmax(1) != predicted)
        predicted = np.where(ties.any(1), rivals[rows[:, 0], ties.argmax(1)], predicted)


def probability_slope(odds: np.ndarray) -> np.ndarray:
    """Return p(1 - p) from log-odds, exact where p rounds to 1: the derivative of the probability by its log-odds."""
    return expit(odds) * expit(-odds)


def _pad(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows (T_b,...) as one array (B,T,...), zeros behind the shorter ones, T at least 1; and their lengths (B,)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.zeros((len(rows), max(1, lengths.max()), *rows[0].shape[1:]))
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded, lengths


def ratio(sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sums / weights; 0 where a weight is 0."""
    return np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)


def sum_after(values: np.ndarray) -> np.ndarray:
    """Return at each place of the last axis the sum over all later places."""
    sums = np.zeros_like(values)
    sums[..., :-1] = values[..., :0:-1].cumsum(-1)[..., ::-1]
    return sums


def sum_of_others(values: np.ndarray) -> np.ndarray:
    """Return at each place of the last axis the sum over all other places."""
    return sum_after(values) + sum_after(values[..., ::-1])[..., ::-1]
