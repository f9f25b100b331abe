"""How far an explanation points at the tokens that people, or a generator, marked as evidence.

Scores are compared as a ranking (`average_precision`, `trapezoid_auprc`), or are first cut to a rationale of so many
tokens (`top_tokens`), which is compared token by token (`token_f1`) and span by span (`span_iou`).

Shapes: N instances, T tokens of one instance. A column is a sequence of N one-dimensional rows of lengths T. Rationales
hold 0 and 1. Undefined, hence NaN: a row that is None, empty or holds a NaN, and one with no token marked; for rankings
also one with every token marked, for which any ranking is right.

Plausible is not faithful: agreement with people says nothing of what a model used (Jacovi & Goldberg, 2020).
"""

from collections.abc import Sequence

import numpy as np

from .columns import InputError, check_share
from .divergences import flatten_pair
from .rank_agreement import auprc


MATCH = 0.5
"""Least intersection over union at which two spans match, as in ERASER."""


def average_precision(scores: Sequence, rationale: Sequence) -> np.ndarray:
    """Sum over thresholds of precision x gain in recall, [N] in 0..1: `auprc`, NaN for undefined rows (see the module).

    Tokens of equal score pass a threshold together. Raises ValueError naming the row where rows differ in length or a
    rationale holds anything but 0 and 1.

    >>> average_precision([[0.1, 0.7, 0.2], [1, 2]], [[1, 1, 0], [1, 1]]).round(4).tolist()
    [0.8333, nan]
    """
    precision = np.asarray(auprc(scores, rationale), np.float64)
    _, gold, lengths = flatten_pair(scores, rationale, ("scores", "rationale"))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return np.where(np.bincount(owner, weights=gold, minlength=len(lengths)) == lengths, np.nan, precision)


def trapezoid_auprc(scores: Sequence, rationale: Sequence) -> np.ndarray:
    """Area by trapezoids under precision over recall, [N] in 0..1, NaN for undefined rows (see the module).

    The curve starts at recall 0 with precision 1 and joins its points by lines, as ERASER's published code does through
    scikit-learn. Precision does not run in lines between thresholds, so the area is too large, most of all where many
    scores are equal: scores that all are reach (1 + share marked) / 2. For comparison with others; otherwise take
    `average_precision`. Raises ValueError as `average_precision`.

    >>> trapezoid_auprc([[3, 2, 1], [1, 1, 1]], [[0, 1, 0], [0, 1, 0]]).round(4).tolist()
    [0.25, 0.6667]
    """
    known = ~np.isnan(average_precision(scores, rationale))
    areas = np.full(len(known), np.nan)
    for row in np.flatnonzero(known):
        values, gold = np.asarray(scores[row], np.float64), np.asarray(rationale[row], np.float64)
        order = np.argsort(-values, kind="stable")
        last = np.append(np.diff(values[order]) != 0, True)
        hits, count = np.cumsum(gold[order])[last], np.flatnonzero(last) + 1
        recall, precision = np.append(0, hits / hits[-1]), np.append(1, hits / count)
        areas[row] = (np.diff(recall) * (precision[1:] + precision[:-1])).sum() / 2
    return areas


def top_tokens(scores: Sequence, share: float) -> list[np.ndarray | None]:
    """The rationale that scores name: 1 on the ceil(share x T) tokens of largest score, at least one, 0 elsewhere.

    Of equal scores some are taken by an order drawn for texts of that many tokens: not the first of the text, and the
    same whatever the scores. share: above 0, at most 1; ERASER takes the mean share that people marked. Returns N rows;
    a row with a NaN is NaN, and one that is None is None. Raises ValueError for a share out of range.

    >>> [row.tolist() for row in top_tokens([[0.3, 0.1, 0.6, 0.0], [2.0]], 0.5)]
    [[1.0, 0.0, 1.0, 0.0], [1.0]]
    """
    check_share(share, "the share of tokens that a rationale holds")
    rationales = []
    for row in scores:
        if row is None:
            rationales.append(None)
            continue
        values = np.asarray(row, np.float64)
        order = np.lexsort((np.random.default_rng(len(values)).permutation(len(values)), -values))
        chosen = np.zeros(len(values))
        chosen[order[: max(1, int(np.ceil(share * len(values) - 1e-9)))]] = 1  # 0.07 x 100 is above 7 in floats
        rationales.append(np.where(np.isnan(values).any(), np.nan, chosen))
    return rationales


