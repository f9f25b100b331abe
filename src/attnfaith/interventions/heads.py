"""The attentions that leave what every head of a Transformer puts out as it is: all layers, heads and rows at once.

A head's output is a weighted sum of values, V'a, for each row; nothing after it knows more of its attention. So rows, heads
and layers are independent of one another: where each keeps its output, the values of later layers stay as well.

L: input positions of a text, T of them its tokens, D: layers, H: heads.
"""

from dataclasses import dataclass

import numpy as np
import torch

from attnfaith.interventions.alternatives import Alternatives, Part, of_parts
from attnfaith.interventions.polytope import DOUBLE, Polytope
from attnfaith.interventions.walks import far
from attnfaith.subjects import Batch
from attnfaith.subjects.attention import Edit, Map, rows_that_matter


NO_DOUBLE = (RuntimeError, TypeError, ValueError)  # what models raise that have kernels of one precision alone
MASKED = -5e3  # scores up to here are those of places that a row may not look at; some models add -10000 to them


@dataclass(frozen=True)
class Told:
    """Of one text: own (T,), the attention that is shown, in float64; `shown`, what it could be; of every layer, over the
    rows that matter and all heads: `tvd` (D,), mean distance that was reached, and `rows` (D,), their number. change and
    change_double: the largest change of a logit when all rows have other attention, in the model's own arithmetic and in
    float64, NaN of a model that does not run in it.
    """

    own: np.ndarray
    shown: Alternatives
    tvd: np.ndarray
    rows: np.ndarray
    change: float
    change_double: float


