"""Gradients of a target word's log probability in the embeddings of source words.

log p is that of all tokens of the target word, given the source and the words before it.

Shapes: B pairs, S source positions, E embedding, G target words, T source words.
"""

import torch

from attnfaith.alignment import PairMeasure
from attnfaith.importance.gradients import differentiable
from attnfaith.importance.integrated import UNDEFINED, Line, baseline_vector, check_baseline, integrate
from attnfaith.measurement.options import Baseline, Points, Tolerance
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.base import frozen
from attnfaith.subjects.translator import PairBatch, numpy_of, of_sources, word_sums


NUMBER = {"axes": ("G",), "unit": "nats", "undefined": "where the line leaves float range", "tolerance": 2}


def word_gradients(subject, batch: PairBatch) -> torch.Tensor:
    """(B,G,S,E) in float64: the slopes of log p of each target word; 0 behind the last word. Kept in the batch.

    One backward pass for each word of the longest target.
    """

    def slopes() -> torch.Tensor:
        with differentiable(subject):
            embedded = subject.embed(batch).detach().requires_grad_()
            sums = word_sums(batch, subject.log_probs(batch, embedded))
            words = [torch.autograd.grad(word.sum(), embedded, retain_graph=True)[0] for word in sums.unbind(1)]
        return torch.stack(words, 1).double()

    return batch.once("word gradients", subject, slopes)


def _by_source_word(batch: PairBatch, values: torch.Tensor) -> list[torch.Tensor]:
    """Values (B,G,S) as one tensor (G,T) a pair, without padding: sums over the tokens of source words."""
    return [values[row, :count] @ of_sources(batch, row) for row, count in enumerate(batch.words[1])]


@register
class Gradient(Measure):
    """The length of the gradient of a target word's log probability in a source word's embeddings.

    It has no sign. Of a source word with several tokens it is the length of the gradient in all of them at once. One
    backward pass for each target word.

    Source: Li et al. 2016, Visualizing and Understanding Neural Models in NLP, section 5; Ding et al. 2019 for translation.
    """

    name, cost, reads, needs = "gradient", "tokens", "pairs", frozenset({"source embeddings"})
    columns = {
        "alignment_gradient": Column(
            ("G", "T"),
            range=(0.0, None),
            unit="nats per unit of the embeddings",
            doc="||d log p / d x||_2, x the embeddings of all tokens of a source word",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        squares = _by_source_word(batch, word_gradients(subject, batch).square().sum(3))
        return {"alignment_gradient": [numpy_of(values.sqrt()) for values in squares]}


@register
class GradientXInput(Measure):
    """The gradient of a target word's log probability times a source word's embeddings.

    What log p would change with a source word's embeddings, to first order; positive where the word speaks for the target
    word. One backward pass for each target word, shared with `gradient`.

    Source: Shrikumar et al. 2016; Ding et al. 2019 for translation.
    """

    name, cost, reads, needs = "gradient_x_input", "tokens", "pairs", frozenset({"source embeddings"})
    columns = {
        "alignment_gradient_x_input": Column(
            ("G", "T"), signed=True, unit="nats", doc="x . d log p / d x, summed over the tokens of a source word"
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        products = torch.einsum("bgse,bse->bgs", word_gradients(subject, batch), subject.embed(batch).detach().double())
        return {"alignment_gradient_x_input": list(map(numpy_of, _by_source_word(batch, products)))}


@register
class IntegratedGradients(PairMeasure):
    """Integrated gradients (Sundararajan et al. 2017): a target word's log probability, handed out to source words.

    (x - b) . the mean of d log p / dx over the line from b to x, summed over the tokens of a source word. x are the
    embeddings of the source's words, b their baseline, and the integral is taken as in `attnfaith.importance.integrated`.
    Markers stay what they are along the line, so that the words' parts sum to log p at x less log p at b. Each target word
    has its own points, residual and error. Signed.

    Source: Sundararajan et al. 2017, eq. 1 and 3 and proposition 1.
    """

    name, cost, needs = "integrated_gradients", "draws", frozenset({"source embeddings"})
    columns = {
        "alignment_integrated_gradients": Column(
            ("G", "T"),
            signed=True,
            unit="nats",
            undefined=UNDEFINED,
            doc="the source word's part of log p of the target word less log p where all source words are the baseline",
        ),
        "integrated_gradients_residual": Column(doc="sum of the parts less that difference; 0 is complete", **NUMBER),
        "integrated_gradients_error": Column(doc="the estimated error of the part that is least certain", **NUMBER),
        "integrated_gradients_steps": Column(("G",), "int64", doc="points of the line at which a gradient was taken"),
    }

    baseline: Baseline | None = None
    max_steps: Points = 1500
    tolerance: Tolerance = 0.01

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a baseline that the model does not have."""
        check_baseline(subject, self.baseline)

    def of_pair(self, subject, pair):
        with frozen(subject):
            parts = integrate(self._line(subject, pair), self.max_steps, self.tolerance)
        by_word = numpy_of(parts.parts @ of_sources(pair, 0))
        return by_word, numpy_of(parts.residual), numpy_of(parts.error), parts.steps.cpu().numpy()

    def _line(self, subject, pair: PairBatch) -> Line:
        """The line of a pair's source, as often as the target has words: what is explained is log p of the one word."""
        (count,) = pair.words[1]
        with torch.no_grad():
            embedded = subject.embed(pair)
            baseline = baseline_vector(subject, self.baseline).to(embedded)
            start = torch.where((pair["source_words"] >= 0).unsqueeze(2), baseline, embedded)
            reached = word_sums(pair, subject.log_probs(pair))[0]

        def value(points, rows):
            return subject.log_probs_of(pair.take(torch.zeros_like(rows)), rows, points)

        lengths = torch.full((count,), embedded.shape[1], device=embedded.device)
        return Line(start.expand(count, -1, -1), embedded.expand(count, -1, -1), lengths, value, reached)
