"""How far the area over a perturbation curve can go for one text, whatever the order in which its tokens are removed.

AOPC of an order is the mean, over its T steps, of p(whole) - p(without the first k tokens), p the probability of one class.
An order is a chain of growing sets of removed tokens, so a limit over all T! orders is one over chains of 2^T sets.

Shapes: T tokens, V sets of removed tokens, M orders, C classes.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from attnfaith.interventions.explanation_tests import ExplanationTest, rank, read_parts, scores_of, undefined, whole
from attnfaith.interventions.pooled_erasure import ratio
from attnfaith.interventions.targets import Readout, read_out, softmax
from attnfaith.measurement.options import Absent, Count, Natural
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.support.draws import generator


MOST_EXACT = 16  # tokens: 65,536 sets
ROUNDING = 1e-12
ROUNDS = 100  # of Dinkelbach's method, which needs a handful
ExactTokens = Annotated[int, Field(strict=True, ge=0, le=MOST_EXACT, description=f"a whole number from 0 to {MOST_EXACT}")]
Read = Callable[[np.ndarray], np.ndarray]
"""From sets (V,T) bool of removed tokens to the probability (V,) of a class without them."""


class Limits(NamedTuple):
    """AOPC (M,) of the orders given, the least and the greatest that any order reached, and what no order goes beyond."""

    aopc: np.ndarray
    low: float
    high: float
    low_bound: float
    high_bound: float

    @property
    def certainty(self) -> str:
        """Return "exact" where nothing lies between what was reached and what is certain, else "bounded"."""
        return "exact" if max(self.low - self.low_bound, self.high_bound - self.high) <= ROUNDING else "bounded"


class _Limits(Measure):
    """Limits of AOPC. A subclass gives a `Read` for each text, and bounds by size or None."""

    exact_tokens: int
    beam: int
    beam_tokens: int
    whole_sizes = 0
    most_tokens = 4000  # each two of them have a number

    def readers(self, subject, batch) -> Iterator[tuple[Read, "_Bounds | None"]]:
        raise NotImplementedError

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        self.check(subject, None)
        scores, rows = scores_of(subject, batch, scores), []
        for row, (read, bounds) in enumerate(self.readers(subject, batch)):
            values = [measure[row] for measure in scores.values()]
            numbers = np.full(len(values), np.nan), *[np.nan] * 4, "undefined"
            if len(values[0]):
                limits = self.limits(rank(values, generator(seed, batch["instance_id"][row], self.name)), read, bounds)
                numbers = np.where(undefined(values), np.nan, limits.aopc), *limits[1:], limits.certainty
            rows.append((list(scores), *numbers))
        return self.in_columns(subject, rows)

    def limits(self, orders: np.ndarray, read: Read, bounds: "_Bounds | None" = None) -> Limits:
        """Return the limits of a text, and the AOPC of orders (M,T), T at least 1.

        Up to exact_tokens tokens all sets are read, and the best and worst chain of them found. Beyond, a beam of `beam`
        sets goes on with what lowered p most so far, another with what kept it up; of texts of more than beam_tokens the
        orders given are all that is met. bounds: the least and greatest p that any set of each size leaves; without them all
        sets of up to whole_sizes tokens, and of all but so many, are read, and p of other sizes is anywhere in 0..1.
        """
        read, length = _Once(read), orders.shape[1]
        p_whole = read(np.zeros((1, length), bool))[0]
        along = read((np.argsort(orders, 1)[:, None] <= np.arange(length)[:, None]).reshape(-1, length))
        aopc = p_whole - along.reshape(len(orders), length).mean(1)
        low, high = min(aopc), max(aopc)  # the sums below are the same ones in another order of addition
        exact = length <= self.exact_tokens
        if exact or length <= self.beam_tokens:
            # token t is in set number m where bit t of m is 1
            probs = read((np.arange(2**length)[:, None] >> np.arange(length) & 1).astype(bool)) if exact else None
            least, most = _chains(probs, length) if exact else (_beam(read, length, self.beam, sign) for sign in (1, -1))
            low, high = min(p_whole - most / length, low), max(p_whole - least / length, high)
        if exact:
            return Limits(aopc, low, high, low, high)
        lowest, highest = _by_size(read, length, self.whole_sizes) if bounds is None else bounds(length)
        low_bound, high_bound = p_whole - highest[1:].mean(), p_whole - lowest[1:].mean()
        return Limits(aopc, low, high, min(low_bound, low), max(high_bound, high))


class _Once:
    """A `Read` that reads no set twice."""

    def __init__(self, read: Read):
        self.read, self.probs = read, {}

    def __call__(self, sets: np.ndarray) -> np.ndarray:
        keys = [row.tobytes() for row in np.packbits(sets, axis=1)]
        new = {key: place for place, key in enumerate(keys) if key not in self.probs}
        if new:
            self.probs |= dict(zip(new, self.read(sets[list(new.values())]), strict=True))
        return np.array([self.probs[key] for key in keys], np.float64)


def _chains(p: np.ndarray, length: int) -> tuple[float, float]:
    """The least and the greatest sum of p over a chain from one token to all; p (2^T,), by the number of the set."""
    least, most = np.full(len(p), np.inf), np.full(len(p), -np.inf)
    least[0] = most[0] = 0.0
    masks = np.arange(len(p))
    sizes = np.bitwise_count(masks)
    for size in range(1, length + 1):
        own = masks[sizes == size]
        for token in range(length):
            having = own[own >> token & 1 == 1]
            lacking = having ^ (1 << token)  # the same sets without this token: a chain goes through one of these
            least[having] = np.minimum(least[having], least[lacking])
            most[having] = np.maximum(most[having], most[lacking])
        least[own] += p[own]
        most[own] += p[own]
    return least[-1], most[-1]


def _beam(read: Read, length: int, beam: int, sign: int) -> float:
    """The least (sign 1) or greatest (sign -1) sum of p over a chain that a beam meets."""
    sets, sums = np.zeros((1, length), bool), np.zeros(1)
    for _ in range(length):
        state, token = np.nonzero(~sets)
        grown, before = sets[state], sums[state]
        grown[np.arange(len(grown)), token] = True
        best_first = np.argsort(sign * before, kind="stable")
        _, first = np.unique(np.packbits(grown[best_first], axis=1), axis=0, return_index=True)
        different = best_first[np.sort(first)]
        sums = before[different] + read(grown[different])
        chosen = np.argsort(sign * sums, kind="stable")[:beam]
        sets, sums = grown[different][chosen], sums[chosen]
    return sums[0]


def _by_size(read: Read, length: int, sizes: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest p of all sets of each size 0..T, (T + 1,) each; 0 and 1 where they are not all read."""
    lowest, highest = np.zeros(length + 1), np.ones(length + 1)
    for size in (size for size in range(length + 1) if min(size, length - size) <= sizes):
        chosen = list(combinations(range(length), size))
        sets = np.zeros((len(chosen), length), bool)
        sets[np.repeat(np.arange(len(chosen)), size), np.array(chosen, np.int64).ravel()] = True
        p = read(sets)
        lowest[size], highest[size] = p.min(), p.max()
    return lowest, highest


