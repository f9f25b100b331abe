"""How far attention and importance rank the tokens of a text alike: Kendall's tau-b, text by text (Jain & Wallace 2019,
section 4.1).

Undefined for a text of fewer than two tokens, or where all scores of one of the two are equal.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement
from attnfaith.reporting.cells import Cell, main_measures, measure_label, pair_name
from attnfaith.reporting.figures import RANGES, Drawing
from attnfaith.reporting.html import CLASS_COLUMN
from attnfaith.reporting.render import frame
from attnfaith.reporting.spec import Quantity, Row, Section, Table, cells_of, per_cell
from attnfaith.stats import t_interval


NO_MEASURE = "The record holds no importance measure, so agreement with attention was not measured."
ALIKE = 0.999  # tau of rankings that differ by rounding only


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Tau of attention with each measure of the cell, [N] in -1..1: "tau attention–gradient", ..."""
    return {f"tau {pair_name('attention', name)}": cell.tau("attention", name) for name in cell.measures}


def _rows(cell: Cell) -> Iterator[Row]:
    for first, second in cell.pairs:
        by_class = agreement(cell.scores(first), cell.scores(second), cell.predicted)
        for name, summary in by_class.items():
            yield {"pair": pair_name(first, second), "class": name, **summary}


def pair_label(row: Row) -> str:
    """A row's pair for reading: "attention – leave-one-out"."""
    return " – ".join(measure_label(name) for name in row["pair"].split("–"))


TABLE = Table(
    name="agreement",
    rows=_rows,
    heads=2,
    headings={
        "pair": ("pair", pair_label),
        "class": CLASS_COLUMN,
        "n": "texts",
        "n_undefined": "undefined",
        "tau_mean": "mean τ [95 % interval]",
        "tau_std": "std",
        "share_significant": "significant",
        "tie_ceiling": "tie ceiling",
        "tau_over_ceiling": "τ / ceiling",
    },
    caption="Agreement of token rankings",
    note="Kendall’s τ-b of two token rankings, one text at a time: 1 same order, 0 no relation, −1 reversed. "
    "Undefined: texts with fewer than two tokens or with all scores equal; they are in no mean. Significant: "
    "share of texts with p ≤ 0.05. Tie ceiling: the largest τ that tied scores allow, mean over texts.",
)


def agreement_table(record: "pa.Table | Sequence[Cell]") -> pd.DataFrame:
    """Return how far attention and importance rank the tokens of a text alike (Kendall's tau-b).

    One row per cell x pair x predicted class. Pairs: attention with every importance measure of the record, and gradient
    with leave-one-out. Classes: "overall", then "0", "1", ... as the model predicted them. Numbers: those of
    `rank_agreement.agreement`.
    """
    return frame(TABLE, cells_of(record))


def side_by_side(cells: Sequence[Cell]) -> list[str]:
    """The range of mean tau over several cells, a sentence for each measure."""
    cells = [cell for cell in cells if SECTION.applies(cell)]
    sentences = []
    for name in dict.fromkeys(name for cell in cells for name in cell.measures):
        taus = [
            SECTION.summary(cell)[f"tau {pair_name('attention', name)}"]["mean"] for cell in cells if name in cell.measures
        ]
        defined = [tau for tau in taus if not np.isnan(tau)]
        words = f"lies between {min(defined):.2f} and {max(defined):.2f}" if defined else "is undefined in all cells"
        sentences.append(f"attention – {measure_label(name)}: mean Kendall’s τ {words}.")
    return sentences or [NO_MEASURE]


def taus(cell: Cell) -> dict[str, np.ndarray]:
    """Tau [N] of attention with each measure and of the two importance measures, by label."""
    return {
        measure_label(second if first == "attention" else pair_name(first, second)): cell.tau(first, second)
        for first, second in cell.pairs
    }


SECTION = Section(
    name="agreement",
    place=10,
    needs=("attention", "probs"),
    per_text=per_text,
    quantities={"tau *": Quantity(interval=t_interval)},
    tables=(TABLE,),
    figure=Drawing(
        name="tau_by_measure",
        title="Attention and each importance measure",
        values=taus,
        axis="Kendall's τ per text (1: same order, 0: no relation)",
        bounds=(-1, 1),
        mark=0,
        caption=f"Agreement of attention with importance in single texts, and of two importance measures ({RANGES}).",
        when=lambda cell: bool(cell.measures),
    ),
    lead=lambda cell: [f"tau {pair_name('attention', name)}" for name in main_measures(cell)],
)
