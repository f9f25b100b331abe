"""Jain & Wallace's numbers beside ours: tau of attention with importance, and how well each model classifies.

Two files hold what is published: the study's `published` (tau by pair, class and statistic) and, beside it, one of the same
name with the ending _performance (accuracy and ROC-AUC of each model).

Source: Jain & Wallace (2019), Attention is not Explanation.
"""

from collections.abc import Sequence

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell

from ..shared import for_stand_ins, read_published


FACTORS = ["dataset", "encoder", "alignment"]
TAUS = (*FACTORS, "pair", "class", "statistic", "value", "source")


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "side_by_side" of the study's tables "performance" and "agreement"; nothing where it lacks one."""
    taus = read_published(settings.published, TAUS, ["value"])
    scores = read_published(settings.published.with_name(f"{settings.published.stem}_performance.csv"), [*FACTORS, "source"])
    taus, scores = (for_stand_ins(part, settings.stand_ins) for part in (taus, scores))
    if not {"performance", "agreement"} <= set(settings.tables):
        return Analysis()
    return Analysis(
        {"side_by_side": side_by_side(settings.tables["performance"], settings.tables["agreement"], scores, taus)}
    )


def side_by_side(
    performance: pd.DataFrame, agreement: pd.DataFrame, scores: pd.DataFrame, taus: pd.DataFrame
) -> pd.DataFrame:
    """One row per cell: accuracy and mean tau of each pair over all texts, measured and published (NaN where it is not)."""
    cell = [*FACTORS, "vectors", "seed"]
    agreement, performance = (table.astype(dict.fromkeys(cell[:-1], str)) for table in (agreement, performance))
    rows = performance[[*cell, "n", "accuracy", "roc_auc"]].merge(scores.drop(columns="source"), how="left", on=FACTORS)
    for pair in dict.fromkeys(taus["pair"]):
        mine = agreement[(agreement["pair"] == pair) & (agreement["class"] == "overall")]
        theirs = taus[(taus["pair"] == pair) & (taus["class"] == "overall") & (taus["statistic"] == "tau_mean")]
        mine = mine[[*cell, "tau_mean"]].rename(columns={"tau_mean": f"tau {pair}"})
        theirs = theirs[[*FACTORS, "value"]].rename(columns={"value": f"published tau {pair}"})
        rows = rows.merge(mine, how="left", on=cell).merge(theirs, how="left", on=FACTORS)
    return rows.sort_values(cell, ignore_index=True)
