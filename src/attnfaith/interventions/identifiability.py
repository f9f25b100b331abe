"""Which other attentions a model could not tell from its own: exact limits of every weight, and the furthest of them.

Shapes: B instances, T tokens, H hidden, C classes, D layers.
"""

from typing import Literal

import numpy as np
import torch

from attnfaith.interventions.alternatives import Alternatives, alternatives
from attnfaith.interventions.heads import Heads
from attnfaith.interventions.targets import AFFINE, OfStates, under
from attnfaith.measurement.options import Count, Natural, number
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import require


_FEW = "below two tokens"
OF = ("context", "logits")


@register
class Identifiability(Measure):
    """Which other attentions a model could not tell from its own: exact limits of every weight, and the furthest of them.

    The limits that the model's own sums leave to every weight: within them something else could be shown.

    Attention a acts through a sum of values alone, V'a. Every x >= 0 of the same sum, and sum 1, is followed by the same
    prediction, whatever comes after; so what a token's weight says about the model is no more than its interval. Up to one
    token more than a value has numbers, a is the only one if values are independent; with more tokens it never is.

    A pooled model has one sum, the context, of H numbers. Over the words of a hierarchical model each sentence has a sum of
    its own, and the sum of its weights stays as well. A model with attention maps has one for every layer, head and row: the
    attention that is shown is the mean of some of them, and its limits are the means of theirs. Tokens of the text exchange
    weights, markers keep theirs. All rows that the logits depend on, of all layers, are replaced at once for the measured
    change: those that are shown by the furthest, the others by a far one in closed form.

    of: what has to stay: "context", which nothing behind it can tell apart; or "logits", C numbers where they are affine in
    attention. epsilon: how far each of these numbers may be off, 0 for not at all; with attention maps each number of the
    outputs of heads behind the attention shown. top: how many of the tokens with the largest weights identifiability_top_...
    is about. nodes: how far a proof that the furthest is the furthest is looked for, see `alternatives.of_parts`; beyond
    500 tokens x equations it is of no use and not tried, nor of more than one row.

    Limits come from rank or linear programmes, each with a proof to 1e-7. States of a pooled model are known to its
    rounding, and what only rounding tells apart is the same; maps are read in float64, if the model runs in it. Nothing is
    random.

    Source: Brunner et al. 2020, On Identifiability in Transformers, section 3, who show that attention is not unique; the
    intervals are this package's.

    Shapes: B instances, T tokens, H hidden, C classes, D layers.
    """

    name, cost = "identifiability", "reading"
    needs = frozenset({"weighted sums"})
    columns = {
        "identifiability_low": Column(
            ("T",), range=(0.0, 1.0), doc="least weight of a token in an attention that changes nothing"
        ),
        "identifiability_high": Column(("T",), range=(0.0, 1.0), doc="greatest weight of a token in such an attention"),
        "identifiability_attention": Column(("T",), distribution=True, doc="the furthest such attention that was reached"),
        "identifiability_tvd": Column(
            dtype="float64", range=(0.0, 1.0), undefined=_FEW, doc="its total variation distance from the model's own"
        ),
        "identifiability_bound": Column(
            dtype="float64", range=(0.0, 1.0), undefined=_FEW, doc="no attention that changes nothing is further than that"
        ),
        "identifiability_certainty": Column(
            dtype="category",
            doc="exact: it is the furthest, to 1e-6; bounded: the furthest reached, below a proved bound; undefined: "
            "fewer than "
            "two tokens",
        ),
        "identifiability_support": Column(
            undefined=_FEW, doc="tokens with weight in the attention with the fewest that was met; no more than equations"
        ),
        "identifiability_top_attention": Column(
            range=(0.0, 1.0), undefined=_FEW, doc="weight that the tokens with the largest weights have together"
        ),
        "identifiability_top_low": Column(range=(0.0, 1.0), undefined=_FEW, doc="the least that they can have together"),
        "identifiability_logit_change": Column(
            dtype="float64",
            unit="logits",
            range=(0.0, None),
            undefined=_FEW,
            doc="largest change of a logit when the model is given that furthest attention, in its own arithmetic; of a "
            "model "
            "with attention maps other attention in every row, head and layer at once",
        ),
        "identifiability_logit_change_double": Column(
            dtype="float64",
            unit="logits",
            range=(0.0, None),
            undefined=f"{_FEW}, and where the model does not run in float64",
            doc="the same in float64",
            needs=frozenset({"attention maps"}),
        ),
        "identifiability_layer_tvd": Column(
            ("D",),
            "float64",
            range=(0.0, 1.0),
            undefined=_FEW,
            doc="total variation distance of the other attention from the model's own, mean over heads and rows that matter",
            needs=frozenset({"attention maps"}),
        ),
        "identifiability_layer_rows": Column(
            ("D",),
            "int32",
            undefined=_FEW,
            doc="rows that matter times heads of each layer",
            needs=frozenset({"attention maps"}),
        ),
    }
    most_tokens = 4000  # each two of them have a number

    of: Literal["context", "logits"] = "context"
    epsilon: number("how far each number may be off, 0 or more, such as 0.01", ge=0) = 0.0
    top: Count = 3
    nodes: Natural = 100

    def check(self, subject, dataset) -> None:
        """Raises SubjectError where logits have to stay and are not affine in attention."""
        if self.of == "logits":
            require(subject, {AFFINE}, "identifiability with of='logits'")

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        if "states" in subject.capabilities:
            return _of_states(subject, batch, self.of, self.epsilon, self.top, self.nodes)
        return _of_maps(subject, batch, self.epsilon, self.top)


