"""Knock-out: what a target word loses without the source word that attention points to, and without another one."""

import numpy as np
import torch

from attnfaith.alignment.removal import removed_log_probs
from attnfaith.draws import generator
from attnfaith.interventions.outcomes import outcomes
from attnfaith.measurement.options import DecoderLayer
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.attention import Edit
from attnfaith.subjects.pairs import by_words, of_sources


_ALL = "where no weight is left in some row"
_ALONE = "where the source has one word"


class KnockedOut(Edit):
    """Weights at places gone (n,N,S) bool are 0, and the rest of the row is divided by its sum."""

    per_copy = {"gone": "NS"}

    def __init__(self, gone: torch.Tensor):
        self.gone = gone

    def weights(self, layer, weights, rows):
        gone = self.gone[:, None, rows]
        left = weights.masked_fill(gone, 0.0)
        return torch.where(gone.any(3, keepdim=True), left / left.sum(3, keepdim=True).clamp(min=1e-30), weights)


@register
class KnockOut(Measure):
    """Knock-out: what a target word loses without the source word that attention points to, and without another one.

    What is left of a target word's probability when its best source word is taken away: from attention, and altogether.

    The best word has the largest weight in the rows that predict the target word, mean over heads and, where layer is None,
    over layers. It is knocked out for one target word at a time, in all layers, whatever `layer` is. Beside it stands
    another source word, drawn at random, since any word may be missed.

    Source: Serrano & Smith 2019, section 4, for single weights of a classifier.
    """

    name, cost = "knock_out", "tokens"
    reads = "pairs"
    needs = frozenset({"cross-attention"})
    columns = {
        "knock_out_best": Column(
            ("G",), "int64", doc="the source word with the largest weight, from 0 on; of equals the first"
        ),
        "knock_out_other": Column(("G",), "int64", doc="another source word, drawn at random; -1 where there is none"),
        "knock_out_probs": Column(
            ("G",),
            range=(0.0, 1.0),
            undefined=_ALL,
            doc="probability of the target word where that best word's weight is 0 and the rest is divided by its sum, in "
            "all "
            "heads and layers of the rows that predict the target word",
        ),
        "knock_out_tvd": Column(
            ("G",),
            range=(0.0, 1.0),
            undefined=_ALL,
            doc="total variation distance of the next token's distribution from the model's own, mean over the word's "
            "tokens",
        ),
        "knock_out_other_probs": Column(
            ("G",), range=(0.0, 1.0), undefined=f"{_ALL}; {_ALONE}", doc="the same of the other word"
        ),
        "knock_out_other_tvd": Column(
            ("G",), range=(0.0, 1.0), undefined=f"{_ALL}; {_ALONE}", doc="the same of the other word"
        ),
        "knock_out_removed_probs": Column(
            ("G",),
            range=(0.0, 1.0),
            undefined="where nothing is left to read",
            doc="probability of the target word where the best word is left out of the source, as `occlusion` does",
        ),
        "knock_out_other_removed_probs": Column(
            ("G",), range=(0.0, 1.0), undefined=_ALONE, doc="the same of the other word"
        ),
    }

    layer: DecoderLayer = None

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        columns = {name: [] for name in self.columns}
        for row, (name, removed) in enumerate(zip(batch["instance_id"], removed_log_probs(subject, batch), strict=True)):
            pair = batch.alone(row)
            best = _best(subject, pair, self.layer)
            other = _others(best, pair.words[0][0], generator(seed, name, "knock_out"))
            columns["knock_out_best"].append(best)
            columns["knock_out_other"].append(other)
            for words, ending in ((best, ""), (other, "other_")):
                probs, distances = _knocked_out(subject, pair, words)
                columns[f"knock_out_{ending}probs"].append(probs)
                columns[f"knock_out_{ending}tvd"].append(distances)
                left = removed.cpu().numpy()[words, np.arange(len(words))]
                columns[f"knock_out_{ending}removed_probs"].append(
                    np.where(words < 0, np.nan, np.exp(left)).astype(np.float32)
                )
        return columns


def _best(subject, pair, layer: int | None) -> np.ndarray:
    (weights,) = by_words(pair, subject.attention(pair).mean(2))
    if layer is not None and layer >= len(weights):
        raise ValueError(f"layer={layer}: the decoder has {len(weights)} layers, counted from 0")
    predicting = weights[:, 0].mean(0) if layer is None else weights[layer, 0]
    return predicting.argmax(1)


def _others(best: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    if count < 2:
        return np.full_like(best, -1)
    return (best + random.integers(1, count, len(best))) % count


def _knocked_out(subject, pair, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability and distance (G,), of each target word without the weight of the source word `words` (G,); NaN for -1."""
    of_source, count = of_sources(pair, 0).T > 0, len(words)
    chosen = torch.from_numpy(words).to(of_source.device)
    rows = pair["target_words"] == torch.arange(count, device=of_source.device).unsqueeze(1)
    gone = rows.unsqueeze(2) & of_source[chosen].unsqueeze(1) & (chosen >= 0)[:, None, None]
    log_probs, distances = outcomes(subject, pair, KnockedOut(gone), count)
    kept = (subject.attention(pair)[0].unsqueeze(0) * ~gone[:, None, None]).sum(5 - 1)  # (G,L,A,N)
    empty = ((kept <= 0) & gone.any(2)[:, None, None]).flatten(1).any(1) | (chosen < 0)
    own = torch.arange(count)
    probs, apart = log_probs.exp().cpu()[own, own], distances[own, own]
    undefined = empty.cpu()
    return tuple(torch.where(undefined, torch.nan, one).float().numpy() for one in (probs, apart))
