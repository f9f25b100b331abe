"""Uniform importance: the floor that says nothing, the same for every token."""

import numpy as np

from attnfaith.importance._inputs import token_counts
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {"importance_uniform": Column(("T",), range=(0.0, None), doc="1 / T for each of T tokens")}
NEEDS: frozenset[str] = frozenset()
COST = "nothing"


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """1 / T. All ranks are tied: rank correlations with it are undefined, and what cuts at k falls back on position."""
    lengths = token_counts(subject, batch)
    return {"importance_uniform": [np.full(length, 1 / max(1, length), np.float32) for length in lengths]}
