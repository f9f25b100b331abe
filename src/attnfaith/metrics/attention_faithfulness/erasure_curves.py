"""What erasing the tokens that an explanation ranks first does to a prediction, as numbers per instance.

p is the probability of the class that is predicted for the whole text: for the whole text, for the rationale alone
(kept), for the text without it (removed), for the text without any token (empty). Each of these comes from the model;
here is what is made of them.

Shapes: N instances, S shares of the tokens. A column of one number per instance is [N], of one per share [N, S].
Undefined, hence NaN: what a NaN goes into.
"""

from collections.abc import Sequence

import numpy as np

from .columns import InputError


BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares that ERASER averages over."""
NORMALISATIONS = ("eraser_code", "eraser_paper")


def comprehensiveness(whole: Sequence, removed: Sequence) -> np.ndarray:
    """p(whole) - p(removed) per share, [N, S] in -1..1: large where the model needed what was removed.

    whole [N], removed [N, S]. Raises ValueError where the shapes do not fit or a number is no probability.

    Source: DeYoung et al. (2020), section 4.2.

    >>> comprehensiveness([0.9], [[0.6, 0.1]]).round(12).tolist()
    [[0.3, 0.8]]
    """
    return _falls(whole, removed, "removed")


def sufficiency(whole: Sequence, kept: Sequence) -> np.ndarray:
    """p(whole) - p(kept) per share, [N, S] in -1..1: small, or negative, where the rationale alone was enough.

    whole [N], kept [N, S]. Raises ValueError as `comprehensiveness`. Source: the same.

    >>> sufficiency([0.9], [[0.6, 0.95]]).round(12).tolist()
    [[0.3, -0.05]]
    """
    return _falls(whole, kept, "kept")


def aopc(falls: Sequence, normalisation: str = "eraser_code") -> np.ndarray:
    """Area over the perturbation curve: falls of p [N, S] over shares, averaged to [N].

    normalisation: "eraser_code", the mean over the S shares, as ERASER's published code; "eraser_paper", their sum over
    S + 1, as its formula, which also counts the share 0 where nothing falls. With five shares the first is 6/5 of the
    second. Raises ValueError for another name, and without a share.

    Source: Samek et al. (2017); DeYoung et al. (2020), section 4.2 and its code.

    >>> [round(float(aopc([[0.3, 0.6]], name)[0]), 6) for name in NORMALISATIONS]
    [0.45, 0.3]
    """
    falls = np.asarray(falls, np.float64)
    if normalisation not in NORMALISATIONS:
        raise InputError(f"normalisation is {normalisation!r}; choose one of {', '.join(NORMALISATIONS)}")
    if falls.ndim != 2 or not falls.shape[1]:
        raise InputError(f"falls have shape {falls.shape}; give [N, S], a number for each of one share or more")
    return falls.sum(1) / (falls.shape[1] + (normalisation == "eraser_paper"))


def normalised_sufficiency(whole: Sequence, kept: Sequence, empty: Sequence) -> np.ndarray:
    """(S(kept) - S(empty)) / (1 - S(empty)) with S(r) = 1 - max(0, p(whole) - p(r)), per share, [N, S], at most 1.

    1: the rationale alone loses nothing; 0: no better than no text; below 0: worse than none. Undefined where the empty
    text loses nothing (p(empty) >= p(whole)): there is nothing to be sufficient for. Nothing is cut off at 0.

    whole, empty [N], kept [N, S]. Raises ValueError as `comprehensiveness`. Source: Carton et al. (2020), section 3.

    >>> normalised_sufficiency([0.9], [[0.9, 0.7, 0.3]], [0.5]).round(12).tolist()
    [[1.0, 0.5, -0.5]]
    """
    return 1 - _relative_falls(whole, kept, "kept", empty)


def normalised_comprehensiveness(whole: Sequence, removed: Sequence, empty: Sequence) -> np.ndarray:
    """max(0, p(whole) - p(removed)) / (1 - S(empty)) per share, S as above: [N, S], at least 0.

    1: removing the rationale loses as much as removing all; above 1: more. Undefined where the empty text loses
    nothing.

    whole, empty [N], removed [N, S]. Raises ValueError as `comprehensiveness`. Source: Carton et al. (2020), section 3.

    >>> normalised_comprehensiveness([0.9], [[0.7, 0.3, 0.95]], [0.5]).round(12).tolist()
    [[0.5, 1.5, 0.0]]
    """
    return _relative_falls(whole, removed, "removed", empty)


def area_under_curve(shares: Sequence, probs: Sequence, first: Sequence, last: Sequence) -> np.ndarray:
    """Area [N] in 0..1, by trapezoids, under p drawn over the share of tokens from 0 to 1.

    shares: the shares that probs [N, S] belong to, increasing within 0..1: [S], or [N, S] where the tokens in fact
    erased make up other shares (a hundredth of ten tokens is a tenth). Equal ones count nothing. first, last [N]: p at
    the shares 0 and 1. Deletion: `removed` from `whole` to `empty`, small is good. Insertion: `kept` from `empty` to
    `whole`, large is good. Raises ValueError where the shapes do not fit, a number is no probability or shares fall.

    Source: Petsiuk et al. (2018), section 3.3, on pixels.

    >>> area_under_curve([0.5], [[0.2]], first=[1.0], last=[0.0]).round(12).tolist()
    [0.35]
    """
    first, probs = _checked(first, probs, "probs")
    last, _ = _checked(last, probs, "probs")
    shares = np.broadcast_to(np.asarray(shares, np.float64), probs.shape)
    ends = np.zeros((len(probs), 1)), np.ones((len(probs), 1))
    widths = np.diff(np.concatenate([ends[0], shares, ends[1]], axis=1), axis=1)
    if (falling := (widths < 0).any(1)).any():
        row = int(falling.argmax())
        raise InputError(f"row {row}: shares are {shares[row].tolist()}; give increasing ones within 0..1")
    heights = np.concatenate([first[:, None], probs, last[:, None]], axis=1)
    return (widths * (heights[:, 1:] + heights[:, :-1])).sum(1) / 2


def erasure_results(whole: Sequence, kept: Sequence, removed: Sequence, empty: Sequence) -> dict[str, np.ndarray]:
    """All numbers per instance that need no share: each [N] float64, NaN where undefined.

    sufficiency_aopc, comprehensiveness_aopc (mean over the shares: "eraser_code"), the same ending in "_paper",
    normalised_sufficiency, normalised_comprehensiveness (means over the shares). Arguments and errors as above.
    """
    falls = {"sufficiency": sufficiency(whole, kept), "comprehensiveness": comprehensiveness(whole, removed)}
    numbers = {f"{name}_aopc": aopc(values) for name, values in falls.items()}
    numbers |= {f"{name}_aopc_paper": aopc(values, "eraser_paper") for name, values in falls.items()}
    numbers["normalised_sufficiency"] = normalised_sufficiency(whole, kept, empty).mean(1)
    numbers["normalised_comprehensiveness"] = normalised_comprehensiveness(whole, removed, empty).mean(1)
    return numbers


def _falls(whole: Sequence, changed: Sequence, name: str) -> np.ndarray:
    whole, changed = _checked(whole, changed, name)
    return whole[:, None] - changed


def _relative_falls(whole: Sequence, changed: Sequence, name: str, empty: Sequence) -> np.ndarray:
    """max(0, fall) over max(0, fall of the empty text), [N, S]."""
    falls = np.maximum(_falls(whole, changed, name), 0)
    whole, empty = np.asarray(whole, np.float64), np.asarray(empty, np.float64)
    all_falls = np.maximum(_falls(whole, empty[:, None], "empty"), 0)
    return np.divide(falls, all_falls, out=np.full(falls.shape, np.nan), where=all_falls > 0)


def _checked(one: Sequence, each: Sequence, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [N] and [N, S] as float64; raises ValueError where they are none."""
    one, each = np.asarray(one, np.float64), np.asarray(each, np.float64)
    if one.ndim != 1 or each.ndim != 2 or len(one) != len(each):
        raise InputError(f"{name} has shape {each.shape} beside {one.shape}; give [N, S] beside [N] for N instances")
    for values in (one[:, None], each):
        if (bad := ((values < 0) | (values > 1)).any(1)).any():
            row = int(bad.argmax())
            wrong = values[row][(values[row] < 0) | (values[row] > 1)][0]
            raise InputError(f"row {row}: {wrong:g} is no probability; give p of the predicted class, in 0..1")
    return one, each
