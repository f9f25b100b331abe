"""What a prediction loses when the tokens that an explanation ranks first are erased, or are all that is left.

All probabilities are of the class that is predicted for the whole text: p of the whole text, of the rationale alone (kept),
of the text without it (removed), and of the text without any token (empty).

Shapes: N instances, S shares of the tokens. whole and empty are [N]; kept and removed are [N, S]. A NaN makes what depends
on it NaN. Shapes that do not fit and numbers that are no probabilities raise InputError.
"""

from collections.abc import Sequence

import numpy as np

from .columns import InputError


BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares that ERASER averages over."""


def falls(whole: Sequence, probs: Sequence) -> np.ndarray:
    """Return p(whole) - probs per share, [N, S] in -1..1: of removed the comprehensiveness, of kept the sufficiency.

    Comprehensiveness is large where the model needed what was removed; sufficiency is small, or negative, where the
    rationale alone was enough. Source: DeYoung et al. (2020), section 4.2.
    """
    whole, probs = _probabilities(whole, probs, "probs")
    return whole[:, None] - probs


def aopc(losses: Sequence) -> np.ndarray:
    """Return the area over the perturbation curve: the mean over shares of `falls` [N, S], [N].

    So ERASER's code has it; its formula takes the sum over S + 1. Source: Samek et al. (2017); DeYoung et al. (2020).
    """
    losses = np.asarray(losses, np.float64)
    if losses.ndim != 2 or not losses.shape[1]:
        raise InputError(f"falls have shape {losses.shape}; give [N, S], a number for each of one share or more")
    return losses.mean(1)


def normalised_falls(whole: Sequence, probs: Sequence, empty: Sequence) -> np.ndarray:
    """Return the falls (none below 0) over that of the empty text, per share, [N, S], at least 0.

    Of removed the normalised comprehensiveness: 1 where removing the rationale loses as much as removing all. 1 less that
    of kept is the normalised sufficiency: 1 where the rationale alone loses nothing, 0 where it is no better than no text.
    Undefined where the empty text loses nothing (p(empty) >= p(whole)). Source: Carton et al. (2020), section 3.
    """
    largest = np.maximum(falls(whole, np.asarray(empty, np.float64)[:, None]), 0)
    losses = np.maximum(falls(whole, probs), 0)
    return np.divide(losses, largest, out=np.full(losses.shape, np.nan), where=largest > 0)


def area_under_curve(shares: Sequence, probs: Sequence, first: Sequence, last: Sequence) -> np.ndarray:
    """Return the area under p drawn over the share of tokens from 0 to 1, by trapezoids, [N] in 0..1.

    shares: the increasing shares that probs [N, S] belong to: [S], or [N, S] where the tokens in fact erased make up other
    shares (a hundredth of ten tokens is a tenth). first, last [N]: p at the shares 0 and 1. Deletion: `removed` from `whole`
    to `empty`, small is good. Insertion: `kept` from `empty` to `whole`, large is good.

    Source: Petsiuk et al. (2018), section 3.3, on pixels.
    """
    first, probs = _probabilities(first, probs, "probs")
    last, _ = _probabilities(last, probs, "probs")
    shares = np.broadcast_to(np.asarray(shares, np.float64), probs.shape)
    edges = np.concatenate([np.zeros((len(probs), 1)), shares, np.ones((len(probs), 1))], axis=1)
    for row in np.flatnonzero((np.diff(edges) < 0).any(1)):
        raise InputError(f"row {row}: shares are {shares[row].tolist()}; give increasing ones within 0..1")
    return np.trapezoid(np.concatenate([first[:, None], probs, last[:, None]], axis=1), edges)


def erasure_results(whole: Sequence, kept: Sequence, removed: Sequence, empty: Sequence) -> dict[str, np.ndarray]:
    """Return the means over the shares of sufficiency and comprehensiveness, plain and normalised, [N] float64 each."""
    return {
        "sufficiency_aopc": aopc(falls(whole, kept)),
        "comprehensiveness_aopc": aopc(falls(whole, removed)),
        "normalised_sufficiency": (1 - normalised_falls(whole, kept, empty)).mean(1),
        "normalised_comprehensiveness": normalised_falls(whole, removed, empty).mean(1),
    }


def _probabilities(single: Sequence, shares: Sequence, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [N] and [N, S] as float64."""
    single, shares = np.asarray(single, np.float64), np.asarray(shares, np.float64)
    if single.ndim != 1 or shares.ndim != 2 or len(single) != len(shares):
        raise InputError(f"{name} has shape {shares.shape} beside {single.shape}; give [N, S] beside [N] for N instances")
    for values in (single[:, None], shares):
        for row, column in np.argwhere((values < 0) | (values > 1)):
            raise InputError(f"row {row}: {values[row, column]:g} is no probability; give p of the predicted class, in 0..1")
    return single, shares
