"""The fewest tokens that carry a decision: without their weight, or without their parts, it is another one.

Shapes: B instances, L input positions, T tokens, C classes, J = C - 1 rivals of the predicted class.
"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.explanation_tests import check_absent, read_parts
from attnfaith.interventions.pooled_erasure import Affine, NotAffine, after, erasing, others, ratio
from attnfaith.measurement.options import Absent, Draws, Inputs
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import whole_logits


TIE = 1e-5  # of the largest part: logits that are closer are equal, for float32 would decide between them by rounding


@register
class MinimalFlipSet(Measure):
    """The smallest set of attention weights whose removal changes the decision: exact where the decoder is affine.

    The fewest weights to set to 0, the rest renormalised, so that the most probable class is another one.

    With an affine decoder the answer is exact and costs a sort per class, O(C T log T). Proof. After removing R, with weight
    left, the logit of the predicted class c exceeds that of a rival j by

        sum_{t not in R} m_tj / sum_{t not in R} a_t,   m_tj = a_t ((w_c - w_j) . h_t + b_c - b_j).

    The divisor is positive, so j beats c exactly when the sum is negative (or 0, for a lower class j: equal probability is
    the lower class's). Of all R with k tokens the k largest m_tj leave the smallest sum; so j can win with k removals only
    if it wins with these, and the smallest k over all rivals is the smallest there is. Tokens of weight 0 change nothing and
    are never in the set. With no weight left the bias decides; that is looked at last, and flagged.

    Equal margins are taken by position; of rivals that need equally many tokens the lower class is taken. So a set of
    another composition and the same size may exist, and the removed attention is that of the set given. With two classes of
    equal bias the order by m is the order by attention x gradient, which then finds a smallest set itself.

    A decoder that is not affine gets an upper bound: the best of the orders of `erasure` (attention, gradient, attention x
    gradient, `draws` random ones) and of a greedy search that removes, one after the other, the token which lowers the
    log-odds most. A set of one token is exact all the same; NaN then means that none was found.

    Undefined for texts with fewer than two tokens.

    Source: the question, Serrano & Smith 2019, section 5 (there too costly to answer).
    """

    name, cost, needs = "minimal_flip_set", "reading", frozenset({"classes", "intervention"})
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
        texts = erasing(subject, batch)
        if isinstance(texts, Affine):
            chosen, empty = _smallest(texts)
            certainty = np.full(len(chosen), "exact", dtype=object)
        else:
            chosen, empty = _searched(texts, texts.orders(seed, batch["instance_id"], self.draws))
            certainty = np.where(chosen.sum(1) == 1, "exact", "upper bound").astype(object)
        chosen &= (texts.lengths > 1)[:, None]
        certainty[texts.lengths < 2] = "undefined"
        flips = chosen.any(1)
        size = np.where(flips, chosen.sum(1), np.nan).astype(np.float32)
        mass = np.where(flips, (texts.attention * chosen).sum(1).clip(max=1), np.nan).astype(np.float32)
        sets = [row[:length].astype(np.float32) for row, length in zip(chosen, texts.lengths, strict=True)]
        columns = (sets, size.tolist(), mass.tolist(), (empty & flips).tolist(), certainty.tolist())
        return dict(zip(self.columns, columns, strict=True))


def _smallest(texts: Affine) -> tuple[np.ndarray, np.ndarray]:
    """The set (B,T) bool, and whether it holds all weight (B,) bool."""
    attention = texts.attention[:, None]
    margins = texts.evidence * attention
    # a rival that wins has won before a margin of 0, as of a token without weight, is reached
    order = np.argsort(-margins, 2, "stable")
    remaining = after(np.take_along_axis(np.broadcast_to(attention, margins.shape), order, 2))
    wins = texts.wins(after(np.take_along_axis(margins, order, 2)), remaining) & (remaining > 0)
    never = margins.shape[2]
    removed = np.where(wins.any(2), wins.argmax(2), never)  # one fewer than tokens removed
    rival = removed.argmin(1)
    rows = np.arange(len(rival))
    last = removed[rows, rival]
    rank = np.argsort(order[rows, rival], 1)
    empty = (last == never) & texts.flips_empty
    chosen = np.where((last < never)[:, None], rank <= last[:, None], (texts.attention > 0) & empty[:, None])
    return chosen, empty


def _searched(texts: NotAffine, orders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest set found along orders (B,R,T) and greedily, as `_smallest` returns it."""
    attention = texts.attention
    chosen, empty = np.zeros(attention.shape, bool), np.zeros(len(attention), bool)
    best = np.full(len(attention), np.inf)
    for order in orders.swapaxes(0, 1):
        flip = texts.first_flip(order)
        reached = np.arange(attention.shape[1]) < np.nan_to_num(flip.size)[:, None]
        removed = np.zeros_like(chosen)
        np.put_along_axis(removed, order, reached, 1)
        removed &= attention > 0  # removing a token without weight changes nothing
        size = np.where(flip.size > 0, removed.sum(1), np.inf)
        better = size < best
        chosen[better], best[better], empty[better] = removed[better], size[better], flip.empty[better]
    _greedy(texts, chosen, best, empty)
    return chosen, empty


def _greedy(texts: NotAffine, chosen: np.ndarray, best: np.ndarray, empty: np.ndarray) -> None:
    """Replace the sets found (in place) where a greedy search finds a smaller one that leaves some weight."""
    alive = texts.attention > 0
    rows = np.arange(len(alive))
    for size in range(1, alive.shape[1]):
        rows = rows[(size < best[rows]) & (alive[rows].sum(1) > 1)]
        if not len(rows):
            return
        weights = np.where(alive[rows], texts.attention[rows], 0.0)
        remaining = others(weights)
        possible = alive[rows] & (remaining > 0)
        sums = others(weights[:, None] * texts.content[rows])
        logits = texts.logits(ratio(sums, np.where(possible, remaining, 0.0)[:, None]), rows)
        changed = (logits.argmax(-1) != texts.predicted[rows, None]) & possible
        predicted = texts.predicted[rows, None, None]
        lead = np.take_along_axis(logits, predicted, 2)[..., 0]
        np.put_along_axis(logits, predicted, -np.inf, 2)
        lead = np.where(possible, lead - np.logaddexp.reduce(logits, 2), np.inf)
        # of those that change the decision one is taken, whatever the log-odds of the rest
        place = np.where(changed.any(1), np.where(changed, lead, np.inf).argmin(1), lead.argmin(1))
        alive[rows, place] = False
        done = rows[changed.any(1)]
        chosen[done] = (texts.attention[done] > 0) & ~alive[done]
        best[done], empty[done] = size, False


@register
class FrozenFlipSet(Measure):
    """The fewest tokens whose parts decide, exactly, in the network that DecompX reads; and the model's own prediction then.

    How few tokens carry the decision, were attention, divisors and slopes to stay as they are, and whether they do.

    In that frozen network (the measure `decompx`) a difference of two logits is a sum of parts, one for each token, and of a
    part of markers and biases, which stays. Taking a set away takes its parts away. So the smallest set is a sort for each
    rival class, as in `minimal_flip_set`. Of rivals that need equally many the set of the lower class is taken, and the
    lower class wins a tie, as in every decision. Logits that differ by less than 10^-5 of the largest part are a tie.

    The model itself does not stay frozen. So it reads the text without these tokens, and without as many at random, `draws`
    times: how often it agrees is what the exact answer is worth. absent: what becomes of the tokens, see `subjects.removal`.
    inputs: see `decompx`.

    Source: the decomposition, Modarressi et al. 2023; the question, Serrano & Smith 2019, section 5.
    """

    name, cost = "frozen_flip_set", "gradient"
    needs = frozenset({"backward rules", "classes", "embeddings", "token deletion"})
    columns = {
        "frozen_flip_set": Column(
            ("T",), doc="1 on the fewest tokens without whose parts the frozen network decides otherwise, if any"
        ),
        "frozen_flip_size": Column(
            undefined="where nothing changes the frozen decision, or the text is empty", doc="tokens in that set, at least 1"
        ),
        "frozen_flip_class": Column(undefined="where the size is", doc="the class that the frozen network then decides for"),
        "frozen_flip_probs": Column(
            ("C",), "float64", undefined="where the size is", doc="the model's own prediction without these tokens"
        ),
        "frozen_flip_random": Column(
            range=(0.0, 1.0),
            undefined="where the size is",
            doc="share of random sets of as many tokens that change the model's own decision",
        ),
    }

    absent: Absent = "deleted"
    inputs: Inputs = "layer"
    draws: Draws = 5

    def check(self, subject, dataset) -> None:
        """Raise SubjectError for an absence that the subject cannot read, and as `decompx` does."""
        check_absent(subject, self.absent, self.name)
        subject.check_rules(self.inputs)

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        mask = subject.attendable(batch).cpu().numpy()
        predicted = whole_logits(subject, batch).argmax(1)
        rivals = torch.arange(subject.num_labels - 1, device=predicted.device).expand(len(predicted), -1)
        rivals = rivals + (rivals >= predicted.unsqueeze(1))

        def margins(logits, rows):
            return logits.gather(1, predicted[rows].unsqueeze(1)) - logits.gather(1, rivals[rows])

        shares = subject.relevance(batch, margins, "frozen", self.inputs)
        parts, values = shares.of_places.cpu().numpy(), shares.values.cpu().numpy()
        predicted, rivals = predicted.cpu().numpy(), rivals.cpu().numpy()
        sets, classes, asked = [], [], []
        for row, name in enumerate(batch["instance_id"]):
            chosen, rival = smallest_set(parts[row][:, mask[row]], values[row], rivals[row] < predicted[row])
            random, flips = generator(seed, name, self.name), chosen.any()
            removed = [chosen, *(random.permutation(chosen) for _ in range(self.draws))]
            sets.append(chosen)
            classes.append(float(rivals[row, rival]) if flips else np.nan)
            asked.append(~np.array(removed)[: len(removed) if flips else 0])
        rows = []
        for row, probs in enumerate(read_parts(subject, batch, asked, self.absent)):
            size, share, removed = np.nan, np.nan, np.full(subject.num_labels, np.nan)
            if len(probs):
                flipped = probs.argmax(1) != predicted[row]
                size, share, removed = float(sets[row].sum()), float(flipped[1:].mean()), probs[0]
            rows.append((sets[row].astype(np.float32), size, classes[row], removed, share))
        return self.in_columns(subject, rows)


def smallest_set(parts: np.ndarray, whole: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, int]:
    """The fewest tokens (T,) bool to take away so that one of the margins `whole` (J,) is lost, none where there is no such
    set; and the smallest margin then, the first of equal ones.

    parts (J,T): of each margin, what the tokens add to it. lower (J,) bool: a margin of 0 is lost already.
    """
    order = np.argsort(-parts, 1, "stable")
    left = whole[:, None] - np.take_along_axis(parts, order, 1).cumsum(1)
    tie = TIE * np.abs(np.column_stack([parts, whole])).max(1, keepdims=True)
    lost = (left < -tie) | (lower[:, None] & (left <= tie))
    never = parts.shape[1]
    sizes = np.where(lost.any(1), lost.argmax(1), never) if never else np.zeros(len(parts), np.int64)
    rival = int(sizes.argmin())
    chosen = np.zeros(never, bool)
    if sizes[rival] < never:
        chosen[order[rival, : sizes[rival] + 1]] = True
    margins = whole - parts[:, chosen].sum(1)
    return chosen, int((margins <= margins.min() + tie[:, 0]).argmax())
