"""Uniform importance: the floor that says nothing, the same for every token."""

import numpy as np

from attnfaith.importance._inputs import token_counts
from attnfaith.record import Column


COLUMNS = {"importance_uniform": Column(("T",), range=(0.0, None), doc="1 / T for each of T tokens")}


def measure(model, batch, *, seed: int = 0) -> dict[str, list]:
    """1 / T. All ranks are tied: rank correlations with it are undefined, and what cuts at k falls back on position."""
    return {"importance_uniform": [np.full(length, 1 / max(1, length), np.float32) for length in token_counts(model, batch)]}
