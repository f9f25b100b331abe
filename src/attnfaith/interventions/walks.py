"""A far alternative of many attentions at once, in closed form: a walk along the polytope of each to one of its vertices.

All of them weigh the same values, as the query rows of one head do. n attentions, T tokens, d numbers of a value, r
equations.
"""

import numpy as np

from attnfaith.interventions.polytope import DOUBLE, equations


PLACES = 64  # that an attention may change at beyond two for each equation: with more a walk is longer and gains little
NUMBERS_AT_ONCE = 2**22  # of the directions of walks that go on together: 32 MiB
LEVEL = 1e-12  # a direction that falls by no more than this does not fall
NO_LENGTH = 1e-10  # an equation, of length 1 over all tokens, that is so short over some of them says nothing of these


def far(
    values: np.ndarray, attention: np.ndarray, *, allowed: np.ndarray | None = None, rounding: float = DOUBLE
) -> np.ndarray:
    """Attentions (n,T), each far from its own and with the same sum of values, and of weights.

    values (T,d); attention (n,T): non-negative. From x = a each walk goes in the direction that takes weight from the
    tokens which have it: the projection of -sqrt(a) onto what the equations leave free; to the first token that is left
    without weight, whose place is closed then; and so on until no direction is left, after T - r steps at most: x is a
    vertex, on r tokens at most. Of more than 2 r + 64 tokens only those with the largest weights are changed. It is no
    maximum: `alternatives` comes nearer to it by linear programmes, one attention at a time; and where many tokens have no
    weight to begin with, a walk may end where it began, though other attentions may exist.

    allowed (n,T) bool: the tokens that may have weight, and those that have some; all by default. rounding: as
    `alternatives` says. Nothing is random and no solver is asked. x >= 0 holds exactly; the sums stay to rounding, about
    1e-12.
    """
    rows = equations(values, rounding)
    count, length = attention.shape
    width = min(length, 2 * len(rows) + PLACES)
    if length <= len(rows):
        return attention.copy()
    if allowed is not None and allowed.all():
        allowed = None
    others = attention.copy()
    at_once = max(1, NUMBERS_AT_ONCE // width**2)
    for start in range(0, count, at_once):
        part = slice(start, start + at_once)
        own, of_own = attention[part], rows[None]
        if width < length:
            places = np.sort(np.argpartition(-own, width - 1, axis=1)[:, :width], axis=1)
            of_own, own = rows.T[places].transpose(0, 2, 1), np.take_along_axis(own, places, 1)
        if allowed is not None:
            inside = allowed[part] if width == length else np.take_along_axis(allowed[part], places, 1)
            of_own = of_own * inside[:, None]
        if allowed is not None:  # orthonormal again; what has no length any more is no equation
            _, sizes, of_own = np.linalg.svd(of_own, full_matrices=False)
            of_own = of_own * (sizes > NO_LENGTH)[:, :, None]
        elif width < length:
            of_own = np.linalg.qr(of_own.transpose(0, 2, 1))[0].transpose(0, 2, 1)
        walked = _walked(of_own, own, None if allowed is None else inside)
        if width == length:
            others[part] = walked
        else:
            np.put_along_axis(others[part], places, walked, 1)
    return others


def _walked(rows: np.ndarray, own: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    """The vertices (n,T) that walks from own (n,T) end at; rows (n,r,T) orthonormal or 0, or (1,r,T) of all.

    closed (n,k,T): an orthonormal basis of what the k places closed so far take from the free directions, so that the
    projection onto what is left is x - rows' rows x - closed' closed x.
    """
    count, length = own.shape
    each = np.arange(count)
    of_rows = np.zeros_like(each) if len(rows) == 1 else each
    steps = length - int(rows.any(2).sum(1).min())
    goal, other = -np.sqrt(own), own.copy()
    if allowed is not None:
        goal *= allowed
    closed = np.zeros((count, steps, length))
    direction = goal - _combined(_products(rows, goal), rows)
    for step in range(steps):
        ratios = np.divide(other, -direction, out=np.full_like(other, np.inf), where=direction < -LEVEL)
        place = ratios.argmin(1)
        going = np.isfinite(ratios[each, place])
        if not going.any():
            break
        other += np.where(going, ratios[each, place], 0.0)[:, None] * direction
        np.maximum(other, 0, out=other)
        other[each[going], place[going]] = 0.0
        taken = -_combined(rows[of_rows, :, place], rows)
        taken[each, place] += 1
        taken -= _combined(closed[each, :step, place], closed[:, :step])
        size = np.linalg.norm(taken, axis=1, keepdims=True)
        np.divide(taken, size, out=closed[:, step], where=going[:, None] & (size > LEVEL))
        direction -= (closed[:, step] * direction).sum(1, keepdims=True) * closed[:, step]
        direction[each[going], place[going]] = 0.0
    return _polished(rows, own, other)


def _products(rows: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """(n,r): of rows (n,r,T) or (1,r,T) with vectors (n,T)."""
    return np.matmul(rows, vectors[:, :, None])[:, :, 0]


def _combined(factors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n,T): sums of rows (n,r,T) or (1,r,T) by factors (n,r)."""
    return np.matmul(factors[:, None], rows)[:, 0]


def _polished(rows: np.ndarray, own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The same with what rounding left of rows x - rows a taken out, in proportion to weights: none becomes negative."""
    weighed = rows * other[:, None]
    products = weighed @ rows.transpose(0, 2, 1) + LEVEL**1.25 * np.eye(rows.shape[1])  # regular also on fewer tokens
    for _ in range(2):
        lacking = _products(rows, own - other)
        correction = np.linalg.solve(products, lacking[:, :, None])[:, :, 0]
        other = np.maximum(other + _combined(correction, weighed), 0)
    return other
