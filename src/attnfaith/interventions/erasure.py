"""Erasing attention weights: one alone, one after the other until the decision changes, and the fewest that change it.

Sums are taken over what remains, for a total minus what was removed would cancel where a few tokens hold nearly all weight.

Shapes: B instances, N copies of instances, L input positions, T tokens, C classes, K random orders, R orders in all, J
margins, G target words.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import expit

from attnfaith.alignment.perturbation import removed_log_probs
from attnfaith.interventions.explanation_tests import ExplanationTest, read_parts
from attnfaith.interventions.targets import AFFINE, Cross, Intervention, Maps, Pooled, TokenEdit, padded, read_out, softmax
from attnfaith.measurement.options import Absent, Draws, Inputs, Layers
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import whole_logits
from attnfaith.subjects.translator import by_words, of_sources
from attnfaith.support.draws import generator


RANKINGS = ("attention", "gradient", "attention_gradient")
NEVER = "the decision never changes"
LOST = {"axes": ("G",), "range": (0.0, 1.0), "undefined": "where no weight, or no word, is left in some row"}
LOST_OTHER = LOST | {"undefined": "where no weight is left in some row, or the source has one word"}


class Erased(TokenEdit):
    """No weight on the places `gone` (N,S); the rest of a row is multiplied so that its sum stays."""

    gone: torch.Tensor

    def other(self, weights, tokens):
        rest = weights.masked_fill(self.gone[:, None, None], 0)
        left = rest.sum(3, keepdim=True)
        return torch.where(left > 0, rest * (weights.sum(3, keepdim=True) / left), rest)


def first_flips(changed: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first flip in each order: tokens removed, weight removed, NaN without a flip; and whether no weight was
    left; (R,) each. changed (R,T): whether the decision is another one after each removal; weights (R,T): those removed.
    """
    if not len(changed):
        return *np.full((2, len(RANKINGS)), np.nan, np.float32), np.zeros(len(RANKINGS), bool)
    flips, first = changed.any(1), changed.argmax(1)[:, None]
    mass, rest = (np.take_along_axis(values, first, 1)[:, 0] for values in (weights.cumsum(1), sum_after(weights)))
    sizes, masses = (np.where(flips, values, np.nan).astype(np.float32) for values in (first[:, 0] + 1, mass.clip(max=1)))
    return sizes, masses, flips & (rest == 0)


def sum_after(values: np.ndarray) -> np.ndarray:
    """Return at each place of the last axis the sum over all later places."""
    sums = np.zeros_like(values)
    sums[..., :-1] = values[..., :0:-1].cumsum(-1)[..., ::-1]
    return sums


def _columns(name: str, gradient: str, erased: str, removed: str) -> dict[str, Column]:
    flips = {
        "size": {"doc": f"{removed} by {{}} until the decision first changes, 1..T", "undefined": NEVER},
        "mass": {"doc": "attention on them", "undefined": NEVER, "range": (0.0, 1.0)},
        "empty": {"doc": "the decision changed only when no token had weight left", "dtype": "bool"},
    }
    columns = {
        f"{name}_gradient": Column(("T",), "float64", signed=True, doc=gradient),
        f"{name}_probs": Column(("T", "C"), distribution=True, doc=erased),
        f"{name}_order": Column(("K", "T"), "int32", doc="tokens in random orders, by their position in the text"),
    }
    for part, fields in flips.items():
        for order in (*RANKINGS, "random"):
            words = "random order" if order == "random" else f"decreasing {order.replace('_', ' x ')}"
            axes = ("K",) if order == "random" else ()
            columns[f"{name}_flip_{part}_{order}"] = Column(axes, **{**fields, "doc": fields["doc"].format(words)})
    return columns


