"""What a model says of a target's words under other cross-attention, and how far that is from what it says by itself.

Shapes: n copies of a pair, N target positions, G target words, V vocabulary.
"""

from collections.abc import Sequence

import torch

from attnfaith.subjects.attention import Edit
from attnfaith.subjects.pairs import PairBatch, by_target_words, word_sums
from attnfaith.subjects.translator import picked


def check_layers(layers: str | Sequence[int]) -> None:
    """Raises ValueError unless layers is "all" or different numbers from 0 on."""
    if layers == "all":
        return
    numbers = isinstance(layers, list | tuple) and len(layers) > 0 and len(set(map(str, layers))) == len(layers)
    if not (numbers and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in layers)):
        raise ValueError(f"layers={layers!r}; give 'all', or a list of numbers of layers of the decoder, from 0 on")


def chosen_layers(layers: str | Sequence[int], count: int) -> frozenset[int]:
    """The numbers of the layers. Raises ValueError for one that the decoder does not have."""
    if layers == "all":
        return frozenset(range(count))
    if missing := [layer for layer in layers if layer >= count]:
        raise ValueError(f"layers={list(layers)}: there is no layer {missing[0]}; the decoder has {count}, counted from 0")
    return frozenset(layers)


@torch.no_grad()
def outcomes(subject, pair: PairBatch, edit: Edit, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of `count` copies of one pair under an edit: log p of each target word (n,G) in float64, and the total variation
    distance of what may come next from what the model says by itself, 0..1, (n,G): the mean over the word's tokens.
    """
    own = subject.logits(pair).softmax(2)
    owner = torch.zeros(count, dtype=torch.long, device=own.device)
    log_probs = own.new_zeros(count, own.shape[1], dtype=torch.float64)
    distances = torch.zeros_like(log_probs)
    for some, logits in subject.edited(pair, owner, edit):
        log_probs[some] = picked(logits, pair["labels"].expand(len(some), -1))
        distances[some] = (logits.softmax(2) - own).abs().sum(2).double() / 2
    (of_words,) = by_target_words(pair, distances.unsqueeze(0))
    return word_sums(pair, log_probs), torch.from_numpy(of_words)
