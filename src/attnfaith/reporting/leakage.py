"""Can a classifier predict the label from which places of a text are selected, its words unseen?

A selector that sees the whole text may encode the label in the places it selects, and leave the classifier to read that code
(Jacovi & Goldberg 2021; Zheng et al. 2022). The accuracy of a linear classifier of places alone is a lower bound of what
they encode.

Shapes: N texts, T tokens of a text, C classes, F features, P permutations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attnfaith.metrics.attention_faithfulness.plausibility import spans


FOLDS, PERMUTATIONS, SEED = 5, 999, 0
BINS, ENDS = 10, 8
"""Parts of equal length that a text is divided into; places at either end that are features of their own."""
RIDGE = 0.01  # of the mean square of a standardised feature
STRATA = 5
LEAST = 4 * FOLDS
"""Texts below which nothing is predicted."""


@dataclass(frozen=True)
class Leakage:
    """places, lengths, majority: whether the class of each text is predicted by a fit without it, [N] float64 of 0 and 1: by
    a linear classifier of what is selected and how long the text is; of its length alone; by the commonest class. p_value:
    how often, where labels are exchanged at random among texts of about one length, places add as much to the accuracy of
    length, or more. All NaN where there are fewer than LEAST texts, or one class alone.
    """

    places: np.ndarray
    lengths: np.ndarray
    majority: np.ndarray
    p_value: float


def leakage(selected: Sequence[np.ndarray], classes: Sequence[float], *, permutations: int = PERMUTATIONS) -> Leakage:
    """Predict the class of a text from the places that are selected.

    selected: a row (T,) of 0 and 1 for each text. classes: [N] whole numbers, NaN where unknown. Texts without a token or a
    class are left out, and are NaN. The same texts give the same numbers. The classifier is ridge regression of the classes,
    a column each, on `features`, standardised; all permutations are fitted at once.
    """
    classes = np.asarray(classes, np.float64)
    texts = np.flatnonzero(~np.isnan(classes) & np.array([len(row) > 0 for row in selected], bool))
    results = np.full((3, len(classes)), np.nan)
    if len(texts) < LEAST or len(np.unique(classes[texts])) < 2:
        return Leakage(*results, float("nan"))
    random = np.random.default_rng(SEED)
    labels = np.unique(classes[texts], return_inverse=True)[1]
    length = np.array([len(selected[row]) for row in texts], np.float64)
    of_length = np.stack([length, np.log(length)], axis=1)
    of_places = np.concatenate([of_length, np.stack([features(selected[row]) for row in texts])], axis=1)
    fold = random.permutation(np.arange(len(texts)) % FOLDS)
    labellings = np.concatenate([labels[None], list(_exchanged(labels, length, permutations, random))])
    by_places, by_length = _predicted(of_places, labellings, fold), _predicted(of_length, labellings, fold)
    by_majority = _predicted(of_length[:, :0], labels[None], fold)
    results[:, texts] = by_places[0], by_length[0], by_majority[0]
    gains = by_places.mean(1) - by_length.mean(1)
    as_large = gains[1:] >= gains[0] - 1e-12
    return Leakage(*results, float((1 + as_large.sum()) / (1 + permutations)))


def features(row: Sequence) -> np.ndarray:
    """Features of one text's selection (T,), T at least 1: [F].

    How many tokens and what share are selected, the number of runs and their mean length; the relative places, 0..1, of the
    first and the last, -1 where nothing is selected; the share selected of each of BINS equal parts; and whether each of the
    first and of the last ENDS places is, 0 beyond a shorter text.
    """
    row = np.asarray(row, np.float64) != 0
    chosen = np.flatnonzero(row)
    runs = len(spans(row))
    ends = (chosen[[0, -1]] + 0.5) / len(row) if len(chosen) else np.full(2, -1.0)
    part = np.arange(len(row)) * BINS // len(row)
    shares = np.bincount(part, weights=row, minlength=BINS) / np.maximum(np.bincount(part, minlength=BINS), 1)
    padded = np.concatenate([row, np.zeros(ENDS)])
    last = np.concatenate([row[::-1], np.zeros(ENDS)])
    numbers = [len(chosen), row.mean(), runs, len(chosen) / max(runs, 1)]
    return np.concatenate([numbers, ends, shares, padded[:ENDS], last[:ENDS]])


def _exchanged(labels: np.ndarray, length: np.ndarray, count: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Labels exchanged at random among texts of about one length."""
    strata = np.array_split(np.argsort(length, kind="stable"), STRATA)
    for _ in range(count):
        exchanged = labels.copy()
        for rows in strata:
            exchanged[rows] = labels[random.permutation(rows)]
        yield exchanged


def _predicted(values: np.ndarray, labels: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Whether a classifier of features (N,F) predicts each of many labellings (P,N) of the texts, (P,N) of 0 and 1."""
    right = np.zeros(labels.shape)
    for number in range(FOLDS):
        test = fold == number
        mean, spread = values[~test].mean(0), values[~test].std(0)
        scaled = (values - mean) / np.where(spread > 0, spread, 1)
        train = scaled[~test]
        solved = np.linalg.solve(train.T @ train + RIDGE * len(train) * np.eye(train.shape[1]), train.T)
        weights = scaled[test] @ solved
        scores = []
        for label in range(labels.max() + 1):
            is_label = (labels[:, ~test] == label).astype(np.float64)  # (P,n)
            share = is_label.mean(1)
            scores.append(weights @ (is_label - share[:, None]).T + share)
        right[:, test] = labels[:, test] == np.argmax(scores, axis=0).T
    return right
