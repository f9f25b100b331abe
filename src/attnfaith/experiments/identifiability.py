"""Which other attentions a model could not tell from its own: exact limits of every weight, and the furthest of them.

Shapes: B instances, T tokens, H hidden, C classes.
"""

import numpy as np
import torch

from attnfaith.experiments._alternatives import Alternatives, alternatives
from attnfaith.experiments._readout import AFFINE, OfStates, under
from attnfaith.record import Column
from attnfaith.subjects import asks, require


_FEW = "below two tokens"
COLUMNS = {
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
        doc="exact: it is the furthest, to 1e-6; bounded: the furthest reached, below a proved bound; undefined: fewer than "
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
        doc="largest change of a logit when the model is given that furthest attention, in its own arithmetic",
    ),
}
NEEDS = frozenset({"states"})
COST = "reading"
METRIC: dict[str, str] = {}  # the prediction stays, by construction
OF = ("context", "logits")


def check(*, of: str = "context", epsilon: float = 0.0, top: int = 3, nodes: int = 100) -> None:
    """Raises ValueError for an unknown `of`, an epsilon below 0 or not finite, top below 1 and nodes below 0."""
    if of not in OF:
        raise ValueError(f"of={of!r}: it is what has to stay, one of {', '.join(OF)}")
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < float("inf"):
        raise ValueError(f"epsilon={epsilon!r}: it is how far each number may be off, 0 or more, such as 0.01")
    for name, value, least in (("top", top, 1), ("nodes", nodes, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name}={value!r}: give a whole number of at least {least}")


def check_model(subject, dataset, *, of: str = "context", **_options) -> None:
    """Raises ValueError where logits have to stay and are not affine in attention."""
    _require_affine(subject, of)


def _require_affine(subject, of: str) -> None:
    if of == "logits":
        require(subject, {AFFINE}, "identifiability with of='logits'")


@asks(NEEDS)
@torch.no_grad()
def measure(
    subject, batch, *, seed: int = 0, of: str = "context", epsilon: float = 0.0, top: int = 3, nodes: int = 100
) -> dict[str, list]:
    """The limits that the model's own sums leave to every weight: within them something else could be shown.

    Attention a acts through the context c = sum_t a_t h_t alone, H numbers. Every x >= 0 with sum 1 and the same context is
    followed by the same prediction, whatever comes after; so what a token's weight says about the model is no more than its
    interval. Up to H + 1 tokens with independent states a is the only one; with more tokens it never is.

    of: what has to stay: "context", which nothing behind it can tell apart; or "logits", C numbers where they are affine in
    attention. epsilon: how far each of these numbers may be off, 0 for not at all. top: how many of the tokens with the
    largest weights identifiability_top_... is about. nodes: how far a proof that the furthest is the furthest is looked for,
    see `_polytope.alternatives`; it is of no use beyond 500 tokens x equations and not tried there. Over the words of a
    hierarchical model each sentence has a sum of its own, and the sum of its weights stays as well.

    Limits come from rank or linear programmes, each with a proof to 1e-7; states are known to the rounding of the model, and
    what only rounding tells apart is the same. Nothing is random. Raises ValueError as `check` says, SubjectError as
    `check_model`.

    Source: Brunner et al. 2020, On Identifiability in Transformers, section 3, who show that attention is not unique; the
    intervals are this package's.
    """
    check(of=of, epsilon=epsilon, top=top, nodes=nodes)
    _require_affine(subject, of)
    asked = under(subject, batch)
    mask = subject.attendable(batch)
    weights = [row[keep].double().cpu().numpy() for row, keep in zip(subject.attention(batch), mask, strict=True)]
    rounding = float(torch.finfo(asked.dtype).eps)
    given, told = {"epsilon": epsilon, "top": top, "nodes": nodes, "rounding": rounding}, []
    for own, values, groups in zip(weights, *_sums(subject, asked, of), strict=True):
        length = len(own)
        group = None if groups is None else groups[:length]
        told.append(alternatives(values[:length], own, groups=group, **given) if length else None)
    changes = _changes(asked, weights, told)
    return _columns(weights, told, changes, top)


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
    """(B,): the largest change of a logit from a text's own attention to its alternative."""
    both = np.zeros((len(weights), 2, asked.states.shape[1]))
    for row, (own, one) in enumerate(zip(weights, told, strict=True)):
        if one is not None:
            both[row, 0, : len(own)], both[row, 1, : len(own)] = own / own.sum(), one.attention
    logits = asked(torch.from_numpy(both).to(asked.states)).double()
    difference = (logits[:, 1] - logits[:, 0]).abs()
    return difference.nan_to_num(0.0).amax(1).cpu().numpy()  # a class that is barred stays at -inf


def _columns(weights: list[np.ndarray], told: list[Alternatives | None], changes: np.ndarray, top: int) -> dict[str, list]:
    columns = {name: [] for name in COLUMNS}
    for own, one, change in zip(weights, told, changes, strict=True):
        nothing = np.zeros(0, np.float32)
        limits = (nothing,) * 3 if one is None else (one.low, one.high, one.attention)
        if len(own) < 2:
            numbers = (np.nan, np.nan, "undefined", *(np.nan,) * 4)
        else:
            largest = np.sort(own / own.sum())[::-1][:top].sum()
            numbers = (one.tvd, one.bound, one.certainty, one.support, min(largest, 1.0), one.top_mass, float(change))
        for name, value in zip(COLUMNS, (*(np.float32(limit) for limit in limits), *numbers), strict=True):
            columns[name].append(value)
    return columns
