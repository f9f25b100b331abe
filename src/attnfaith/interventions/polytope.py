"""The attentions that leave a weighted sum of values as it is: P = {x >= 0, sum x = 1, V'x = V'a}, exactly.

P is one point where the rows of [V, 1] are independent, which they cannot be above d + 1 tokens; a segment where one
direction is left; else its limits are linear programmes, each with a bound that proves it. The limits of a mean of
independent attentions are the means of their limits.

Source: Brunner et al. 2020, section 3, for the question (attention is not unique where there are more tokens than numbers).

Shapes: T tokens, d numbers of a value, r equations, n tokens of a part.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import highspy
import numpy as np
from scipy.optimize import LinearConstraint, milp

from attnfaith.support.errors import AttnfaithError


DOUBLE = float(np.finfo(np.float64).eps)
ZERO = 1e-13  # what rounding leaves of a weight of 0
NOTHING = 1e-9  # a weight up to here is not counted
EXACT = 1e-7  # limits are as far from the bounds that prove them at most; one for a furthest attention, 1e-6
STARTS = 4  # of the search for the furthest
PROVABLE = 500  # tokens x equations: beyond them branch and bound has not ended within minutes
DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4  # with the primal one a vertex stays one when the costs change
SETTINGS = {
    "solver": "choose",
    "presolve": "off",
    "simplex_strategy": PRIMAL_SIMPLEX,
    "threads": 1,
    "primal_feasibility_tolerance": 1e-10,  # the least that HiGHS takes
    "dual_feasibility_tolerance": 1e-10,
}
LOOSER = {"primal_feasibility_tolerance": 1e-7, "dual_feasibility_tolerance": 1e-7}  # what HiGHS takes by itself
WAYS = ({}, {}, {"simplex_strategy": DUAL_SIMPLEX}, {"presolve": "on"}, LOOSER, {"solver": "ipm", **LOOSER})
"""Settings by which a programme is tried: from where the last one ended, then, where HiGHS gives up, from the beginning. The
bound holds however a vertex was found.
"""


def equations(values: np.ndarray, rounding: float = DOUBLE) -> np.ndarray:
    """Return orthonormal rows (r,T) of what a sum of values (T,d) and the sum of weights leave open: rows x = rows a.

    r is the rank of [V, 1]: a direction of the values counts where it is longer than `rounding` x sqrt(max(T, d)) of V's
    Frobenius norm, so that what only rounding tells apart is the same.
    """
    length = len(values)
    left, sizes, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
    counted = sizes > rounding * math.sqrt(max(values.shape)) * np.linalg.norm(values)
    return np.vstack([np.full(length, length**-0.5), left[:, counted].T])


class Polytope:
    """The attentions x around one, own (T,) float64 summing to 1, that leave sums as they are: x >= 0, rows x = rows own.

    rows (r,T): orthonormal, and 1 is a combination of them, so that x sums to 1. In closed form where rows leave nothing
    free, or one direction; else each linear programme starts where the last one ended.
    """

    def __init__(self, own: np.ndarray, rows: np.ndarray):
        self.own, self.rows, self.seen = own, rows, [own]
        freedom = len(own) - len(rows)
        self.closed_form = freedom < 2
        if freedom == 1:
            self.seen += self._ends()
        elif freedom > 1:
            self.solver, self.places = highspy.Highs(), np.arange(len(own), dtype=np.int32)
            self.solver.silent()
            self.solver.addVars(len(own), np.zeros(len(own)), np.full(len(own), highspy.kHighsInf))
            for row, total in zip(rows, rows @ own, strict=True):
                self.solver.addRow(total, total, len(own), self.places, row)

    def _ends(self) -> list[np.ndarray]:
        """The two ends of a segment."""
        direction = np.linalg.qr(self.rows.T, mode="complete")[0][:, -1]
        direction[np.abs(direction) < ZERO] = 0  # a token that no alternative changes
        ends = []
        for way in (direction, -direction):
            falling = np.flatnonzero(way < 0)
            steps = self.own[falling] / -way[falling]
            ends.append(np.maximum(self.own + steps.min() * way, 0))
            ends[-1][falling[steps.argmin()]] = 0
        return ends

    def minimise(self, costs: np.ndarray) -> tuple[np.ndarray, float]:
        """Return a vertex x (T,) of least c.x for costs c (T,), and a bound that no attention of the set goes below.

        The bound holds whatever the solver did: with g = c minus any combination y of the rows, c.x is y.(rows own) + g.x,
        which is at least y.(rows own) + min g, since x sums to 1. It equals c.x at an optimum.

        Raises AttnfaithError where the solver ends without one.
        """
        if self.closed_form:
            best = min(self.seen, key=lambda seen: costs @ seen)
            return best, float(costs @ best)
        self.solver.changeColsCost(len(self.places), self.places, costs)
        self._solve()
        solution = self.solver.getSolution()
        rest = costs - np.array(solution.row_dual) @ self.rows
        self.seen.append(np.maximum(solution.col_value, 0))
        return self.seen[-1], float((costs - rest) @ self.own + rest.min())

    def _solve(self) -> None:
        for settings in WAYS:
            for name, value in (SETTINGS | settings).items():
                self.solver.setOptionValue(name, value)
            self.solver.run()
            status = self.solver.getModelStatus()
            if status == highspy.HighsModelStatus.kOptimal:
                return
            self.solver.clearSolver()
        raise AttnfaithError(
            f"a linear programme over the attentions of {len(self.own)} tokens has no solution "
            f"({self.solver.modelStatusToString(status)}): are states and attention finite?"
        )

    def limits(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Return the least and the greatest weight (T,) of each token, the largest difference between one of them and the
        bound that proves it, and attentions (T,T) in which each token has its greatest weight.
        """
        if self.closed_form:
            seen = np.array(self.seen)
            return seen.min(0), seen.max(0), 0.0, seen[seen.argmax(0)]
        tokens, gap = np.arange(len(self.own)), 0.0
        highest, low = np.zeros((len(tokens), len(tokens))), self.own.copy()
        for sign in (-1.0, 1.0):
            # at the end a token without weight at a vertex met on the way has 0
            least = np.min(self.seen, axis=0)
            for token in tokens if sign < 0 else np.flatnonzero(least > ZERO):
                vertex, bound = self.minimise(sign * np.eye(1, len(tokens), token)[0])
                gap = max(gap, sign * vertex[token] - bound)
                if sign < 0:
                    highest[token] = vertex
                else:
                    low[token] = vertex[token]
        low[np.min(self.seen, axis=0) <= ZERO] = 0.0
        return np.minimum(low, self.own), np.maximum(np.diagonal(highest), self.own), gap, highest

    def polished(self, other: np.ndarray) -> np.ndarray:
        """Return the same attention with what rounding left of rows x - rows a taken out, in proportion to its weights."""
        rows = self.rows * other
        correction = np.linalg.lstsq(rows @ self.rows.T, self.rows @ (self.own - other), rcond=None)[0]
        return np.maximum(other + other * (self.rows.T @ correction), 0)


