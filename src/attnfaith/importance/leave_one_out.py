"""Leave-one-out importance: how far the prediction moves when one token, or one token's state, is taken away.

Shapes: B instances, T tokens, H hidden, C classes.
"""

import torch

from attnfaith.importance._inputs import STATES, attended
from attnfaith.importance.removal import ABSENCES, without_state, without_state_reprojected, without_token
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks, require, whole_logits
from attnfaith.subjects.removal import ABSENT


COLUMNS = {
    "importance_leave_one_out": Column(
        ("T",), range=(0.0, 1.0), doc="total variation distance of the prediction to that for the text without the token"
    ),
    "importance_leave_one_out_hidden": Column(
        ("T",),
        range=(0.0, 1.0),
        doc="the same when only the token's state is removed and the other weights are renormalised",
    ),
    "importance_leave_one_out_reproject_hidden": Column(
        ("T",), range=(0.0, 1.0), doc="the same when the state is removed and the other scores are projected again"
    ),
}

NEEDS = frozenset({"classes", "token deletion"})
COST = "tokens"
COLUMN_NEEDS = {name: STATES for name in COLUMNS if name.endswith("_hidden")}


def check(by: str = "delete") -> None:
    """Raises ValueError for a way of taking a token away that there is not."""
    if by not in ABSENCES:
        raise ValueError(f"by={by!r} is no way to leave a token out; choose one of {', '.join(ABSENCES)}")


def check_model(subject, dataset, *, by: str = "delete") -> None:
    """Raises SubjectError for a way that the subject cannot go."""
    require(subject, {ABSENT[ABSENCES[by]]}, f"leave_one_out with by='{by}'")


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0, by: str = "delete") -> dict[str, list]:
    """Total variation distances between the prediction and the one without each token (two classes: |change of p|).

    importance_leave_one_out: the token is deleted from the text (positions move up, markers stay), which is encoded and
    attended again; of a hierarchical model the sentence is deleted with its words. The state measures leave all other states
    as they are; they remove one from attention, by renormalising the remaining weights or by projecting the remaining
    scores. Both are the same for softmax and uniform attention, not for sparse ones, where re-projection can give tokens
    weight that had none. Where nothing remains (one token, or all weight on it and renormalising) the context is the zero
    vector and the decoder's bias decides.

    At the word level of a hierarchical model a word is deleted, and with it a sentence that it was the only word of. Words
    whose weight or score is removed leave the sentence encoder another vector to read (`WordLevel`); re-projecting, at both
    levels, is then not renormalising under any projection.

    by: another way to take the token away than "delete", for importance_leave_one_out alone: "retokenise", its characters
    are gone and the rest of the text is divided into tokens anew, which may be others; "mask_token", the tokenizer's mask
    token is in its place; "hide", it keeps its place and no layer's attention may look at it.

    Raises ValueError as `check` says, and SubjectError for a way that the subject cannot go.

    Source: Jain & Wallace 2019, algorithm 1; Meister et al. 2021, eq. 6.
    """
    check(by)
    check_model(subject, None, by=by)
    probs, mask = whole_logits(subject, batch).double().softmax(-1), subject.attendable(batch).cpu()
    states, distances = "states" in subject.capabilities, []
    if states:
        distances = list(_of_states(subject, batch, probs))
    if states and not subject.contextual and by == "delete":
        deleted = distances[1]  # no other state depends on the token: deleting it is removing its state
    else:
        deleted = _distance(without_token(subject, batch, ABSENCES[by]), probs)
    values = zip(COLUMNS, (deleted, *distances), strict=False)  # of states where there are any
    return {name: ragged(value.float().cpu(), mask) for name, value in values}


def _of_states(subject, batch, probs) -> tuple[torch.Tensor, torch.Tensor]:
    """Distances (B,T) after removing each state: the other weights renormalised, and the other scores projected again."""
    encoded, attention = attended(subject, batch)
    # A state without weight takes nothing with it, under any projection of free scores: exactly 0, so that rounding breaks
    # no ties.
    idle = attention == 0
    removed = without_state(subject, encoded.hidden, attention, encoded.query)
    renormalised = _distance(removed, probs).masked_fill(idle, 0.0)
    if subject.removal_renormalises:
        return renormalised, renormalised
    reprojected = _distance(without_state_reprojected(subject, encoded), probs)
    return renormalised, reprojected.masked_fill(idle, 0.0) if subject.ignores_weightless else reprojected


def _distance(logits: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """Total variation distance (B,T) of logits (B,T,C) to probabilities (B,C)."""
    return (logits.double().softmax(-1) - probs.unsqueeze(1)).abs().sum(-1) / 2
