"""What a target word loses without a source word: without its tokens (occlusion), or without its values (value zeroing).

Shapes: B pairs, S source positions, T source words, G target words.
"""

import torch

from attnfaith.alignment import PairMeasure
from attnfaith.importance.context_mixing import cosine_distances
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.protocol import TOKENS_AT_ONCE
from attnfaith.subjects.translator import PairBatch, numpy_of, of_sources, of_targets, word_sums


@torch.no_grad()
def removed_log_probs(subject, batch: PairBatch) -> list[torch.Tensor]:
    """One (T,G) float64 a pair: log p of each target word without each source word; NaN where nothing is left to read.

    Kept in the batch.
    """
    return batch.once("removed", subject, lambda: [_without_each(subject, batch.alone(row)) for row in range(len(batch))])


def _without_each(subject, pair: PairBatch) -> torch.Tensor:
    gone, (count,) = of_sources(pair, 0).T > 0, pair.words[1]
    readable = (~gone.all(1)).nonzero().squeeze(1)
    log_probs = torch.full((len(gone), count), torch.nan, dtype=torch.float64, device=gone.device)
    width = sum(int(lengths[0]) for lengths in pair.lengths)
    for words in readable.split(max(1, TOKENS_AT_ONCE // width)) if len(readable) else ():
        shorter = subject.without(pair, torch.zeros_like(words), gone[words])
        log_probs[words] = word_sums(shorter, subject.log_probs(shorter))
    return log_probs


@register
class Occlusion(Measure):
    """Occlusion: what a target word's log probability loses when a source word is left out.

    The word's tokens are taken out of the source, what follows them moves up, and the encoder reads what is left; the target
    and the other words' tokens stay as they are. In nats, signed; a reading for each source word.

    Source: Zeiler & Fergus 2014 for pictures; Alvarez-Melis & Jaakkola 2017 for translation.
    """

    name, cost, reads, needs = "occlusion", "tokens", "pairs", frozenset({"cross-attention"})
    columns = {
        "alignment_occlusion": Column(
            ("G", "T"),
            signed=True,
            unit="nats",
            undefined="where the source has this word alone and no marker",
            doc="log p of the target word less the same without the tokens of the source word",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        pairs = zip(word_sums(batch, subject.log_probs(batch)), removed_log_probs(subject, batch), strict=True)
        return {"alignment_occlusion": [numpy_of((own[: left.shape[1]] - left).T) for own, left in pairs]}


@register
class ValueZeroing(PairMeasure):
    """Value zeroing (Mohebbi et al. 2023): how far a decoder's layer turns a state when a source word's values are zeros.

    1 - cos of the results of each layer of the decoder with and without the word's values, zeros in all heads of
    cross-attention. A layer is given the states that the pair gives it, and weights are as they were; rows are not divided
    by their sums. Of a recurrent translator the result is what the output layer reads. A reading for each source word.

    Source: Mohebbi et al. 2023, section 3, for attention of a text over itself.
    """

    name, cost, needs = "value_zeroing", "tokens", frozenset({"layer results"})
    columns = {
        "alignment_value_zeroing": Column(
            ("L", "R", "G", "T"), range=(0.0, 2.0), doc="cosine distance of a layer's results without a source word's values"
        ),
    }

    @torch.no_grad()
    def of_pair(self, subject, pair):
        gone = of_sources(pair, 0).T > 0
        layers = [cosine_distances(without, own).T for own, without in subject.results_without(pair, gone)]
        means = torch.einsum("rgn,lnt->lrgt", of_targets(pair, 0), torch.stack(layers))
        return (numpy_of(means),)
