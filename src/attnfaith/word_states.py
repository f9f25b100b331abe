"""What a forward pass of an attention classifier makes of words, as the penalties of training read it.

Shapes: B instances, L input positions, T tokens, S sentences, E embedding, H hidden.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch

from attnfaith.models.hierarchy import sentence_groups
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.models.projections import BLOCKED


class StateSet(NamedTuple):
    """States (N,T,H) that one attention sums, which of them there are, mask (N,T), and of which instances, rows (N,)."""

    states: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor


class WordStates(NamedTuple):
    """One forward pass.

    words (B,L) bool: the positions that are words: no markers, padding or second text. attended (B,L) bool: those that
    share attention: words, and in a pretrained model markers. text (B,L) bool: all but the second text. vectors (B,L,E):
    word vectors. states (B,L,H): of words, 0 elsewhere. attention (B,L), or (B,heads,L): the weight of each word in its
    text; in a hierarchical model that in its sentence times that of the sentence. scores: what a softmax took that of, in
    its shape, whatever is added to all of a text; None where the projection is another, or holds scores at a scale.
    levels: of each level of attention the states that it sums: the tokens; the words, and the sentences.
    """

    words: torch.Tensor
    attended: torch.Tensor
    text: torch.Tensor
    vectors: torch.Tensor
    states: torch.Tensor
    attention: torch.Tensor
    scores: torch.Tensor | None
    levels: list[list[StateSet]]


@contextmanager
def watched(model: AttentionClassifierForSequenceClassification) -> Iterator[dict[str, list]]:
    """What the parts of the model give from here on, call by call: the embeddings, encoders and alignments, by name."""
    base, reader = model.model, model.model.sentence_reader
    parts = {"vectors": base.embeddings, "encoded": base.encoder, "scores": base.alignment}
    if reader is not None:
        parts |= {"words_encoded": reader.word_encoder, "word_scores": reader.word_alignment}
    seen = {name: [] for name in parts}
    kept = [part.register_forward_hook(lambda *of, to=seen[name]: to.append(of[-1])) for name, part in parts.items()]
    try:
        yield seen
    finally:
        for hook in kept:
            hook.remove()


def word_states(model, inputs: Mapping, outputs, seen: Mapping[str, list]) -> WordStates:
    """What was `watched` while the model made outputs of inputs, by name as it reads them, put together."""
    text = {name: inputs.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}
    items, vectors = model.items(**text), seen["vectors"][0]
    (hidden, _), alone = seen["encoded"][0], inputs.get("token_type_ids")
    words, exact = items >= 0, model.config.projection == "softmax" and model.config.score_scale is None
    alone = torch.ones_like(words) if alone is None or model.config.query != "text" else alone == 0
    rows = torch.arange(len(items), device=items.device)
    if "words_encoded" not in seen:
        attention, scores = outputs.attention, seen["scores"][0] if exact else None
        levels = [[StateSet(hidden, words, rows)]]
        return WordStates(words, words, alone, vectors, hidden, attention, scores, levels)
    sentences, place = model.attendable(**text), items.clamp(min=0)
    attention = outputs.word_attention * outputs.attention.gather(1, place) * words
    scores = None
    if exact:
        above = seen["scores"][0].float().masked_fill(~sentences, BLOCKED).log_softmax(-1)
        within = above.new_zeros(items.shape)
        for group, given in zip(sentence_groups(items), seen["word_scores"], strict=True):
            within = group.put(given.float().masked_fill(~group.mask, -torch.inf).log_softmax(-1), within)
        scores = above.gather(1, place) + within
    levels = [
        [
            StateSet(states, group.mask, group.rows)
            for group, (states, _) in zip(sentence_groups(items), seen["words_encoded"], strict=True)
        ],
        [StateSet(hidden, sentences, rows)],
    ]
    return WordStates(words, words, alone, vectors, states_of_words(model, items, seen), attention, scores, levels)


def states_of_words(model, items: torch.Tensor, seen: Mapping[str, list]) -> torch.Tensor:
    """(B,L,H): the states of the words of texts with these items (B,L), of what was `watched`."""
    if "words_encoded" not in seen:
        return seen["encoded"][0][0]
    states = None
    for group, (made, _) in zip(sentence_groups(items), seen["words_encoded"], strict=True):
        states = made.new_zeros(*items.shape, made.shape[-1]) if states is None else states
        states = group.put(made, states)
    return model.model.embeddings.weight.new_zeros(*items.shape, model.config.hidden_size) if states is None else states
