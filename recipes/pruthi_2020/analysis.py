"""Pruthi et al.'s numbers beside ours, and which tests of attention notice that a model deceives (`uncovered`).

Source: Pruthi et al. (2020), Learning to Deceive with Attention-Based Explanations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections.attention import IMPERMISSIBLE, group_mass
from attnfaith.reporting.sections.performance import TABLE as PERFORMANCE

from ..pages import analysis, over_seeds, read_published
from . import uncovered


CASE = ("dataset", "encoder", "impermissible_heads", "penalty", "impermissible_removed")
KEYS = (*CASE, "statistic")
STATISTICS = ("accuracy", "impermissible_mass")
WITHOUT = "_permissible"  # what a data set without its impermissible words is called
PRETRAINED = "bert-base-uncased"  # the authors' pretrained encoder; ours is named in the column model

PAGES = {
    "accuracy_and_mass": {"task": "{dataset}", "model": "{model}", "λ": "{penalty}", "without": "{impermissible_removed}"}
    | {"seeds": "{n_seeds}", "accuracy": "{accuracy}", "published": "{accuracy_published}"}
    | {"mass": "{impermissible_mass}", "published mass": "{impermissible_mass_published}"},
    "uncovered_by_test": {"test": "{label}", "pairs": "{n_pairs}", "uncovers": "{uncovers}", "is misled": "{misled}"}
    | {"AUC, least to largest": "{auc_least} to {auc_largest}"}
    | {"matched: uncovers": "{matched_uncovers}", "matched: is misled": "{matched_misled}"},
    "uncovered_models": {"task": "{dataset}", "model": "{encoder}", "training": "{objective}", "seeds": "{n_seeds}"}
    | {"accuracy, honest": "{accuracy_honest}", "deceiving": "{accuracy_deceiving}"}
    | {"attention on what is hidden, honest": "{hidden_honest}", "of the deceiving": "{hidden_deceiving}"}
    | {"imbalance": "{imbalance}", "matched": "{imbalance_matched}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "accuracy_and_mass", see the function of this name, and what `uncovered` makes."""
    published = read_published(settings.published, (*KEYS, "value", "bound", "by", "source"), ["value", "penalty"])
    tests = uncovered.tables(cells, settings)
    results = {"accuracy_and_mass": lambda cells: accuracy_and_mass(cells, published)}
    results |= {name: lambda _, table=table: table for name, table in tests.tables.items()}
    return replace(analysis(cells, PAGES, results), figures=tests.figures)


def accuracy_and_mass(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """A row for each kind of model that was measured: both numbers, mean over n_seeds seeds, and the authors'.

    impermissible_mass: mean over all texts, as published, 0..1; with impermissible_heads "max" that of the head with most.
    ..._bound "below": the published number is the most that it can be. NaN: not measured, or not published.
    """
    published = published.fillna({"impermissible_heads": "none"})
    measured = over_seeds(pd.DataFrame([row for cell in cells for row in _measured(cell)]), [*KEYS, "model"])
    wide = measured.pivot(index=[*CASE, "model"], columns="statistic", values="measured").reindex(columns=STATISTICS)
    wide["n_seeds"] = measured.groupby([*CASE, "model"])["n_seeds"].max()
    for statistic in STATISTICS:
        theirs = published[(published["by"] == "authors") & (published["statistic"] == statistic)].set_index(list(CASE))
        for name, column in {"value": f"{statistic}_published", "bound": f"{statistic}_bound"}.items():
            wide = wide.join(theirs[name].rename(column), on=list(CASE))
    return wide.reset_index()


def _measured(cell: Cell) -> Iterator[dict]:
    of = cell.identity
    pretrained, removed = of.reduction is not None, of.dataset.endswith(WITHOUT)
    accuracy = PERFORMANCE.frame([cell])["accuracy"].item()
    for heads in ("none",) if not pretrained else (of.impermissible_heads,) if of.impermissible_heads else ("mean", "max"):
        row = {"dataset": of.dataset.removesuffix(WITHOUT), "encoder": PRETRAINED if pretrained else of.encoder}
        row |= {"impermissible_heads": heads, "penalty": float(of.impermissible_mass), "impermissible_removed": removed}
        row |= {"model": of.encoder}
        yield {**row, "statistic": "accuracy", "value": accuracy}
        if "group_mass" in cell.table.column_names and not removed:
            start = "group_mass_head_max" if heads == "max" else "group_whole"
            mass = group_mass(cell)[f"{start}_{IMPERMISSIBLE}"]
            yield {**row, "statistic": "impermissible_mass", "value": pd.Series(mass).mean()}
