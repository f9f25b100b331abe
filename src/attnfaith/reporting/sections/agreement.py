"""How far attention and importance rank the tokens of a text alike: Kendall's tau-b, text by text.

Undefined for a text of fewer than two tokens, or where all scores of one of the two are equal.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement
from attnfaith.reporting.cells import Cell, main_measures, measure_label, pair_name
from attnfaith.reporting.figures import RANGES, drawing, ranges
from attnfaith.reporting.html import CLASS_COLUMN
from attnfaith.reporting.render import frame, interval_in_words, left_out, rows
from attnfaith.reporting.spec import Quantity, Row, Section, Table, cells_of, per_cell
from attnfaith.stats import t_interval
from attnfaith.support.errors import counted


NO_MEASURE = "The record holds no importance measure, so agreement with attention was not measured."
ALIKE = 0.999  # tau of rankings that differ by rounding only


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Tau of attention with each measure of the cell, [N] in -1..1: "tau attention–gradient", ..."""
    return {f"tau {pair_name('attention', name)}": cell.tau("attention", name) for name in cell.measures}


# ---------- table


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
    """How far attention and importance rank the tokens of a text alike (Kendall's tau-b).

    One row per cell x pair x predicted class. Pairs: attention with every importance measure of the record, and gradient
    with leave-one-out, two importance measures. Classes: "overall", then "0", "1", ... as the model predicted them.

    n: instances with a defined tau. n_undefined: instances without one (fewer than two tokens, or a constant vector);
    they enter no mean. tau_mean, tau_std: in -1..1, population standard deviation. share_significant: of the defined,
    those with p <= 0.05, in 0..1. ci_low, ci_high: Student's 95 % interval of the mean over instances. tie_ceiling: mean of
    the largest tau that the ties of a text allow. tau_over_ceiling: mean of tau over that of the same text.

    Source: Jain & Wallace (2019), section 4.1.
    """
    return frame(TABLE, cells_of(record))


# ---------- sentences


def summarise(cell: Cell) -> Iterator[str]:
    """A sentence for each main measure of a cell, and for the two importance measures."""
    overall = {row["pair"]: row for row in rows(cell, TABLE) if row["class"] == "overall"}
    if not overall:
        yield NO_MEASURE
    names = [pair_name("attention", name) for name in main_measures(cell) if name != "attention"]
    for name in (*names, pair_name("gradient", "leave_one_out")):
        if name in overall:
            yield _sentence(overall[name])


def _sentence(row: Row) -> str:
    first, second = pair_label(row).split(" – ")
    if not row["n"]:
        return f"Kendall’s τ of {first} and {second} is undefined for all texts ({row['n_undefined']:,})."
    text = (
        f"Kendall’s τ of {first} and {second} is {row['tau_mean']:.2f} on average over {counted(row['n'])}"
        f"{interval_in_words(row)}; it differs from chance (p ≤ 0.05) in {row['share_significant']:.0%} of them."
    )
    if row["tie_ceiling"] < 0.995:
        text += f" Tied tokens allow {row['tie_ceiling']:.2f} at most; of that, {row['tau_over_ceiling']:.0%} is reached."
    return text + left_out(row["n_undefined"])


def side_by_side(cells: Sequence[Cell]) -> list[str]:
    """The range of mean tau over several cells, a sentence for each pair."""
    table = frame(TABLE, [cell for cell in cells if SECTION.applies(cell)])
    if table.empty:
        return [NO_MEASURE]
    sentences = []
    for _, members in table[table["class"] == "overall"].groupby("pair", sort=False):
        taus = members["tau_mean"].dropna()
        words = f"lies between {taus.min():.2f} and {taus.max():.2f}" if len(taus) else "is undefined in all cells"
        sentences.append(f"{pair_label(members.iloc[0])}: mean Kendall’s τ {words}.")
    return sentences


# ---------- figure


def taus(cell: Cell) -> tuple[dict[str, np.ndarray], list[str]]:
    """Tau [N] of attention with each measure and of the two importance measures, by label; and the labels of measures that
    order every text as attention does, which are left out.
    """
    values = {
        measure_label(second if first == "attention" else pair_name(first, second)): cell.tau(first, second)
        for first, second in cell.pairs
    }
    alike = [label for label, tau in values.items() if np.nanmin(tau, initial=1.0) > ALIKE and not np.isnan(tau).all()]
    return {label: tau for label, tau in values.items() if label not in alike}, alike


def _caption(cell: Cell) -> str:
    alike = taus(cell)[1]
    remark = f" Not drawn, because they order every text as attention does: {', '.join(alike)}." if alike else ""
    return f"Agreement of attention with importance in single texts, and of two importance measures ({RANGES}).{remark}"


SECTION = Section(
    name="agreement",
    source="Jain & Wallace (2019), section 4.1",
    place=10,
    needs=("attention", "probs"),
    uses=("importance_*",),
    per_text=per_text,
    quantities={"tau *": Quantity(interval=t_interval)},
    tables=(TABLE,),
    figure=drawing(
        "tau_by_measure",
        partial(ranges, bounds=(-1, 1), mark=0),
        "Attention and each importance measure",
        lambda cell: taus(cell)[0],
        "Kendall's τ per text (1: same order, 0: no relation)",
        alt="Range of τ per text, one line for each measure.",
        caption=_caption,
        when=lambda cell: bool(cell.measures),
    ),
    sentences=summarise,
)
