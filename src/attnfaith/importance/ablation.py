"""Logits of a text that lacks one token, or one token's state, for every token.

Shapes: B instances, L input positions, T tokens, E embedding, H hidden, C classes, N changed texts per text, V values.
Logits are (B,T,C); where there is no token they are 0, which means nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch

from attnfaith.importance.lstm import Changes, Readout, readings_of_changes
from attnfaith.models.alignments import Additive, Dot
from attnfaith.models.decoders import state_of
from attnfaith.models.encoders import CNN, BiLSTM, take
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.models.projections import project
from attnfaith.subjects import Batch, Pooled, Subject
from attnfaith.subjects.pooled import text_of
from attnfaith.subjects.text_parts import TOKENS_AT_ONCE, item_places, read_parts


ABSENCES = {"delete": "deleted", "retokenise": "retokenised", "mask_token": "mask_token", "hide": "hidden"}
"""Ways of taking a token away, as measures name them, and what `subjects.text_parts.read_parts` calls them."""
PLACES_AT_ONCE = 2**19  # tokens of changed texts, or weights of attentions, dealt with together
NUMBERS_AT_ONCE = 2**24  # read of the tokens of changed texts together: 64 MiB in float32
STATES_AT_ONCE = 2**15  # made of texts that are read again together: 32 MiB for H = 256 in float32
TEXTS_AT_ONCE = 64


def without_token(subject: Subject, batch: Batch, absent: str = "deleted") -> torch.Tensor:
    """Logits of the text without each token, read anew. Kept in the batch, since several measures ask for them.

    absent: one of `subjects.text_parts.ABSENT`, which lists what each needs.
    """
    if ("without", absent) not in batch.results:
        if "layers" in subject.capabilities and absent == "deleted":
            logits = _logits_of_changes(subject, batch)
        else:
            parts = [~np.eye(count, dtype=bool) for count in subject.attendable(batch).sum(1).tolist()]
            logits = _at_tokens(subject, batch, read_parts(subject, batch, parts, absent))
        batch.results["without", absent] = logits
    return batch.results["without", absent]


@torch.no_grad()
def with_token_replaced(subject: Subject, batch: Batch, filling: torch.Tensor) -> torch.Tensor:
    """Logits of the text with the embeddings of each token replaced by filling (E,) ("embeddings")."""
    if "layers" in subject.capabilities:
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


def without_state(subject, hidden, attention, query=None) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and renormalising, all T in one pass.

    The weighted sum of the others is a sum from the left plus one from the right, not the total minus one term, which would
    cancel where a token holds nearly all weight.
    """
    weights = attention.double().unsqueeze(-1)
    remaining = _sum_of_others(weights)
    if "affine read-out" not in subject.capabilities:
        remaining_masks, divisor = _masks_of_others(attention), remaining.masked_fill(remaining == 0, 1.0)
        left = (torch.where(part, attention.double().unsqueeze(1), 0.0) / divisor[:, rows] for rows, part in remaining_masks)
        return torch.cat([subject.decode(hidden, weights.to(attention.dtype), query) for weights in left], 1)
    weight, bias = subject.decoder_weights(query)
    mean = _sum_of_others(weights * (hidden @ weight.t()).double()) / remaining
    mean = mean.masked_fill(remaining == 0, 0.0)
    return mean + (bias.unsqueeze(0) if bias.dim() == 1 else bias).unsqueeze(1)


def _sum_of_others(values: torch.Tensor) -> torch.Tensor:
    """(B,T,D): at each t the sum over all other t."""
    left, right = values.cumsum(1).roll(1, 1), values.flip(1).cumsum(1).flip(1).roll(-1, 1)
    left[:, 0], right[:, -1] = 0, 0
    return left + right


