"""The stages of a classifier, read by the rules of layer-wise relevance propagation."""

from typing import NamedTuple

import torch

from attnfaith.importance._fast.lrp_rules import DECODERS, ENCODERS
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.models.modeling_attention_classifier import Encoded
from attnfaith.models.projections import project
from attnfaith.models.queries import barring
from attnfaith.subjects.pooled import text_of


def check_rules(classifier) -> None:
    """Raises ValueError for a classifier with an encoder or decoder that no rule is known for."""
    lacking = [
        part
        for part, kinds in ((classifier.model.encoder, ENCODERS), (classifier.decoder, DECODERS))
        if type(part) not in kinds
    ]
    if lacking:
        raise ValueError(
            f"lrp has no rule for {type(lacking[0]).__name__}; measures that do not need 'layers' can measure this model"
        )


class Read(NamedTuple):
    """A batch read by the rules: logits (B,C), states (B,T,H) with their mask (B,T), and word states by group."""

    logits: torch.Tensor
    hidden: torch.Tensor
    mask: torch.Tensor
    words: list


def read_by_rules(model, batch, embedded, rules) -> Read:
    """The stages of a classifier, from embeddings (B,L,E), by rules."""
    given = text_of(batch)
    with torch.no_grad():
        _, present, mask, query = model.model.texts(
            None, given["attention_mask"], given["token_type_ids"], inputs_embeds=embedded.detach()
        )
    inputs, words, reader = embedded, [], model.model.sentence_reader
    if reader is not None:
        parts = model.items(**given)
        present = mask = model.attendable(**given)
        inputs = embedded.new_zeros(*mask.shape, model.config.hidden_size)
        for group in sentence_groups(parts):
            within = rules.of(group.rows)
            states = within.encoded(reader.word_encoder, group.take(embedded), group.mask)
            asked = None if query is None else query[group.rows]
            weights = project(reader.scores(states.detach(), asked), group.mask, model.config)
            inputs = inputs.index_put((group.rows, group.numbers), within.pooled(states, weights))
            words.append((group, states))
    hidden = rules.encoded(model.model.encoder, inputs, present)
    allowed = model.allow(Encoded(hidden.detach(), mask, query), batch.get("answer_mask")).query
    attention = model.attend(hidden.detach(), mask, query)
    logits = rules.decoded(model.decoder, rules.pooled(hidden, attention), query)
    return Read(logits + barring(allowed, logits), hidden, mask, words)
