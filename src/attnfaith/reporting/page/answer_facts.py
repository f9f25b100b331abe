"""What the tables of a record say of a model, as far as the rules of `answer` ask: nothing is computed here anew."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting.cards.findings import Checkpoint, Number
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.page.answer import Contest, Facts, Interval
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections import saliency


def facts_of(checkpoint: Checkpoint) -> Facts:
    """Facts of the model of a checkpoint, whose first record says how many texts they are over."""
    numbers, cell = checkpoint.numbers, checkpoint.cell
    gradient, deletion = (_tau(numbers.get(f"kendall_tau.{name}")) for name in ("gradient", "leave_one_out"))
    advised = saliency_cell(checkpoint.cells)
    evidence, erasure = ((), ()) if advised is None else _contests(advised)
    if not evidence and cell.heading["dataset"] in saliency.GENERATED and "rationale_auprc" in numbers:
        evidence = (_precision(numbers["rationale_auprc"]),)
    return Facts(
        n=len(cell),
        accuracy=_interval(numbers["accuracy"]),
        majority=_majority(cell),
        equal_weights=cell.heading["projection"] == "uniform",
        evidence=evidence,
        erasure=erasure,
        taus=(deletion, gradient),
        between=_tau(numbers.get("kendall_tau.gradient.leave_one_out")),
        unmoved=_interval(numbers.get("shuffled.small")),
        furthest=_interval(numbers.get("adversary.jsd")),
        advice="" if advised is None else saliency.advice_in_words(advised),
    )


def saliency_cell(cells: Sequence[Cell]) -> Cell | None:
    """The first cell in which attention was tested by erasure; None where it was not."""
    tested = (cell for cell in cells if saliency.SECTION.applies(cell))
    return next((cell for cell in tested if "attention" in saliency.measures(cell)), None)


def _interval(number: Number | None) -> Interval:
    return Interval() if number is None else Interval(number.value, number.low, number.high)


def _tau(number: Number | None) -> Interval:
    """A rank correlation in parts of what ties allow."""
    if number is None or not number.against > 0:
        return Interval()
    return Interval(*(value / number.against for value in (number.value, number.low, number.high)))


def _majority(cell: Cell) -> float:
    """The share of the commonest gold class among the texts that have one."""
    known = cell.labels[~np.isnan(cell.labels)]
    return float(np.unique(known, return_counts=True)[1].max() / len(known)) if len(known) else np.nan


def _precision(number: Number) -> Contest:
    """Average precision against known evidence, less what a random order reaches."""
    bounds = (value - number.against for value in (number.value, number.low, number.high))
    return Contest("average_precision", Interval(*bounds))


def _contests(cell: Cell) -> tuple[tuple[Contest, ...], tuple[Contest, ...]]:
    """Those against known evidence, and those by erasure."""
    table = frame(saliency.TESTS_TABLE, [cell])
    contests: tuple[list[Contest], list[Contest]] = ([], [])
    for test in saliency.counted_tests(cell, table):
        contests[not saliency.TESTS[test].evidence].append(_contest(test, table[table["test"] == test]))
    return tuple(contests[0]), tuple(contests[1])


def _contest(test: str, table: pd.DataFrame) -> Contest:
    (attention,) = table[table["measure"] == "attention"].to_dict("records")
    to_chance = _difference(attention, "to_random")
    others = table[~table["measure"].isin(("attention", *saliency.FLOORS)) & table["rank"].notna()]
    if others.empty:
        return Contest(test, to_chance)
    best = others.sort_values("rank", kind="stable").iloc[0].to_dict()
    against = _difference(best, "to_attention")
    to_attention = Interval(-against.value, -against.high, -against.low, against.p)
    return Contest(test, to_chance, measure_label(best["measure"]), to_attention)


def _difference(row: Mapping, name: str) -> Interval:
    """A difference of the table. Of a single text it has no interval, and none is made up."""
    return Interval(row[name], row[f"{name}_ci_low"], row[f"{name}_ci_high"], row[f"{name}_p_holm"])
