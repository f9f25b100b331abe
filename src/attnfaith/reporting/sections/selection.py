"""What a model selects, what it says of that and of the rest, and how far it is what people, or a generator, marked.

Undefined: of a text without tokens; accuracy without a label; agreement with marked tokens where none is marked. A text in
which nothing is selected stays in all means: its F1 is 0. The papers leave it out; a row says what that gives.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision, span_iou, spans, token_f1
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import stacked
from attnfaith.reporting.spec import MAIN, Case, Key, Mean, Section, Table, counts, per_cell


ALL, SOME = "all", "with a selection (papers)"
"""Which texts a row is over: all, or, as published code has it, those in which something is selected."""


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Of each text: share_selected, spans_selected (number of runs), nothing_selected, everything_selected; and where the
    record has them complement_correct, complement_same (the predicted class stays without what is selected), and against
    marked tokens selection_precision, _recall, _f1, _iou_f1 and _auprc; marked_selected, whether a marked token is among
    what is selected; and, where none is, unmarked_correct.
    """
    rows = records.rows(cell.table, "selected")
    empty = cell.lengths == 0
    share = np.array([np.mean(row) if len(row) else np.nan for row in rows])
    runs = np.array([len(spans(row)) if len(row) else np.nan for row in rows], np.float64)
    made = {
        "share_selected": share,
        "spans_selected": runs,
        "nothing_selected": np.where(empty, np.nan, share == 0),
        "everything_selected": np.where(empty, np.nan, share == 1),
    }
    if "complement_probs" in cell.table.column_names:
        without = stacked(cell, "complement_probs").argmax(1)
        known = ~np.isnan(cell.labels) & ~empty
        made["selection_correct"] = np.where(known, stacked(cell, "selection_probs").argmax(1) == cell.labels, np.nan)
        made["complement_correct"] = np.where(known, without == cell.labels, np.nan)
        made["complement_same"] = np.where(empty, np.nan, without == cell.predicted)
    if "rationale" in cell.table.column_names:
        gold = records.rows(cell.table, "rationale")
        marks = [row.astype(np.float64) for row in rows]
        for name, values in zip(("precision", "recall", "f1"), token_f1(marks, gold), strict=True):
            made[f"selection_{name}"] = values
        made["selection_iou_f1"] = span_iou(marks, gold)[2]
        made["selection_auprc"] = average_precision(records.rows(cell.table, "selection"), gold)
        recall = made["selection_recall"]
        made["marked_selected"] = np.where(np.isnan(recall), np.nan, recall > 0)
        if "selection_correct" in made:
            made["unmarked_correct"] = np.where(recall == 0, made["selection_correct"], np.nan)
    return made


def _cases(cell: Cell) -> Iterator[Case]:
    values = per_text(cell)
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


TABLE = Table(
    name="selection",
    cases=_cases,
    by=(Key("over", "over"),),
    columns=(
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
    caption="What the model selects and reads",
    note="Runs: longest stretches of selected tokens. Accuracy from the selection: the model reads what it selects and "
    "nothing else, so this is its accuracy; from the rest: it reads all other tokens, and none of those. F1 against marked "
    "tokens: of each text, mean over texts; where nothing is selected it is 0. Accuracy where no marked token is selected: "
    "above chance, the label is told by something else, perhaps by the places that are selected. With a selection: texts in "
    "which nothing is selected left out, as published code does.",
)


def _sentences(cell: Cell) -> list[str]:
    row = render.rows(TABLE, cell)[0]
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


SECTION = Section(
    name="selection",
    source="Lei et al. (2016); Bastings et al. (2019)",
    place=35,
    needs=("selected", "selection"),
    uses=("selection_probs", "complement_probs", "rationale"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
