"""How much of the attention that is shown lies on markers, from a record's `marker_attention`: 0..1 per text."""

from collections.abc import Iterator

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.spec import MAIN, Case, Classes, Mean, Median, Section, Sentence, Share, Table, counts


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """marker_attention of each text."""
    return {"marker_attention": column(cell, "marker_attention")}


def _cases(cell: Cell) -> Iterator[Case]:
    yield Case(per_text(cell))


TABLE = Table(
    name="marker_attention",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("marker_attention"),
        Mean("share_mean", "mean share [95 % interval]", of="marker_attention", interval=MAIN),
        Median("share_median", "median", of="marker_attention"),
        Share("share_above_0.5", "texts with more than half", of="marker_attention", above=0.5),
    ),
    caption="Attention on markers",
    note="Share of the rows that are shown that lies on no token of the text but on markers such as [CLS] and [SEP]. What "
    "is shown of a text is the rest, divided by its sum.",
)
SECTION = Section(
    name="marker_attention",
    place=45,
    needs=("marker_attention", "probs"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=Sentence(
        TABLE,
        text="On average {row[share_mean]:.0%} of the attention that is shown lies on markers{interval}, more than half in "
        "{row[share_above_0.5]:.0%} of {texts}: the weights of tokens are parts of the rest.",
        nothing="No text has a known share of attention on markers ({row[n_undefined]:,} undefined).",
    ),
)
