"""How the length of each state of a batch depends on each of its tokens, sentences or words.

Shapes: B instances, L input positions, T tokens, E embedding, H hidden.
"""

import copy
from collections.abc import Iterator

import torch

from attnfaith.importance import lstm
from attnfaith.importance.input_gradients import differentiable, item_norms
from attnfaith.importance.lstm import direction, norms
from attnfaith.importance.targets import token_counts
from attnfaith.models.encoders import CNN, BiLSTM, Transformer
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.subjects import Batch, Pooled
from attnfaith.subjects.pooled import text_of


STATES_AT_ONCE = 2**10  # of texts that are taken together
NORMS_AT_ONCE = 2**15  # numbers of a convolution's states and tokens
GRADIENTS_AT_ONCE = 2**12  # gradients in a token that one backward pass makes: with more a CPU is slower, not faster

Parts = Iterator[tuple[slice, torch.Tensor]]
"""A text's norms: (states p counted from start, norms (B, p, stop - start)), each state once."""


def norms_of_states(subject: Pooled, batch: Batch) -> Iterator[tuple[list[int], slice, torch.Tensor]]:
    """(rows of the batch, states p, norms (rows, p, T)), each state once. Texts of equal length run together, unpadded."""
    parts = {"token": _token_parts, "sentence": _sentence_parts, "word": _word_parts}
    yield from parts[subject.level](subject, batch)


def _sentence_parts(subject, batch):
    """One backward pass for each sentence of a document: a gradient reaches words through the vectors of their sentences."""
    model, items = subject.classifier.model, subject.items(batch)
    lengths = subject.attendable(batch).sum(1)
    for length in lengths[lengths > 0].unique().tolist():
        rows = (lengths == length).nonzero().squeeze(1)
        texts = {name: values[rows] for name, values in text_of(batch).items() if values is not None}
        with differentiable():
            embedded = model.get_input_embeddings()(texts.pop("input_ids")).detach().requires_grad_()
            read = model.read(inputs_embeds=embedded, items=items[rows], **texts)
            outputs, directions = length_gradients(model.encoder, read.inputs)
            lengths_by_state = []
            for state in range(length):
                (slopes,) = torch.autograd.grad(outputs[:, state], embedded, directions[:, state], retain_graph=True)
                lengths_by_state.append(item_norms(slopes, items[rows]))
        yield rows.tolist(), slice(0, length), torch.stack(lengths_by_state, 1)


def _word_parts(subject, batch):
    """One document after another: the norms of each of its sentences, and 0 between words of two."""
    sentences, words = subject.stages.sentences(**text_of(batch)), subject.items(batch)
    reader = subject.classifier.model.sentence_reader
    with torch.no_grad():
        embedded = subject.embed(batch)
    for row, length in enumerate(token_counts(subject, batch)):
        dtype = torch.promote_types(embedded.dtype, torch.float32)
        norms_of_document = torch.zeros(1, length, length, dtype=dtype, device=words.device)
        for group in sentence_groups(sentences[row : row + 1]):
            for places, mask in zip(group.places, group.mask, strict=True):
                positions = places[mask]
                first, size = int(words[row, positions[0]]), len(positions)
                for states, word_norms in norm_gradients(reader.word_encoder, embedded[row, positions][None], 0, size):
                    places_of_states = slice(first + states.start, first + states.stop)
                    norms_of_document[:, places_of_states, first : first + size] = word_norms
        if length:
            yield [row], slice(0, length), norms_of_document


