"""What the cells of a sweep over projections are: their sparsity knob, and all else that may differ, read from identities.

Sparsegen's knob is lambda < 1, 0 for sparsemax; entmax's is alpha >= 1, 1 for softmax and 2 for sparsemax. Both grow with
sparsity. Softmax and uniform attention lie on no lambda axis: they are its end points.
"""

from attnfaith.reporting.cells import Cell


def sparsegen_lambda(cell: Cell) -> float | None:
    """Lambda of a cell with sparsegen or sparsemax; None for other projections."""
    identity = cell.identity
    return {"sparsemax": 0.0, "sparsegen": identity.projection_parameter}.get(identity.projection)


def entmax_alpha(cell: Cell) -> float | None:
    """Alpha of a cell with softmax, entmax or sparsemax; None for other projections."""
    known = {"softmax": 1.0, "entmax15": 1.5, "entmax": cell.identity.projection_parameter, "sparsemax": 2.0}
    return known.get(cell.identity.projection)


def score_scale(cell: Cell) -> float | None:
    """The standard deviation that a text's scores are held at; None where the model chooses it."""
    return cell.identity.score_scale


def plain_alignment(cell: Cell) -> str:
    """The alignment without its scale: "additive" of "additive(scale 1)"."""
    return cell.identity.alignment


def attention_rate(cell: Cell) -> float:
    """Learning rate of the alignment over that of the rest."""
    return cell.identity.attention_rate


def is_untrained(cell: Cell) -> bool:
    """Whether the model is as it was drawn, without any training."""
    return cell.identity.objective == "untrained"


def is_adversary(cell: Cell) -> bool:
    """Whether the model was trained to attend otherwise than another one."""
    return cell.identity.objective == "adversarial"


def is_plainly_trained(cell: Cell) -> bool:
    """Whether the model was trained on labels, all of it at one rate, on whole texts."""
    identity = cell.identity
    return (identity.objective, identity.attention_rate, identity.random_erasure) == ("classification", 1, 0)


def is_plain(cell: Cell) -> bool:
    """Whether the cell belongs to the paper's sweep: trained on labels at one rate, scores of a free scale."""
    return is_plainly_trained(cell) and score_scale(cell) is None


def is_of_the_paper(cell: Cell) -> bool:
    """Whether the cell is plain and has a projection of the paper's: softmax, sparsemax, sparsegen, or uniform attention."""
    return is_plain(cell) and (sparsegen_lambda(cell) is not None or cell.identity.projection in ("softmax", "uniform"))
