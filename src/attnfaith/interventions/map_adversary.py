"""Adversarial attention maps: other maps under which what is shown is far from the model's own, and the prediction stays.

Shapes: R restarts, H heads, Q queries, L input positions, T tokens, C classes.
"""

import math

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.maps import Asked, Changed, chosen_layers
from attnfaith.measurement.options import Count, Fraction, Layers, Positive, Rows
from attnfaith.measurement.registry import Measure, register
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.record import Column


SPREAD = 1.0  # of the noise on log-weights that a search starts with
PENALTY = 500.0
MIXTURES = 8
GUARD = 1e-12  # inside logarithms
MARGIN = 1e-6  # of epsilon, for the rounding of copies that are read together


@register
class MapAdversary(Measure):
    """Adversarial attention maps: other maps under which what is shown is far from the model's own, and the prediction
    stays.

    How far what is shown can be moved by other maps, everything behind them computed anew, within epsilon.

    The log-weights on tokens in each head and row of the chosen layers are free, each row with the sum that the model's has
    there; markers keep theirs. `steps` steps of Adam, from log-weights with noise N(0,1), lower

        500 max(0, TVD(p', p) - epsilon) - JSD(shown', shown)

    in each restart, TVD the total variation distance of predictions. Every step that keeps the prediction within epsilon
    counts, and so do mixtures of the last one with the model's own maps, eighth by eighth; of all these the furthest is
    taken, read once more by itself, and what it then says is what is reported. One that is not within epsilon is never
    taken. What is found is a lower bound of what can be found.

    layers, rows: as for `map_permutation`, but that rows are those that matter unless all are asked for. A text is searched
    alone, so that no other enters, its own noise by `seed`. Below two tokens there is nothing to search (NaN).

    Source: Jain & Wallace 2019, section 4.2.2, for the one attention of their models; here maps are free, not their sum.

    Shapes: R restarts, H heads, Q queries, L input positions, T tokens, C classes.
    """

    name, cost = "map_adversary", "draws"
    needs = frozenset({"attention maps", "classes"})
    columns = {
        "map_adversary_attention": Column(
            ("T",),
            distribution=True,
            doc="what would be shown under the maps that were found: the furthest from the model's own that keeps the "
            "prediction within epsilon; the model's own where none was found",
        ),
        "map_adversary_probs": Column(("C",), distribution=True, doc="the prediction under these maps"),
        "map_adversary_jsd": Column(
            dtype="float64",
            range=(0.0, math.log(2)),
            unit="nats",
            undefined="below two tokens",
            doc="Jensen-Shannon divergence of that attention from the model's",
        ),
        "map_adversary_change": Column(
            dtype="float64",
            range=(0.0, 1.0),
            undefined="below two tokens",
            doc="total variation distance of that prediction from the model's, at most epsilon",
        ),
        "map_adversary_certainty": Column(
            dtype="category", doc="lower bound: a search met it, and others may be further; undefined: fewer than two tokens"
        ),
    }

    epsilon: Fraction = 0.01
    restarts: Count = 3
    steps: Count = 40
    learning_rate: Positive = 0.1
    layers: Layers = "shown"
    rows: Rows = "matter"

    def check(self, subject, dataset) -> None:
        """Raises ValueError for a layer that there is not, and for attention that is shown as a flow, which has no
        gradient.
        """
        chosen_layers(subject, self.layers)
        if subject.reduction.way == "flow":
            raise ValueError("attention='flow' has no gradient to search by; give another reduction, such as 'rollout'")

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        made: dict[str, list] = {name: [] for name in self.columns}
        for row, name in enumerate(batch["instance_id"]):
            search = _Search(subject, batch.alone(row), self.layers, self.rows)
            length = int(search.inside.sum())
            if length < 2:
                values = (search.own, search.probs, np.nan, np.nan, "undefined")
            else:
                search.run(
                    generator(seed, name, "map_adversary"), self.epsilon, self.restarts, self.steps, self.learning_rate
                )
                values = (*search.reported(self.epsilon), "lower bound")
            for column, value in zip(made.values(), values, strict=True):
                column.append(value)
        return made


