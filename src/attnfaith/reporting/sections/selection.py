"""What a model selects, what it says of that and of the rest, selections of one size, and what their places tell.

Undefined: of a text without tokens; accuracy without a label; agreement with marked tokens where none is marked. A text in
which nothing is selected stays in all means: its F1 is 0. The papers leave it out; a row says what that gives.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision, span_iou, spans, token_f1
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import shared, stacked
from attnfaith.reporting.leakage import leakage
from attnfaith.reporting.spec import MAIN, Case, Column, Key, Mean, counts, per_cell, summary_section


ALL, SOME = "all", "with a selection (papers)"
"""Which texts a row is over: all, or, as published code has it, those in which something is selected."""


@per_cell
def selection(cell: Cell) -> dict[str, np.ndarray]:
    """Of each text: share_selected, spans_selected (number of runs), nothing_selected, everything_selected; and where the
    record has them complement_correct, complement_same (the predicted class stays without what is selected), and against
    marked tokens selection_precision, _recall, _f1, _iou_f1 and _auprc; marked_selected, whether a marked token is among
    what is selected; and, where none is, unmarked_correct.
    """
    rows = records.rows(cell.table, "selected")
    empty = cell.lengths == 0
    share = np.array([np.mean(row) if len(row) else np.nan for row in rows])
    runs = np.array([len(spans(row)) if len(row) else np.nan for row in rows], np.float64)
    numbers = {
        "share_selected": share,
        "spans_selected": runs,
        "nothing_selected": np.where(empty, np.nan, share == 0),
        "everything_selected": np.where(empty, np.nan, share == 1),
    }
    if "complement_probs" in cell.table.column_names:
        without = stacked(cell, "complement_probs").argmax(1)
        labelled = ~np.isnan(cell.labels) & ~empty
        numbers["selection_correct"] = np.where(labelled, stacked(cell, "selection_probs").argmax(1) == cell.labels, np.nan)
        numbers["complement_correct"] = np.where(labelled, without == cell.labels, np.nan)
        numbers["complement_same"] = np.where(empty, np.nan, without == cell.predicted)
    if "rationale" in cell.table.column_names:
        gold = records.rows(cell.table, "rationale")
        marks = [row.astype(np.float64) for row in rows]
        for name, values in zip(("precision", "recall", "f1"), token_f1(marks, gold), strict=True):
            numbers[f"selection_{name}"] = values
        numbers["selection_iou_f1"] = span_iou(marks, gold)[2]
        numbers["selection_auprc"] = average_precision(records.rows(cell.table, "selection"), gold)
        recall = numbers["selection_recall"]
        numbers["marked_selected"] = np.where(np.isnan(recall), np.nan, recall > 0)
        if "selection_correct" in numbers:
            numbers["unmarked_correct"] = np.where(recall == 0, numbers["selection_correct"], np.nan)
    return numbers


def _selection_cases(cell: Cell) -> Iterator[Case]:
    values = selection(cell)
    for texts in (ALL, SOME):
        some = values if texts == ALL else _left_out(values, values["nothing_selected"] == 1)
        yield Case(some, {"over": texts}, _of_means(some))


def _left_out(values: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.where(rows, np.nan, of_texts) for name, of_texts in values.items()}


def _of_means(values: dict[str, np.ndarray]) -> dict[str, float]:
    """The F1 of mean precision and mean recall, as published; {} without marked tokens."""
    if "selection_precision" not in values:
        return {}
    means = []
    for name in ("selection_precision", "selection_recall"):
        known = values[name][~np.isnan(values[name])]
        means.append(float(known.mean()) if len(known) else np.nan)
    total = sum(means)
    return {"f1_of_means": 2 * means[0] * means[1] / total if total > 0 else (0.0 if total == 0 else np.nan)}


def _selection_sentences(cell: Cell) -> list[str]:
    row = render.rows(SELECTION.table, cell)[0]
    if not row["n"]:
        return ["No text has a token that could be selected."]
    said = [f"On average {row['share_selected_mean']:.1%} of a text is selected{render.interval_in_words(row)}."]
    if row["nothing_selected_share"]:
        said.append(f"In {row['nothing_selected_share']:.1%} of the texts nothing is; they are in all means.")
    if "complement_accuracy" in row and not np.isnan(row["complement_accuracy"]):
        said.append(
            f"From the selection alone {row['selection_accuracy']:.1%} of the texts are classified rightly, from all other "
            f"tokens {row['complement_accuracy']:.1%}."
        )
    return said


SELECTION = summary_section(
    "selection",
    selection,
    (
        *counts("share_selected"),
        Mean("share_selected_mean", "share selected [95 % interval]", of="share_selected", interval=MAIN),
        Mean("spans_mean", "runs", of="spans_selected"),
        Mean("nothing_selected_share", "texts with nothing selected", of="nothing_selected", interval=None),
        Mean("everything_selected_share", "with everything", of="everything_selected", interval=None),
        Mean("selection_accuracy", "accuracy from the selection", of="selection_correct", optional=True),
        Mean("complement_accuracy", "from the rest", of="complement_correct", optional=True),
        Mean("complement_same_share", "same class from the rest", of="complement_same", optional=True),
        Mean("precision_mean", of="selection_precision"),
        Mean("recall_mean", of="selection_recall"),
        Mean("token_f1_mean", "token F1", of="selection_f1", optional=True),
        Mean("iou_f1_mean", "IoU F1", of="selection_iou_f1", optional=True),
        Mean("auprc_mean", "AUPRC", of="selection_auprc", optional=True),
        Mean("marked_selected_share", "texts with a marked token selected", of="marked_selected", optional=True),
        Mean("unmarked_accuracy", "accuracy where none is", of="unmarked_correct", optional=True),
    ),
    by=(Key("over", "over"),),
    cases=_selection_cases,
    source="Lei et al. (2016); Bastings et al. (2019)",
    place=35,
    needs=("selected", "selection"),
    uses=("selection_probs", "complement_probs", "rationale"),
    caption="What the model selects and reads",
    note="Runs: longest stretches of selected tokens. Accuracy from the selection: the model reads what it selects and "
    "nothing else, so this is its accuracy; from the rest: it reads all other tokens, and none of those. F1 against marked "
    "tokens: of each text, mean over texts; where nothing is selected it is 0. Accuracy where no marked token is selected: "
    "above chance, the label is told by something else, perhaps by the places that are selected. With a selection: texts in "
    "which nothing is selected left out, as published code does.",
    sentences=_selection_sentences,
)


# ------------------------------------------------------------------------------------------ selections of one size


OWN = "as many as selected"


def _budget_cases(cell: Cell) -> Iterator[Case]:
    names, sizes = shared(cell, "selection_measures"), shared(cell, "selection_shares")
    for place in sorted(range(len(sizes)), key=lambda number: sizes.index(sizes[number])):  # the measures of a size together
        size = OWN if sizes[place] == 0 else f"{sizes[place]:.0%}"
        yield Case(_budget_numbers(cell, place), {"scores": names[place], "size": size})


def _budget_numbers(cell: Cell, place: int) -> dict[str, np.ndarray]:
    """sufficiency, comprehensiveness, correct, rest_correct and, against marked tokens, token_f1 and iou_f1, [N] each, of
    the selection that stands at this place of the record's lists.
    """
    kept, removed = (stacked(cell, f"selection_{name}_probs")[:, place] for name in ("kept", "removed"))
    texts, whole = np.arange(len(cell)), cell.probs.astype(np.float64)
    undefined = np.isnan(kept).any(1) | (cell.lengths == 0)
    unlabelled = undefined | np.isnan(cell.labels)
    whole_prob = whole[texts, cell.predicted]
    numbers = {
        "sufficiency": np.where(undefined, np.nan, whole_prob - kept[texts, cell.predicted]),
        "comprehensiveness": np.where(undefined, np.nan, whole_prob - removed[texts, cell.predicted]),
        "correct": np.where(unlabelled, np.nan, np.nan_to_num(kept).argmax(1) == cell.labels),
        "rest_correct": np.where(unlabelled, np.nan, np.nan_to_num(removed).argmax(1) == cell.labels),
    }
    if "rationale" in cell.table.column_names:
        gold = records.rows(cell.table, "rationale")
        marks = [row[place].astype(np.float64) for row in records.rows(cell.table, "selection_chosen")]
        numbers["token_f1"] = np.where(undefined, np.nan, token_f1(marks, gold)[2])
        numbers["iou_f1"] = np.where(undefined, np.nan, span_iou(marks, gold)[2])
    return numbers


SELECTION_BUDGETS = summary_section(
    "selection_budgets",
    None,
    (
        *counts("sufficiency"),
        Mean("accuracy", "accuracy from these alone", of="correct"),
        Mean("rest_accuracy", "from the rest", of="rest_correct"),
        Mean("sufficiency_mean", "sufficiency", of="sufficiency"),
        Mean("comprehensiveness_mean", "comprehensiveness", of="comprehensiveness"),
        Mean("token_f1_mean", "token F1", of="token_f1", optional=True),
        Mean("iou_f1_mean", "IoU F1", of="iou_f1", optional=True),
    ),
    by=(Key("size", "size"), Key("scores", "scores", lambda row: measure_label(row["scores"]))),
    cases=_budget_cases,
    source="DeYoung et al. (2020), section 4",
    place=36,
    needs=("selection_measures", "selection_shares", "selection_chosen", "selection_kept_probs", "selection_removed_probs"),
    uses=("rationale", "importance_*", "attention"),
    caption="Selections of one size",
    note="The tokens that each score ranks first, as many of all. Sufficiency: how much less probable the predicted class "
    "is from these tokens alone (small is good); comprehensiveness: without them (large is good). Of a model that selects, "
    "attention is its own selection, which it reads as it reads the text: sufficiency is 0 there by construction.",
)


# ---------------------------------------------------------------------------------------------- what places tell


LABEL, PREDICTION = "gold label", "predicted class"


def _leakage_cases(cell: Cell) -> Iterator[Case]:
    """What places tell of the gold label, and of the class that the model predicts."""
    selected = records.rows(cell.table, "selected")
    for of, classes in ((LABEL, cell.labels), (PREDICTION, cell.predicted)):
        accuracies = leakage(selected, classes)
        values = {"places": accuracies.places, "lengths": accuracies.lengths, "majority": accuracies.majority}
        yield Case(values, {"of": of}, {"p_value": accuracies.p_value})


def _leakage_sentences(cell: Cell) -> list[str]:
    row = render.rows(LEAKAGE.table, cell)[0]
    if not row["n"] or np.isnan(row["p_value"]):
        return []
    verdict = "they tell the label" if row["p_value"] < 0.05 else "it cannot be told whether they say anything of the label"
    return [
        f"From the places alone that are selected a linear classifier tells the label of {row['places_accuracy']:.1%} of "
        f"{counted(row['n'])}{render.interval_in_words(row)}, from the length alone {row['length_accuracy']:.1%}, by the "
        f"commonest class {row['majority_accuracy']:.1%}: {verdict} (p = {row['p_value']:.3f})."
    ]


LEAKAGE = summary_section(
    "leakage",
    None,
    (
        *counts("places"),
        Mean("places_accuracy", "from the places selected [95 % interval]", of="places", interval=MAIN),
        Mean("length_accuracy", "from the length alone", of="lengths"),
        Mean("majority_accuracy", "the commonest class", of="majority"),
        Column("p_value", "p, labels exchanged"),
    ),
    by=(Key("of", "told"),),
    cases=_leakage_cases,
    source="Jacovi and Goldberg (2021), section 5",
    place=37,
    needs=("selected", "label", "probs"),
    caption="What the places tell",
    note="Accuracy of a linear classifier that sees how many tokens are selected, in how many runs and at which places, and "
    "how long the text is, but no word; each text is told by a fit on four fifths of the others. p: how often labels "
    "exchanged among texts of about one length are told as much better than from the length alone. Undefined: texts without "
    "tokens or label; all where there are fewer than 20, or one class. It is a lower bound: another classifier may tell "
    "more.",
    sentences=_leakage_sentences,
)
