"""How far the area over a perturbation curve (AOPC) can go for one text, whatever the order in which tokens are removed.

An order is a chain of growing sets of removed tokens, so a limit over all T! orders is one over chains of 2^T sets.

Shapes: T tokens, V sets of removed tokens, M orders.
"""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from pydantic import Field

from attnfaith.interventions.explanation_tests import ExplanationTest, rank, read_parts, whole
from attnfaith.measurement.options import Absent, Count
from attnfaith.measurement.registry import register
from attnfaith.record import Column


MOST_EXACT = 16  # tokens: 65,536 sets
BEAM_TOKENS = 64  # of the longest text in which a beam looks for orders
ExactTokens = Annotated[int, Field(strict=True, ge=0, le=MOST_EXACT)]
Read = Callable[[np.ndarray], np.ndarray]
"""From sets (V,T) bool of removed tokens to the probability (V,) of a class without them."""
FEW = "the text has no token"
UNRANKED = f"a score is undefined, or {FEW}"
AOPC = {"dtype": "float64", "range": (-1.0, 1.0)}


@register
class AOPCLimits(ExplanationTest):
    """How far removing a text's tokens can lower a prediction, in the best and in the worst order, and where measures lie.

    AOPC of an order of the T tokens is the mean, over k = 1..T, of p(whole) - p(without its first k tokens), p the
    probability of the class predicted for the whole text. Models and texts differ in how high it can get, so that an AOPC
    alone means little: (AOPC - low) / (high - low) is 0 for the worst and 1 for the best order.

    exact_tokens: up to so many tokens all 2^T subsets are read, and the limits over all T! orders are exact. Beyond, a beam
    of `beam` sets looks for the best and the worst order, in texts of up to 64 tokens, and the orders of the measures count.

    Source: Edin et al. 2025, Normalized AOPC (ACL 2025); AOPC: Samek et al. 2017.
    """

    name, cost, needs = "aopc_limits", "draws", frozenset({"classes", "token deletion"})
    columns = {
        "aopc_limits_measures": Column(("M",), "string", doc="names of the measures whose orders are judged"),
        "aopc_limits_aopc": Column(("M",), undefined=UNRANKED, doc="mean fall of the probability in an order", **AOPC),
        "aopc_limits_low": Column(undefined=FEW, doc="least AOPC of any order that was met", **AOPC),
        "aopc_limits_high": Column(undefined=FEW, doc="greatest AOPC of any order that was met", **AOPC),
        "aopc_limits_certainty": Column(dtype="category", doc="exact; met: others may go further; undefined: no token"),
    }
    most_tokens = 4000  # each two of them have a number

    absent: Absent = "deleted"
    exact_tokens: ExactTokens = 12
    beam: Count = 5

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        names, texts, random = self.scored(subject, batch, scores, seed)
        rows = []
        for row, (values, predicted) in enumerate(zip(texts, whole(subject, batch).argmax(1), strict=True)):
            text, numbers = batch.alone(row), (np.full(len(names), np.nan), np.nan, np.nan, "undefined")
            if values.shape[1]:

                def read(sets, text=text, predicted=predicted):
                    return read_parts(subject, text, [~sets], self.absent)[0][:, predicted]

                aopc, *limits = self.limits(rank(values, random[row]), read)
                numbers = np.where(np.isnan(values).any(1), np.nan, aopc), *limits
            rows.append((names, *numbers))
        return self.in_columns(subject, rows)

    def limits(self, orders: np.ndarray, read: Read) -> tuple[np.ndarray, float, float, str]:
        """Return AOPC (M,) of orders (M,T), T at least 1, the least and the greatest that was met, and the certainty."""
        length = orders.shape[1]
        p_whole = read(np.zeros((1, length), bool))[0]
        along = read((np.argsort(orders, 1)[:, None] <= np.arange(length)[:, None]).reshape(-1, length))
        aopc = p_whole - along.reshape(len(orders), length).mean(1)
        low, high = min(aopc), max(aopc)  # the sums below are the same ones in another order of addition
        exact = length <= self.exact_tokens
        if exact or length <= BEAM_TOKENS:
            least, most = _chains(read, length) if exact else (_beam(read, length, self.beam, sign) for sign in (1, -1))
            low, high = min(p_whole - most / length, low), max(p_whole - least / length, high)
        return aopc, low, high, "exact" if exact else "met"


def _chains(read: Read, length: int) -> tuple[float, float]:
    """The least and the greatest sum of p over a chain from one token to all."""
    masks = np.arange(2**length)  # token t is in set number m where bit t of m is 1
    p, sizes = read((masks[:, None] >> np.arange(length) & 1).astype(bool)), np.bitwise_count(masks)
    least, most = np.full(len(p), np.inf), np.full(len(p), -np.inf)
    least[0] = most[0] = 0.0
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