def token_f1(chosen: Sequence, rationale: Sequence) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and their harmonic mean over tokens, three times [N] in 0..1, NaN as the module says.

    chosen: N rows of 0 and 1. Where no token is chosen precision is undefined and F1 is 0: 2 hits / (chosen + marked).
    Raises ValueError naming the row where rows differ in length or hold anything but 0 and 1.

    >>> [values.round(4).tolist() for values in token_f1([[1, 1, 0, 0]], [[0, 1, 1, 1]])]
    [[0.5], [0.3333], [0.4]]
    """
    chosen, gold, owner, count = _pair(chosen, rationale)
    hits, picked, marked = (np.bincount(owner, weights=w, minlength=count) for w in (chosen * gold, chosen, gold))
    undefined = ~(marked > 0) | np.isnan(picked)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = (hits / picked, hits / marked, 2 * hits / (picked + marked))
    return tuple(np.where(undefined, np.nan, values) for values in each)


def span_iou(chosen: Sequence, rationale: Sequence, threshold: float = MATCH) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1 over spans, three times [N] in 0..1, NaN as the module says.

    A span is a longest run of chosen, or of marked, tokens. A span matches where its intersection with one of the other
    side, over their union, is at least `threshold`. precision: share of chosen spans that match; undefined where none
    is chosen, and F1 is then 0. recall: share of marked spans that match. ERASER's code divides the matching chosen
    spans by the marked ones instead: the same above a threshold of 1/2, where a span cannot match two; at exactly 1/2
    two halves of one marked span match and its recall exceeds 1.

    Raises ValueError as `token_f1`, and for a threshold outside 0..1 or 0.

    >>> [values.round(4).tolist() for values in span_iou([[1, 1, 0, 1, 0, 0]], [[1, 1, 1, 0, 0, 1]])]
    [[0.5], [0.5], [0.5]]
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold is {threshold}; give the overlap at which spans match, above 0 and at most 1")
    chosen, gold, owner, count = _pair(chosen, rationale)
    ends = np.searchsorted(owner, np.arange(1, count))
    values = np.full((3, count), np.nan)
    for row, (picked, marked) in enumerate(zip(np.split(chosen, ends), np.split(gold, ends), strict=True)):
        if np.isnan(picked).any() or np.isnan(marked).any() or not marked.any():
            continue
        mine, theirs = spans(picked), spans(marked)
        shared = np.minimum(mine[:, None, 1], theirs[None, :, 1]) - np.maximum(mine[:, None, 0], theirs[None, :, 0])
        shared = np.maximum(shared, 0)
        matches = shared >= threshold * (np.diff(mine) + np.diff(theirs).T - shared) - 1e-9
        hits = matches.any(1).mean() if len(mine) else np.nan
        recall = matches.any(0).mean()
        total = hits + recall
        values[:, row] = hits, recall, 2 * hits * recall / total if total > 0 else 0.0
    return tuple(values)


def spans(marks: Sequence) -> np.ndarray:
    """The longest runs of 1 in a row of 0 and 1: [R, 2] of first token and token after the last, in order.

    >>> spans([1, 1, 0, 1]).tolist()
    [[0, 2], [3, 4]]
    """
    steps = np.diff(np.concatenate([[0], np.asarray(marks, np.float64) != 0, [0]]).astype(np.int64))
    return np.stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)], axis=1)


def mean_share(rationale: Sequence) -> float:
    """Mean share of marked tokens over the rows that have any, in 0..1; NaN where none has.

    >>> mean_share([[1, 0, 0, 0], [1, 1], [0, 0], None])
    0.625
    """
    shares = [np.mean(np.asarray(row, np.float64)) for row in rationale if row is not None and len(row)]
    marked = [share for share in shares if share > 0]
    return float(np.mean(marked)) if marked else float("nan")


def plausibility_results(scores: Sequence, rationale: Sequence, share: float | None = None) -> dict[str, np.ndarray]:
    """All of the above per instance, [N] float64 each, NaN where undefined.

    average_precision, trapezoid_auprc; and of the `top_tokens` of that share, None for `mean_share`, token_f1 and
    span_iou_f1. Arguments and errors as above.
    """
    share = mean_share(rationale) if share is None else share
    # where nothing is marked all is undefined, and nothing has to be chosen
    chosen = [None] * len(scores) if np.isnan(share) else top_tokens(scores, share)
    return {
        "average_precision": average_precision(scores, rationale),
        "trapezoid_auprc": trapezoid_auprc(scores, rationale),
        "token_f1": token_f1(chosen, rationale)[2],
        "span_iou_f1": span_iou(chosen, rationale)[2],
    }


def _pair(chosen: Sequence, rationale: Sequence) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Two columns of 0 and 1, flat, the row of each value, and the number of rows."""
    chosen, gold, lengths = flatten_pair(chosen, rationale, ("chosen", "rationale"))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    for name, flat in (("chosen", chosen), ("rationale", gold)):
        if len(bad := np.flatnonzero(~np.isnan(flat) & (flat != 0) & (flat != 1))):
            raise InputError(f"row {owner[bad[0]]}: {name} holds {flat[bad[0]]:g}; a token is marked (1) or not (0)")
    return chosen, gold, owner, len(lengths)
