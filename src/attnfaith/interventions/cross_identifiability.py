"""Which other cross-attention a decoder could not tell from its own: exact limits of every weight, and a far alternative."""

import numpy as np
import torch

from attnfaith.interventions.heads import NO_DOUBLE
from attnfaith.interventions.polytope import DOUBLE, Polytope, equations
from attnfaith.interventions.walks import far
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.attention import Edit
from attnfaith.subjects.pairs import of_sources, of_targets
from attnfaith.subjects.translator import picked


class Given(Edit):
    """Weights (n,L,A,N,S) in place of the model's own."""

    per_copy = {"given": "LANS"}

    def __init__(self, given: torch.Tensor):
        self.given = given

    def weights(self, layer, weights, rows):
        return self.given[:, layer, :, rows].to(weights)


@register
class CrossIdentifiability(Measure):
    """Which other cross-attention a decoder could not tell from its own: exact limits of every weight, and a far
    alternative.

    The limits that the output of each head leaves to the weight of each source word: within them another could be shown.

    A row a of a head acts through the sum of values V'a alone. Every x >= 0 of the same sum, and sum 1, is followed by the
    same prediction; so what a source word's weight says is no more than its interval: the least and the greatest sum of its
    tokens' weights over all such x. Tokens of words exchange weights, markers keep theirs. With no more tokens than a value
    has numbers, and one, a is the only such x if values are independent.

    Limits are linear programmes, each with a proof to 1e-7, or in closed form where one direction at most is left. For the
    measured change all rows, heads and layers are replaced at once by a far alternative, reached by a walk. Values are read
    in float64 where the model runs in it. Nothing is random. Pairs are read alone.

    Source: Brunner et al. 2020, On Identifiability in Transformers, section 3, who show that attention is not unique; the
    intervals are this package's.
    """

    name, cost = "cross_identifiability", "draws"
    reads = "pairs"
    needs = frozenset({"head values"})
    columns = {
        "cross_identifiability_low": Column(
            ("L", "A", "R", "G", "T"),
            range=(0.0, 1.0),
            doc="least weight of a source word in rows that leave the head's output as it is, mean over the target word's "
            "tokens",
        ),
        "cross_identifiability_high": Column(
            ("L", "A", "R", "G", "T"), range=(0.0, 1.0), doc="greatest weight of a source word in such rows"
        ),
        "cross_identifiability_tvd": Column(
            ("L", "A", "R", "G"),
            range=(0.0, 1.0),
            doc="total variation distance of the far alternative, over tokens, from the model's own, mean over the target "
            "word's",
        ),
        "cross_identifiability_change": Column(
            dtype="float64",
            unit="nats",
            range=(0.0, None),
            doc="largest change of the log probability of a target token when every row of all heads and layers has its far "
            "alternative, in the model's own arithmetic",
        ),
        "cross_identifiability_change_double": Column(
            dtype="float64",
            unit="nats",
            range=(0.0, None),
            undefined="where the model does not run in float64",
            doc="the same in float64",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        columns = {name: [] for name in self.columns}
        try:
            twin = subject.in_double()
            for row in range(len(batch)):
                twin.head_values(batch.alone(row))
        except NO_DOUBLE:
            twin = None
        rounding = DOUBLE if twin else float(torch.finfo(next(iter(subject.parameters())).dtype).eps)
        for row in range(len(batch)):
            pair = batch.alone(row)
            heads = [
                (weights.double().cpu().numpy(), values.double().cpu().numpy())
                for weights, values in (twin or subject).head_values(pair)
            ]
            words, rows = of_sources(pair, 0).cpu().numpy(), of_targets(pair, 0).cpu().numpy()
            inside = words.any(1)
            told = [
                [_of_head(own, its, inside, words[inside], rounding) for own, its in zip(weights, values, strict=True)]
                for weights, values in heads
            ]
            low, high, others = (np.array([[one[part] for one in layer] for layer in told]) for part in range(3))
            own = np.stack([weights for weights, _ in heads])
            for name, limits in (("low", low), ("high", high)):
                means = np.einsum("rgn,lant->largt", rows, limits).astype(np.float32)
                columns[f"cross_identifiability_{name}"].append(means)
            distances = np.abs(others - own).sum(3) / 2
            columns["cross_identifiability_tvd"].append(np.einsum("rgn,lan->larg", rows, distances).astype(np.float32))
            given = torch.from_numpy(others).unsqueeze(0).to(subject.device)
            columns["cross_identifiability_change"].append(_change(subject, pair, given))
            columns["cross_identifiability_change_double"].append(_change(twin, pair, given) if twin else np.nan)
        return columns


def _of_head(weights: np.ndarray, values: np.ndarray, inside: np.ndarray, words: np.ndarray, rounding: float):
    """low, high (N,T) of the words, whose tokens words (I,T) says, and a far alternative (N,S) of a head's rows (N,S)."""
    its = values[inside]
    equal = equations(its, rounding)
    low, high, others = np.zeros((len(weights), words.shape[1])), np.zeros((len(weights), words.shape[1])), weights.copy()
    mass = weights[:, inside].sum(1)
    some = np.flatnonzero(mass > 0)
    if not len(some):
        return low, high, others
    own = weights[np.ix_(some, inside)] / mass[some, None]
    others[np.ix_(some, inside)] = mass[some, None] * far(its, own, rounding=rounding)
    for row, given in zip(some, own, strict=True):
        low[row], high[row] = (mass[row] * limit for limit in _limits(Polytope(given, equal), words))
    return low, high, others


def _limits(polytope: Polytope, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest weight of each word (T,); words (I,T): 1 where a token is of a word."""
    own = polytope.own @ words
    least = np.array([polytope.minimise(word)[0] @ word for word in words.T])
    most = np.array([polytope.minimise(-word)[0] @ word for word in words.T])
    return np.minimum(np.maximum(least, 0), own), np.maximum(np.minimum(most, 1), own)


def _change(subject, pair, given: torch.Tensor) -> float:
    owner = torch.zeros(1, dtype=torch.long, device=given.device)
    own = subject.log_probs(pair)
    ((_, logits),) = subject.edited(pair, owner, Given(given))
    return float((picked(logits, pair["labels"]) - own).abs().max())
