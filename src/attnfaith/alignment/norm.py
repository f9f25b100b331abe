"""The length of what each source word adds to a decoder's state (Kobayashi et al. 2020)."""

import torch

from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.layers import rows_at_once
from attnfaith.subjects.pairs import by_words


@register
class Norm(Measure):
    """The length of what each source word adds to a decoder's state (Kobayashi et al. 2020).

    How long the vector is that cross-attention adds for each source token: a small weight on a long vector may be more
    than a large one on a short.

    Pairs are read alone, so without padding. Of a recurrent translator f is what the output layer makes of a context.

    Source: Kobayashi et al. 2020, section 2.2 and, for alignment, section 5.
    """

    name, cost = "norm", "reading"
    reads = "pairs"
    needs = frozenset({"cross vectors"})
    columns = {
        "alignment_norm": Column(
            ("L", "R", "G", "T"),
            range=(0.0, None),
            doc="||sum over heads of a f(h)||_2 of a source token's weight a and its state h, f the values' projection to "
            "the "
            "decoder's states without its bias; lengths are summed over a source word's tokens, the mean over those of the "
            "target word",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        lengths = []
        for row in range(len(batch)):
            pair = batch.alone(row)
            layers = torch.stack([_lengths(*one) for one in subject.vectors(pair)])
            lengths += by_words(pair, layers.unsqueeze(0))
        return {"alignment_norm": lengths}


def _lengths(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """(N,S): weights (A,N,S) and projected values (A,S,E) to lengths of their products, summed over heads."""
    parts = []
    for rows in rows_at_once(torch.arange(weights.shape[1], device=weights.device), values[0]):
        vectors = torch.bmm(weights[:, rows].permute(2, 1, 0), values.transpose(0, 1))
        parts.append(torch.linalg.vector_norm(vectors, dim=2).T)
    return torch.cat(parts)