@dataclass(frozen=True)
class Alternatives:
    """What an attention a (T,) could be.

    low, high (T,): least and greatest weight of each token. attention (T,): the furthest that was reached, at a total
    variation distance `tvd` from a; none is further than `bound`. support: the fewest tokens with weight of the attentions
    seen. top_mass: the least that the top tokens can have together. gap: the largest difference between a limit and the
    bound that proves it. of_parts: the weights (n,) of each part in that attention.
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
        """Return "exact" where the furthest is known to be the furthest, and every limit is proved; else "bounded"."""
        return "exact" if self.gap <= EXACT and self.bound - self.tvd <= 10 * EXACT else "bounded"


class Part(NamedTuple):
    """One of the attentions that a mean is of: where its weights stand, places (n,) int, and its share of the mean."""

    polytope: Polytope
    places: np.ndarray
    share: float


def of_parts(parts: Sequence[Part], held: np.ndarray, *, top: int = 1, nodes: int = 0) -> Alternatives:
    """Return what an attention could be that is held (T,), which stays, plus the sum of parts by their shares.

    top: of how many tokens, the heaviest, top_mass is the least. nodes: how many nodes branch and bound may visit to prove
    the furthest of one part, 0 for none; beyond 500 tokens x equations none is tried.

    The furthest has the largest |x - a| / 2, convex in x: it is at a vertex. From the furthest met, each part goes to the
    largest sum of sign(x - a) x, again and again. No attention is further than the sum of what tokens can gain, or lose; of
    one part, branch and bound over which tokens gain gives a lower bound.
    """
    mean = _Mean(parts, held)
    own = mean.own
    limits = [part.polytope.limits() for part in parts]
    low, high = mean.of([low for low, *_ in limits]), mean.of([high for _, high, *_ in limits])
    chosen = np.zeros(len(own))
    chosen[np.argsort(-own, kind="stable")[:top]] = 1
    least = min(float(chosen @ own), float(chosen @ mean.of(mean.minimise(chosen))))
    bound = float(min((high - own).sum(), (own - low).sum()))
    best = mean.furthest([highest for *_, highest in limits])
    if len(parts) == 1 and parts[0].polytope.closed_form:
        bound = mean.distance(best)  # of a segment both ends were met
    elif len(parts) == 1 and nodes and bound - mean.distance(best) > 10 * EXACT and parts[0].polytope.rows.size <= PROVABLE:
        (part,) = parts
        gains, proved = _branch_and_bound(part.polytope, *limits[0][:2], nodes)
        bound = min(bound, part.share * proved)
        if gains is not None:
            signs = np.zeros(len(own))
            signs[part.places] = np.where(gains, 1.0, -1.0)
            best = max(best, mean.climb(signs), key=mean.distance)
    best = [part.polytope.polished(weights) for part, weights in zip(parts, best, strict=True)]
    distance = mean.distance(best)
    gap = sum(part.share * gap for part, (*_, gap, _) in zip(parts, limits, strict=True))
    return Alternatives(low, high, mean.of(best), distance, max(bound, distance), mean.support, least, gap, tuple(best))


class _Mean:
    """Weights `held` plus parts by their shares. support: the fewest tokens with weight in a sum met so far."""

    def __init__(self, parts: Sequence[Part], held: np.ndarray):
        self.parts, self.held, self.support = parts, held, len(held)
        self.own = self.of([part.polytope.own for part in parts])

    def of(self, choice: Sequence[np.ndarray]) -> np.ndarray:
        whole = self.held.copy()
        for part, weights in zip(self.parts, choice, strict=True):
            whole[part.places] += part.share * weights
        return whole

    def minimise(self, costs: np.ndarray) -> list[np.ndarray]:
        return [part.polytope.minimise(costs[part.places])[0] for part in self.parts]

    def distance(self, choice: Sequence[np.ndarray]) -> float:
        other = self.of(choice)
        self.support = min(self.support, int((other > NOTHING).sum()))
        return float(np.abs(other - self.own).sum() / 2)

    def furthest(self, highest: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Go on from the attentions in which a token has its greatest weight, those that are furthest."""
        met = np.tile(self.held, (len(self.own), 1))
        for part, attentions in zip(self.parts, highest, strict=True):
            most = np.tile(part.polytope.own, (len(self.own), 1))
            most[part.places] = attentions
            met[:, part.places] += part.share * most
        self.support = min(int((met > NOTHING).sum(1).min()), int((self.own > NOTHING).sum()))
        starts = met[np.argsort(-np.abs(met - self.own).sum(1), kind="stable")[:STARTS]]
        reached = [self.climb(np.where(start > self.own, 1.0, -1.0)) for start in starts]
        return max([[part.polytope.own for part in self.parts], *reached], key=self.distance)

    def climb(self, signs: np.ndarray) -> list[np.ndarray]:
        """Go to where the largest sum of sign(x - a) x is that of x itself, from the signs (T,)."""
        best = self.minimise(-signs)
        while True:
            following = self.minimise(np.where(self.of(best) > self.own, -1.0, 1.0))
            if self.distance(following) <= self.distance(best) + NOTHING:
                return best
            best = following


def _branch_and_bound(polytope: Polytope, low: np.ndarray, high: np.ndarray, nodes: int) -> tuple[np.ndarray | None, float]:
    """Which tokens gain in the furthest attention, (T,) bool, None where the search met no attention; and a bound."""
    # x - a = gain - loss, of which a token has one: gain <= (high - a) z, loss <= (a - low) (1 - z), z 0 or 1
    length, up, down = len(polytope.own), high - polytope.own, polytope.own - low
    none, each = np.zeros((length, length)), np.eye(length)
    stays = LinearConstraint(np.hstack([polytope.rows, -polytope.rows, np.zeros_like(polytope.rows)]), 0, 0)
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
