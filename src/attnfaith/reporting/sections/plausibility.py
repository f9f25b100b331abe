"""How far attention and each importance measure point at the tokens that people marked as evidence.

Per text: the area under the precision-recall curve (average precision, 0..1) of its token scores against the `rationale`.
Undefined for a text without a marked token, with all marked, or without tokens. Plausible is not faithful: agreement with
people says nothing about what the model used (Jacovi & Goldberg, 2020).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.metrics.attention_faithfulness.plausibility import average_precision, constant_precision, random_precision
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.render import frame
from attnfaith.reporting.spec import Row, Section, Table, cells_of, counts, main, plain


def _rows(cell: Cell) -> Iterator[Row]:
    gold = cell.rows("rationale")
    chance = {"random_baseline": random_precision(gold), "uniform_baseline": constant_precision(gold)}
    for name in ("attention", *cell.measures):
        auprc = average_precision(cell.scores(name), gold)
        same_texts = {kind: np.where(np.isnan(auprc), np.nan, values) for kind, values in chance.items()}
        yield {"scores": name} | counts(auprc) | main("auprc_mean", auprc) | plain(**same_texts)


TABLE = Table(
    name="plausibility",
    rows=_rows,
    headings={
        "scores": ("scores", lambda row: measure_label(row["scores"])),
        "n": "texts",
        "n_undefined": "undefined",
        "auprc_mean": "mean AUPRC [95 % interval]",
        "random_baseline": "random order",
        "uniform_baseline": "equal scores",
    },
    caption="Plausibility",
    note="Area under the precision-recall curve of token scores against the tokens of the gold evidence, "
    "mean over texts. Random order, equal scores: what scores without any relation reach on the same texts. "
    "Undefined: texts without a marked token, or with all marked. "
    "Where people marked the evidence, this is about what convinces people, not about what the model used.",
)


def plausibility_table(record: "pa.Table | Sequence[Cell]") -> pd.DataFrame:
    """Return how far attention and each importance measure point at the tokens people marked as evidence.

    One row per cell x score. auprc_mean, ci_low, ci_high: mean average precision, in 0..1, with its 95 % interval.
    random_baseline: what scores in random order reach on the same texts; uniform_baseline: what equal scores reach. No rows
    where the record has no rationale.
    """
    return frame(TABLE, [cell for cell in cells_of(record) if SECTION.applies(cell)])


SECTION = Section(name="plausibility", place=20, needs=("rationale", "attention"), tables=(TABLE,))
