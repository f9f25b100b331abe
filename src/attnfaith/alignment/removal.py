"""What a model says of a target when one source word after the other is left out; several measures share it.

Shapes: B pairs, S source positions, T source words, G target words.
"""

import torch

from attnfaith.subjects.pairs import PairBatch, of_sources, word_sums
from attnfaith.subjects.removal import TOKENS_AT_ONCE


@torch.no_grad()
def removed_log_probs(subject, batch: PairBatch) -> list[torch.Tensor]:
    """One (T,G) float64 a pair: log p of each target word without each source word; NaN where nothing is left to read.
    Kept in the batch.
    """
    return batch.once("removed", subject, lambda: [_of_pair(subject, batch.alone(row)) for row in range(len(batch))])


def _of_pair(subject, pair: PairBatch) -> torch.Tensor:
    gone, (count,) = of_sources(pair, 0).T > 0, pair.words[1]
    left = ~gone.all(1)
    log_probs = torch.full((len(gone), count), torch.nan, dtype=torch.float64, device=gone.device)
    width = sum(int(one[0]) for one in pair.lengths)
    for some in left.nonzero().squeeze(1).split(max(1, TOKENS_AT_ONCE // width)) if left.any() else ():
        shorter = subject.without(pair, torch.zeros_like(some), gone[some])
        log_probs[some] = word_sums(shorter, subject.log_probs(shorter))
    return log_probs
