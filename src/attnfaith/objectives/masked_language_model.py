"""States that know their words: a penalty on not telling a masked word from the state in its place.

Shapes: B instances, T tokens, V words of the vocabulary. Source: Tutek & Snajder 2020, "Staying True to Your Word".
"""

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from attnfaith.draws import generator


def masked_language_model(logits: torch.Tensor, words: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """The mean over a text's masked words of -log p(word): (B,) in nats, from 0 on.

    masked (B,T) bool: the places whose word was replaced by the mask; words (B,T): the ids that were there. logits (N,V):
    what the states of these N places say of the vocabulary, in the order of `masked.nonzero()`; no others are needed.

    Undefined, and 0, for a text none of whose words was masked.
    """
    losses = cross_entropy(logits.float(), words[masked], reduction="none")
    rows = masked.nonzero()[:, 0]
    sums = losses.new_zeros(len(masked)).index_add(0, rows, losses)
    return sums / masked.sum(-1).clamp(min=1)


def drawn_words(
    input_ids: torch.Tensor, attention_mask: torch.Tensor, words: torch.Tensor, share: float, *, seed: int, step: int
) -> torch.Tensor:
    """(B,T) bool: of the places `words` (B,T) those to mask, each with probability `share`.

    Which ones depends on seed, step and the text alone: neither on the batch nor on the number of processes, so that a
    training goes on where it was stopped. All arguments of shape (B,T).
    """
    ids, inside, chosen = input_ids.cpu().numpy(), attention_mask.bool().cpu().numpy(), words.cpu().numpy().copy()
    for row, places in enumerate(chosen):
        text = ids[row, inside[row]].astype(np.int64).tobytes().hex()
        random = generator(seed, f"{step}\0{text}", "masked_language_model")
        places[places] = random.random(int(places.sum())) < share
    return torch.from_numpy(chosen).to(input_ids.device)
