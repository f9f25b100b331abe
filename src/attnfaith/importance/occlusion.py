"""Occlusion (Zeiler & Fergus 2014; Li et al. 2016): by how much what is explained falls when a token is taken away."""

import torch

from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import STATES, attended, item_sums
from attnfaith.importance.removal import (
    ABSENCES,
    with_token_replaced,
    without_state,
    without_state_reprojected,
    without_token,
)
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks, require, whole_logits
from attnfaith.subjects.removal import ABSENT


COLUMNS = {
    "importance_occlusion": Column(
        ("T",),
        signed=True,
        undefined="where either f is not finite",
        doc="f - f with the token taken away, f what is explained",
    ),
    "importance_occlusion_hidden": Column(
        ("T",),
        signed=True,
        undefined="where either f is not finite",
        doc="the same when the token's state is removed and the other weights are renormalised",
    ),
}

NEEDS = frozenset({"token deletion"})
COST = "tokens"
COLUMN_NEEDS = {"importance_occlusion_hidden": STATES}
WAYS = {
    **{"delete": "token deletion", "zero": "embeddings", "unknown": "embeddings", "mask": "states"},
    **{way: ABSENT[absent] for way, absent in ABSENCES.items()},
}
"""How a token may be taken away, and what a subject must be able to do for it."""


def check(target="predicted", output: str = "logit", by: str = "delete") -> None:
    """Raises ValueError for a target, an output or a way of taking a token away that there is not."""
    check_target(target, output)
    if by not in WAYS:
        raise ValueError(f"by={by!r} is no way to occlude a token; choose one of {', '.join(WAYS)}")


def check_model(subject, dataset, *, target="predicted", output: str = "logit", by: str = "delete") -> None:
    """Raises ValueError as `_explained.check_data` says, and for a way that the subject cannot go."""
    require(subject, {WAYS[by]}, f"occlusion with by='{by}'")
    check_data(subject, dataset, target=target, output=output)


@asks(NEEDS)
@torch.no_grad()
def measure(
    subject, batch, *, seed: int = 0, target="predicted", output: str = "logit", by: str = "delete"
) -> dict[str, list]:
    """f of the text minus f of the text with one token taken away, for each; in units of f, any number.

    f is what `_explained.explaining` makes of target and output; the class is that of the whole text. by: "delete", the
    token is gone and later ones move up; "zero", its embedding is 0; "unknown", it is the unknown word; "mask", the encoder
    reads it and attention may not look at it, the scores of the others are projected again; "retokenise", its characters are
    gone and the rest of the text is divided into tokens anew, which may be others; "mask_token", the tokenizer's mask token
    is in its place; "hide", it keeps its place and no layer's attention may look at it. Of a hierarchical model all
    words of a sentence are, and "zero" and "unknown" leave a sentence of as many words. The occlusion of states is the same
    for every way. Signed: evidence for what is explained ranks first; leave_one_out is the distance of the whole prediction
    and has no sign. Exactly 0 where what takes a token's place is what was there, and where a state without weight goes.

    Raises ValueError as `check` and `_explained.explaining` say.

    Source: Zeiler & Fergus 2014; Li et al. 2016 ("erasure"); the state's as in Jain & Wallace 2019, algorithm 1.
    """
    check(target, output, by)
    require(subject, {WAYS[by]}, f"occlusion with by='{by}'")
    logits, mask = whole_logits(subject, batch), subject.attendable(batch).cpu()
    f = explaining(logits, batch, target, output)
    whole = f(logits).unsqueeze(1)
    columns = {"importance_occlusion": _occlusion(subject, batch, f, whole, by)}
    if "states" in subject.capabilities:
        (hidden, _, query), attention = attended(subject, batch)
        removed = f(without_state(subject, hidden, attention, query))
        columns["importance_occlusion_hidden"] = (whole - removed).masked_fill(attention == 0, 0.0)
    return {name: ragged(values.float().cpu(), mask) for name, values in columns.items()}


def _occlusion(subject, batch, f, whole: torch.Tensor, by: str) -> torch.Tensor:
    """By how much f falls (B,T) from `whole` (B,1), exactly 0 where what takes a token's place is what was there."""
    if by == "mask" or (by == "delete" and "states" in subject.capabilities and not subject.contextual):
        encoded, attention = attended(subject, batch)
        falls = whole - f(without_state_reprojected(subject, encoded))
        return falls.masked_fill((attention == 0) & subject.ignores_weightless, 0.0)
    if by in ABSENCES:
        return whole - f(without_token(subject, batch, ABSENCES[by]))
    embedded, items = subject.embed(batch), subject.items(batch)
    filling = torch.zeros_like(embedded[0, 0]) if by == "zero" else subject.vocabulary()[subject.unknown_token_id]
    differs = (embedded != filling).any(-1)
    same = ~differs if items is None else item_sums(differs.double(), items) == 0
    return (whole - f(with_token_replaced(subject, batch, filling))).masked_fill(same, 0.0)
