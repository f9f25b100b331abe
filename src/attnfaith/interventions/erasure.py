"""Erasing attention weights: one alone, one after the other until the decision changes, and the fewest that change it.

Shapes: B instances, N copies of instances, L input positions, T tokens, C classes, K random orders, R orders in all, G
target words.
"""

from collections.abc import Callable

import numpy as np
import torch

from attnfaith.alignment.perturbation import removed_log_probs
from attnfaith.interventions.pooled_erasure import (
    RANKINGS,
    Affine,
    Erasing,
    erasing,
    erasure_orders,
    first_flips,
    probability_slope,
    ratio,
    sum_after,
    sum_of_others,
)
from attnfaith.interventions.targets import Cross, Maps, TargetMeasure, TokenEdit, softmax, under
from attnfaith.measurement.options import DecoderLayer, Draws, Layers, Rows
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.attention import nothing
from attnfaith.subjects.pairs import by_words, of_sources
from attnfaith.subjects.protocol import log_odds
from attnfaith.support.draws import generator


PLACES_AT_ONCE = 2**20  # weights of re-projected attentions that are held together
NEVER = "the decision never changes"
EMPTY = "where no weight is left in some row"


class Erased(TokenEdit):
    """No weight on the places `gone` (N,S); the rest of a row is multiplied so that its sum stays."""

    gone: torch.Tensor

    def other(self, weights, tokens):
        rest = weights.masked_fill(self.gone[:, None, None], 0)
        left = rest.sum(3, keepdim=True)
        return torch.where(left > 0, rest * (weights.sum(3, keepdim=True) / left), rest)


class Scaled(TokenEdit):
    """The weights times factor (N,S) plus added (N,S), here 1 and 0: gradients with respect to these are taken."""

    factor: torch.Tensor
    added: torch.Tensor

    def other(self, weights, tokens):
        return weights * self.factor[:, None, None] + (self.added[:, None, None] * tokens)


def _sizes(start: str, doc: str, **fields) -> dict[str, Column]:
    """Columns of numbers of tokens, one for each ranking and one for random orders."""
    orders = {name: f"decreasing {name.replace('_', ' x ')}" for name in RANKINGS} | {"random": "random order"}
    return {
        f"{start}_{name}": Column(("K",) if name == "random" else (), doc=doc.format(order), **fields)
        for name, order in orders.items()
    }


def _columns(name: str, gradient: str, erased: str, removed: str) -> dict[str, Column]:
    empty = "the decision changed only when no token had weight left"
    return {
        f"{name}_gradient": Column(("T",), "float64", signed=True, doc=gradient),
        f"{name}_probs": Column(("T", "C"), distribution=True, doc=erased),
        f"{name}_order": Column(("K", "T"), "int32", doc="tokens in random orders, by their position in the text"),
        **_sizes(f"{name}_flip_size", f"{removed} by {{}} until the decision first changes, 1..T", undefined=NEVER),
        **_sizes(f"{name}_flip_mass", "attention on them", undefined=NEVER, range=(0.0, 1.0)),
        **_sizes(f"{name}_flip_empty", empty, dtype="bool"),
    }


def _by_order(start: str, values: np.ndarray, undefined: object) -> dict[str, object]:
    """Columns of one text from values (R,) of the rankings and of random orders; there are none below two tokens."""
    values = values if values.dtype == bool else values.astype(np.float32)
    rankings = values[: len(RANKINGS)] if len(values) else [undefined] * len(RANKINGS)
    columns = {f"{start}_{name}": value for name, value in zip(RANKINGS, rankings, strict=True)}
    return columns | {f"{start}_random": values[len(RANKINGS) :]}


def _erased(name: str, gradient: np.ndarray, orders: np.ndarray, alone: np.ndarray, flips: tuple) -> dict[str, object]:
    """Columns of one text: gradient (T,), orders (R,T), probabilities without each token (T,C), and its `first_flips`."""
    row = {f"{name}_gradient": gradient, f"{name}_probs": alone.astype(np.float32)}
    row[f"{name}_order"] = orders[len(RANKINGS) :].astype(np.int32)
    for part, values in zip(("size", "mass", "empty"), flips, strict=True):
        row |= _by_order(f"{name}_flip_{part}", values, False if part == "empty" else np.nan)
    return row


