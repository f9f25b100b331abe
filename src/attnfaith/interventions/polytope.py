"""The attentions that leave a weighted sum of values as it is: P = {x >= 0, sum x = 1, V'x = V'a}, exactly.

Whatever reads attention a through the sum V'a alone cannot tell a from any x in P. P is one point where the rows of [V, 1]
are independent, which they cannot be above d + 1 tokens; a segment where one direction is left; else its limits are linear
programmes, each with a bound that proves it. T tokens, d numbers of a value, r equations.

Source: Brunner et al. 2020, section 3, for the question (attention is not unique where there are more tokens than numbers).
"""

import math
from typing import NamedTuple

import numpy as np

from attnfaith.interventions.programmes import Programmes


ZERO = 1e-13  # what rounding leaves of a weight of 0
DOUBLE = float(np.finfo(np.float64).eps)


def equations(values: np.ndarray, rounding: float = DOUBLE) -> np.ndarray:
    """Orthonormal rows (r,T) that say what a sum of values (T,d) and the sum of weights leave open: rows x = rows a.

    r is the rank of [V, 1]: a direction of the values counts where it is longer than `rounding` x sqrt(max(T, d)) of V's
    Frobenius norm, so that what only rounding tells apart is the same.
    """
    length = len(values)
    left, sizes, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
    counted = sizes > rounding * math.sqrt(max(values.shape)) * np.linalg.norm(values)
    return np.vstack([np.full(length, length**-0.5), left[:, counted].T])


class Polytope:
    """The attentions around one, own (T,) float64 summing to 1, that leave sums as they are.

    rows (r,T) and slack (r,): as `Programmes` has them. In closed form where rows leave nothing free, or one direction.
    """

    def __init__(self, own: np.ndarray, rows: np.ndarray, slack: np.ndarray | None = None):
        self.own, self.rows, self.slack = own, rows, slack
        self.seen = [own]
        freedom = len(own) - len(rows) if slack is None else len(own)
        self.closed_form = freedom < 2 and slack is None
        if not self.closed_form:
            self.programmes = Programmes(own, rows, slack)
        elif freedom == 1:
            self.seen += self._ends()

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        own: np.ndarray,
        *,
        groups: np.ndarray | None = None,
        epsilon: float = 0.0,
        rounding: float = DOUBLE,
    ) -> "Polytope":
        """Of values (T,d), each number of whose sums may be off by epsilon; groups (T,) int: tokens that are summed."""
        groups = np.zeros(len(own), int) if groups is None else groups
        rows, slack = [], []
        for group in np.unique(groups):
            members = groups == group
            part = values[members]
            if epsilon:
                sizes = np.linalg.norm(part, axis=0)
                scale = 1 / np.where(sizes > 0, sizes, 1)
                equal = np.vstack([np.full((1, len(part)), len(part) ** -0.5), (part * scale).T])
                slack += [0.0, *(epsilon * scale)]
            else:
                equal = equations(part, rounding)
            spread = np.zeros((len(equal), len(own)))
            spread[:, members] = equal
            rows.append(spread)
        return cls(own, np.vstack(rows), np.array(slack) if epsilon else None)

    def _ends(self) -> list[np.ndarray]:
        """The two ends of a segment."""
        direction = np.linalg.qr(self.rows.T, mode="complete")[0][:, -1]
        direction[np.abs(direction) < ZERO] = 0  # a token that no alternative changes
        ends = []
        for way in (direction, -direction):
            falling = np.flatnonzero(way < 0)
            steps = self.own[falling] / -way[falling]
            end = np.maximum(self.own + steps.min() * way, 0)
            end[falling[steps.argmin()]] = 0
            ends.append(end)
        return ends

    def minimise(self, costs: np.ndarray) -> tuple[np.ndarray, float]:
        """As `Programmes.minimise`."""
        if self.closed_form:
            best = min(self.seen, key=lambda seen: costs @ seen)
            return best, float(costs @ best)
        vertex, bound = self.programmes.minimise(costs)
        self.seen.append(vertex)
        return vertex, bound

    def limits(self) -> "Limits":
        """The least and the greatest weight of each token."""
        tokens = np.arange(len(self.own))
        if self.closed_form:
            seen = np.array(self.seen)
            return Limits(seen.min(0), seen.max(0), 0.0, seen[seen.argmax(0)])
        highest, most = self._extremes(tokens, -1.0)
        low = self.own.copy()
        left = np.flatnonzero(np.min(self.seen, axis=0) > ZERO)  # others are without weight at a vertex met on the way
        lowest, least = self._extremes(left, 1.0)
        low[left] = lowest[np.arange(len(left)), left]
        low[np.min(self.seen, axis=0) <= ZERO] = 0.0
        high = highest[tokens, tokens]
        return Limits(np.minimum(low, self.own), np.maximum(high, self.own), max(most, least), highest)

    def _extremes(self, tokens: np.ndarray, sign: float) -> tuple[np.ndarray, float]:
        """Vertices (n,T) where weights of n tokens are least, or with sign -1 greatest, and the largest gap to a proof."""
        vertices, gap = np.zeros((len(tokens), len(self.own))), 0.0
        for place, token in enumerate(tokens):
            costs = np.zeros(len(self.own))
            costs[token] = sign
            vertices[place], bound = self.minimise(costs)
            gap = max(gap, sign * vertices[place, token] - bound)
        return vertices, gap

    def polished(self, other: np.ndarray) -> np.ndarray:
        """The same attention with what rounding left of rows x - rows a taken out, in proportion to its weights."""
        if self.slack is not None:
            return other / other.sum()
        rows = self.rows * other
        correction = np.linalg.lstsq(rows @ self.rows.T, self.rows @ (self.own - other), rcond=None)[0]
        return np.maximum(other + other * (self.rows.T @ correction), 0)


class Limits(NamedTuple):
    """low, high (T,); gap: the largest difference between one of them and the bound that proves it; highest (T,T): of each
    token an attention in which it has its greatest weight.
    """

    low: np.ndarray
    high: np.ndarray
    gap: float
    highest: np.ndarray
