"""Documents as sentences of words: the level below the one that attention, decoder and every experiment work on.

Shapes: B documents, L input positions, S sentences of a document, W words of a sentence, E embedding, H hidden. The items
of a document are what its attention attends to: `items` (B,L) holds the number of the sentence that an input position is a
word of, and -1 elsewhere.
"""

import copy
from collections.abc import Iterator

import torch
from torch import nn

from .alignments import ALIGNMENTS
from .encoders import ENCODERS
from .projections import project


HIERARCHIES = ("none", "sentence")
SHORT = 8  # words; sentences up to here are encoded together


def sentence_items(words: torch.Tensor) -> torch.Tensor:
    """Items (B,L) from which positions are words (B,L): a run of words is a sentence, so that none is empty."""
    starts = words & ~nn.functional.pad(words[:, :-1], (1, 0))
    return (starts.cumsum(1) - 1).masked_fill(~words, -1)


def item_mask(items: torch.Tensor) -> torch.Tensor:
    """(B,S) bool, S at least 1: which sentences there are."""
    counts = items.amax(1, keepdim=True) + 1
    return torch.arange(max(1, int(counts.max())), device=items.device) < counts


def above_words(config):
    """The configuration of what reads sentence vectors, which are as large as states."""
    above = copy.copy(config)
    above.embedding_size = config.hidden_size
    return above


def of_similar_length(lengths: torch.Tensor) -> Iterator[torch.Tensor]:
    """Which sentences to encode together: numbers of those of 1..8, 9..16, 17..32 and so on words, at most half padding."""
    low, high, longest = 0, SHORT, int(lengths.max())
    while low < longest:
        chosen = ((lengths > low) & (lengths <= high)).nonzero().squeeze(1)
        if len(chosen):
            yield chosen
        low, high = high, 2 * high


class SentenceReader(nn.Module):
    """Words to sentence vectors (Yang et al. 2016): an encoder reads each sentence by itself, attention sums its states.

    Encoder, alignment and projection are of the same kind as those above the sentences, with weights of their own. With a
    second text its state is the query of the words, too.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.word_encoder = ENCODERS[config.encoder](config)
        self.word_alignment = ALIGNMENTS[config.alignment](config)

    def forward(self, embedded, items, query=None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Embeddings (B,L,E), items (B,L), query (B,H) to sentence vectors (B,S,H), their mask (B,S), word attention (B,L).

        A sentence's vector depends on its own words alone, and is 0 where there is no sentence. Word attention sums to 1
        over each sentence.
        """
        batch, length = items.shape
        inside, present = items >= 0, item_mask(items)
        starts = inside & (items != nn.functional.pad(items[:, :-1], (1, 0), value=-1))
        rows, places = starts.nonzero(as_tuple=True)  # of all sentences of the batch
        lengths = torch.bincount((starts.flatten().cumsum(0) - 1)[inside.flatten()], minlength=len(rows))
        tokens = embedded.flatten(0, 1)
        vectors = embedded.new_zeros(*present.shape, self.config.hidden_size)
        attention = torch.zeros_like(items, dtype=torch.promote_types(embedded.dtype, torch.float32))
        for chosen in of_similar_length(lengths) if len(rows) else ():
            within = torch.arange(int(lengths[chosen].max()), device=items.device)
            mask = within < lengths[chosen].unsqueeze(1)
            row, place = rows[chosen], (places[chosen].unsqueeze(1) + within).clamp(max=length - 1)
            flat = row.unsqueeze(1) * length + place
            words = tokens.index_select(0, flat.flatten()).view(*flat.shape, -1)
            states, _ = self.word_encoder(words, mask)
            weights = project(self.word_alignment(states, None if query is None else query[row]), mask, self.config)
            sums = (weights.to(states.dtype).unsqueeze(1) @ states).squeeze(1).to(vectors.dtype)  # autocast gives others
            vectors = vectors.index_put((row, items[row, places[chosen]]), sums)
            attention = attention.index_put((row.unsqueeze(1).expand_as(place)[mask], place[mask]), weights[mask])
        return vectors, present, attention
