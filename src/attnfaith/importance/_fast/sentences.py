"""Vectors of sentences after a word of theirs is deleted, or replaced by another: what a hierarchical model then reads."""

import torch

from attnfaith.importance._fast.deletion import blocks_replaced, in_one, states_without
from attnfaith.importance._fast.shared import STATES_AT_ONCE, pieces
from attnfaith.models.hierarchy import Group, sentence_groups
from attnfaith.models.projections import project


@torch.no_grad()
def vectors_without(reader, embedded: torch.Tensor, items: torch.Tensor, query=None, filling=None) -> torch.Tensor:
    """At each word (B,L,H) the vector of its sentence after that word is deleted and the rest read again.

    reader: a `SentenceReader`. embedded (B,L,E), items (B,L), query (B,H) or None as its forward pass takes them. 0 where
    there is no word, and at the only word of a sentence. With filling (B,L,E) the word is replaced by it instead, also an
    only one.
    """
    vectors = embedded.new_zeros(*items.shape, reader.config.hidden_size)
    for similar in sentence_groups(items):
        lengths = similar.mask.sum(1)
        fewest = 1 if filling is None else 0  # words that leave nothing to read
        for length in lengths[lengths > fewest].unique().tolist():  # what is shortened must not be padded
            group = Group(*(part[lengths == length] for part in similar))
            group = group._replace(places=group.places[:, :length], mask=group.mask[:, :length])
            words, queries = group.take(embedded), None if query is None else query[group.rows]
            of_group = words.new_zeros(*words.shape[:2], reader.config.hidden_size)
            for begin, end in pieces(0, length, len(words) * length, STATES_AT_ONCE):
                if filling is None:
                    states = states_without(reader.word_encoder, words, begin, end)
                else:
                    blocks = blocks_replaced(reader.word_encoder, words, group.take(filling), begin, end)
                    states = in_one(blocks, (end - begin, len(words), length))
                asked = None if queries is None else queries.repeat(end - begin, 1)
                scores = reader.scores(states.flatten(0, 1), asked).view(states.shape[:3])
                weights = project(scores, torch.ones_like(scores, dtype=torch.bool), reader.config).to(states.dtype)
                of_group[:, begin:end] = (weights.unsqueeze(2) @ states).squeeze(2).transpose(0, 1)
            vectors = group.put(of_group, vectors)
    return vectors
