"""Which class the scores of a measure are of."""

from collections.abc import Mapping

import numpy as np

from attnfaith import catalogue
from attnfaith.reporting.cells import PREFIX, Cell, name_class
from attnfaith.reporting.page.heatmap import visible


def class_label(cell: Cell, number: int) -> str:
    """A class for reading, such as "1 positive", with nothing unseen in it."""
    return visible(name_class(str(number), cell.class_names))


def explained(cell: Cell, row: int, measure: str) -> str:
    """Which class the scores of a measure are of, by its name; "" of a measure that has no target."""
    made = cell.settings.get("columns", {}).get(PREFIX + measure, {})
    producer = made.get("producer", "").rpartition(".")[2]
    entry = next((one for one in catalogue.entries() if one.name == producer), None)
    if entry is None or "target" not in entry.options:
        return ""
    target = cell.settings.get("options", {}).get(producer, {}).get("target", "predicted")
    if isinstance(target, Mapping):
        return f"of class {class_label(cell, target['of'])} against class {class_label(cell, target['against'])}"
    if target == "gold":
        known = not np.isnan(cell.labels[row])
        return f"of class {class_label(cell, int(cell.labels[row]))} (gold)" if known else "of no class"
    if target == "predicted":
        return f"of class {class_label(cell, int(cell.predicted[row]))} (predicted)"
    return f"of class {class_label(cell, target)}"
