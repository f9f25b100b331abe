"""Cross-attention as an alignment: its weights, the vectors that it adds (norm), and the states that these make (ALTI)."""

import torch

from attnfaith.alignment import PairMeasure
from attnfaith.importance.context_mixing import nearness
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.layers import rows_at_once
from attnfaith.subjects.translator import by_words, numpy_of, of_targets


@register
class Attention(Measure):
    """Cross-attention itself, by layer and head, in the row that predicts a target word and in that in which it is the
    input.

    The weights as the model uses them. Models differ in which row shows what a target word was made of, so both are there.

    Source: Bahdanau et al. 2015, section 3.1; Garg et al. 2019, section 4, for the two rows.
    """

    name, reads, needs = "attention", "pairs", frozenset({"cross-attention"})
    columns = {
        "alignment_attention": Column(
            ("L", "A", "R", "G", "T"), range=(0.0, 1.0), doc="weight of a source word's tokens, mean over the target's"
        ),
        "alignment_attention_mean": Column(("L", "R", "G", "T"), range=(0.0, 1.0), doc="its mean over the heads of a layer"),
        "alignment_marker_mass": Column(("L", "A", "R", "G"), range=(0.0, 1.0), doc="weight of the source's markers"),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        weights = subject.attention(batch)
        words = by_words(batch, weights)
        markers = (batch["source_words"] < 0) & (batch["attention_mask"] == 1)
        masses = []
        for row, mass in enumerate((weights.double() * markers[:, None, None, None]).sum(-1)):
            masses.append(numpy_of(torch.einsum("rgn,lan->larg", of_targets(batch, row), mass)))
        means = [values.mean(1) for values in words]
        return {"alignment_attention": words, "alignment_attention_mean": means, "alignment_marker_mass": masses}


@register
class Norm(PairMeasure):
    """The length of what each source word adds to a decoder's state (Kobayashi et al. 2020).

    ||sum over heads of a f(h)||_2 of a source token's weight a and its state h, f the values' projection to the decoder's
    states without its bias; summed over a source word's tokens, the mean over those of the target word. A small weight on a
    long vector may be more than a large one on a short. Of a recurrent translator f is what the output layer makes of a
    context.

    Source: Kobayashi et al. 2020, section 2.2 and, for alignment, section 5.
    """

    name, needs = "norm", frozenset({"cross vectors"})
    columns = {
        "alignment_norm": Column(
            ("L", "R", "G", "T"), range=(0.0, None), doc="length of what a source word adds to the decoder's state"
        ),
    }

    @torch.no_grad()
    def of_pair(self, subject, pair):
        return tuple(by_words(pair, torch.stack([_lengths(*layer) for layer in subject.vectors(pair)]).unsqueeze(0)))


def _lengths(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """(N,S): weights (A,N,S) and projected values (A,S,E) to lengths of their products, summed over heads."""
    parts = []
    for rows in rows_at_once(torch.arange(weights.shape[1], device=weights.device), values[0]):
        vectors = torch.bmm(weights[:, rows].permute(2, 1, 0), values.transpose(0, 1))
        parts.append(torch.linalg.vector_norm(vectors, dim=2).T)
    return torch.cat(parts)


@register
class ALTI(PairMeasure):
    """ALTI of translators (Ferrando et al. 2022): how near each source word brings a decoder's state, in a block and in all.

    y_i is the decoder's state after cross-attention, its residual connection and, where it follows these, the norm; T_i(j)
    what source token j adds, through that norm with its scale held, and T_i(0) what the state before adds. c_ij = max(0,
    |y_i| - |y_i - T_i(j)|) in L1, divided by the row's sum over all j, 0 too. The shares of markers and of the state before
    are left out. In total: E is the product of the encoder's matrices of such shares; of each layer of the decoder, P are
    the shares of target positions in a state after attention to the target, C those of the source and d of the state before
    in one after cross-attention. Of the source, S_l = C_l E + d_l P_l S_(l-1), from S_0 = 0: the rest of a row is the
    target's so far.
    The vectors of feed-forward parts belong to no word.

    Source: Ferrando et al. 2022, Towards Opening the Black Box of Neural Machine Translation, sections 3.1 to 3.3.
    """

    name, needs = "alti", frozenset({"stacked parts"})
    columns = {
        "alignment_alti": Column(
            ("L", "R", "G", "T"),
            range=(0.0, 1.0),
            doc="share of a source word in a state after cross-attention, in L1; the rest is the state before",
        ),
        "alignment_alti_total": Column(
            ("R", "G", "T"),
            range=(0.0, 1.0),
            doc="share of a source word in the decoder's last layer: the shares of all blocks, multiplied",
        ),
    }

    @torch.no_grad()
    def of_pair(self, subject, pair):
        encoder, decoder = subject.stacked_parts(pair)
        crossed = [nearness(cross) for _, cross in decoder]
        total = _total(encoder, [target for target, _ in decoder], crossed)
        by_block = torch.stack(crossed)[None, ..., :-1]
        return *by_words(pair, by_block), *by_words(pair, total.unsqueeze(0))


def _total(encoder: list, targets: list, crossed: list[torch.Tensor]) -> torch.Tensor:
    """(N,S): the shares of source positions in the decoder's last states; crossed: those (N,S+1) in each cross-attention."""
    source = None
    for layer in encoder:
        matrix = nearness(layer)
        source = matrix if source is None else matrix @ source
    total = None
    for target, cross in zip(targets, crossed, strict=True):
        before = 0 if total is None else cross[:, -1:] * (nearness(target) @ total)
        total = cross[:, :-1] @ source + before
    return total
