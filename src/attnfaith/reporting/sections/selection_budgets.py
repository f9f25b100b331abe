"""Selections of one size: what the model says of the tokens that attention and each measure rank first, and of the rest."""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.plausibility import span_iou, token_f1
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import shared, stacked
from attnfaith.reporting.spec import Case, Key, Mean, Section, Table, counts


OWN = "as many as selected"


def _cases(cell: Cell) -> Iterator[Case]:
    kept, removed = (stacked(cell, f"selection_{name}_probs") for name in ("kept", "removed"))
    chosen = records.rows(cell.table, "selection_chosen")
    gold = records.rows(cell.table, "rationale") if "rationale" in cell.table.column_names else None
    texts, whole = np.arange(len(cell)), cell.probs.astype(np.float64)
    of_class, empty = whole[texts, cell.predicted], cell.lengths == 0
    names, shares = shared(cell, "selection_measures"), shared(cell, "selection_shares")
    for share in dict.fromkeys(shares):
        for place in (number for number, one in enumerate(shares) if one == share):
            name, one, other = names[place], kept[:, place], removed[:, place]
            undefined = np.isnan(one).any(1) | empty
            unlabelled = undefined | np.isnan(cell.labels)
            values = {
                "sufficiency": of_class - one[texts, cell.predicted],
                "comprehensiveness": of_class - other[texts, cell.predicted],
            }
            values = {key: np.where(undefined, np.nan, of_texts) for key, of_texts in values.items()}
            for key, probs in (("correct", one), ("rest_correct", other)):
                values[key] = np.where(unlabelled, np.nan, np.nan_to_num(probs).argmax(1) == cell.labels)
            if gold is not None:
                marks = [row[place].astype(np.float64) for row in chosen]
                values["token_f1"] = np.where(undefined, np.nan, token_f1(marks, gold)[2])
                values["iou_f1"] = np.where(undefined, np.nan, span_iou(marks, gold)[2])
            yield Case(values, {"scores": name, "size": OWN if share == 0 else f"{share:.0%}"})


TABLE = Table(
    name="selection_budgets",
    cases=_cases,
    by=(Key("size", "size"), Key("scores", "scores", lambda row: measure_label(row["scores"]))),
    columns=(
        *counts("sufficiency"),
        Mean("accuracy", "accuracy from these alone", of="correct"),
        Mean("rest_accuracy", "from the rest", of="rest_correct"),
        Mean("sufficiency_mean", "sufficiency", of="sufficiency"),
        Mean("comprehensiveness_mean", "comprehensiveness", of="comprehensiveness"),
        Mean("token_f1_mean", "token F1", of="token_f1", optional=True),
        Mean("iou_f1_mean", "IoU F1", of="iou_f1", optional=True),
    ),
    caption="Selections of one size",
    note="The tokens that each score ranks first, as many of all. Sufficiency: how much less probable the predicted class "
    "is from these tokens alone (small is good); comprehensiveness: without them (large is good). Of a model that selects, "
    "attention is its own selection, which it reads as it reads the text: sufficiency is 0 there by construction.",
)


SECTION = Section(
    name="selection_budgets",
    source="DeYoung et al. (2020), section 4",
    place=36,
    needs=("selection_measures", "selection_shares", "selection_chosen", "selection_kept_probs", "selection_removed_probs"),
    uses=("rationale", "importance_*", "attention"),
    tables=(TABLE,),
)
