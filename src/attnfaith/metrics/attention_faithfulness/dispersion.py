"""How many of a text's tokens share its weight, and how evenly: dispersion of attention or of any importance.

Shapes: N instances. A column holds N rows of non-negative scores, one a token. Undefined, hence NaN: an empty row, one that
is None or holds a NaN; for the entropy also fewer than two tokens, a row of zeros and an infinite score. A negative score
raises InputError.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import entr

from .columns import Layout, check_values, flatten


def normalised_entropy(rows: Sequence) -> np.ndarray:
    """Return the Shannon entropy of each row, divided by its sum, over its maximum log T: [N] in 0..1.

    0 where one token has all, 1 where all have the same; 0 log 0 = 0. Source: Meister et al. (2021), section 4.
    """
    scores, layout = _scores(rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = scores / layout.max(scores)[layout.owner]  # so that no sum leaves the range of floats
        total = layout.sum(shares)
        return np.clip((np.log(total) + layout.sum(entr(shares)) / total) / np.log(layout.lengths), 0, 1)


def support_size(rows: Sequence) -> np.ndarray:
    """Return the tokens with a score above zero, per row: [N] float64 in 0..T."""
    scores, layout = _scores(rows)
    size = layout.sum(np.where(np.isnan(scores), np.nan, scores > 0))
    return np.where(layout.lengths > 0, size, np.nan)


def share_of_zeros(rows: Sequence) -> np.ndarray:
    """Return the share of tokens with a score of zero, per row: [N] float64 in 0..1."""
    return 1 - support_size(rows) / np.maximum(_scores(rows)[1].lengths, 1)


def _scores(rows: Sequence) -> tuple[np.ndarray, Layout]:
    scores, layout = flatten(rows, "rows")
    check_values(scores, layout, "rows", scores >= 0, "dispersion needs non-negative scores, such as their absolute values")
    return scores, layout
