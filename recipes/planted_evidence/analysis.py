"""Do measures find planted evidence, and does a test tell a model that uses it from one that cannot?

The two models of a pair differ in their training texts alone: those of the second had their evidence removed
(`evidence_removed` of `attnfaith.data.planted_evidence`), so it learned nothing about these words. Both are measured on the
same test texts, which hold the evidence. A number that does not differ between the two does not show what a model uses.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, per_cell, readable

from ..pages import INTERVAL, analysis
from ..shared import Models, Twins, answer, as_table, first, heading, kinds, paired, pick, precision_of, rows_of, summary


APART = 0.75
"""Least AUC, in either direction, at which a statistic is said to tell the two models apart."""
EVIDENCE = {"evidence": "{evidence}", "encoder": "{encoder}", "seeds": "{n_seeds}", "number": "{statistic}"}
EVIDENCE |= {"mean [95 %]": INTERVAL}
TESTS = {"encoder": "{encoder}", "test": "{statistic}", "seeds": "{n_seeds}", "uses it": "{uses}", "cannot": "{cannot}"}
TESTS |= {"difference [95 %]": INTERVAL, "AUC": "{auc}", "tells them apart": "{tells_apart}"}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "evidence" and "planted_tests", see the functions of these names, and both as the page shows them: without the
    importance of states, and without ratios of erased weights.
    """
    without = lambda table: table[~table["statistic"].str.contains("hidden|ratio")]  # noqa: E731
    results, pages = {"evidence": evidence, "planted_tests": planted_tests}, {"evidence": EVIDENCE, "planted_tests": TESTS}
    return analysis(cells, pages, results, dict.fromkeys(results, without))


def arguments_of(models: Models) -> dict[str, object]:
    """What the texts that a kind of model was trained on were generated from."""
    return first(models).settings["recipe"]["data"].get("arguments") or {}


def pairs(cells: Sequence[Cell]) -> list[Twins]:
    """Kinds of models that use the evidence beside those that cannot and differ in nothing else, of the seeds of both."""

    def key(models: Models) -> tuple:
        rest = {name: value for name, value in arguments_of(models).items() if name != "evidence_removed"}
        return replace(first(models).identity, seed=0, training_texts=None), json.dumps(rest, sort_keys=True)

    groups = kinds(cells)
    cannot = {key(models): models for models in groups if arguments_of(models).get("evidence_removed")}
    uses = [models for models in groups if not arguments_of(models).get("evidence_removed")]
    return [pair for models in uses if (pair := paired(cannot.get(key(models), {}), models)) is not None]


@per_cell
def statistics(cell: Cell) -> dict[str, np.ndarray]:
    """Every test of each text, [N] float64, NaN where undefined.

    tau of attention with gradient and leave-one-out (and with each other); the share of attention on the planted words and
    the average precision of attention and of each importance measure against them; the numbers of all sections.
    """
    numbers = {f"tau {readable(a)}–{readable(b)}": cell.tau(a, b) for a, b in cell.pairs}
    texts = zip(cell.attention, cell.rows("rationale"), strict=True)
    mass = [np.dot(row, marks) if marks.any() else np.nan for row, marks in texts]
    numbers["attention on the evidence"] = np.array(mass, dtype=np.float64)
    for name in ("attention", *cell.measures):
        numbers[f"average precision of {readable(name)}"] = precision_of(name)(cell)
    rest = {name.replace("_", " "): values for name, values in sections.numbers(cell).items() if not name.startswith("tau ")}
    return numbers | rest


@as_table
def evidence(cells: Sequence[Cell]) -> pd.DataFrame:
    """Accuracy, attention on the evidence and average precision of each kind of model that was trained with evidence."""
    for models in kinds(cells):
        arguments = arguments_of(models)
        if arguments.get("evidence_removed"):
            continue
        label = "a pair" if arguments.get("needs_context") else f"{arguments.get('redundancy', 1)}, each enough"
        label = "one word" if label.startswith("1,") else label
        names = [name for name in statistics(first(models)) if name.startswith(("attention on", "average precision"))]
        numbers = {"accuracy": pick(statistics, "correct"), **{name: pick(statistics, name) for name in names}}
        yield from rows_of(models, numbers, heading(models) | {"evidence": label})


@as_table
def planted_tests(cells: Sequence[Cell]) -> pd.DataFrame:
    """Each statistic of models that use the evidence less that of models that cannot, a row for each pair and statistic.

    uses, cannot: means over seeds and texts; mean: of the difference, with its interval (`shared.answer`). auc: probability
    that a text of the first model has the larger value, ties counting one half, the mean over seeds. tells_apart: "yes"
    where the difference stands and auc is at least APART or at most 1 - APART; "barely" where only the difference stands.
    """
    for pair in pairs(cells):
        for name in statistics(first(pair.changed)):
            cannot, uses = pair.values(pick(statistics, name))
            areas = [_area(*sides) for sides in zip(uses, cannot, strict=True)]
            auc = float(np.nanmean(areas)) if not np.isnan(areas).all() else np.nan
            row = pair.heading | {"statistic": name, "uses": summary(uses)["mean"], "cannot": summary(cannot)["mean"]}
            row |= {"auc": auc} | answer(uses - cannot)
            stands = row.pop("verdict")
            word = "yes" if max(auc, 1 - auc) >= APART else "barely"
            yield row | {"tells_apart": word if stands in ("yes", "no") else stands}


def _area(uses: np.ndarray, cannot: np.ndarray) -> float:
    first, second = (side[~np.isnan(side)] for side in (uses, cannot))
    if not len(first) or not len(second):
        return np.nan
    return float(mannwhitneyu(first, second).statistic / len(first) / len(second))
