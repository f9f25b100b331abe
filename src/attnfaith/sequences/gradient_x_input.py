"""The gradient of a target word's log probability times a source word's embeddings."""

import torch

from attnfaith.record import Column
from attnfaith.sequences._gradients import of_pair, word_gradients
from attnfaith.subjects import asks
from attnfaith.subjects.pairs import of_sources


COLUMNS = {
    "alignment_gradient_x_input": Column(
        ("G", "T"),
        signed=True,
        unit="nats",
        doc="x . d log p / d x of a target word's log probability, summed over the tokens of a source word",
    ),
}
NEEDS = frozenset({"source embeddings"})
COST = "tokens"


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """What log p of a target word would change with a source word's embeddings, to first order; signed.

    Positive: the word speaks for the target word. One backward pass for each target word, shared with `gradient`.

    Source: Shrikumar et al. 2016; Ding et al. 2019 for translation.
    """
    embedded = subject.embed(batch).detach().double()
    products = torch.einsum("bgse,bse->bgs", word_gradients(subject, batch).double(), embedded)
    sums = []
    for row in range(len(batch)):
        of_words = of_pair(batch, row, products)
        sums.append((of_words @ of_sources(batch, row)[: of_words.shape[1]]).float().cpu().numpy())
    return {"alignment_gradient_x_input": sums}
