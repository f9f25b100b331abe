"""The length of impermissible tokens' vectors beside their attention, from a record's `value_norm_share`: 0..1 per text.

Undefined where a text has no impermissible token, or no other.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.spec import MAIN, Case, Classes, Mean, Median, Section, Sentence, Table, counts, per_cell


HEADS = "value_norm_share_head_max"


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """value_norm_share of each text; value_norm_excess, what it is above the attention shown on the same tokens, -1..1."""
    shares, marks = column(cell, "value_norm_share"), records.rows(cell.table, "impermissible")
    shown = [weights[np.asarray(marked, bool)].sum() for weights, marked in zip(cell.attention, marks, strict=True)]
    return {"value_norm_share": shares, "value_norm_excess": shares - np.array(shown, np.float64)}


def _cases(cell: Cell) -> Iterator[Case]:
    values = per_text(cell)
    values = {**values, "attention": values["value_norm_share"] - values["value_norm_excess"]}
    if HEADS in cell.table.column_names:
        values["head_max"] = column(cell, HEADS)
    yield Case(values)


TABLE = Table(
    name="value_norm_share",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("value_norm_share"),
        Mean("share_mean", "share of length [95 % interval]", of="value_norm_share", interval=MAIN),
        Median("share_median", "median", of="value_norm_share"),
        Mean("head_max_mean", "in the head with most", of="head_max", optional=True),
        Mean("attention_mean", "attention shown on them", of="attention"),
        Mean("excess_mean", "length less attention", of="value_norm_excess"),
    ),
    caption="Length of impermissible tokens’ vectors",
    note="Sum of the lengths of the vectors that attention weighs, of impermissible tokens as a share of all; beside it the "
    "attention shown on them. Where the share of length is far above that of attention, a little weight is enough to carry "
    "them. Of a model with many heads vectors are the heads’ values, markers included. Undefined: texts without "
    "impermissible tokens, or with no other; they are in no mean.",
)
SECTION = Section(
    name="value_norm_share",
    source="the code of Pruthi et al. (2020)",
    place=48,
    needs=("value_norm_share", "impermissible", "probs", "attention"),
    uses=(HEADS,),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=Sentence(
        TABLE,
        text="Impermissible tokens have {row[share_mean]:.1%} of the length of all vectors that attention weighs{interval} "
        "and {row[attention_mean]:.1%} of the attention shown (means over {texts}). Long vectors under little "
        "weight are a sign that they are read all the same, and no proof.",
        left_out="Left out because they have none of them, or nothing else: {row[n_undefined]:,}.",
        nothing="No text has both impermissible tokens and others ({row[n_undefined]:,} undefined).",
    ),
)
