"""What a record says of other attentions, for a page that cannot compute it: measured beforehand, shown as it is.

Shapes: N texts, T tokens of one, C classes, K draws or epsilons.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.cells import Cell


FURTHEST = (("adversary_exact", "furthest attention"), ("adversary_search", "furthest attention of a search"))
DRAWS = (("permuted_probs", "weights permuted"), ("map_permuted_probs", "weights permuted in every head"))
ONE = (("map_uniform_probs", "uniform weights in every head"),)
SETS = (
    ("minimal_flip_set", None, "smallest set that flips"),
    ("frozen_flip_set", "frozen_flip_probs", "fewest tokens to take away"),
)


@dataclass(frozen=True, eq=False)
class Recorded:
    """One question that the record answers for every text.

    says: what the page calls it, with the names of its numbers. numbers: of each text an array, by name: "weights" (T,), an
    attention, or 1 on the tokens of a set; "probs" (C,), the prediction under it; of draws "change" and "flips", the mean
    total variation distance from the model's own prediction and the share of draws with another decision. NaN where the
    text has none.
    """

    says: dict[str, object]
    numbers: dict[str, list[np.ndarray]]


def recorded_answers(cell: Cell) -> tuple[Recorded, ...]:
    """What the cell's record holds of other attentions, () where nothing."""
    return tuple(_answers(cell))


def _answers(cell: Cell) -> Iterator[Recorded]:
    known = set(cell.table.column_names)
    for name, label in FURTHEST:
        if f"{name}_attention" in known:
            yield from _furthest(cell, name, label)
            break
    if "map_adversary_attention" in known:
        numbers = {"weights": _rows(cell, "map_adversary_attention", cell.lengths)}
        numbers["probs"] = _rows(cell, "map_adversary_probs", _classes(cell))
        yield Recorded({"label": "furthest maps of a search", "kind": "attention"}, numbers)
    for name, probs, label in SETS:
        if name in known:
            numbers = {"weights": _rows(cell, name, cell.lengths)}
            if probs in known:
                numbers["probs"] = _rows(cell, probs, _classes(cell))
            yield Recorded({"label": label, "kind": "set"}, numbers)
    for name, label in DRAWS:
        if name in known:
            yield Recorded({"label": label, "kind": "draws"}, _of_draws(cell, records.rows(cell.table, name)))
    for name, label in ONE:
        if name in known:
            yield Recorded({"label": label, "kind": "prediction"}, {"probs": _rows(cell, name, _classes(cell))})


def _classes(cell: Cell) -> np.ndarray:
    return np.full(len(cell), cell.probs.shape[1])


def _rows(cell: Cell, name: str, lengths: Sequence[int]) -> list[np.ndarray]:
    """A column's values of each text; NaN, as many as the text would have, where it has none."""
    values = records.rows(cell.table, name)
    return [one if len(one) == length else np.full(length, np.nan) for one, length in zip(values, lengths, strict=True)]


def _furthest(cell: Cell, name: str, label: str) -> Iterator[Recorded]:
    """An answer for each epsilon of the exact one; of the draws of a search the first."""
    attention, probs = (records.rows(cell.table, f"{name}_{kind}") for kind in ("attention", "probs"))
    epsilons: Sequence[float | None] = [None]
    if f"{name}_epsilon" in cell.table.column_names:
        epsilons = max(records.rows(cell.table, f"{name}_epsilon"), key=len).tolist()
    certainty = f"{name}_certainty"
    said = cell.table.column(certainty).to_pylist() if certainty in cell.table.column_names else None
    for place, epsilon in enumerate(epsilons):
        within = "" if epsilon is None else f" within ε = {epsilon:g}"
        numbers = {
            "weights": [_of_draw(one, place, length) for one, length in zip(attention, cell.lengths, strict=True)],
            "probs": [_of_draw(one, place, cell.probs.shape[1]) for one in probs],
        }
        certainties = sorted({one for one in said if one != "undefined"}) if said else []
        certain = f" ({', '.join(certainties)})" if certainties else ""
        yield Recorded({"label": f"{label}{within}{certain}", "kind": "attention"}, numbers)


def _of_draw(values: np.ndarray, place: int, length: int) -> np.ndarray:
    return values[place] if place < len(values) and values.shape[1] == length else np.full(length, np.nan)


def _of_draws(cell: Cell, draws: Sequence[np.ndarray]) -> dict[str, list[np.ndarray]]:
    change, flips = [], []
    for own, decided, others in zip(cell.probs, cell.predicted, draws, strict=True):
        some = others.reshape(-1, len(own))
        change.append(np.array([np.abs(some - own).sum(1).mean() / 2 if len(some) else np.nan]))
        flips.append(np.array([(some.argmax(1) != decided).mean() if len(some) else np.nan]))
    return {"change": change, "flips": flips}
