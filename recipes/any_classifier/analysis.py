"""Tables and figures of the studies of a fine-tuned encoder: every measure by every test, and what attention could be.

All intervals are over training seeds and texts (`attnfaith.stats.Panel`). What a study has depends on what its cells hold.
"""

from collections.abc import Sequence

import pandas as pd

from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell

from ..shared import for_stand_ins, join_published, paired_comparison, read_published
from . import figures, ranking
from .ranking import KIND


PUBLISHED = ("dataset", "model", "measure", "published_measure", "test", "value", "definition", "source")


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "measures_ranking" and "measures_pairs", see `ranking.tables`; "comparisons" of projections; others see below.

    Raises StudyError for published numbers that are no such table, or stand-ins without any.
    """
    published = None
    if settings.published:
        published = for_stand_ins(read_published(settings.published, PUBLISHED, ("value",)), settings.stand_ins)
    if not cells:
        return Analysis()
    made = {"quantities": quantities(cells), "comparisons": paired_comparison(cells, "projection"), **ranking.tables(cells)}
    ranked = made["measures_ranking"]
    if published is not None and len(ranked):
        made["measures_published"] = beside_published(published, ranked)
    return Analysis(made, figures=figures.of_measures(ranked, made.get("measures_published")) | figures.of_reach(cells))


def quantities(cells: Sequence[Cell]) -> pd.DataFrame:
    """Every number per text by which cells are compared (`sections.numbers`): one row per kind of model x quantity.

    n_seeds. n: texts with a value, summed over seeds; n_undefined. mean, ci_low, ci_high: mean over seeds of means over
    texts, its 95 % interval over seeds and texts; with one seed over texts.
    """
    rows = []
    for kind, group in ranking.kinds(cells).items():
        numbers = [sections.numbers(cell) for cell in group]
        made = ranking.panel(group, numbers)
        low, high = made.intervals()
        for place, name in enumerate(numbers[0]):
            rows.append(
                dict(zip(KIND, kind, strict=True))
                | {
                    "quantity": name,
                    "n_seeds": int(made.n_seeds[place]),
                    "n": int(made.n[place]),
                    "n_undefined": int(made.n_undefined[place]),
                    "mean": made.means[place],
                    "ci_low": low[place],
                    "ci_high": high[place],
                }
            )
    return pd.DataFrame(rows)


def beside_published(published: pd.DataFrame, ranked: pd.DataFrame) -> pd.DataFrame:
    """Each published number with ours of the measure that is nearest, of another model and other texts.

    definition: "the same", or how theirs differs. measured, ci_low, ci_high: of "measures_ranking"; NaN where nothing of the
    kind was measured. difference: measured - published.
    """
    measured = ranked.rename(columns={"mean": "measured"})
    names = ["dataset", "measure", "test", "projection", "n_seeds", "n", "measured", "ci_low", "ci_high"]
    known = published[published["dataset"].isin(measured["dataset"].unique())]
    return join_published(known.fillna({"measure": ""}), measured[names], ["dataset", "measure", "test"])
