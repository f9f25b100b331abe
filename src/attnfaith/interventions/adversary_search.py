"""Jain & Wallace's search for an adversarial attention: K restarts, pushed apart, by gradient steps on log-weights.

What it finds is a lower bound on how far attention can go; `adversary_exact` gives the maximum. Which of the K rows count is
decided where they are read: a row is feasible when its prediction stays within a selection threshold of the model's, and
that threshold need not be the epsilon that the search was run with.

Shapes inside: K restarts, T tokens of the longest text, B texts side by side (last, so that sums over tokens are sums of
whole rows and padding adds nothing but zeros), C classes.
"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.targets import AFFINE, Readout, read_out, softmax, under
from attnfaith.measurement.options import Count, Fraction, Positive
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


RESTARTS, SPREAD = 5, 3.0
GUARD = np.float32(1e-10)  # added inside logarithms, as in their code
PLACES_AT_ONCE = 8192  # tokens of the texts that are optimised together: fewer wait for Python, more leave the cache
BETAS, TINY = (0.9, 0.999), 1e-8  # of Adam


@register
class AdversarySearch(Measure):
    """Jain & Wallace's search for an adversarial attention: K restarts, pushed apart, by gradient steps on log-weights.

    The last iterate of each restart of Jain & Wallace's search, hidden states held fixed.

    For a text of attention a and prediction p, minimised over the K restarts x_k together, by `steps` steps of Adam with
    AMSGrad on log-weights that start at 3 N(0,1):

        sum_k [ penalty * max(0, TVD(p_k, p) - epsilon) - JSD(x_k, a) ] - mean_jk JSD(x_j, x_k)

    TVD, the total variation distance, is |change of p| with two classes. Their code takes twice the TVD where there are more
    than two; here epsilon means one thing for any number of classes. Texts do not interact, and the noise of each comes from
    its own stream, so a result depends on no batch, but for float32 rounding that the steps carry along (some 1e-6).
    A text of fewer than two tokens has nothing to search: no rows.

    Source: Jain & Wallace 2019, algorithm 3 and their code.

    Shapes inside: K restarts, T tokens of the longest text, B texts side by side (last, so that sums over tokens are sums of
    whole rows and padding adds nothing but zeros), C classes.
    """

    name, cost = "adversary_search", "draws"
    needs = frozenset({"classes", "intervention"})
    columns = {
        "adversary_search_attention": Column(
            ("K", "T"),
            distribution=True,
            undefined="below two tokens: no draws",
            doc="the last step of each restart, feasible or not",
        ),
        "adversary_search_probs": Column(("K", "C"), distribution=True, doc="the prediction under each of these attentions"),
    }
    metric = {
        "counterfactual_attention": "adversary_search_attention",
        "counterfactual_probs": "adversary_search_probs",
    }

    restarts: Count = RESTARTS
    steps: Count = 500
    learning_rate: Positive = 0.01
    penalty: Positive = 500.0
    epsilon: Fraction = 0.01

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        texts = read_out(subject, batch)
        lengths = np.array([len(text.attention) for text in texts])
        attention = [np.zeros((0, length), np.float32) for length in lengths]
        probs = [np.zeros((0, len(text.probs)), np.float32) for text in texts]
        left = [row for row in np.argsort(-lengths, kind="stable") if lengths[row] >= 2]
        while left:
            size = max(1, PLACES_AT_ONCE // lengths[left[0]])
            rows, left = left[:size], left[size:]
            streams = [generator(seed, batch["instance_id"][row], "adversary_search") for row in rows]
            starts = [
                SPREAD * stream.standard_normal((self.restarts, lengths[row]))
                for stream, row in zip(streams, rows, strict=True)
            ]
            chosen = [texts[row] for row in rows]
            readout = _Affine(chosen) if AFFINE in subject.capabilities else _Decoded(under(subject, batch, rows), chosen)
            attentions = search(
                chosen,
                starts,
                readout,
                steps=self.steps,
                learning_rate=self.learning_rate,
                penalty=self.penalty,
                epsilon=self.epsilon,
            )
            for row, weights, prediction in zip(rows, attentions, readout.probs(attentions), strict=True):
                attention[row], probs[row] = weights.astype(np.float32), prediction.astype(np.float32)
        return {"adversary_search_attention": attention, "adversary_search_probs": probs}


def search(
    texts: list[Readout],
    log_weights: list[np.ndarray],
    readout,
    *,
    steps: int,
    learning_rate: float,
    penalty: float,
    epsilon: float,
) -> list[np.ndarray]:
    """Attentions (K,T) float64 of each text, from log-weights (K,T) to start from (`measure` says what is minimised).

    readout: an object with `slope(attention (K,T,B), epsilon)`, the derivative of max(0, TVD - epsilon) by attention.

    The derivative of JSD(x, a) by x is log(2x / (x + a)) / 2. Its constants, and all that is the same for every token,
    vanish on the way through the softmax: x * (slope - sum(x * slope)).
    """
    lengths = [len(text.attention) for text in texts]
    restarts = len(log_weights[0])
    shape = (restarts, max(lengths), len(texts))
    own = np.zeros(shape[1:], np.float32)
    position = np.full(shape, -np.inf, np.float32)
    for column, (text, start) in enumerate(zip(texts, log_weights, strict=True)):
        own[: lengths[column], column] = text.attention
        position[:, : lengths[column], column] = start
    own += 2 * GUARD
    mean, square, largest, room = (np.zeros(shape, np.float32) for _ in range(4))
    between = np.float32(1 / restarts**2)
    for step in range(1, steps + 1):
        attention = _softmax(position)
        guarded = attention + GUARD
        slope = np.log(attention + own)
        slope *= np.float32(0.5)
        for first in range(restarts - 1):
            mixed = np.log(guarded[first] + guarded[first + 1 :])
            mixed *= between
            slope[first] += mixed.sum(0)
            slope[first + 1 :] += mixed
        np.log(guarded, out=guarded)
        guarded *= np.float32(0.5) + (restarts - 1) * between
        slope -= guarded
        slope += np.float32(penalty) * readout.slope(attention, epsilon)
        slope -= np.multiply(attention, slope, out=room).sum(1, keepdims=True)
        slope *= attention
        mean *= np.float32(BETAS[0])
        mean += np.multiply(slope, np.float32(1 - BETAS[0]), out=room)
        square *= np.float32(BETAS[1])
        slope *= slope
        slope *= np.float32(1 - BETAS[1])
        square += slope
        np.maximum(largest, square, out=largest)
        np.sqrt(largest, out=room)
        room *= np.float32((1 - BETAS[1] ** step) ** -0.5)
        room += np.float32(TINY)
        np.divide(mean, room, out=room)
        room *= np.float32(learning_rate / (1 - BETAS[0] ** step))
        position -= room
    attention = _softmax(position.astype(np.float64))
    return [attention[:, :length, column] for column, length in enumerate(lengths)]


def _softmax(position: np.ndarray) -> np.ndarray:
    """Over the tokens of (K,T,B)."""
    weights = np.exp(position - position.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return weights


class _Affine:
    """Read-outs of a group of texts by their values per token and class, those of one class taken off.

    That class is one that the text may be given: the large bias of a barred one would cost float32 its digits.
    """

    def __init__(self, texts: list[Readout]):
        self.texts = texts
        classes, longest = len(texts[0].probs), max(len(text.attention) for text in texts)
        self.values = np.zeros((classes - 1, longest, len(texts)), np.float32)
        orders = [np.argsort(~text.answers, kind="stable") for text in texts]
        for column, (text, order) in enumerate(zip(texts, orders, strict=True)):
            values = text.values[:, order]
            self.values[:, : len(values), column] = (values[:, 1:] - values[:, :1]).T
        biases = [text.bias[order] for text, order in zip(texts, orders, strict=True)]
        self.bias = np.stack([bias[1:] - bias[0] for bias in biases], 1).astype(np.float32)
        self.own = np.stack([text.probs[order] for text, order in zip(texts, orders, strict=True)], 1).astype(np.float32)

    def slope(self, attention: np.ndarray, epsilon: float) -> np.ndarray:
        """The derivative (K,T,B) of max(0, TVD - epsilon) by attention (K,T,B), but for a constant per text."""
        logits = np.zeros((len(self.own), len(attention), attention.shape[2]), np.float32)
        for number, (values, bias) in enumerate(zip(self.values, self.bias, strict=True), start=1):
            logits[number] = (attention * values).sum(1) + bias
        probs = np.exp(logits - logits.max(0))
        probs /= probs.sum(0)
        changes = probs - self.own[:, None]
        steps = np.sign(changes) * (np.abs(changes).sum(0) / 2 > epsilon) / 2
        steps = (probs * (steps - (probs * steps).sum(0))).astype(np.float32)
        slope = steps[1][:, None] * self.values[0]
        for number in range(2, len(self.own)):
            slope += steps[number][:, None] * self.values[number - 1]
        return slope

    def probs(self, attentions: list[np.ndarray]) -> list[np.ndarray]:
        """Predictions (K,C) of each text under its attentions (K,T)."""
        return [softmax(text.logits(weights)) for text, weights in zip(self.texts, attentions, strict=True)]


class _Decoded:
    """The same where the model has to be asked: logits are not affine in attention."""

    def __init__(self, asked, texts: list[Readout]):
        self.asked = asked
        self.own = self._tensor(np.stack([text.probs for text in texts])[:, None])

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.asked.subject.device)

    def _decode(self, attention: torch.Tensor) -> torch.Tensor:
        return self.asked(attention).float().softmax(-1)

    def slope(self, attention: np.ndarray, epsilon: float) -> np.ndarray:
        """The derivative (K,T,B) of max(0, TVD - epsilon) by attention (K,T,B)."""
        with torch.enable_grad():
            weights = self._tensor(attention.transpose(2, 0, 1)).requires_grad_()
            distances = (self._decode(weights) - self.own).abs().sum(-1) / 2
            (slope,) = torch.autograd.grad((distances - epsilon).relu().sum(), weights)
        return slope.cpu().numpy().transpose(1, 2, 0)

    def probs(self, attentions: list[np.ndarray]) -> list[np.ndarray]:
        """Predictions (K,C) of each text under its attentions (K,T)."""
        longest = max(weights.shape[1] for weights in attentions)
        padded = np.zeros((len(attentions), len(attentions[0]), longest), np.float32)
        for row, weights in zip(padded, attentions, strict=True):
            row[:, : weights.shape[1]] = weights
        return list(self._decode(self._tensor(padded)).double().cpu().numpy())
