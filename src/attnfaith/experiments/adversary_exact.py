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

With more classes a total variation distance of epsilon is no interval, but implies one for the log-odds of every two
classes: log((p_c - e) / (p_d + e)) .. log((p_c + e) / (p_d - e)). The maximum over each of these is an upper bound, and so
is the linear programme that takes all of them together with the bound of step 4; the smaller one is certified. The best
attention found that keeps the prediction within epsilon is a lower bound. A read-out that is not affine has only that,
under the maximum over the whole simplex. `adversary_exact_certainty` says which case it is.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.special import xlogy

from attnfaith.experiments._readout import encode, read_out, softmax
from attnfaith.record import Column


COLUMNS = {
    "adversary_exact_epsilon": Column(("K",), "float64", doc="largest total variation distance allowed; 0..1"),
    "adversary_exact_attention": Column(
        ("K", "T"),
        distribution=True,
        doc="the attention furthest from the model's own that keeps the prediction within epsilon",
    ),
    "adversary_exact_probs": Column(("K", "C"), distribution=True, doc="the prediction under that attention"),
    "adversary_exact_jsd": Column(("K",), "float64", doc="its Jensen-Shannon divergence from the model's; nats, 0..ln 2"),
    "adversary_exact_bound": Column(
        ("K",), "float64", doc="no attention that keeps the prediction has a larger divergence; nats, 0..ln 2"
    ),
    "adversary_exact_one_token": Column(
        ("K",), "int32", doc="tokens that keep the prediction within epsilon when they have all the weight"
    ),
    "adversary_exact_certainty": Column(
        dtype="category",
        doc="exact: the maximum; bounded: the best found, below a certified bound; lower bound: the best found; "
        "undefined: fewer than two tokens",
    ),
}
METRIC = {
    "counterfactual_attention": "adversary_exact_attention",
    "counterfactual_probs": "adversary_exact_probs",
}
EPSILONS = (0.01, 0.05)
TIE = 1e-6  # nats: vertices closer than this to the maximum are tied, and rounding in the encoder must not choose
PAIRS = 128  # pairs of tokens tried where there is no closed form
STEPS = 40  # halvings of a segment, to 1e-12
GRID = 17  # weights tried on the segment between two tokens
NEIGHBOURS, ROUNDS = 3, 20  # heaviest tokens whose weight is moved to another, and how often


class Adversary(NamedTuple):
    """An adversarial attention (T,) float64, the maximum `jsd` in nats, the log-odds it gives, and `one_token`: how many
    tokens keep the prediction within epsilon when they have all the weight.
    """

    jsd: float
    attention: np.ndarray
    log_odds: float
    one_token: int


def check(*, epsilons: Sequence[float] = EPSILONS) -> None:
    """Raises ValueError unless epsilons are one or more different numbers between 0 and 1."""
    found = [epsilons] if isinstance(epsilons, int | float) else list(epsilons)
    for epsilon in found:
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < 1:
            raise ValueError(f"epsilons={epsilons!r}: each is a distance of predictions, above 0 and below 1, such as 0.01")
    if isinstance(epsilons, int | float) or not found or len(set(found)) < len(found):
        raise ValueError(f"epsilons={epsilons!r}: give a list of one or more different numbers, such as [0.01, 0.05]")


def maximise(attention: np.ndarray, scores: np.ndarray, bias: float = 0.0, epsilon: float = 0.01) -> Adversary:
    """The attention furthest from a given one whose prediction is at most epsilon away: the exact maximum.

    attention (T,): the model's own, T >= 1, non-negative, summing to 1. scores (T,): log-odds of class 1 that each token's
    state adds, so that the prediction under an attention x is sigmoid(scores . x + bias). Predictions that round to 0 or 1
    are no special case, for all is done in log-odds and float64.

    `jsd` is the maximum; `attention` reaches it within 1e-6: of vertices that close to the maximum, one token comes before
    two, then the token that stands first. Source: the proof above; Jain & Wallace 2019, algorithm 3, for the question.

    Raises ValueError for an epsilon outside 0..1 and arguments of the wrong shape or sum.

    >>> found = maximise([0.5, 0.3, 0.2], [0.0, 0.0, 0.0], epsilon=0.01)
    >>> found.attention.tolist(), found.one_token
    ([0.0, 0.0, 1.0], 3)
    """
    check(epsilons=(epsilon,))
    own, scores = np.asarray(attention, np.float64), np.asarray(scores, np.float64)
    if own.ndim != 1 or own.shape != scores.shape or not len(own):
        raise ValueError(f"attention {own.shape} and scores {scores.shape} must be one-dimensional, of one length above 0")
    if not (own >= 0).all() or abs(own.sum() - 1) > 1e-4 or not np.isfinite(scores).all():
        raise ValueError("attention must be non-negative and sum to 1, and scores be finite")
    return _Vertices(own / own.sum(), scores, bias).furthest(epsilon)