class _Erasure(Intervention):
    draws: int

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        target = self.target(subject, batch, **self.where)
        predicted, odds, slopes = target.slopes()
        scores = [np.stack([weights, *parts]) for weights, parts in zip(target.shown(), slopes, strict=True)]
        orders = []  # by decreasing scores, ties by position; then random ones
        for values, random in zip(scores, target.random_orders(self.draws, seed, "erasure"), strict=True):
            ranked = np.argsort(-values, 1, "stable") if len(random) else np.empty((0, values.shape[1]), np.int64)
            orders.append(np.concatenate([ranked, random]))
        rows, gone = [], []
        for places, order in zip(target.places, orders, strict=True):  # without each token, then along each order
            length = len(places)
            along = [rank <= np.arange(length)[:, None] for rank in np.argsort(order, 1)]
            gone.append(np.zeros(((1 + len(along)) * length, target.inside.shape[1]), bool))
            gone[-1][:, places] = np.concatenate([np.eye(length, dtype=bool), *along])
        for row, probs in enumerate(target.read(Erased, gone=gone)[0]):
            (count, length), weights = orders[row].shape, scores[row][0]
            changed = (target.decisions(row, probs[length:]) != predicted[row]).reshape(count, length)
            _, gradient, of_factor = scores[row] * expit(odds[row]) * expit(-odds[row])  # of p, exact where it rounds to 1
            values = [gradient, probs[:length].astype(np.float32), orders[row][len(RANKINGS) :].astype(np.int32)]
            for flips in first_flips(changed, weights[orders[row]]):
                values += [*flips[: len(RANKINGS)], flips[len(RANKINGS) :]]
            rows.append([*values, of_factor][: len(self.columns)])  # the last is attention times the gradient in pooled ones
        return self.in_columns(subject, rows)


@register
class Erasure(_Erasure):
    """Erasing attention weights: one alone, and one after the other until the decision changes (Serrano & Smith 2019).

    The rest is renormalised, never filled by a new softmax, and nothing is ranked again after a removal. Orders: decreasing
    attention, gradient, attention x gradient, and `draws` random ones; equal ranks go by position. Orders by gradient are
    made by that of the log-odds, so that they exist where p rounds to 1. A removal counts whether the token had weight or
    not. When no weight is left the decoder's bias decides. Undefined below two tokens: no orders, sizes and masses NaN.

    Source: Serrano & Smith 2019, sections 4 and 5, and their code.
    """

    name, cost, needs, target = "erasure", "reading", frozenset({"classes", "intervention"}), Pooled
    columns = _columns(
        "erasure",
        gradient="dp/da of each weight a, the others fixed; p: probability of the predicted class",
        erased="prediction with one weight 0, the rest renormalised",
        removed="weights set to 0",
    )

    draws: Draws = 5


