"""The page of a comparison: which model is right more often, whose attention agrees more with importance, and the table."""

from collections.abc import Iterator, Mapping

import numpy as np
from markupsafe import Markup

from attnfaith.reporting.cells import quantity_label
from attnfaith.reporting.chart import INK, Bar, Chart, svg
from attnfaith.reporting.compare import Comparison
from attnfaith.reporting.heatmap import signed
from attnfaith.reporting.html import template
from attnfaith.support.errors import counted


PREFERRED = ("integrated_gradients", "leave_one_out", "gradient")
"""Measures of the sentences, the first MOST_TAUS of those that are there; else the first of the table."""
MOST_TAUS = 2
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("var(--a)", "var(--b)")
TAU = "tau attention–"


def comparison_page(comparison: Comparison) -> str:
    """Return the HTML of one page: what differs in sentences, a chart of agreement, and the table."""
    letters = dict(zip(comparison.sides, LETTERS, strict=False))
    colours = dict(zip(letters, COLOURS, strict=False))
    return template("compare.html.j2").render(
        title="What differs?",
        sides=[(letter, name, colours.get(name, INK)) for name, letter in letters.items()],
        sentences=list(sentences(comparison, letters)),
        chart=_chart(comparison, letters, colours),
        grid=comparison.grid,
        notes=comparison.notes,
    )


def sentences(comparison: Comparison, letters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(sentence, its numbers) of each other side: accuracy first, then agreement with at most two measures."""
    first = letters[comparison.sides[0]]
    for name, rows in comparison.frame.groupby("second", sort=False):
        second = letters.get(name, name)
        by_quantity = {row["quantity"]: row for row in rows.to_dict("records")}
        if "correct" in by_quantity:
            words = "{} is right more often than {}.", "Which is right more often"
            yield _sentence(by_quantity["correct"], first, second, *words)
        taus = [TAU + measure for measure in PREFERRED if TAU + measure in by_quantity]
        taus = taus or [quantity for quantity in by_quantity if quantity.startswith(TAU)]
        for quantity in taus[:MOST_TAUS]:
            measure = _measure(quantity)
            more = f"The attention of {{}} orders words more as {measure} does than that of {{}}."
            words = more, f"Whose attention orders words more as {measure} does"
            yield _sentence(by_quantity[quantity], first, second, *words, unit="τ ")


def _measure(quantity: str) -> str:
    return quantity_label(quantity).removeprefix("τ attention–")


def _sentence(row: Mapping, first: str, second: str, more: str, question: str, unit: str = "") -> tuple[str, str]:
    """A row of the comparison as a sentence, and its numbers."""
    numbers = f"{first} {unit}{signed(row['mean_first'])}, {second} {unit}{signed(row['mean_second'])}"
    if not np.isnan(row["ci_low"]):
        numbers += f"; difference {signed(row['difference'])} [{signed(row['ci_low'])}, {signed(row['ci_high'])}]"
    numbers += f", {counted(int(row['n_texts']))}."
    if row["verdict"] in ("higher", "lower"):
        return more.format(*((second, first) if row["verdict"] == "higher" else (first, second))), numbers
    return f"{question} cannot be told.", numbers


def _chart(comparison: Comparison, letters: Mapping[str, str], colours: Mapping[str, str]) -> Markup | None:
    """Mean tau of every side with each measure. None where no tau is defined."""
    rows = comparison.frame[comparison.frame["quantity"].str.startswith(TAU) & comparison.frame["difference"].notna()]
    first, bars = comparison.sides[0], []
    for quantity, sides in rows.groupby("quantity", sort=False):
        marks = [(sides["mean_first"].iloc[0], colours[first])]
        marks += [(row.mean_second, colours.get(row.second, INK)) for row in sides.itertuples()]
        bars.append(Bar(_measure(quantity), tuple(marks)))
    axis = f"Mean Kendall’s τ; numbers are of {letters[first]}"
    return svg(Chart("Agreement of attention with each measure", axis, tuple(bars))) if bars else None
