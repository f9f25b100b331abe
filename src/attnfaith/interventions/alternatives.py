"""What attention could be where it is a mean of several that each leave a sum as it is: limits, and the furthest.

A pooled model has one such sum; the attention shown of a Transformer is the mean of heads and rows, each with its own. They
are independent of one another, so the limits of a mean are the means of limits, and are exact as these are. T tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import LinearConstraint, milp

from attnfaith.interventions.polytope import DOUBLE, Polytope


EXACT = 1e-7  # limits are as far from the bounds that prove them at most; one for a furthest attention, 1e-6
NOTHING = 1e-9  # a weight up to here is not counted
STARTS = 4  # of the search for the furthest
PROVABLE = 500  # tokens x equations: beyond them branch and bound has not ended within minutes


@dataclass(frozen=True)
class Part:
    """One of the attentions that a mean is of: where its weights stand, places (n,) int, and its share of the mean."""

    polytope: Polytope
    places: np.ndarray
    share: float


@dataclass(frozen=True)
class Alternatives:
    """What attention a (T,) could be.

    low, high (T,): least and greatest weight of each token. attention (T,): the furthest one that was reached, at a total
    variation distance `tvd` from a, 0..1; none is further than `bound`. support: the fewest tokens with weight of all the
    attentions seen. top_mass: the least that the tokens asked about can have together. gap: the largest difference between
    a limit and the bound that proves it. of_parts: the weights (n,) of each part in that attention.
    """

    low: np.ndarray
    high: np.ndarray
    attention: np.ndarray
    tvd: float
    bound: float
    support: int
    top_mass: float
    gap: float
    of_parts: tuple[np.ndarray, ...]

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
    places = np.arange(len(own)) if free is None else np.flatnonzero(free)
    mass, held = own[places].sum(), own.copy()
    held[places] = 0.0
    if not mass:
        return of_parts([], held, top=top, nodes=nodes)
    groups = None if groups is None else np.asarray(groups)[places]
    part = Polytope.of(values[places], own[places] / mass, groups=groups, epsilon=epsilon / mass, rounding=rounding)
    return of_parts([Part(part, places, float(mass))], held, top=top, nodes=nodes)


def of_parts(parts: Sequence[Part], held: np.ndarray, *, top: int = 1, nodes: int = 0) -> Alternatives:
    """The same of an attention that is held (T,), which stays, plus the sum of parts by their shares.

    The furthest has the largest sum |x - a| / 2, a convex function of x: largest at a vertex, and there are many. From the
    attentions met that are furthest, each part goes to the largest sum of sign(x - a) x, again and again: each step goes
    further. No attention is further than the sum of what tokens can gain, or of what they can lose; of one part, branch and
    bound over which tokens gain says more.
    """
    mean = _Mean(parts, held)
    own = mean.of([part.polytope.own for part in parts])
    limits = [part.polytope.limits() for part in parts]
    low, high = (mean.of([getattr(one, name) for one in limits]) for name in ("low", "high"))
    chosen = np.zeros(len(own))
    chosen[np.argsort(-own, kind="stable")[:top]] = 1
    least = min(float(chosen @ own), float(chosen @ mean.of(mean.minimise(chosen))))
    bound = float(min((high - own).sum(), (own - low).sum()))
    best = mean.furthest(own, limits)
    if len(parts) == 1 and parts[0].polytope.closed_form:
        bound = mean.distance(best, own)  # of a segment both ends were met
    elif nodes and len(parts) == 1 and bound - mean.distance(best, own) > 10 * EXACT:
        (part,) = parts
        if part.polytope.rows.size <= PROVABLE:
            gains, proved = _branch_and_bound(part.polytope, limits[0].low, limits[0].high, nodes)
            bound = min(bound, part.share * proved)
            if gains is not None:
                signs = np.zeros(len(own))
                signs[part.places] = np.where(gains, 1.0, -1.0)
                best = max(best, mean.climb(signs, own), key=lambda other: mean.distance(other, own))
    best = [part.polytope.polished(weights) for part, weights in zip(parts, best, strict=True)]
    attention, distance = mean.of(best), mean.distance(best, own)
    return Alternatives(
        low,
        high,
        attention,
        distance,
        max(bound, distance),
        mean.support,
        least,
        sum(part.share * one.gap for part, one in zip(parts, limits, strict=True)),
        tuple(best),
    )


class _Mean:
    """Sums of what is held and of parts; a choice of weights (n,) for each part is a list. support: the fewest tokens with
    weight in a sum that was made.
    """

    def __init__(self, parts: Sequence[Part], held: np.ndarray):
        self.parts, self.held, self.support = parts, held, len(held)

    def of(self, choice: Sequence[np.ndarray]) -> np.ndarray:
        whole = self.held.copy()
        for part, weights in zip(self.parts, choice, strict=True):
            whole[part.places] += part.share * weights
        return whole

    def minimise(self, costs: np.ndarray) -> list[np.ndarray]:
        return [part.polytope.minimise(costs[part.places])[0] for part in self.parts]

    def distance(self, choice: Sequence[np.ndarray], own: np.ndarray) -> float:
        other = self.of(choice)
        self.support = min(self.support, int((other > NOTHING).sum()))
        return float(np.abs(other - own).sum() / 2)

    def furthest(self, own: np.ndarray, limits) -> list[np.ndarray]:
        """From the attentions in which a token has its greatest weight, those that are furthest."""
        still = [part.polytope.own for part in self.parts]
        met = np.tile(self.held, (len(own), 1))
        for part, one in zip(self.parts, limits, strict=True):
            most = np.tile(part.polytope.own, (len(own), 1))
            most[part.places] = one.highest
            met[:, part.places] += part.share * most
        self.support = min(int((met > NOTHING).sum(1).min()), int((own > NOTHING).sum()))
        starts = met[np.argsort(-np.abs(met - own).sum(1), kind="stable")[:STARTS]]
        reached = [still, *(self.climb(np.where(start > own, 1.0, -1.0), own) for start in starts)]
        return max(reached, key=lambda choice: self.distance(choice, own))

    def climb(self, signs: np.ndarray, own: np.ndarray) -> list[np.ndarray]:
        """To where the largest sum of sign(x - a) x is that of x itself, from the signs (T,)."""
        best = self.minimise(-signs)
        while True:
            following = self.minimise(np.where(self.of(best) > own, -1.0, 1.0))
            if self.distance(following, own) <= self.distance(best, own) + NOTHING:
                return best
            best = following


def _branch_and_bound(polytope: Polytope, low: np.ndarray, high: np.ndarray, nodes: int) -> tuple[np.ndarray | None, float]:
    """Which tokens gain in the furthest attention, (T,) bool, None where the search ended before it met any; a bound.

    x - a = gain - loss, of which a token has one: gain <= (high - a) z, loss <= (a - low) (1 - z), z 0 or 1.
    """
    length, up, down = len(polytope.own), high - polytope.own, polytope.own - low
    none, each = np.zeros((length, length)), np.eye(length)
    room = np.zeros(len(polytope.rows)) if polytope.slack is None else polytope.slack
    stays = LinearConstraint(np.hstack([polytope.rows, -polytope.rows, np.zeros_like(polytope.rows)]), -room, room)
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
