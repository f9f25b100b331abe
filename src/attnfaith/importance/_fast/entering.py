"""What tokens bring into an encoder, each by itself: made once for all that read a batch again.

Shapes: B instances, T tokens, E embedding, D units of one direction.
"""

import torch

from attnfaith.models.encoders import BiLSTM
from attnfaith.subjects import Batch, Pooled


def entered(subject: Pooled, batch: Batch) -> torch.Tensor:
    """What `enter` makes of the embeddings of a batch, for a classifier of tokens; kept in the batch."""
    if batch.get("entered") is None:
        batch["entered"] = enter(subject.classifier.model.encoder, subject.embed(batch))
    return batch["entered"]


@torch.no_grad()
def enter(encoder, embedded: torch.Tensor) -> torch.Tensor:
    """Embeddings (B,T,E) as the engines of an encoder read them; as they are where it has none that reads them otherwise."""
    return ENTER.get(type(encoder), _as_they_are)(encoder, embedded)


def _as_they_are(encoder, embedded):
    return embedded.detach()


def _gates(encoder, embedded):
    """(B,T,8D): the tokens' part of the gates i, f, g, o of the onward LSTM and of the backward one, without a bias."""
    return embedded @ torch.cat([lstm.weight_ih_l0 for lstm in encoder.directions]).t()


ENTER = {BiLSTM: _gates}
