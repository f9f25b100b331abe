"""How far an explanation points at the tokens that people, or a generator, marked as evidence.

Shapes: N instances, T tokens of one instance. A column holds N rows of length T. Rationales hold 0 and 1; anything else
raises InputError, as do rows of different length. Undefined, hence NaN: a row that is None, empty or holds a NaN, and one
with no token marked; for rankings also one with every token marked, for which any ranking is right.

Agreement with people does not show what a model used (Jacovi & Goldberg, 2020).
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import digamma

from .columns import Layout, check_share, check_values, flatten, flatten_pair


def average_precision(scores: Sequence, rationale: Sequence) -> np.ndarray:
    """Return the sum over thresholds of precision x gain in recall, [N] in 0..1, as scikit-learn's average_precision_score.

    Equal scores pass a threshold together. Compare `constant_precision` and `random_precision`.
    """
    return _areas(scores, rationale)[0]


def trapezoid_auprc(scores: Sequence, rationale: Sequence) -> np.ndarray:
    """Return the area by trapezoids under precision over recall, [N] in 0..1, as ERASER's published code takes it.

    Precision does not run in lines between thresholds, so the area is too large: scores that all are equal reach
    (1 + share marked) / 2. Use it for comparison with others.
    """
    return _areas(scores, rationale)[1]


def _areas(scores: Sequence, rationale: Sequence) -> np.ndarray:
    """Areas under precision over recall, by steps and by lines between thresholds, [2, N]."""
    values, gold, layout = flatten_pair(scores, rationale, ("scores", "rationale"))
    marked = _marked(gold, layout, "rationale")
    areas = np.full((2, len(layout)), np.nan)
    for row, (row_values, marks) in enumerate(zip(layout.split(values), layout.split(gold), strict=True)):
        if 0 < marked[row] < len(marks) and not np.isnan(row_values).any():
            _, threshold = np.unique(-row_values, return_inverse=True)
            gain = np.bincount(threshold, weights=marks)
            precision = np.cumsum(gain) / np.cumsum(np.bincount(threshold))
            lines = (precision + np.append(1, precision[:-1])) / 2
            areas[:, row] = (precision * gain).sum() / marked[row], (lines * gain).sum() / marked[row]
    return areas


def constant_precision(rationale: Sequence) -> np.ndarray:
    """Return `average_precision` of scores that are all equal (uniform attention): the share of marked tokens, [N]."""
    gold, layout = flatten(rationale, "rationale")
    marked = _marked(gold, layout, "rationale")
    return np.where(marked > 0, marked / np.maximum(layout.lengths, 1), np.nan)


def random_precision(rationale: Sequence) -> np.ndarray:
    """Return the mean of `average_precision` over all orders of the tokens, [N]: what scores without any relation reach.

    With P of n tokens marked, the marked token at rank k has on average 1 + (k-1)(P-1)/(n-1) marked ones up to it; the
    mean of that over k, with H = 1 + 1/2 + ... + 1/n, gives q + (1 - q) H/n with q = (P-1)/(n-1).
    """
    gold, layout = flatten(rationale, "rationale")
    marked, n = _marked(gold, layout, "rationale"), np.maximum(layout.lengths, 1)
    mean_reciprocal = (digamma(n + 1.0) + np.euler_gamma) / n
    density = (marked - 1) / np.maximum(n - 1, 1)  # of marks among the other tokens
    return np.where(marked > 0, density + (1 - density) * mean_reciprocal, np.nan)


def _marked(gold: np.ndarray, layout: Layout, name: str) -> np.ndarray:
    """Marked tokens of each row, [N]; NaN for a row that holds a NaN."""
    check_values(gold, layout, name, (gold == 0) | (gold == 1), "a token is marked (1) or not (0)")
    return layout.sum(gold)


def top_tokens(scores: Sequence, share: float) -> list[np.ndarray | None]:
    """Return the rationale that scores select: 1 on the ceil(share x T) tokens of largest score, at least one, else 0.

    Of equal scores some are taken by an order drawn for texts of that many tokens: not the first of the text, and the
    same whatever the scores. share: above 0, at most 1; ERASER takes the mean share that people marked. Returns N rows;
    a row with a NaN is NaN, and one that is None is None.
    """
    check_share(share, "the share of tokens that a rationale holds")
    rationales = []
    for row in scores:
        if row is not None:
            values = np.asarray(row, np.float64)
            order = np.lexsort((np.random.default_rng(len(values)).permutation(len(values)), -values))
            row = np.zeros(len(values))
            row[order[: max(1, int(np.ceil(share * len(values) - 1e-9)))]] = 1  # 0.07 x 100 is above 7 in floats
            row = np.where(np.isnan(values).any(), np.nan, row)
        rationales.append(row)
    return rationales


def token_f1(chosen: Sequence, rationale: Sequence) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision, recall and their harmonic mean over tokens, each [N] in 0..1.

    chosen: N rows of 0 and 1. Where no token is chosen precision is undefined and F1 is 0: 2 hits / (chosen + marked).
    """
    chosen, gold, layout = flatten_pair(chosen, rationale, ("chosen", "rationale"))
    picked, marked, hits = _marked(chosen, layout, "chosen"), _marked(gold, layout, "rationale"), layout.sum(chosen * gold)
    undefined = ~(marked > 0) | np.isnan(picked)
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = hits / picked, hits / marked, 2 * hits / (picked + marked)
    return tuple(np.where(undefined, np.nan, values) for values in scores)


