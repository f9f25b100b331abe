"""DiffMask beside other measures: against evidence that is known, and as selections of one size; how its gates were trained.

Source: De Cao et al. (2020), How do Decisions Emerge across Layers in Neural Models?
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from attnfaith.importance.diffmask import FOLDER
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision, random_precision
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import selection

from ..shared import INTERVAL, Models, analysis, as_table, kinds, summary, values


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
        first = next(iter(models.values()))
        if not first.has("rationale"):
            continue
        for name in ("attention", *first.measures):
            numbers = values(models, lambda cell, name=name: average_precision(cell.scores(name), cell.rows("rationale")))
            yield {"dataset": first.identity.dataset, "scores": name} | summary(numbers, (0, 1))
        chance = values(models, lambda cell: random_precision(cell.rows("rationale")))
        yield {"dataset": first.identity.dataset, "scores": "by chance"} | summary(chance, (0, 1))


@as_table
def budgets(groups: Sequence[Models]) -> pd.DataFrame:
    """Of the tokens that each score ranks first, as many of all: accuracy from these alone, sufficiency (how much less
    probable the predicted class is from them) and comprehensiveness (how much less without them).
    """
    for models in groups:
        first = next(iter(models.values()))
        for size, scores in selection.budgets(first) if selection.SELECTION_BUDGETS.applies(first) else ():
            for key, name in NUMBERS.items():
                numbers = values(models, lambda cell, at=(size, scores), key=key: selection.budgets(cell)[at][key])
                row = {"dataset": first.identity.dataset, "size": size, "scores": scores, "number": name}
                yield row | summary(numbers, (0, 1) if key == "correct" else (-1, 1))


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
