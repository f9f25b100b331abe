"""Leave-one-out importance: how far the prediction moves when one token, or one token's state, is taken away.

Shapes: B instances, T tokens, H hidden, C classes, V deletions made together.
"""

from collections.abc import Iterator

import torch

from attnfaith.importance._fast.deletion import blocks_replaced, blocks_without, in_one
from attnfaith.importance._fast.sentences import vectors_without
from attnfaith.models.encoders import take
from attnfaith.models.projections import project
from attnfaith.record import Column, ragged


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

PLACES_AT_ONCE = 2**19  # tokens of shortened texts dealt with together: a score and C values are kept of each
NUMBERS_AT_ONCE = 2**24  # H of each token where whole states are kept: 64 MiB in float32
TEXTS_AT_ONCE = 32


@torch.no_grad()
def measure(model, batch, *, seed: int = 0) -> dict[str, list]:
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

    Source: Jain & Wallace 2019, algorithm 1; Meister et al. 2021, eq. 6.
    """
    given = {name: batch.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}
    encoded = batch["encoded"] if "encoded" in batch else model.encode(**given, answer_mask=batch.get("answer_mask"))
    hidden, mask, query = encoded
    attention = batch["attention"] if "attention" in batch else model.attend(*encoded)
    probs = model.decode(hidden, attention, query).double().softmax(-1)
    # A state without weight takes nothing with it, under any projection of free scores: exactly 0, so that rounding breaks
    # no ties.
    idle = attention == 0
    renormalised = _distance(without_state(model, hidden, attention, query), probs).masked_fill(idle, 0.0)
    if model.removal_renormalises:
        reprojected = renormalised
    else:
        reprojected = _distance(without_state_reprojected(model, encoded), probs)
        if model.ignores_weightless:
            reprojected = reprojected.masked_fill(idle, 0.0)
    if model.contextual:
        without = without_word if model.level == "word" else without_token
        deleted = _distance(without(model, given, encoded), probs)
    else:  # no other state depends on the token: deleting it is removing its state
        deleted = reprojected
    mask = mask.cpu()
    values = zip(COLUMNS, (deleted, renormalised, reprojected), strict=True)
    return {name: ragged(value.float().cpu(), mask) for name, value in values}


def _distance(logits: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """Total variation distance (B,T) of logits (B,T,C) to probabilities (B,C)."""
    return (logits.double().softmax(-1) - probs.unsqueeze(1)).abs().sum(-1) / 2


def without_state(model, hidden, attention, query=None) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and renormalising, all T in one pass.

    The weighted sum of the others is a sum from the left plus one from the right, not the total minus one term, which would
    cancel where a token holds nearly all weight.
    """
    weights = attention.double().unsqueeze(-1)
    remaining = _sum_of_others(weights)
    if not model.affine:
        others, divisor = _others(attention), remaining.masked_fill(remaining == 0, 1.0)
        left = (torch.where(part, attention.double().unsqueeze(1), 0.0) / divisor[:, rows] for rows, part in others)
        return torch.cat([model.decode(hidden, weights.to(attention.dtype), query) for weights in left], 1)
    weight, bias = model.decoder_weights(query)
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