def _columns(name: str, removed: str) -> dict[str, Column]:
    """The columns of a measure that leaves tokens `removed`, in words."""
    few, fields = "the text has no token", {"dtype": "float64", "range": (-1.0, 1.0)}
    aopc = f"mean fall of the predicted class's probability, over 1..T tokens {removed} in the measure's order"
    ends = {"low": "least AOPC of any order that was met", "high": "greatest AOPC of any order that was met"}
    ends |= {"low_bound": "no order has a lower AOPC", "high_bound": "no order has a higher AOPC"}
    certainty = "exact: the limits were reached; bounded: they lie between; undefined: no token"
    return {
        f"{name}_measures": Column(("M",), "string", doc="names of the measures whose orders are judged"),
        f"{name}_aopc": Column(("M",), undefined=f"a score is undefined, or {few}", doc=aopc, **fields),
        **{f"{name}_{end}": Column(undefined=few, doc=doc, **fields) for end, doc in ends.items()},
        f"{name}_certainty": Column(dtype="category", doc=certainty),
    }


@register
class AOPCLimits(_Limits, ExplanationTest):
    """How far removing a text's tokens can lower a prediction, in the best and in the worst order, and where measures lie.

    AOPC of an order of the T tokens is the mean, over k = 1..T, of p(whole) - p(without its first k tokens), p the
    probability of the class predicted for the whole text. Models and texts differ in how high it can get, so that an AOPC
    alone means little: (AOPC - low) / (high - low) is 0 for the worst and 1 for the best order.

    absent: see `subjects.text_parts`. exact_tokens: up to so many tokens all 2^T subsets are read, and the limits
    over all T! orders are exact. Beyond, a beam of `beam` sets looks for the best and the worst order, in texts of up to
    beam_tokens; the orders of the measures count too. These bound the limits from within. The other side is certified, and
    wide: sets of up to whole_sizes tokens, and of all but so many, are read; of other sizes p is only known to lie in 0..1.
    Undefined (NaN): a text without tokens; a measure with a NaN score.

    Source: Edin et al. 2025, Normalized AOPC (ACL 2025); AOPC: Samek et al. 2017.
    """

    name, cost, needs = "aopc_limits", "draws", frozenset({"classes", "token deletion"})
    columns = _columns("aopc_limits", "taken away")

    absent: Absent = "deleted"
    exact_tokens: ExactTokens = 12
    beam: Count = 5
    beam_tokens: Natural = 64
    whole_sizes: Natural = 1

    def readers(self, subject, batch):
        for row, predicted in enumerate(whole(subject, batch).argmax(1)):
            text = batch.alone(row)
            yield lambda sets: read_parts(subject, text, [~sets], self.absent)[0][:, predicted], None  # noqa: B023