class Heads:
    """A subject with attention maps and a twin of it in float64, to which alternatives change nothing, to about 1e-12.

    Without a twin, of a model that does not run in float64, the subject itself is read: its rounding is what remains.
    """

    def __init__(self, subject):
        self.subject = subject
        try:
            self.twin = subject.in_double()
        except NO_DOUBLE:
            self.twin = None

    def told(self, text: Batch, *, epsilon: float, top: int) -> Told:
        """Of one text, a batch without padding. Tokens of the text exchange weights; markers keep theirs, in every row.

        The rows behind the attention that is shown get the furthest of it, by linear programmes, and its limits; all others
        that the logits depend on get one far alternative, by a walk (`walks.far`).
        """
        inside = self.subject.attendable(text)[0].cpu().numpy()
        try:
            read, matter = self._read(text)
        except NO_DOUBLE:
            if self.twin is None:
                raise
            self.twin = None
            read, matter = self._read(text)
        weights = [one.weights[0].detach().double().cpu().numpy() for one in read.maps]
        values = [one.values[0].detach().double().cpu().numpy()[:, inside] for one in read.maps]
        allowed = [_allowed(one)[:, :, inside] for one in read.maps]
        others = [self._far(*one, inside) for one in zip(weights, values, allowed, matter, strict=True)]
        own, shown, rows = self._shown(weights, values, allowed, matter[-1], inside, epsilon, top)
        for (layer, head, row, mass), part in zip(rows, shown.of_parts, strict=True):
            places = inside.nonzero()[0][allowed[layer][head, row]]
            others[layer][head, row, places] = mass * part
        distances = [np.abs(new - old).sum(2)[:, rows] / 2 for new, old, rows in zip(others, weights, matter, strict=True)]
        return Told(
            own,
            shown,
            np.array([one.mean() if one.size else 0.0 for one in distances]),
            np.array([one.size for one in distances]),
            self._change(self.subject, text, others),
            self._change(self.twin, text, others) if self.twin else np.nan,
        )

    def _read(self, text: Batch):
        """Maps, and of each layer the rows (L,) bool that logits depend on."""
        watching = _Watching(self.subject.sites.layers)
        with torch.enable_grad():
            subject = self.twin or self.subject
            read = subject.read(text, watching, scores=True)
            return read, watching.rows(read.logits, subject.given(text)["attention_mask"])

    @property
    def rounding(self) -> float:
        """Relative precision to which values are known."""
        return DOUBLE if self.twin else float(torch.finfo(next(iter(self.subject.parameters())).dtype).eps)

    def _far(self, weights, values, allowed, matter, inside) -> np.ndarray:
        """Other weights (H,L,L) of a layer, in the rows that matter."""
        others = weights.copy()
        rows = matter.nonzero()[0]
        for head, (of_head, its_values, may) in enumerate(zip(weights, values, allowed, strict=True)):
            own = of_head[np.ix_(rows, inside)]
            mass = own.sum(1)
            some = mass > 0
            if its_values.size and some.any():
                given = own[some] / mass[some, None]
                new = far(its_values, given, allowed=may[rows[some]] | (given > 0), rounding=self.rounding)
                others[head][np.ix_(rows[some], inside)] = mass[some, None] * new
        return others

    def _shown(self, weights, values, allowed, matter, inside, epsilon, top):
        """Own attention (T,), what it could be, and the rows that it is the mean of: (layer, head, row, weight on tokens).

        It is the mean over rows that matter, heads and layers of the reduction, of weights on tokens, divided by its sum.
        """
        reduction, length = self.subject.reduction, int(inside.sum())
        held, rows, parts = np.zeros(length), [], []
        for layer in reduction.chosen(len(weights)):
            for head in range(len(weights[layer])) if reduction.head is None else [reduction.head]:
                for row in matter.nonzero()[0]:
                    rows.append((layer, head, row, weights[layer][head, row, inside].sum()))
        total = sum(mass for *_, mass in rows)
        if not total > 0:  # as the subject has it: all tokens alike
            held += 1 / max(length, 1)
            return held, of_parts([], held, top=top), []
        rows = [one for one in rows if one[3] > 0]
        for layer, head, row, mass in rows:
            places = allowed[layer][head, row].nonzero()[0]
            own = weights[layer][head, row, inside][places] / mass
            given = {"epsilon": epsilon / mass, "rounding": self.rounding}
            polytope = Polytope.of(values[layer][head][places], own / own.sum(), **given)
            parts.append(Part(polytope, places, float(mass / total)))
        shown = of_parts(parts, held, top=top)
        for part in parts:
            held[part.places] += part.share * part.polytope.own
        return held, shown, rows

    @staticmethod
    def _change(subject, text: Batch, others: list[np.ndarray]) -> float:
        given = {number: torch.from_numpy(one) for number, one in zip(subject.sites.layers, others, strict=True)}
        with torch.no_grad():
            own = subject.read(text, keep=lambda number: False).logits
            new = subject.read(text, _Given(given), keep=lambda number: False).logits
        return float((new.double() - own.double()).abs().max())


def _allowed(one: Map) -> np.ndarray:
    """(H,L,L) bool: where a row may look at, whether or not it does."""
    weights = one.weights[0]
    allowed = weights > 0
    if one.scores.numel() == weights.numel():
        allowed = allowed | (one.scores.reshape(weights.shape) > MASKED)
    return allowed.cpu().numpy()


class _Given(Edit):
    """Weights (H,L,L) in place of a map's, by its number."""

    def __init__(self, given: dict[int, torch.Tensor]):
        self.given = given

    def weights(self, number, weights):
        return self.given[number].to(weights).unsqueeze(0) if number in self.given else weights


class _Watching(Edit):
    """The outputs of layers, which gradients are taken of."""

    def __init__(self, layers):
        self.layers, self.outputs = layers, {}

    def output(self, number, output):
        if number not in self.layers:
            return output
        self.outputs[number] = output if output.requires_grad else output.detach().requires_grad_()
        return self.outputs[number]

    def rows(self, logits: torch.Tensor, attended: torch.Tensor) -> list[np.ndarray]:
        """Of each layer the rows (L,) bool whose output the logits depend on."""
        outputs = [self.outputs[number] for number in self.layers]
        return [rows[0].cpu().numpy() for rows in rows_that_matter(logits, outputs, attended)]
