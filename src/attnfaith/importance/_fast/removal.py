"""What our classifiers say of texts without each token, or with each replaced: states by engines, never all of them kept.

Shapes: B instances, L input positions, T tokens, E embedding, H hidden, C classes, V changes made together. `model` is a
classifier, or a `WordLevel`; given: its batch, by the names of its arguments; encoded: what it makes of that.
"""

from collections.abc import Iterator
from functools import partial

import torch

from attnfaith.importance._fast.deletion import blocks_replaced, blocks_without, in_one
from attnfaith.importance._fast.entering import enter, entered
from attnfaith.importance._fast.lstm_without import readings_without
from attnfaith.importance._fast.sentences import vectors_without
from attnfaith.importance._fast.shared import of_one_length
from attnfaith.importance._fast.views import Reading, repeated
from attnfaith.models.encoders import BiLSTM, take
from attnfaith.models.projections import project
from attnfaith.subjects import Batch, Pooled
from attnfaith.subjects.pooled import text_of


PLACES_AT_ONCE = 2**19  # tokens of changed texts dealt with together: a score and C values are kept of each
NUMBERS_AT_ONCE = 2**24  # H of each token where whole states are kept: 64 MiB in float32
TEXTS_AT_ONCE = 64


def logits_without(subject: Pooled, batch: Batch) -> torch.Tensor:
    """Logits (B,T,C) of the texts without each token, sentence or word, read anew; elsewhere 0, which means nothing."""
    given, encoded = text_of(batch), subject.encoded(batch)
    if subject.level == "word":
        return without_word(subject.stages, given, encoded)
    known = entered(subject, batch) if subject.level == "token" else None
    return without_token(subject.stages, given, encoded, known=known)


@torch.no_grad()
def logits_replaced(subject: Pooled, batch: Batch, filling: torch.Tensor) -> torch.Tensor:
    """The same with the embeddings of each token, or of all words of a sentence, replaced by filling (E,)."""
    given, encoded = text_of(batch), subject.encoded(batch)
    if subject.level == "token":
        return without_token(subject.stages, given, encoded, filling)
    everywhere = filling.expand(*given["input_ids"].shape, -1)
    if subject.level == "word":
        return without_word(subject.stages, given, encoded, everywhere)
    _, _, _, state = subject.classifier.model.texts(**given)
    vectors, _, _ = subject.classifier.model.sentence_reader(everywhere, subject.items(batch), state)
    return without_token(subject.stages, given, encoded, vectors)


@torch.no_grad()
def without_token(model, given, encoded, filling=None, known=None) -> torch.Tensor:
    """Logits (B,T,C) for the text without each attendable token; elsewhere 0, which means nothing.

    With filling, (B,T,E) or (E,) for all, the token's embedding (of a hierarchical model the sentence's vector) is replaced
    by it instead, and the token stays attendable. Texts of equal length run together and nothing is padded. The encoder
    says how it encodes a text without a token, or with another. known: what `entering` makes of the texts, for who
    has it already.
    """
    mask, query, deletes = encoded.mask, encoded.query, filling is None
    read = model.model.read(**given)  # a sentence is read by itself: without another one its vector is the same
    embedded, lengths = read.inputs, read.present.sum(1)
    logits = encoded.hidden.new_zeros(*mask.shape, model.config.num_labels)
    apart = torch.ones_like(lengths, dtype=torch.bool)
    if deletes and model.affine and type(model.model.encoder) is BiLSTM and Reading(model, query).view is not None:
        gates = enter(model.model.encoder, embedded, read.present, encoded.hidden) if known is None else known
        for texts in _mixed(mask[gates.texts], lengths[gates.texts]):
            rows = gates.texts[texts]
            logits[rows] = _without_together(model, gates.part(texts), encoded, lengths[rows])
            apart[rows] = False
    for length, rows, start, stop in of_one_length(mask & apart.unsqueeze(1), lengths):
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
                    made = partial(blocks_without, encoder, texts, begin, end, states, wanted=(start, stop))
                else:
                    made = partial(blocks_replaced, encoder, texts, instead, begin, end, states, wanted=(start, stop))
                shape = (end - begin, len(chosen), len(attendable))
                logits[chosen, begin:end] = decode(model, made, shape, attendable, queries).transpose(0, 1)
    return logits


def _mixed(mask, lengths) -> Iterator[slice]:
    """Texts of two tokens or more, as many as are taken together; mask (B,T) and lengths (B,) have the longest first."""
    begin, end = 0, int((mask.sum(1) > 1).sum())
    while begin < end:
        together = min(TEXTS_AT_ONCE, PLACES_AT_ONCE // int(lengths[begin]) ** 2, end - begin)
        if together:
            yield slice(begin, begin + together)
        begin += max(1, together)


def _without_together(model, gates, encoded, lengths) -> torch.Tensor:
    """Logits (B,T,C) of some texts without each token, by `lstm_without`."""
    rows, longest = gates.texts, int(lengths[0])
    mask = encoded.mask[rows]
    query = None if encoded.query is None else encoded.query[rows]
    start = int(mask[0].int().argmax())
    end = longest - start - int(mask[0].sum())
    reading = Reading(model, query)
    made = readings_without(model.model.encoder, gates, encoded.hidden, lengths, start, end, reading)
    # one fewer, markers where they were
    places = torch.arange(longest - 1, device=mask.device)
    attendable = (places >= start) & (places < lengths.unsqueeze(1) - 1 - end)
    attention = project(made[..., 0], attendable.expand(len(made), -1, -1), model.config).to(made.dtype)
    without = (attention.unsqueeze(-2) @ made[..., 1:]).squeeze(-2) + reading.bias
    logits = without.new_zeros(*mask.shape, model.config.num_labels)
    logits[:, start : start + len(made)] = without.transpose(0, 1)
    return logits.masked_fill(~mask.unsqueeze(-1), 0.0)


def _decode_parts(model, made, shape, mask, query) -> torch.Tensor:
    """Logits (V,B,C) of texts whose states, shape (V,B,T) in all, come in blocks made(view=...), attendable at mask (T,).

    Of each state only its score and its class values are needed, so they are taken part by part and no states are kept.
    """
    reading = Reading(model, query)
    scores = reading.weight.new_zeros(shape)
    values = reading.weight.new_zeros(*shape, model.config.num_labels)
    for rows, positions, seen in made(view=reading.view):
        scores[rows, :, positions], values[rows, :, positions] = reading.of(seen)
    attention = project(scores, mask, model.config).to(values.dtype)
    return (attention.unsqueeze(-2) @ values).squeeze(-2) + reading.bias


def _decode_states(model, made, shape, mask, query) -> torch.Tensor:
    """The same for a decoder that is not affine and needs whole context vectors."""
    states = in_one(made(), shape)
    flat, queries = states.flatten(0, 1), repeated(query, *shape[:2], states.device)
    attention = model.attend(flat, mask.expand(len(flat), -1), queries)
    return model.decode(flat, attention, queries).view(*states.shape[:2], -1)


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
