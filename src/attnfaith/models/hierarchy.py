"""Documents as sentences of words: the level below the attention and decoder of a hierarchical model.

Shapes: B documents, L input positions, S sentences of a document, W words of a sentence, E embedding, H hidden. `items`
(B,L) holds the number of each word's sentence, which is what attention attends to, and -1 at other input positions.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from .alignments import ALIGNMENTS
from .encoders import ENCODERS
from .projections import project


HIERARCHIES = ("none", "sentence")
SHORT = 8  # words; sentences up to here are encoded together


def sentence_items(words: torch.Tensor) -> torch.Tensor:
    """Return items (B,L) from the positions of words (B,L) bool: a run of words is a sentence, so none is empty."""
    starts = words & ~nn.functional.pad(words[:, :-1], (1, 0))
    return (starts.cumsum(1) - 1).masked_fill(~words, -1)


def item_mask(items: torch.Tensor) -> torch.Tensor:
    """Return the mask (B,S) of sentences, S at least 1."""
    counts = items.amax(1, keepdim=True) + 1
    return torch.arange(counts.max().clamp(min=1).item(), device=items.device) < counts


class Group(NamedTuple):
    """Some n sentences of a batch, the longest of W words: rows (n,), the document of each; numbers (n,), its number there;
    places (n,W), the positions of its words; mask (n,W), False on padding.
    """

    rows: torch.Tensor
    numbers: torch.Tensor
    places: torch.Tensor
    mask: torch.Tensor

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """Return values (B,L,...) at the places of the words, (n,W,...)."""
        return values[self.rows.unsqueeze(1), self.places]


def sentence_groups(items: torch.Tensor) -> Iterator[Group]:
    """Yield the sentences of documents with items (B,L) in groups of 1..8, 9..16, 17..32 words and so on."""
    inside = items >= 0
    starts = inside & (items != nn.functional.pad(items[:, :-1], (1, 0), value=-1))
    rows, places = starts.nonzero(as_tuple=True)  # of the first word of each sentence
    number = (starts.flatten().cumsum(0) - 1)[inside.flatten()]  # of each word's sentence in the batch
    lengths = torch.bincount(number, minlength=len(rows))
    low, high = 0, SHORT
    while bool((lengths > low).any()):
        chosen = ((lengths > low) & (lengths <= high)).nonzero().squeeze(1)
        low, high = high, 2 * high
        if len(chosen):
            within = torch.arange(int(lengths[chosen].max()), device=items.device)
            place = (places[chosen].unsqueeze(1) + within).clamp(max=items.shape[1] - 1)
            yield Group(rows[chosen], items[rows[chosen], places[chosen]], place, within < lengths[chosen].unsqueeze(1))


class SentenceReader(nn.Module):
    """Words to sentence vectors (Yang et al. 2016): an encoder reads each sentence by itself, attention sums its states. The
    state of a second text is the query of the words too.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.word_encoder = ENCODERS[config.encoder](config)
        self.word_alignment = ALIGNMENTS[config.alignment](config)

    def forward(self, embedded, items, query=None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Map embeddings (B,L,E), items (B,L) and query (B,H) to sentence vectors (B,S,H), 0 without a sentence, mask (B,S)
        and word attention (B,L), which sums to 1 over each sentence.
        """
        present = item_mask(items)
        vectors = embedded.new_zeros(*present.shape, self.config.hidden_size)
        attention = torch.zeros_like(items, dtype=torch.promote_types(embedded.dtype, torch.float32))
        for group in sentence_groups(items):
            states, _ = self.word_encoder(group.take(embedded), group.mask)
            weights = project(
                self.word_alignment(states, None if query is None else query[group.rows]), group.mask, self.config
            )
            sums = (weights.to(states.dtype).unsqueeze(1) @ states).squeeze(1).to(vectors.dtype)  # autocast gives others
            vectors = vectors.index_put((group.rows, group.numbers), sums)
            rows = group.rows.unsqueeze(1).expand_as(group.places)[group.mask]
            attention = attention.index_put((rows, group.places[group.mask]), weights[group.mask])
        return vectors, present, attention
