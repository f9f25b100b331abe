"""Attention dealt out anew: permuted among the tokens, shared equally, or put on a random support."""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.interventions.targets import Cross, Intervention, Maps, Pooled, Target, TokenEdit, read_out, softmax
from attnfaith.measurement.options import Draws, Layers
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.attention import ALL
from attnfaith.subjects.protocol import log_odds
from attnfaith.support.draws import generator


NO_DRAWS = "below two tokens: no draws"
PERMUTED = Column(("K", "C"), distribution=True, undefined=NO_DRAWS, doc="class probabilities after each random permutation")
DRAWN = {"range": (0.0, 1.0), "undefined": "below two source tokens: no draws"}
DISTANCE = "total variation distance of the next token's distribution from the model's own, mean over the word's tokens"


class Permuted(TokenEdit):
    """Each place has the weight that was another's: sources (N,S), themselves where places hold no token."""

    sources: torch.Tensor

    def other(self, weights, tokens):
        sources = self.sources[:, None, None].expand(-1, 1, weights.shape[2], -1)
        if bool((tokens == self.inside[:, None, None]).all()):
            return weights.gather(3, sources.expand_as(weights))
        # Some rows see only a part of the tokens. The first token that a row sees, in the order of the text, gets the weight
        # of the first that it sees in the order of `sources`, and so on.
        receivers = (~tokens).byte().argsort(dim=3, stable=True)
        givers = sources.gather(3, (~tokens.gather(3, sources)).byte().argsort(dim=3, stable=True))
        dealt = weights.gather(3, givers.expand_as(weights))
        return torch.where(tokens, torch.zeros_like(weights).scatter(3, receivers.expand_as(weights), dealt), weights)


