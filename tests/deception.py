"""Records of honest and of deceiving models with chosen attention and importance."""

from functools import lru_cache

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cells import Cell, split_cells
from tests.records import of_rows


EXTRA = {
    "impermissible": records.OPTIONAL_COLUMNS["impermissible"],
    "importance_gradient": records.Column(("T",)),
    "permuted_probs": records.Column(("K", "C"), distribution=True),
    "minimal_flip_size": records.Column(),
}


@lru_cache(maxsize=64)
def model(seed, weight=0.0, *, deceit=0.0, doubt=0.0, texts=60, accuracy=0.8, **fields) -> Cell:
    """A cell of two classes; the first text is empty, the second of one token, the third without a marked word.

    weight: of the penalty, as its identity says. deceit: how far the scores of the marked words, which the importance ranks
    first, are lowered in attention. doubt: taken from the log-odds of its predictions, and so from what permuting changes.
    """
    own, of_texts = np.random.default_rng([seed, int(1000 * weight)]), np.random.default_rng(3)
    identity = {"dataset": "sst_wiki", "texts": "abc", "training_texts": "def", "split": "test", "seed": seed, **fields}
    if weight:
        identity |= {"impermissible_mass": weight, "impermissible_heads": "mean"}
    rows = []
    for number in range(texts):
        length = number if number < 2 else int(of_texts.integers(6, 16))
        marks = (of_texts.random(length) < 0.4) * (number != 2)
        hard, label = of_texts.normal(), int(of_texts.random() < 0.5)
        log_importance = of_texts.normal(size=length) + 2 * marks
        scores = log_importance - deceit * marks + 0.5 * own.normal(size=length)
        weights = np.exp(scores - scores.max(initial=0))
        probability = 1 / (1 + np.exp(-abs(2.5 + hard + 0.3 * own.normal() - doubt)))
        right = own.random() < accuracy
        probs = [1 - probability, probability] if (label == 1) == right else [probability, 1 - probability]
        permuted = [0.5 + (probability - 0.5) * 0.8, 0.5 - (probability - 0.5) * 0.8]
        rows.append(
            {
                "instance_id": f"sst_wiki/test/{number:03d}",
                "tokens": [f"word{place}" for place in range(length)],
                "label": label,
                "truncated": False,
                "probs": probs,
                "attention": weights / weights.sum() if length else [],
                "impermissible": marks.astype(bool).tolist(),
                "importance_gradient": np.exp(log_importance + 0.5 * own.normal(size=length)),
                "permuted_probs": [permuted if probs[0] > 0.5 else permuted[::-1]] if length > 1 else [],
                "minimal_flip_size": float(own.integers(1, length + 1)) if length > 1 and number % 5 else np.nan,
            }
        )
    return split_cells(of_rows(records.Identity(**identity), rows, EXTRA))[0]


def shuffled(cell, seed=0):
    """The same cell with its rows in another order."""
    places = np.random.default_rng(seed).permutation(len(cell))
    return Cell(cell.identity, cell.table.take(pa.array(places)))