def _masks_of_others(values: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Which tokens stay (V,T) when each of some is removed, and which some; values (B,T). All of them, in parts."""
    length = values.shape[1]
    remaining_masks = ~torch.eye(length, dtype=torch.bool, device=values.device)
    step = max(1, PLACES_AT_ONCE // values.numel())
    for start in range(0, length, step):
        rows = slice(start, start + step)
        yield rows, remaining_masks[rows]


def without_state_reprojected(subject, encoded) -> torch.Tensor:
    """Logits (B,T,C) after removing each state in turn and projecting the remaining scores again."""
    hidden, mask, query = encoded
    left = (mask.unsqueeze(1) & part for _, part in _masks_of_others(mask))
    return torch.cat([subject.decode(hidden, subject.attend(hidden, part, query), query) for part in left], 1)


@torch.no_grad()
def _logits_of_changes(subject: Pooled, batch: Batch, filling: torch.Tensor | None = None) -> torch.Tensor:
    """Logits (B,T,C) of our classifiers without each item, or with the embeddings of each replaced by filling (E,)."""
    text, encoded = text_of(batch), subject.encoded(batch)
    if filling is not None:
        filling = filling.expand(*text["input_ids"].shape, -1)
    if subject.level == "word":
        return _without_words(subject.stages, text, encoded, filling)
    model = subject.classifier
    if subject.level == "sentence" and filling is not None:
        _, _, _, state = model.model.texts(**text)
        filling, _, _ = model.model.sentence_reader(filling, subject.items(batch), state)
    read = model.model.read(**text)  # a sentence is read by itself: without another one its vector is the same
    values, bias = model.decoder_weights(encoded.query) if model.affine else (None, None)
    sums = sums_of_changes(
        model.model.encoder,
        model.model.alignment,
        model.config,
        read.inputs,
        encoded.hidden,
        read.present,
        encoded.mask,
        state_of(encoded.query),
        values,
        filling,
    )
    if values is None:
        logits = model.classify(sums, None if encoded.query is None else encoded.query[:, None])
    else:
        logits = sums + bias.reshape(-1, 1, model.config.num_labels)
    return logits.masked_fill(~encoded.mask.unsqueeze(-1), 0.0)


def _without_words(model, text, encoded, filling=None) -> torch.Tensor:
    """Logits (B,T,C) of a `WordLevel` without each word, or with its embedding replaced by that of filling (B,L,E).

    Other sentences are read by themselves and stay; the sentence of the word is read again, or is gone where it was the only
    one.
    """
    classifier, sentences = model.classifier, model.sentences(**text)
    embedded, _, _, state = classifier.model.texts(**text)
    read = classifier.model.read(**text)
    vectors, present = read.inputs, read.present
    changed = changed_vectors(classifier.model.sentence_reader, embedded, sentences, state, filling)
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
        variants = vectors[row].scatter(1, sentence.unsqueeze(2).expand(-1, -1, vectors.shape[2]), changed[row, place, None])
        gone, order = lone[row].gather(1, sentence), torch.arange(present.shape[1], device=row.device)
        variants = take(variants, (order + (gone & (order >= sentence))).clamp(max=len(order) - 1))
        left = order < present[row].sum(1, keepdim=True) - gone.long()
        states, _ = classifier.model.encoder(variants, left)
        query = encoded.query[row]
        logits[row, words[part]] = classifier.decode(states, classifier.attend(states, left, query), query)
    return logits


@torch.no_grad()
def changed_vectors(reader, embedded: torch.Tensor, items: torch.Tensor, query=None, filling=None) -> torch.Tensor:
    """At each word (B,L,H) the vector of its sentence without that word, or with it replaced by that of filling (B,L,E).

    reader: a `SentenceReader`. embedded (B,L,E), items (B,L), query (B,H) or None as its forward pass takes them. 0 where
    there is no word, and without the only word of a sentence.
    """
    vectors = embedded.new_zeros(*items.shape, reader.config.hidden_size)
    for group in sentence_groups(items):
        words, instead = group.take(embedded), None if filling is None else group.take(filling)
        states, _ = reader.word_encoder(words, group.mask)
        group_query = None if query is None else query[group.rows]
        parts = reader.word_encoder, reader.word_alignment, reader.config, words, states, group.mask, group.mask
        vectors = group.put(sums_of_changes(*parts, group_query, filling=instead), vectors)
    return vectors


@torch.no_grad()
def sums_of_changes(
    encoder, alignment, config, embedded, states, present, mask, query=None, values=None, filling=None
) -> torch.Tensor:
    """Sums (B,L,V) under attention of the text without each token (`mask`), or with each replaced; 0 where nothing remains.

    embedded (B,L,E) and states (B,L,H) of the whole texts, present (B,L) what is read of them, a prefix, and mask (B,L) what
    attention is over: the same margins of markers in all texts. query (B,H) or None. values (V,H): what is summed of each
    state, None for the state itself. filling (B,L,E): what replaces tokens. An encoder that cannot read texts of many
    lengths together (`READERS`) reads those of one length, so that nothing is padded.
    """
    lengths, counts, shift = present.sum(1), mask.sum(1), int(filling is None)
    width = states.shape[-1] if values is None else len(values)
    places = min(PLACES_AT_ONCE, NUMBERS_AT_ONCE // width)
    sums = states.new_zeros(*mask.shape, width)
    order = lengths.argsort(descending=True, stable=True)
    order = order[counts[order] > shift]
    while len(order):
        length = int(lengths[order[0]])
        rows = order[: max(1, min(TEXTS_AT_ONCE, places // length**2))]
        if type(encoder) is not BiLSTM:
            rows = rows[lengths[rows] == length]
        order = order[len(rows) :]
        start = int(mask[rows[0]].int().argmax())
        stop = start + int(counts[rows[0]])
        wanted = start, length - stop
        readout = score_and_value(alignment, None if query is None else query[rows], values, states)
        positions = torch.arange(length - shift, device=mask.device)
        attendable = (positions >= start) & (positions < (lengths[rows] - shift - wanted[1]).unsqueeze(1))
        together = max(1, places // (length * len(rows)))
        for begin in range(start, stop, together):
            end = min(begin + together, stop)
            instead = None if filling is None else filling[rows, :length]
            edges = begin, length - end
            changes = Changes(embedded[rows, :length], states[rows, :length], lengths[rows], edges, wanted, instead)
            read = READERS.get(type(encoder), read_again)(encoder, changes, readout)
            attention = project(read[..., 0], attendable.expand(len(read), -1, -1), config).to(read.dtype)
            sums[rows, begin:end] = (attention.unsqueeze(-2) @ read[..., 1:]).squeeze(-2).transpose(0, 1)
    return sums.masked_fill(~mask.unsqueeze(-1), 0.0)


def score_and_value(alignment, query, values, states) -> Readout:
    """Read the score of states (B,T,H) and what `values` (V,H) make of them, themselves where it is None.

    An alignment whose score is a function of linear keys, as far as its type tells, is read by its keys; so engines need no
    states.
    """
    identity = torch.eye(states.shape[-1], dtype=states.dtype, device=states.device)
    values = identity if values is None else values
    keys, bias = identity, values.new_zeros(1, len(identity))
    additive, dot = type(alignment) is Additive, type(alignment) is Dot and alignment.query is not None
    if additive:
        # tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is faster: the keys come doubled, and v . tanh is halved
        bias = alignment.key.bias if query is None else alignment.key.bias + alignment.query(query)
        keys, bias, weight = 2 * alignment.key.weight, 2 * bias.reshape(-1, bias.shape[-1]), 2 * alignment.value.weight[0]
    elif dot:
        keys, bias = alignment.query.weight, values.new_zeros(1, 1)

    def finish(read):
        seen = read[..., : len(keys)]
        if additive:
            scores = seen.sigmoid().sub_(0.5) @ weight
        elif dot:
            scores = seen.squeeze(-1) * alignment.scale
        else:
            queries = None if query is None else query[: seen.shape[1]].repeat(len(seen), 1)
            scores = alignment(seen.flatten(0, 1), queries).unflatten(0, seen.shape[:2])
        return torch.cat([scores.unsqueeze(-1), read[..., len(keys) :]], -1)

    return Readout(torch.cat([keys, values]), torch.cat([bias, bias.new_zeros(len(bias), len(values))], 1), finish)


def read_again(encoder, changes: Changes, readout: Readout) -> torch.Tensor:
    """Like `lstm.readings_of_changes`, of any encoder, for texts of one length: each changed text is encoded again."""
    embedded, filling, (batch, length, _), read = changes.embedded, changes.filling, changes.embedded.shape, []
    for places in _changed_places(changes):
        if filling is None:
            variants = embedded[:, _remaining(length, places)].transpose(0, 1)
        else:
            variants = embedded.repeat(len(places), 1, 1, 1)
            variants[torch.arange(len(places), device=places.device), :, places] = filling[:, places].transpose(0, 1)
        flat = variants.flatten(0, 1)
        again, _ = encoder(flat, torch.ones(flat.shape[:2], dtype=torch.bool, device=flat.device))
        read.append(readout.of(again.unflatten(0, (len(places), batch))))
    return torch.cat(read)


def _read_windows(encoder, changes: Changes, readout: Readout) -> torch.Tensor:
    """The same of a `CNN`: without a token only states whose window holds its place are convolved again.

    With a reach of r tokens to each side these are the r places left of it and the r that follow, and they depend on
    2 r tokens to each side.
    """
    reach = max(convolution.padding[0] for convolution in encoder.convolutions)
    if changes.filling is not None or not reach:
        return read_again(encoder, changes, readout)
    embedded, (batch, length, _), read = changes.embedded, changes.embedded.shape, []
    middle = slice(reach, 3 * reach)
    for deleted in _changed_places(changes):
        without = changes.states[:, _remaining(length, deleted)].transpose(0, 1)
        places = deleted.unsqueeze(1) + torch.arange(-2 * reach, 2 * reach, device=deleted.device)  # of the shorter text
        inside = (places >= 0) & (places < length - 1)
        tokens = (places + (places >= deleted.unsqueeze(1))).clamp(0, length - 1)
        windows = embedded[:, tokens].transpose(0, 1).flatten(0, 1)
        again, _ = encoder(windows, inside.repeat_interleave(batch, 0))
        again = again[:, middle].unflatten(0, (len(deleted), batch))
        rows, columns = inside[:, middle].nonzero(as_tuple=True)
        without[rows, :, places[:, middle][rows, columns]] = again[rows, :, columns]
        read.append(readout.of(without))
    return torch.cat(read)


def _changed_places(changes: Changes) -> tuple[torch.Tensor, ...]:
    """The places that change, as many at a time as are read again together."""
    batch, length, _ = changes.embedded.shape
    places = torch.arange(changes.edges[0], length - changes.edges[1], device=changes.embedded.device)
    return places.split(max(1, STATES_AT_ONCE // (batch * length)))


def _remaining(length: int, deleted: torch.Tensor) -> torch.Tensor:
    """(N, length - 1): the positions that stay when each of `deleted` (N,) is."""
    positions = torch.arange(length - 1, device=deleted.device).expand(len(deleted), -1)
    return positions + (positions >= deleted.unsqueeze(1))


READERS = {BiLSTM: readings_of_changes, CNN: _read_windows}
"""Shorter ways through an encoder of exactly this type; a subclass may read texts otherwise."""
