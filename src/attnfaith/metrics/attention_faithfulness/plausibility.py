"""How far an explanation points at the tokens that people, or a generator, marked as evidence.

Shapes: N instances, T tokens of one instance. A column holds N rows of length T. Rationales hold 0 and 1; anything else
raises InputError, as do rows of different length. Undefined, hence NaN: a row that is None, empty or holds a NaN, and one
with no token marked; for rankings also one with every token marked, for which any ranking is right.

Agreement with people does not show what a model used (Jacovi & Goldberg, 2020).
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import digamma

from .columns import by_row, check_share


def marks_fault(row: np.ndarray) -> str:
    """Return why a row holds no marks, "" for one that does."""
    odd = row[(row != 0) & (row != 1)]
    return f"holds {odd[0]:g}; a token is marked (1) or not (0)" if len(odd) else ""


def _of_marks(function: Callable, **columns: Sequence) -> np.ndarray:
    """function(row of each column) of every instance, [N]; NaN where it is undefined, or no token of the last column is
    marked. Columns but scores hold marks.
    """
    faults = {name: marks_fault for name in columns if name != "scores"}
    return by_row(lambda *rows: function(*rows) if rows[-1].any() else np.nan, columns, faults)


def average_precision(scores: Sequence, rationale: Sequence) -> np.ndarray:
    """Return scikit-learn's average_precision_score of each row, [N] in 0..1: the sum of precision x gain in recall.

    Equal scores pass a threshold together. Compare `constant_precision` and `random_precision`.
    """
    from sklearn.metrics import average_precision_score

    return _area(average_precision_score, scores, rationale)


def trapezoid_auprc(scores: Sequence, rationale: Sequence) -> np.ndarray:
    """Return the area by trapezoids under precision over recall, [N] in 0..1, as ERASER's published code takes it.

    Precision does not run in lines between thresholds, so the area is too large: scores that all are equal reach
    (1 + share marked) / 2. Use it for comparison with others.
    """
    from sklearn.metrics import auc, precision_recall_curve

    def area(marks, values):
        precision, recall, _ = precision_recall_curve(marks, values)
        return auc(recall, precision)

    return _area(area, scores, rationale)


def _area(area: Callable, scores: Sequence, rationale: Sequence) -> np.ndarray:
    """area(marks, ranks) of each row with tokens that are marked and tokens that are not, [N]."""
    from scipy.stats import rankdata  # importing scipy.stats takes longer than a measurement

    def of_row(values: np.ndarray, marks: np.ndarray) -> float:
        return np.nan if marks.all() else area(marks, rankdata(values))  # scikit-learn refuses infinite scores

    return _of_marks(of_row, scores=scores, rationale=rationale)


def constant_precision(rationale: Sequence) -> np.ndarray:
    """Return `average_precision` of scores that are all equal (uniform attention): the share of marked tokens, [N]."""
    return _of_marks(np.mean, rationale=rationale)


def random_precision(rationale: Sequence) -> np.ndarray:
    """Return the mean of `average_precision` over all orders of the tokens, [N]: what scores without any relation reach.

    With P of n tokens marked, the marked token at rank k has on average 1 + (k-1)(P-1)/(n-1) marked ones up to it; the
    mean of that over k, with H = 1 + 1/2 + ... + 1/n, gives q + (1 - q) H/n with q = (P-1)/(n-1).
    """

    def precision(marks: np.ndarray) -> float:
        n = len(marks)
        density = (marks.sum() - 1) / max(n - 1, 1)  # of marks among the other tokens
        return density + (1 - density) * (digamma(n + 1.0) + np.euler_gamma) / n

    return _of_marks(precision, rationale=rationale)


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
    columns = {"chosen": chosen, "rationale": rationale}
    hits = _of_marks(np.dot, **columns)
    picked = _of_marks(lambda picked, _: picked.sum(), **columns)
    marked = _of_marks(lambda _, marked: marked.sum(), **columns)
    with np.errstate(invalid="ignore"):
        return hits / picked, hits / marked, 2 * hits / (picked + marked)


def span_iou(chosen: Sequence, rationale: Sequence, threshold: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision, recall and F1 over spans, each [N] in 0..1.

    A span is a longest run of chosen, or of marked, tokens. It matches where its intersection with a span of the other side,
    over their union, is at least `threshold`, above 0 (ERASER's is 0.5). precision: share of chosen spans that match;
    undefined where none is chosen, and F1 is then 0. recall: share of marked spans that match. (ERASER's code divides the
    matching chosen spans by the marked ones, so its recall may exceed 1.)
    """

    def share(marks: np.ndarray, others: np.ndarray) -> float:
        first, second = spans(marks), spans(others)
        ends = np.minimum(first[:, None, 1], second[None, :, 1])
        shared = np.maximum(ends - np.maximum(first[:, None, 0], second[None, :, 0]), 0)
        matches = shared >= threshold * (np.diff(first) + np.diff(second).T - shared) - 1e-9
        return matches.any(1).mean() if len(first) else np.nan

    columns = {"chosen": chosen, "rationale": rationale}
    precision, recall = _of_marks(share, **columns), _of_marks(lambda chosen, marked: share(marked, chosen), **columns)
    total = np.nan_to_num(precision) + recall
    f1 = 2 * np.nan_to_num(precision) * recall / np.where(total == 0, 1, total)
    return precision, recall, f1


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