def without_state_reprojected(model, encoded) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and projecting the remaining scores again."""
    hidden, mask, query = encoded
    left = (mask.unsqueeze(1) & part for _, part in _others(mask))
    return torch.cat([model.decode(hidden, model.attend(hidden, part, query), query) for part in left], 1)


@torch.no_grad()
def without_token(model, given, encoded, filling=None) -> torch.Tensor:
    """Logits (B,T,C) for the text without each attendable token; elsewhere 0, which means nothing.

    With filling, (B,T,E) or (E,) for all, the token's embedding (of a hierarchical model the sentence's vector) is replaced
    by it instead, and the token stays attendable. Texts of equal length run together and nothing is padded. The encoder
    says how it encodes a text without a token, or with another.
    """
    mask, query, deletes = encoded.mask, encoded.query, filling is None
    read = model.model.read(**given)  # a sentence is read by itself: without another one its vector is the same
    embedded, lengths = read.inputs, read.present.sum(1)
    logits = encoded.hidden.new_zeros(*mask.shape, model.config.num_labels)
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero().squeeze(1)
        positions = mask[rows[0]].nonzero().squeeze(1)
        if not len(positions):
            continue
        start, stop = int(positions[0]), int(positions[-1]) + 1
        attendable = mask[rows[0], :length]
        if deletes:
            attendable = torch.cat([attendable[:start], attendable[start + 1 :]])  # one fewer, markers where they were
        if not attendable.any():  # nothing is left to attend to
            nothing = torch.zeros_like(mask[rows], dtype=torch.float32)
            bias = model.decode(encoded.hidden[rows], nothing, None if query is None else query[rows])
            logits[rows, start:stop] = bias.unsqueeze(1)
            continue
        decode, places = _decode_parts, PLACES_AT_ONCE
        if not model.affine:
            decode, places = _decode_states, NUMBERS_AT_ONCE // model.config.hidden_size
        deletions = min(stop - start, max(1, places // length))
        together = max(1, min(TEXTS_AT_ONCE, places // (deletions * length)))
        encoder = model.model.encoder
        for chosen in rows.split(together):
            texts, states = embedded[chosen, :length], encoded.hidden[chosen, :length]
            instead = filling[chosen, :length] if filling is not None and filling.dim() == 3 else filling
            queries = None if query is None else query[chosen]
            for begin in range(start, stop, deletions):
                end = min(begin + deletions, stop)
                if deletes:
                    blocks = blocks_without(encoder, texts, begin, end, states)
                else:
                    blocks = blocks_replaced(encoder, texts, instead, begin, end, states)
                shape = (end - begin, len(chosen), len(attendable))
                logits[chosen, begin:end] = decode(model, blocks, shape, attendable, queries).transpose(0, 1)
    return logits


def _decode_parts(model, blocks, shape, mask, query) -> torch.Tensor:
    """Logits (V,B,C) of texts whose states come in blocks, shape (V,B,T) in all, attendable at mask (T,).

    Of each state only its score and its class values are needed, so they are taken part by part and no states are kept.
    """
    weight, bias = model.decoder_weights(query)
    scores = weight.new_empty(shape)
    values = weight.new_empty(*shape, model.config.num_labels)
    for rows, positions, states in blocks:
        flat = states.flatten(0, 1)
        scores[rows, :, positions] = model.model.scores(flat, _repeated(query, states)).view(states.shape[:3])
        values[rows, :, positions] = states @ weight.t()
    attention = project(scores, mask, model.config).to(values.dtype)
    return (attention.unsqueeze(-2) @ values).squeeze(-2) + bias


def _decode_states(model, blocks, shape, mask, query) -> torch.Tensor:
    """The same for a decoder that is not affine and needs whole context vectors."""
    states = in_one(blocks, shape)
    flat, queries = states.flatten(0, 1), _repeated(query, states)
    attention = model.attend(flat, mask.expand(len(flat), -1), queries)
    return model.decode(flat, attention, queries).view(*states.shape[:2], -1)


def _repeated(query, states):
    """The queries of B texts for states (V,B,T,H), flattened to V B rows."""
    deletions, batch = states.shape[:2]
    return None if query is None else query[torch.arange(batch, device=states.device).repeat(deletions)]


@torch.no_grad()
def without_word(model, given, encoded, filling=None) -> torch.Tensor:
    """Logits (B,T,C) for the document without each word, read anew; elsewhere 0, which means nothing. model: a `WordLevel`.

    Other sentences are read by themselves and stay; the sentence of the word is read without it, or is gone. With filling
    (B,L,E) it is read with the word's embedding replaced instead.
    """
    classifier, sentences = model.classifier, model.sentences(**given)
    embedded, _, _, state = classifier.model.texts(**given)
    read = classifier.model.read(**given)
    vectors, present = read.inputs, read.present
    shortened = vectors_without(classifier.model.sentence_reader, embedded, sentences, state, filling)
    counts = torch.zeros_like(present, dtype=torch.int64).scatter_add_(1, sentences.clamp(min=0), (sentences >= 0).long())
    lone = (counts == 1) & (filling is None)
    logits = encoded.hidden.new_zeros(*encoded.mask.shape, model.num_labels)
    # of all words of the batch: document, place among its words, place among its input positions
    rows, words = encoded.mask.nonzero(as_tuple=True)
    positions = (sentences >= 0).nonzero(as_tuple=True)[1]
    places = NUMBERS_AT_ONCE // vectors[0].numel()
    for part in torch.arange(len(rows), device=rows.device).split(max(1, places)):
        row, place = rows[part], positions[part]
        sentence = sentences[row, place].unsqueeze(1)
        variants = vectors[row].scatter(
            1, sentence.unsqueeze(2).expand(-1, -1, vectors.shape[2]), shortened[row, place, None]
        )
        gone, order = lone[row].gather(1, sentence), torch.arange(present.shape[1], device=row.device)
        variants = take(variants, (order + (gone & (order >= sentence))).clamp(max=len(order) - 1))
        left = order < present[row].sum(1, keepdim=True) - gone.long()
        states, _ = classifier.model.encoder(variants, left)
        query = encoded.query[row]
        logits[row, words[part]] = classifier.decode(states, classifier.attend(states, left, query), query)
    return logits
