"""Erasing tokens from attention maps: one alone, and one after the other until the decision changes.

Shapes: B instances, N copies of instances, L input positions, T tokens, C classes, K random orders, R orders in all.
"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.maps import Asked, Changed, chosen_layers
from attnfaith.measurement.options import Draws, Flag, Layers, Rows
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.protocol import log_odds


RANKINGS = ("attention", "gradient", "attention_gradient")
ORDERS = ("random", *RANKINGS)


def _columns() -> dict[str, Column]:
    columns = {
        "map_erasure_gradient": Column(
            ("T",),
            "float64",
            signed=True,
            doc="derivative of the probability of the predicted class by a number added to all weights on a token, in all "
            "rows and heads of the chosen layers",
        ),
        "map_erasure_attention_gradient": Column(
            ("T",), "float64", signed=True, doc="the same by a factor of all weights on a token, at 1"
        ),
        "map_erasure_probs": Column(
            ("T", "C"), distribution=True, doc="prediction with all weight on one token 0 in the chosen layers"
        ),
        "map_erasure_order": Column(("K", "T"), "int32", doc="tokens in random orders"),
    }
    for name in ORDERS:
        axes, by = (("K",), "random order") if name == "random" else ((), f"decreasing {name.replace('_', ' x ')}")
        columns[f"map_erasure_flip_size_{name}"] = Column(
            axes,
            undefined="the decision never changes",
            doc=f"tokens whose weight is set to 0 by {by} until the decision first changes, 1..T",
        )
        columns[f"map_erasure_flip_mass_{name}"] = Column(
            axes, range=(0.0, 1.0), undefined="the decision never changes", doc="attention on them, as it is shown"
        )
        columns[f"map_erasure_flip_empty_{name}"] = Column(
            axes, "bool", doc="the decision changed only when no token had weight: markers and the rest of the model decided"
        )
    return columns


@register
class MapErasure(Measure):
    """Erasing tokens from attention maps: one alone, and one after the other until the decision changes.

    What the model decides when no row of some layers has weight on some of the tokens.

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

    Shapes: B instances, N copies of instances, L input positions, T tokens, C classes, K random orders, R orders in all.
    """

    name, cost = "map_erasure", "draws"
    needs = frozenset({"attention maps", "classes"})
    columns = _columns()
    metric = {"counterfactual_probs": "map_erasure_probs"}

    draws: Draws = 5
    layers: Layers = "shown"
    rows: Rows = "all"
    renormalise: Flag = True

    def check(self, subject, dataset) -> None:
        """Raises ValueError for a layer that there is not."""
        chosen_layers(subject, self.layers)

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        asked = Asked(subject, batch, self.layers, self.rows)
        places = [asked.places(row) for row in range(len(asked.inside))]
        weights = subject.attention(batch).double().cpu().numpy()
        own = [values[where] for values, where in zip(weights, places, strict=True)]
        predicted, slopes = _gradients(asked)
        columns: dict[str, list] = {name: [] for name in self.columns}
        scores = [np.stack([own[row], *slopes[:2, row, where]]) for row, where in enumerate(places)]
        orders = [_orders(*of_text, seed, self.draws) for of_text in zip(scores, batch["instance_id"], strict=True)]
        said = _read(asked, places, orders, self.renormalise)
        for row, (length, of_text) in enumerate(zip(map(len, places), said, strict=True)):
            alone, along = of_text[:length], of_text[length:].reshape(len(orders[row]), length, subject.num_labels)
            columns["map_erasure_gradient"].append(slopes[2, row, 0] * scores[row][1])
            columns["map_erasure_attention_gradient"].append(slopes[2, row, 0] * scores[row][2])
            columns["map_erasure_probs"].append(alone.astype(np.float32))
            columns["map_erasure_order"].append(orders[row][: max(0, len(orders[row]) - len(RANKINGS))].astype(np.int32))
            flips = _flips(along.argmax(-1) != predicted[row], own[row][orders[row]])
            for name, values in zip(("size", "mass", "empty"), flips, strict=True):
                columns[f"map_erasure_flip_{name}_random"].append(values[: -len(RANKINGS)])
                for place, ranking in enumerate(RANKINGS, start=-len(RANKINGS)):
                    value = values[place] if len(values) else (False if name == "empty" else np.nan)
                    columns[f"map_erasure_flip_{name}_{ranking}"].append(value)
        return columns


def _orders(scores: np.ndarray, name: str, seed: int, draws: int) -> np.ndarray:
    """(R,T): random orders and those of decreasing scores (3,T), the tokens by number; none below two tokens."""
    length = scores.shape[1]
    if length < 2:
        return np.empty((0, length), np.int64)
    random = generator(seed, name, "erasure").permuted(np.tile(np.arange(length), (draws, 1)), axis=1)
    return np.concatenate([random, np.argsort(-scores, 1, "stable")])


def _flips(changed: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of orders in which the decision is another one (R,T), and the weights in these orders (R,T): tokens, weight, empty."""
    if not len(changed):
        return np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, bool)
    flips, first = changed.any(1), changed.argmax(1)
    mass = np.take_along_axis(weights.cumsum(1), first[:, None], 1)[:, 0].clip(max=1)
    size = np.where(flips, first + 1.0, np.nan)
    return size.astype(np.float32), np.where(flips, mass, np.nan).astype(np.float32), size == changed.shape[1]


