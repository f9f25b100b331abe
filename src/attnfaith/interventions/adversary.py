"""The adversarial attention that no search can beat: as far from the model's own as the prediction allows, exactly.

Jain & Wallace (2019, algorithm 3) ask for the attention x that is furthest from the model's own, a, by Jensen-Shannon
divergence while the prediction stays within epsilon; they search for it by gradient steps. Where the read-out is affine and
there are two classes, the answer has a closed form:

1. With s_t the log-odds that a token's state adds, the prediction is sigmoid(s.x + b) and rises with s.x, so
   |p(x) - p| <= epsilon is an interval low <= s.x + b <= high: the log-odds of p - epsilon and of p + epsilon, without an
   end where that leaves 0..1.
2. JSD(x, a) is convex in x, so over a polytope it is largest at a vertex.
3. The polytope is the simplex cut by the interval. Each of its vertices is a vertex of the simplex (one token, its s_t + b
   in the interval) or lies on an edge of it that meets an end of the interval: two tokens i, j with s_i + b < end < s_j +
   b, and the weight of i is (s_j + b - end) / (s_j - s_i). There are at most T + T^2 / 2 of them.
4. With g(u) = u log u, JSD(x, a) = log 2 - sum over x_t > 0 of h(x_t, a_t) / 2, h(x, a) = g(x + a) - g(x) - g(a): two terms
   per vertex. h is concave in x and h(0, a) = 0, hence h(x, a) >= x h(1, a): a bound without logarithms, which leaves few
   vertices to evaluate.

With more classes a total variation distance of epsilon implies an interval for the log-odds of every two classes:
log((p_c - e) / (p_d + e)) .. log((p_c + e) / (p_d - e)). The maximum over each of these is an upper bound, and so is the
linear programme that takes all of them together with the bound of step 4; the smaller one is certified. The best attention
found that keeps the prediction within epsilon is a lower bound.

Shapes: T tokens, C classes, K epsilons, M and N tokens on either side of an end.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from attnfaith.interventions.climb import TIE, Climb, cheapest, implied_ranges
from attnfaith.interventions.targets import AFFINE, Readout, read_out, softmax
from attnfaith.measurement.options import Epsilons
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


DIVERGENCE = {"axes": ("K",), "dtype": "float64", "range": (0.0, math.log(2)), "unit": "nats"}


class Adversary(NamedTuple):
    """An adversarial attention (T,) float64, its divergence `jsd` in nats, the logits (C,) that it gives, a bound of the
    divergence, and `one_token`: how many tokens keep the prediction within epsilon when they have all the weight.
    """

    jsd: float
    attention: np.ndarray
    logits: np.ndarray
    bound: float
    one_token: int


def maximise(attention: np.ndarray, scores: np.ndarray, bias: float = 0.0, epsilon: float = 0.01) -> Adversary:
    """Return the attention furthest from a given one whose prediction is at most epsilon away: the exact maximum.

    attention (T,): the model's own, T >= 1, non-negative, summing to 1. scores (T,): log-odds of class 1 that each token's
    state adds, so that the prediction under an attention x is sigmoid(scores . x + bias). All is done in log-odds and
    float64, so a prediction may round to 0 or 1. `jsd` is the maximum; `attention` reaches it within 1e-6: of vertices that
    close to the maximum, one token comes before two, then the token that stands first.

    Raises ValueError for an epsilon outside 0..1 and arguments of the wrong shape or sum.

    Source: the proof above; Jain & Wallace 2019, algorithm 3, for the question.

    >>> adversary = maximise([0.5, 0.3, 0.2], [0.0, 0.0, 0.0], epsilon=0.01)
    >>> adversary.attention.tolist(), adversary.one_token
    ([0.0, 0.0, 1.0], 3)
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon={epsilon!r}; give a number above 0 and below 1, such as 0.01")
    own, scores = np.asarray(attention, np.float64), np.asarray(scores, np.float64)
    if own.ndim != 1 or own.shape != scores.shape or not len(own):
        raise ValueError(f"attention {own.shape} and scores {scores.shape} must be one-dimensional, of one length above 0")
    if not (own >= 0).all() or abs(own.sum() - 1) > 1e-4 or not np.isfinite(scores).all():
        raise ValueError("attention must be non-negative and sum to 1, and scores be finite")
    return _Vertices(own / own.sum(), scores, bias).furthest(epsilon)


