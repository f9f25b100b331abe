"""Occlusion: what a target word's log probability loses when a source word is left out."""

import torch

from attnfaith.alignment.removal import removed_log_probs
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.pairs import word_sums


@register
class Occlusion(Measure):
    """Occlusion: what a target word's log probability loses when a source word is left out.

    How much less probable a target word is without a source word; in nats, signed.

    The word's tokens are taken out of the source, what follows them moves up, and the encoder reads what is left; the target
    stays as it was. The other words' tokens stay as they are: the sentence is not divided anew. Once for each source word.

    Source: Zeiler & Fergus 2014 for pictures; Alvarez-Melis & Jaakkola 2017 for translation.
    """

    name, cost = "occlusion", "tokens"
    reads = "pairs"
    needs = frozenset({"cross-attention"})
    columns = {
        "alignment_occlusion": Column(
            ("G", "T"),
            signed=True,
            unit="nats",
            undefined="where the source has this word alone and no marker",
            doc="log p of the target word less the same without the tokens of the source word, the others moved up",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        whole, drops = word_sums(batch, subject.log_probs(batch)), []
        for own, without in zip(whole, removed_log_probs(subject, batch), strict=True):
            drops.append((own[: without.shape[1]] - without).T.float().cpu().numpy())
        return {"alignment_occlusion": drops}
