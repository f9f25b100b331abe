"""Search for an adversarial attention by gradient steps on log-weights: far from the model's own, with the same prediction.

What a search finds is a lower bound on how far attention can go; `adversary` gives the maximum for pooled attention.

Shapes: K restarts, T tokens, B texts side by side, C classes, H heads, Q queries, L input positions.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from attnfaith.interventions.targets import AFFINE, Intervention, Maps, Readout, TokenEdit, padded, read_out, softmax, under
from attnfaith.measurement.options import Count, Fraction, Layers, Positive
from attnfaith.measurement.registry import Measure, register
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.record import Column
from attnfaith.subjects.attention import ALL
from attnfaith.support.draws import generator


SPREAD = 3.0  # of the noise that log-weights start from
GUARD = np.float32(1e-10)  # added inside logarithms, as in the authors' code
FEW = "below two tokens"
PLACES_AT_ONCE = 8192  # tokens of the texts that are optimised together: fewer wait for Python, more leave the cache


Slope = Callable[[np.ndarray, float], np.ndarray]
"""The derivative (K,T,B) of max(0, TVD - epsilon) by attention (K,T,B), up to a constant for each text."""


@register
class AdversarySearch(Measure):
    """Jain & Wallace's search for an adversarial attention: K restarts, pushed apart, by gradient steps on log-weights.

    The last iterate of each restart, hidden states held fixed. For a text of attention a and prediction p, minimised over
    the K restarts x_k together, by `steps` steps of Adam with AMSGrad on log-weights that start at 3 N(0,1):

        sum_k [ penalty * max(0, TVD(p_k, p) - epsilon) - JSD(x_k, a) ] - mean_jk JSD(x_j, x_k)

    TVD, the total variation distance, is |change of p| with two classes; the authors' code takes twice it with more. A row
    may move the prediction by more than epsilon: readers of the rows set the threshold. No rows below two tokens.

    Source: Jain & Wallace 2019, algorithm 3 and their code.
    """

    name, cost, needs = "adversary_search", "draws", frozenset({"classes", "intervention"})
    columns = {
        "adversary_search_attention": Column(("K", "T"), distribution=True, undefined=FEW, doc="last step of each restart"),
        "adversary_search_probs": Column(("K", "C"), distribution=True, doc="the prediction under each of these attentions"),
    }

    restarts: Count = 5
    steps: Count = 500
    learning_rate: Positive = 0.01
    penalty: Positive = 500.0
    epsilon: Fraction = 0.01

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        texts = read_out(subject, batch)
        lengths = np.array([len(text.attention) for text in texts])
        rows = [(np.zeros((0, length), np.float32), np.zeros((0, subject.num_labels), np.float32)) for length in lengths]
        waiting = [row for row in np.argsort(-lengths, kind="stable") if lengths[row] >= 2]
        while waiting:
            size = max(1, PLACES_AT_ONCE // lengths[waiting[0]])
            chosen, waiting = waiting[:size], waiting[size:]
            group, starts = [texts[row] for row in chosen], []
            for row in chosen:
                noise = generator(seed, batch["instance_id"][row], self.name)
                starts.append(SPREAD * noise.standard_normal((self.restarts, lengths[row])))
            affine = AFFINE in subject.capabilities
            slope = affine_slope_of(group) if affine else slope_of(under(subject, batch, chosen), group)
            for row, text, attention in zip(chosen, group, self.search(group, starts, slope), strict=True):
                rows[row] = attention.astype(np.float32), softmax(text.logits(attention)).astype(np.float32)
        return self.in_columns(subject, rows)

    def search(self, texts: list[Readout], starts: list[np.ndarray], penalty_slope: Slope) -> list[np.ndarray]:
        """Return attentions (K,T) float64 of each text, from log-weights (K,T) to start from.

        Texts are the last axis, so that sums over tokens are sums of whole rows and padding adds nothing but zeros. The
        derivative of JSD(x, a) by x is log(2x / (x + a)) / 2; what is the same for every token vanishes on the way through
        the softmax: x * (slope - sum(x * slope)). Several times faster than torch's derivatives and optimiser.
        """
        lengths, restarts = [len(text.attention) for text in texts], len(starts[0])
        position = np.full((restarts, max(lengths), len(texts)), -np.inf, np.float32)
        own = np.zeros(position.shape[1:], np.float32)
        for column, (text, start) in enumerate(zip(texts, starts, strict=True)):
            own[: lengths[column], column] = text.attention
            position[:, : lengths[column], column] = start
        own += 2 * GUARD
        mean, square, largest, between = *np.zeros((3, *position.shape), np.float32), np.float32(1 / restarts**2)
        first_rate, second_rate = 0.9, 0.999
        for step in range(1, self.steps + 1):
            attention = _over_tokens(position)
            guarded = attention + GUARD
            slope = np.log(attention + own) * np.float32(0.5)
            for first in range(restarts - 1):
                mixed = np.log(guarded[first] + guarded[first + 1 :]) * between
                slope[first] += mixed.sum(0)
                slope[first + 1 :] += mixed
            slope -= np.log(guarded) * (np.float32(0.5) + (restarts - 1) * between)
            slope += np.float32(self.penalty) * penalty_slope(attention, self.epsilon)
            slope = (slope - (attention * slope).sum(1, keepdims=True)) * attention
            mean = mean * first_rate + slope * (1 - first_rate)  # Adam with AMSGrad
            square = square * second_rate + slope * slope * (1 - second_rate)
            largest = np.maximum(largest, square)
            size = np.sqrt(largest) * (1 - second_rate**step) ** -0.5 + 1e-8
            position -= mean / size * (self.learning_rate / (1 - first_rate**step))
        attention = _over_tokens(position.astype(np.float64))
        return [attention[:, :length, column] for column, length in enumerate(lengths)]


def _over_tokens(position: np.ndarray) -> np.ndarray:
    """The softmax over the tokens of (K,T,B)."""
    weights = np.exp(position - position.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return weights


def slope_of(read: Callable, texts: list[Readout]) -> Slope:
    """Return the slope of texts whose logits `read` gives, a `targets.Read`."""
    own = torch.from_numpy(np.stack([text.probs for text in texts])[:, None]).float()

    def slope(attention, epsilon):
        with torch.enable_grad():
            weights = torch.from_numpy(np.ascontiguousarray(attention.transpose(2, 0, 1))).requires_grad_()
            distances = (read(weights).cpu().float().softmax(-1) - own).abs().sum(-1) / 2
            (gradient,) = torch.autograd.grad((distances - epsilon).relu().sum(), weights)
        return gradient.numpy().transpose(1, 2, 0)

    return slope


def affine_slope_of(texts: list[Readout]) -> Slope:
    """Return the slope of texts with an affine read-out, 3 times as fast as from torch's derivatives.

    Values (C,1,T,B), bias and probabilities (C,1,B).
    """
    values, bias = (padded([getattr(text, name) for text in texts]).float().numpy() for name in ("values", "bias"))
    values, bias = values.T[:, None], bias.T[:, None]
    own = np.float32([text.probs for text in texts]).T[:, None]

    def slope(attention, epsilon):
        logits = bias + [(attention * value).sum(1) for value in values]
        probs = np.exp(logits - logits.max(0))
        probs /= probs.sum(0)
        changes = probs - own
        by_probs = np.sign(changes) * (np.abs(changes).sum(0) / 2 > epsilon) / 2
        by_logits = probs * (by_probs - (probs * by_probs).sum(0))
        return sum(step[:, None] * value for step, value in zip(by_logits, values, strict=True))

    return slope


NUMBER = {"dtype": "float64", "undefined": FEW}
MIXTURES = 8
MAP_GUARD, PENALTY = 1e-12, 500.0
MARGIN = 1e-6  # of epsilon, for the rounding of copies that are read together


class Dealt(TokenEdit):
    """The weight on tokens is dealt out by free log-weights {number of a map: (N,H,Q,L)}, in each row and head."""

    free: dict[int, torch.Tensor]

    def weights(self, number, weights, rows=ALL):
        self.current = self.free.get(number)
        return super().weights(number, weights, rows)

    def other(self, weights, tokens):
        mass = weights.masked_fill(~tokens, 0).sum(3, keepdim=True)
        shares = self.current.masked_fill(~tokens, torch.finfo(weights.dtype).min).softmax(3)
        return torch.where(tokens, shares * mass, weights)


@register
class MapAdversary(Intervention):
    """Adversarial attention maps: other maps under which what is shown is far from the model's own, and the prediction
    stays.

    The log-weights on tokens in each head and row of the chosen layers are free, each row with the sum that the model's has
    there; markers keep theirs. `steps` steps of Adam, from log-weights with noise N(0,1), lower

        500 max(0, TVD(p', p) - epsilon) - JSD(shown', shown)

    in each restart, TVD the total variation distance of predictions. Every step that keeps the prediction within epsilon
    counts, and so do mixtures of the last one with the model's own maps, in eighths. The furthest of all these is read once
    more by itself, and that reading is reported, never beyond epsilon: a lower bound. Only rows change that the logits
    depend on. layers: as for `map_permutation`.

    Source: Jain & Wallace 2019, section 4.2.2, for the one attention of their models; here maps are free, not their sum.
    """

    name, cost, needs, target = "map_adversary", "draws", frozenset({"attention maps", "classes"}), Maps
    columns = {
        "map_adversary_attention": Column(("T",), distribution=True, doc="attention shown of the maps found"),
        "map_adversary_probs": Column(("C",), distribution=True, doc="the prediction under these maps"),
        "map_adversary_jsd": Column(range=(0.0, math.log(2)), unit="nats", doc="divergence of that attention", **NUMBER),
        "map_adversary_change": Column(range=(0.0, 1.0), doc="total variation distance of that prediction", **NUMBER),
        "map_adversary_certainty": Column(dtype="category", doc="lower bound; undefined: fewer than two tokens"),
    }

    epsilon: Fraction = 0.01
    restarts: Count = 3
    steps: Count = 40
    learning_rate: Positive = 0.1
    layers: Layers = "shown"

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        rows = []
        for row, name in enumerate(batch["instance_id"]):
            search = _MapSearch(self, Maps(subject, batch.alone(row), self.layers, matter=True))
            rows.append(search.run(generator(seed, name, self.name)))
        return self.in_columns(subject, rows)


class _MapSearch:
    """One text: its maps, the attention shown (1,T), the prediction (1,C), and the best maps met so far."""

    @torch.no_grad()
    def __init__(self, options: MapAdversary, target: Maps):
        self.options, self.target, self.subject, self.inside = options, target, target.subject, target.inside[0]
        sites = self.subject.sites.layers
        self.layers_shown = [sites[layer] for layer in self.subject.reduction.chosen(len(sites))]
        read = self.subject.read(target.batch, keep={*self.layers_shown, *target.numbers})
        self.maps = {attention_map.number: attention_map.weights for attention_map in read.maps}
        self.matter = self.subject.matter(target.batch)
        self.own, self.prediction = self._shown({}, 1), read.logits.double().softmax(-1)
        self.distance, self.best = 0.0, None

    def run(self, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float, float, str]:
        """Search as `MapAdversary` describes; return attention (T,), prediction (C,), JSD, TVD and the certainty."""
        probs, shown, change, own = self.prediction, self.own, 0.0, self.own[0].cpu().numpy()
        if len(own) < 2:
            return own, probs[0].cpu().numpy(), np.nan, np.nan, "undefined"
        start = {number: (self.maps[number] + MAP_GUARD).log() for number in self.target.numbers}
        free = {}
        for number, weights in start.items():
            noise = random.standard_normal((self.options.restarts, *weights.shape[1:]), np.float32)
            free[number] = (weights + torch.from_numpy(noise).to(weights)).requires_grad_()
        optimizer = torch.optim.Adam(list(free.values()), self.options.learning_rate)
        with torch.enable_grad():
            for _ in range(self.options.steps):
                distances, changes = self._try(free)
                loss = PENALTY * (changes - self.options.epsilon).relu() - distances
                optimizer.zero_grad()
                loss.sum().backward(inputs=list(free.values()))
                optimizer.step()
        with torch.no_grad():
            for part in range(1, MIXTURES + 1):
                mixed = {}
                for number in free:
                    ends = (values[number].masked_fill(~self.inside, -torch.inf).softmax(-1) for values in (start, free))
                    mixed[number] = (torch.lerp(*ends, part / MIXTURES) + MAP_GUARD).log()
                self._try(mixed)
            if self.best is not None:
                read = self._read(self.best)
                moved = float((read[0] - self.prediction).abs().sum() / 2)
                if moved <= self.options.epsilon:
                    (probs, shown), change = read, moved
        attention = shown[0].cpu().numpy()
        distance = min(float(jensen_shannon_divergence([attention], [own])[0]), math.log(2))
        return attention, probs[0].cpu().numpy(), distance, change, "lower bound"

    def _try(self, free: dict[int, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """JSD of the attention shown and TVD of the prediction (K,) of free log-weights; keeps the best within epsilon."""
        probs, shown = self._read(free)
        changes, distances = (probs - self.prediction).abs().sum(-1) / 2, self._divergence(shown)
        allowed = torch.where(changes <= self.options.epsilon - MARGIN, distances, -1.0).detach()
        row = int(allowed.argmax())
        if float(allowed[row]) > self.distance:
            self.distance = float(allowed[row])
            self.best = {number: values[row : row + 1].detach().clone() for number, values in free.items()}
        return distances, changes

    def _divergence(self, shown: torch.Tensor) -> torch.Tensor:
        """JSD (K,) of attentions shown (K,T) from the model's."""
        middle = ((shown + self.own) / 2 + MAP_GUARD).log()
        parts = [(weights * ((weights + MAP_GUARD).log() - middle)).sum(-1) for weights in (shown, self.own)]
        return (parts[0] + parts[1]) / 2

    def _read(self, free: dict[int, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities (K,C) in float64 and the attention shown (K,T) under free log-weights."""
        owner = torch.zeros(len(next(iter(free.values()))), dtype=torch.int64, device=self.inside.device)
        edit = self.target.edit(Dealt, owner)
        edit.free = free
        after = None if self.target.prefix is None else (self.target.prefix, owner)
        read = self.subject.read(self.target.batch.take(owner), edit, keep=self.maps, after=after)
        maps = {layer.number: layer.weights for layer in read.maps}
        return read.logits.double().softmax(-1), self._shown(maps, len(owner))

    def _shown(self, maps: dict[int, torch.Tensor], count: int) -> torch.Tensor:
        """The attention shown (K,T) of maps, and of the model's own where these lack some."""
        layers = [maps.get(number, self.maps[number].expand(count, -1, -1, -1)) for number in self.layers_shown]
        on_text = self.subject.reduction(layers, self.matter.expand(count, -1)).double()[:, self.inside]
        return on_text / on_text.sum(1, keepdim=True).clamp(min=MAP_GUARD)
