"""Logits of a text that lacks one token, or one token's state, for every token.

Shapes: B instances, T tokens, E embedding, H hidden, C classes. Logits are (B,T,C); where there is no token they are 0,
which means nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch

from attnfaith.importance.lstm import Changes
from attnfaith.models.decoders import state_of
from attnfaith.models.encoders import BiLSTM
from attnfaith.subjects import Batch, Pooled, Subject
from attnfaith.subjects.pooled import text_of
from attnfaith.subjects.text_parts import TOKENS_AT_ONCE, item_places, read_parts


ABSENCES = {"delete": "deleted", "retokenise": "retokenised", "mask_token": "mask_token", "hide": "hidden"}
"""Ways of taking a token away, as measures name them, and what `subjects.text_parts.read_parts` calls them."""
PLACES_AT_ONCE = 2**19  # weights of attentions dealt with together


@torch.no_grad()
def without_token(subject: Subject, batch: Batch, absent: str = "deleted") -> torch.Tensor:
    """Logits of the text without each token, read anew. Kept in the batch, since several measures ask for them.

    absent: one of `subjects.text_parts.ABSENT`, which lists what each needs.
    """
    if ("without", absent) not in batch.results:
        if absent == "deleted" and _has_engine(subject):
            logits = _logits_of_changes(subject, batch)
        else:
            parts = [~np.eye(count, dtype=bool) for count in subject.attendable(batch).sum(1).tolist()]
            logits = _at_tokens(subject, batch, read_parts(subject, batch, parts, absent))
        batch.results["without", absent] = logits
    return batch.results["without", absent]


@torch.no_grad()
def with_token_replaced(subject: Subject, batch: Batch, filling: torch.Tensor) -> torch.Tensor:
    """Logits of the text with the embeddings of each token replaced by filling (E,) ("embeddings")."""
    if _has_engine(subject):
        return _logits_of_changes(subject, batch, filling)
    places, logits = item_places(subject, batch), []
    for row, count in enumerate(subject.attendable(batch).sum(1).tolist()):
        text = batch.alone(row)
        item_numbers, embedded = places[row, : text["input_ids"].shape[1]], subject.embed(text)
        text_logits = [embedded.new_zeros(0, subject.num_labels)]
        for tokens in torch.arange(count, device=item_numbers.device).split(max(1, TOKENS_AT_ONCE // len(item_numbers))):
            replaced = torch.where((item_numbers == tokens.unsqueeze(1)).unsqueeze(2), filling.to(embedded), embedded)
            text_logits.append(subject.predict(text.take(torch.zeros_like(tokens)), replaced))
        logits.append(torch.cat(text_logits).double().cpu().numpy())
    return _at_tokens(subject, batch, logits)


def _at_tokens(subject: Subject, batch: Batch, logits: list[np.ndarray]) -> torch.Tensor:
    """Logits (T_b,C) of each instance at the places of its tokens."""
    mask = subject.attendable(batch)
    values = torch.from_numpy(np.concatenate(logits)).to(mask.device)
    return values.new_zeros(*mask.shape, subject.num_labels).index_put(mask.nonzero(as_tuple=True), values)


def _has_engine(subject: Subject) -> bool:
    """Whether one pass reads all changed texts: attention is over what a `BiLSTM`, no subclass of it, reads."""
    return "layers" in subject.capabilities and subject.level != "word" and type(subject.classifier.model.encoder) is BiLSTM


def _logits_of_changes(subject: Pooled, batch: Batch, filling: torch.Tensor | None = None) -> torch.Tensor:
    """Logits (B,T,C) of our classifiers without each item, or with the embeddings of each replaced by filling (E,)."""
    text, encoded, model = text_of(batch), subject.encoded(batch), subject.classifier
    if filling is not None:
        filling = filling.expand(*text["input_ids"].shape, -1)
        if subject.level == "sentence":
            _, _, _, state = model.model.texts(**text)
            filling, _, _ = model.model.sentence_reader(filling, subject.items(batch), state)
    read = model.model.read(**text)  # a sentence is read by itself: without another one its vector is the same
    values, bias = model.decoder_weights(encoded.query) if model.affine else (None, None)
    changes = Changes(
        model.model.encoder, model.model.alignment, model.config, state_of(encoded.query), values, filling=filling
    )
    sums = changes.sums(read.inputs, encoded.hidden, read.present, encoded.mask)
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