def _token_parts(subject, batch):
    model = subject.classifier.model
    first, mask, _ = model.text_masks(batch["attention_mask"], batch.get("token_type_ids"))
    with torch.no_grad():
        embedded = subject.embed(batch)
    lengths, counts = first.sum(1), mask.sum(1)
    for length in lengths[counts > 0].unique().tolist():
        rows = ((lengths == length) & (counts > 0)).nonzero().squeeze(1)
        start = int(mask[rows[0]].int().argmax())
        stop = start + int(counts[rows[0]])
        for chosen in rows.split(max(1, STATES_AT_ONCE // length)):
            for states, text_norms in norm_gradients(model.encoder, embedded[chosen, :length], start, stop):
                yield chosen.tolist(), states, text_norms


def norm_gradients(encoder, embedded, start, stop) -> Parts:
    """||d ||h_p||_2 / d x_i||_2 for all p and i in start..stop-1, in parts; 0 for a state that is the zero vector.

    embedded (B,T,E), all texts of the full length T; start < stop.
    """
    return ENGINES.get(type(encoder), one_pass_a_state)(encoder, embedded, start, stop)


def length_gradients(encoder, embedded) -> tuple[torch.Tensor, torch.Tensor]:
    """Something that states are made of, each of its own place alone, (B,T,H), and d ||h_p||_2 / d of it, (B,T,H).

    For most encoders the states themselves and their directions.
    """
    mask = _everywhere(embedded)
    if type(encoder) is not Transformer:
        states, _ = encoder(embedded, mask)
        return states, direction(states.detach())
    # From the last place where tokens mix, and from there to the states in float64: a layer normalisation with gain 1 and
    # bias 0, as models start, makes all states equally long but for the epsilon in its divisor. In float32 the gradient of
    # that rest would be rounding noise, by some percent.
    states = encoder.enter(embedded)
    for layer in encoder.layers[:-1]:
        states = layer(states, mask)
    mixed = encoder.layers[-1].mix(states, mask)
    apart = mixed.detach().double().requires_grad_()
    last = copy.deepcopy(encoder.layers[-1]).double().requires_grad_(False)
    (gradients,) = torch.autograd.grad(norms(last.each(apart)).sum(), apart)
    return mixed, gradients.to(mixed.dtype)


def one_pass_a_state(encoder, embedded, start, stop) -> Parts:
    """By one backward pass a state, several together."""
    # the pass back may come in eval mode, which cuDNN refuses
    with differentiable():
        inputs = embedded.detach().requires_grad_()
        outputs, directions = length_gradients(encoder, inputs)
    batch, length, _ = outputs.shape
    for states in torch.arange(start, stop, device=embedded.device).split(max(1, GRADIENTS_AT_ONCE // (batch * length))):
        seeds = outputs.new_zeros(len(states), *outputs.shape)
        seeds[states - states[0], :, states] = directions[:, states].transpose(0, 1)
        (slopes,) = torch.autograd.grad(outputs, inputs, seeds, is_grads_batched=True, retain_graph=True)
        yield _slice(states - start), norms(slopes[:, :, start:stop]).transpose(0, 1)


def _cnn(encoder, embedded, start, stop) -> Parts:
    """The tokens in a state's window; the others do not reach it."""
    batch, length, size = embedded.shape
    reach = max(convolution.padding[0] for convolution in encoder.convolutions)
    with torch.no_grad():
        states, _ = encoder(embedded, _everywhere(embedded))
        # A filter that is closed by the ReLU has a state of 0, and so no part in the direction.
        seeds = direction(states).split([convolution.out_channels for convolution in encoder.convolutions], -1)
        window = embedded.new_zeros(batch, length, 2 * reach + 1, size)
        for convolution, seed in zip(encoder.convolutions, seeds, strict=True):
            margin = reach - convolution.padding[0]
            slopes = torch.einsum("btf,few->btwe", seed, convolution.weight)
            window[:, :, margin : 2 * reach + 1 - margin] += slopes
        lengths = norms(window)
    for states in torch.arange(start, stop, device=embedded.device).split(max(1, NORMS_AT_ONCE // (batch * length))):
        place = torch.arange(start, stop, device=embedded.device) - states.unsqueeze(1) + reach  # in the state's window
        inside = (place >= 0) & (place <= 2 * reach)
        yield _slice(states - start), lengths[:, states.unsqueeze(1), place.clamp(0, 2 * reach)] * inside


def _everywhere(embedded: torch.Tensor) -> torch.Tensor:
    """The mask (B,T) of texts that are all of the full length."""
    return torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device)


def _slice(states: torch.Tensor) -> slice:
    """Consecutive states as a slice."""
    return slice(int(states[0]), int(states[-1]) + 1)


ENGINES = {BiLSTM: lstm.norm_gradients, CNN: _cnn}
"""Shorter ways through an encoder of exactly this type; a subclass may read texts otherwise."""