def read_permuted(target: Target, orders: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Return the outcomes of a target, each as one array (K,...) an instance, under orders (K,T) of its tokens."""
    sources = []
    for places, order in zip(target.places, orders, strict=True):
        sources.append(np.tile(np.arange(target.inside.shape[1]), (len(order), 1)))
        sources[-1][:, places] = places.take(order)
    return target.read(Permuted, sources=sources)


class _Permutation(Intervention):
    draws: int
    purpose = "permutation"

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        columns = {name: [] for name in self.columns}
        for target in self.target.each(subject, batch, **self.where):
            outcomes = read_permuted(target, target.random_orders(self.draws, seed, self.purpose))
            for name, values in zip(columns, outcomes, strict=True):
                columns[name] += [value.astype(np.float32) for value in values]
        return columns


@register
class Permutation(_Permutation):
    """Permutation of attention (Jain & Wallace 2019, Algorithm 2): does it matter which token has which weight?

    Each of `draws` draws deals the weights of a text out in another order, all T! orders equally likely; the encoder's
    states stay. Every draw is kept; below two tokens there is one order only: K = 0.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2.
    """

    name, cost, needs, target = "permutation", "reading", frozenset({"classes", "intervention"}), Pooled
    columns = {"permuted_probs": PERMUTED}

    draws: Draws = 100


@register
class MapPermutation(_Permutation):
    """Permutation of the attention maps of a stack of layers: does it matter which token has which weight?

    The measure `permutation`, with one order for all heads and rows of the chosen layers. Markers keep their weight, and all
    that follows a changed layer is computed anew. A row that may not look at all tokens, as in a decoder, deals out in this
    order the weights of those that it sees.

    layers: "shown", those that the reduction takes; "last"; "all"; or numbers from 0 on.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2, for the one attention of their models.
    """

    name, cost, needs, target = "map_permutation", "draws", frozenset({"attention maps", "classes"}), Maps
    columns = {"map_permuted_probs": PERMUTED}

    draws: Draws = 20
    layers: Layers = "shown"


@register
class CrossPermutation(_Permutation):
    """Permutation of cross-attention: does it matter which source word has which weight?

    The measure `map_permutation` for the source words' tokens, in all layers.

    Source: Jain & Wallace 2019, section 4.2.1 and Algorithm 2, for one attention over a text.
    """

    name, cost, reads, needs, target = "cross_permutation", "draws", "pairs", frozenset({"cross-attention"}), Cross
    purpose = "cross_permutation"
    columns = {
        "cross_permuted_probs": Column(("K", "G"), doc="probability of each target word after each permutation", **DRAWN),
        "cross_permuted_tvd": Column(("K", "G"), doc=DISTANCE, **DRAWN),
    }

    draws: Draws = 10


class Uniform(TokenEdit):
    """The weight on tokens is divided equally among those that a row may look at."""

    def other(self, weights, tokens):
        share = weights.masked_fill(~tokens, 0).sum(3, keepdim=True) / tokens.sum(3, keepdim=True).clamp(min=1)
        return torch.where(tokens, share, weights)


class UniformAlone(Uniform):
    """The same in one layer of each copy: alone (N,1), the number of that layer, or -1 for all."""

    alone: torch.Tensor

    def weights(self, number, weights, rows=ALL):
        edited = (self.alone < 0) | (self.alone == number)
        return torch.where(edited[..., None, None], super().weights(number, weights, rows), weights)


@register
class MapUniform(Intervention):
    """Uniform attention maps: does it matter how a stack of layers weights what it attends to?

    Each row divides its weight on tokens equally among those that it may look at; markers keep theirs. layers: as for
    `map_permutation`.

    Source: Wiegreffe & Pinter 2019, section 4.1, who train with such weights; here the trained model is read with them.
    """

    name, cost, needs, target = "map_uniform", "reading", frozenset({"attention maps", "classes"}), Maps
    columns = {
        "map_uniform_probs": Column(("C",), distribution=True, doc="class probabilities when rows of the layers are uniform")
    }

    layers: Layers = "shown"

    def __call__(self, subject, batch) -> dict[str, list]:
        target = Maps(subject, batch, **self.where)
        owner = torch.arange(len(target.inside), device=target.inside.device)
        (probs,) = target.outcomes(owner, target.edit(Uniform, owner))
        return {"map_uniform_probs": list(probs.astype(np.float32))}


@register
class CrossUniform(Intervention):
    """Uniform cross-attention: what is the weighting of source words worth to each target word?

    The measure `map_uniform` for the source words' tokens, in all layers at once and in each alone.

    Source: Wiegreffe & Pinter 2019, section 3.2, who train models so; of a model as it is, this is an intervention.
    """

    name, cost, reads, needs, target = "cross_uniform", "reading", "pairs", frozenset({"cross-attention"}), Cross
    columns = {
        "cross_uniform_probs": Column(("G",), range=(0.0, 1.0), doc="probability of the target word, all heads uniform"),
        "cross_uniform_tvd": Column(("G",), range=(0.0, 1.0), doc=DISTANCE),
        "cross_uniform_layer_probs": Column(("L", "G"), range=(0.0, 1.0), doc="the probability where one layer alone is"),
        "cross_uniform_layer_tvd": Column(("L", "G"), range=(0.0, 1.0), doc="the distance where one layer alone is"),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        pairs = []
        for target in Cross.each(subject, batch):
            alone = torch.tensor([-1, *target.numbers], device=target.inside.device).unsqueeze(1)
            owner = torch.zeros(len(alone), dtype=torch.long, device=alone.device)
            outcomes = target.outcomes(owner, target.edit(UniformAlone, owner, alone=alone))
            probs, distances = (values.astype(np.float32) for values in outcomes)
            pairs.append((probs[0], distances[0], probs[1:], distances[1:]))
        return self.in_columns(subject, pairs)


@register
class RandomSupport(Measure):
    """Attention whose weights lie on random tokens: what a support of the same size explains that did not choose its places.

    A null for the agreement of sparse attention: how the importance of states agrees with attention that nobody learned.
    Each draw deals the weights of a text out anew among its tokens, so that the size of the support, the entropy and the
    ties stay. Under that attention a', states fixed, two measures of states are taken: ||df/dh_t||_2, f the log-odds of the
    class predicted under a'; and the total variation distance of the prediction to that without state t, the other weights
    renormalised. K = 0 below two tokens.

    Source: the two measures, Meister et al. 2021, eq. 4 and 6; the null is not theirs.
    """

    name, cost, needs = "random_support", "reading", frozenset({"classes", "intervention"})
    columns = {
        "random_support_attention": Column(("K", "T"), distribution=True, undefined=NO_DRAWS, doc="the weights, shuffled"),
        "random_support_probs": Column(("K", "C"), distribution=True, doc="class probabilities under it, states fixed"),
        "random_support_gradient_norm_hidden": Column(
            ("K", "T"), range=(0.0, None), doc="||df/dh||_2 under it of each state h", needs=frozenset({"states"})
        ),
        "random_support_leave_one_out_hidden": Column(("K", "T"), range=(0.0, 1.0), doc="change without a state"),
    }

    draws: Draws = 5

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        rows = []
        for name, text in zip(batch["instance_id"], read_out(subject, batch), strict=True):
            count = self.draws if len(text.attention) > 1 else 0
            same = np.broadcast_to(text.attention, (count, len(text.attention)))
            drawn = generator(seed, name, self.name).permuted(same, axis=1)
            probs = softmax(text.logits(drawn))
            norms = [_gradient_norms(subject, batch, len(rows), drawn)] if "states" in subject.capabilities else []
            values = drawn, probs, *norms, _distances(text, drawn, probs)
            rows.append([value.astype(np.float32) for value in values])
        return self.in_columns(subject, rows)


def _distances(text, drawn: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Total variation distances (K,T) of predictions without each state to those (K,C) under attentions drawn (K,T)."""
    distances = np.zeros(drawn.shape)
    for row, weights in enumerate(drawn):
        others = weights * ~np.eye(len(weights), dtype=bool)
        left = others.sum(1, keepdims=True)
        without = softmax(text.logits(others / np.where(left > 0, left, 1)))
        distances[row] = np.where(weights == 0, 0, np.abs(without - probs[row]).sum(1) / 2)
    return distances


def _gradient_norms(subject, batch, row: int, drawn: np.ndarray) -> np.ndarray:
    """||df/dh||_2 (K,T) of each state h of a text: f the log-odds of the class predicted under attentions (K,T)."""
    if not len(drawn):
        return np.zeros(drawn.shape)
    hidden, mask, query = subject.encoded(batch)
    query = None if query is None else query[torch.full((len(drawn),), row, device=hidden.device)]
    with torch.enable_grad():
        states = hidden[row, mask[row]].detach().repeat(len(drawn), 1, 1).requires_grad_()
        odds = log_odds(subject.decode(states, torch.from_numpy(drawn).to(states), query))
        (gradient,) = torch.autograd.grad(odds.sum(), states, materialize_grads=True)
    return gradient.double().norm(dim=2).cpu().numpy()
