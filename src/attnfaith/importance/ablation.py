"""Logits of a text that lacks one token, or one token's state, for every token.

Shapes: B instances, T tokens, H hidden, C classes. Logits are (B,T,C); where there is no token they are 0,
which means nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch

from attnfaith.importance.lstm import Deletions
from attnfaith.models.decoders import state_of
from attnfaith.models.encoders import BiLSTM
from attnfaith.subjects import Batch, Pooled, Subject
from attnfaith.subjects.pooled import text_of
from attnfaith.subjects.text_parts import read_parts


ABSENCES = {"delete": "deleted", "mask_token": "mask_token", "hide": "hidden", "zero": "zero"}
"""Ways of taking a token away, as measures name them, and what `subjects.text_parts.read_parts` calls them."""
PLACES_AT_ONCE = 2**19  # weights of attentions dealt with together


@torch.no_grad()
def without_token(subject: Subject, batch: Batch, absent: str = "deleted") -> torch.Tensor:
    """Logits of the text without each token, read anew. Kept in the batch, since several measures ask for them.

    absent: one of `subjects.text_parts.ABSENT`, which lists what each needs.
    """
    if ("without", absent) not in batch.results:
        encoder = subject.classifier.model.encoder if "layers" in subject.capabilities else None
        if absent == "deleted" and type(encoder) is BiLSTM:
            logits = _in_one_pass(subject, batch)
        else:
            parts = [~np.eye(count, dtype=bool) for count in subject.attendable(batch).sum(1).tolist()]
            values = torch.from_numpy(np.concatenate(read_parts(subject, batch, parts, absent))).to(subject.device)
            mask = subject.attendable(batch)
            logits = values.new_zeros(*mask.shape, subject.num_labels).index_put(mask.nonzero(as_tuple=True), values)
        batch.results["without", absent] = logits
    return batch.results["without", absent]


def _in_one_pass(subject: Pooled, batch: Batch) -> torch.Tensor:
    """Logits (B,T,C) of a classifier whose attention is over what a `BiLSTM` reads, without each item."""
    encoded, model = subject.encoded(batch), subject.classifier
    read = model.model.read(**text_of(batch))  # a sentence is read by itself: without another one its vector is the same
    values, bias = model.decoder_weights(encoded.query) if model.affine else (None, None)
    deletions = Deletions(model.model.encoder, model.model.alignment, model.config, state_of(encoded.query), values)
    sums = deletions.sums(read.inputs, encoded.hidden, read.present, encoded.mask)
    if values is None:
        logits = model.classify(sums, None if encoded.query is None else encoded.query[:, None])
    else:
        logits = sums + bias.reshape(-1, 1, model.config.num_labels)
    return logits.masked_fill(~encoded.mask.unsqueeze(-1), 0.0)


def without_state(subject, hidden, attention, query=None) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and renormalising, all T in one pass.

    The weighted sum of the others is a sum from the left plus one from the right, not the total minus one term, which would
    cancel where a token holds nearly all weight.
    """
    weights = attention.double().unsqueeze(-1)
    remaining = _sum_of_others(weights)
    if "affine read-out" not in subject.capabilities:
        divisor = remaining.masked_fill(remaining == 0, 1.0)
        left = (
            torch.where(part, attention.double().unsqueeze(1), 0.0) / divisor[:, rows] for rows, part in _masks(attention)
        )
        return torch.cat([subject.decode(hidden, weights.to(attention.dtype), query) for weights in left], 1)
    weight, bias = subject.decoder_weights(query)
    mean = _sum_of_others(weights * (hidden @ weight.t()).double()) / remaining
    mean = mean.masked_fill(remaining == 0, 0.0)
    return mean + (bias.unsqueeze(0) if bias.dim() == 1 else bias).unsqueeze(1)


def without_state_reprojected(subject, encoded) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and projecting the remaining scores again."""
    hidden, mask, query = encoded
    left = (mask.unsqueeze(1) & part for _, part in _masks(mask))
    return torch.cat([subject.decode(hidden, subject.attend(hidden, part, query), query) for part in left], 1)


def _sum_of_others(values: torch.Tensor) -> torch.Tensor:
    """(B,T,D): at each t the sum over all other t."""
    left, right = values.cumsum(1).roll(1, 1), values.flip(1).cumsum(1).flip(1).roll(-1, 1)
    left[:, 0], right[:, -1] = 0, 0
    return left + right


def _masks(values: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Some tokens, and which tokens stay (V,T) when each of these is removed, until all are; values (B,T)."""
    stays = ~torch.eye(values.shape[1], dtype=torch.bool, device=values.device)
    step = max(1, PLACES_AT_ONCE // values.numel())
    for start in range(0, len(stays), step):
        yield slice(start, start + step), stays[start : start + step]
