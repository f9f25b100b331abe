"""Jain & Wallace's numbers beside ours: tau of attention with importance, and how well each model classifies.

Two files hold what is published: the study's `published` (tau by pair, class and statistic) and, beside it, one of the same
name with the ending _performance (accuracy and ROC-AUC of each model).

Source: Jain & Wallace (2019), Attention is not Explanation.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings, StudyError
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.published import for_stand_ins, join_published, read_published
from attnfaith.reporting.sections.agreement import COLUMNS as AGREEMENT_COLUMNS


KEYS = (*CELL, "pair", "class")
TAUS = ("dataset", "encoder", "alignment", "pair", "class", "statistic", "value", "source")
SCORES = ("dataset", "encoder", "alignment", "source")
NEEDED = ("agreement", "performance")


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "beside_published", see `compare_with_published`, and "side_by_side".

    Raises StudyError where the study names no published numbers or none that can be used, or lacks a table that they stand
    beside.
    """
    if settings.published is None:
        raise StudyError("analysis: this one shows published numbers beside ours; name their file under published")
    taus = for_stand_ins(read_published(settings.published, TAUS, ["value"]), settings.stand_ins)
    if missing := sorted(set(NEEDED) - set(settings.names)):
        raise StudyError(f"published: {settings.published} stands beside the tables {missing}: name them under tables")
    scores = for_stand_ins(read_published(_performance(settings.published), SCORES), settings.stand_ins)
    made = settings.tables
    if not set(NEEDED) <= set(made):
        return Analysis()
    return Analysis(
        {
            "beside_published": compare_with_published(made["agreement"], taus),
            "side_by_side": side_by_side(made["performance"], made["agreement"], scores, taus),
        }
    )


def _performance(path: Path) -> Path:
    """The file of published scores that stands beside one of published taus."""
    return path.with_name(f"{path.stem}_performance.csv")


def compare_with_published(agreement: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Measured numbers beside published ones, with the difference.

    published: columns dataset, encoder, alignment, class, statistic (a column of `agreement_table`, such as "tau_mean") and
    value; a column it shares with the agreement table beyond these (pair, projection, vectors, seed) is matched as well.
    Spellings are matched as they are: rename first.

    One row per published number and matching run: all columns of `published` but value, the identity columns that were not
    matched, then measured, published, difference (measured - published). A published number that nothing measured keeps its
    row, with measured NaN.

    Raises StudyError where a column is missing, a published number comes twice, or the agreement table has several pairs and
    `published` does not say which one it means.
    """
    needed = ("dataset", "encoder", "alignment", "class", "statistic", "value")
    if missing := [name for name in needed if name not in published.columns]:
        raise StudyError(f"published numbers: columns {missing} are missing; needed: {list(needed)}")
    if missing := [name for name in AGREEMENT_COLUMNS if name not in agreement.columns]:
        raise StudyError(f"not an agreement table: columns {missing} are missing")
    if "pair" not in published.columns and agreement["pair"].nunique() > 1:
        raise StudyError(
            f"the agreement table holds several pairs ({sorted(agreement['pair'].unique())}) and the published "
            "numbers have no column 'pair': add one, or keep one pair of the agreement table"
        )
    statistics = [name for name in agreement.columns if name not in KEYS]
    long = agreement.melt(id_vars=list(KEYS), value_vars=statistics, var_name="statistic", value_name="measured")
    keys = [name for name in published.columns if name in long.columns and name != "measured"]
    if unknown := sorted(set(published["statistic"].astype(str)) - set(statistics)):
        raise StudyError(f"published statistics {unknown} are not in the agreement table; it has {statistics}")
    if (repeated := published.duplicated(keys)).any():
        row = published.loc[repeated, keys].iloc[0].to_dict()
        raise StudyError(f"a published number comes twice: {row}")
    joined = join_published(published, long, keys)
    last = ["measured", "published", "difference"]
    return joined[[name for name in joined.columns if name not in last] + last]


def side_by_side(
    performance: pd.DataFrame, agreement: pd.DataFrame, scores: pd.DataFrame, taus: pd.DataFrame
) -> pd.DataFrame:
    """One row per cell: accuracy and mean tau of each pair over all texts, measured and published (NaN where it is not)."""
    scores = scores.drop(columns="source")
    factors = ["dataset", "encoder", "alignment"]
    cell = [*factors, "vectors", "seed"]
    agreement, performance = (table.astype(dict.fromkeys(cell[:-1], str)) for table in (agreement, performance))
    rows = performance[[*cell, "n", "accuracy", "roc_auc"]].merge(scores, how="left", on=factors)
    for pair in dict.fromkeys(taus["pair"]):
        mine = agreement[(agreement["pair"] == pair) & (agreement["class"] == "overall")]
        theirs = taus[(taus["pair"] == pair) & (taus["class"] == "overall") & (taus["statistic"] == "tau_mean")]
        mine = mine[[*cell, "tau_mean"]].rename(columns={"tau_mean": f"tau {pair}"})
        theirs = theirs[[*factors, "value"]].rename(columns={"value": f"published tau {pair}"})
        rows = rows.merge(mine, how="left", on=cell).merge(theirs, how="left", on=factors)
    return rows.sort_values(cell, ignore_index=True)