class _Vertices:
    """Vertices of the simplex cut by an interval of s.x + bias. The loss of a vertex: 2 (log 2 - its divergence)."""

    def __init__(self, own: np.ndarray, scores: np.ndarray, bias: float):
        self.own, self.scores = own, scores + bias  # (s + b).x is s.x + b on the simplex
        self.entropy = xlogy(own, own)
        self.single = xlogy(1 + own, 1 + own) - self.entropy  # h(1, a)
        # a mean of the scores, which rounding must not take beyond them
        self.log_odds = float(np.clip(own @ self.scores, self.scores.min(), self.scores.max()))

    def furthest(self, epsilon: float) -> Adversary:
        return self.between(*_interval(self.log_odds, epsilon))

    def between(self, low: float, high: float) -> Adversary:
        """Return the vertex of largest divergence with low <= log-odds <= high. The interval is widened to hold `own`."""
        low, high = min(low, self.log_odds), max(high, self.log_odds)
        inside = np.flatnonzero((low <= self.scores) & (self.scores <= high))
        least = self.single[inside].min(initial=math.inf)
        for left, right, weight, bound in self._pairs(low, high):
            row, column = np.unravel_index(bound.argmin(), bound.shape)
            least = min(least, self._loss(left[row, 0], right[column], weight[row, column]))
            row, column = (bound < least).nonzero()
            least = min(least, self._loss(left[row, 0], right[column], weight[row, column]).min(initial=math.inf))
        tied = inside[self.single[inside] <= least + 2 * TIE]
        vertex = (tied[0], tied[0], 1.0) if len(tied) else self._first_pair(low, high, least + 2 * TIE)
        first, second, weight = vertex
        attention = np.zeros(len(self.own))
        attention[second], attention[first] = 1 - weight, weight
        log_odds = weight * self.scores[first] + (1 - weight) * self.scores[second]
        jsd = max(math.log(2) - float(least) / 2, 0.0)
        return Adversary(jsd, attention, np.array([0.0, log_odds]), jsd, len(inside))

    def _pairs(self, low: float, high: float) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Tokens below (M,1) and above (N,) an end, the former's weight (M,N) at it, and a bound (M,N) of the loss."""
        for end in (low, high):
            left, above = np.flatnonzero(self.scores < end)[:, None], np.flatnonzero(self.scores > end)
            if left.size and above.size:
                weight = (self.scores[above] - end) / (self.scores[above] - self.scores[left])
                yield left, above, weight, self.single[above] + weight * (self.single[left] - self.single[above])

    def _first_pair(self, low: float, high: float, limit: float) -> tuple[int, int, float]:
        """The two tokens of the first vertex whose loss is within a limit, and the weight of the former."""
        vertices = []
        for end, (left, right, weight, bound) in enumerate(self._pairs(low, high)):
            row, column = (bound <= limit).nonzero()
            first, second, share = left[row, 0], right[column], weight[row, column]
            tied = self._loss(first, second, share) <= limit
            for pair in zip(first[tied], second[tied], share[tied], strict=True):
                vertices.append((*sorted(pair[:2]), end, pair))
        return min(vertices)[-1]

    def _loss(self, left, right, weight):
        """h(x, a_left) + h(1 - x, a_right)."""
        rest = 1 - weight
        first, second = weight + self.own[left], rest + self.own[right]
        gained = xlogy(first, first) - xlogy(weight, weight) + xlogy(second, second) - xlogy(rest, rest)
        return gained - self.entropy[left] - self.entropy[right]