def _of_maps(subject, batch, epsilon: float, top: int) -> dict[str, list]:
    columns = {name: [] for name in Identifiability.columns}
    inside, present = subject.attendable(batch), batch["attention_mask"].bool()
    attention, heads = subject.attention(batch), Heads(subject)
    for row in range(len(inside)):
        if int(inside[row].sum()) < 2:
            own = attention[row][inside[row]].double().cpu().numpy()
            _append(columns, own, None, top, (np.nan, np.nan, np.zeros(0), np.zeros(0, np.int32)))
            continue
        chosen = torch.tensor([row], device=inside.device)
        told = heads.told(subject.keep(batch.take(chosen), present[chosen]), epsilon=epsilon, top=top)
        _append(columns, told.own, told.shown, top, (told.change, told.change_double, told.tvd, told.rows.astype(np.int32)))
    return columns


def _of_states(subject, batch, of: str, epsilon: float, top: int, nodes: int) -> dict[str, list]:
    asked = under(subject, batch)
    mask = subject.attendable(batch)
    weights = [row[keep].double().cpu().numpy() for row, keep in zip(subject.attention(batch), mask, strict=True)]
    rounding = float(torch.finfo(asked.dtype).eps)
    given, told = {"epsilon": epsilon, "top": top, "nodes": nodes, "rounding": rounding}, []
    for own, values, groups in zip(weights, *_sums(subject, asked, of), strict=True):
        length = len(own)
        group = None if groups is None else groups[:length]
        told.append(alternatives(values[:length], own, groups=group, **given) if length > 1 else None)
    columns = {name: [] for name, column in Identifiability.columns.items() if not column.needs}
    for own, one, change in zip(weights, told, _changes(asked, weights, told), strict=True):
        _append(columns, own, one, top, (float(change),))
    return columns


def _sums(subject, asked: OfStates, of: str) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Of each instance the values (T,d) that are summed, float64, and which sum a token is in, None where there is one."""
    states = asked.states.double()
    if of == "logits":
        weight, _ = subject.decoder_weights(asked.query)
        states = states @ weight.double().t()
    values = list(states.cpu().numpy())
    groups = list(asked.query.sentences.cpu().numpy()) if subject.level == "word" else [None] * len(values)
    return values, groups


def _changes(asked: OfStates, weights: list[np.ndarray], told: list[Alternatives | None]) -> np.ndarray:
    """(B,): the largest change of a logit from a text's own attention to its alternative, where there is one."""
    both = np.zeros((len(weights), 2, asked.states.shape[1]))
    for row, (own, one) in enumerate(zip(weights, told, strict=True)):
        if one is not None:
            both[row, 0, : len(own)], both[row, 1, : len(own)] = own / own.sum(), one.attention
    logits = asked(torch.from_numpy(both).to(asked.states)).double()
    difference = (logits[:, 1] - logits[:, 0]).abs()
    return difference.nan_to_num(0.0).amax(1).cpu().numpy()  # a class that is barred stays at -inf


def _append(columns: dict[str, list], own: np.ndarray, one: Alternatives | None, top: int, measured: tuple) -> None:
    """A text's values to the columns: own attention (T,), what it could be, None below two tokens, and what was measured."""
    if one is None:
        values = (own, own, own, np.nan, np.nan, "undefined", *(np.nan,) * (3 + len(measured[:2])), *measured[2:])
    else:
        largest = min(float(np.sort(own / own.sum())[::-1][:top].sum()), 1.0)
        numbers = (one.tvd, one.bound, one.certainty, one.support, largest, one.top_mass)
        values = (one.low, one.high, one.attention, *numbers, *measured)
    for name, value in zip(columns, values, strict=True):
        columns[name].append(np.float32(value) if Identifiability.columns[name].axes == ("T",) else value)
