"""ALTI of translators (Ferrando et al. 2022): how near each source word brings a decoder's state, in a block and in all."""

import torch

from attnfaith.importance.context_mixing import nearness, shares
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.pairs import by_words


@register
class ALTI(Measure):
    """ALTI of translators (Ferrando et al. 2022): how near each source word brings a decoder's state, in a block and in all.

    How much of a source word a decoder's states take, by distances to the vectors that are summed; shares, 0..1.

    y_i is the decoder's state after cross-attention, its residual connection and, where it follows these, the norm; T_i(j)
    what source token j adds, through that norm with its scale held, and T_i(0) what the state before adds.
    c_ij = max(0, |y_i| - |y_i - T_i(j)|) in L1, divided by the row's sum over all j, 0 too. What lies on markers and on the
    state before is left out, so that a row sums to less than 1.

    In total: E is the product of the encoder's matrices of such shares; of each layer of the decoder, P are the shares of
    target positions in a state after attention to the target, C those of the source and d of the state before in one after
    cross-attention. Of the source, S_l = C_l E + d_l P_l S_(l-1), from S_0 = 0: the rest of a row is the target's so far.
    The vectors of feed-forward parts are nobody's. Pairs are read alone.

    Source: Ferrando et al. 2022, Towards Opening the Black Box of Neural Machine Translation, sections 3.1 to 3.3.
    """

    name, cost = "alti", "reading"
    reads = "pairs"
    needs = frozenset({"cross parts"})
    columns = {
        "alignment_alti": Column(
            ("L", "R", "G", "T"),
            range=(0.0, 1.0),
            doc="share of a source word in a state after cross-attention: how much of it, in L1, the vectors of its tokens "
            "account for, over what all source tokens and the state before account for",
        ),
        "alignment_alti_total": Column(
            ("R", "G", "T"),
            range=(0.0, 1.0),
            doc="share of a source word in the decoder's last layer: the same of all blocks, multiplied through encoder "
            "and decoder",
            needs=frozenset({"stacked parts"}),
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        stacked = "stacked parts" in subject.capabilities
        made = {name: [] for name in self.columns_for(subject)}
        for row in range(len(batch)):
            pair = batch.alone(row)
            encoder, decoder = subject.stacked_parts(pair) if stacked else ([], [])
            blocks = [cross for _, cross in decoder] if stacked else subject.cross_parts(pair)
            crossed = [shares(nearness(block)) for block in blocks]
            made["alignment_alti"] += by_words(pair, torch.stack(crossed)[None, ..., :-1])
            if stacked:
                total = _total(encoder, [target for target, _ in decoder], crossed)
                made["alignment_alti_total"] += by_words(pair, total.unsqueeze(0))
        return made


def _total(encoder: list, targets: list, crossed: list[torch.Tensor]) -> torch.Tensor:
    """(N,S): the shares of source positions in the decoder's last states; crossed: those (N,S+1) in each cross-attention."""
    source = None
    for layer in encoder:
        matrix = shares(nearness(layer))
        source = matrix if source is None else matrix @ source
    total = None
    for target, of_cross in zip(targets, crossed, strict=True):
        entering = of_cross[:, :-1] @ source
        before = 0 if total is None else of_cross[:, -1:] * (shares(nearness(target)) @ total)
        total = entering + before
    return total
