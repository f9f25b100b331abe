"""What enters an encoder's own steps at each token: made once for all that read a batch again.

Shapes: B instances, T tokens, E embedding, H hidden, D units of one direction, W words.
"""

from typing import NamedTuple

import torch

from attnfaith.importance._fast.lstm_deletion import gate_scale
from attnfaith.models.encoders import BiLSTM, reverse_by_length
from attnfaith.subjects import Batch, Pooled


class Gates(NamedTuple):
    """What enters the gates i, f, g, o of an encoder's LSTMs, the onward and the backward one, as they read texts.

    texts (B,): which texts of a batch these are, the longest first. places (2,T,B): where in its text a token stands that is
    read; either LSTM reads a text from its own first token on, and padding last. brought (2,T,B,4D): what the tokens bring.
    recalled (2,T,B,4D): what the states before them and the biases bring, in float32 where states are coarser. Both are
    scaled for one sigmoid (`lstm_deletion.gate_scale`).
    """

    texts: torch.Tensor
    places: torch.Tensor
    brought: torch.Tensor
    recalled: torch.Tensor

    def part(self, texts: slice) -> "Gates":
        """Those of some of the texts."""
        return Gates(self.texts[texts], self.places[:, :, texts], self.brought[:, :, texts], self.recalled[:, :, texts])

    def as_read(self, values: torch.Tensor) -> torch.Tensor:
        """Values (B,L,2D), such as states, of either LSTM as it reads: (2,T,B,D)."""
        halves = zip(values.chunk(2, -1), self.places, strict=True)
        return torch.stack([half[self.texts, places] for half, places in halves])


@torch.no_grad()
def entered(subject: Pooled, batch: Batch) -> Gates | torch.Tensor:
    """What `enter` makes of a batch, for a classifier of tokens; kept in the batch."""
    if batch.get("entered") is None:
        model = subject.classifier.model
        present, _, _ = model.text_masks(batch["attention_mask"], batch.get("token_type_ids"))
        words, numbers = batch["input_ids"].unique(return_inverse=True)  # a word that comes often is entered once
        vectors = subject.embed({"input_ids": words})
        batch["entered"] = _enter(model.encoder, vectors, numbers, present, subject.encoded(batch).hidden)
    return batch["entered"]


@torch.no_grad()
def enter(encoder, embedded: torch.Tensor, mask: torch.Tensor, states: torch.Tensor) -> Gates | torch.Tensor:
    """What the engines of an encoder read of texts: the gates of an LSTM, of other encoders the embeddings as they are.

    embedded (B,T,E); mask (B,T): the tokens that are read; states (B,T,H): what the encoder makes of them.
    """
    numbers = torch.arange(mask.numel(), device=mask.device).view_as(mask)
    return _enter(encoder, embedded.flatten(0, 1), numbers, mask, states)


def _enter(encoder, vectors, numbers, mask, states):
    """vectors (W,E) of words, and the numbers (B,T) of those that stand in the texts."""
    return ENTER.get(type(encoder), _as_they_are)(encoder, vectors.detach(), numbers, mask, states)


def _as_they_are(encoder, vectors, numbers, mask, states):
    return vectors[numbers]


def _gates(encoder, vectors, numbers, mask, states):
    lengths = mask.sum(1)
    texts = lengths.argsort(descending=True, stable=True)
    mask = mask[texts, : int(lengths.max())]
    onward = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    places = torch.stack([onward.t(), reverse_by_length(mask).t()])
    scales = [gate_scale(lstm) for lstm in encoder.directions]
    weights = [lstm.weight_ih_l0 * scale.unsqueeze(1) for lstm, scale in zip(encoder.directions, scales, strict=True)]
    brought = vectors.new_empty(*places.shape, len(scales[0]))
    for place, weight, out in zip(places, weights, brought, strict=True):
        torch.index_select(vectors @ weight.t(), 0, numbers[texts, place].flatten(), out=out.flatten(0, 1))
    made = Gates(texts, places, brought, brought)
    read = made.as_read(states.to(torch.promote_types(states.dtype, torch.float32)))
    before = torch.cat([torch.zeros_like(read[:, :1]), read[:, :-1]], 1).flatten(1, 2)
    scale = torch.stack(scales)
    weight = torch.stack([lstm.weight_hh_l0 for lstm in encoder.directions]) * scale.unsqueeze(2)
    bias = torch.stack([lstm.bias_ih_l0 + lstm.bias_hh_l0 for lstm in encoder.directions]) * scale
    recalled = torch.baddbmm(bias.to(read).unsqueeze(1), before, weight.to(read).transpose(1, 2))
    return made._replace(recalled=recalled.view(brought.shape))


ENTER = {BiLSTM: _gates}
