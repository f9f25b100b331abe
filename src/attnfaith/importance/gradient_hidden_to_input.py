"""What an encoder's states are made of: how the length of each state depends on each token (Meister et al. 2021, eq. 5)."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from attnfaith.importance._fast.norm_gradients import length_gradients, norm_gradients
from attnfaith.importance._inputs import item_norms, items, text_inputs, token_counts
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.record import Column


COLUMNS = {
    "hidden_to_input_entropy": Column(
        ("T",),
        range=(0.0, 1.0),
        undefined="where the row is, and for a text of one token",
        doc="normalised entropy of the row of g of a state",
    ),
    "hidden_to_input_own": Column(
        ("T",), range=(0.0, 1.0), undefined="where the row is undefined", doc="share of a state's own token in its row of g"
    ),
    "hidden_to_input": Column(
        ("K", "T"),
        undefined="where a state depends on no token",
        doc="the rows of g, state by token, each summing to 1; K = T, 0 if not kept",
    ),
}

STATES_AT_ONCE = 2**10  # of texts that are taken together


def check(*, keep_rows: bool = False) -> None:
    """Raises ValueError unless keep_rows is true or false."""
    if not isinstance(keep_rows, bool):
        raise ValueError(f"keep_rows={keep_rows!r}; give true to keep T x T numbers of each text, or false")


def measure(model, batch, *, seed: int = 0, keep_rows: bool = False) -> dict[str, list]:
    """How spread out over the text's tokens what a state encodes is, for every state.

        g_p(i) = ||d ||h_p||_2 / d x_i||_2 / sum_k ||d ||h_p||_2 / d x_k||_2

    for state p and the embedding x_i of token i; p, i and k run over the attendable tokens. Of each row of g: its entropy
    over log T, and g_p(p). A row is undefined where all its gradients are 0: a state of length 0, or one that depends on no
    token. The second text of a pair does not reach the states and is not counted. Of a hierarchical model p, i and k are
    sentences, h_p a sentence's state and x_i the embeddings of all its words as one vector; at its word level p, i and k are
    all words of the document, and a word's state depends on those of its sentence alone.

    Gradients are taken in float32, where those below about 1e-19 become 0. Time grows with T^2; memory
    with T (and T x T numbers for one text at a time where an encoder mixes all tokens, or rows are kept). Raises ValueError
    as `check` says.

    Source: Meister et al. 2021, eq. 5 and Table 1.
    """
    check(keep_rows=keep_rows)
    lengths = token_counts(model, batch)
    entropy, own = ([np.full(length, np.nan, np.float32) for length in lengths] for _ in range(2))
    rows = [np.empty((length if keep_rows else 0, length), np.float32) for length in lengths]
    for texts, states, norms in _parts(model, batch):
        shares = norms.double()
        shares = shares / shares.sum(-1, keepdim=True)  # 0 / 0 is NaN
        spread = torch.special.entr(shares).sum(-1).div(math.log(shares.shape[-1])).clamp(0, 1).cpu().numpy()
        kept = shares.diagonal(states.start, 1, 2).cpu().numpy()
        for place, text in enumerate(texts):
            entropy[text][states], own[text][states] = spread[place], kept[place]
            if keep_rows:
                rows[text][states] = shares[place].cpu().numpy()
    return dict(zip(COLUMNS, (entropy, own, rows), strict=True))


def sensitivities(model, batch) -> list[np.ndarray]:
    """One array (T,T) per instance: ||d ||h_p||_2 / d x_i||_2 of state p (row) in token i (column), attendable ones."""
    found = [np.empty((length, length), np.float32) for length in token_counts(model, batch)]
    for texts, states, norms in _parts(model, batch):
        for text, values in zip(texts, norms.cpu().numpy(), strict=True):
            found[text][states] = values
    return found


def _parts(model, batch) -> Iterator[tuple[list[int], slice, torch.Tensor]]:
    """(rows of the batch, states p, norms (rows, p, T)), each state once. Texts of equal length run together, unpadded."""
    parts = {"token": _token_parts, "sentence": _sentence_parts, "word": _word_parts}
    yield from parts[model.level](model, batch)


def _sentence_parts(model, batch):
    """One backward pass for each sentence of a document: a gradient reaches words through the vectors of their sentences."""
    lengths, parts = model.attendable(**text_inputs(batch)).sum(1), items(model, batch)
    for length in lengths[lengths > 0].unique().tolist():
        rows = (lengths == length).nonzero().squeeze(1)
        given = {name: values[rows] for name, values in text_inputs(batch).items() if values is not None}
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            embedded = model.get_input_embeddings()(given.pop("input_ids")).detach().requires_grad_()
            read = model.model.read(inputs_embeds=embedded, items=parts[rows], **given)
            outputs, directions = length_gradients(model.model.encoder, read.inputs)
            norms = []
            for state in range(length):
                keep = state + 1 < length
                (slopes,) = torch.autograd.grad(outputs[:, state], embedded, directions[:, state], retain_graph=keep)
                norms.append(item_norms(slopes, parts[rows]))
        yield rows.tolist(), slice(0, length), torch.stack(norms, 1)


def _word_parts(model, batch):
    """One document after another: the norms of each of its sentences, and 0 between words of two."""
    sentences, words = model.sentences(**text_inputs(batch)), items(model, batch)
    reader = model.classifier.model.sentence_reader
    with torch.no_grad():
        embedded = model.classifier.model.embed(batch["input_ids"])
    for row, length in enumerate(token_counts(model, batch)):
        norms = torch.zeros(1, length, length, dtype=torch.promote_types(embedded.dtype, torch.float32), device=words.device)
        for group in sentence_groups(sentences[row : row + 1]):
            for places, mask in zip(group.places, group.mask, strict=True):
                positions = places[mask]
                first, size = int(words[row, positions[0]]), len(positions)
                for states, found in norm_gradients(reader.word_encoder, embedded[row, positions][None], 0, size):
                    norms[:, first + states.start : first + states.stop, first : first + size] = found
        if length:
            yield [row], slice(0, length), norms


def _token_parts(model, batch):
    first, mask, _ = model.model.text_masks(batch["attention_mask"], batch.get("token_type_ids"))
    with torch.no_grad():
        embedded = model.model.embed(batch["input_ids"])
    lengths = first.sum(1)
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero().squeeze(1)
        positions = mask[rows[0]].nonzero().squeeze(1)
        if not len(positions):
            continue
        start, stop = int(positions[0]), int(positions[-1]) + 1
        for chosen in rows.split(max(1, STATES_AT_ONCE // length)):
            for states, norms in norm_gradients(model.model.encoder, embedded[chosen, :length], start, stop):
                yield chosen.tolist(), states, norms
