"""How the length of each state of a batch depends on each of its tokens, sentences or words: by `norm_gradients`.

Shapes: B instances, L input positions, T tokens, E embedding.
"""

from collections.abc import Iterator

import torch

from attnfaith.importance._fast.norm_gradients import length_gradients, norm_gradients
from attnfaith.importance._fast.shared import of_one_length
from attnfaith.importance._inputs import item_norms, token_counts
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.subjects import Batch, Pooled
from attnfaith.subjects.pooled import text_of


STATES_AT_ONCE = 2**10  # of texts that are taken together


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
        given = {name: values[rows] for name, values in text_of(batch).items() if values is not None}
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            embedded = model.get_input_embeddings()(given.pop("input_ids")).detach().requires_grad_()
            read = model.read(inputs_embeds=embedded, items=items[rows], **given)
            outputs, directions = length_gradients(model.encoder, read.inputs)
            norms = []
            for state in range(length):
                keep = state + 1 < length
                (slopes,) = torch.autograd.grad(outputs[:, state], embedded, directions[:, state], retain_graph=keep)
                norms.append(item_norms(slopes, items[rows]))
        yield rows.tolist(), slice(0, length), torch.stack(norms, 1)


def _word_parts(subject, batch):
    """One document after another: the norms of each of its sentences, and 0 between words of two."""
    sentences, words = subject.stages.sentences(**text_of(batch)), subject.items(batch)
    reader = subject.classifier.model.sentence_reader
    with torch.no_grad():
        embedded = subject.embed(batch)
    for row, length in enumerate(token_counts(subject, batch)):
        norms = torch.zeros(1, length, length, dtype=torch.promote_types(embedded.dtype, torch.float32), device=words.device)
        for group in sentence_groups(sentences[row : row + 1]):
            for places, mask in zip(group.places, group.mask, strict=True):
                positions = places[mask]
                first, size = int(words[row, positions[0]]), len(positions)
                for states, of_words in norm_gradients(reader.word_encoder, embedded[row, positions][None], 0, size):
                    norms[:, first + states.start : first + states.stop, first : first + size] = of_words
        if length:
            yield [row], slice(0, length), norms


def _token_parts(subject, batch):
    model = subject.classifier.model
    first, mask, _ = model.text_masks(batch["attention_mask"], batch.get("token_type_ids"))
    with torch.no_grad():
        embedded = subject.embed(batch)
    lengths = first.sum(1)
    for length, rows, start, stop in of_one_length(mask, lengths):
        for chosen in rows.split(max(1, STATES_AT_ONCE // length)):
            for states, norms in norm_gradients(model.encoder, embedded[chosen, :length], start, stop):
                yield chosen.tolist(), states, norms
