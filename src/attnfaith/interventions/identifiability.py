"""Which other attentions a model could not tell from its own: exact limits of every weight, and one that is far.

A head's output is a weighted sum of values, V'a, for each row; nothing after it depends on more of its attention. So rows,
heads and layers are independent of one another: where each keeps its output, the values of later layers stay as well.

Shapes: B instances, T tokens, L input positions, H heads, Q query rows, C classes.
"""

from typing import Literal

import numpy as np
import torch

from attnfaith.alignment import PairMeasure
from attnfaith.interventions.polytope import Alternatives, Part, Polytope, equations, of_parts
from attnfaith.interventions.targets import AFFINE, shown_attention, under, visible
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import Batch, Edit, require
from attnfaith.subjects.attention import ALL
from attnfaith.subjects.translator import of_sources, of_targets


FEW = "below two tokens"
TOP = 3  # tokens whose least mass is asked about
NODES = 100  # of branch and bound, for a proof that the furthest is the furthest
UNIT, ROWS = (0.0, 1.0), ("L", "A", "R", "G", "T")
NUMBER = {"dtype": "float64", "undefined": FEW}


@register
class Identifiability(Measure):
    """Which other attentions a model could not tell from its own: exact limits of every weight, and the furthest of them.

    Attention a acts through a sum of values alone, V'a. Every x >= 0 of the same sum, and sum 1, gives the same prediction;
    so a token's weight is known only up to its interval. With more tokens than a value has numbers and one, a is never the
    only one.

    A pooled model has one sum, the context. A model with attention maps has one for every layer, head and row: the attention
    that is shown is the mean of some of them, and its limits are the means of theirs. Markers keep their weights. Limits
    come from rank or linear programmes, each with a proof to 1e-7; values are known to the model's rounding.

    of: what has to stay: "context", or "logits" where they are affine in attention. identifiability_top_... is about the
    tokens with the three largest weights.

    Source: Brunner et al. 2020, On Identifiability in Transformers, section 3, who show that attention is not unique; the
    intervals are this package's.
    """

    name, needs = "identifiability", frozenset({"weighted sums"})
    columns = {
        "identifiability_low": Column(("T",), range=UNIT, doc="least weight in an attention that changes nothing"),
        "identifiability_high": Column(("T",), range=UNIT, doc="greatest weight of a token in such an attention"),
        "identifiability_attention": Column(("T",), distribution=True, doc="the furthest such attention that was reached"),
        "identifiability_tvd": Column(range=UNIT, doc="its distance from the model's own", **NUMBER),
        "identifiability_bound": Column(range=UNIT, doc="no such attention is further", **NUMBER),
        "identifiability_certainty": Column(dtype="category", doc="exact: the furthest, to 1e-6; bounded; undefined"),
        "identifiability_support": Column(undefined=FEW, doc="fewest tokens with weight in an attention that was met"),
        "identifiability_top_attention": Column(range=UNIT, undefined=FEW, doc="sum of the largest weights"),
        "identifiability_top_low": Column(range=UNIT, undefined=FEW, doc="the least that their tokens can have together"),
        "identifiability_logit_change": Column(range=(0.0, None), unit="logits", doc="change of a logit under it", **NUMBER),
    }
    most_tokens = 4000  # each two of them have a number

    of: Literal["context", "logits"] = "context"

    def check(self, subject, dataset) -> None:
        """Raise SubjectError where logits have to stay and are not affine in attention."""
        if self.of == "logits":
            require(subject, {AFFINE}, "identifiability with of='logits'")

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        rows, alternatives_of = [], self._pooled if "states" in subject.capabilities else self._of_heads
        for row, weights in enumerate(shown_attention(subject, batch)):
            if len(weights) < 2:
                rows.append((*[weights.astype(np.float32)] * 3, np.nan, np.nan, "undefined", *[np.nan] * 4))
                continue
            shown, other, change = alternatives_of(subject, batch, row)
            largest = min(float(np.sort(shown / shown.sum())[::-1][:TOP].sum()), 1.0)
            limits = [limit.astype(np.float32) for limit in (other.low, other.high, other.attention)]
            numbers = other.tvd, other.bound, other.certainty, other.support, largest, other.top_mass, change
            rows.append((*limits, *numbers))
        return self.in_columns(subject, rows)

    def _pooled(self, subject, batch: Batch, row: int) -> tuple[np.ndarray, Alternatives, float]:
        """The attention shown (T,) of one text, its alternatives, and the measured change."""
        hidden, mask, query = subject.encoded(batch)
        values, weights = hidden[row, mask[row]].double(), subject.attention(batch)[row, mask[row]].double().cpu().numpy()
        if self.of == "logits":
            values = values @ subject.decoder_weights(query)[0].double().t()
        polytope = Polytope(weights / weights.sum(), equations(values.cpu().numpy(), float(torch.finfo(hidden.dtype).eps)))
        part = Part(polytope, np.arange(len(weights)), 1.0)
        other = of_parts([part], np.zeros(len(weights)), top=TOP, nodes=NODES)
        both = torch.from_numpy(np.stack([polytope.own, other.attention]))
        logits = under(subject, batch, [row])(both[None])[0].double()
        return weights, other, float((logits[1] - logits[0]).abs().amax())

    def _of_heads(self, subject, batch: Batch, number: int) -> tuple[np.ndarray, Alternatives, float]:
        """The same of a text that is read without padding."""
        text = batch.alone(number)
        reduction, inside = subject.reduction, subject.attendable(text)[0].cpu().numpy()
        read, matter = subject.read(text, keep=subject.shown_maps), subject.matter(text)[0].nonzero()
        weights = {layer.number: layer.weights[0].double().cpu().numpy() for layer in read.maps}
        rows, parts = [], []
        for layer in read.maps:
            values = layer.values[0].double().cpu().numpy()
            allowed = visible(layer.weights, layer.scores)[0].cpu().numpy()  # (H,L,L)
            for head in range(len(values)) if reduction.head is None else [reduction.head]:
                for row in matter[:, 0].tolist():
                    free = inside & allowed[head, row]
                    own = weights[layer.number][head, row, free]
                    if own.sum() > 0:
                        rows.append((layer.number, head, row, free, own.sum()))
                        rounding = float(torch.finfo(layer.values.dtype).eps)
                        parts.append(Polytope(own / own.sum(), equations(values[head][free], rounding)))
        total = sum(mass for *_, mass in rows)
        shares = [(np.flatnonzero(free[inside]), float(mass / total)) for *_, free, mass in rows]
        parts = [Part(part, *share) for part, share in zip(parts, shares, strict=True)]
        held = np.full(inside.sum(), 0.0 if parts else 1 / inside.sum())  # without any as the subject has it: all alike
        other = of_parts(parts, held, top=TOP)
        for (number, head, row, free, mass), part, reached in zip(rows, parts, other.of_parts, strict=True):
            held[part.places] += part.share * part.polytope.own
            weights[number][head, row, free] = mass * reached

        def replaced(number, own, rows=ALL):
            return torch.from_numpy(weights[number]).to(own).expand_as(own) if number in weights else own

        logits = subject.read(text, Edit(weights=replaced), keep=()).logits.double()
        return held, other, float((logits - read.logits.double()).abs().max())


