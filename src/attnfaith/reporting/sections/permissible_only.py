"""What a model says without the impermissible tokens, from a record's `permissible_only_probs`.

Per text: whether it is right then, whether its decision changes, and how far its prediction moves (TVD, 0..1). Undefined
where a text has no impermissible token, or no other.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import stacked
from attnfaith.reporting.spec import MAIN, Case, Classes, Mean, Section, Table, counts, per_cell


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """permissible_only_correct: 1 where the class is the gold label then, 0 where not; _accuracy_lost: 1 where it was right
    of the whole text and no longer is, -1 the other way round, else 0; both NaN without a label. _flips: 1 where the
    decision changes. _tvd: how far the prediction moves.
    """
    probs = stacked(cell, "permissible_only_probs")
    defined = ~np.isnan(probs).any(1)
    labelled = defined & ~np.isnan(cell.labels)
    then, before = (np.where(labelled, one.argmax(1) == cell.labels, np.nan) for one in (probs, cell.probs))
    tvd = np.full(len(cell), np.nan)
    tvd[defined] = total_variation_distance(cell.probs[defined], probs[defined])
    return {
        "permissible_only_correct": then,
        "permissible_only_accuracy_lost": before - then,
        "permissible_only_flips": np.where(defined, probs.argmax(1) != cell.predicted, np.nan),
        "permissible_only_tvd": tvd,
    }


def _cases(cell: Cell) -> Iterator[Case]:
    values = {name.removeprefix("permissible_only_"): numbers for name, numbers in per_text(cell).items()}
    yield Case({**values, "before": values["correct"] + values["accuracy_lost"]})


TABLE = Table(
    name="permissible_only",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("tvd"),
        Mean("lost_mean", "accuracy lost [95 % interval]", of="accuracy_lost", interval=MAIN),
        Mean("before_mean", "accuracy of whole texts", of="before", interval=None),
        Mean("correct_mean", "without impermissible tokens", of="correct"),
        Mean("flip_share", "changes the decision", of="flips"),
        Mean("tvd_mean", "TVD of the predictions", of="tvd"),
    ),
    caption="Without the impermissible tokens",
    note="The same texts read whole, and without their impermissible tokens. Accuracy is of those that have a label; TVD: "
    "total variation distance of the two predictions. Undefined: texts without impermissible tokens, or with no other; they "
    "are in no mean.",
)


def _sentences(cell: Cell) -> list[str]:
    row = render.rows(TABLE, cell)[0]
    if not row["n"]:
        return ["No text has both impermissible tokens and others, so that a model could be asked what the others tell it."]
    words = f"Without the impermissible tokens the decision changes in {row['flip_share']:.1%} of {counted(row['n'])}"
    if not np.isnan(row["lost_mean"]):
        words += f" and accuracy is {row['correct_mean']:.1%} in place of {row['before_mean']:.1%}; lost are "
        words += f"{row['lost_mean']:.3f}{render.interval_in_words(row)}"
    return [f"{words}.", "Some of it may be that a shortened text is unlike those of training."]


SECTION = Section(
    name="permissible_only",
    source="Pruthi et al. (2020), table 3",
    place=49,
    chapter="interventions",
    needs=("permissible_only_probs", "probs", "label", "attention"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
