"""The gradient of a target word's log probability times a source word's embeddings."""

import torch

from attnfaith.alignment.word_gradients import of_pair, word_gradients
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.pairs import of_sources


@register
class GradientXInput(Measure):
    """The gradient of a target word's log probability times a source word's embeddings.

    What log p of a target word would change with a source word's embeddings, to first order; signed.

    Positive: the word speaks for the target word. One backward pass for each target word, shared with `gradient`.

    Source: Shrikumar et al. 2016; Ding et al. 2019 for translation.
    """

    name, cost = "gradient_x_input", "tokens"
    reads = "pairs"
    needs = frozenset({"source embeddings"})
    columns = {
        "alignment_gradient_x_input": Column(
            ("G", "T"),
            signed=True,
            unit="nats",
            doc="x . d log p / d x of a target word's log probability, summed over the tokens of a source word",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        embedded = subject.embed(batch).detach().double()
        products = torch.einsum("bgse,bse->bgs", word_gradients(subject, batch).double(), embedded)
        sums = []
        for row in range(len(batch)):
            of_words = of_pair(batch, row, products)
            sums.append((of_words @ of_sources(batch, row)[: of_words.shape[1]]).float().cpu().numpy())
        return {"alignment_gradient_x_input": sums}