def _read(asked: Asked, places: list[np.ndarray], orders: list[np.ndarray], renormalise: bool) -> list[np.ndarray]:
    """Probabilities of each instance: without each token alone (T,C), and along each order after each removal (R T,C)."""
    width, parts = asked.inside.shape[1], []
    for where, order in zip(places, orders, strict=True):
        length = len(where)
        ranks = np.argsort(order, 1)
        gone = np.concatenate([np.eye(length, dtype=bool), *(rank <= np.arange(length)[:, None] for rank in ranks)])
        parts.append(np.zeros((len(gone), width), bool))
        parts[-1][:, where] = gone
    owner = torch.from_numpy(np.repeat(np.arange(len(parts)), list(map(len, parts)))).to(asked.inside.device)
    edit = asked.edit(Erased, owner, torch.from_numpy(np.concatenate(parts)).to(asked.inside.device), renormalise)
    probs = asked.logits(owner, edit).softmax(-1).cpu().numpy()
    return np.split(probs, np.cumsum(list(map(len, parts)))[:-1])


@torch.enable_grad()
def _gradients(asked: Asked) -> tuple[np.ndarray, np.ndarray]:
    """The predicted class (B,), and (3,B,L): derivatives of its log-odds by a number added to each column and by a factor of
    it, and p(1 - p), the factor that makes them derivatives of the probability.
    """
    owner = torch.arange(len(asked.inside), device=asked.inside.device)
    edit = asked.edit(_Scaled, owner)
    after = None if asked.prefix is None else (asked.prefix, owner)
    logits = asked.subject.read(asked.batch, edit, keep=lambda number: False, after=after).logits.double()
    odds = log_odds(logits)
    slopes = torch.autograd.grad(odds.sum(), [edit.added, edit.factor], materialize_grads=True)
    spread = (odds.sigmoid() * (-odds).sigmoid()).detach()[:, None].expand(asked.inside.shape)
    both = torch.stack([*(slope.double() for slope in slopes), spread])
    return logits.detach().argmax(1).cpu().numpy(), both.cpu().numpy()


class Erased(Changed):
    """No weight on the places `gone` (N,L); the rest of a row with the same sum as before where it is renormalised."""

    per_copy = ("gone",)

    def __init__(self, numbers, inside, rows, gone, renormalise=True):
        super().__init__(numbers, inside, rows)
        self.gone, self.renormalise = gone, renormalise

    def row(self, weights, reach):
        rest = weights.masked_fill(self.gone[:, None, None], 0)
        if not self.renormalise:
            return rest
        left = rest.sum(3, keepdim=True)
        return torch.where(left > 0, rest * (weights.sum(3, keepdim=True) / left), rest)


class _Scaled(Changed):
    """The weights as they are, times a factor of 1 and plus 0 for each column, of which gradients are taken."""

    per_copy = ("added", "factor")

    def __init__(self, numbers, inside, rows):
        super().__init__(numbers, inside, rows)
        self.added = torch.zeros(inside.shape, dtype=torch.float32, device=inside.device, requires_grad=True)
        self.factor = torch.ones(inside.shape, dtype=torch.float32, device=inside.device, requires_grad=True)

    def row(self, weights, reach):
        return weights * self.factor[:, None, None] + (self.added[:, None, None] * reach)