@register
class MapErasure(_Erasure):
    """Erasing tokens from attention maps: one alone, and one after the other until the decision changes.

    A token is erased where its column of a map is set to 0, in all heads and rows of the chosen layers, and the rest of a
    row, markers with it, is multiplied so that its sum stays; a row without rest puts out nothing. Other layers see the
    token as before, and so does its residual path. Orders are those of `erasure`: by attention as it is shown, and by the
    derivative of the log-odds by a number added to the token's columns (gradient), or by a factor of them (attention x
    gradient), summed over layers, heads and rows. layers: as for `map_permutation`.

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
        "map_erasure_attention_gradient": Column(("T",), "float64", signed=True, doc="the same by a factor of them, at 1"),
    }

    draws: Draws = 5
    layers: Layers = "shown"


@register
class MinimalFlipSet(Measure):
    """The smallest set of attention weights whose removal changes the decision, exactly.

    The fewest weights to set to 0, the rest renormalised, so that another class is the most probable. Where logits are
    affine in attention the answer costs a sort per class, O(C T log T). Proof. After removing R, with weight left, the logit
    of the predicted class c exceeds that of a rival j by

        sum_{t not in R} m_tj / sum_{t not in R} a_t,   m_tj = a_t ((w_c - w_j) . h_t + b_c - b_j).

    The divisor is positive, so j beats c exactly when the sum is negative (or 0, for a lower class j: equal probability is
    the lower class's). Of all R with k tokens the k largest m_tj leave the smallest sum; so j can win with k removals only
    if it wins with these, and the smallest k over all rivals is the smallest there is. Tokens of weight 0 change nothing and
    are never in the set. Where no weight is left the bias decides; that is tried last, and flagged.

    Equal margins go by position, and of rivals that need equally many tokens the lower class is taken: other sets of the
    same size may exist. Undefined below two tokens.

    Source: the question, Serrano & Smith 2019, section 5 (there too costly to answer).
    """

    name, needs = "minimal_flip_set", frozenset({AFFINE, "classes", "intervention"})
    columns = {
        "minimal_flip_set": Column(("T",), doc="1 on the tokens whose removal changes the decision; all 0 where none does"),
        "minimal_flip_size": Column(undefined="where no removal changes the decision", doc="tokens in that set, at least 1"),
        "minimal_flip_mass": Column(range=(0.0, 1.0), undefined="where the size is", doc="attention on that set"),
        "minimal_flip_empty": Column(dtype="bool", doc="only the removal of all weight changes the decision"),
        "minimal_flip_certainty": Column(dtype="category", doc="exact; undefined: fewer than two tokens"),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        rows, texts = [], read_out(subject, batch)
        for text, flips in zip(texts, _smallest(texts), strict=True):
            attention, several = text.attention, len(text.attention) > 1
            chosen = flips[: len(attention)] & several
            size, mass, empty = np.nan, np.nan, False
            if chosen.any():
                size, mass = float(chosen.sum()), float(min(attention[chosen].sum(), 1))
                empty = not attention[~chosen].any()
            rows.append((chosen.astype(np.float32), size, mass, empty, "exact" if several else "undefined"))
        return self.in_columns(subject, rows)


def _smallest(texts: Sequence) -> np.ndarray:
    """The sets (B,T) bool of texts with an affine read-out."""
    attention = padded([text.attention for text in texts]).numpy()[:, None]
    alone = padded([text.values + text.bias for text in texts]).numpy().swapaxes(1, 2)
    predicted, ties = (np.array([getattr(text, name) for text in texts])[:, None] for name in ("predicted", "tie"))
    margins = (np.take_along_axis(alone, predicted[..., None], 1) - alone) * attention  # (B,C,T)
    chosen = fewest(margins, 0.0, np.arange(alone.shape[1]) < predicted, ties[..., None], attention)
    empty = softmax(np.stack([text.bias for text in texts]))
    for row in np.flatnonzero(~chosen.any(1)):
        chosen[row] = (attention[row, 0] > 0) & (texts[row].decide(empty[[row]])[0] != texts[row].predicted)
    return chosen


def fewest(parts: np.ndarray, constant, lower: np.ndarray, tie: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the fewest tokens (...,T) bool without which a margin is lost, none where none is; of margins that need equally
    many those of the first.

    A margin is the sum of its parts (...,J,T) and a constant (...,J,1). It counts as 0 up to `tie` x the weight (...,1,T)
    that is left, without weights 1, and 0 is lost where `lower` (...,J). Where no weight is left none is lost.
    """
    # a margin that is lost is so before a part of 0, as of a token without weight, is reached
    order = np.argsort(-parts, -1, "stable")
    left, remaining = constant + sum_after(np.take_along_axis(parts, order, -1)), 1.0
    if weights is not None:
        remaining = sum_after(np.take_along_axis(np.broadcast_to(weights, parts.shape), order, -1))
    lost = (remaining > 0) & ((left < -tie * remaining) | (lower[..., None] & (left <= tie * remaining)))
    sizes = (~np.logical_or.accumulate(lost, -1)).sum(-1, keepdims=True)
    first = sizes.argmin(-2, keepdims=True)
    size, chosen = (np.take_along_axis(values, first, -2)[..., 0, :] for values in (sizes, order))
    return (np.argsort(chosen, -1) <= size) & (size < lost.shape[-1])


NO_SIZE = "where the size is"
TIE = 1e-5  # of the largest part: logits that are closer are equal, for float32 would decide between them by rounding


@register
class FrozenFlipSet(ExplanationTest):
    """The fewest tokens whose parts decide, exactly, in the network that DecompX reads; and the model's own prediction then.

    In that network, where attention, divisors and slopes stay as they are (the measure `decompx`), a difference of two
    logits is a sum of parts, one for each token, and of a part of markers and biases, which stays. So the smallest set is a
    sort for each rival class, as in `minimal_flip_set`; a tie goes to the lower class. The model itself does not stay
    frozen: it reads the text without these tokens, and without as many at random, `draws` times. inputs: see `decompx`.

    Source: the decomposition, Modarressi et al. 2023; the question, Serrano & Smith 2019, section 5.
    """

    name, cost = "frozen_flip_set", "gradient"
    needs = frozenset({"backward rules", "classes", "embeddings", "token deletion"})
    columns = {
        "frozen_flip_set": Column(("T",), doc="1 on the fewest tokens without whose parts the network decides otherwise"),
        "frozen_flip_size": Column(undefined="where nothing changes the decision", doc="tokens in that set, at least 1"),
        "frozen_flip_class": Column(undefined=NO_SIZE, doc="the class that the frozen network then decides for"),
        "frozen_flip_probs": Column(("C",), "float64", undefined=NO_SIZE, doc="the model's prediction without these tokens"),
        "frozen_flip_random": Column(range=(0.0, 1.0), undefined=NO_SIZE, doc="share of random sets that change it"),
    }

    absent: Absent = "deleted"
    inputs: Inputs = "layer"
    draws: Draws = 5

    def check(self, subject, dataset) -> None:
        """Raise SubjectError for an absence that the subject cannot read, and as `decompx` does."""
        super().check(subject, dataset)
        subject.check_rules(self.inputs)

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        mask, predicted = subject.attendable(batch).cpu().numpy(), whole_logits(subject, batch).argmax(1)
        rivals = torch.arange(subject.num_labels - 1, device=predicted.device).expand(len(predicted), -1)
        rivals = rivals + (rivals >= predicted.unsqueeze(1))

        def margins(logits, rows):
            return logits.gather(1, predicted[rows].unsqueeze(1)) - logits.gather(1, rivals[rows])

        values, parts = (part.cpu().numpy() for part in subject.relevance(batch, margins, "frozen", self.inputs))
        predicted, rivals = predicted.cpu().numpy(), rivals.cpu().numpy()
        rows, remaining = [], []
        for row, name in enumerate(batch["instance_id"]):
            chosen, rival = smallest_set(parts[row][:, mask[row]], values[row], rivals[row] < predicted[row])
            random = generator(seed, name, self.name)
            removed = [chosen, *(random.permutation(chosen) for _ in range(self.draws))]
            remaining.append(~np.array(removed)[: len(removed) if chosen.any() else 0])
            size = (float(chosen.sum()), float(rivals[row, rival])) if chosen.any() else (np.nan, np.nan)
            rows.append((chosen.astype(np.float32), *size))
        for row, probs in enumerate(read_parts(subject, batch, remaining, self.absent)):
            changed = float((probs[1:].argmax(1) != predicted[row]).mean()) if len(probs) else np.nan
            rows[row] = *rows[row], probs[0] if len(probs) else np.full(subject.num_labels, np.nan), changed
        return self.in_columns(subject, rows)


def smallest_set(parts: np.ndarray, whole: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the fewest tokens (T,) bool to take away so that one of the margins `whole` (J,) is lost, none where there is
    no such set; and the smallest margin then, the first of equal ones. parts (J,T), lower (J,) bool: see `fewest`.
    """
    tie = TIE * np.abs(np.column_stack([parts, whole])).max(1, keepdims=True)
    chosen = fewest(parts, (whole - parts.sum(1))[:, None], lower, tie)
    margins = whole - parts[:, chosen].sum(1)
    return chosen, int((margins <= margins.min() + tie[:, 0]).argmax())


@register
class KnockOut(Measure):
    """Knock-out: what a target word loses without the source word that attention points to, and without another one.

    The best word has the largest weight in the rows that predict the target word, mean over heads and layers. Its weight is
    set to 0 for one target word at a time, in all layers, and the rest divided by its sum. So is that of another source
    word, drawn at random, since any word may be missed.

    Source: Serrano & Smith 2019, section 4, for single weights of a classifier.
    """

    name, cost, reads, needs = "knock_out", "tokens", "pairs", frozenset({"cross-attention"})
    columns = {
        "knock_out_best": Column(("G",), "int64", doc="source word with the largest weight, from 0 on; of equals the first"),
        "knock_out_other": Column(("G",), "int64", doc="another source word, drawn at random; -1 where there is none"),
        "knock_out_probs": Column(doc="probability of the target word without the best word's weight", **LOST),
        "knock_out_tvd": Column(doc="total variation distance of the next token's distribution", **LOST),
        "knock_out_other_probs": Column(doc="the probability for the other word", **LOST_OTHER),
        "knock_out_other_tvd": Column(doc="the distance for the other word", **LOST_OTHER),
        "knock_out_removed_probs": Column(doc="probability without the best word, as `occlusion` reads it", **LOST),
        "knock_out_other_removed_probs": Column(doc="the same without the other word", **LOST_OTHER),
    }

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        pairs = []
        for target, removed in zip(Cross.each(subject, batch), removed_log_probs(subject, batch), strict=True):
            (weights,) = by_words(target.pair, subject.attention(target.pair).mean(2))
            best = weights[:, 0].mean(0).argmax(1)
            count, random = target.pair.words[0][0], generator(seed, target.names[0], "knock_out")
            other = (best + random.integers(1, count, len(best))) % count if count > 1 else np.full_like(best, -1)
            probs = np.exp(removed.cpu().numpy())
            without = [np.where(words < 0, np.nan, probs[words, np.arange(len(words))]) for words in (best, other)]
            values = *_knocked_out(target, best), *_knocked_out(target, other), *without
            pairs.append((best, other, *(value.astype(np.float32) for value in values)))
        return self.in_columns(subject, pairs)


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
    return [np.where(empty, np.nan, values[own, own]) for values in outcomes]
