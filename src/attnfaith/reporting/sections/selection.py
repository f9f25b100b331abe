"""The tokens that a model selects, its predictions from these and from the rest, selections of one size, and how well the
places of a selection predict the class.

Undefined: of a text without tokens; accuracy without a label; agreement with marked tokens where none is marked. A text in
which nothing is selected stays in all means: its F1 is 0. Shapes: N texts, T tokens of a text, F features, P permutations.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attnfaith.metrics.attention_faithfulness.plausibility import average_precision, span_iou, spans, token_f1
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.spec import section
from attnfaith.reporting.tables import p_in_words, percent


@per_cell
def selection(cell: Cell) -> dict[str, np.ndarray]:
    """For each text: share_selected, spans_selected (number of runs), nothing_selected, everything_selected; and where the
    record has them complement_correct, complement_same (the predicted class stays without what is selected), and against
    marked tokens selection_precision, _recall, _f1, _iou_f1 and _auprc; marked_selected, whether a marked token is among
    what is selected; where none is, unmarked_correct; and, as published means have it, selection_f1_papers, of the texts in
    which something is selected.
    """
    rows = cell.rows("selected")
    empty = cell.lengths == 0
    share = np.array([np.mean(row) if len(row) else np.nan for row in rows])
    numbers = {
        "share_selected": share,
        "spans_selected": np.array([len(spans(row)) if len(row) else np.nan for row in rows], np.float64),
        "nothing_selected": np.where(empty, np.nan, share == 0),
        "everything_selected": np.where(empty, np.nan, share == 1),
    }
    if cell.has("complement_probs"):
        without = cell.stacked("complement_probs").argmax(1)
        labelled = ~np.isnan(cell.labels) & ~empty
        numbers["selection_correct"] = np.where(labelled, cell.stacked("selection_probs").argmax(1) == cell.labels, np.nan)
        numbers["complement_correct"] = np.where(labelled, without == cell.labels, np.nan)
        numbers["complement_same"] = np.where(empty, np.nan, without == cell.predicted)
    if cell.has("rationale"):
        gold = cell.rows("rationale")
        marks = [row.astype(np.float64) for row in rows]
        numbers |= dict(zip(("selection_precision", "selection_recall", "selection_f1"), token_f1(marks, gold), strict=True))
        numbers["selection_f1_papers"] = np.where(share == 0, np.nan, numbers["selection_f1"])
        numbers["selection_iou_f1"] = span_iou(marks, gold)[2]
        numbers["selection_auprc"] = average_precision(cell.rows("selection"), gold)
        recall = numbers["selection_recall"]
        numbers["marked_selected"] = np.where(np.isnan(recall), np.nan, recall > 0)
        if "selection_correct" in numbers:
            numbers["unmarked_correct"] = np.where(recall == 0, numbers["selection_correct"], np.nan)
    return numbers


SELECTION = section("selection", per_text=selection)


OWN = "as many as selected"


@per_cell
def budgets(cell: Cell) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Selections of one size, {(size, scores): {number: [N]}}, F1 where the record has marked tokens."""
    names, sizes = cell.shared("selection_measures"), cell.shared("selection_shares")
    order = sorted(range(len(sizes)), key=lambda number: sizes.index(sizes[number]))  # the measures of a size together
    return {(OWN if sizes[at] == 0 else f"{sizes[at]:.0%}", names[at]): _budget(cell, at) for at in order}


