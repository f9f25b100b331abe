"""Which class the scores of a measure are of."""

from collections.abc import Mapping

import numpy as np

from attnfaith.reporting.cells import PREFIX, Cell, name_class
from attnfaith.reporting.heatmap import visible


def class_label(cell: Cell, number: int) -> str:
    """A class for reading, such as "1 positive", with nothing unseen in it."""
    return visible(name_class(str(number), cell.class_names))


def explained(cell: Cell, row: int, measure: str) -> str:
    """Which class the scores of a measure are of, by its name; "" of a measure that has no target."""
    producer = cell.settings.get("columns", {}).get(PREFIX + measure, "")
    target = cell.settings.get("options", {}).get(producer, {}).get("target")
    if target is None:
        return ""
    if isinstance(target, Mapping):
        return f"of class {class_label(cell, target['of'])} against class {class_label(cell, target['against'])}"
    if target == "gold":
        known = not np.isnan(cell.labels[row])
        return f"of class {class_label(cell, int(cell.labels[row]))} (gold)" if known else "of no class"
    if target == "predicted":
        return f"of class {class_label(cell, int(cell.predicted[row]))} (predicted)"
    return f"of class {class_label(cell, target)}"
