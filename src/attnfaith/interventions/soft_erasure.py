"""Soft erasure: parts of every token's embedding are erased, by chance and as a measure says (Zhao & Aletras 2023).

Shapes: B instances, L input positions, P those of attended tokens, T tokens (of hierarchical models sentences or words),
E embedding, M measures, K draws.
"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions import subsets
from attnfaith.measurement.options import Draws
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects.removal import TOKENS_AT_ONCE, item_places


@register
class SoftErasure(Measure):
    """Soft erasure: parts of every token's embedding are erased, by chance and as a measure says (Zhao & Aletras 2023).

    What the model says when embeddings are thinned out, most where a measure sees least (kept) or most (removed).

    Scores are brought to 0..1 by their least and largest in the text, q = (x - min) / (max - min). Of token t each element
    of the embedding stays with probability q_t (kept) or 1 - q_t (removed) and is 0 otherwise, independently; markers and a
    second text stay. Nothing is cut at a share, and texts keep their length. Of a signed measure the token with least
    evidence for the class, or most against it, has q = 0. All measures share the random numbers of a draw, and what is kept
    in a draw is just what is not removed in it.

    The numbers are for `normalised_sufficiency` and `normalised_comprehensiveness` of
    `metrics.attention_faithfulness.erasure_curves`, with the text of zero embeddings as the empty one. The measures are
    those of `scores`; without it attention alone. Undefined (NaN): constant scores, as of a text of one token; a NaN
    score; a text without tokens.

    Source: Zhao & Aletras 2023, section 3; of its ways to bring scores to 0..1, the one in the paper.

    Shapes: B instances, L input positions, P those of attended tokens, T tokens (of hierarchical models sentences or words),
    E embedding, M measures, K draws.
    """

    name, cost = "soft_erasure", "draws"
    needs = frozenset({"classes", "embeddings"})
    columns = {
        "soft_erasure_measures": Column(("M",), "string", doc="names of the measures by which embeddings are erased"),
        "soft_erasure_kept_probs": Column(
            ("M", "K"),
            "float64",
            undefined="the scores are constant or undefined, or the text is empty",
            doc="probability, 0..1, of the class predicted for the whole text when an element of a token's embedding "
            "stays with "
            "the token's score, of each draw",
        ),
        "soft_erasure_removed_probs": Column(
            ("M", "K"),
            "float64",
            undefined="the scores are constant or undefined, or the text is empty",
            doc="the same when an element stays with 1 - the token's score",
        ),
        "soft_erasure_whole_prob": Column((), "float64", range=(0.0, 1.0), doc="the same for the whole text"),
        "soft_erasure_empty_prob": Column(
            (), "float64", range=(0.0, 1.0), doc="the same when every token's embedding is zero"
        ),
    }

    draws: Draws = 10

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        given, probs = subsets.scores_of(subject, batch, scores), subsets.whole(subject, batch)
        where = item_places(subject, batch).cpu().numpy()
        columns: dict[str, list] = {name: [] for name in self.columns}
        for row, name in enumerate(batch["instance_id"]):
            shares = np.stack([_between_0_and_1(values[row]) for values in given.values()])
            predicted = int(probs[row].argmax())
            random = generator(seed, name, "soft_erasure")
            said = np.full((2, len(given), self.draws), np.nan)
            defined = np.flatnonzero(~np.isnan(shares).any(1) & (shares.shape[1] > 0))
            *said[:, defined], empty = _read_thinned(
                subject, batch.alone(row), where[row], shares[defined], self.draws, random, predicted
            )
            made = (list(given), *said, probs[row, predicted], empty)
            for column, value in zip(columns.values(), made, strict=True):
                column.append(value)
        return columns


def _between_0_and_1(values: np.ndarray) -> np.ndarray:
    """Scores (T,) by their least and largest, NaN where they are one value."""
    values = np.asarray(values, np.float64)
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return np.divide(values - low, high - low, out=np.full(len(values), np.nan), where=high > low)


def _read_thinned(subject, text, where, shares, draws, random, predicted):
    """Probabilities (M,K) kept and (M,K) removed, and of zero embeddings (), for one instance with shares (M,T)."""
    length = text["input_ids"].shape[1]
    embedded = subject.embed(text)[0]
    inside = where[:length] >= 0
    positions = torch.from_numpy(np.flatnonzero(inside)).to(embedded.device)
    numbers = random.random((draws, len(positions), embedded.shape[1]), np.float32)
    drawn = torch.from_numpy(numbers).to(embedded.device)
    likely = torch.from_numpy(shares[:, where[:length][inside]]).to(drawn)

    def read(kept: torch.Tensor) -> np.ndarray:
        """Probability of the predicted class (V,) where the elements kept (V,P,E) of the tokens are left."""
        thinned = embedded.expand(len(kept), -1, -1).clone()
        thinned[:, positions] *= kept.to(thinned.dtype)
        copies = text.take(torch.zeros(len(kept), dtype=torch.int64, device=embedded.device))
        return subject.predict(copies, thinned).double().softmax(-1)[:, predicted].cpu().numpy()

    step = max(1, TOKENS_AT_ONCE // max(1, length))
    probs = np.empty((2, len(shares) * draws))
    for start in range(0, len(shares) * draws, step):
        part = torch.arange(start, min(start + step, len(shares) * draws), device=drawn.device)
        kept = drawn[part % draws] < likely[part // draws].unsqueeze(-1)
        places = part.cpu().numpy()
        probs[0, places], probs[1, places] = read(kept), read(~kept)
    (empty,) = read(torch.zeros_like(drawn[:1]))
    return *probs.reshape(2, len(shares), draws), empty
