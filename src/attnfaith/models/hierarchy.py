"""Documents as sentences of words: the level below the one that attention, decoder and every experiment work on.

Shapes: B documents, L input positions, S sentences of a document, W words of a sentence, E embedding, H hidden. The items
of a document are what its attention attends to: `items` (B,L) holds the number of the sentence that an input position is a
word of, and -1 elsewhere.
"""

import copy
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
    """Items (B,L) from which positions are words (B,L): a run of words is a sentence, so that none is empty."""
    starts = words & ~nn.functional.pad(words[:, :-1], (1, 0))
    return (starts.cumsum(1) - 1).masked_fill(~words, -1)


def item_mask(items: torch.Tensor) -> torch.Tensor:
    """(B,S) bool, S at least 1: which sentences there are."""
    counts = items.amax(1, keepdim=True) + 1
    return torch.arange(counts.max().clamp(min=1).item(), device=items.device) < counts


def above_words(config):
    """The configuration of what reads sentence vectors, which are as large as states."""
    above = copy.copy(config)
    above.embedding_size = config.hidden_size
    return above


def of_similar_length(lengths: torch.Tensor) -> Iterator[torch.Tensor]:
    """Which sentences to encode together: numbers of those of 1..8, 9..16, 17..32 and so on words, at most half padding.

    In a graph that is traced, which is one for all documents, all of them.
    """
    if torch.compiler.is_compiling():
        yield torch.arange(lengths.shape[0], device=lengths.device)
        return
    if not len(lengths):
        return
    low, high, longest = 0, SHORT, int(lengths.max())
    while low < longest:
        chosen = ((lengths > low) & (lengths <= high)).nonzero().squeeze(1)
        if len(chosen):
            yield chosen
        low, high = high, 2 * high


class Group(NamedTuple):
    """Sentences of a batch that are dealt with together, n of them, the longest of W words.

    rows (n,): the document of each; numbers (n,): which of its sentences it is. places (n,W): the positions of its words in
    the document, and mask (n,W) which of these there are.
    """

    rows: torch.Tensor
    numbers: torch.Tensor
    places: torch.Tensor
    mask: torch.Tensor

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """Values (B,L,...) at the places of the words, (n,W,...)."""
        return values[self.rows.unsqueeze(1), self.places]

    def put(self, values: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        """`into` (B,L,...) with values (n,W,...) at the places of the words."""
        return into.index_put(
            (self.rows.unsqueeze(1).expand_as(self.places)[self.mask], self.places[self.mask]), values[self.mask]
        )


def sentence_groups(items: torch.Tensor) -> Iterator[Group]:
    """All sentences of documents with items (B,L), those of similar length together; none is empty."""
    inside = items >= 0
    starts = inside & (items != nn.functional.pad(items[:, :-1], (1, 0), value=-1))
    rows, places = starts.nonzero(as_tuple=True)  # of all sentences of the batch
    number = (starts.flatten().cumsum(0) - 1)[inside.flatten()]  # of each word's sentence
    lengths = torch.zeros_like(rows).index_add(0, number, torch.ones_like(number))
    for chosen in of_similar_length(lengths):
        longest = nn.functional.pad(lengths[chosen], (0, 1), value=1).max()  # 1 in a traced graph where there is no sentence
        within = torch.arange(longest.item(), device=items.device)
        place = (places[chosen].unsqueeze(1) + within).clamp(max=items.shape[1] - 1)
        yield Group(rows[chosen], items[rows[chosen], places[chosen]], place, within < lengths[chosen].unsqueeze(1))


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

        Raises NotImplementedError where a graph is traced with a recurrent encoder: torch exports recurrent layers over no
        number of sentences that only the texts tell.
        """
        if self.word_encoder.recurrent and torch.compiler.is_compiling():
            raise NotImplementedError(
                f"encoder={self.config.encoder!r} with hierarchy='sentence' cannot be exported, nor compiled as one graph: "
                "run it as it is, or take the encoder transformer, cnn, average or embedding"
            )
        present = item_mask(items)
        vectors = embedded.new_zeros(*present.shape, self.config.hidden_size)
        attention = torch.zeros_like(items, dtype=torch.promote_types(embedded.dtype, torch.float32))
        for group in sentence_groups(items):
            states, _ = self.word_encoder(group.take(embedded), group.mask)
            weights = project(self.scores(states, None if query is None else query[group.rows]), group.mask, self.config)
            sums = (weights.to(states.dtype).unsqueeze(1) @ states).squeeze(1).to(vectors.dtype)  # autocast gives others
            vectors = vectors.index_put((group.rows, group.numbers), sums)
            attention = group.put(weights, attention)
        return vectors, present, attention

    def scores(self, states: torch.Tensor, query: torch.Tensor | None = None) -> torch.Tensor:
        """Alignment scores (B,W) of word states (B,W,H), not yet masked or projected."""
        return self.word_alignment(states, query)
