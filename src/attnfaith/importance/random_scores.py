"""Random importance: a floor that every measure must beat."""

import numpy as np

from attnfaith.draws import generator
from attnfaith.importance._inputs import token_counts
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {"importance_random": Column(("T",), doc="a number drawn uniformly from 0..1 for each token")}
NEEDS: frozenset[str] = frozenset()
COST = "nothing"


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """Independent uniform numbers, which know nothing of the text; the stream of an instance is its own (`generator`)."""
    scores = [
        generator(seed, name, "random_scores").random(length, np.float32)
        for name, length in zip(batch["instance_id"], token_counts(subject, batch), strict=True)
    ]
    return {"importance_random": scores}
