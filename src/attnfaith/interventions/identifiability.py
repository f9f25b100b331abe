"""Which other attentions a model could not tell from its own: exact limits of every weight, and one that is far.

A head's output is a weighted sum of values, V'a, for each row; nothing after it depends on more of its attention. So rows,
heads and layers are independent of one another: where each keeps its output, the values of later layers stay as well.

Shapes: B instances, T tokens, L input positions, H heads, Q query rows, C classes, D layers.
"""

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from attnfaith.interventions.polytope import DOUBLE, Alternatives, Part, Polytope, alternatives, equations, far, of_parts
from attnfaith.interventions.targets import AFFINE, MASKED, under
from attnfaith.measurement.options import Count, Natural
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import Batch, Edit, require
from attnfaith.subjects.attention import ALL, Map, nothing, rows_that_matter
from attnfaith.subjects.pairs import of_sources, of_targets
from attnfaith.subjects.translator import label_log_probs


NO_DOUBLE = (RuntimeError, TypeError, ValueError)  # what models raise that have kernels of one precision alone
FEW = "below two tokens"
MAPS = frozenset({"attention maps"})
UNIT, ROWS = (0.0, 1.0), ("L", "A", "R", "G", "T")
CHANGE, NATS = ({"dtype": "float64", "unit": unit, "range": (0.0, None)} for unit in ("logits", "nats"))


class Replaced(Edit):
    """Weights {number of a map, or of a decoder's layer: (H,Q,L)} in place of a model's own."""

    def __init__(self, replacement: dict[int, torch.Tensor]):
        self.replacement = replacement

    def weights(self, number, weights, rows=ALL):
        return self.replacement[number][:, rows].to(weights).expand_as(weights) if number in self.replacement else weights


class Precise:
    """A subject and a twin of it in float64, None of a model that does not run in it: then its rounding is what remains."""

    def __init__(self, subject):
        self.subject = subject
        try:
            self.twin = subject.in_double()
        except NO_DOUBLE:
            self.twin = None

    def read(self, read: Callable):
        """Return what `read` gives of the twin, or of the subject where the twin cannot be read."""
        try:
            return read(self.twin or self.subject)
        except NO_DOUBLE:
            if self.twin is None:
                raise
            self.twin = None
            return read(self.subject)

    def changes(self, change: Callable) -> tuple[float, float]:
        """Return what `change` gives of the subject, and of the twin; NaN without a twin."""
        return change(self.subject), change(self.twin) if self.twin else np.nan

    @property
    def rounding(self) -> float:
        """Relative precision to which values are known."""
        return DOUBLE if self.twin else float(torch.finfo(next(iter(self.subject.parameters())).dtype).eps)


