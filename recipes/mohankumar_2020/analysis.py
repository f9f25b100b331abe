"""Mohankumar et al.'s numbers beside ours: accuracy and conicity of the plain, the diverse and the orthogonal LSTM.

Source: Mohankumar et al. (2020), Towards Transparent and Explainable Attention Models.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.published import join_published, read_published
from attnfaith.reporting.sections.conicity import per_text
from attnfaith.reporting.sections.performance import performance_table


KEYS = ("dataset", "model", "encoder", "statistic")
PUBLISHED = (*KEYS, "value", "by", "source")
CONICITY = "conicity_absolute"


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "beside_published", see `beside_published`. Raises StudyError for published numbers that are none."""
    published = read_published(settings.published, PUBLISHED, ["value"]) if settings.published else None
    if published is None or not cells:
        return Analysis()
    return Analysis({"beside_published": beside_published(cells, published)})


def beside_published(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """A row for each published number of a data set that was measured: our mean over n_seeds seeds, and the difference.

    conicity_absolute: mean over the texts that have it, 0..1. Measured is NaN where nothing was, as are statistics that are
    of the authors' own making (attention on rationales, Pearson's correlations).
    """
    rows = pd.DataFrame([row for cell in cells for row in _measured(cell)])
    measured = rows.groupby(list(KEYS), as_index=False)["value"].agg(measured="mean", n_seeds="size")
    joined = join_published(published[published["dataset"].isin(set(measured["dataset"]))], measured, list(KEYS))
    return joined[[*KEYS, "published", "measured", "difference", "n_seeds", "by", "source"]]


def model_of(cell: Cell) -> str:
    """ "vanilla", "diversity" or "orthogonal"; "other" for what the paper has not."""
    of = cell.identity
    if of.encoder == "orthogonal_lstm":
        return "other" if of.diversity else "orthogonal"
    if of.encoder != "lstm":
        return "other"
    return "diversity" if of.diversity else "vanilla"


def _measured(cell: Cell) -> Iterator[dict]:
    known = {"dataset": cell.identity.dataset, "model": model_of(cell), "encoder": cell.identity.encoder}
    yield {**known, "statistic": "accuracy", "value": performance_table([cell])["accuracy"].item()}
    if CONICITY in cell.table.column_names:
        yield {**known, "statistic": CONICITY, "value": pd.Series(per_text(cell)[CONICITY]).mean()}
