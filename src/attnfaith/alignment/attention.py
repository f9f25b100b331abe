"""Cross-attention itself, by layer and head, in the row that predicts a target word and in that in which it is the input."""

import torch

from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.pairs import by_words, of_targets


@register
class Attention(Measure):
    """Cross-attention itself, by layer and head, in the row that predicts a target word and in that in which it is the
    input.

    The weights as the model uses them, read where they weigh its values.

    Which row says what a target word was made of is not the same in all models: the decoder reads a word in the row after
    the one that predicts it, so both are there.

    Source: Bahdanau et al. 2015, section 3.1; Garg et al. 2019, section 4, for the two rows.
    """

    name, cost = "attention", "reading"
    reads = "pairs"
    needs = frozenset({"cross-attention"})
    columns = {
        "alignment_attention": Column(
            ("L", "A", "R", "G", "T"),
            range=(0.0, 1.0),
            doc="weight of a source word: the sum over its tokens, the mean over those of the target word",
        ),
        "alignment_attention_mean": Column(
            ("L", "R", "G", "T"), range=(0.0, 1.0), doc="the same, mean over the heads of a layer"
        ),
        "alignment_marker_mass": Column(
            ("L", "A", "R", "G"),
            range=(0.0, 1.0),
            doc="weight of the source's markers, such as its end: with those of words it makes 1",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        weights = subject.attention(batch)
        words = by_words(batch, weights)
        markers = (batch["source_words"] < 0) & (batch["attention_mask"] == 1)
        masses = []
        for row, one in enumerate(weights):
            mass = (one.double() * markers[row]).sum(-1)
            rows = of_targets(batch, row)
            masses.append(torch.einsum("rgn,lan->larg", rows, mass[..., : rows.shape[2]]).float().cpu().numpy())
        means = [one.mean(1) for one in words]
        return {"alignment_attention": words, "alignment_attention_mean": means, "alignment_marker_mass": masses}
