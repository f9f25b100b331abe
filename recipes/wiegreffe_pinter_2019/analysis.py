"""Is attention needed, and is it stable? Wiegreffe & Pinter's comparisons, `stability`, with their numbers beside ours.

Source: Wiegreffe & Pinter (2019), Attention is not not Explanation.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings, StudyError
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.published import join_published, read_published

from . import figures, stability


PUBLISHED = ("dataset", "encoder", "model", "statistic", "value", "source")


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """The tables and figures of `stability`, and "beside_published".

    Raises StudyError for published numbers that are none.
    """
    published = None if settings.published is None else read_published(settings.published, PUBLISHED, ["value"])
    if not cells:
        return Analysis()
    made = stability.tables(cells)
    if published is not None:
        made["beside_published"] = beside_published(made, published)
    return Analysis(made, figures=figures.figures(cells))


def beside_published(made: Mapping[str, pd.DataFrame], published: pd.DataFrame) -> pd.DataFrame:
    """Published numbers beside the mean over seeds of the measured ones.

    made: what `stability.tables` returns. published: the columns PUBLISHED; model as `stability.model_of` names it, or
    "other seeds"; statistic a score, jsd_mean or tvd_mean. Returns a row for each, and each kind of word vectors: measured
    (mean over n_seeds seeds, of "other seeds" over bases; NaN where nothing was), min, max, difference.

    Raises StudyError where a column is missing.
    """
    if missing := [name for name in PUBLISHED if name not in published.columns]:
        raise StudyError(f"published numbers: columns {missing} are missing; needed: {list(PUBLISHED)}")
    keys = list(PUBLISHED[:4])
    columns = [*keys, "vectors", "n_seeds", "mean", "min", "max"]
    measured = [made["models_by_kind"][columns]]
    if "trade_off" in made:
        retrained = made["trade_off"][made["trade_off"]["model"] == stability.RETRAINED]
        distances = retrained.melt([*keys[:3], "vectors", "n_seeds"], ["jsd_mean", "tvd_mean"], "statistic", "mean")
        measured.append(distances.reindex(columns=columns))
    measured = pd.concat([part.astype(dict.fromkeys(keys, str)) for part in measured if len(part)])
    published = published[published["dataset"].astype(str).isin(set(measured["dataset"]))]
    joined = join_published(published, measured.rename(columns={"mean": "measured"}), keys)
    return joined[[*keys, "vectors", "published", "measured", "difference", "n_seeds", "min", "max", "source"]]
