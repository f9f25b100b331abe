"""Batches of sentence pairs for models from sequences to sequences, and numbers of positions as numbers of words.

Shapes: B pairs, S source positions, N target positions, T source words, G target words. Target position i reads what stands
before the i-th of the target's tokens and predicts that token; so token i is read at position i + 1.
"""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.subjects.protocol import Batch


UNCOUNTED = -100
"""A label that is no target token."""


class PairBatch(Batch):
    """input_ids, attention_mask, source_words (B,S); labels, target_words, decoder_input_ids (B,N); the list instance_id.

    source_words and target_words: the number of the word that a position, or a label, belongs to; -1 for markers and
    padding. Labels of padding are -100.
    """

    axes = {
        **dict.fromkeys(("input_ids", "attention_mask", "source_words"), "S"),
        **dict.fromkeys(("labels", "target_words", "decoder_input_ids"), "N"),
    }
    lists = ("instance_id",)

    def alone(self, row: int) -> "PairBatch":
        """One pair, without padding."""
        sources, targets = self.lengths
        return self.take(torch.tensor([row], device=self["labels"].device), int(sources[row]), int(targets[row]))

    @property
    def lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Source and target positions of each pair, (B,) each."""
        return self["attention_mask"].sum(1), (self["labels"] != UNCOUNTED).sum(1)

    @property
    def words(self) -> tuple[list[int], list[int]]:
        """Source and target words of each pair."""
        return tuple((self[name].amax(1) + 1).tolist() for name in ("source_words", "target_words"))

    def __len__(self) -> int:
        return len(self["instance_id"])


def of_sources(batch: PairBatch, row: int) -> torch.Tensor:
    """(S,T) in float64: 1 where a source position belongs to a word."""
    return _one_hot(batch["source_words"][row], batch.words[0][row])


def of_targets(batch: PairBatch, row: int) -> torch.Tensor:
    """(2,G,N) in float64: the share of a row in the mean over a target word's tokens; first rows that predict the tokens,
    then rows that read them.
    """
    owned = _one_hot(batch["target_words"][row], batch.words[1][row]).T
    predicting = owned / owned.sum(1, keepdim=True)
    return torch.stack([predicting, torch.nn.functional.pad(predicting[:, :-1], (1, 0))])


def _one_hot(words: torch.Tensor, count: int) -> torch.Tensor:
    return (words.unsqueeze(1) == torch.arange(count, device=words.device)).double()


def by_words(batch: PairBatch, values: torch.Tensor | Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Values (B,...,N,S), or one (...,N,S) a pair, as one array (...,2,G,T) a pair: sums over the tokens of a source word,
    means over those of a target word, in float32.
    """
    arrays = []
    for row, numbers in enumerate(values):
        rows, columns = of_targets(batch, row), of_sources(batch, row)
        arrays.append(numpy_of(torch.einsum("rgn,...ns,st->...rgt", rows, numbers.double(), columns)))
    return arrays


def by_target_words(batch: PairBatch, values: torch.Tensor) -> list[np.ndarray]:
    """Values (B,...,N) of the rows that predict tokens as one array (...,G) a pair: means over a target word's tokens."""
    return [numpy_of(numbers.double() @ of_targets(batch, row)[0].T) for row, numbers in enumerate(values)]


def numpy_of(values: torch.Tensor) -> np.ndarray:
    """Values as an array of float32."""
    return values.float().cpu().numpy()


def word_sums(batch: PairBatch, log_probs: torch.Tensor) -> torch.Tensor:
    """(B,G) in float64: the log probabilities (B,N) of a target word's tokens, summed; 0 behind the last word. Or (n,G) of n
    copies (n,N) of a batch of one pair.
    """
    count = max(batch.words[1])
    owned = batch["target_words"].unsqueeze(1) == torch.arange(count, device=log_probs.device).unsqueeze(1)
    return torch.where(owned, log_probs.double().unsqueeze(1), 0.0).sum(2)
