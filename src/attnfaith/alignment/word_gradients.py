"""Gradients of the log probability of each target word in the source's embeddings, which several measures share.

Shapes: B pairs, S source positions, E embedding, G target words.
"""

import torch

from attnfaith.subjects.modes import frozen
from attnfaith.subjects.pairs import PairBatch


def word_gradients(subject, batch: PairBatch) -> torch.Tensor:
    """(B,G,S,E): the slopes of log p of a target word, given source and the words before it; 0 behind the last word. Kept in
    the batch. One backward pass for each word of the longest target.
    """
    return batch.once("word gradients", subject, lambda: _word_gradients(subject, batch))


def _word_gradients(subject, batch: PairBatch) -> torch.Tensor:
    with frozen(subject), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        return subject.word_slopes(batch)


def of_pair(batch: PairBatch, row: int, values: torch.Tensor) -> torch.Tensor:
    """(G,S') of one pair, of values (B,G,S), without padding, in float64."""
    width = int(batch.lengths[0][row])
    return values[row, : batch.words[1][row], :width].double()