class _Vertices:
    """Vertices of the simplex cut by an interval of s.x + bias, s (T,) sorted once; own: the attention to be far from."""

    def __init__(self, own: np.ndarray, scores: np.ndarray, bias: float):
        self.order = scores.argsort(kind="stable")
        self.own, self.scores = own[self.order], scores[self.order] + bias  # (s + b).x is s.x + b on the simplex
        self.entropy = xlogy(self.own, self.own)
        self.single = xlogy(1 + self.own, 1 + self.own) - self.entropy  # h(1, a)
        # a mean of the scores, which rounding must not take beyond them
        self.log_odds = float(min(max(self.own @ self.scores, self.scores[0]), self.scores[-1]))

    def furthest(self, epsilon: float) -> Adversary:
        return self.between(*_interval(self.log_odds, epsilon))

    def between(self, low: float, high: float) -> Adversary:
        """The vertex of largest divergence with low <= log-odds <= high. The interval is widened to hold `own`."""
        low, high = min(low, self.log_odds), max(high, self.log_odds)
        scores, single = self.scores, self.single
        start, stop = scores.searchsorted(low, "left"), scores.searchsorted(high, "right")
        inside = single[start:stop]
        least = inside.min() if stop > start else math.inf
        edges = []
        for end in (low, high):
            below, above = scores.searchsorted(end, "left"), scores.searchsorted(end, "right")
            if 0 < below and above < len(scores):
                right = scores[above:]
                weight = (right - end) / (right - scores[:below, None])  # of the token below
                bound = single[above:] + weight * (single[:below, None] - single[above:])
                row, column = divmod(int(bound.argmin()), len(right))
                least = min(least, self._loss(row, above + column, weight[row, column]))
                edges.append((above, weight, bound))
        lefts, rights, weights, losses = [], [], [], []
        for above, weight, bound in edges:
            left, right = (bound <= least + 2 * TIE).nonzero()
            lefts.append(left)
            rights.append(right + above)
            weights.append(weight[left, right])
            losses.append(self._loss(left, right + above, weights[-1]))
            least = min(least, losses[-1].min(initial=math.inf))
        attention = np.zeros(len(scores))
        if (tied := (inside <= least + 2 * TIE).nonzero()[0]).size:
            attention[self.order[start + tied].min()] = 1.0
            log_odds = scores[start + tied[self.order[start + tied].argmin()]]
        else:
            left, right, weight = np.concatenate(lefts), np.concatenate(rights), np.concatenate(weights)
            tied = (np.concatenate(losses) <= least + 2 * TIE).nonzero()[0]
            pairs = np.sort([self.order[left[tied]], self.order[right[tied]]], axis=0)
            chosen = tied[np.lexsort((pairs[1], pairs[0]))[0]]
            i, j, x = left[chosen], right[chosen], weight[chosen]
            attention[self.order[i]], attention[self.order[j]] = x, 1 - x
            log_odds = x * scores[i] + (1 - x) * scores[j]
        return Adversary(max(math.log(2) - least / 2, 0.0), attention, float(log_odds), int(stop - start))

    def _loss(self, left, right, weight):
        """h(x, a_left) + h(1 - x, a_right): what a vertex falls short of log 2, twice."""
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


class _Decoder(NamedTuple):
    """What predictions are made of: states (T,D), whose mean under an attention is a point (D,), and `probs`, which gives
    probabilities (M,C) of points (M,D). Affine read-outs have values for states; others have the encoder's own.
    """

    states: np.ndarray
    probs: Callable[[np.ndarray], np.ndarray]


