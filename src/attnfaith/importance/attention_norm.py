"""Attention times the length of what it weighs (Kobayashi et al. 2020)."""

import torch

from attnfaith.importance._inputs import attended
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks


COLUMNS = {
    "importance_attention_norm": Column(
        ("T",), words="sum", range=(0.0, None), doc="||a h||_2 of a token's attention a and its encoder state h"
    ),
}
NEEDS = frozenset({"states"})
COST = "reading"


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """How long each summand of the context is: a small weight on a long state may be more than a large one on a short.

    It knows nothing of the decoder, so not which way a summand points, nor whether the decoder reads it: compare
    `exact_contribution`. What attention sums here is the states themselves. At the word level of a hierarchical model h is
    the state of a word, and a its sentence's attention times its weight within the sentence.

    Source: Kobayashi et al. 2020, with the identity as the transformation of what is weighed.
    """
    (hidden, mask, _), attention = attended(subject, batch)
    lengths = attention.double() * torch.linalg.vector_norm(hidden.double(), dim=-1)
    return {"importance_attention_norm": ragged(lengths.float().cpu(), mask.cpu())}
