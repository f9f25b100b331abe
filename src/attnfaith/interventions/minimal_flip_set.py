"""The smallest set of attention weights whose removal changes the decision: exact where the decoder is affine.

Shapes: B instances, T tokens, C classes.
"""

import numpy as np

from attnfaith.interventions.erasing import Affine, NotAffine, after, others, prepare
from attnfaith.interventions.targets import AFFINE
from attnfaith.measurement.options import Draws
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


@register
class MinimalFlipSet(Measure):
    """The smallest set of attention weights whose removal changes the decision: exact where the decoder is affine.

    The fewest weights to set to 0, the rest renormalised, so that the most probable class is another one.

    With an affine decoder the answer is exact and costs a sort per class, O(C T log T). Proof. After removing R, with weight
    left, the logit of the predicted class c exceeds that of a rival j by

        sum_{t not in R} m_tj / sum_{t not in R} a_t,   m_tj = a_t ((w_c - w_j) . h_t + b_c - b_j).

    The divisor is positive: renormalising keeps signs, and j beats c exactly when the sum is negative (or 0, for a lower
    class j: equal probability is the lower class's). Of all R with k tokens the k largest m_tj leave the smallest sum; so j
    can win with k removals only if it wins with these, and the smallest k over all rivals is the smallest there is. Tokens
    of weight 0 change nothing and are never in the set. With no weight left the bias decides; that is looked at last, and
    flagged.

    With two classes of equal bias the order by m is the order by attention x gradient, which then finds a smallest set
    itself; a bias adds its share of a_t to each m_tj.

    Equal margins are taken by position; of rivals that need equally many tokens the lower class is taken. So a set of
    another composition and the same size may exist, the removed attention is that of the set given.

    A decoder that is not affine gets an upper bound: the best of the orders of `erasure` (attention, gradient, attention x
    gradient, `draws` random ones) and of a greedy search that removes, one after the other, the token which lowers the
    log-odds most. A set of one token is exact all the same; NaN then means that none was found.

    Undefined for texts with fewer than two tokens.

    Source: the question, Serrano & Smith 2019, section 5 (there too costly to answer).

    Shapes: B instances, T tokens, C classes.
    """

    name, cost = "minimal_flip_set", "reading"
    needs = frozenset({"classes", "intervention"})
    columns = {
        "minimal_flip_set": Column(
            ("T",), doc="1 on the tokens whose removal changes the decision, 0 elsewhere; all 0 where no removal does"
        ),
        "minimal_flip_size": Column(
            undefined="where no removal changes the decision, and below two tokens", doc="tokens in that set, at least 1"
        ),
        "minimal_flip_mass": Column(range=(0.0, 1.0), undefined="where the size is", doc="attention on that set"),
        "minimal_flip_empty": Column(
            dtype="bool", doc="only the removal of all weight changes the decision: the bias decided"
        ),
        "minimal_flip_certainty": Column(
            dtype="category", doc="exact; upper bound: a smaller set may exist; undefined: fewer than two tokens"
        ),
    }

    draws: Draws = 5

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        erasing = prepare(subject, batch)
        if AFFINE in subject.capabilities:
            chosen, empty = _exact(erasing)
            certainty = np.full(len(chosen), "exact", dtype=object)
        else:
            chosen, empty = _search(erasing, seed, batch["instance_id"], self.draws)
            certainty = np.where(chosen.sum(1) == 1, "exact", "upper bound").astype(object)
        chosen &= (erasing.lengths > 1)[:, None]
        certainty[erasing.lengths < 2] = "undefined"
        flips = chosen.any(1)
        size = np.where(flips, chosen.sum(1), np.nan).astype(np.float32)
        mass = np.where(flips, (erasing.attention * chosen).sum(1).clip(max=1), np.nan).astype(np.float32)
        sets = [row[:length].astype(np.float32) for row, length in zip(chosen, erasing.lengths, strict=True)]
        columns = (sets, size.tolist(), mass.tolist(), (empty & flips).tolist(), certainty.tolist())
        return dict(zip(self.columns, columns, strict=True))


