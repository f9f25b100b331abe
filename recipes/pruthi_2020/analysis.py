"""Pruthi et al.'s numbers beside ours: accuracy and attention on impermissible words, by task, encoder and penalty.

Source: Pruthi et al. (2020), Learning to Deceive with Attention-Based Explanations.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.published import join_published, read_published
from attnfaith.reporting.sections.group_mass import IMPERMISSIBLE, by_group
from attnfaith.reporting.sections.performance import performance_table


CASE = ("dataset", "encoder", "impermissible_heads", "penalty", "impermissible_removed")
KEYS = (*CASE, "statistic")
STATISTICS = ("accuracy", "impermissible_mass")
PUBLISHED = (*KEYS, "value", "bound", "by", "source")
WITHOUT = "_permissible"  # what a data set without its impermissible words is called
PRETRAINED = "bert-base-uncased"  # the authors' pretrained encoder; ours is named in the column model


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "beside_published" and "accuracy_and_mass", see the functions of these names. Raises StudyError for published numbers
    that are none.
    """
    published = read_published(settings.published, PUBLISHED, ["value", "penalty"]) if settings.published else None
    if published is None or not cells:
        return Analysis()
    made = {"beside_published": beside_published(cells, published), "accuracy_and_mass": accuracy_and_mass(cells, published)}
    return Analysis(made)


def beside_published(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """A row for each published number of a data set that was measured: our mean over n_seeds seeds, and the difference.

    impermissible_mass: mean over all texts, as published, 0..1; with impermissible_heads "max" that of the head with most. A
    published number with bound "below" is the most it can be. Measured is NaN where nothing was.
    """
    measured = _over_seeds(cells)
    published = published[published["dataset"].isin(set(measured["dataset"]))].fillna({"impermissible_heads": "none"})
    joined = join_published(published, measured, list(KEYS))
    names = [*KEYS, "model", "published", "bound", "measured", "difference", "n_seeds", "by", "source"]
    return joined[names]


def accuracy_and_mass(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """A row for each kind of model that was measured: both numbers, mean over n_seeds seeds, and the authors' beside them.

    NaN: not measured, or not published. ..._bound "below": the published number is the most that it can be.
    """
    ours = _over_seeds(cells)
    wide = ours.pivot(index=[*CASE, "model"], columns="statistic", values="measured").reindex(columns=STATISTICS)
    wide["n_seeds"] = ours.groupby([*CASE, "model"])["n_seeds"].max()
    authors = published[published["by"] == "authors"].fillna({"impermissible_heads": "none"})
    for statistic in STATISTICS:
        theirs = authors[authors["statistic"] == statistic].set_index(list(CASE))
        for name, column in {"value": f"{statistic}_published", "bound": f"{statistic}_bound"}.items():
            wide = wide.join(theirs[name].rename(column), on=list(CASE))
    return wide.reset_index()


def _over_seeds(cells: Sequence[Cell]) -> pd.DataFrame:
    """The mean of each number over seeds, and how many there are."""
    rows = pd.DataFrame([row for cell in cells for row in _measured(cell)]).astype({"impermissible_heads": str})
    return rows.groupby([*KEYS, "model"], as_index=False)["value"].agg(measured="mean", n_seeds="size")


def _measured(cell: Cell) -> Iterator[dict]:
    of = cell.identity
    pretrained = of.reduction is not None
    removed = of.dataset.endswith(WITHOUT)
    for heads in (
        (("mean", "max") if of.impermissible_heads is None else (of.impermissible_heads,)) if pretrained else ("none",)
    ):
        known = {
            "dataset": of.dataset.removesuffix(WITHOUT),
            "encoder": PRETRAINED if pretrained else of.encoder,
            "impermissible_heads": heads,
            "penalty": float(of.impermissible_mass),
            "impermissible_removed": removed,
            "model": of.encoder,
        }
        yield {**known, "statistic": "accuracy", "value": performance_table([cell])["accuracy"].item()}
        if "group_mass" in cell.table.column_names and not removed:
            mass = by_group(cell)[IMPERMISSIBLE]["head_max" if heads == "max" else "whole"]
            yield {**known, "statistic": "impermissible_mass", "value": pd.Series(mass).mean()}