@register
class CrossIdentifiability(PairMeasure):
    """Which other cross-attention a decoder could not tell from its own: exact limits of every weight.

    The measure `identifiability` for the weight of each source word in each row: the least and the greatest sum of its
    tokens' weights over all x >= 0 of the same sum of values, and sum 1. Tokens of words exchange weights; markers keep
    theirs.

    Source: Brunner et al. 2020, On Identifiability in Transformers, section 3, who show that attention is not unique; the
    intervals are this package's.
    """

    name, cost, needs = "cross_identifiability", "draws", frozenset({"head values"})
    columns = {
        "cross_identifiability_low": Column(ROWS, range=UNIT, doc="least weight of a source word, mean over target tokens"),
        "cross_identifiability_high": Column(ROWS, range=UNIT, doc="greatest weight of a source word in such rows"),
    }

    @torch.no_grad()
    def of_pair(self, subject, pair):
        words, rows, layers = of_sources(pair, 0).cpu().numpy(), of_targets(pair, 0).cpu().numpy(), []
        for layer in subject.head_values(pair):
            layers.append(np.stack([_word_limits(*head, words) for head in zip(*layer, strict=True)], 1))
        return tuple(np.einsum("rgn,leant->elargt", rows, np.stack(layers)).astype(np.float32))


def _word_limits(weights: torch.Tensor, values: torch.Tensor, words: np.ndarray) -> np.ndarray:
    """low, high (2,N,T) of the words, whose tokens words (S,T) marks, in a head's rows (N,S) over values (S,D)."""
    inside, rounding = words.any(1), float(torch.finfo(values.dtype).eps)
    weights, values, words = weights.double().cpu().numpy()[:, inside], values.double().cpu().numpy()[inside], words[inside]
    limits, equal = np.zeros((2, len(weights), words.shape[1])), equations(values, rounding)
    for row, own in enumerate(weights):
        mass = own.sum()
        if mass > 0:
            polytope = Polytope(own / mass, equal)
            least = np.array([polytope.minimise(word)[0] @ word for word in words.T])
            most = np.array([polytope.minimise(-word)[0] @ word for word in words.T])
            shares = polytope.own @ words
            limits[0, row] = mass * np.minimum(np.maximum(least, 0), shares)
            limits[1, row] = mass * np.maximum(np.minimum(most, 1), shares)
    return limits