def _exact(erasing: Affine) -> tuple[np.ndarray, np.ndarray]:
    """The set (B,T) bool, and whether it holds all weight (B,) bool."""
    attention = erasing.attention[:, None]
    margins = erasing.evidence * attention
    order = np.argsort(
        -margins, 2, "stable"
    )  # a rival that wins has won before a margin of 0, as without weight, is reached
    remaining = after(np.take_along_axis(np.broadcast_to(attention, margins.shape), order, 2))
    wins = erasing.wins(after(np.take_along_axis(margins, order, 2)), remaining) & (remaining > 0)
    never = margins.shape[2]
    removed = np.where(wins.any(2), wins.argmax(2), never)  # one fewer than tokens removed
    rival = removed.argmin(1)
    rows = np.arange(len(rival))
    last = removed[rows, rival]
    rank = np.empty_like(order[:, 0])
    np.put_along_axis(rank, order[rows, rival], np.arange(never)[None], 1)
    empty = (last == never) & erasing.flips_empty
    chosen = np.where((last < never)[:, None], rank <= last[:, None], (erasing.attention > 0) & empty[:, None])
    return chosen, empty


def _search(erasing: NotAffine, seed: int, instance_ids: list[str], draws: int) -> tuple[np.ndarray, np.ndarray]:
    """The smallest set found, as `_exact` returns it."""
    attention = erasing.attention
    chosen = np.zeros(attention.shape, bool)
    best = np.full(len(attention), np.inf)
    empty = np.zeros(len(attention), bool)
    for order in (*erasing.orders().values(), *erasing.random_orders(seed, instance_ids, draws)):
        flip = erasing.first_flip(order)
        reached = np.arange(attention.shape[1]) < np.nan_to_num(flip.size)[:, None]
        removed = np.zeros_like(chosen)
        np.put_along_axis(removed, order, reached, 1)
        removed &= attention > 0  # removing a token without weight changes nothing
        size = np.where(flip.size > 0, removed.sum(1), np.inf)
        better = size < best
        chosen[better], best[better], empty[better] = removed[better], size[better], flip.empty[better]
    _greedy(erasing, chosen, best, empty)
    return chosen, empty


def _greedy(erasing: NotAffine, chosen: np.ndarray, best: np.ndarray, empty: np.ndarray) -> None:
    """Replace the sets found (in place) where a greedy search finds a smaller one that leaves some weight."""
    alive = erasing.attention > 0
    rows = np.arange(len(alive))
    for size in range(1, alive.shape[1]):
        rows = rows[(size < best[rows]) & (alive[rows].sum(1) > 1)]
        if not len(rows):
            return
        weights = np.where(alive[rows], erasing.attention[rows], 0.0)
        remaining = others(weights)
        possible = alive[rows] & (remaining > 0)
        sums = others(weights[:, None] * erasing.content[rows])
        contexts = np.divide(sums, remaining[:, None], out=np.zeros_like(sums), where=possible[:, None])
        logits = erasing.logits(contexts, rows)
        changed = (logits.argmax(-1) != erasing.predicted[rows, None]) & possible
        own = erasing.predicted[rows, None, None]
        lead = np.take_along_axis(logits, own, 2)[..., 0]
        np.put_along_axis(logits, own, -np.inf, 2)
        lead = np.where(possible, lead - np.logaddexp.reduce(logits, 2), np.inf)
        # of those that change the decision one is taken, whatever log-odds say of the rest
        place = np.where(changed.any(1), np.where(changed, lead, np.inf).argmin(1), lead.argmin(1))
        alive[rows, place] = False
        done = rows[changed.any(1)]
        chosen[done] = (erasing.attention[done] > 0) & ~alive[done]
        best[done], empty[done] = size, False
