"""Erasing attention weights: one alone, and one after the other until the decision changes (Serrano & Smith 2019).

Shapes: B instances, N copies of instances, L input positions, T tokens, C classes, K random orders, R orders in all, G
target words.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from attnfaith.alignment.perturbation import removed_log_probs
from attnfaith.draws import generator
from attnfaith.interventions.pooled_erasure import RANKINGS, Affine, NotAffine, erasing, erasure_orders
from attnfaith.interventions.targets import Cross, Maps, Pooled, TargetMeasure, TokenEdit, softmax, under
from attnfaith.measurement.options import DecoderLayer, Draws, Flag, Layers, Rows
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.attention import nothing
from attnfaith.subjects.pairs import by_words, of_sources
from attnfaith.subjects.protocol import log_odds


PLACES_AT_ONCE = 2**20  # weights of re-projected attentions that are held together
NEVER = "the decision never changes"


class Erased(TokenEdit):
    """No weight on the places `gone` (N,S); the rest of a row is multiplied so that its sum stays."""

    gone: torch.Tensor

    def other(self, weights, reach):
        rest = weights.masked_fill(self.gone[:, None, None], 0)
        left = rest.sum(3, keepdim=True)
        return torch.where(left > 0, rest * (weights.sum(3, keepdim=True) / left), rest)


class Zeroed(Erased):
    """No weight on the places `gone` (N,S); the rest of a row stays, and its sum falls."""

    def other(self, weights, reach):
        return weights.masked_fill(self.gone[:, None, None], 0)


class Scaled(TokenEdit):
    """The weights times factor (N,S) plus added (N,S), here 1 and 0: gradients with respect to these are taken."""

    factor: torch.Tensor
    added: torch.Tensor

    def other(self, weights, reach):
        return weights * self.factor[:, None, None] + (self.added[:, None, None] * reach)


def _columns(prefix: str, gradient: str, erased: str, removed: str, mass: str, empty: str) -> dict[str, Column]:
    columns = {
        f"{prefix}_gradient": Column(("T",), "float64", signed=True, doc=gradient),
        f"{prefix}_probs": Column(("T", "C"), distribution=True, doc=erased),
        f"{prefix}_order": Column(("K", "T"), "int32", doc="tokens in random orders, by their position in the text"),
    }
    for name in ("random", *RANKINGS):
        axes, order = (("K",), "random order") if name == "random" else ((), f"decreasing {name.replace('_', ' x ')}")
        size = f"{removed} by {order} until the decision first changes, 1..T"
        columns[f"{prefix}_flip_size_{name}"] = Column(axes, undefined=NEVER, doc=size)
        columns[f"{prefix}_flip_mass_{name}"] = Column(axes, range=(0.0, 1.0), undefined=NEVER, doc=mass)
        columns[f"{prefix}_flip_empty_{name}"] = Column(axes, "bool", doc=empty)
    return columns


class Erasures(NamedTuple):
    """Of one instance: scores (3,T), those of RANKINGS, the gradient that of the log-odds; spread, p(1 - p); orders (R,T);
    alone (T,C), probabilities without each token; and of each order, (R,), the first flip: size, mass, empty.
    """

    scores: np.ndarray
    spread: float
    orders: np.ndarray
    alone: np.ndarray
    flips: tuple[np.ndarray, np.ndarray, np.ndarray]


class _Erasure(TargetMeasure):
    """name: what the names of its columns begin with."""

    def filled(self, erasures: list[Erasures]) -> dict[str, list]:
        """The columns that both kinds of attention have."""
        columns: dict[str, list] = {}
        for erased in erasures:
            self._append(columns, "gradient", erased.spread * erased.scores[1])
            self._append(columns, "probs", erased.alone.astype(np.float32))
            self._append(columns, "order", erased.orders[len(RANKINGS) :].astype(np.int32))
            for name, values in zip(("size", "mass", "empty"), erased.flips, strict=True):
                self._append_flips(columns, f"flip_{name}", values, False if name == "empty" else np.nan)
        return columns

    def _append(self, columns: dict[str, list], name: str, value) -> None:
        columns.setdefault(f"{self.name}_{name}", []).append(value)

    def _append_flips(self, columns: dict[str, list], name: str, values: np.ndarray, none: object) -> None:
        """values (R,): of the rankings, then of random orders; there are none below two tokens."""
        values = values if values.dtype == bool else values.astype(np.float32)
        self._append(columns, f"{name}_random", values[len(RANKINGS) :])
        for ranking, value in zip(RANKINGS, values if len(values) else [none] * len(RANKINGS), strict=False):
            self._append(columns, f"{name}_{ranking}", value)


# --------------------------------------------------------------------------------------- pooled attention


@register
class Erasure(_Erasure):
    """Erasing attention weights: one alone, and one after the other until the decision changes (Serrano & Smith 2019).

    Erased weights are never filled by a new softmax, and no rank is computed again after a removal. Orders: decreasing
    attention, gradient, attention x gradient, and `draws` random ones. The gradient is the signed derivative of the
    predicted class's probability with respect to a weight, at the model's attention and without the constraint that weights
    sum to 1; it is p(1 - p) times that of the log-odds. Orders are made by the latter, so that they exist where p rounds to
    1. Equal ranks go by position: for uniform attention the order by attention is the order of the text.

    A removal counts whether the token had weight or not. Under sparse attention the tokens without weight come last by
    attention, but not in the other orders, where removing them changes nothing. When no weight is left the decoder's bias
    decides.

    Re-projected: the scores of the tokens left out are dropped and the others projected again, so that tokens may gain
    weight that had none; the bias decides when all tokens are gone. For softmax and uniform attention this is renormalising,
    and the numbers are the same ones.

    With an affine decoder one pass over cumulative sums in each order gives all removals; with another, or at the word level
    of a hierarchical model (`WordLevel`), as many attentions are decoded as there are tokens.

    Undefined for texts with fewer than two tokens: no orders, sizes and masses NaN; erasing the only weight leaves the bias.

    Source: Serrano & Smith 2019, sections 4 and 5, and their code; re-projection: Meister et al. 2021 remove states so.
    """

    name, cost, needs, target = "erasure", "reading", frozenset({"classes", "intervention"}), Pooled
    columns = _columns(
        "erasure",
        gradient="dp/da of each weight a, the others fixed; p: probability of the predicted class",
        erased="prediction with one weight 0, the rest renormalised",
        removed="weights set to 0",
        mass="attention on them",
        empty="the decision changed only when no weight was left: the bias decided",
    ) | {
        "erasure_reprojected_probs": Column(
            ("T", "C"),
            distribution=True,
            doc="prediction with one token left out and the other scores projected again",
            needs=frozenset({"states"}),
        ),
        **{
            f"erasure_reprojected_flip_size_{name}": Column(
                ("K",) if name == "random" else (),
                undefined=NEVER,
                doc=f"tokens left out by the {name} order, the other scores projected again, until the decision changes",
                needs=frozenset({"states"}),
            )
            for name in ("random", *RANKINGS)
        },
    }
    metric = {"counterfactual_probs": "erasure_probs"}

    draws: Draws = 5

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        texts = erasing(subject, batch)
        orders = texts.orders(seed, batch["instance_id"], self.draws)
        flips = [texts.first_flip(orders[:, place]) for place in range(orders.shape[1])]
        sizes, masses, empties = (np.stack(part, 1) for part in zip(*flips, strict=True))
        alone = softmax(texts.without_each())
        scores, (_, spread) = texts.scores(), texts.gradient
        counts = np.where(texts.lengths > 1, orders.shape[1], 0)
        erasures = []
        for row, (length, count) in enumerate(zip(texts.lengths, counts, strict=True)):
            flips = sizes[row, :count], masses[row, :count].clip(max=1), empties[row, :count]
            of_tokens = scores[row, :, :length], spread[row], orders[row, :count, :length], alone[row, :length]
            erasures.append(Erasures(*of_tokens, flips))
        columns = self.filled(erasures)
        if "states" in subject.capabilities:
            if not subject.removal_renormalises:
                project, ignores = _projection(subject, batch), subject.ignores_weightless
                alone = softmax(_reprojected_alone(texts, project, ignores))
                sizes = _reprojected_sizes(texts, project, orders, ignores)
            for row, (length, count) in enumerate(zip(texts.lengths, counts, strict=True)):
                self._append(columns, "reprojected_probs", alone[row, :length].astype(np.float32))
                self._append_flips(columns, "reprojected_flip_size", sizes[row, :count], np.nan)
        return columns


def _projection(subject, batch) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A function of rows (N,) and tokens left (N,K,T) that gives the subject's attention (N,K,T) over these ("states")."""
    asked = under(subject, batch)

    def attend(rows, left):
        some = asked[rows]
        return subject.attend(some.states, torch.from_numpy(left).to(some.states.device), some.query).double().cpu().numpy()

    return attend


