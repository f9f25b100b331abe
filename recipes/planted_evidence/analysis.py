"""Does a test tell a model that uses planted evidence from one that cannot? Tests x models on generated texts.

The two models of a pair differ in their training texts alone: those of the second had their evidence removed
(`evidence_removed` of `attnfaith.data.planted_evidence`), so it learned nothing of these words. Both are measured on the
same test texts, which hold the evidence. A number that does not differ between the two says nothing of what a model uses.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.rank_agreement import auprc
from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import CELL, Cell, match, measure_label
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.stats import bootstrap_interval


if TYPE_CHECKING:
    from matplotlib.figure import Figure

APART = 0.75
"""Least AUC, in either direction, at which a statistic is said to tell the two models apart."""


def without_evidence(cell: Cell) -> bool:
    """Whether the cell's model was trained on texts without their evidence."""
    return bool(_arguments(cell).get("evidence_removed"))


def _arguments(cell: Cell) -> dict[str, object]:
    """What the texts that the cell's model was trained on were generated from; {} where the record does not say."""
    return cell.settings.get("recipe", {}).get("data", {}).get("arguments") or {}


def instance_statistics(cell: Cell) -> dict[str, np.ndarray]:
    """What every test says of each text, [N] float64, NaN where undefined.

    tau of attention with gradient and leave-one-out (and with each other); the share of attention on the planted words and
    the average precision of attention and of each importance measure against them; all that interventions say.
    """
    statistics = {f"tau {measure_label(one)}–{measure_label(other)}": cell.tau(one, other) for one, other in cell.pairs}
    if "rationale" in cell.table.column_names:
        gold = records.rows(cell.table, "rationale")
        mass = [
            np.dot(weights, marks) if marks.any() else np.nan for weights, marks in zip(cell.attention, gold, strict=True)
        ]
        statistics["attention on the evidence"] = np.array(mass, dtype=np.float64)
        for name in ("attention", *cell.measures):
            statistics[f"average precision of {measure_label(name)}"] = np.asarray(
                auprc(cell.scores(name), gold), np.float64
            )
    return statistics | sections.numbers(cell)


def pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """(uses the evidence, cannot) of cells that differ in nothing else."""

    def key(cell: Cell) -> tuple:
        others = {name: value for name, value in _arguments(cell).items() if name != "evidence_removed"}
        return replace(cell.identity, training_texts=None), json.dumps(others, sort_keys=True)

    cannot = {key(cell): cell for cell in cells if without_evidence(cell)}
    return [(cell, cannot[key(cell)]) for cell in cells if not without_evidence(cell) and key(cell) in cannot]


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
        for name in first:
            if name in second:
                row = _row(first[name], second[name], first[name][mine] - second[name][theirs])
                rows.append({**uses.heading, "statistic": name, **row})
    return pd.DataFrame(rows)


def _row(uses: np.ndarray, cannot: np.ndarray, difference: np.ndarray) -> dict:
    row = {}
    for name, values in (("uses", uses), ("cannot", cannot)):
        defined = values[~np.isnan(values)]
        low, high = bootstrap_interval(defined)
        row |= {
            f"{name}_n": len(defined),
            f"{name}_n_undefined": len(values) - len(defined),
            f"{name}_mean": defined.mean() if len(defined) else np.nan,
            f"{name}_ci_low": low,
            f"{name}_ci_high": high,
        }
    paired = difference[~np.isnan(difference)]
    low, high = bootstrap_interval(paired)
    auc = _auc(uses[~np.isnan(uses)], cannot[~np.isnan(cannot)])
    verdict = "undefined"
    if not np.isnan(auc):
        beyond = low > 0 or high < 0
        verdict = "yes" if beyond and max(auc, 1 - auc) >= APART else "barely" if beyond else "no"
    return row | {
        "n_pairs": len(paired),
        "difference": paired.mean() if len(paired) else np.nan,
        "ci_low": low,
        "ci_high": high,
        "auc": auc,
        "tells_apart": verdict,
    }


def _auc(first: np.ndarray, second: np.ndarray) -> float:
    """P(first > second) + P(equal) / 2; NaN where one is empty."""
    if not len(first) or not len(second):
        return np.nan
    ranks = rankdata(np.concatenate([first, second]))[: len(first)]
    return float((ranks.sum() - len(first) * (len(first) + 1) / 2) / (len(first) * len(second)))


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Tests x models: means over seeds, the range of the AUC, and in how many seeds the test tells the models apart.

    One row per encoder x statistic. same_direction: whether the difference has one sign in all seeds: a test that
    tells the models apart one way in one seed and the other way in another cannot be read.
    """
    keys = [name for name in CELL if name != "seed"]
    rows = []
    for key, group in table.groupby([*keys, "statistic"], sort=False):
        signs = set(np.sign(group["difference"].dropna()))
        rows.append(
            dict(zip([*keys, "statistic"], key, strict=True))
            | {
                "n_seeds": len(group),
                "n_undefined": int((group["tells_apart"] == "undefined").sum()),
                **{name: group[name].mean() for name in ("uses_mean", "cannot_mean", "difference")},
                "auc_mean": group["auc"].mean(),
                "auc_min": group["auc"].min(),
                "auc_max": group["auc"].max(),
                "same_direction": "yes" if signs in ({1.0}, {-1.0}) else "no" if signs else "undefined",
                **{f"seeds_{verdict}": int((group["tells_apart"] == verdict).sum()) for verdict in ("yes", "barely", "no")},
            }
        )
    return pd.DataFrame(rows)


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """Both tables and their figure; nothing where no two cells make a pair."""
    table = tests_table(cells)
    if not len(table):
        return Analysis()
    return Analysis(
        {"planted_tests": table, "planted_tests_over_seeds": over_seeds(table)},
        figures={"planted_tests": auc_of_tests(table, pairs(cells)[0][0])},
    )


@own_style
def auc_of_tests(table: pd.DataFrame, first: Cell) -> "Figure":
    """The AUC of every test, a point per seed and encoder. table: `tests_table`; first: the first cell that it is of."""
    names = list(dict.fromkeys(table["statistic"]))[::-1]
    encoders = list(dict.fromkeys(table["encoder"]))
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(table["seed"]))
    subject = f"{first.heading['dataset']} ({first.heading['split']}) · {', '.join(encoders)} · seeds {seeds}"
    title = "Which test tells a model that uses the evidence?"
    figure = titled_figure(title, first, 9.0, 0.9 + 0.26 * len(names), subject=subject)
    axes = figure.add_subplot()
    for number, (encoder, colour) in enumerate(zip(encoders, PALETTE, strict=False)):
        mine = table[(table["encoder"] == encoder) & table["auc"].notna()]
        heights = [names.index(name) + (number - (len(encoders) - 1) / 2) * 0.25 for name in mine["statistic"]]
        axes.scatter(mine["auc"], heights, s=22, color=colour, label=encoder, alpha=0.8, linewidths=0)
    axes.axvspan(1 - APART, APART, color="#eeeeee", zorder=0)
    axes.axvline(0.5, color="#777777", linewidth=1)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.7, len(names) - 0.3))
    axes.set_xlabel("AUC: larger in the model that uses the evidence (grey: says little), one point per seed")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