def _budget(cell: Cell, place: int) -> dict[str, np.ndarray]:
    """The numbers of the selection at this place of the record's lists."""
    kept, removed = (cell.stacked(f"selection_{name}_probs")[:, place] for name in ("kept", "removed"))
    texts, whole = np.arange(len(cell)), cell.probs.max(axis=1).astype(np.float64)
    undefined = np.isnan(kept).any(1) | (cell.lengths == 0)
    unlabelled = undefined | np.isnan(cell.labels)
    numbers = {
        "correct": np.where(unlabelled, np.nan, np.nan_to_num(kept).argmax(1) == cell.labels),
        "rest_correct": np.where(unlabelled, np.nan, np.nan_to_num(removed).argmax(1) == cell.labels),
        "sufficiency": np.where(undefined, np.nan, whole - kept[texts, cell.predicted]),
        "comprehensiveness": np.where(undefined, np.nan, whole - removed[texts, cell.predicted]),
    }
    if cell.has("rationale"):
        gold = cell.rows("rationale")
        marks = [row[place].astype(np.float64) for row in cell.rows("selection_chosen")]
        numbers["token_f1"] = np.where(undefined, np.nan, token_f1(marks, gold)[2])
        numbers["iou_f1"] = np.where(undefined, np.nan, span_iou(marks, gold)[2])
    return numbers


SELECTION_BUDGETS = section(
    "selection_budgets",
    per_text=lambda cell: {  # such as "sufficiency 10% attention"
        f"{name} {size} {scores}": column
        for (size, scores), values in budgets(cell).items()
        for name, column in values.items()
    },
)


LABEL, PREDICTION = "gold label", "predicted class"
FOLDS, PERMUTATIONS, SEED = 5, 999, 0
BINS, ENDS = 10, 8
"""Parts of equal length that a text is divided into; places at either end that are features of their own."""
RIDGE = 0.01  # of the mean square of a standardised feature
STRATA = 5
LEAST = 4 * FOLDS
"""Texts below which nothing is predicted."""


class Leakage(NamedTuple):
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
    """Predict the class of a text from the places that are selected, its words unseen.

    A selector that sees the whole text may encode the label in the places it selects, and leave the classifier to read that
    code (Jacovi & Goldberg 2021; Zheng et al. 2022). The accuracy from places alone is a lower bound of what they encode.

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
    by_majority = _predicted(np.zeros((len(texts), 1)), labels[None], fold)
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
    first, last = (np.concatenate([side, np.zeros(ENDS)])[:ENDS] for side in (row, row[::-1]))
    return np.concatenate([[len(chosen), row.mean(), runs, len(chosen) / max(runs, 1)], ends, shares, first, last])


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
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler

    right = np.zeros(labels.shape)
    for number in range(FOLDS):
        test = fold == number
        scaler, ridge = StandardScaler().fit(values[~test]), Ridge(RIDGE * (~test).sum())
        train, tested = scaler.transform(values[~test]), scaler.transform(values[test])
        wanted = (label == labels[:, ~test].T for label in range(labels.max() + 1))  # (n,P) each
        scores = [ridge.fit(train, is_label).predict(tested) for is_label in wanted]
        right[:, test] = labels[:, test] == np.argmax(scores, axis=0).T
    return right


@per_cell
def places(cell: Cell) -> dict[str, Leakage]:
    """How well the places of a selection predict the gold label, and the class that the model predicts."""
    selected = cell.rows("selected")
    return {LABEL: leakage(selected, cell.labels), PREDICTION: leakage(selected, cell.predicted)}


def _sentences(cell: Cell) -> Iterator[str]:
    """What places tell beside the length, of each class that is predicted."""
    for label, result in places(cell).items():
        if not np.isnan(result.p_value):
            by_places, by_length = (percent(np.nanmean(right)) for right in (result.places, result.lengths))
            yield (
                f"The selected places alone predict the {label} of {by_places} of the texts, the length alone that of "
                f"{by_length} (p {p_in_words(result.p_value)} by permutation)."
            )


LEAKAGE = section(
    "leakage",
    words=_sentences,
    per_text=lambda cell: {  # whether the class of a text is predicted, such as "places_accuracy gold label"
        f"{number}_accuracy {label}": getattr(result, number)
        for label, result in places(cell).items()
        for number in ("places", "lengths", "majority")
    },
)
