"""How many attention weights must go until the decision changes, by the order in which they go, for each kind of model.

Source: Serrano & Smith (2019), Is Attention Interpretable?
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import changes

from ..pages import INTERVAL, analysis
from ..shared import CORRECT, Number, answer, as_table, heading, kinds, pick, row_of, values


COUNTS = {"items": (0, np.inf), "ratio": (1, np.inf)}  # bounds of numbers that are no shares
ORDERS = ("random", "attention", "gradient", "minimum")
MODEL = {"data": "{dataset}", "encoder": "{encoder}", "seeds": "{n_seeds}"}
PAGE = MODEL | {"accuracy": "{accuracy} ± {accuracy_std}", "items": "{items}", "only i*": "{only_top}"}
PAGE |= {name: f"{{{name}}} ± {{{name}_std}}" for name in ORDERS}
PAGE |= {"attention ÷ minimum": "{ratio}", "never: attention": "{never_attention}", "never: minimum": "{never_minimum}"}
PAGE |= {"only when all is gone: attention": "{all_attention}", "only when all is gone: minimum": "{all_minimum}"}
ASKED = MODEL | {"question": "{question}", "difference [95 %]": INTERVAL, "verdict": "{verdict}"}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "documents" and "questions", see the functions of these names."""
    cells = [cell for cell in cells if changes.ERASURE.applies(cell)]
    return analysis(cells, {"documents": PAGE, "questions": ASKED}, {"documents": documents, "questions": questions})


def removed(order: str, name: str) -> Number:
    """A number of the removals in one order: "fraction" of the items that go until the decision changes (NaN where it never
    does), "never", and "empty", where it changes only when no weight is left; the last two 0 or 1. NaN below two items.
    """
    return pick(changes.erasure, f"minimal_flip_{name}" if order == "minimum" else f"erasure_flip_{name}_{order}")


@as_table
def documents(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row for each kind of model, means over seeds and texts, _std over seeds.

    items: attended per text. only_top: share of texts whose decision changes without the largest weight and not without a
    random other one. One column for each of ORDERS: share of the items removed until the decision changes, over the texts
    that change in that order. ratio: items in attention's order over the smallest set. never_, all_: texts whose decision
    never changes, and only when all weight is gone.
    """
    numbers: dict[str, Number] = {
        "accuracy": CORRECT,
        "items": lambda cell: cell.lengths.astype(float),
        "only_top": pick(changes.erasure, "erasure_only_top_attention"),
        **{order: removed(order, "fraction") for order in ORDERS},
        "ratio": pick(changes.erasure, "erasure_flip_ratio_attention"),
    }
    for order in ("attention", "minimum"):
        numbers |= {f"never_{order}": removed(order, "never"), f"all_{order}": removed(order, "empty")}
    return [row_of(models, numbers, lambda name: COUNTS.get(name, (0, 1))) for models in kinds(cells)]


@as_table
def questions(cells: Sequence[Cell]) -> pd.DataFrame:
    """The paper's claims for each kind of model, as differences with the interval over seeds and texts and a verdict."""
    for models in kinds(cells):
        share = {order: values(models, removed(order, "fraction")) for order in ORDERS}
        changed = values(models, pick(changes.erasure, "erasure_top_flips_attention"))
        differences = {
            "attention's order removes more than the smallest set": share["attention"] - share["minimum"],
            "attention's order removes more than the gradient's": share["attention"] - share["gradient"],
            "without the largest weight most decisions stay": 0.5 - changed,
        }
        for name, numbers in differences.items():
            yield heading(models) | {"question": name} | answer(numbers)
