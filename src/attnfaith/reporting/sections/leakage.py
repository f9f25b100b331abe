"""Can the label be told from which places a model selects, its words unseen? Then it may speak in places, not by words."""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.leakage import leakage
from attnfaith.reporting.spec import MAIN, Case, Column, Key, Mean, Section, Table, counts, per_cell


LABEL, PREDICTION = "gold label", "predicted class"


@per_cell
def _told(cell: Cell) -> dict:
    """What places tell of the gold label, and of the class that the model predicts."""
    selected = records.rows(cell.table, "selected")
    return {LABEL: leakage(selected, cell.labels), PREDICTION: leakage(selected, cell.predicted)}


def _cases(cell: Cell) -> Iterator[Case]:
    for of, told in _told(cell).items():
        values = {name: getattr(told, name) for name in ("places", "lengths", "majority")}
        yield Case(values, {"of": of}, {"p_value": told.p_value})


TABLE = Table(
    name="leakage",
    cases=_cases,
    by=(Key("of", "told"),),
    columns=(
        *counts("places"),
        Mean("places_accuracy", "from the places selected [95 % interval]", of="places", interval=MAIN),
        Mean("length_accuracy", "from the length alone", of="lengths"),
        Mean("majority_accuracy", "the commonest class", of="majority"),
        Column("p_value", "p, labels exchanged"),
    ),
    caption="What the places tell",
    note="Accuracy of a linear classifier that sees how many tokens are selected, in how many runs and at which places, and "
    "how long the text is, but no word; each text is told by a fit on four fifths of the others. p: how often labels "
    "exchanged among texts of about one length are told as much better than from the length alone. Undefined: texts without "
    "tokens or label; all where there are fewer than 20, or one class. It is a lower bound: another classifier may tell "
    "more.",
)


def _sentences(cell: Cell) -> list[str]:
    row = render.rows(TABLE, cell)[0]
    if not row["n"] or np.isnan(row["p_value"]):
        return []
    verdict = "they tell the label" if row["p_value"] < 0.05 else "it cannot be told whether they say anything of the label"
    return [
        f"From the places alone that are selected a linear classifier tells the label of {row['places_accuracy']:.1%} of "
        f"{counted(row['n'])}{render.interval_in_words(row)}, from the length alone {row['length_accuracy']:.1%}, by the "
        f"commonest class {row['majority_accuracy']:.1%}: {verdict} (p = {row['p_value']:.3f})."
    ]


SECTION = Section(
    name="leakage",
    source="Jacovi and Goldberg (2021), section 5",
    place=37,
    needs=("selected", "label"),
    tables=(TABLE,),
    sentences=_sentences,
)