class _Ranges(NamedTuple):
    """What a prediction within epsilon implies, or is guessed to: scores (R,T) whose means lie between low and high (R,)."""

    scores: np.ndarray
    low: np.ndarray
    high: np.ndarray


def _ranges(scores: np.ndarray, probs: np.ndarray, epsilon: float) -> _Ranges:
    """Log-odds (T,C) of each two classes, and the intervals that a total variation distance of epsilon implies for them."""
    first, second = np.array(list(itertools.combinations(range(len(probs)), 2))).T
    with np.errstate(divide="ignore"):
        rest = np.log(np.maximum(probs - epsilon, 0))
    raised = np.log(probs + epsilon)
    return _Ranges((scores[:, first] - scores[:, second]).T, rest[first] - raised[second], raised[first] - rest[second])


class _Climb:
    """The best attention found without a closed form: every point it holds keeps the prediction within epsilon.

    From a point that does, a segment to one that does not is halved down to where it stops doing so; since the divergence
    is convex, the end of a segment is its best point. Segments lead from the model's attention to every token and to
    mixtures of two, from the mixture of two tokens that changes least to either of them, and from the best point on.
    """

    def __init__(self, own: np.ndarray, probs: np.ndarray, decoder: _Decoder, epsilon: float):
        self.own, self.probs, self.decoder, self.epsilon = own, probs, decoder, epsilon
        self.entropy = xlogy(own, own)

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Total variation distance (M,) of the predictions at points (M,D) to the model's."""
        return np.abs(self.decoder.probs(points) - self.probs).sum(-1) / 2

    def divergence(self, attentions: np.ndarray) -> np.ndarray:
        """JSD (M,) of attentions (M,T) from the model's, in nats."""
        mixed = attentions + self.own
        return math.log(2) - (xlogy(mixed, mixed) - xlogy(attentions, attentions) - self.entropy).sum(-1) / 2

    def push(self, anchors: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """From attentions (M,T) within epsilon towards others (M,T), as far as that holds: attentions (M,T)."""
        near, far = anchors @ self.decoder.states, targets @ self.decoder.states
        done = np.where(self.distance(far) <= self.epsilon, 1.0, 0.0)
        failed = np.ones(len(targets))
        for _ in range(STEPS):
            middle = (done + failed) / 2
            held = self.distance(near + middle[:, None] * (far - near)) <= self.epsilon
            done, failed = np.where(held, middle, done), np.where(held, failed, middle)
        return anchors + done[:, None] * (targets - anchors)

    def best(self, ranges: _Ranges, certain: bool, starts: np.ndarray) -> np.ndarray:
        """The attention (T,) found. certain: predictions within epsilon lie in `ranges`; else that is only a guess. starts
        (M,T): attentions to push towards from the model's and from one another.
        """
        tokens = np.eye(len(self.own))
        first, second, low, high = self._pairs(ranges)
        targets = np.concatenate([tokens, _mix(tokens, first, second, low), _mix(tokens, first, second, high)])
        found = [self.own[None], self.push(np.broadcast_to(self.own, targets.shape), targets)]
        if not certain:
            low, high = np.zeros(len(low)), np.ones(len(high))
        middle = _mix(tokens, first, second, self._least_change(first, second, low, high))
        held = self.distance(middle @ self.decoder.states) <= self.epsilon
        found += [self.push(middle[held], tokens[side[held]]) for side in (first, second)]
        for start in starts[self.distance(starts @ self.decoder.states) <= self.epsilon]:
            found.append(self.push(np.broadcast_to(start, starts.shape), starts))
        chosen, reached = self._furthest(np.concatenate(found))
        for _ in range(ROUNDS):
            heaviest = np.argsort(-chosen, kind="stable")[:NEIGHBOURS]
            moved = chosen + chosen[heaviest, None, None] * (tokens - tokens[heaviest, None])
            targets = np.concatenate([tokens, moved.reshape(-1, len(tokens))])
            better, divergence = self._furthest(self.push(np.broadcast_to(chosen, targets.shape), targets))
            if divergence <= reached + TIE:
                break
            chosen, reached = better, divergence
        return chosen

    def _furthest(self, attentions: np.ndarray) -> tuple[np.ndarray, float]:
        divergence = self.divergence(attentions)
        chosen = int((divergence >= divergence.max() - TIE).argmax())
        return attentions[chosen], float(divergence[chosen])

    def _pairs(self, ranges: _Ranges) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Two tokens each, and the weight of the first at either end of what `ranges` allow: the PAIRS furthest away."""
        first, second = np.triu_indices(len(self.own), 1)
        low, high = np.zeros(len(first)), np.ones(len(first))
        for scores, least, most in zip(*ranges, strict=True):
            start, slope = scores[second], scores[first] - scores[second]
            with np.errstate(divide="ignore", invalid="ignore"):  # equal scores: any weight will do, or none
                ends = np.sort([(least - start) / slope, (most - start) / slope], axis=0)
            low, high = np.fmax(low, ends[0]), np.fmin(high, ends[1])
            high[(slope == 0) & ~((least <= start) & (start <= most))] = -1
        kept = (low <= high).nonzero()[0]
        first, second, low, high = first[kept], second[kept], low[kept], high[kept]
        promise = np.maximum(self._mixed(first, second, low), self._mixed(first, second, high))
        kept = np.argsort(-promise, kind="stable")[:PAIRS]
        return first[kept], second[kept], low[kept], high[kept]

    def _mixed(self, first, second, weight) -> np.ndarray:
        """The divergence of mixtures of two tokens, less what they share."""
        rest, one, other = 1 - weight, self.own[first], self.own[second]
        gained = xlogy(weight + one, weight + one) - xlogy(weight, weight) - self.entropy[first]
        return -gained - xlogy(rest + other, rest + other) + xlogy(rest, rest) + self.entropy[second]

    def _least_change(self, first, second, low, high) -> np.ndarray:
        """The weight of the first token, low to high, that changes the prediction least: by a grid, then by halvings."""
        one, other = self.decoder.states[first], self.decoder.states[second]

        def change(weight):
            points = other + weight[..., None] * (one - other)
            return self.distance(points.reshape(-1, points.shape[-1])).reshape(weight.shape)

        grid = low + (high - low) * np.linspace(0, 1, GRID)[:, None]
        weight, width = np.take_along_axis(grid, change(grid).argmin(0)[None], 0)[0], (high - low) / (GRID - 1)
        for _ in range(STEPS // 2):
            tried = np.clip(weight + width / 2 * np.array([[0], [-1], [1]]), low, high)
            weight, width = np.take_along_axis(tried, change(tried).argmin(0)[None], 0)[0], width / 2
        return weight


def _mix(tokens, first, second, weight) -> np.ndarray:
    return weight[:, None] * tokens[first] + (1 - weight)[:, None] * tokens[second]


@torch.no_grad()
def measure(model, batch, *, seed: int = 0, epsilons: Sequence[float] = EPSILONS) -> dict[str, list]:
    """The furthest attention from the model's own within each epsilon, hidden states held fixed.

    epsilons: total variation distances between predictions, in 0..1; with two classes |change of p|. Their order is that of
    the K rows. `adversary_exact_certainty`: "exact" with two classes and an affine read-out; "bounded" with more, where the
    best attention found and a certified bound are given; "lower bound" where the read-out is not affine. A text of fewer
    than two tokens has one attention and no adversary: its rows are empty and it is "undefined". Nothing is random.

    Raises ValueError as `check` says.
    """
    check(epsilons=epsilons)
    encoded = None if model.decoder.affine else encode(model, batch)
    found = {name: [] for name in COLUMNS}
    for row, text in enumerate(read_out(model, batch)):
        classes, length = len(text.probs), len(text.attention)
        results = []
        if length < 2:
            certainty = "undefined"
        elif text.values is None:
            certainty = "lower bound"
            results = _searched(text, _decoded(model, encoded, row), epsilons)
        elif classes > 2:
            certainty = "bounded"
            results = _bounded(text, epsilons)
        else:
            certainty = "exact"
            results = _exact(text, epsilons)
        attention, probs, jsd, bound, one_token = zip(*results, strict=True) if results else [()] * 5
        values = (
            np.array(epsilons if results else (), np.float64),
            np.array(attention, np.float32).reshape(len(results), length),
            np.array(probs, np.float32).reshape(len(results), classes),
            np.array(jsd, np.float64),
            np.array(bound, np.float64),
            np.array(one_token, np.int32),
            certainty,
        )
        for name, value in zip(COLUMNS, values, strict=True):
            found[name].append(value)
    return found


def _exact(text, epsilons) -> list[tuple]:
    vertices = _Vertices(text.attention, text.values[:, 1] - text.values[:, 0], text.bias[1] - text.bias[0])
    results = []
    for epsilon in epsilons:
        adversary = vertices.furthest(epsilon)
        odds = np.array([0.0, adversary.log_odds])
        results.append((adversary.attention, softmax(odds), adversary.jsd, adversary.jsd, adversary.one_token))
    return results


def _bounded(text, epsilons) -> list[tuple]:
    scores = text.values + text.bias
    decoder = _Decoder(scores, softmax)
    single = xlogy(1 + text.attention, 1 + text.attention) - xlogy(text.attention, text.attention)
    results = []
    for epsilon in epsilons:
        ranges = _ranges(scores, text.probs, epsilon)
        outer, least = _cheapest(single, ranges)
        bound = min(
            math.log(2) - least / 2,
            *(_Vertices(text.attention, line, 0.0).between(low, high).jsd for line, low, high in zip(*ranges, strict=True)),
        )
        own = ranges.scores @ text.attention
        width = 4 * math.atanh(epsilon)  # no prediction whose log-odds all change by this or less is further than epsilon
        inner, _ = _cheapest(single, ranges._replace(low=own - width, high=own + width))
        results.append(_climbed(text, decoder, epsilon, ranges, bound, np.stack([inner, outer])))
    return results


def _cheapest(costs: np.ndarray, ranges: _Ranges) -> tuple[np.ndarray, float]:
    """The attention of least costs.x in `ranges`, and a number that no such attention is below, whatever the solver rounds:
    for multipliers y >= 0 of the constraints A x <= b, costs.x >= (costs + y A).x - y.b >= min(costs + y A) - y.b.
    """
    rows, limits = np.concatenate([ranges.scores, -ranges.scores]), np.concatenate([ranges.high, -ranges.low])
    rows, limits = rows[np.isfinite(limits)], limits[np.isfinite(limits)]
    rows, limits = np.concatenate([rows, np.zeros((1, len(costs)))]), np.append(limits, 0.0)
    solved = linprog(costs, rows, limits, np.ones((1, len(costs))), 1.0)
    multipliers = np.maximum(-solved.ineqlin.marginals, 0)
    weights = np.maximum(solved.x, 0)
    return weights / weights.sum(), float((costs + multipliers @ rows).min() - multipliers @ limits)


def _searched(text, decoder: _Decoder, epsilons) -> list[tuple]:
    alone = np.log(np.maximum(decoder.probs(decoder.states), np.finfo(np.float64).tiny))
    bound = _Vertices(text.attention, np.zeros(len(text.attention)), 0.0).between(0, 0).jsd
    starts = text.attention[None]
    return [_climbed(text, decoder, e, _ranges(alone, text.probs, e), bound, starts) for e in epsilons]


def _climbed(text, decoder: _Decoder, epsilon: float, ranges: _Ranges, bound: float, starts: np.ndarray) -> tuple:
    climb = _Climb(text.attention, text.probs, decoder, epsilon)
    attention = climb.best(ranges, text.values is not None, starts)
    jsd = min(max(float(climb.divergence(attention[None])[0]), 0.0), bound)
    one_token = int((climb.distance(decoder.states) <= epsilon).sum())
    return attention, decoder.probs(attention[None] @ decoder.states)[0], jsd, bound, one_token


def _decoded(model, encoded, row: int) -> _Decoder:
    """The model's own decoder over the states of one text."""
    hidden = encoded.hidden[row, encoded.mask[row]]
    query = None if encoded.query is None else encoded.query[row : row + 1]

    def probs(points):
        contexts = torch.as_tensor(points, dtype=hidden.dtype, device=hidden.device)
        logits = model.decode(contexts[None], torch.eye(len(points), device=hidden.device)[None], query)[0]
        return logits.double().softmax(-1).cpu().numpy()

    return _Decoder(hidden.double().cpu().numpy(), probs)
