"""Measures by what changes when a token, its state or its values are taken away.

Shapes: B instances, T tokens, H hidden, C classes.
"""

from typing import Literal

import numpy as np
import torch

from attnfaith.importance.lstm import sums_without_each
from attnfaith.importance.targets import STATES, TARGET_DOC, TargetMeasure, score, signed_score
from attnfaith.measurement.registry import Measure, register
from attnfaith.models.encoders import BiLSTM
from attnfaith.subjects import Batch, Subject, per_token, require, whole_logits
from attnfaith.subjects.protocol import ABSENT, TEXT, read_parts


ABSENCES = {"delete": "deleted", "mask_token": "mask_token", "hide": "hidden", "zero": "zero"}
"""Ways of taking a token away, as measures name them, and as `read_parts` does."""
Way = Literal["delete", "mask_token", "hide"]
OcclusionWay = Literal["delete", "zero", "mask", "mask_token", "hide"]
DISTANCE = "total variation distance of the prediction to that"
REMOVED = "where the token's state alone is removed from attention: other states stay, the other"
SHARE = {"range": (0.0, 1.0)}
FALL = {"undefined": "where either f is not finite"}


@torch.no_grad()
def without_token(subject: Subject, batch: Batch, absent: str = "deleted") -> torch.Tensor:
    """Logits (B,T,C) of the text without each token, read anew; 0 where there is no token. Kept in the batch.

    absent: see `read_parts`.
    """
    if ("without", absent) not in batch.results:
        mask = subject.attendable(batch)
        if absent == "deleted" and "layers" in subject.capabilities and type(subject.model.model.encoder) is BiLSTM:
            encoded, model = subject.encoded(batch), subject.model
            values, bias = model.decoder_weights(encoded.query) if model.affine else (None, None)
            # a sentence is read by itself: without another one its vector is the same
            read = model.model.read(**{name: batch.get(name) for name in TEXT})
            logits = sums_without_each(model.model, values, encoded.query, read, encoded.hidden, mask)
            if values is None:
                logits = model.decoder(logits, None if encoded.query is None else encoded.query[:, None])
            else:
                logits = logits + bias.reshape(-1, 1, subject.num_labels)
            logits = logits.masked_fill(~mask.unsqueeze(-1), 0.0)
        else:
            parts = [~np.eye(count, dtype=bool) for count in mask.sum(1).tolist()]
            values = torch.from_numpy(np.concatenate(read_parts(subject, batch, parts, absent))).to(subject.device)
            logits = values.new_zeros(*mask.shape, subject.num_labels).index_put(mask.nonzero(as_tuple=True), values)
        batch.results["without", absent] = logits
    return batch.results["without", absent]


def without_state(subject, hidden, attention, query=None) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and renormalising.

    The sum of the others is one from the left plus one from the right, not the total minus one term, which would cancel
    where a token holds nearly all weight.
    """
    weights, affine = attention.double().unsqueeze(-1), "affine read-out" in subject.capabilities
    if affine:
        weight, bias = subject.decoder_weights(query)
        weights = torch.cat([weights, weights * (hidden @ weight.t()).double()], -1)
    left, right = weights.cumsum(1).roll(1, 1), weights.flip(1).cumsum(1).flip(1).roll(-1, 1)
    left[:, 0], right[:, -1] = 0, 0
    remaining, others = (left + right).split([1, weights.shape[-1] - 1], -1)
    if affine:
        mean = (others / remaining).masked_fill(remaining == 0, 0.0)
        return mean + (bias.unsqueeze(0) if bias.dim() == 1 else bias).unsqueeze(1)
    others = torch.where(_others(attention), attention.double().unsqueeze(1), 0.0)
    return subject.decode(hidden, (others / remaining.masked_fill(remaining == 0, 1.0)).to(attention.dtype), query)


def without_state_reprojected(subject, encoded) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and projecting the remaining scores again."""
    hidden, mask, query = encoded
    return subject.decode(hidden, subject.attend(hidden, mask.unsqueeze(1) & _others(mask), query), query)


def _others(values: torch.Tensor) -> torch.Tensor:
    """(T,T) bool: for each of the T places of values (B,T) all others."""
    return ~torch.eye(values.shape[1], dtype=torch.bool, device=values.device)