def _interval(log_odds: float, epsilon: float) -> tuple[float, float]:
    """Log-odds of p - epsilon and p + epsilon; -inf and inf where these leave 0..1. p and 1 - p both to full precision."""
    small = math.exp(-abs(log_odds))
    p, q = (1 / (1 + small), small / (1 + small)) if log_odds >= 0 else (small / (1 + small), 1 / (1 + small))
    low = math.log(p - epsilon) - math.log(q + epsilon) if p > epsilon else -math.inf
    high = math.log(p + epsilon) - math.log(q - epsilon) if q > epsilon else math.inf
    return low, high


@register
class AdversaryExact(Measure):
    """The adversarial attention that no search can beat: as far from the model's own as the prediction allows, exactly.

    The furthest attention within each of `epsilons`, total variation distances between predictions, hidden states held
    fixed. `adversary_exact_certainty`: "exact" with two classes; "bounded" with more, where the best attention found and a
    certified bound are given. No rows below two tokens. Where logits are not affine in attention, `adversary_search`
    searches.
    """

    name, needs = "adversary_exact", frozenset({AFFINE, "classes", "intervention"})
    columns = {
        "adversary_exact_epsilon": Column(("K",), "float64", range=(0.0, 1.0), doc="largest total variation distance"),
        "adversary_exact_attention": Column(("K", "T"), distribution=True, doc="the furthest attention within epsilon"),
        "adversary_exact_probs": Column(("K", "C"), distribution=True, doc="the prediction under that attention"),
        "adversary_exact_jsd": Column(doc="its Jensen-Shannon divergence from the model's", **DIVERGENCE),
        "adversary_exact_bound": Column(doc="no attention within epsilon diverges by more", **DIVERGENCE),
        "adversary_exact_one_token": Column(("K",), "int32", doc="tokens that keep the prediction with all the weight"),
        "adversary_exact_certainty": Column(dtype="category", doc="exact; bounded; undefined: fewer than two tokens"),
    }

    epsilons: Epsilons = (0.01, 0.05)

    def __call__(self, subject, batch) -> dict[str, list]:
        values = []
        for text in read_out(subject, batch):
            certainty, found = "undefined", []
            if len(text.attention) > 1:
                certainty, furthest = ("exact", exact) if len(text.probs) == 2 else ("bounded", bounded)
                found = [furthest(text, epsilon) for epsilon in self.epsilons]
            columns = [np.array([adversary[place] for adversary in found]) for place in range(len(Adversary._fields))]
            jsd, attention, logits, bound, one_token = columns
            attention = attention.reshape(len(found), len(text.attention)).astype(np.float32)
            probs = softmax(logits.reshape(len(found), len(text.probs))).astype(np.float32)
            epsilons = np.array(self.epsilons[: len(found)])
            values.append((epsilons, attention, probs, jsd, bound, one_token.astype(np.int32), certainty))
        return self.in_columns(subject, values)


def exact(text: Readout, epsilon: float) -> Adversary:
    """Return the maximum for two classes."""
    vertices = _Vertices(text.attention, text.values[:, 1] - text.values[:, 0], text.bias[1] - text.bias[0])
    return vertices.furthest(epsilon)


def bounded(text: Readout, epsilon: float) -> Adversary:
    """Return the best found, and a certified bound, for more classes."""
    scores = text.values + text.bias
    single = xlogy(1 + text.attention, 1 + text.attention) - xlogy(text.attention, text.attention)
    ranges, climb = implied_ranges(scores, text.probs, epsilon), Climb(text, epsilon)
    outer, least = cheapest(single, ranges)
    bounds = [math.log(2) - least / 2]
    for line, low, high in zip(*ranges, strict=True):
        bounds.append(_Vertices(text.attention, line, 0.0).between(low, high).jsd)
    attention = climb.best(ranges, outer)
    jsd = min(max(float(climb.divergence(attention[None])[0]), 0.0), *bounds)
    one_token = int((climb.distance(scores) <= epsilon).sum())
    return Adversary(jsd, attention, attention @ scores, min(bounds), one_token)
