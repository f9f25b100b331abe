"""How many of a text's tokens share its weight, and how evenly: dispersion of attention or of any importance.

Shapes: N instances, T tokens of one instance. A column is a sequence of N one-dimensional rows of lengths T, different
from row to row. A row holds non-negative scores: attention, or an importance before or after it is divided by its sum.

Undefined, hence NaN: an empty row, one that is None or holds a NaN; for the entropy also fewer than two tokens, a row
of zeros and an infinite score.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import entr

from .columns import InputError
from .divergences import flatten


def normalised_entropy(rows: Sequence) -> np.ndarray:
    """Shannon entropy of each row over its maximum log T: 0 where one token has all, 1 where all have the same.

    rows: N rows of non-negative scores; each is divided by its sum, so their scale does not matter. Returns [N]
    float64 in 0..1, NaN for undefined rows (see the module). 0 log 0 = 0, and nothing is added inside the logarithm.

    Source: Meister et al. (2021), section 4. Raises ValueError naming the row that holds a negative score.

    >>> normalised_entropy([[0.5, 0.5, 0.0, 0.0], [3.0, 3.0], [1.0]]).tolist()
    [0.5, 1.0, nan]
    """
    flat, owner, lengths = _flat_rows(rows)
    largest = np.full(len(lengths), np.nan)
    if (filled := lengths > 0).any():
        largest[filled] = np.maximum.reduceat(flat, (np.cumsum(lengths) - lengths)[filled])
    with np.errstate(invalid="ignore", divide="ignore"):
        # over the largest first: neither the sum nor a share of it can then leave the range of floats
        shares = flat / largest[owner]
        total = np.bincount(owner, weights=shares, minlength=len(lengths))
        spread = np.bincount(owner, weights=entr(shares), minlength=len(lengths))
        # 0 / 0 below two tokens and for zeros
        return np.clip((np.log(total) + spread / total) / np.log(lengths), 0, 1)


def support_size(rows: Sequence) -> np.ndarray:
    """Tokens with a score above zero, per row: [N] float64 in 0..T, NaN for undefined rows (see the module).

    Raises ValueError naming the row that holds a negative score.

    >>> support_size([[0.5, 0.5, 0.0, 0.0], []]).tolist()
    [2.0, nan]
    """
    flat, owner, lengths = _flat_rows(rows)
    # NaN weighs NaN, so that its row is undefined
    size = np.bincount(owner, weights=np.where(np.isnan(flat), np.nan, flat > 0), minlength=len(lengths))
    return np.where(lengths > 0, size, np.nan)


def share_of_zeros(rows: Sequence) -> np.ndarray:
    """Share of tokens with a score of zero, per row: [N] float64 in 0..1, NaN for undefined rows (see the module).

    Raises ValueError naming the row that holds a negative score.

    >>> share_of_zeros([[0.5, 0.5, 0.0, 0.0], []]).tolist()
    [0.5, nan]
    """
    lengths = _flat_rows(rows)[2]
    return 1 - support_size(rows) / np.maximum(lengths, 1)


def _flat_rows(rows: Sequence) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Flat scores, the row that each belongs to, and the length of each row [N]."""
    flat, lengths = flatten(rows, "rows")
    owner = np.repeat(np.arange(len(lengths)), lengths)
    if len(places := np.flatnonzero(flat < 0)):
        place = places[0]
        raise InputError(
            f"row {owner[place]}: has the negative score {flat[place]:g}; dispersion is that of non-negative scores. "
            "Give their absolute values if their size is what is meant"
        )
    return flat, owner, lengths