def _distance(logits: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """Total variation distance (B,T) of logits (B,T,C) to probabilities (B,C)."""
    return (logits.double().softmax(-1) - probs.unsqueeze(1)).abs().sum(-1) / 2


@register
class LeaveOneOut(Measure):
    """Leave-one-out importance: how far the prediction moves when one token, or one token's state, is taken away.

    Total variation distances between the prediction and the one without each token (two classes: |change of p|).

    Renormalising weights and projecting scores again are the same for softmax and uniform attention, not for sparse ones,
    where re-projection can give tokens weight that had none. Where nothing remains the context is the zero vector and the
    decoder's bias decides.

    by: another way to take the token away than "delete", for importance_leave_one_out alone, see `Occlusion`.

    Source: Jain & Wallace 2019, algorithm 1; Meister et al. 2021, eq. 6.
    """

    name, cost = "leave_one_out", "tokens"
    needs = frozenset({"classes", "token deletion"})
    columns = {
        "importance_leave_one_out": score(
            f"{DISTANCE} for the text without the token: deleted unless the option by says else (later tokens move "
            "up, markers stay, a sentence goes with its words), encoded and attended again",
            **SHARE,
        ),
        "importance_leave_one_out_hidden": score(f"{DISTANCE} {REMOVED} weights are renormalised", **SHARE, needs=STATES),
        "importance_leave_one_out_reproject_hidden": score(
            f"{DISTANCE} {REMOVED} scores are projected again", **SHARE, needs=STATES
        ),
    }

    by: Way = "delete"

    def check(self, subject, dataset) -> None:
        """Raise SubjectError where the subject cannot take tokens away in this way."""
        if self.by != "delete":
            require(subject, {ABSENT[ABSENCES[self.by]]}, f"leave_one_out with by='{self.by}'")

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        probs, distances, absent = whole_logits(subject, batch).double().softmax(-1), (), ABSENCES[self.by]
        if "states" in subject.capabilities:
            encoded, attention = subject.encoded(batch), subject.attention(batch)
            idle = attention == 0  # takes nothing with it, under any projection of free scores: exactly 0 breaks no ties
            removed = without_state(subject, encoded.hidden, attention, encoded.query)
            renormalised = reprojected = _distance(removed, probs).masked_fill(idle, 0.0)
            if not subject.removal_renormalises:
                reprojected = _distance(without_state_reprojected(subject, encoded), probs)
                reprojected = reprojected.masked_fill(idle & subject.ignores_weightless, 0.0)
            distances = renormalised, reprojected
        if distances and not subject.contextual and self.by == "delete":
            deleted = reprojected  # no other state depends on the token: deleting it is removing its state
        else:
            deleted = _distance(without_token(subject, batch, absent), probs)
        named = zip(self.columns, (deleted, *distances), strict=False)  # states where there are any
        return {name: per_token(subject, batch, values) for name, values in named}


@register
class Occlusion(TargetMeasure):
    """Occlusion (Zeiler & Fergus 2014; Li et al. 2016): by how much what is explained falls when a token is taken away.

    leave_one_out is the distance of the whole prediction and has no sign. Exactly 0 where a state without weight goes.

    by: "delete", the token is gone and later ones move up; "zero", its embedding is 0; "mask", the encoder reads it and
    attention may not look at it, the scores of the others are projected again; "mask_token", the tokenizer's mask token is
    in its place; "hide", it keeps its place and no layer's attention may look at it. Of a hierarchical model all words of a
    sentence are.

    Source: Zeiler & Fergus 2014; Li et al. 2016 ("erasure"); the state's as in Jain & Wallace 2019, algorithm 1.
    """

    name, cost = "occlusion", "tokens"
    needs = frozenset({"token deletion"})
    columns = {
        "importance_occlusion": signed_score(
            f"f - f of the text with the token taken away, encoded and attended again; {TARGET_DOC}, always of the class of "
            "the whole text; the token is deleted unless the option by says else; markers stay",
            **FALL,
        ),
        "importance_occlusion_hidden": signed_score(
            "f - f where the token's state alone is removed from attention, whatever by says: other states stay, the other "
            f"weights are renormalised; {TARGET_DOC}",
            **FALL,
            needs=STATES,
        ),
    }

    by: OcclusionWay = "delete"

    def check(self, subject, dataset) -> None:
        """Raise ValueError where the model lacks the class, SubjectError where it cannot take tokens away in this way."""
        need = "states" if self.by == "mask" else ABSENT[ABSENCES[self.by]]
        require(subject, {need}, f"occlusion with by='{self.by}'")
        super().check(subject, dataset)

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        self.check(subject, None)
        f = self.explained(subject, batch)
        whole = f(whole_logits(subject, batch)).unsqueeze(1)
        pooled = "states" in subject.capabilities
        attention = subject.attention(batch) if pooled else None
        if self.by == "mask" or (self.by == "delete" and pooled and not subject.contextual):
            falls = whole - f(without_state_reprojected(subject, subject.encoded(batch)))
            falls = falls.masked_fill((attention == 0) & subject.ignores_weightless, 0.0)
        else:
            falls = whole - f(without_token(subject, batch, ABSENCES[self.by]))
        columns = {"importance_occlusion": falls}
        if pooled:
            hidden, _, query = subject.encoded(batch)
            removed = f(without_state(subject, hidden, attention, query))
            columns["importance_occlusion_hidden"] = (whole - removed).masked_fill(attention == 0, 0.0)
        return {name: per_token(subject, batch, values) for name, values in columns.items()}
