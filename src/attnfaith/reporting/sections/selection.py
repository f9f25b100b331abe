"""The tokens that a model selects, its predictions from these and from the rest, selections of one size, and how well the
places of a selection predict the class.

Undefined: of a text without tokens; accuracy without a label; agreement with marked tokens where none is marked. A text in
which nothing is selected stays in all means: its F1 is 0.
"""

import numpy as np

from attnfaith.metrics.attention_faithfulness.plausibility import average_precision, span_iou, spans, token_f1
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.leakage import Leakage, leakage
from attnfaith.reporting.spec import Section, per_cell


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
    runs = np.array([len(spans(row)) if len(row) else np.nan for row in rows], np.float64)
    numbers = {
        "share_selected": share,
        "spans_selected": runs,
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
        for name, values in zip(("precision", "recall", "f1"), token_f1(marks, gold), strict=True):
            numbers[f"selection_{name}"] = values
        numbers["selection_f1_papers"] = np.where(share == 0, np.nan, numbers["selection_f1"])
        numbers["selection_iou_f1"] = span_iou(marks, gold)[2]
        numbers["selection_auprc"] = average_precision(cell.rows("selection"), gold)
        recall = numbers["selection_recall"]
        numbers["marked_selected"] = np.where(np.isnan(recall), np.nan, recall > 0)
        if "selection_correct" in numbers:
            numbers["unmarked_correct"] = np.where(recall == 0, numbers["selection_correct"], np.nan)
    return numbers


SELECTION = Section(
    name="selection",
    place=35,
    needs=("selected", "selection"),
    per_text=selection,
    compared=("[!s]*", "share_selected", "spans_selected", "selection_[!f]*", "selection_f1"),
    caption="What the model selects and reads",
    note="Runs: longest stretches of selected tokens. Accuracy from the selection: the model reads what it selects and "
    "nothing else, so this is its accuracy; from the rest: it reads all other tokens. F1 against marked tokens: mean over "
    "texts; where nothing is selected it is 0. Accuracy above chance where no marked token is selected: something else "
    "tells the label, perhaps the places that are selected.",
    lead=("share_selected", "selection_correct", "complement_correct"),
)


# ---------- selections of one size


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


def _budget_numbers(cell: Cell) -> dict[str, np.ndarray]:
    """<number> <size> <scores>, such as "sufficiency 10% attention"."""
    numbers = {}
    for (size, scores), values in budgets(cell).items():
        numbers |= {f"{name} {size} {scores}": column for name, column in values.items()}
    return numbers


SELECTION_BUDGETS = Section(
    name="selection_budgets",
    place=36,
    needs=(
        *("selection_measures", "selection_shares", "selection_chosen", "selection_kept_probs", "selection_removed_probs"),
        *("probs", "label"),
    ),
    per_text=_budget_numbers,
    compared=(),
    caption="Selections of one size",
    note="The tokens that each score ranks first, as many of all. Sufficiency: how much less probable the predicted class "
    "is from these tokens alone (small is good); comprehensiveness: without them (large is good). Of a model that selects, "
    "attention is its own selection. Keeping only the selected words gives the same prediction by construction, so "
    "sufficiency is uninformative there: read the accuracy from all but the selection.",
)


# ---------- what places tell


LABEL, PREDICTION = "gold label", "predicted class"


@per_cell
def places(cell: Cell) -> dict[str, Leakage]:
    """How well the places of a selection predict the gold label, and the class that the model predicts."""
    selected = cell.rows("selected")
    return {LABEL: leakage(selected, cell.labels), PREDICTION: leakage(selected, cell.predicted)}


def _place_numbers(cell: Cell) -> dict[str, np.ndarray]:
    """ "<number> <class>": whether the class of a text is predicted, from places, from the length, by the majority."""
    return {
        f"{number}_accuracy {label}": getattr(result, number)
        for label, result in places(cell).items()
        for number in ("places", "lengths", "majority")
    }


LEAKAGE = Section(
    name="leakage",
    place=37,
    needs=("selected", "label", "probs"),
    per_text=_place_numbers,
    compared=(),
    caption="What the places tell",
    note="Accuracy of a linear classifier that sees how many tokens are selected, in how many runs and at which places, and "
    "how long the text is, but no word (Jacovi & Goldberg 2021, section 5); each text is predicted by a fit on four fifths "
    "of the others. Undefined: texts without tokens or label; all where there are fewer than 20, or one class. It is a "
    "lower bound: another classifier may tell more.",
)
