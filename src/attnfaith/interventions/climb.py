"""The best attention found where no closed form gives the furthest one: more than two classes.

Shapes: T tokens, C classes, M attentions at once, R ranges.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog
from scipy.special import xlogy

from attnfaith.interventions.targets import Readout, softmax


TIE = 1e-6  # nats: attentions closer than this to the best are tied; the first is taken
PAIRS = 128  # pairs of tokens tried
STEPS = 40  # halvings of a segment, to 1e-12
TINY = 1e-12
NEIGHBOURS, ROUNDS = 3, 20  # heaviest tokens whose weight is moved to another, and how often


Ranges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""scores (R,T), low and high (R,): constraints low <= scores . x <= high that a prediction within epsilon implies."""


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
        self.entropy = xlogy(self.own, self.own)
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
        mixed = attentions + self.own
        return math.log(2) - (xlogy(mixed, mixed) - xlogy(attentions, attentions) - self.entropy).sum(-1) / 2

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
        near, far = self._least(xlogy(1 + self.own, 1 + self.own) - self.entropy)
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
        promise = np.maximum(self._mixed(first, second, low), self._mixed(first, second, high))
        chosen = np.argsort(-promise, kind="stable")[:PAIRS]
        return first[chosen], second[chosen], low[chosen], high[chosen]

    def _mixed(self, first, second, weight) -> np.ndarray:
        """The divergence of mixtures of two tokens, less what they share."""
        rest, own_first, own_second = 1 - weight, self.own[first], self.own[second]
        gained = xlogy(weight + own_first, weight + own_first) - xlogy(weight, weight) - self.entropy[first]
        return -gained - xlogy(rest + own_second, rest + own_second) + xlogy(rest, rest) + self.entropy[second]

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
