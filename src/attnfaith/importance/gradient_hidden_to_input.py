"""What an encoder's states are made of: how the length of each state depends on each token (Meister et al. 2021, eq. 5)."""

import math

import numpy as np
import torch

from attnfaith.importance._inputs import token_counts
from attnfaith.importance.state_lengths import norms_of_states
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "hidden_to_input_entropy": Column(
        ("T",),
        range=(0.0, 1.0),
        undefined="where the row is, and for a text of one token",
        doc="normalised entropy of the row of g of a state",
    ),
    "hidden_to_input_own": Column(
        ("T",), range=(0.0, 1.0), undefined="where the row is undefined", doc="share of a state's own token in its row of g"
    ),
    "hidden_to_input": Column(
        ("K", "T"),
        undefined="where a state depends on no token",
        doc="the rows of g, state by token, each summing to 1; K = T, 0 if not kept",
    ),
}
NEEDS = frozenset({"layers"})
COST = "tokens"


def check(*, keep_rows: bool = False) -> None:
    """Raises ValueError unless keep_rows is true or false."""
    if not isinstance(keep_rows, bool):
        raise ValueError(f"keep_rows={keep_rows!r}; give true to keep T x T numbers of each text, or false")


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0, keep_rows: bool = False) -> dict[str, list]:
    """How spread out over the text's tokens what a state encodes is, for every state.

        g_p(i) = ||d ||h_p||_2 / d x_i||_2 / sum_k ||d ||h_p||_2 / d x_k||_2

    for state p and the embedding x_i of token i; p, i and k run over the attendable tokens. Of each row of g: its entropy
    over log T, and g_p(p). A row is undefined where all its gradients are 0: a state of length 0, or one that depends on no
    token. The second text of a pair does not reach the states and is not counted. Of a hierarchical model p, i and k are
    sentences, h_p a sentence's state and x_i the embeddings of all its words as one vector; at its word level p, i and k are
    all words of the document, and a word's state depends on those of its sentence alone.

    Gradients are taken in float32, where those below about 1e-19 become 0. Time grows with T^2; memory
    with T (and T x T numbers for one text at a time where an encoder mixes all tokens, or rows are kept). Raises ValueError
    as `check` says.

    Source: Meister et al. 2021, eq. 5 and Table 1.
    """
    check(keep_rows=keep_rows)
    lengths = token_counts(subject, batch)
    entropy, own = ([np.full(length, np.nan, np.float32) for length in lengths] for _ in range(2))
    rows = [np.empty((length if keep_rows else 0, length), np.float32) for length in lengths]
    for texts, states, of_states in norms_of_states(subject, batch):
        shares = of_states.double()
        shares = shares / shares.sum(-1, keepdim=True)  # 0 / 0 is NaN
        spread = torch.special.entr(shares).sum(-1).div(math.log(shares.shape[-1])).clamp(0, 1).cpu().numpy()
        kept = shares.diagonal(states.start, 1, 2).cpu().numpy()
        for place, text in enumerate(texts):
            entropy[text][states], own[text][states] = spread[place], kept[place]
            if keep_rows:
                rows[text][states] = shares[place].cpu().numpy()
    return dict(zip(COLUMNS, (entropy, own, rows), strict=True))


@asks(NEEDS)
def sensitivities(subject, batch) -> list[np.ndarray]:
    """One array (T,T) per instance: ||d ||h_p||_2 / d x_i||_2 of state p (row) in token i (column), attendable ones."""
    norms_of = [np.empty((length, length), np.float32) for length in token_counts(subject, batch)]
    for texts, states, of_states in norms_of_states(subject, batch):
        for text, values in zip(texts, of_states.cpu().numpy(), strict=True):
            norms_of[text][states] = values
    return norms_of
