"""Which attentions leave a weighted sum of values as it is: the polytope P = {x >= 0, sum x = 1, V'x = V'a}, exactly.

Whatever reads attention a through the sum V'a alone cannot tell a from any x in P. P is one point where the rows of [V, 1]
are independent, which they cannot be above d + 1 tokens; a segment where one direction is left; else its limits are linear
programmes, each with a bound that proves it. T tokens, d numbers of a value.

Source: Brunner et al. 2020, section 3, for the question (attention is not unique where there are more tokens than numbers).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import LinearConstraint, milp

from attnfaith.experiments._programmes import Programmes


EXACT = 1e-7  # limits are as far from the bounds that prove them at most; one for a furthest attention, 1e-6
NOTHING = 1e-9  # a weight up to here is not counted
ZERO = 1e-13  # what rounding leaves of a weight of 0
STARTS = 4  # of the search for the furthest
PROVABLE = 500  # tokens x equations: beyond them branch and bound has not ended within minutes
DOUBLE = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Alternatives:
    """What attention a (T,) could be.

    low, high (T,): least and greatest weight of each token. attention (T,): the furthest one that was reached, at a total
    variation distance `tvd` from a, 0..1; none is further than `bound`. support: the fewest tokens with weight of all the
    attentions seen. top_mass: the least that the tokens asked about can have together. gap: the largest difference between
    a limit and the bound that proves it.
    """

    low: np.ndarray
    high: np.ndarray
    attention: np.ndarray
    tvd: float
    bound: float
    support: int
    top_mass: float
    gap: float

    @property
    def certainty(self) -> str:
        """ "exact" where the furthest attention is known to be the furthest, and every limit is proved; else "bounded"."""
        return "exact" if self.gap <= EXACT and self.bound - self.tvd <= 10 * EXACT else "bounded"


def alternatives(
    values: np.ndarray,
    attention: np.ndarray,
    *,
    epsilon: float = 0.0,
    free: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    top: int = 1,
    nodes: int = 0,
    rounding: float = DOUBLE,
) -> Alternatives:
    """The limits of every weight that a sum of values leaves open, and the attention furthest from the given one.

    values V (T,d), attention a (T,), T >= 1: non-negative, summing to 1 within 1e-4 (it is divided by its sum). epsilon: how
    far each number of V'x may be from V'a, in units of the values; 0 for nowhere. free (T,) bool: tokens whose weights may
    change; those of others stay what they are. groups (T,) int: tokens that are summed together, where there are several
    sums; the weight of each group stays too. top: of how many tokens, those with the largest weights, top_mass is the least.
    nodes: how many nodes a branch-and-bound search may visit for a proof that the furthest is the furthest, 0 for none, and
    beyond 500 tokens x equations none is tried. rounding: relative precision to which the values are known, 1.2e-7 for those
    of a float32 model: directions that they span by no more than that count as none.

    Raises ValueError for other shapes or sums and values that are not finite.

    >>> told = alternatives([[0.0], [1.0], [2.0]], [0.25, 0.5, 0.25])
    >>> told.low.round(9).tolist(), told.high.round(9).tolist(), round(told.tvd, 9)
    ([0.0, 0.0, 0.0], [0.5, 1.0, 0.5], 0.5)
    """
    values, own = np.asarray(values, np.float64), np.asarray(attention, np.float64)
    if own.ndim != 1 or values.ndim != 2 or len(values) != len(own) or not len(own):
        raise ValueError(f"values {values.shape} and attention {own.shape}: give (T,d) and (T,), T at least 1")
    if not (own >= 0).all() or not abs(own.sum() - 1) <= 1e-4:
        raise ValueError("attention must be non-negative and sum to 1")
    if not np.isfinite(values).all():
        raise ValueError("values hold NaN or infinite numbers")
    own = own / own.sum()
    free = np.ones(len(own), bool) if free is None else np.asarray(free, bool)
    chosen = np.zeros(len(own), bool)
    chosen[np.argsort(-own, kind="stable")[:top]] = True
    mass, held = own[free].sum(), np.where(free, 0.0, own)
    if not mass:
        return Alternatives(own, own, own, 0.0, 0.0, int((own > NOTHING).sum()), float(own[chosen].sum()), 0.0)
    groups = np.zeros(len(own), int) if groups is None else np.asarray(groups)
    part = _Polytope.of(values[free], own[free] / mass, groups[free], epsilon / mass, rounding)
    low, high, gap = part.limits()
    least = part.least(chosen[free])
    attention, tvd, bound = part.furthest(low, high, nodes)
    support = min(int((seen > NOTHING).sum()) for seen in part.seen)

    def whole(weights):
        every = held.copy()
        every[free] = mass * weights
        return every

    return Alternatives(
        whole(low),
        whole(high),
        whole(attention),
        float(mass * tvd),
        float(mass * bound),
        support + int((held > NOTHING).sum()),
        float(mass * least + held[chosen].sum()),
        float(mass * gap),
    )


def equations(values: np.ndarray, rounding: float = DOUBLE) -> np.ndarray:
    """Orthonormal rows (r,T) that say what a sum of values (T,d) and the sum of weights leave open: rows x = rows a.

    r is the rank of [V, 1]: a direction of the values counts where it is longer than `rounding` x sqrt(max(T, d)) of V's
    Frobenius norm, so that what only rounding tells apart is the same.
    """
    length = len(values)
    left, sizes, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
    counted = sizes > rounding * math.sqrt(max(values.shape)) * np.linalg.norm(values)
    return np.vstack([np.full(length, length**-0.5), left[:, counted].T])


def _spread(rows: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Rows (r,n) over some of the tokens, members (T,) bool, as rows (r,T) over all."""
    spread = np.zeros((len(rows), len(members)))
    spread[:, members] = rows
    return spread