def _reprojected_alone(texts: Affine | NotAffine, project: Callable, ignores_weightless: bool) -> np.ndarray:
    """Logits (B,T,C) with each token left out alone; where the model ignores tokens without weight, of the others alone."""
    width = texts.attention.shape[1]
    logits = np.repeat(texts.logits(texts.whole()), width, 1)
    for row, length in enumerate(texts.lengths):
        places = np.flatnonzero(texts.attention[row]) if ignores_weightless else np.arange(length)
        step = max(1, PLACES_AT_ONCE // width)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            left = (np.arange(width) != part[:, None]) & (np.arange(width) < length)
            weights = project(np.array([row]), left[None])[0]
            contents = texts.content[row] @ weights.T
            logits[row, part] = texts.logits(contents[None], slice(row, row + 1))[0]
    return logits


def _reprojected_sizes(
    texts: Affine | NotAffine, project: Callable, orders: np.ndarray, ignores_weightless: bool
) -> np.ndarray:
    """Tokens left out (B,R) until the decision changes, in each order (B,R,T); NaN: never.

    Where the model ignores tokens without weight, each round goes on to the next token with weight, for all orders together:
    as many projections as there are changes of attention, not as there are tokens.
    """
    ranks = np.argsort(orders, 2)
    weights = np.repeat(texts.attention[:, None], orders.shape[1], 1)
    sizes = np.full(orders.shape[:2], np.nan)
    open_orders = np.repeat((texts.lengths > 1)[:, None], orders.shape[1], 1)
    inside = np.broadcast_to((np.arange(weights.shape[2]) < texts.lengths[:, None])[:, None], weights.shape)
    counted = weights > 0 if ignores_weightless else inside.copy()
    while open_orders.any():
        rows = open_orders.any(1).nonzero()[0]
        last = np.where(counted[rows], ranks[rows], ranks.shape[2]).min(2)
        left = (ranks[rows] > last[..., None]) & inside[rows]
        weights = project(rows, left)
        counted[rows] = weights > 0 if ignores_weightless else left
        sums = texts.evidence[rows] @ weights.swapaxes(1, 2)
        changed = texts.changed(sums, weights.sum(2), rows) & open_orders[rows]
        sizes[rows] = np.where(changed, last + 1, sizes[rows])
        open_orders[rows] &= ~changed & left.any(2)
    return sizes


# --------------------------------------------------------------------------------------- maps of layers


@register
class MapErasure(_Erasure):
    """Erasing tokens from attention maps: one alone, and one after the other until the decision changes.

    A token is erased where its column of a map is set to 0, in all heads and rows of the chosen layers. renormalise: the
    rest of a row, markers with it, is multiplied so that its sum stays; a row without rest puts out nothing. Without it a
    row sums to less, as if the token's values were zeros. Layers that are not chosen see the token as before, and so does
    its own residual path: erasing in the last layer takes away what attention brings from the token at the end, no more.

    Orders: decreasing attention, as it is shown; the signed derivative of the predicted class's log-odds by a number added
    to the token's columns (gradient), or by a factor of them (attention x gradient), summed over layers, heads and rows,
    what later layers make of it included; and `draws` random orders. Nothing is ranked again after a removal, and equal
    ranks go by position. The order of T tokens takes T passes from the first changed layer on.

    layers and rows: as for `map_permutation`. Undefined for texts of fewer than two tokens: no orders, sizes and masses NaN.

    Source: Serrano & Smith 2019, sections 4 and 5, for the one attention of their models.
    """

    name, cost, needs, target = "map_erasure", "draws", frozenset({"attention maps", "classes"}), Maps
    columns = _columns(
        "map_erasure",
        gradient="derivative of the probability of the predicted class by a number added to all weights on a token, in all "
        "rows and heads of the chosen layers",
        erased="prediction with all weight on one token 0 in the chosen layers",
        removed="tokens whose weight is set to 0",
        mass="attention on them, as it is shown",
        empty="the decision changed only when no token had weight: markers and the rest of the model decided",
    ) | {
        "map_erasure_attention_gradient": Column(
            ("T",), "float64", signed=True, doc="as the gradient, but by a factor of all weights on a token, at 1"
        ),
    }
    metric = {"counterfactual_probs": "map_erasure_probs"}

    draws: Draws = 5
    layers: Layers = "shown"
    rows: Rows = "all"
    renormalise: Flag = True

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        target = Maps(subject, batch, **self.where)
        shown = subject.attention(batch).double().cpu().numpy()
        predicted, slopes, spread = _slopes(target)
        scores = [np.stack([shown[row], *slopes[:, row]])[:, places] for row, places in enumerate(target.places)]
        orders = [erasure_orders(*text, seed, self.draws) for text in zip(scores, target.names, strict=True)]
        erasures = []
        for row, probs in enumerate(self._read(target, orders)):
            length, order = len(target.places[row]), orders[row]
            along = probs[length:].reshape(len(order), length, subject.num_labels)
            flips = _first_flips(along.argmax(-1) != predicted[row], scores[row][0][order])
            erasures.append(Erasures(scores[row], spread[row], order, probs[:length], flips))
        columns = self.filled(erasures)
        for erased in erasures:
            self._append(columns, "attention_gradient", erased.spread * erased.scores[2])
        return columns

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
        edit = target.edit(
            Erased if self.renormalise else Zeroed, owner, gone=torch.from_numpy(np.concatenate(gone)).to(device)
        )
        (probs,) = target.outcomes(owner, edit)
        return np.split(probs, np.cumsum(counts)[:-1])


def _first_flips(changed: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of orders in which the decision is another one (R,T), and the weights in these orders (R,T): size, mass, empty."""
    if not len(changed):
        return np.empty(0), np.empty(0), np.empty(0, bool)
    flips, first = changed.any(1), changed.argmax(1)
    mass = np.take_along_axis(weights.cumsum(1), first[:, None], 1)[:, 0].clip(max=1)
    size = np.where(flips, first + 1.0, np.nan)
    return size, np.where(flips, mass, np.nan), size == changed.shape[1]


@torch.enable_grad()
def _slopes(target: Maps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The predicted class (B,); derivatives (2,B,L) of its log-odds by a number added to each column and by a factor of it;
    and p(1 - p) (B,), the factor that makes them derivatives of the probability.
    """
    shape, device = target.inside.shape, target.inside.device
    owner = torch.arange(len(target.inside), device=device)
    added = torch.zeros(shape, dtype=torch.float32, device=device, requires_grad=True)
    factor = torch.ones(shape, dtype=torch.float32, device=device, requires_grad=True)
    edit = target.edit(Scaled, owner, added=added, factor=factor)
    start = None if target.prefix is None else (target.prefix, owner)
    logits = target.subject.read(target.batch, edit, keep=nothing, after=start).logits.double()
    odds = log_odds(logits)
    slopes = torch.autograd.grad(odds.sum(), [added, factor], materialize_grads=True)
    spread = (odds.sigmoid() * (-odds).sigmoid()).detach()
    slopes = torch.stack([slope.double() for slope in slopes])
    return logits.detach().argmax(1).cpu().numpy(), slopes.cpu().numpy(), spread.cpu().numpy()


# --------------------------------------------------------------------------------------- cross-attention


EMPTY = "where no weight is left in some row"
ALONE = "where the source has one word"


@register
class KnockOut(Measure):
    """Knock-out: what a target word loses without the source word that attention points to, and without another one.

    The best word has the largest weight in the rows that predict the target word, mean over heads and, where layer is None,
    over layers. It is knocked out for one target word at a time, in all layers, whatever `layer` is. Beside it stands
    another source word, drawn at random, since any word may be missed.

    Source: Serrano & Smith 2019, section 4, for single weights of a classifier.
    """

    name, cost, reads, needs = "knock_out", "tokens", "pairs", frozenset({"cross-attention"})
    columns = {
        "knock_out_best": Column(("G",), "int64", doc="source word with the largest weight, from 0 on; of equals the first"),
        "knock_out_other": Column(("G",), "int64", doc="another source word, drawn at random; -1 where there is none"),
        "knock_out_probs": Column(
            ("G",),
            range=(0.0, 1.0),
            undefined=EMPTY,
            doc="probability of the target word where that best word's weight is 0 and the rest is divided by its sum, in "
            "all heads and layers of the rows that predict the target word",
        ),
        "knock_out_tvd": Column(
            ("G",),
            range=(0.0, 1.0),
            undefined=EMPTY,
            doc="total variation distance of the next token's distribution from the model's own, mean over the word's "
            "tokens",
        ),
        "knock_out_other_probs": Column(
            ("G",), range=(0.0, 1.0), undefined=f"{EMPTY}; {ALONE}", doc="the same probability for the other word"
        ),
        "knock_out_other_tvd": Column(
            ("G",), range=(0.0, 1.0), undefined=f"{EMPTY}; {ALONE}", doc="the same distance for the other word"
        ),
        "knock_out_removed_probs": Column(
            ("G",),
            range=(0.0, 1.0),
            undefined="where nothing is left to read",
            doc="probability of the target word where the best word is left out of the source, as `occlusion` does",
        ),
        "knock_out_other_removed_probs": Column(("G",), range=(0.0, 1.0), undefined=ALONE, doc="same for the other word"),
    }

    layer: DecoderLayer = None

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
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


def _knocked_out(target: Cross, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability and distance (G,), of each target word without the weight of the source word `words` (G,); NaN for -1."""
    chosen = torch.from_numpy(words).to(target.inside.device)
    count = len(chosen)
    gone = (of_sources(target.pair, 0).T > 0)[chosen] & (chosen >= 0).unsqueeze(1)
    rows = target.pair["target_words"] == torch.arange(count, device=chosen.device).unsqueeze(1)
    edit = target.edit(Erased, torch.zeros(count, dtype=torch.long, device=chosen.device), rows=rows, gone=gone)
    probs, distances = target.outcomes(torch.zeros_like(chosen), edit)
    weights = target.subject.attention(target.pair)[0]
    left = torch.einsum("lans,gs->glan", weights, (~gone).to(weights))
    empty = ((left <= 0) & rows[:, None, None]).flatten(1).any(1) | (chosen < 0)
    own = np.arange(count)
    defined = ~empty.cpu().numpy()
    return tuple(np.where(defined, values[own, own], np.nan).astype(np.float32) for values in (probs, distances))
