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

Shapes: T tokens, C classes, K epsilons, M and N tokens on either side of an end (or M attentions at once), R ranges.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import expit, xlogy

from attnfaith.interventions.targets import AFFINE, Readout, read_out, softmax
from attnfaith.measurement.options import Epsilons
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


TIE = 1e-6  # nats: attentions closer than this to the best are tied; the first is taken
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
                two_classes = len(text.probs) == 2
                certainty, furthest = ("exact", exact(text)) if two_classes else ("bounded", partial(bounded, text))
                found = [furthest(epsilon) for epsilon in self.epsilons]
            columns = [np.array([adversary[place] for adversary in found]) for place in range(len(Adversary._fields))]
            jsd, attention, logits, bound, one_token = columns
            attention = attention.reshape(len(found), len(text.attention)).astype(np.float32)
            probs = softmax(logits.reshape(len(found), len(text.probs))).astype(np.float32)
            epsilons = np.array(self.epsilons[: len(found)])
            values.append((epsilons, attention, probs, jsd, bound, one_token.astype(np.int32), certainty))
        return self.in_columns(subject, values)


def shared(weights: np.ndarray, own: np.ndarray) -> np.ndarray:
    """h(x, a) of weights x and a model's own a, see step 4."""
    return xlogy(weights + own, weights + own) - xlogy(weights, weights) - xlogy(own, own)


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
    return _Vertices(own / own.sum(), scores + bias).furthest(epsilon)


def exact(text: Readout) -> Callable[[float], Adversary]:
    """Return the maximum for two classes, by epsilon."""
    scores = text.values + text.bias
    return _Vertices(text.attention, scores[:, 1] - scores[:, 0]).furthest


class _Vertices:
    """Vertices of the simplex cut by an interval of s.x. The loss of a vertex: 2 (log 2 - its divergence)."""

    def __init__(self, own: np.ndarray, scores: np.ndarray):
        self.own, self.scores, self.single = own, scores, shared(1.0, own)
        # a mean of the scores, which rounding must not take beyond them
        self.log_odds = float(np.clip(own @ scores, scores.min(), scores.max()))

    def furthest(self, epsilon: float) -> Adversary:
        """Return the vertex of largest divergence between the log-odds of p - epsilon and p + epsilon."""
        p, q = expit(self.log_odds), expit(-self.log_odds)  # both to full precision
        low = math.log(p - epsilon) - math.log(q + epsilon) if p > epsilon else -math.inf
        high = math.log(p + epsilon) - math.log(q - epsilon) if q > epsilon else math.inf
        return self.between(low, high)

    def between(self, low: float, high: float) -> Adversary:
        """Return the vertex of largest divergence with low <= log-odds <= high. The interval is widened to hold `own`."""
        low, high = min(low, self.log_odds), max(high, self.log_odds)
        inside = np.flatnonzero((low <= self.scores) & (self.scores <= high))
        least, pairs = self.single[inside].min(initial=math.inf), []
        for end in (low, high):
            left, above = np.flatnonzero(self.scores < end)[:, None], np.flatnonzero(self.scores > end)
            if not left.size or not above.size:
                continue
            weight = (self.scores[above] - end) / (self.scores[above] - self.scores[left])  # of the token below, (M,N)
            bound = self.single[above] + weight * (self.single[left] - self.single[above])
            row, column = np.unravel_index(bound.argmin(), bound.shape)
            least = min(least, self._loss(left[row, 0], above[column], weight[row, column]))
            row, column = (bound <= least + 2 * TIE).nonzero()
            vertices = left[row, 0], above[column], weight[row, column]
            losses = self._loss(*vertices)
            least = min(least, losses.min(initial=math.inf))
            near = losses <= least + 2 * TIE
            pairs += zip(losses[near], *(part[near] for part in vertices), strict=True)
        tied = inside[self.single[inside] <= least + 2 * TIE]
        vertices = [(token, token, 1.0) for token in tied[:1]] or [pair for loss, *pair in pairs if loss <= least + 2 * TIE]
        first, second, weight = min(vertices, key=lambda vertex: sorted(vertex[:2]))
        attention = np.zeros(len(self.own))
        attention[second], attention[first] = 1 - weight, weight
        log_odds = weight * self.scores[first] + (1 - weight) * self.scores[second]
        jsd = max(math.log(2) - float(least) / 2, 0.0)
        return Adversary(jsd, attention, np.array([0.0, log_odds]), jsd, len(inside))

    def _loss(self, left, right, weight):
        return shared(weight, self.own[left]) + shared(1 - weight, self.own[right])


