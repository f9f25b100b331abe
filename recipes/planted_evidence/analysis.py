"""Does a test tell a model that uses planted evidence from one that cannot? Tests x models on generated texts.

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

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, match, measure_label
from attnfaith.stats import bootstrap_interval

from ..shared import KIND, UNDEFINED


APART = 0.75
"""Least AUC, in either direction, at which a statistic is said to tell the two models apart."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "planted_tests" and "planted_tests_over_seeds"; nothing where no two cells make a pair."""
    table = tests_table(cells)
    return Analysis({"planted_tests": table, "planted_tests_over_seeds": over_seeds(table)} if len(table) else {})


def _arguments(cell: Cell) -> dict[str, object]:
    """What the texts that the cell's model was trained on were generated from; {} where the record does not say."""
    return cell.settings.get("recipe", {}).get("data", {}).get("arguments") or {}


def pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """(uses the evidence, cannot) of cells that differ in nothing else."""

    def key(cell: Cell) -> tuple:
        others = {name: value for name, value in _arguments(cell).items() if name != "evidence_removed"}
        return replace(cell.identity, training_texts=None), json.dumps(others, sort_keys=True)

    cannot = {key(cell): cell for cell in cells if _arguments(cell).get("evidence_removed")}
    uses = [cell for cell in cells if not _arguments(cell).get("evidence_removed")]
    return [(cell, cannot[key(cell)]) for cell in uses if key(cell) in cannot]


def instance_statistics(cell: Cell) -> dict[str, np.ndarray]:
    """Every test of each text, [N] float64, NaN where undefined.

    tau of attention with gradient and leave-one-out (and with each other); the share of attention on the planted words and
    the average precision of attention and of each importance measure against them; the numbers of all sections.
    """
    statistics = {f"tau {measure_label(a)}–{measure_label(b)}": cell.tau(a, b) for a, b in cell.pairs}
    if "rationale" in cell.table.column_names:
        gold = records.rows(cell.table, "rationale")
        mass = [np.dot(row, marks) if marks.any() else np.nan for row, marks in zip(cell.attention, gold, strict=True)]
        statistics["attention on the evidence"] = np.array(mass, dtype=np.float64)
        for name in ("attention", *cell.measures):
            statistics[f"average precision of {measure_label(name)}"] = average_precision(cell.scores(name), gold)
    return statistics | sections.numbers(cell)


def tests_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Each statistic of a model that uses the evidence beside that of a model that cannot: one row per pair x statistic.

    uses_mean, cannot_mean: means over the instances where it is defined (n, n_undefined of each), with 95 % bootstrap
    intervals. difference: mean of uses - cannot over the n_pairs texts where both are defined, with its interval. auc:
    probability that a text of the first model has the larger value, ties counting one half; .5 says nothing, 0 and 1 tell
    the two apart without error. tells_apart: "yes" where the interval of the difference excludes 0 and auc is at least .75
    or at most .25; "barely" where only the interval says so; "no"; "undefined" where one of them has no values.
    """
    rows = []
    for uses, cannot in pairs(cells):
        mine, theirs = match(uses, cannot)
        first, second = instance_statistics(uses), instance_statistics(cannot)
        for name in [name for name in first if name in second]:
            numbers = compared(first[name], second[name], first[name][mine] - second[name][theirs])
            rows.append({**uses.heading, "statistic": name, **numbers})
    return pd.DataFrame(rows)


def compared(uses: np.ndarray, cannot: np.ndarray, difference: np.ndarray) -> dict[str, object]:
    """The numbers of a row of `tests_table` from those of the two models and of the texts that both read."""
    sides = {name: side[~np.isnan(side)] for name, side in (("uses", uses), ("cannot", cannot))}
    row: dict[str, object] = {}
    for (name, side), every in zip(sides.items(), (uses, cannot), strict=True):
        row |= {f"{name}_n": len(side), f"{name}_n_undefined": len(every) - len(side)} | _mean(
            side, f"{name}_mean", f"{name}_"
        )
    paired = difference[~np.isnan(difference)]
    row |= {"n_pairs": len(paired)} | _mean(paired, "difference")
    verdict, auc = UNDEFINED, np.nan
    if all(map(len, sides.values())):
        auc = float(mannwhitneyu(*sides.values()).statistic / len(sides["uses"]) / len(sides["cannot"]))
        beyond = row["ci_low"] > 0 or row["ci_high"] < 0
        verdict = "yes" if beyond and max(auc, 1 - auc) >= APART else "barely" if beyond else "no"
    return row | {"auc": auc, "tells_apart": verdict}


def _mean(values: np.ndarray, name: str, start: str = "") -> dict[str, float]:
    low, high = bootstrap_interval(values)
    return {name: values.mean() if len(values) else np.nan, f"{start}ci_low": low, f"{start}ci_high": high}


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Tests x models: means over seeds, the range of the AUC, and in how many seeds the test tells the models apart.

    One row per encoder x statistic. same_direction: whether the difference has one sign in all seeds: a test that
    tells the models apart one way in one seed and the other way in another cannot be read.
    """
    keys = [*KIND, "statistic"]
    rows = []
    for key, group in table.groupby(keys, sort=False):
        signs, verdicts = set(np.sign(group["difference"].dropna())), group["tells_apart"]
        row = dict(zip(keys, key, strict=True)) | {"n_seeds": len(group), "n_undefined": int((verdicts == UNDEFINED).sum())}
        row |= {name: group[name].mean() for name in ("uses_mean", "cannot_mean", "difference")}
        row |= {f"auc_{name}": getattr(group["auc"], name)() for name in ("mean", "min", "max")}
        row |= {"same_direction": "yes" if signs in ({1.0}, {-1.0}) else "no" if signs else UNDEFINED}
        rows.append(row | {f"seeds_{name}": int((verdicts == name).sum()) for name in ("yes", "barely", "no")})
    return pd.DataFrame(rows)
