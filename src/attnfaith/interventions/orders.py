"""How far the area over a perturbation curve can go for one text, whatever the order in which its tokens are removed.

AOPC of an order is the mean, over its n steps, of p(whole) - p(without the first k tokens), p the probability of one class.
An order is a chain of growing sets of removed tokens, so that a limit over all n! orders is one over chains of 2^n sets.

Shapes: T = n tokens, V sets of removed tokens, M orders, W states of a beam.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
from pydantic import Field

from attnfaith.record import Column


Asking = Generator[np.ndarray, np.ndarray, np.ndarray]
"""Gives sets (V,T) bool of removed tokens and is sent p (V,) of each; returns p of what it was asked for."""
MOST_EXACT = 16  # tokens: 65,536 sets
ROUNDING = 1e-12
ExactTokens = Annotated[int, Field(strict=True, ge=0, le=MOST_EXACT, description=f"a whole number from 0 to {MOST_EXACT}")]


@dataclass(frozen=True)
class Limits:
    """aopc (M,): of the orders given. low, high: the least and the greatest that any order reached; low_bound, high_bound:
    no order goes beyond.
    """

    aopc: np.ndarray
    low: float
    high: float
    low_bound: float
    high_bound: float

    @property
    def certainty(self) -> str:
        """exact, where nothing lies between what was reached and what is certain."""
        return "exact" if max(self.low - self.low_bound, self.high_bound - self.high) <= ROUNDING else "bounded"


def columns(start: str, without: str) -> dict[str, Column]:
    """The columns of an experiment on limits; without: what becomes of tokens, in words."""
    few = "the text has no token"
    words = {
        "low": "least AOPC of any order that was met",
        "high": "greatest AOPC of any order that was met",
        "low_bound": "no order has a lower AOPC",
        "high_bound": "no order has a higher AOPC",
    }
    return {
        f"{start}_measures": Column(("M",), "string", doc="names of the measures whose orders are judged"),
        f"{start}_aopc": Column(
            ("M",),
            "float64",
            range=(-1.0, 1.0),
            undefined="the measure is undefined here, or the text has no token",
            doc="mean fall of the probability of the predicted class over all numbers of tokens, 1..T, that are "
            f"{without} in the measure's order",
        ),
        **{
            f"{start}_{name}": Column(dtype="float64", range=(-1.0, 1.0), undefined=few, doc=doc)
            for name, doc in words.items()
        },
        f"{start}_certainty": Column(
            dtype="category", doc="exact: the limits were reached; bounded: they lie between; undefined: no token"
        ),
    }


def rank(scores: Sequence[np.ndarray], random: np.random.Generator) -> np.ndarray:
    """Orders (M,T) of decreasing scores, one array (T,) per measure; equal scores in one random order for all measures."""
    tie_breaker = random.permutation(len(scores[0]))
    return np.stack([np.lexsort((tie_breaker, -np.asarray(values, np.float64))) for values in scores])


def limits(
    orders: np.ndarray,
    exact_tokens: int,
    beam: int,
    beam_tokens: int,
    bounds: Callable | None = None,
    whole_sizes: int = 1,
) -> Asking:
    """An `Asking` that returns the Limits of a text and the AOPC of orders (M,T); None of a text without tokens.

    Up to exact_tokens tokens all sets are asked about, and the best and worst chain of them found. Beyond, a beam of `beam`
    sets goes on with what lowered p most so far, another with what kept it up; of texts of more than beam_tokens the orders
    given are all that is met. bounds: a function of T that gives the least
    and the greatest p that any set of each size 0..T leaves, (T + 1,) each; without it all sets of up to whole_sizes tokens,
    and of all but so many, are asked about, and p of other sizes is anywhere in 0..1.
    """
    length, known = orders.shape[1], {}
    if not length:
        return None
    steps = np.arange(length)
    ranks = np.argsort(orders, 1)
    p_whole = (yield from _ask(known, np.zeros((1, length), bool)))[0]
    along = yield from _ask(known, (ranks[:, None] <= steps[:, None]).reshape(-1, length))
    aopc = p_whole - along.reshape(len(orders), length).mean(1)
    if length <= exact_tokens:
        every = (np.arange(2**length)[:, None] >> steps & 1).astype(bool)
        least, most = _chains((yield from _ask(known, every)), length)
        low, high = p_whole - most / length, p_whole - least / length
        # the same sums in another order of addition
        low, high = min(low, *aopc), max(high, *aopc)
        return Limits(aopc, low, high, low, high)
    low, high = min(aopc), max(aopc)
    if length <= beam_tokens:
        least = yield from _beam(known, length, beam, 1)
        most = yield from _beam(known, length, beam, -1)
        low, high = min(p_whole - most / length, low), max(p_whole - least / length, high)
    if bounds is None:
        lowest, highest = yield from _by_size(known, length, whole_sizes)
    else:
        lowest, highest = bounds(length)
    low_bound, high_bound = p_whole - highest[1:].mean(), p_whole - lowest[1:].mean()
    return Limits(aopc, low, high, min(low_bound, low), max(high_bound, high))


def answered(asking: Sequence[Asking], lengths: Sequence[int], read: Callable[[list], list]) -> list[Limits | None]:
    """What the askings of several texts of T tokens return.

    read: from sets (V,T) of removed tokens of each text, none of some, to p (V,) of each.
    """
    told: list[Limits | None] = [None] * len(asking)
    sets, going = [np.zeros((0, length), bool) for length in lengths], dict(enumerate(asking))
    answers: list[np.ndarray | None] = [None] * len(asking)  # what a generator is sent first
    while going:
        for row, one in list(going.items()):
            try:
                sets[row] = one.send(answers[row])
            except StopIteration as done:
                told[row], sets[row] = done.value, sets[row][:0]
                del going[row]
        if going:
            answers = read(sets)
    return told


def _ask(known: dict[bytes, float], sets: np.ndarray) -> Asking:
    """p (V,) of sets (V,T); none is asked about twice."""
    keys = [row.tobytes() for row in np.packbits(sets, axis=1)]
    new = {key: place for place, key in enumerate(keys) if key not in known}
    if new:
        known |= dict(zip(new, (yield sets[list(new.values())]), strict=True))
    return np.array([known[key] for key in keys], np.float64)


def _chains(p: np.ndarray, length: int) -> tuple[float, float]:
    """The least and the greatest sum of p over a chain from one token to all; p (2^T,), sets by their bits."""
    least, most = np.full(len(p), np.inf), np.full(len(p), -np.inf)
    least[0] = most[0] = 0.0
    masks = np.arange(len(p))
    sizes = np.bitwise_count(masks)
    for size in range(1, length + 1):
        own = masks[sizes == size]
        for token in range(length):
            having = own[own >> token & 1 == 1]
            least[having] = np.minimum(least[having], least[having ^ (1 << token)])
            most[having] = np.maximum(most[having], most[having ^ (1 << token)])
        least[own] += p[own]
        most[own] += p[own]
    return least[-1], most[-1]


def _beam(known: dict[bytes, float], length: int, beam: int, sign: int) -> Asking:
    """The least (sign 1) or greatest (sign -1) sum of p over a chain that a beam meets."""
    sets, sums = np.zeros((1, length), bool), np.zeros(1)
    for _ in range(length):
        state, token = np.nonzero(~sets)
        grown, before = sets[state], sums[state]
        grown[np.arange(len(grown)), token] = True
        best_first = np.argsort(sign * before, kind="stable")
        _, first = np.unique(np.packbits(grown[best_first], axis=1), axis=0, return_index=True)
        kept = best_first[np.sort(first)]
        sets = grown[kept]
        sums = before[kept] + (yield from _ask(known, sets))
        chosen = np.argsort(sign * sums, kind="stable")[:beam]
        sets, sums = sets[chosen], sums[chosen]
    return sums[0]


def _by_size(known: dict[bytes, float], length: int, sizes: int):
    """The least and the greatest p of all sets of each size 0..T, (T + 1,) each; 0 and 1 where they are not all known."""
    lowest, highest = np.zeros(length + 1), np.ones(length + 1)
    for size in range(length + 1):
        if min(size, length - size) <= sizes:
            chosen = list(combinations(range(length), size))
            sets = np.zeros((len(chosen), length), bool)
            sets[np.repeat(np.arange(len(chosen)), size), np.array(chosen, np.int64).ravel()] = True
            p = yield from _ask(known, sets)
            lowest[size], highest[size] = p.min(), p.max()
    return lowest, highest
