"""What enters an encoder's own steps at each token: made once for all that read a batch again.

Of an LSTM these are the gates i, f, g, o of the onward direction and of the backward one, scaled for one sigmoid
(`lstm_deletion.gate_scale`), in two parts: what the tokens bring, and what the states before them do.

Shapes: B instances, T tokens, E embedding, D units of one direction.
"""

import torch
from torch import nn

from attnfaith.importance._fast.lstm_deletion import gate_scale
from attnfaith.models.encoders import BiLSTM
from attnfaith.subjects import Batch, Pooled


@torch.no_grad()
def entered(subject: Pooled, batch: Batch) -> torch.Tensor:
    """What `enter` makes of the embeddings of a batch, for a classifier of tokens; kept in the batch."""
    if batch.get("entered") is None:
        # a word that comes often is entered once
        words, places = batch["input_ids"].unique(return_inverse=True)
        vectors = subject.embed({"input_ids": words})
        batch["entered"] = enter(subject.classifier.model.encoder, vectors)[places]
    return batch["entered"]


def recalled(subject: Pooled, batch: Batch) -> torch.Tensor | None:
    """What `recall` makes of the states of a batch; kept in the batch."""
    if batch.get("recalled") is None:
        batch["recalled"] = recall(subject.classifier.model.encoder, subject.encoded(batch).hidden)
    return batch["recalled"]


@torch.no_grad()
def enter(encoder, embedded: torch.Tensor) -> torch.Tensor:
    """Embeddings (...,E) as the engines of an encoder read them; as they are where it has none that reads them otherwise.

    Of an LSTM (...,8D): the tokens' part of the gates, without a bias.
    """
    return ENTER.get(type(encoder), _as_they_are)(encoder, embedded)


@torch.no_grad()
def recall(encoder, states: torch.Tensor) -> torch.Tensor | None:
    """(B,T,8D): what the state before each token and the biases bring to the gates of an LSTM, in float32 where states are
    coarser. None for other encoders.

    states (B,T,2D): those of the whole texts, 0 on padding.
    """
    return RECALL[type(encoder)](encoder, states) if type(encoder) in RECALL else None


def _as_they_are(encoder, embedded):
    return embedded.detach()


def _gates(encoder, embedded):
    weights = [lstm.weight_ih_l0 * gate_scale(lstm).unsqueeze(1) for lstm in encoder.directions]
    return embedded @ torch.cat(weights).t()


def _recurrent_gates(encoder, states):
    dtype = torch.promote_types(states.dtype, torch.float32)
    onward, backward = states.to(dtype).chunk(2, -1)
    before = nn.functional.pad(onward[:, :-1], (0, 0, 1, 0)), nn.functional.pad(backward[:, 1:], (0, 0, 0, 1))
    parts = []
    for lstm, state in zip(encoder.directions, before, strict=True):
        scale = gate_scale(lstm)
        weight, bias = lstm.weight_hh_l0 * scale.unsqueeze(1), (lstm.bias_ih_l0 + lstm.bias_hh_l0) * scale
        parts.append(nn.functional.linear(state, weight.to(dtype), bias.to(dtype)))
    return torch.cat(parts, -1)


ENTER = {BiLSTM: _gates}
RECALL = {BiLSTM: _recurrent_gates}