class _Search:
    """One text: its own maps, what is shown of them (T,), the prediction (C,), and the best that was met."""

    def __init__(self, subject, text, layers, rows):
        self.subject, self.asked = subject, Asked(subject, text, layers, rows)
        self.inside = self.asked.inside[0]
        shown_layers = subject.reduction.chosen(len(subject.sites.layers))
        self.shown_numbers = [subject.sites.layers[layer] for layer in shown_layers]
        wanted = {*self.shown_numbers, *self.asked.numbers}
        with torch.no_grad():
            read = subject.read(text, keep=wanted.__contains__)
            self.maps = {one.number: one.weights for one in read.maps}
            self.matter = subject.matter(text)
            self.shown = self._shown({})
        self.prediction = read.logits.double().softmax(-1)
        self.own, self.probs = self.shown[0].cpu().numpy(), self.prediction[0].cpu().numpy()
        self.distance, self.best = 0.0, None

    def run(self, random: np.random.Generator, epsilon: float, restarts: int, steps: int, rate: float) -> None:
        """The search that `measure` says."""
        start = {number: (self.maps[number] + GUARD).log() for number in self.asked.numbers}
        free = {}
        for number, weights in start.items():
            noise = torch.from_numpy(random.standard_normal((restarts, *weights.shape[1:]), np.float32)).to(weights)
            free[number] = (weights + SPREAD * noise).requires_grad_()
        optimizer = torch.optim.Adam(list(free.values()), rate)
        with torch.enable_grad():
            for _ in range(steps):
                distances, changes = self._tried(free, epsilon)
                loss = PENALTY * (changes - epsilon).relu() - distances
                gradients = torch.autograd.grad(loss.sum(), list(free.values()))
                for values, gradient in zip(free.values(), gradients, strict=True):
                    values.grad = gradient
                optimizer.step()
        with torch.no_grad():
            for part in torch.arange(1, MIXTURES + 1) / MIXTURES:
                self._tried({number: self._mixed(start[number], values, part) for number, values in free.items()}, epsilon)

    def _mixed(self, own: torch.Tensor, free: torch.Tensor, part) -> torch.Tensor:
        """Log-weights of a mixture of rows, each over the tokens alone."""
        hidden = ~self.inside
        rows = (values.masked_fill(hidden, torch.finfo(values.dtype).min).softmax(-1) for values in (own, free))
        first, second = rows
        return ((1 - part) * first + part * second + GUARD).log()

    def _tried(self, free: dict[int, torch.Tensor], epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
        """JSD of what is shown and TVD of the prediction (R,) under free log-weights; the best that is allowed is kept."""
        probs, maps = self._read(free)
        changes = (probs - self.prediction).abs().sum(-1) / 2
        distances = _jsd(self._shown(maps), self.shown)
        allowed = torch.where(changes <= epsilon - MARGIN, distances, -1.0).detach()
        row = int(allowed.argmax())
        if float(allowed[row]) > self.distance:
            self.distance = float(allowed[row])
            self.best = {number: values[row : row + 1].detach().clone() for number, values in free.items()}
        return distances, changes

    def _read(self, free: dict[int, torch.Tensor], again: bool = False) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Probabilities (R,C) in float64 and the maps under free log-weights; again: from the beginning."""
        count = len(next(iter(free.values())))
        owner = torch.zeros(count, dtype=torch.int64, device=self.inside.device)
        prefix = None if again else self.asked.prefix
        read = self.subject.read(
            self.asked.batch.take(owner),
            self.asked.edit(_Free, owner, free),
            keep=self.maps.keys().__contains__,
            after=None if prefix is None else (prefix, owner),
        )
        return read.logits.double().softmax(-1), {one.number: one.weights for one in read.maps}

    def _shown(self, maps: dict[int, torch.Tensor]) -> torch.Tensor:
        """What would be shown (R,T) of maps, the model's own where they are not among them."""
        count = len(next(iter(maps.values()))) if maps else 1
        every = [maps.get(number, self.maps[number].expand(count, -1, -1, -1)) for number in self.shown_numbers]
        on_text = self.subject.reduction(every, self.matter.expand(count, -1)).double()[:, self.inside]
        return on_text / on_text.sum(1, keepdim=True).clamp(min=GUARD)

    @torch.no_grad()
    def reported(self, epsilon: float) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Attention (T,), prediction (C,), JSD and TVD of the best, read by itself; the model's own where it is too far."""
        shown, probs = self.own, self.probs
        if self.best is not None:
            prediction, maps = self._read(self.best, again=True)
            if float((prediction - self.prediction).abs().sum() / 2) <= epsilon:
                shown, probs = self._shown(maps)[0].cpu().numpy(), prediction[0].cpu().numpy()
        distance = float(jensen_shannon_divergence([shown], [self.own])[0])
        return shown, probs, min(distance, math.log(2)), float(np.abs(probs - self.probs).sum() / 2)


def _jsd(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """(R,) in nats, of distributions (R,T) and (1,T)."""
    middle = (one + other) / 2 + GUARD
    parts = (values * ((values + GUARD).log() - middle.log()) for values in (one, other))
    return sum(part.sum(-1) for part in parts) / 2


class _Free(Changed):
    """Rows whose weight on tokens is dealt out by free log-weights, {number: (N,H,Q,L)}."""

    def __init__(self, numbers, inside, rows, free):
        super().__init__(numbers, inside, rows)
        self.free = free

    def take(self, chosen, length):
        other = super().take(chosen, length)
        other.free = {number: values[chosen][:, :, :length, :length] for number, values in self.free.items()}
        return other

    def weights(self, number, weights):
        self.given = self.free.get(number)
        return super().weights(number, weights)

    def row(self, weights, reach):
        dealt = reach & self.inside[:, None, None]
        share = weights.masked_fill(~dealt, 0).sum(3, keepdim=True)
        own = self.given.masked_fill(~dealt, torch.finfo(weights.dtype).min).softmax(3)
        return torch.where(dealt, own * share, weights)
