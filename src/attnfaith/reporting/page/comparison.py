"""The page of a comparison: which model is right more often, whose attention agrees more with importance, and the table."""

from collections.abc import Iterator, Mapping

import numpy as np

from attnfaith import __version__
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import quantity_label
from attnfaith.reporting.chart import OTHER, TAUS, Bar, Chart, svg
from attnfaith.reporting.compare import Comparison
from attnfaith.reporting.heatmap import PAPER, signed
from attnfaith.support.errors import counted


TOLD = ("integrated_gradients", "leave_one_out", "gradient")
"""Measures that sentences speak of, the first two of those that are there; else the first two of the table."""
MOST_TOLD = 2
COLOURS = ("var(--a)", "var(--b)")
TAU = "tau attention–"


def comparison_page(comparison: Comparison) -> str:
    """The HTML of one page: what differs in sentences, a chart of agreement, and the table."""
    letters = dict(zip(comparison.sides, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    return template("compare.html.j2").render(
        title="What differs?",
        sides=[(letters.get(name, ""), name, COLOURS[place] if place < 2 else OTHER) for place, name in enumerate(letters)],
        version=__version__,
        sentences=list(sentences(comparison, letters)),
        chart=_chart(comparison, letters),
        grid=comparison.grid,
        notes=comparison.notes,
        paper=PAPER,
    )


def sentences(comparison: Comparison, letters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(what is told, its numbers) of each other side: accuracy first, then agreement with at most two measures."""
    (first, *_), frame = comparison.sides, comparison.frame
    one = letters[first]
    for name, rows in frame.groupby("second", sort=False):
        other = letters.get(name, name)
        known = {row["quantity"]: row for row in rows.to_dict("records")}
        if "correct" in known:
            yield _told(known["correct"], one, other, "{} is right more often than {}.", "Which is right more often")
        taus = [TAU + measure for measure in TOLD if TAU + measure in known]
        taus = taus or [quantity for quantity in known if quantity.startswith(TAU)]
        for quantity in taus[:MOST_TOLD]:
            measure = quantity_label(quantity).removeprefix("τ attention–")
            more = f"The attention of {{}} orders words more as {measure} does than that of {{}}."
            yield _told(known[quantity], one, other, more, f"Whose attention orders words more as {measure} does", "τ ")


def _told(row: Mapping, one: str, other: str, more: str, which: str, unit: str = "") -> tuple[str, str]:
    """What a row of the comparison says, and its numbers."""
    numbers = f"{one} {unit}{signed(row['mean_first'])}, {other} {unit}{signed(row['mean_second'])}"
    if not np.isnan(row["ci_low"]):
        numbers += f"; difference {signed(row['difference'])} [{signed(row['ci_low'])}, {signed(row['ci_high'])}]"
    numbers += f", {counted(int(row['n_texts']))}."
    if row["verdict"] in ("higher", "lower"):
        return more.format(*((other, one) if row["verdict"] == "higher" else (one, other))), numbers
    return f"{which} cannot be told.", numbers


def _chart(comparison: Comparison, letters: Mapping[str, str]):
    """Tau of two sides with each measure; of more the differences from the first. None where no tau is defined."""
    rows = comparison.frame[comparison.frame["quantity"].str.startswith(TAU) & comparison.frame["difference"].notna()]
    two, bars = len(comparison.sides) == 2, []
    for row in rows.to_dict("records"):
        label = quantity_label(row["quantity"]).removeprefix("τ attention–")
        if two:
            values = {"value": row["mean_first"], "other": row["mean_second"], "low": np.nan, "high": np.nan}
            bars.append(Bar(label, **values, colour=COLOURS[0], other_colour=COLOURS[1]))
        else:
            label = f"{label}, {letters.get(row['second'], row['second'])}"
            bars.append(Bar(label, row["difference"], row["ci_low"], row["ci_high"], OTHER))
    if not bars:
        return None
    first = letters[comparison.sides[0]]
    if two:
        axis = f"Mean Kendall’s τ; numbers are of {first}"
        return svg(Chart("Agreement of attention with each measure", axis, tuple(bars), 0.0, ticks=TAUS))
    chart = Chart("Which orders are more alike?", f"Difference of τ from {first}", tuple(bars), 0.0, mark="no difference")
    return svg(chart)
