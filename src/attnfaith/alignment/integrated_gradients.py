"""Integrated gradients (Sundararajan et al. 2017): a target word's log probability, handed out to source words."""

import torch

from attnfaith.importance.integrated import UNDEFINED, baseline_vector, check_baseline
from attnfaith.importance.quadrature import Line, integrate
from attnfaith.measurement.options import Baseline, Points, Tolerance
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.modes import frozen
from attnfaith.subjects.pairs import of_sources, word_sums


@register
class IntegratedGradients(Measure):
    """Integrated gradients (Sundararajan et al. 2017): a target word's log probability, handed out to source words.

    (x - b) . the mean of d log p / dx over the line from b to x, summed over the tokens of a source word.

    x are the embeddings of the source's words, b their baseline, as in `attnfaith.importance.integrated`, which
    says how the integral is taken. Markers stay what they are along the line, so that the words' parts sum to log p at x
    less log p at b. Each target word has its own points, residual and error. Signed.

    Source: Sundararajan et al. 2017, eq. 1 and 3 and proposition 1.
    """

    name, cost = "integrated_gradients", "draws"
    reads = "pairs"
    needs = frozenset({"source embeddings"})
    columns = {
        "alignment_integrated_gradients": Column(
            ("G", "T"),
            signed=True,
            unit="nats",
            undefined=UNDEFINED,
            doc="the source word's part of log p of the target word less log p where all source words are the baseline",
        ),
        "integrated_gradients_residual": Column(
            ("G",),
            unit="nats",
            undefined="where the line leaves float range",
            tolerance=2,
            doc="sum of the parts less that difference; 0 is complete",
        ),
        "integrated_gradients_error": Column(
            ("G",),
            unit="nats",
            undefined="where the line leaves float range",
            tolerance=2,
            doc="the estimated error of the part that is least certain",
        ),
        "integrated_gradients_steps": Column(("G",), "int64", doc="points of the line at which a gradient was taken"),
    }

    baseline: Baseline | None = None
    max_steps: Points = 1500
    tolerance: Tolerance = 0.01

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        check_baseline(subject, self.baseline)
        columns = {name: [] for name in self.columns}
        with frozen(subject):
            for row in range(len(batch)):
                pair = batch.alone(row)
                parts = integrate(_line(subject, pair, self.baseline), self.max_steps, self.tolerance)
                columns["alignment_integrated_gradients"].append((parts.parts @ of_sources(pair, 0)).float().cpu().numpy())
                columns["integrated_gradients_residual"].append(parts.residual.float().cpu().numpy())
                columns["integrated_gradients_error"].append(parts.error.float().cpu().numpy())
                columns["integrated_gradients_steps"].append(parts.steps.cpu().numpy())
        return columns


def _line(subject, pair, baseline: str) -> Line:
    """The line of one pair's source, as often as the target has words: what is explained is log p of the one word."""
    (count,) = pair.words[1]
    with torch.no_grad():
        embedded = subject.embed(pair)
        start = torch.where(
            (pair["source_words"] >= 0).unsqueeze(2), baseline_vector(subject, baseline).to(embedded), embedded
        )
        reached = word_sums(pair, subject.log_probs(pair))[0]

    def value(points, rows):
        return subject.log_probs_of(pair.take(torch.zeros_like(rows)), rows, points)

    lengths = torch.full((count,), embedded.shape[1], device=embedded.device)
    return Line(start.expand(count, -1, -1), embedded.expand(count, -1, -1), lengths, value, reached)
