"""What a subject says of a text that lacks one token, or one token's state, for every token.

Shapes: B instances, L input positions, T tokens, E embedding, H hidden, C classes. Logits are (B,T,C); where there is no
token they are 0, which means nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch

from attnfaith.importance._fast import removal
from attnfaith.subjects import Batch, Subject
from attnfaith.subjects.removal import TOKENS_AT_ONCE, item_places, read_parts


ABSENCES = {"delete": "deleted", "retokenise": "retokenised", "mask_token": "mask_token", "hide": "hidden"}
"""Ways of taking a token away, as measures name them, and what `parts.read_parts` calls them."""
PLACES_AT_ONCE = 2**19  # weights of attentions dealt with together


def without_token(subject: Subject, batch: Batch, absent: str = "deleted") -> torch.Tensor:
    """Logits of the text without each token, read anew; absent: one of `parts.ABSENT`, which says what that needs. Kept in
    the batch, since several measures ask for them.
    """
    return batch.once("without", absent, lambda: _without_token(subject, batch, absent))


@torch.no_grad()
def _without_token(subject: Subject, batch: Batch, absent: str) -> torch.Tensor:
    if "layers" in subject.capabilities and absent == "deleted":
        return removal.logits_without(subject, batch)
    counts = subject.attendable(batch).sum(1).tolist()
    return _at_tokens(subject, batch, read_parts(subject, batch, [~np.eye(count, dtype=bool) for count in counts], absent))


@torch.no_grad()
def with_token_replaced(subject: Subject, batch: Batch, filling: torch.Tensor) -> torch.Tensor:
    """Logits of the text with the embeddings of each token replaced by filling (E,) ("embeddings")."""
    if "layers" in subject.capabilities:
        return removal.logits_replaced(subject, batch, filling)
    places, logits = item_places(subject, batch), []
    for row, count in enumerate(subject.attendable(batch).sum(1).tolist()):
        text = batch.alone(row)
        where, embedded = places[row, : text["input_ids"].shape[1]], subject.embed(text)
        of_text = [embedded.new_zeros(0, subject.num_labels)]
        for tokens in torch.arange(count, device=where.device).split(max(1, TOKENS_AT_ONCE // len(where))):
            replaced = torch.where((where == tokens.unsqueeze(1)).unsqueeze(2), filling.to(embedded), embedded)
            of_text.append(subject.predict(text.take(torch.zeros_like(tokens)), replaced))
        logits.append(torch.cat(of_text).double().cpu().numpy())
    return _at_tokens(subject, batch, logits)


def _at_tokens(subject: Subject, batch: Batch, logits: list[np.ndarray]) -> torch.Tensor:
    """Logits (T_b,C) of each instance at the places of its tokens."""
    mask = subject.attendable(batch)
    values = torch.from_numpy(np.concatenate(logits)).to(mask.device)
    return values.new_zeros(*mask.shape, subject.num_labels).index_put(mask.nonzero(as_tuple=True), values)


def without_state(subject, hidden, attention, query=None) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and renormalising, all T in one pass.

    The weighted sum of the others is a sum from the left plus one from the right, not the total minus one term, which would
    cancel where a token holds nearly all weight.
    """
    weights = attention.double().unsqueeze(-1)
    remaining = _sum_of_others(weights)
    if "affine read-out" not in subject.capabilities:
        others, divisor = _others(attention), remaining.masked_fill(remaining == 0, 1.0)
        left = (torch.where(part, attention.double().unsqueeze(1), 0.0) / divisor[:, rows] for rows, part in others)
        return torch.cat([subject.decode(hidden, weights.to(attention.dtype), query) for weights in left], 1)
    weight, bias = subject.decoder_weights(query)
    mean = _sum_of_others(weights * (hidden @ weight.t()).double()) / remaining
    mean = mean.masked_fill(remaining == 0, 0.0)
    return mean + (bias.unsqueeze(0) if bias.dim() == 1 else bias).unsqueeze(1)


def _sum_of_others(values: torch.Tensor) -> torch.Tensor:
    """(B,T,D): at each t the sum over all other t."""
    left = values.cumsum(1).roll(1, 1)
    left[:, 0] = 0
    right = values.flip(1).cumsum(1).flip(1).roll(-1, 1)
    right[:, -1] = 0
    return left + right


def _others(values: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Which tokens stay (V,T) when each of some is removed, and which some; values (B,T). All of them, in parts."""
    length = values.shape[1]
    others = ~torch.eye(length, dtype=torch.bool, device=values.device)
    step = max(1, PLACES_AT_ONCE // values.numel())
    for start in range(0, length, step):
        rows = slice(start, start + step)
        yield rows, others[rows]


def without_state_reprojected(subject, encoded) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and projecting the remaining scores again."""
    hidden, mask, query = encoded
    left = (mask.unsqueeze(1) & part for _, part in _others(mask))
    return torch.cat([subject.decode(hidden, subject.attend(hidden, part, query), query) for part in left], 1)