def far_rows(weights: np.ndarray, values: np.ndarray, rounding: float, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return other weights (Q,T) for the rows of a head, each with its mass and its sum of values (T,d): `polytope.far`."""
    replacements, mass = weights.copy(), weights.sum(1)
    rows = mass > 0
    if values.size and rows.any():
        own = weights[rows] / mass[rows, None]
        allowed = None if allowed is None else allowed[rows] | (own > 0)
        replacements[rows] = mass[rows, None] * far(values, own, allowed=allowed, rounding=rounding)
    return replacements


# --------------------------------------------------------------------------------------- texts


@register
class Identifiability(Measure):
    """Which other attentions a model could not tell from its own: exact limits of every weight, and the furthest of them.

    Attention a acts through a sum of values alone, V'a. Every x >= 0 of the same sum, and sum 1, gives the same prediction;
    so a token's weight is known only up to its interval. Up to one token more than a value has numbers, a is the only one if
    values are independent; with more tokens it never is.

    A pooled model has one sum, the context, of H numbers; over the words of a hierarchical model each sentence has its own,
    and the sum of its weights stays too. A model with attention maps has one for every layer, head and row: the attention
    that is shown is the mean of some of them, and its limits are the means of theirs. Markers keep their weights. For the
    measured change all rows that the logits depend on are replaced at once: those that are shown by the furthest, the others
    by a far one in closed form.

    of: what has to stay: "context", or "logits", C numbers where they are affine in attention. top: how many of the tokens
    with the largest weights identifiability_top_... is about. nodes: how far a proof that the furthest is the furthest is
    looked for, see `polytope.alternatives`; not of more than one row.

    Limits come from rank or linear programmes, each with a proof to 1e-7. States of a pooled model are known to its
    rounding; maps are read in float64, if the model runs in it. Nothing is random.

    Source: Brunner et al. 2020, On Identifiability in Transformers, section 3, who show that attention is not unique; the
    intervals are this package's.
    """

    name, needs = "identifiability", frozenset({"weighted sums"})
    columns = {
        "identifiability_low": Column(("T",), range=UNIT, doc="least weight in an attention that changes nothing"),
        "identifiability_high": Column(("T",), range=UNIT, doc="greatest weight of a token in such an attention"),
        "identifiability_attention": Column(("T",), distribution=True, doc="the furthest such attention that was reached"),
        "identifiability_tvd": Column((), "float64", range=UNIT, undefined=FEW, doc="its distance from the model's own"),
        "identifiability_bound": Column((), "float64", range=UNIT, undefined=FEW, doc="no such attention is further"),
        "identifiability_certainty": Column(
            dtype="category", doc="exact: it is the furthest, to 1e-6; bounded: below a proved bound; undefined: too short"
        ),
        "identifiability_support": Column(undefined=FEW, doc="fewest tokens with weight in an attention that was met"),
        "identifiability_top_attention": Column(range=UNIT, undefined=FEW, doc="sum of the largest weights"),
        "identifiability_top_low": Column(range=UNIT, undefined=FEW, doc="the least that their tokens can have together"),
        "identifiability_logit_change": Column(
            undefined=FEW, doc="largest change of a logit under that attention, of maps all at once", **CHANGE
        ),
        "identifiability_logit_change_double": Column(
            undefined=f"{FEW}, and where the model does not run in float64", doc="the same in float64", needs=MAPS, **CHANGE
        ),
        "identifiability_layer_tvd": Column(
            ("D",), "float64", range=UNIT, undefined=FEW, doc="mean distance, over heads and rows that matter", needs=MAPS
        ),
        "identifiability_layer_rows": Column(("D",), "int32", undefined=FEW, doc="rows that matter times heads", needs=MAPS),
    }
    most_tokens = 4000  # each two of them have a number

    of: Literal["context", "logits"] = "context"
    top: Count = 3
    nodes: Natural = 100

    def check(self, subject, dataset) -> None:
        """Raise SubjectError where logits have to stay and are not affine in attention."""
        if self.of == "logits":
            require(subject, {AFFINE}, "identifiability with of='logits'")

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        self.check(subject, None)
        own = subject.attention(batch).double().cpu().numpy(), subject.attendable(batch).cpu().numpy()
        own = [row[inside] for row, inside in zip(*own, strict=True)]
        results = self._pooled(subject, batch, own) if "states" in subject.capabilities else self._maps(subject, batch, own)
        rows = []
        for weights, values in zip(own, results, strict=True):
            if values is None:
                changes = np.nan, np.nan, np.zeros(0), np.zeros(0, np.int32)
                limits = *[weights.astype(np.float32)] * 3, np.nan, np.nan, "undefined", *[np.nan] * 3
            else:
                shown, other, changes = values
                largest = min(float(np.sort(shown / shown.sum())[::-1][: self.top].sum()), 1.0)
                limits = [limit.astype(np.float32) for limit in (other.low, other.high, other.attention)]
                limits += [other.tvd, other.bound, other.certainty, other.support, largest, other.top_mass]
            rows.append((*limits, *changes)[: len(self.columns_for(subject))])
        return self.in_columns(subject, rows)

    def _pooled(self, subject, batch, own: list[np.ndarray]) -> list[tuple[np.ndarray, Alternatives, tuple] | None]:
        reader = under(subject, batch)
        states, rounding = reader.states.double(), float(torch.finfo(reader.dtype).eps)
        if self.of == "logits":
            weight, _ = subject.decoder_weights(reader.query)
            states = states @ weight.double().t()
        values, results, both = states.cpu().numpy(), [], np.zeros((len(own), 2, states.shape[1]))
        options = {"top": self.top, "nodes": self.nodes, "rounding": rounding}
        for row, weights in enumerate(own):
            length, groups = len(weights), None
            if length < 2:
                results.append(None)
                continue
            if subject.level == "word":
                groups = reader.query.sentences[row].cpu().numpy()[:length]
            results.append(alternatives(values[row][:length], weights, groups=groups, **options))
            both[row, :, :length] = weights / weights.sum(), results[-1].attention
        logits = reader(torch.from_numpy(both).to(reader.states)).double()
        changes = (logits[:, 1] - logits[:, 0]).abs().nan_to_num(0.0).amax(1).tolist()  # a barred class stays at -inf
        rows = zip(own, results, changes, strict=True)
        return [None if other is None else (weights, other, (change,)) for weights, other, change in rows]

    def _maps(self, subject, batch, own: list[np.ndarray]) -> list[tuple[np.ndarray, Alternatives, tuple] | None]:
        present, heads, results = batch["attention_mask"].bool(), Heads(subject), []
        for row, weights in enumerate(own):
            chosen = torch.tensor([row], device=present.device)
            text = subject.keep(batch.take(chosen), present[chosen])
            results.append(heads.alternatives(text, self.top) if len(weights) > 1 else None)
        return results


class Heads(Precise):
    """All heads of a stack of layers. Tokens of a text exchange weights; markers keep theirs, in every row."""

    def alternatives(self, text: Batch, top: int) -> tuple[np.ndarray, Alternatives, tuple]:
        """Return, of one text, a batch without padding: the attention (T,) that is shown; what it could be; and, of the
        replacement of all rows at once, the largest change of a logit in the model's own arithmetic and in float64, and of
        each layer (D,) the mean distance and the number of the rows that matter, of all heads.

        The rows behind the attention that is shown get the furthest of it, by linear programmes, and its limits; all others
        that the logits depend on get one far alternative, by a walk.
        """
        inside = self.subject.attendable(text)[0].cpu().numpy()
        maps, matter = self.read(lambda subject: _maps_and_rows(subject, text))
        weights = [layer.weights[0].detach().double().cpu().numpy() for layer in maps]
        values = [layer.values[0].detach().double().cpu().numpy()[:, inside] for layer in maps]
        allowed = [_allowed(layer)[:, :, inside] for layer in maps]
        replacements = [layer.copy() for layer in weights]
        for layer, rows in enumerate(matter):
            places = np.ix_(rows, inside)
            for head, own in enumerate(weights[layer]):
                may = allowed[layer][head, rows]
                replacements[layer][head][places] = far_rows(own[places], values[layer][head], self.rounding, may)
        shown, results, parts = self._shown(weights, values, allowed, matter[-1], inside, top)
        for (layer, head, row, mass), part in zip(parts, results.of_parts, strict=True):
            replacements[layer][head, row, inside.nonzero()[0][allowed[layer][head, row]]] = mass * part
        layers = zip(replacements, weights, matter, strict=True)
        distances = [np.abs(new - old).sum(2)[:, rows] / 2 for new, old, rows in layers]
        tvd = np.array([layer.mean() if layer.size else 0.0 for layer in distances])
        counts = np.array([layer.size for layer in distances], np.int32)
        change = functools.partial(_change_of_logits, text=text, replacements=replacements)
        return shown, results, (*self.changes(change), tvd, counts)

    def _shown(self, weights, values, allowed, matter, inside, top: int):
        """The attention shown (T,), its alternatives, and the rows that it is the mean of: (layer, head, row, weight)."""
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
        rows = [row for row in rows if row[3] > 0]
        for layer, head, row, mass in rows:
            places = allowed[layer][head, row].nonzero()[0]
            own = weights[layer][head, row, inside][places] / mass
            polytope = Polytope.of(values[layer][head][places], own / own.sum(), rounding=self.rounding)
            parts.append(Part(polytope, places, float(mass / total)))
        results = of_parts(parts, held, top=top)
        for part in parts:
            held[part.places] += part.share * part.polytope.own
        return held, results, rows


@torch.no_grad()
def _change_of_logits(subject, text: Batch, replacements: list[np.ndarray]) -> float:
    """The largest change of a logit under other weights (H,L,L) of each layer."""
    edit = Replaced(dict(zip(subject.sites.layers, map(torch.from_numpy, replacements), strict=True)))
    own, new = (subject.read(text, change, keep=nothing).logits.double() for change in (None, edit))
    return float((new - own).abs().max())


@torch.enable_grad()
def _maps_and_rows(subject, text: Batch) -> tuple[list[Map], list[np.ndarray]]:
    """The maps of a text, and of each layer the rows (L,) bool that logits depend on."""
    outputs = _Outputs(subject.sites.layers)
    read = subject.read(text, outputs, scores=True)
    attended = subject.model_inputs(text)["attention_mask"]
    rows = rows_that_matter(read.logits, [outputs.outputs[number] for number in outputs.layers], attended)
    return read.maps, [layer[0].cpu().numpy() for layer in rows]


class _Outputs(Edit):
    """The outputs of layers, which gradients are taken of."""

    def __init__(self, layers):
        self.layers, self.outputs = layers, {}

    def output(self, number, output):
        if number not in self.layers:
            return output
        self.outputs[number] = output if output.requires_grad else output.detach().requires_grad_()
        return self.outputs[number]


def _allowed(layer: Map) -> np.ndarray:
    """(H,L,L) bool: where a row may look at, whether or not it does."""
    weights = layer.weights[0]
    allowed = weights > 0
    if layer.scores.numel() == weights.numel():
        allowed = allowed | (layer.scores.reshape(weights.shape) > MASKED)
    return allowed.cpu().numpy()


# --------------------------------------------------------------------------------------- pairs


@register
class CrossIdentifiability(Measure):
    """Which other cross-attention a decoder could not tell from its own: exact limits of every weight, and a far
    alternative.

    As `identifiability`, of the weight of each source word in each row: the least and the greatest sum of its tokens'
    weights over all x >= 0 of the same sum of values, and sum 1. Tokens of words exchange weights, markers keep theirs. For
    the measured change all rows, heads and layers are replaced at once by a far alternative, reached by a walk. Values are
    read in float64 where the model runs in it. Nothing is random. Pairs are read alone.

    Source: Brunner et al. 2020, On Identifiability in Transformers, section 3, who show that attention is not unique; the
    intervals are this package's.
    """

    name, cost, reads, needs = "cross_identifiability", "draws", "pairs", frozenset({"head values"})
    columns = {
        "cross_identifiability_low": Column(ROWS, range=UNIT, doc="least weight of a source word, mean over target tokens"),
        "cross_identifiability_high": Column(ROWS, range=UNIT, doc="greatest weight of a source word in such rows"),
        "cross_identifiability_tvd": Column(
            ROWS[:-1], range=UNIT, doc="total variation distance of the far alternative, over tokens"
        ),
        "cross_identifiability_change": Column(
            doc="largest change of a target token's log probability, every row replaced by its far alternative", **NATS
        ),
        "cross_identifiability_change_double": Column(
            undefined="where the model does not run in float64", doc="the same in float64", **NATS
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        pairs, precise = [], Precise(subject)
        for pair in (batch.alone(row) for row in range(len(batch))):
            layers = precise.read(lambda of: of.head_values(pair))  # noqa: B023
            words, rows = of_sources(pair, 0).cpu().numpy(), of_targets(pair, 0).cpu().numpy()
            heads = []
            for layer in layers:
                for weights, values in zip(*(part.double().cpu().numpy() for part in layer), strict=True):
                    heads.append((weights, *_word_limits(weights, values, words, precise.rounding)))
            own, low, high, replacements = (
                np.stack(part).reshape(len(layers), -1, *part[0].shape) for part in zip(*heads, strict=True)
            )
            replacement = {layer: torch.from_numpy(weights).to(subject.device) for layer, weights in enumerate(replacements)}
            values = (
                np.einsum("rgn,lant->largt", rows, low).astype(np.float32),
                np.einsum("rgn,lant->largt", rows, high).astype(np.float32),
                np.einsum("rgn,lan->larg", rows, np.abs(replacements - own).sum(3) / 2).astype(np.float32),
                *precise.changes(functools.partial(_change_of_log_probs, pair=pair, replacement=replacement)),
            )
            pairs.append(values)
        return self.in_columns(subject, pairs)


def _word_limits(weights: np.ndarray, values: np.ndarray, words: np.ndarray, rounding: float) -> tuple[np.ndarray, ...]:
    """low, high (N,T) of the words, whose tokens words (S,T) marks, and a far alternative (N,S) of a head's rows (N,S)."""
    inside, replacements = words.any(1), weights.copy()
    values, words, on_words = values[inside], words[inside], weights[:, inside]
    replacements[:, inside] = far_rows(on_words, values, rounding)
    low, high = np.zeros((2, len(weights), words.shape[1]))
    equal = equations(values, rounding)
    for row, (mass, own) in enumerate(zip(on_words.sum(1), on_words, strict=True)):
        if mass > 0:
            polytope = Polytope(own / mass, equal)
            shares = polytope.own @ words
            least = np.array([polytope.minimise(word)[0] @ word for word in words.T])
            most = np.array([polytope.minimise(-word)[0] @ word for word in words.T])
            low[row] = mass * np.minimum(np.maximum(least, 0), shares)
            high[row] = mass * np.maximum(np.minimum(most, 1), shares)
    return low, high, replacements


def _change_of_log_probs(subject, pair, replacement: dict[int, torch.Tensor]) -> float:
    """The largest change of the log probability of a target token under other weights (A,N,S) of each layer."""
    own, owner = subject.log_probs(pair), torch.zeros(1, dtype=torch.long, device=subject.device)
    ((_, logits),) = subject.edited(pair, owner, Replaced(replacement))
    return float((label_log_probs(logits, pair["labels"]) - own).abs().max())