PAIRS = 128  # pairs of tokens tried
STEPS = 40  # halvings of a segment, to 1e-12
TINY = 1e-12
NEIGHBOURS, ROUNDS = 3, 20  # heaviest tokens whose weight is moved to another, and how often


Ranges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""scores (R,T), low and high (R,): constraints low <= scores . x <= high that a prediction within epsilon implies."""


def bounded(text: Readout, epsilon: float) -> Adversary:
    """Return the best found, and a certified bound, for more classes."""
    scores = text.values + text.bias
    ranges, climb = implied_ranges(scores, text.probs, epsilon), Climb(text, epsilon)
    outer, least = cheapest(shared(1.0, text.attention), ranges)
    bounds = [math.log(2) - least / 2]
    for line, low, high in zip(*ranges, strict=True):
        bounds.append(_Vertices(text.attention, line).between(low, high).jsd)
    attention = climb.best(ranges, outer)
    jsd = min(max(float(climb.divergence(attention[None])[0]), 0.0), *bounds)
    one_token = int((climb.distance(scores) <= epsilon).sum())
    return Adversary(jsd, attention, attention @ scores, min(bounds), one_token)


def implied_ranges(scores: np.ndarray, probs: np.ndarray, epsilon: float) -> Ranges:
    """Return the log-odds of each two classes, and the intervals that a total variation distance of epsilon implies."""
    first, second = np.triu_indices(len(probs), 1)
    with np.errstate(divide="ignore"):
        rest = np.log(np.maximum(probs - epsilon, 0))
    raised = np.log(probs + epsilon)
    return (scores[:, first] - scores[:, second]).T, rest[first] - raised[second], raised[first] - rest[second]


class Climb:
    """The best attention found without a closed form: every point it holds keeps the prediction within epsilon.

    From a point that does, a segment to one that does not is halved down to where it stops doing so: the divergence is
    convex, so the end is the best. Segments lead from the model's attention to every token and to mixtures of two, from
    mixtures of two tokens to either of them, and from the best point on.
    """

    def __init__(self, text: Readout, epsilon: float):
        self.own, self.probs, self.epsilon, self.scores = text.attention, text.probs, epsilon, text.values + text.bias
        # (C,T), of the prediction by attention
        self.slopes = (self.probs * (self.scores - (self.scores @ self.probs)[:, None])).T
        # log-odds that all change by `width` or less move the prediction by no more than epsilon
        lines, width = implied_ranges(self.scores, self.probs, epsilon)[0], 4 * math.atanh(epsilon)
        self.sure = lines, lines @ self.own - width, lines @ self.own + width

    def distance(self, logits: np.ndarray) -> np.ndarray:
        """Return the total variation distance (M,) of the predictions of logits (M,C) to the model's."""
        return np.abs(softmax(logits) - self.probs).sum(-1) / 2

    def divergence(self, attentions: np.ndarray) -> np.ndarray:
        """Return the Jensen-Shannon divergence (M,) of attentions (M,T) from the model's, in nats."""
        return math.log(2) - shared(attentions, self.own).sum(-1) / 2

    def push(self, anchors: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Go from attentions within epsilon, (M,T) or one (T,), towards others (M,T), as far as that holds."""
        anchors = np.broadcast_to(anchors, targets.shape)
        near, far = anchors @ self.scores, targets @ self.scores
        done = np.where(self.distance(far) <= self.epsilon, 1.0, 0.0)
        failed = np.ones(len(targets))
        for _ in range(STEPS):
            middle = (done + failed) / 2
            held = self.distance(near + middle[:, None] * (far - near)) <= self.epsilon
            done, failed = np.where(held, middle, done), np.where(held, failed, middle)
        return anchors + done[:, None] * (targets - anchors)

    def best(self, ranges: Ranges, outer: np.ndarray) -> np.ndarray:
        """Return the best attention (T,). Predictions within epsilon lie in `ranges`; outer (T,): one to go towards."""
        tokens, start = np.eye(len(self.own)), outer[None]
        first, second, low, high = self._pairs(ranges)
        targets = np.concatenate([tokens, _mix(tokens, first, second, low), _mix(tokens, first, second, high)])
        reached = [self.own[None], self.push(self.own, targets)]
        middle = _mix(tokens, first, second, (low + high) / 2)
        held = self.distance(middle @ self.scores) <= self.epsilon
        reached += [self.push(middle[held], tokens[side[held]]) for side in (first, second)]
        near, far = self._least(shared(1.0, self.own))
        if self.distance(near @ self.scores) > self.epsilon:  # by the solver's rounding
            near = self.own[None]
        reached += [self.push(self.own, start), near, self.push(near, far), self.push(near, start)]
        chosen, divergence = self._furthest(np.concatenate(reached))
        for _ in range(ROUNDS):
            targets = np.concatenate([tokens, *self._moves(chosen, tokens)])
            better, larger = self._furthest(self.push(chosen, targets))
            if larger <= divergence + TIE:
                break
            chosen, divergence = better, larger
        return chosen

    def _moves(self, chosen: np.ndarray, tokens: np.ndarray) -> Iterator[np.ndarray]:
        """Attentions (M,T) to go towards: a heavy token's weight moved, and up the divergence's slope."""
        heaviest = np.argsort(-chosen, kind="stable")[:NEIGHBOURS]
        yield (chosen + chosen[heaviest, None, None] * (tokens - tokens[heaviest, None])).reshape(-1, len(tokens))
        yield from self._least(np.log1p(self.own / np.maximum(chosen, TINY)))

    def _furthest(self, attentions: np.ndarray) -> tuple[np.ndarray, float]:
        divergence = self.divergence(attentions)
        chosen = int((divergence >= divergence.max() - TIE).argmax())
        return attentions[chosen], float(divergence[chosen])

    def _pairs(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Two tokens each, and the weight of the first at either end of what `ranges` allow: the PAIRS furthest away."""
        first, second = np.triu_indices(len(self.own), 1)
        low, high = np.zeros(len(first)), np.ones(len(first))
        for scores, least, most in zip(*ranges, strict=True):
            start, slope = scores[second], scores[first] - scores[second]
            with np.errstate(divide="ignore", invalid="ignore"):  # equal scores: any weight will do, or none
                ends = np.sort([(least - start) / slope, (most - start) / slope], axis=0)
            low, high = np.fmax(low, ends[0]), np.fmin(high, ends[1])
            high[(slope == 0) & ~((least <= start) & (start <= most))] = -1
        open_pairs = (low <= high).nonzero()[0]
        first, second, low, high = first[open_pairs], second[open_pairs], low[open_pairs], high[open_pairs]
        ends = [shared(weight, self.own[first]) + shared(1 - weight, self.own[second]) for weight in (low, high)]
        chosen = np.argsort(np.minimum(*ends), kind="stable")[:PAIRS]
        return first[chosen], second[chosen], low[chosen], high[chosen]

    def _least(self, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Attentions (1,T) of least costs.x: one surely within epsilon, and one that is so to first order."""
        classes, tokens = self.slopes.shape
        unit = np.eye(classes)  # w_c >= |change of p_c|, and their sum at most 2 epsilon
        rows = np.block([[self.slopes, -unit], [-self.slopes, -unit], [np.zeros((1, tokens)), np.ones((1, classes))]])
        middle = self.slopes @ self.own
        limits = np.concatenate([middle, -middle, [2 * self.epsilon]])
        total = np.append(np.ones(tokens), np.zeros(classes))[None]
        solved = linprog(np.append(costs, np.zeros(classes)), rows, limits, total, 1.0)
        far = self.own if solved.x is None else _on_simplex(solved.x[:tokens])
        return cheapest(costs, self.sure)[0][None], far[None]


def _mix(tokens, first, second, weight) -> np.ndarray:
    return weight[:, None] * tokens[first] + (1 - weight)[:, None] * tokens[second]


def cheapest(costs: np.ndarray, ranges: Ranges) -> tuple[np.ndarray, float]:
    """Return the attention of least costs.x in `ranges`, and a number that no such attention is below, whatever the solver
    rounds: for multipliers y >= 0 of the constraints A x <= b, costs.x >= (costs + y A).x - y.b >= min(costs + y A) - y.b.
    """
    scores, low, high = ranges
    rows, limits = np.concatenate([scores, -scores]), np.concatenate([high, -low])
    rows, limits = rows[np.isfinite(limits)], limits[np.isfinite(limits)]
    rows, limits = np.concatenate([rows, np.zeros((1, len(costs)))]), np.append(limits, 0.0)
    solved = linprog(costs, rows, limits, np.ones((1, len(costs))), 1.0)
    if solved.x is None:  # the solver gave up: no constraint is in force
        return np.eye(len(costs))[costs.argmin()], float(costs.min())
    multipliers = np.maximum(-solved.ineqlin.marginals, 0)
    return _on_simplex(solved.x), float((costs + multipliers @ rows).min() - multipliers @ limits)


def _on_simplex(weights: np.ndarray) -> np.ndarray:
    """Weights without what the solver's tolerance leaves below 0 and beside the sum of 1."""
    weights = np.maximum(weights, 0)
    return weights / weights.sum()