# --------------------------------------------------------------------------------------- pooled attention


@register
class Erasure(Measure):
    """Erasing attention weights: one alone, and one after the other until the decision changes (Serrano & Smith 2019).

    The rest is renormalised, never filled by a new softmax, and nothing is ranked again after a removal. Orders: decreasing
    attention, gradient, attention x gradient, and `draws` random ones; equal ranks go by position. The gradient is the
    signed derivative of the predicted class's probability by a weight, the others fixed; orders are made by that of the
    log-odds, so that they exist where p rounds to 1. A removal counts whether the token had weight or not. When no weight is
    left the decoder's bias decides.

    Re-projected: the scores of the tokens left out are dropped and the others projected again, so that tokens may gain
    weight that had none. For softmax and uniform attention this is renormalising.

    Undefined below two tokens: no orders, sizes and masses NaN.

    Source: Serrano & Smith 2019, sections 4 and 5, and their code; re-projection: Meister et al. 2021 remove states so.
    """

    name, cost, needs = "erasure", "reading", frozenset({"classes", "intervention"})
    columns = {
        **_columns(
            "erasure",
            gradient="dp/da of each weight a, the others fixed; p: probability of the predicted class",
            erased="prediction with one weight 0, the rest renormalised",
            removed="weights set to 0",
        ),
        "erasure_reprojected_probs": Column(
            ("T", "C"),
            distribution=True,
            doc="prediction with one token left out and the other scores projected again",
            needs=frozenset({"states"}),
        ),
        **_sizes(
            "erasure_reprojected_flip_size",
            "tokens left out by {}, the other scores projected again, until the decision changes",
            undefined=NEVER,
            needs=frozenset({"states"}),
        ),
    }

    draws: Draws = 5

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        texts = erasing(subject, batch)
        orders = texts.orders(seed, batch["instance_id"], self.draws)
        changed, alone, (slope, odds) = texts.changed_along(orders), softmax(texts.without_each()), texts.gradient
        projects = "states" in subject.capabilities and not subject.removal_renormalises
        if projects:
            project = _projection(subject, batch)
            projected = softmax(_reprojected_alone(texts, project, subject.ignores_weightless))
            sizes = _reprojected_sizes(texts, project, orders, subject.ignores_weightless)
        rows = []
        for row, length in enumerate(texts.lengths):
            order = orders[row, : orders.shape[1] if length > 1 else 0, :length]
            flips = first_flips(changed[row, : len(order), :length], texts.attention[row][order])
            gradient = probability_slope(odds[row]) * slope[row, :length]
            columns = _erased(self.name, gradient, order, alone[row, :length], flips)
            probs, counts = (projected[row], sizes[row, : len(order)]) if projects else (alone[row], flips[0])
            columns["erasure_reprojected_probs"] = probs[:length].astype(np.float32)
            rows.append(columns | _by_order("erasure_reprojected_flip_size", counts, np.nan))
        return {name: [row[name] for row in rows] for name in self.columns_for(subject)}


Projection = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _projection(subject, batch) -> Projection:
    """A function from rows (N,) and the tokens left (N,K,T) to the subject's attention (N,K,T) over these ("states")."""
    reader = under(subject, batch)

    def attend(rows, left):
        texts, left = reader[rows], torch.from_numpy(left).to(subject.device)
        return subject.attend(texts.states, left, texts.query).double().cpu().numpy()

    return attend


