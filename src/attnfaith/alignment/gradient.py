"""The length of the gradient of a target word's log probability in a source word's embeddings."""

from attnfaith.alignment.word_gradients import of_pair, word_gradients
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.pairs import of_sources


@register
class Gradient(Measure):
    """The length of the gradient of a target word's log probability in a source word's embeddings.

    How steep log p of a target word is in each source word; it has no sign.

    log p is that of all tokens of the target word, given the source and the words before it. Of a source word with several
    tokens it is the length of the gradient in all of them at once. One backward pass for each target word.

    Source: Li et al. 2016, Visualizing and Understanding Neural Models in NLP, section 5; Ding et al. 2019 for translation.
    """

    name, cost = "gradient", "tokens"
    reads = "pairs"
    needs = frozenset({"source embeddings"})
    columns = {
        "alignment_gradient": Column(
            ("G", "T"),
            range=(0.0, None),
            unit="nats per unit of the embeddings",
            doc="||d log p / d x||_2 of a target word's log probability and the embeddings x of all tokens of a source word",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        squares = word_gradients(subject, batch).double().square().sum(3)
        lengths = []
        for row in range(len(batch)):
            of_tokens = of_pair(batch, row, squares)
            lengths.append((of_tokens @ of_sources(batch, row)[: of_tokens.shape[1]]).sqrt().float().cpu().numpy())
        return {"alignment_gradient": lengths}
