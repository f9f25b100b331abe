"""What the cells of a sweep over projections are: their sparsity knob, and all else that may differ, read from identities.

Sparsegen's knob is lambda < 1, 0 for sparsemax; entmax's is alpha >= 1, 1 for softmax and 2 for sparsemax. Both grow with
sparsity. Softmax and uniform attention lie on no lambda axis: they are its end points.
"""

import re
from collections.abc import Iterable, Sequence

from attnfaith.reporting.cells import Cell


_PARAMETER = re.compile(r"(sparsegen|entmax)\((.+)\)")
_FIXED_SCALE = re.compile(r"(.+)\(scale (.+)\)")
_RATE = re.compile(r"classification\(attention rate x (.+)\)")
MODEL = ("dataset", "revision", "split", "encoder", "alignment", "vectors", "objective")
"""Identity columns in which the cells of one sweep agree; seed and projection are what varies."""


def sparsegen_lambda(cell: Cell) -> float | None:
    """Lambda of a cell with sparsegen or sparsemax; None for other projections."""
    if cell.heading["projection"] == "sparsemax":
        return 0.0
    match = _PARAMETER.fullmatch(cell.heading["projection"])
    return float(match[2]) if match and match[1] == "sparsegen" else None


def entmax_alpha(cell: Cell) -> float | None:
    """Alpha of a cell with softmax, entmax or sparsemax; None for other projections."""
    named = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
    if cell.heading["projection"] in named:
        return named[cell.heading["projection"]]
    match = _PARAMETER.fullmatch(cell.heading["projection"])
    return float(match[2]) if match and match[1] == "entmax" else None


def score_scale(cell: Cell) -> float | None:
    """The standard deviation that a text's scores are held at; None where the model chooses it."""
    match = _FIXED_SCALE.fullmatch(cell.heading["alignment"])
    return float(match[2]) if match else None


def plain_alignment(cell: Cell) -> str:
    """The alignment without its scale: "additive" of "additive(scale 1)"."""
    match = _FIXED_SCALE.fullmatch(cell.heading["alignment"])
    return match[1] if match else str(cell.heading["alignment"])


def attention_rate(cell: Cell) -> float:
    """Learning rate of the alignment over that of the rest: 1, or what the objective says."""
    match = _RATE.fullmatch(cell.heading["objective"])
    return float(match[1]) if match else 1.0


def is_untrained(cell: Cell) -> bool:
    """Whether the model is as it was drawn, without any training."""
    return cell.heading["objective"] == "untrained"


def is_plain(cell: Cell) -> bool:
    """Whether the cell belongs to the paper's sweep: trained on labels at one rate, scores of a free scale."""
    return cell.heading["objective"] == "classification" and score_scale(cell) is None


def is_of_the_paper(cell: Cell) -> bool:
    """Whether the cell is plain and has a projection of the paper's: softmax, sparsemax, sparsegen, or uniform attention."""
    return is_plain(cell) and (sparsegen_lambda(cell) is not None or cell.heading["projection"] in ("softmax", "uniform"))


def by_model(cells: Iterable[Cell], columns: Sequence[str] = MODEL) -> dict[tuple, list[Cell]]:
    """Cells in groups that agree in the given identity columns, in order of first appearance."""
    found: dict[tuple, list[Cell]] = {}
    for cell in cells:
        found.setdefault(tuple(cell.heading[name] for name in columns), []).append(cell)
    return found
