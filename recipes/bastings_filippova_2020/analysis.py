"""Attention or saliency? Over models and data sets, which measure shows what a model used?

From the cells that hold tests of explanations (`reporting.sections.saliency`): each measure by each test, held against one
that is named beforehand; what is left of it in a model that was trained with tokens erased, to which a shortened text is
nothing new; whether the parts that a measure hands out add up.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from attnfaith import record as records
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import CELL, PREFIX, Cell
from attnfaith.reporting.explanation_tests import TESTS
from attnfaith.reporting.render import frames
from attnfaith.reporting.sections import saliency
from attnfaith.stats import LEVEL

from ..shared import KIND, page_texts


ALLOWED = 0.01
"""Share of the number handed out that may be left: what integrated gradients aim at unless told otherwise."""
LEFT = {
    "integrated_gradients": ("integrated_gradients_residual", "integrated_gradients_steps"),
    "integrated_gradients_hidden": ("integrated_gradients_residual_hidden", "integrated_gradients_steps_hidden"),
    "lrp": ("lrp_unaccounted", None),
}
"""Measure -> the column of what is left, and that of the steps taken."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "saliency_ranking", "saliency_training" and "saliency_completeness", of the cells that were tested."""
    cells = [cell for cell in cells if saliency.SECTION.applies(cell)]
    if not cells:
        return Analysis()
    tests = frames(saliency.SECTION, cells)["saliency_tests"]
    results = {
        "saliency_ranking": ranking(cells, tests),
        "saliency_training": training(cells, tests),
        "saliency_completeness": completeness(cells),
    }
    means = [name for name in results["saliency_ranking"] if name.startswith("mean_")]
    page = {
        "data": "{dataset}",
        "encoder": "{encoder}",
        "training": "{objective}",
        "measure": "{measure}",
        "seeds": "{n_seeds}",
    }
    page |= {"tests": "{n_tests}", "better than the rival": "{better}", "worse": "{worse}"}
    page |= {name.removeprefix("mean_").replace("_", " "): f"{{{name}}}" for name in means}
    return Analysis(results, page_texts(results, {"saliency_ranking": page}, cells))


def ranking(cells: Sequence[Cell], tests: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of model and measure. n_seeds: cells. n_tests: tests that count (`saliency.counted_tests`), x seeds.
    better, worse: of these, those in which the measure differs from the rival that is named beforehand (`saliency.RIVALS`),
    by Holm's correction over the measures of one test and cell; the others cannot be told. mean_<test>: mean over seeds.
    """
    by_kind = {tuple(cell.heading[name] for name in KIND): cell for cell in cells}
    rows = []
    for kind, part in tests.groupby(list(KIND), sort=False, dropna=False):
        counted = saliency.counted_tests(by_kind[kind], part["test"])
        for measure, of in part.groupby("measure", sort=False):
            counts = of[of["test"].isin(counted)]
            told = counts.loc[counts["to_rival_p_holm"] <= LEVEL, "to_rival"]
            row = dict(zip(KIND, kind, strict=True)) | {"measure": measure, "n_seeds": of["seed"].nunique()}
            row |= {"rival": counts["rival"].iloc[0], "n_tests": int(counts["to_rival"].notna().sum())}
            row |= {"better": int((told > 0).sum()), "worse": int((told < 0).sum())}
            rows.append(row | {f"mean_{test}": values["mean"].mean() for test, values in of.groupby("test", sort=False)})
    table = pd.DataFrame(rows)
    last = [f"mean_{test}" for test in TESTS if f"mean_{test}" in table]
    return table[[name for name in table if name not in last] + last]


def training(cells: Sequence[Cell], tests: pd.DataFrame) -> pd.DataFrame:
    """One row per test and cell that was trained with tokens erased and has a twin trained on whole texts: does it leave
    what the model knows? tau: Kendall's tau-b, over the n_measures that both have, of their means in the two models;
    attention_mean_*: of attention, in the plain model and in that trained with tokens erased.
    """
    groups = {key: part.set_index("measure") for key, part in tests.groupby([*CELL, "test"], sort=False, dropna=False)}
    identities = {tuple(cell.heading.values()): cell.identity for cell in cells}
    rows = []
    for key, erased in groups.items():
        whole = replace(identities[key[:-1]], random_erasure=0.0)
        plain = groups.get((*whole.heading.values(), key[-1]))
        if whole == identities[key[:-1]] or plain is None:
            continue
        sides = {"plain": plain, "erased": erased}
        means = pd.DataFrame({name: side["mean"] for name, side in sides.items()}).dropna()
        tau = kendalltau(means["plain"], means["erased"]).statistic if len(means) > 1 else np.nan
        row = dict(zip((*CELL, "test"), key, strict=True)) | {"n_measures": len(means), "tau": float(tau)}
        rows.append(row | {f"attention_mean_{name}": side.loc["attention", "mean"] for name, side in sides.items()})
    return pd.DataFrame(rows)


def completeness(cells: Sequence[Cell]) -> pd.DataFrame:
    """Do the parts add up? One row per cell and measure whose scores sum to a number that the record holds.

    Integrated gradients should sum to the difference between the text and the baseline; relevance, with what its rules give
    to no token, to what is explained itself. left_median, left_max: |what is left| / |number handed out| of the n texts that
    have one, 0 is complete. share_incomplete: texts with more than ALLOWED of it. steps_median, steps_max: points of the
    line, NaN for relevance.
    """
    rows = []
    for cell in cells:
        for measure, (left_name, steps_name) in LEFT.items():
            if measure not in cell.measures or left_name not in cell.table.column_names:
                continue
            left = cell.column(left_name)
            if np.isnan(left).all():
                continue
            parts = np.array([np.sum(row, dtype=np.float64) for row in records.rows(cell.table, PREFIX + measure)])
            whole = parts + cell.column("lrp_residual") if measure == "lrp" else parts - left
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = np.abs(left) / np.abs(whole)
            steps = cell.column(steps_name) if steps_name else np.array([np.nan])
            defined = shares[np.isfinite(shares)]
            row = cell.heading | {"measure": measure, "n": len(defined), "n_undefined": len(shares) - len(defined)}
            numbers = (np.median(defined), defined.max(), np.mean(defined > ALLOWED)) if len(defined) else [np.nan] * 3
            row |= dict(zip(("left_median", "left_max", "share_incomplete"), numbers, strict=True))
            rows.append(row | {"steps_median": np.median(steps), "steps_max": steps.max()})
    return pd.DataFrame(rows)
