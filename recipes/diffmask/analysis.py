"""DiffMask beside other measures: against evidence that is known, and as selections of one size; how its gates were trained.

Source: De Cao et al. (2020), How do Decisions Emerge across Layers in Neural Models?
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from attnfaith.importance.diffmask import FOLDER
from attnfaith.metrics.attention_faithfulness.plausibility import random_precision
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import selection

from ..pages import INTERVAL, analysis
from ..shared import Models, as_table, first, kinds, precision_of, rows_of


PAGES = {
    "counting": {"scores": "{scores}", "seeds": "{n_seeds}", "average precision": "{mean} ± {std}"},
    "budgets": {"data": "{dataset}", "size": "{size}", "scores": "{scores}", "number": "{number}", "seeds": "{n_seeds}"}
    | {"mean [95 %]": INTERVAL},
    "training": {"data": "{dataset}", "seed": "{seed}", "epoch": "{epoch}", "divergence": "{validation_constraint}"}
    | {"tokens open": "{validation_open}", "same class": "{validation_agreement}"},
}
NUMBERS = {"correct": "accuracy", "sufficiency": "sufficiency", "comprehensiveness": "comprehensiveness"}
SHOWN = ("attention", "integrated_gradients", "occlusion", "random", "diffmask")
"""Scores of the page's table of selections; the CSV file has all."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "counting", "budgets" and "training", see the functions of these names, and what the page shows of them."""
    cells = [cell for cell in cells if "diffmask" in cell.measures]
    groups = kinds(cells)
    results = {"counting": lambda _: counting(groups), "budgets": lambda _: budgets(groups), "training": training}
    return analysis(cells, PAGES, results, {"budgets": lambda table: table[table["scores"].isin(SHOWN)]})


@as_table
def counting(groups: Sequence[Models]) -> pd.DataFrame:
    """The average precision of attention and each measure against the tokens that decide, where a record marks them, and
    that of a random order; columns of `shared.summary`.
    """
    for models in groups:
        if first(models).has("rationale"):
            numbers = {name: precision_of(name) for name in ("attention", *first(models).measures)}
            numbers["by chance"] = lambda cell: random_precision(cell.rows("rationale"))
            yield from rows_of(models, numbers, {"dataset": first(models).identity.dataset}, named="scores")


@as_table
def budgets(groups: Sequence[Models]) -> pd.DataFrame:
    """Of the tokens that each score ranks first, as many of all: accuracy from these alone, sufficiency (how much less
    probable the predicted class is from them) and comprehensiveness (how much less without them).
    """
    for models in groups:
        cell = first(models)
        for size, scores in selection.budgets(cell) if selection.SELECTION_BUDGETS.applies(cell) else ():
            numbers = {
                name: lambda cell, at=(size, scores), key=key: selection.budgets(cell)[at][key]
                for key, name in NUMBERS.items()
            }
            labels = {"dataset": cell.identity.dataset, "size": size, "scores": scores}
            yield from rows_of(models, numbers, labels, lambda name: (0, 1) if name == "accuracy" else (-1, 1), "number")


@as_table
def training(cells: Sequence[Cell]) -> pd.DataFrame:
    """The epoch of the gates that was kept, gates of all layers multiplied, from the log in each run's folder: on validation
    texts the divergence of the masked from the whole text (nats), the share of open gates and of kept classes. A run whose
    folder is not at hand has no row.
    """
    for cell in cells:
        folder = Path(cell.settings.get("recipe", {}).get("output_dir", "")) / FOLDER
        for path in sorted(folder.glob("*.csv")):
            log = pd.read_csv(path)
            kept = log[log["chosen"].astype(bool)].sort_values("layer").tail(1)
            for row in kept.to_dict("records"):
                yield {"dataset": cell.identity.dataset, "seed": cell.identity.seed} | row
