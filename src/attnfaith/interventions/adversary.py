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
found that keeps the prediction within epsilon is a lower bound. A read-out that is not affine has only that, under the
maximum over the whole simplex, and so have attention over the words of a hierarchical model and that of one head of a stack
of layers, which costs thousands of readings of each text and is measured only where it is named.

Shapes: T tokens, C classes, K epsilons, M attentions, M and N tokens on either side of an end.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import xlogy

from attnfaith.interventions.climb import AT_ONCE, Climb, Decoder, Gathered, Ranges, cheapest, gathered, implied_ranges
from attnfaith.interventions.targets import Readout, read_out, softmax, under
from attnfaith.measurement.options import Epsilons
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


EPSILONS = (0.01, 0.05)
BLOCK = 1 << 17  # pairs of tokens looked at together: few enough for the processor's cache
TIE = 1e-6  # nats: vertices closer than this to the maximum are tied, and rounding in the encoder must not choose


class Adversary(NamedTuple):
    """An adversarial attention (T,) float64, the maximum `jsd` in nats, the log-odds it gives, and `one_token`: how many
    tokens keep the prediction within epsilon when they have all the weight.
    """

    jsd: float
    attention: np.ndarray
    log_odds: float
    one_token: int


def maximise(attention: np.ndarray, scores: np.ndarray, bias: float = 0.0, epsilon: float = 0.01) -> Adversary:
    """The attention furthest from a given one whose prediction is at most epsilon away: the exact maximum.

    attention (T,): the model's own, T >= 1, non-negative, summing to 1. scores (T,): log-odds of class 1 that each token's
    state adds, so that the prediction under an attention x is sigmoid(scores . x + bias). Predictions that round to 0 or 1
    are no special case, for all is done in log-odds and float64.

    `jsd` is the maximum; `attention` reaches it within 1e-6: of vertices that close to the maximum, one token comes before
    two, then the token that stands first. Source: the proof above; Jain & Wallace 2019, algorithm 3, for the question.

    Raises ValueError for an epsilon outside 0..1 and arguments of the wrong shape or sum.

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
        scores = self.scores
        start, stop = scores.searchsorted(low, "left"), scores.searchsorted(high, "right")
        inside = self.single[start:stop]
        least = inside.min() if stop > start else math.inf
        pairs = _Pairs(self.order)
        groups = [group for end in (low, high) for group in self._groups(end, least, pairs)]
        proved = min([least, pairs.least, *(bounds.min() for *_, bounds in groups)])  # no vertex loses less
        for group in groups:
            self._gather(*group, least, proved, pairs)
        least = min(least, pairs.least)
        attention = np.zeros(len(scores))
        if (tied := (inside <= least + 2 * TIE).nonzero()[0]).size:
            attention[self.order[start + tied].min()] = 1.0
            log_odds = scores[start + tied[self.order[start + tied].argmin()]]
        else:
            i, j, x = pairs.first(least + 2 * TIE)
            attention[self.order[i]], attention[self.order[j]] = x, 1 - x
            log_odds = x * scores[i] + (1 - x) * scores[j]
        return Adversary(max(math.log(2) - least / 2, 0.0), attention, float(log_odds), int(stop - start))

    def _groups(self, end: float, least: float, pairs: "_Pairs") -> Iterator[tuple]:
        """Put into `pairs` the vertices at one end of the interval that may be chosen, where there are few; where there are
        many only the one of the least bound of step 4, and what `_gather` takes: the end, tokens below it (M,) and above it
        (N,), by rising scores, and for each of those below the least bound. least: as there.

        Two tokens without weight lose nothing: of those the first two stand for all.
        """
        below, above = self.scores.searchsorted(end, "left"), self.scores.searchsorted(end, "right")
        left, right = np.arange(below), np.arange(above, len(self.scores))
        if not (len(left) and len(right)):
            return
        if len(left) * len(right) <= BLOCK:
            bound = self._bound(left, right, end)
            row, column = divmod(int(bound.argmin()), len(right))
            limit = min(least, pairs.least, float(self._loss(*self._vertex(left[row], right[column], end)))) + 2 * TIE
            row, column = (bound <= limit).nonzero()
            self._add(row, right[column], end, pairs)
            return
        (empty_left, some_left), (empty_right, some_right) = (
            (side[self.own[side] == 0], side[self.own[side] > 0]) for side in (left, right)
        )
        if len(empty_left) and len(empty_right):
            self._add(*(side[[self.order[side].argmin()]] for side in (empty_left, empty_right)), end, pairs)
        for rows, columns in ((some_left, right), (empty_left, some_right)):
            if not (len(rows) and len(columns)):
                continue
            # a bound is the height at `end` of a line through two points (score, h(1, a)): the least of a row is on the hull
            corners = columns[_lower_hull(self.scores[columns], self.single[columns])]
            bounds, places = [], []
            for some in _split(rows, len(corners)):
                bound = self._bound(some, corners, end)
                places.append(bound.argmin(1))
                bounds.append(np.take_along_axis(bound, places[-1][:, None], 1)[:, 0])
            bounds = np.concatenate(bounds)
            lowest = slice(bounds.argmin(), bounds.argmin() + 1)
            self._add(rows[lowest], corners[np.concatenate(places)[lowest]], end, pairs)
            yield end, rows, columns, bounds

    def _gather(self, end: float, rows, columns, bounds, least: float, proved: float, pairs: "_Pairs") -> None:
        """Put into `pairs` those of many vertices that may be chosen.

        least: the loss of the best vertex of one token. proved: what no vertex loses less than.
        """
        most, limit = 0.5, math.nan
        for some in _split(rows[bounds <= min(least, pairs.least) + 2 * TIE], len(columns)):
            best = min(least, pairs.least)
            if limit != (limit := best + 2 * TIE):
                most = self._most(limit)
            far, reach = (self.scores[columns] - end) * (1 / most - 1), end - self.scores[some]
            far_too = self.scores[columns] - end >= (1 / most - 1) * reach.min()
            near = columns[(far <= reach.max()) | far_too]
            bound = self._bound(some, near, end)
            # one that is tied whatever follows is chosen before all that stand later in the text
            earlier = np.minimum(self.order[some, None], self.order[near]) <= pairs.place(proved + 2 * TIE)
            row, column = ((bound <= limit) & (earlier | (bound < best))).nonzero()
            self._add(some[row], near[column], end, pairs)

    def _bound(self, left: np.ndarray, right: np.ndarray, end: float) -> np.ndarray:
        """Bounds (M,N) of the losses of vertices of M tokens below an end and N above it."""
        _, _, weight = self._vertex(left[:, None], right, end)
        return self.single[right] + weight * (self.single[left, None] - self.single[right])

    def _vertex(self, left, right, end: float) -> tuple:
        """Two tokens, and the weight of the first, with which they reach an end."""
        return left, right, (self.scores[right] - end) / (self.scores[right] - self.scores[left])

    def _most(self, limit: float) -> float:
        """The largest weight, up to 1/2, of the lighter of two tokens that may lose no more than a limit: the least loss is
        h(x, a) + h(1 - x, a) with the least a, for h grows with a; it is concave and symmetric in x, so it grows up to 1/2.
        """
        own = self.own.min()

        def lost(x: float) -> float:
            return sum(xlogy(part + own, part + own) - xlogy(part, part) - xlogy(own, own) for part in (x, 1 - x))

        if lost(0.5) <= limit:
            return 0.5
        low, high = 0.0, 0.5
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if lost(middle) <= limit else (low, middle)
        return high

    def _add(self, left: np.ndarray, right: np.ndarray, end: float, pairs: "_Pairs") -> None:
        vertices = self._vertex(left, right, end)
        pairs.add(*vertices, self._loss(*vertices))

    def _loss(self, left, right, weight):
        """h(x, a_left) + h(1 - x, a_right): what a vertex falls short of log 2, twice."""
        rest = 1 - weight
        first, second = weight + self.own[left], rest + self.own[right]
        gained = xlogy(first, first) - xlogy(weight, weight) + xlogy(second, second) - xlogy(rest, rest)
        return gained - self.entropy[left] - self.entropy[right]


class _Pairs:
    """Vertices of two tokens each, as many as matter: those that lose less than all that stand before them in the text.

    order (T,): the places in the text of tokens sorted by scores, by which pairs are named. least: the least loss.
    """

    def __init__(self, order: np.ndarray):
        self.order, self.least = order, math.inf
        self._listed = np.zeros((2, 0), np.int64), np.zeros((2, 0))

    def add(self, left: np.ndarray, right: np.ndarray, weight: np.ndarray, loss: np.ndarray) -> None:
        tokens = np.concatenate([self._listed[0], [left, right]], axis=1)
        numbers = np.concatenate([self._listed[1], [weight, loss]], axis=1)
        places = np.sort(self.order[tokens], axis=0)
        sequence = np.lexsort((places[1], places[0]))
        losses = numbers[1, sequence]
        before = np.minimum.accumulate(np.concatenate([[math.inf], losses[:-1]]))
        first = sequence[losses < before]
        self._listed = tokens[:, first], numbers[:, first]
        self.least = min(self.least, losses.min(initial=math.inf))

    def place(self, limit: float) -> float:
        """Where in the text the first vertex stands that loses no more than a limit; infinity without one."""
        tokens, (_, loss) = self._listed
        tied = (loss <= limit).nonzero()[0]
        return self.order[tokens[:, tied[0]]].min() if tied.size else math.inf

    def first(self, limit: float) -> tuple[int, int, float]:
        """The two tokens of the first vertex in the text that loses no more than a limit, and the weight of the one."""
        tokens, (weight, loss) = self._listed
        chosen = (loss <= limit).argmax()
        return *tokens[:, chosen], weight[chosen]


def _lower_hull(x: np.ndarray, y: np.ndarray) -> list[int]:
    """The corners of the lower convex hull of points, from left to right; x is sorted. By a monotone chain."""
    corners: list[int] = []
    points = x.tolist(), y.tolist()
    for point, (at, height) in enumerate(zip(*points, strict=True)):
        if corners and at == x[corners[-1]]:
            if height >= y[corners[-1]]:
                continue
            corners.pop()
        while len(corners) > 1:
            (x0, y0), (x1, y1) = ((points[0][corner], points[1][corner]) for corner in corners[-2:])
            if (x1 - x0) * (height - y0) > (y1 - y0) * (at - x0):
                break
            corners.pop()
        corners.append(point)
    return corners


def _split(rows: np.ndarray, columns: int) -> list[np.ndarray]:
    """Rows in parts that have no more than BLOCK numbers in so many columns."""
    return np.array_split(rows, min(len(rows), -(-len(rows) * columns // BLOCK))) if len(rows) else []


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

    The furthest attention from the model's own within each epsilon, hidden states held fixed.

    epsilons: total variation distances between predictions, in 0..1; with two classes |change of p|. Their order is that of
    the K rows. `adversary_exact_certainty`: "exact" with two classes and an affine read-out; "bounded" with more, where the
    best attention found and a certified bound are given; "lower bound" where logits are not affine in attention. Classes
    that an answer mask bars do not count; where it leaves one class, any attention keeps the prediction. A text of fewer
    than two tokens has one attention and no adversary: its rows are empty and it is "undefined". Nothing is random.

    Where no closed form is known, the weights of the 1,000 tokens with the least attention are tried one by one, and those
    of the others of a longer text together; of more than 32 classes the most probable are asked about. That leaves every
    bound and every attention true, only maybe further from each other.
    """

    name, needs = "adversary_exact", frozenset({"classes", "intervention"})
    columns = {
        "adversary_exact_epsilon": Column(("K",), "float64", range=(0.0, 1.0), doc="largest total variation distance"),
        "adversary_exact_attention": Column(
            ("K", "T"), distribution=True, doc="the furthest attention that keeps the prediction within epsilon"
        ),
        "adversary_exact_probs": Column(("K", "C"), distribution=True, doc="the prediction under that attention"),
        "adversary_exact_jsd": Column(
            ("K",), "float64", range=(0.0, math.log(2)), unit="nats", doc="its Jensen-Shannon divergence from the model's"
        ),
        "adversary_exact_bound": Column(
            ("K",), "float64", range=(0.0, math.log(2)), unit="nats", doc="no attention within epsilon diverges by more"
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
    metric = {"counterfactual_attention": "adversary_exact_attention", "counterfactual_probs": "adversary_exact_probs"}

    epsilons: Epsilons = EPSILONS

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        values = []
        for row, text in enumerate(read_out(subject, batch)):
            certainty, rows = self._furthest(subject, batch, row, text)
            count = len(rows)
            probs = np.zeros((count, len(text.probs)), np.float32)  # of barred classes it stays 0
            probs[:, text.answers] = np.reshape([furthest.probs for furthest in rows], (count, text.answers.sum()))
            attention = np.array([furthest.attention for furthest in rows], np.float32).reshape(count, len(text.attention))
            numbers = np.array([(furthest.jsd, furthest.bound) for furthest in rows], np.float64).reshape(count, 2)
            one_token = np.array([furthest.one_token for furthest in rows], np.int32)
            epsilons = np.array(self.epsilons[:count], np.float64)
            values.append((epsilons, attention, probs, numbers[:, 0], numbers[:, 1], one_token, certainty))
        return self.in_columns(subject, values)

    def _furthest(self, subject, batch, row: int, text: Readout) -> tuple[str, list["Furthest"]]:
        """The certainty, and the furthest attention of each epsilon; none below two tokens."""
        possible = text.answers.sum()
        if len(text.attention) < 2:
            return "undefined", []
        allowed = _allowed_classes(text)
        if possible == 1 or (text.values is not None and possible == 2):
            return "exact", exact(allowed, self.epsilons)
        if text.values is not None:
            return "bounded", bounded(allowed, self.epsilons)
        return "lower bound", searched(allowed, _probs_of(subject, batch, row, text.answers), self.epsilons)


class Furthest(NamedTuple):
    """An attention (T,), the prediction (C,) under it, its divergence in nats, a bound of that, and how many tokens keep the
    prediction within epsilon when they have all the weight.
    """

    attention: np.ndarray
    probs: np.ndarray
    jsd: float
    bound: float
    one_token: int


def _allowed_classes(text: Readout) -> Readout:
    """The text with only the classes that it may be given: no attention makes another one probable."""
    values, bias = (None if numbers is None else numbers[..., text.answers] for numbers in (text.values, text.bias))
    return replace(text, values=values, bias=bias, probs=text.probs[text.answers], answers=text.answers[text.answers])


def exact(text: Readout, epsilons) -> list[Furthest]:
    """The maximum for one class or two."""
    if len(text.probs) == 1:  # certain whatever the attention: any one is within epsilon
        free = _Vertices(text.attention, np.zeros(len(text.attention)), 0.0).between(-math.inf, math.inf)
        return [Furthest(free.attention, np.ones(1), free.jsd, free.jsd, free.one_token)] * len(epsilons)
    vertices = _Vertices(text.attention, text.values[:, 1] - text.values[:, 0], text.bias[1] - text.bias[0])
    rows = []
    for epsilon in epsilons:
        adversary = vertices.furthest(epsilon)
        probs = softmax(np.array([0.0, adversary.log_odds]))
        rows.append(Furthest(adversary.attention, probs, adversary.jsd, adversary.jsd, adversary.one_token))
    return rows


def bounded(text: Readout, epsilons) -> list[Furthest]:
    """The best found, and a certified bound, for more classes and an affine read-out."""
    scores, few = text.values + text.bias, gathered(text)
    tried = text if few is None else few.text
    decoder = Decoder(tried.values + tried.bias, softmax)
    single = xlogy(1 + text.attention, 1 + text.attention) - xlogy(text.attention, text.attention)
    rows = []
    for epsilon in epsilons:
        ranges = implied_ranges(scores, text.probs, epsilon)
        outer, least = cheapest(single, ranges)
        bounds = [math.log(2) - least / 2]
        for line, low, high in zip(*ranges, strict=True):
            bounds.append(_Vertices(text.attention, line, 0.0).between(low, high).jsd)
        starts = outer[None]
        if few is not None:  # these ranges and this start are about all tokens
            ranges, starts = implied_ranges(decoder.states, text.probs, epsilon), tried.attention[None]
        rows.append(_climbed(Climb(tried, decoder, epsilon), ranges, min(bounds), starts, few, softmax(scores)))
    return rows


def searched(text: Readout, probs: Callable[[np.ndarray], np.ndarray], epsilons) -> list[Furthest]:
    """The best found, under the maximum over the whole simplex. probs: predictions (M,C) under attentions (M,T)."""
    few, alone = gathered(text), _alone(probs, len(text.attention))
    bound = _Vertices(text.attention, np.zeros(len(text.attention)), 0.0).between(0, 0).jsd
    tried, vertices = text, alone
    if few is not None:
        tried, probs = few.text, few.over_few(probs)
        vertices = probs(np.eye(len(tried.attention)))
    decoder = Decoder(np.eye(len(tried.attention)), probs)
    logits = np.log(np.maximum(vertices, np.finfo(np.float64).tiny))
    rows = []
    for epsilon in epsilons:
        ranges = implied_ranges(logits, text.probs, epsilon)
        rows.append(_climbed(Climb(tried, decoder, epsilon), ranges, bound, tried.attention[None], few, alone))
    return rows


def _alone(probs: Callable[[np.ndarray], np.ndarray], length: int) -> np.ndarray:
    """Predictions (T,C) where one token has all the weight."""
    parts = []
    for tokens in np.array_split(np.arange(length), -(-(length**2) // AT_ONCE)):
        attentions = np.zeros((len(tokens), length))
        attentions[np.arange(len(tokens)), tokens] = 1
        parts.append(probs(attentions))
    return np.concatenate(parts)


def _climbed(
    climb: Climb, ranges: Ranges, bound: float, starts: np.ndarray, few: Gathered | None, alone: np.ndarray
) -> Furthest:
    """few: the tokens that the climb is over, where these are not all. alone (T,C): predictions under each token alone."""
    attention, decoder = climb.best(ranges, starts), climb.decoder
    jsd = min(max(float(climb.divergence(attention[None])[0]), 0.0), bound)
    one_token = int((np.abs(alone - climb.probs).sum(-1) / 2 <= climb.epsilon).sum())
    probs = decoder.probs(attention[None] @ decoder.states)[0]
    return Furthest(attention if few is None else few.spread(attention[None])[0], probs, jsd, bound, one_token)


def _probs_of(subject, batch, row: int, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The predictions of one text under attentions (M,T): probabilities (M,C) of the classes that it may be given."""
    asked = under(subject, batch, [row])
    dtype = torch.promote_types(asked.dtype, torch.float32)

    def probs(points):
        attentions = torch.as_tensor(points, dtype=dtype, device=subject.device)
        return asked(attentions[None])[0].double().softmax(-1).cpu().numpy()[:, answers]

    return probs