@dataclass
class _Polytope:
    """The attentions around one, (T,) float64; rows and slack as `Programmes` has them; seen: vertices that were met."""

    own: np.ndarray
    rows: np.ndarray
    slack: np.ndarray | None
    seen: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self):
        self.seen.append(self.own)
        self.unique = self.slack is None and len(self.rows) >= len(self.own)
        self.segment = self.slack is None and len(self.rows) == len(self.own) - 1
        if self.segment:
            self._ends()
        elif not self.unique:
            self.programmes = Programmes(self.own, self.rows, self.slack)

    @classmethod
    def of(cls, values, own, groups, epsilon, rounding) -> "_Polytope":
        parts = [(values[members], members) for group in np.unique(groups) for members in [groups == group]]
        if not epsilon:
            rows = [_spread(equations(part, rounding), members) for part, members in parts]
            return cls(own, np.vstack(rows), None)
        rows, slack = [], []
        for part, members in parts:
            sizes = np.linalg.norm(part, axis=0)
            scale = 1 / np.where(sizes > 0, sizes, 1)
            ones = np.full((1, len(part)), len(part) ** -0.5)
            rows.append(_spread(np.vstack([ones, (part * scale).T]), members))
            slack += [0.0, *(epsilon * scale)]
        return cls(own, np.vstack(rows), np.array(slack))

    def _ends(self) -> None:
        """The two ends of a segment, in closed form."""
        direction = np.linalg.qr(self.rows.T, mode="complete")[0][:, -1]
        direction[np.abs(direction) < 1e-13] = 0  # a token that no alternative changes
        for way in (direction, -direction):
            falling = np.flatnonzero(way < 0)
            steps = self.own[falling] / -way[falling]
            end = np.maximum(self.own + steps.min() * way, 0)
            end[falling[steps.argmin()]] = 0
            self.seen.append(end)

    def _minimise(self, costs: np.ndarray) -> tuple[np.ndarray, float]:
        """As `Programmes.minimise`; in closed form where no programme is needed."""
        if self.unique or self.segment:
            best = min(self.seen, key=lambda seen: costs @ seen)
            return best, float(costs @ best)
        vertex, bound = self.programmes.minimise(costs)
        self.seen.append(vertex)
        return vertex, bound

    def limits(self) -> tuple[np.ndarray, np.ndarray, float]:
        """The least and the greatest weight of each token, (T,), and the largest gap between one and its proof."""
        own = self.own
        if self.unique or self.segment:
            return np.min(self.seen, axis=0), np.max(self.seen, axis=0), 0.0
        high, most = self._limits(range(len(own)), -1.0)
        low, least = own.copy(), 0.0
        left = np.flatnonzero(np.min(self.seen, axis=0) > ZERO)  # the others are without weight at a vertex met on the way
        low[left], least = self._limits(left, 1.0)
        low[np.min(self.seen, axis=0) <= ZERO] = 0.0
        return np.minimum(low, own), np.maximum(high, own), max(most, least)

    def _limits(self, tokens: Iterable[int], sign: float) -> tuple[np.ndarray, float]:
        """The least weights of some tokens, or with sign -1 the greatest, and the largest gap to a proof."""
        limits, gap = [], 0.0
        for token in tokens:
            costs = np.zeros(len(self.own))
            costs[token] = sign
            vertex, bound = self._minimise(costs)
            limits.append(vertex[token])
            gap = max(gap, sign * vertex[token] - bound)
        return np.array(limits), gap

    def least(self, tokens: np.ndarray) -> float:
        """The least that tokens (T,) bool can have together."""
        costs = tokens.astype(np.float64)
        return float(min(costs @ self.own, costs @ self._minimise(costs)[0]))

    def furthest(self, low: np.ndarray, high: np.ndarray, nodes: int) -> tuple[np.ndarray, float, float]:
        """The furthest attention that is known, its distance, and a bound that none exceeds.

        The distance is sum |x - a| / 2, a convex function: largest at a vertex, and there are many. From the vertices met
        that are furthest, x goes to the largest sum of sign(x - a) (x - a), again and again: each step goes further. No
        attention is further than the sum of what tokens can gain, or of what they can lose; branch and bound over which
        tokens gain says more.
        """
        distances = np.abs(np.array(self.seen) - self.own).sum(1) / 2
        if self.unique or self.segment:
            best = int(distances.argmax())
            return self.seen[best], float(distances[best]), float(distances[best])
        starts = [self.seen[place] for place in np.argsort(-distances, kind="stable")[:STARTS]]
        best = max((self._climb(start) for start in starts), key=self._distance)
        bound = min((high - self.own).sum(), (self.own - low).sum())
        provable = len(self.own) * len(self.rows) <= PROVABLE
        if nodes and provable and bound - self._distance(best) > 10 * EXACT:
            gains, proved = self._branch_and_bound(low, high, nodes)
            bound = min(bound, proved)
            if gains is not None:
                best = max(best, self._climb(self._minimise(-np.where(gains, 1.0, -1.0))[0]), key=self._distance)
        best = self._polished(best)
        distance = self._distance(best)
        return best, distance, max(float(bound), distance)

    def _distance(self, other: np.ndarray) -> float:
        return float(np.abs(other - self.own).sum() / 2)

    def _climb(self, start: np.ndarray) -> np.ndarray:
        best = start
        while True:
            following, _ = self._minimise(np.where(best > self.own, -1.0, 1.0))
            if self._distance(following) <= self._distance(best) + NOTHING:
                return best
            best = following

    def _branch_and_bound(self, low, high, nodes) -> tuple[np.ndarray | None, float]:
        """Which tokens gain in the furthest attention, (T,) bool, None where the search ended before it met any; a bound.

        x - a = gain - loss, of which a token has one: gain <= (high - a) z, loss <= (a - low) (1 - z), z 0 or 1.
        """
        length, up, down = len(self.own), high - self.own, self.own - low
        none, each = np.zeros((length, length)), np.eye(length)
        room = np.zeros(len(self.rows)) if self.slack is None else self.slack
        stays = LinearConstraint(np.hstack([self.rows, -self.rows, np.zeros_like(self.rows)]), -room, room)
        gaining = LinearConstraint(np.hstack([each, none, -np.diag(up)]), -np.inf, 0)
        losing = LinearConstraint(np.hstack([none, each, np.diag(down)]), -np.inf, down)
        solved = milp(
            np.repeat([-1.0, 0.0, 0.0], length),
            constraints=[stays, gaining, losing],
            bounds=(0, np.concatenate([up, down, np.ones(length)])),
            integrality=np.repeat([0, 0, 1], length),
            options={"node_limit": nodes, "mip_rel_gap": 0.0},
        )
        proved = math.inf if solved.mip_dual_bound is None else -solved.mip_dual_bound
        return None if solved.x is None else solved.x[2 * length :] > 0.5, proved

    def _polished(self, other: np.ndarray) -> np.ndarray:
        """The same attention with what rounding left of rows x - rows a taken out, in proportion to its weights."""
        if self.slack is not None:
            return other / other.sum()
        rows = self.rows * other
        correction = np.linalg.lstsq(rows @ self.rows.T, self.rows @ (self.own - other), rcond=None)[0]
        return np.maximum(other + other * (self.rows.T @ correction), 0)