def span_iou(chosen: Sequence, rationale: Sequence, threshold: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision, recall and F1 over spans, each [N] in 0..1.

    A span is a longest run of chosen, or of marked, tokens. It matches where its intersection with a span of the other side,
    over their union, is at least `threshold`, above 0 (ERASER's is 0.5). precision: share of chosen spans that match;
    undefined where none is chosen, and F1 is then 0. recall: share of marked spans that match. (ERASER's code divides the
    matching chosen spans by the marked ones, so its recall may exceed 1.)
    """
    chosen, gold, layout = flatten_pair(chosen, rationale, ("chosen", "rationale"))
    marked, picked = _marked(gold, layout, "rationale"), _marked(chosen, layout, "chosen")
    chosen, gold = layout.split(chosen), layout.split(gold)
    scores = np.full((3, len(layout)), np.nan)
    for row in np.flatnonzero((marked > 0) & ~np.isnan(picked)):
        chosen_spans, gold_spans = spans(chosen[row]), spans(gold[row])
        ends = np.minimum(chosen_spans[:, None, 1], gold_spans[None, :, 1])
        shared = np.maximum(ends - np.maximum(chosen_spans[:, None, 0], gold_spans[None, :, 0]), 0)
        matches = shared >= threshold * (np.diff(chosen_spans) + np.diff(gold_spans).T - shared) - 1e-9
        precision, recall = matches.any(1).mean() if len(chosen_spans) else np.nan, matches.any(0).mean()
        total = precision + recall
        scores[:, row] = precision, recall, 2 * precision * recall / total if total > 0 else 0.0
    return tuple(scores)


def spans(marks: Sequence) -> np.ndarray:
    """Return the longest runs of 1 in a row of 0 and 1: [R, 2] of first token and token after the last, in order."""
    steps = np.diff(np.concatenate([[0], np.asarray(marks, np.float64) != 0, [0]]).astype(np.int64))
    return np.stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)], axis=1)


def mean_share(rationale: Sequence) -> float:
    """Return the mean share of marked tokens over the rows that have any, in 0..1; NaN where none has."""
    shares = constant_precision(rationale)
    shares = shares[~np.isnan(shares)]
    return float(shares.mean()) if len(shares) else float("nan")


def plausibility_results(scores: Sequence, rationale: Sequence, share: float | None = None) -> dict[str, np.ndarray]:
    """Return average_precision, trapezoid_auprc, token_f1 and span_iou_f1 of each instance, [N] float64 each.

    share: tokens of largest score that make up the rationale for the last two (`top_tokens`); by default `mean_share`.
    """
    rankings = average_precision(scores, rationale), trapezoid_auprc(scores, rationale)
    share = mean_share(rationale) if share is None else share
    # where nothing is marked all is undefined, and nothing has to be chosen
    chosen = [None] * len(scores) if np.isnan(share) else top_tokens(scores, share)
    values = *rankings, token_f1(chosen, rationale)[2], span_iou(chosen, rationale)[2]
    return dict(zip(("average_precision", "trapezoid_auprc", "token_f1", "span_iou_f1"), values, strict=True))
