"""How far attention is from being determined, from the columns of `identifiability` (after Brunner et al. 2020, section 3).

Another attention is one that changes nothing in what the model reads. Undefined for a text of fewer than two tokens.
"""

import numpy as np

from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.charts import binned, text_chart
from attnfaith.reporting.spec import section


BEGIN = "identifiability_"
NUMBERS = ("tvd", "bound", "support", "top_attention", "top_low", "logit_change")


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """identifiability_tvd of each text, total variation distance (0..1) to the furthest other attention that was reached;
    _bound, which none exceeds; _exact: whether they meet; _weight, _low, _high and _width: weight of its most attended token
    (the first of equal ones), the ends of its interval and its width; _support: the fewest tokens with weight that suffice.
    """
    values = {name: cell.column(BEGIN + name) for name in NUMBERS}
    values["exact"] = cell.is_exact("identifiability", ~np.isnan(values["tvd"]))
    columns = {"weight": cell.attention, "low": cell.rows(f"{BEGIN}low"), "high": cell.rows(f"{BEGIN}high")}
    for name, rows in columns.items():
        pairs = zip(rows, cell.attention, strict=True)
        values[name] = np.array([row[own.argmax()] if len(own) > 1 else np.nan for row, own in pairs], np.float64)
    values["width"] = values["high"] - values["low"]
    return {BEGIN + name: numbers for name, numbers in values.items()}


SECTION = section(
    "identifiability",
    per_text=per_text,
    chart=lambda cell: text_chart(
        "identifiability_by_length",
        binned(per_text(cell)[f"{BEGIN}tvd"], cell.lengths, (2, 5, 10, 20, 40, 80, 160), "tokens:"),
    ),
)
