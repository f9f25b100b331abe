"""Attention on markers: the share of what is shown that lies on no word of the text."""

from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


@register
class MarkerAttention(Measure):
    """Attention on markers: the share of what is shown that lies on no word of the text.

    How much of the rows that a person is shown is left out when only the text's tokens are.

    Of rollout and flow markers take part on the way; the share is that at the end. Where it is large, the weights that are
    shown are the shape of a small part of what the rows attend to. A text without tokens has 1. Nothing is random.

    Source: Clark et al. 2019, What Does BERT Look At?, section 3.2, who find most of it on separators.
    """

    name, cost = "marker_attention", "reading"
    needs = frozenset({"attention maps"})
    columns = {
        "marker_attention": Column(
            dtype="float64",
            range=(0.0, 1.0),
            doc="share of the reduced attention that lies on markers, such as [CLS] and [SEP], before that on the text is "
            "divided by its sum; of a model with attention sinks, on these too",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        return {"marker_attention": subject.reduced(batch)[1].clamp(0, 1).tolist()}