@register
class WeightAOPCLimits(_Limits):
    """How far erasing attention weights can lower a prediction, in the best and worst order: with bounds that sorting
    proves.

    As `aopc_limits`, with attention weights set to 0 and the rest renormalised in place of tokens taken away; with no weight
    left the bias decides. Nothing is read anew, so this costs no pass of the model.

    Bounds beyond exact_tokens. The log-odds of the predicted class c against a rival j, from the tokens S that keep their
    weight, are sum_S m_t / sum_S a_t with m_t = a_t ((w_c - w_j) . h_t + b_c - b_j). Of all S of one size the greatest such
    ratio is found by Dinkelbach's method: x is the greatest ratio when the tokens of largest m_t - x a_t sum to 0; each
    round is a sort. With two classes p rises with the one ratio, and the bounds of each size are exact; with more, p is at
    most what the rival that does best leaves, and at least what all rivals at their best would. Best sets of different
    sizes need not contain one another; so the mean over sizes bounds what an order can reach, and need not be reached.

    Source: Edin et al. 2025, Normalized AOPC (ACL 2025), for tokens; ratios: Dinkelbach 1967.
    """

    name, cost, needs = "weight_aopc_limits", "reading", frozenset({"affine read-out", "classes"})
    columns = _columns("weight_aopc_limits", "without weight")

    exact_tokens: ExactTokens = 12
    beam: Count = 5
    beam_tokens: Natural = 64

    def readers(self, subject, batch):
        for bounds in map(_Bounds, read_out(subject, batch)):
            yield bounds.read, bounds


class _Bounds:
    """The probability of a text's predicted class when tokens have lost their weight, and its limits by size."""

    def __init__(self, text: Readout):
        self.text, self.predicted = text, int(text.probs.argmax())

    def read(self, removed: np.ndarray) -> np.ndarray:
        """Return probabilities (V,) without the weights of the tokens removed (V,T)."""
        weights = ~removed * self.text.attention
        return softmax(self.text.logits(ratio(weights, weights.sum(1, keepdims=True))))[:, self.predicted]

    def __call__(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the greatest probability, (T + 1,) each, when 0..T tokens have lost their weight."""
        text = self.text
        rivals = np.flatnonzero(text.answers & (np.arange(len(text.bias)) != self.predicted))
        if not len(rivals):
            return np.ones(length + 1), np.ones(length + 1)
        values = text.values + text.bias
        margins = text.attention * (values[:, [self.predicted]] - values[:, rivals]).T
        greatest = np.stack([_ratios(margin, text.attention) for margin in margins])
        least = np.stack([-_ratios(-margin, text.attention) for margin in margins])
        with np.errstate(over="ignore"):
            highest, lowest = 1 / (1 + np.exp(-greatest).max(0)), 1 / (1 + np.exp(-least).sum(0))
        empty = self.read(np.ones((1, length), bool))[0]
        # as many tokens as have no weight may be all that is left, and then the bias decides
        only_empty = np.arange(length + 1) <= (text.attention == 0).sum()
        lowest = np.where(only_empty, np.minimum(lowest, empty), lowest)
        highest = np.where(only_empty, np.maximum(highest, empty), highest)
        lowest[0] = highest[0] = empty
        return lowest[::-1], highest[::-1]


def _ratios(margins: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The greatest sum(margins) / sum(weights) of any k tokens of which one has weight, k = 0..T; NaN of k = 0."""
    # sums over the chosen tokens are made anew in each round, so that none loses digits to a token that is not chosen
    sizes, heaviest = np.arange(1, len(weights) + 1), np.argsort(-weights, kind="stable")
    ratios = margins[heaviest].cumsum() / weights[heaviest].cumsum()
    for _ in range(ROUNDS):
        chosen = np.argsort(np.argsort(-(margins - ratios[:, None] * weights), 1, "stable"), 1) < sizes[:, None]
        total = (chosen * weights).sum(1)
        better = np.divide((chosen * margins).sum(1), total, out=ratios.copy(), where=total > 0)
        if not (better > ratios).any():
            break
        ratios = np.maximum(ratios, better)
    return np.concatenate([[np.nan], ratios])
