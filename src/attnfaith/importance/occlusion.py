"""Occlusion (Zeiler & Fergus 2014; Li et al. 2016): by how much what is explained falls when a token is taken away."""

import torch

from attnfaith.data.tokenization import SPECIAL_TOKENS
from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import attended, item_sums, items, text_inputs
from attnfaith.importance.leave_one_out import without_state, without_state_reprojected, without_token, without_word
from attnfaith.record import Column, ragged


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

WAYS = ("delete", "zero", "unknown", "mask")
UNKNOWN = SPECIAL_TOKENS.index("<unk>")


def check(target="predicted", output: str = "logit", by: str = "delete") -> None:
    """Raises ValueError for a target, an output or a way of taking a token away that there is not."""
    check_target(target, output)
    if by not in WAYS:
        raise ValueError(f"by={by!r} is no way to occlude a token; choose one of {', '.join(WAYS)}")


def check_model(model, dataset, *, target="predicted", output: str = "logit", by: str = "delete") -> None:
    """Raises ValueError as `_explained.check_data` says."""
    check_data(model, dataset, target=target, output=output)


@torch.no_grad()
def measure(
    model, batch, *, seed: int = 0, target="predicted", output: str = "logit", by: str = "delete"
) -> dict[str, list]:
    """f of the text minus f of the text with one token taken away, for each; in units of f, any number.

    f is what `_explained.explaining` makes of target and output; the class is that of the whole text. by: "delete", the
    token is gone and later ones move up; "zero", its embedding is 0; "unknown", it is the unknown word; "mask", the encoder
    reads it and attention may not look at it, the scores of the others are projected again. Of a hierarchical model all
    words of a sentence are, and "zero" and "unknown" leave a sentence of as many words. The occlusion of states is the same
    for every way. Signed: evidence for what is explained ranks first; leave_one_out is the distance of the whole prediction
    and has no sign. Exactly 0 where what takes a token's place is what was there, and where a state without weight goes.

    Raises ValueError as `check` and `_explained.explaining` say.

    Source: Zeiler & Fergus 2014; Li et al. 2016 ("erasure"); the state's as in Jain & Wallace 2019, algorithm 1.
    """
    check(target, output, by)
    encoded, attention = attended(model, batch)
    hidden, mask, query = encoded
    logits = model.decode(hidden, attention, query)
    f = explaining(logits, batch, target, output)
    idle = attention == 0
    removed = f(without_state(model, hidden, attention, query))
    if by == "mask" or (by == "delete" and not model.contextual):
        occluded = f(without_state_reprojected(model, encoded))
        same = idle & model.ignores_weightless
    elif by == "delete":
        without = without_word if model.level == "word" else without_token
        occluded, same = f(without(model, text_inputs(batch), encoded)), torch.zeros_like(idle)
    else:
        found, same = _replaced(model, batch, encoded, by)
        occluded = f(found)
    whole, mask = f(logits).unsqueeze(1), mask.cpu()
    falls = ((whole - occluded).masked_fill(same, 0.0), (whole - removed).masked_fill(idle, 0.0))
    return {name: ragged(values.float().cpu(), mask) for name, values in zip(COLUMNS, falls, strict=True)}


def _replaced(model, batch, encoded, by: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (B,T,C) with each token, sentence or word replaced, and where (B,T) it is by what was there."""
    given, parts = text_inputs(batch), items(model, batch)
    embed = model.get_input_embeddings()
    embedded = embed(given["input_ids"])
    filling = torch.zeros_like(embedded[0, 0]) if by == "zero" else embed(given["input_ids"].new_tensor(UNKNOWN))
    changed = (embedded != filling).any(-1)
    if parts is None:
        return without_token(model, given, encoded, filling), ~changed
    same = item_sums(changed.double(), parts) == 0
    if model.level == "word":
        return without_word(model, given, encoded, filling.expand_as(embedded)), same
    _, _, _, state = model.model.texts(**given)
    vectors, _, _ = model.model.sentence_reader(filling.expand_as(embedded), parts, state)
    return without_token(model, given, encoded, vectors), same