def _reprojected_alone(texts: Erasing, project: Projection, ignores_weightless: bool) -> np.ndarray:
    """Logits (B,T,C) with each token left out alone; where the model ignores tokens without weight, of the others alone."""
    width = texts.attention.shape[1]
    logits = np.repeat(texts.logits(texts.whole()), width, 1)
    for row, length in enumerate(texts.lengths):
        places = np.flatnonzero(texts.attention[row]) if ignores_weightless else np.arange(length)
        for part in np.array_split(places, max(1, -(-len(places) * width // PLACES_AT_ONCE))):
            left = (np.arange(width) != part[:, None]) & (np.arange(width) < length)
            contents = texts.content[row] @ project(np.array([row]), left[None])[0].T
            logits[row, part] = texts.logits(contents[None], slice(row, row + 1))[0]
    return logits


def _reprojected_sizes(texts: Erasing, project: Projection, orders: np.ndarray, ignores_weightless: bool) -> np.ndarray:
    """Tokens left out (B,R) until the decision changes, in each order (B,R,T); NaN: never."""
    # where the model ignores tokens without weight, each round goes on to the next one with weight, for all orders at once
    ranks, sizes = np.argsort(orders, 2), np.full(orders.shape[:2], np.nan)
    weights = np.repeat(texts.attention[:, None], orders.shape[1], 1)
    unsettled = np.repeat((texts.lengths > 1)[:, None], orders.shape[1], 1)
    inside = np.broadcast_to((np.arange(weights.shape[2]) < texts.lengths[:, None])[:, None], weights.shape)
    counted = weights > 0 if ignores_weightless else inside.copy()
    while unsettled.any():
        rows = unsettled.any(1).nonzero()[0]
        last = np.where(counted[rows], ranks[rows], ranks.shape[2]).min(2)
        left = (ranks[rows] > last[..., None]) & inside[rows]
        weights = project(rows, left)
        counted[rows] = weights > 0 if ignores_weightless else left
        sums = texts.evidence[rows] @ weights.swapaxes(1, 2)
        changed = texts.changed(sums, weights.sum(2), rows) & unsettled[rows]
        sizes[rows] = np.where(changed, last + 1, sizes[rows])
        unsettled[rows] &= ~changed & left.any(2)
    return sizes


@register
class MinimalFlipSet(Measure):
    """The smallest set of attention weights whose removal changes the decision: exact where the decoder is affine.

    The fewest weights to set to 0, the rest renormalised, so that another class is the most probable. With an affine decoder
    the answer is exact and costs a sort per class, O(C T log T). Proof. After removing R, with weight left, the logit of the
    predicted class c exceeds that of a rival j by

        sum_{t not in R} m_tj / sum_{t not in R} a_t,   m_tj = a_t ((w_c - w_j) . h_t + b_c - b_j).

    The divisor is positive, so j beats c exactly when the sum is negative (or 0, for a lower class j: equal probability is
    the lower class's). Of all R with k tokens the k largest m_tj leave the smallest sum; so j can win with k removals only
    if it wins with these, and the smallest k over all rivals is the smallest there is. Tokens of weight 0 change nothing and
    are never in the set. Where no weight is left the bias decides; that is tried last, and flagged.

    Equal margins go by position, and of rivals that need equally many tokens the lower class is taken: other sets of the
    same size may exist. A decoder that is not affine gets an upper bound: the best of the orders of `erasure` (with `draws`
    random ones) and of a greedy search that removes the token which lowers the log-odds most. A set of one token is exact
    all the same; NaN then means that none was found. Undefined below two tokens.

    Source: the question, Serrano & Smith 2019, section 5 (there too costly to answer).
    """

    name, cost, needs = "minimal_flip_set", "reading", frozenset({"classes", "intervention"})
    columns = {
        "minimal_flip_set": Column(("T",), doc="1 on the tokens whose removal changes the decision; all 0 where none does"),
        "minimal_flip_size": Column(
            undefined="where no removal changes the decision, and below two tokens", doc="tokens in that set, at least 1"
        ),
        "minimal_flip_mass": Column(range=(0.0, 1.0), undefined="where the size is", doc="attention on that set"),
        "minimal_flip_empty": Column(dtype="bool", doc="only the removal of all weight changes the decision"),
        "minimal_flip_certainty": Column(
            dtype="category", doc="exact; upper bound: a smaller set may exist; undefined: fewer than two tokens"
        ),
    }

    draws: Draws = 5

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        texts, rows = erasing(subject, batch), []
        if isinstance(texts, Affine):
            sets = _smallest(texts)
        else:
            orders = texts.orders(seed, batch["instance_id"], self.draws)
            changed = texts.changed_along(orders)
            sets = [_searched(texts, row, *pair) for row, pair in enumerate(zip(orders, changed, strict=True))]
        for row, (length, chosen) in enumerate(zip(texts.lengths, sets, strict=True)):
            attention, chosen = texts.attention[row], chosen & (length > 1)
            size, mass, empty, certainty = np.nan, np.nan, False, "exact" if isinstance(texts, Affine) else "upper bound"
            if chosen.any():
                size, mass = float(chosen.sum()), float(min(attention[chosen].sum(), 1))
                empty, certainty = not attention[~chosen].any(), "exact" if size == 1 else certainty
            rows.append((chosen[:length].astype(np.float32), size, mass, empty, certainty if length > 1 else "undefined"))
        return self.in_columns(subject, rows)


def _smallest(texts: Affine) -> np.ndarray:
    """The sets (B,T) bool."""
    attention = texts.attention[:, None]
    margins = texts.evidence * attention
    # a rival that wins has won before a margin of 0, as of a token without weight, is reached
    order = np.argsort(-margins, 2, "stable")
    remaining = sum_after(np.take_along_axis(np.broadcast_to(attention, margins.shape), order, 2))
    wins = texts.wins(sum_after(np.take_along_axis(margins, order, 2)), remaining) & (remaining > 0)
    never = margins.shape[2]
    removed = np.where(wins.any(2), wins.argmax(2), never)  # one fewer than tokens removed
    rows, rival = np.arange(len(removed)), removed.argmin(1)
    last, rank = removed[rows, rival][:, None], np.argsort(order[rows, rival], 1)
    return np.where(last < never, rank <= last, (texts.attention > 0) & texts.flips_empty[:, None])


def _searched(texts: Erasing, row: int, orders: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """The smallest set (T,) bool found along orders (R,T), whose removals change the decision or not, and greedily."""
    chosen = np.zeros(orders.shape[1], bool)
    if texts.lengths[row] < 2:
        return chosen
    for order, flips in zip(orders, changed, strict=True):
        gone = np.zeros_like(chosen)
        gone[order[: flips.argmax() + 1]] = True
        gone &= texts.attention[row] > 0  # removing a token without weight changes nothing
        if flips.any() and not 0 < chosen.sum() <= gone.sum():
            chosen = gone
    return _greedy(texts, row, chosen)


def _greedy(texts: Erasing, row: int, chosen: np.ndarray) -> np.ndarray:
    """A smaller set that leaves some weight, found by a greedy search; the same set where there is none."""
    weights, rows, predicted = texts.attention[row].copy(), slice(row, row + 1), texts.predicted[row]
    for _ in range(1, int(chosen.sum()) or len(chosen)):
        remaining = sum_of_others(weights)
        possible = (weights > 0) & (remaining > 0)
        if not possible.any():
            return chosen
        contents = ratio(sum_of_others(weights * texts.content[row]), np.where(possible, remaining, 0.0))
        logits = texts.logits(contents[None], rows)[0]
        changed = (logits.argmax(-1) != predicted) & possible
        lead = logits[:, predicted] - np.logaddexp.reduce(np.delete(logits, predicted, 1), 1)
        # of those that change the decision one is taken, whatever the log-odds of the rest
        weights[np.where(changed if changed.any() else possible, lead, np.inf).argmin()] = 0.0
        if changed.any():
            return (texts.attention[row] > 0) & (weights == 0)
    return chosen


# --------------------------------------------------------------------------------------- maps of layers


@register
class MapErasure(TargetMeasure):
    """Erasing tokens from attention maps: one alone, and one after the other until the decision changes.

    A token is erased where its column of a map is set to 0, in all heads and rows of the chosen layers, and the rest of a
    row, markers with it, is multiplied so that its sum stays; a row without rest puts out nothing. Other layers see the
    token as before, and so does its residual path: the last layer loses no more than what attention brings from the token
    there.

    Orders: decreasing attention, as it is shown; the signed derivative of the predicted class's log-odds by a number added
    to the token's columns (gradient), or by a factor of them (attention x gradient), summed over layers, heads and rows; and
    `draws` random orders, as in `erasure`. The order of T tokens takes T passes from the first changed layer on. layers and
    rows: as for `map_permutation`. Undefined below two tokens.

    Source: Serrano & Smith 2019, sections 4 and 5, for the one attention of their models.
    """

    name, cost, needs, target = "map_erasure", "draws", frozenset({"attention maps", "classes"}), Maps
    columns = {
        **_columns(
            "map_erasure",
            gradient="derivative of the predicted class's probability by a number added to all weights on a token",
            erased="prediction with all weight on one token 0 in the chosen layers",
            removed="tokens whose weight is set to 0",
        ),
        "map_erasure_attention_gradient": Column(
            ("T",), "float64", signed=True, doc="as the gradient, but by a factor of all weights on a token, at 1"
        ),
    }

    draws: Draws = 5
    layers: Layers = "shown"
    rows: Rows = "all"

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        target = Maps(subject, batch, **self.where)
        shown = subject.attention(batch).double().cpu().numpy()
        predicted, odds, slopes = _slopes(target)
        scores = [np.stack([shown[row], *slopes[:, row]])[:, places] for row, places in enumerate(target.places)]
        orders = [erasure_orders(*text, seed, self.draws) for text in zip(scores, target.names, strict=True)]
        rows = []
        for row, probs in enumerate(self._read(target, orders)):
            length, order = len(target.places[row]), orders[row]
            along = probs[length:].reshape(len(order), length, subject.num_labels)
            flips = first_flips(along.argmax(-1) != predicted[row], scores[row][0][order])
            attention_slope, gradient = (
                probability_slope(odds[row]) * scores[row][2],
                probability_slope(odds[row]) * scores[row][1],
            )
            columns = _erased(self.name, gradient, order, probs[:length], flips)
            rows.append(columns | {"map_erasure_attention_gradient": attention_slope})
        return {name: [row[name] for row in rows] for name in self.columns}

    def _read(self, target: Maps, orders: list[np.ndarray]) -> list[np.ndarray]:
        """Probabilities of each instance: without each token (T,C), then along each order after each removal (R T,C)."""
        gone = []
        for places, order in zip(target.places, orders, strict=True):
            length = len(places)
            along = [rank <= np.arange(length)[:, None] for rank in np.argsort(order, 1)]
            gone.append(np.zeros(((1 + len(along)) * length, target.inside.shape[1]), bool))
            gone[-1][:, places] = np.concatenate([np.eye(length, dtype=bool), *along])
        counts, device = list(map(len, gone)), target.inside.device
        owner = torch.from_numpy(np.repeat(np.arange(len(gone)), counts)).to(device)
        gone = torch.from_numpy(np.concatenate(gone)).to(device)
        (probs,) = target.outcomes(owner, target.edit(Erased, owner, gone=gone))
        return np.split(probs, np.cumsum(counts)[:-1])


@torch.enable_grad()
def _slopes(target: Maps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The predicted class (B,), its log-odds (B,), and their derivatives (2,B,L) by `added` and by `factor`."""
    owner = torch.arange(len(target.inside), device=target.inside.device)
    added = torch.zeros_like(target.inside, dtype=torch.float32, requires_grad=True)
    factor = torch.ones_like(added, requires_grad=True)
    edit = target.edit(Scaled, owner, added=added, factor=factor)
    start = None if target.prefix is None else (target.prefix, owner)
    logits = target.subject.read(target.batch, edit, keep=nothing, after=start).logits.double()
    odds = log_odds(logits)
    slopes = torch.stack(torch.autograd.grad(odds.sum(), [added, factor], materialize_grads=True)).double()
    return tuple(values.detach().cpu().numpy() for values in (logits.argmax(1), odds, slopes))


# --------------------------------------------------------------------------------------- cross-attention


@register
class KnockOut(Measure):
    """Knock-out: what a target word loses without the source word that attention points to, and without another one.

    The best word has the largest weight in the rows that predict the target word, mean over heads and, where layer is None,
    over layers. Its weight is set to 0 for one target word at a time, in all layers, and the rest divided by its sum. Beside
    it stands another source word, drawn at random, since any word may be missed.

    Source: Serrano & Smith 2019, section 4, for single weights of a classifier.
    """

    name, cost, reads, needs = "knock_out", "tokens", "pairs", frozenset({"cross-attention"})
    columns = {
        "knock_out_best": Column(("G",), "int64", doc="source word with the largest weight, from 0 on; of equals the first"),
        "knock_out_other": Column(("G",), "int64", doc="another source word, drawn at random; -1 where there is none"),
    } | {
        f"knock_out_{column}": Column(("G",), range=(0.0, 1.0), undefined=undefined, doc=doc)
        for column, undefined, doc in (
            ("probs", EMPTY, "probability of the target word without the best word's weight"),
            ("tvd", EMPTY, "total variation distance of the next token's distribution"),
            ("other_probs", f"{EMPTY}, or the source has one word", "the probability for the other word"),
            ("other_tvd", f"{EMPTY}, or the source has one word", "the distance for the other word"),
            ("removed_probs", "where nothing is left to read", "probability without the best word, as `occlusion` reads it"),
            ("other_removed_probs", "where the source has one word", "the same without the other word"),
        )
    }

    layer: DecoderLayer = None

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        columns = {name: [] for name in self.columns}
        for target, removed in zip(Cross.each(subject, batch), removed_log_probs(subject, batch), strict=True):
            best = self._best(subject, target)
            count, random = target.pair.words[0][0], generator(seed, target.names[0], "knock_out")
            other = (best + random.integers(1, count, len(best))) % count if count > 1 else np.full_like(best, -1)
            columns["knock_out_best"].append(best)
            columns["knock_out_other"].append(other)
            for words, ending in ((best, ""), (other, "other_")):
                probs, distances = _knocked_out(target, words)
                columns[f"knock_out_{ending}probs"].append(probs)
                columns[f"knock_out_{ending}tvd"].append(distances)
                without = np.exp(removed.cpu().numpy()[words, np.arange(len(words))])
                columns[f"knock_out_{ending}removed_probs"].append(np.where(words < 0, np.nan, without).astype(np.float32))
        return columns

    def _best(self, subject, target: Cross) -> np.ndarray:
        """The source word (G,) with the largest weight in the rows that predict each target word."""
        if self.layer is not None and self.layer >= target.depth:
            raise ValueError(f"layer={self.layer}: the decoder has {target.depth} layers, counted from 0")
        (weights,) = by_words(target.pair, subject.attention(target.pair).mean(2))
        predicting = weights[:, 0].mean(0) if self.layer is None else weights[self.layer, 0]
        return predicting.argmax(1)


def _knocked_out(target: Cross, words: np.ndarray) -> list[np.ndarray]:
    """Probability and distance (G,), of each target word without the weight of the source word `words` (G,); NaN for -1."""
    chosen, own = torch.from_numpy(words).to(target.inside.device), np.arange(len(words))
    gone = (of_sources(target.pair, 0).T > 0)[chosen] & (chosen >= 0).unsqueeze(1)
    rows = target.pair["target_words"] == torch.arange(len(chosen), device=chosen.device).unsqueeze(1)
    owner = torch.zeros_like(chosen)
    outcomes = target.outcomes(owner, target.edit(Erased, owner, rows=rows, gone=gone))
    weights = target.subject.attention(target.pair)[0]
    left = torch.einsum("lans,gs->glan", weights, (~gone).to(weights))
    empty = (((left <= 0) & rows[:, None, None]).flatten(1).any(1) | (chosen < 0)).cpu().numpy()
    return [np.where(empty, np.nan, values[own, own]).astype(np.float32) for values in outcomes]
