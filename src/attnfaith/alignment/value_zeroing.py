"""Value zeroing (Mohebbi et al. 2023): how far a decoder's layer turns a state when a source word's values are zeros."""

import torch

from attnfaith.importance.perturbation import cosine_distances
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.pairs import of_sources, of_targets


@register
class ValueZeroing(Measure):
    """Value zeroing (Mohebbi et al. 2023): how far a decoder's layer turns a state when a source word's values are zeros.

    What each layer of the decoder would miss without a source word: 1 - cos of its results.

    A layer is given the states that the pair gives it, and the weights are as they were: the values of the word's tokens are
    zeros in all heads of cross-attention. Rows are not divided by their sums. Of a recurrent translator the result is what
    the output layer reads. Pairs are read alone, once more for each source word.

    Source: Mohebbi et al. 2023, section 3, for attention of a text over itself.
    """

    name, cost = "value_zeroing", "tokens"
    reads = "pairs"
    needs = frozenset({"layer results"})
    columns = {
        "alignment_value_zeroing": Column(
            ("L", "R", "G", "T"),
            range=(0.0, 2.0),
            doc="cosine distance of a layer's results with and without the values of a source word, all its tokens' at "
            "once; "
            "the mean over the tokens of the target word",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        distances = []
        for row in range(len(batch)):
            pair = batch.alone(row)
            gone = of_sources(pair, 0).T > 0
            layers = [cosine_distances(others, own).T for own, others in subject.results_without(pair, gone)]
            means = torch.einsum("rgn,lnt->lrgt", of_targets(pair, 0), torch.stack(layers))
            distances.append(means.float().cpu().numpy())
        return {"alignment_value_zeroing": distances}
