"""How far attention and importance rank the tokens of a text alike: Kendall's tau-b, text by text (Jain & Wallace 2019,
section 4.1).

Undefined for a text of fewer than two tokens, or where all scores of one of the two are equal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement, agreement_by_text
from attnfaith.reporting.cells import Cell, main_measures, pair_name, per_cell, readable
from attnfaith.reporting.charts import TAUS, Chart, text_chart
from attnfaith.reporting.sections import saliency
from attnfaith.reporting.spec import Quantity, Row, section, table
from attnfaith.reporting.tables import signed
from attnfaith.stats import t_interval


NO_MEASURE = "The record holds no importance measure, so agreement with attention was not measured."
ALIKE = 0.999  # tau of rankings that differ by rounding only
TAU = "tau attention–"


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Tau of attention with each measure of the cell, [N] in -1..1: "tau attention–gradient", ..."""
    return {f"{TAU}{name}": cell.tau("attention", name) for name in cell.measures}


def _rows(cell: Cell) -> Iterator[Row]:
    for first, second in cell.pairs:
        by_text = agreement_by_text(cell.scores(first), cell.scores(second))
        for name, summary in agreement(by_text, cell.predicted).items():
            yield {"pair": pair_name(first, second), "class": name, **summary}


TABLE = table("agreement", rows=_rows)
"""One row per cell x pair x predicted class, "overall" first, then "0", "1", …: numbers of `rank_agreement.agreement`."""


def side_by_side(cells: Sequence[Cell]) -> list[str]:
    """The range of mean tau over several cells, a sentence for each measure."""
    taus: dict[str, list[float]] = {}
    for cell in filter(SECTION.applies, cells):
        for name, row in SECTION.summary(cell).items():
            taus.setdefault(name.removeprefix(TAU), []).append(row["mean"])
    sentences = []
    for name, means in taus.items():
        low, high = np.fmin.reduce(means), np.fmax.reduce(means)
        words = "is undefined in all cells" if np.isnan(low) else f"lies between {signed(low)} and {signed(high)}"
        sentences.append(f"attention – {readable(name)}: mean Kendall’s τ {words}.")
    return sentences or [NO_MEASURE]


@per_cell
def agreement_chart(cell: Cell) -> Chart:
    """Tau of attention with each measure of inputs, the best first. A measure that orders every text as attention does is
    named and not drawn.
    """
    taus = {name: cell.tau("attention", name) for name in cell.inputs}
    alike = [name for name, tau in taus.items() if (tau[~np.isnan(tau)] > ALIKE).all() and not np.isnan(tau).all()]
    left_out = f"Not drawn, because they order every text as attention does: {', '.join(map(readable, alike))}."
    return text_chart(
        "tau_by_measure",
        by_mean({name: tau for name, tau in taus.items() if name not in alike}),
        ticks=TAUS,
        interval=t_interval,
        chance=0.0,
        why=left_out if alike else "",
    )


def by_mean(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Numbers of texts by the label of their measure, the largest mean first; without what is undefined for all texts."""
    means = {name: np.nanmean(numbers) for name, numbers in values.items() if not np.isnan(numbers).all()}
    return {readable(name): values[name] for name in sorted(means, key=lambda name: -means[name])}


def measures_chart(cells: Sequence[Cell]) -> Chart | None:
    """The chart of a model's records: which measure finds the words that decide, where these are known; else agreement with
    attention. None where nothing is drawn.
    """
    measured = [cell for cell in cells if cell.inputs]
    for cell in filter(saliency.PLAUSIBILITY.applies, measured):
        precisions = {name: saliency.precisions(cell)[name] for name in ("attention", *cell.inputs)}
        values = by_mean(precisions) if cell.heading["dataset"] in saliency.GENERATED else {}
        if values:
            chance = saliency.EVIDENCE.rows_of(cell)[0]["random_baseline"]
            return text_chart("evidence", values, chance=chance)
    chart = SECTION.chart_of(measured[0]) if measured else None
    if chart is None or not saliency.PLAUSIBILITY.applies(measured[0]):
        return chart
    why = (
        "Evidence is marked in these texts. Marks of people say what convinces people, not what the model used: so "
        "agreement is drawn, and how well each measure finds the marked tokens stands in the table of plausibility."
    )
    return replace(chart, why=f"{chart.why} {why}".strip())


SECTION = section(
    "agreement",
    per_text=per_text,
    quantities={"tau *": Quantity(interval=t_interval)},
    tables=(TABLE,),
    chart=agreement_chart,
    lead=lambda cell: [f"{TAU}{name}" for name in main_measures(cell)],
)
