"""Each measure by each test of explanations that a record allows, text by text.

Tests by erasure, from `rationale_erasure` and `soft_erasure`: what the model says of the tokens that a measure ranks first,
and of the text without them. Tests against marked evidence, where the record has it: what people marked (plausibility), or,
in generated texts, what the label was made of (truth). The tests and their units are those of
`metrics.attention_faithfulness.erasure_curves` and `plausibility`.

Shapes: N instances, M measures, S shares of the tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.erasure_curves import (
    BINS,
    aopc,
    area_under_curve,
    comprehensiveness,
    normalised_comprehensiveness,
    normalised_sufficiency,
    sufficiency,
)
from attnfaith.metrics.attention_faithfulness.plausibility import plausibility_results
from attnfaith.reporting.cells import Cell, describe


NEEDS = tuple(
    f"rationale_erasure_{name}" for name in ("measures", "shares", "kept_probs", "removed_probs", "whole_prob", "empty_prob")
)
SOFT = tuple(f"soft_erasure_{name}" for name in ("measures", "kept_probs", "removed_probs", "whole_prob", "empty_prob"))


@dataclass(frozen=True)
class Criterion:
    """label: for reading. better: 1 where large is good, -1 where small is. evidence: against marked tokens, not by
    erasure.
    """

    label: str
    better: int
    evidence: bool = False


TESTS = {
    "comprehensiveness": Criterion("comprehensiveness (AOPC)", 1),
    "sufficiency": Criterion("sufficiency (AOPC)", -1),
    "deletion_area": Criterion("deletion area", -1),
    "insertion_area": Criterion("insertion area", 1),
    "soft_comprehensiveness": Criterion("soft comprehensiveness", 1),
    "soft_sufficiency": Criterion("soft sufficiency", 1),
    "average_precision": Criterion("average precision", 1, evidence=True),
    "trapezoid_auprc": Criterion("AUPRC by trapezoids", 1, evidence=True),
    "token_f1": Criterion("token F1", 1, evidence=True),
    "span_iou_f1": Criterion("span IoU F1", 1, evidence=True),
}


def measures(cell: Cell) -> list[str]:
    """The names of what is tested, attention first, as the record has them; a signed measure by its size as well.

    Raises RecordError where nothing was tested, and where two instances of the cell name others: they were not measured
    together.
    """
    if "rationale_erasure_measures" not in cell.table.column_names:
        raise records.RecordError(
            f"{describe(cell.heading)}: no measure was tested by erasure; measure the model with rationale_erasure among "
            "--measure.producers"
        )
    return shared(cell, "rationale_erasure_measures")


def shared(cell: Cell, column: str) -> list:
    """The one list that a column holds in every row."""
    values = cell.table.column(column).to_pylist()
    if any(row != values[0] for row in values):
        other = next(row for row in values if row != values[0])
        raise records.RecordError(
            f"{describe(cell.heading)}: column '{column}' holds {values[0]} and {other}; one cell is measured in one way"
        )
    return values[0]


def scores(cell: Cell, only: Sequence[str] | None = None) -> dict[str, dict[str, np.ndarray]]:
    """What each test says of each measure, or of these only, {test: {measure: [N]}} in float64, NaN where undefined.

    comprehensiveness and sufficiency are AOPC over those of ERASER's five shares that were measured (over all shares where
    none was), its code's mean. The areas take every share measured, at the share of tokens that it came to. The soft forms
    are means over draws, each cut to 0..1 as in their published code: where the empty text loses next to nothing they would
    outweigh all other texts. A cell has the tests that its columns allow.

    Raises RecordError where the instances of a cell were tested by other measures or shares.
    """
    names, shares = measures(cell), np.array(shared(cell, "rationale_erasure_shares"))
    whole, empty = (column(cell, f"rationale_erasure_{name}_prob") for name in ("whole", "empty"))
    kept, removed = (stacked(cell, f"rationale_erasure_{name}_probs") for name in ("kept", "removed"))
    bins = np.isclose(shares[:, None], BINS).any(1)
    bins = bins if bins.any() else np.ones(len(shares), bool)
    counts = np.maximum(np.ceil(shares * cell.lengths[:, None] - 1e-9), 1)  # as the tokens of a share are counted
    true_shares = np.minimum(counts / np.maximum(cell.lengths, 1)[:, None], 1)
    results: dict[str, dict[str, np.ndarray]] = {name: {} for name in TESTS}
    wanted = set(names if only is None else only)
    for place, name in enumerate(names):
        if name not in wanted:
            continue
        one, other = removed[:, place], kept[:, place]
        results["comprehensiveness"][name] = aopc(comprehensiveness(whole, one[:, bins]))
        results["sufficiency"][name] = aopc(sufficiency(whole, other[:, bins]))
        results["deletion_area"][name] = area_under_curve(true_shares, one, whole, empty)
        results["insertion_area"][name] = area_under_curve(true_shares, other, empty, whole)
    if set(SOFT) <= set(cell.table.column_names):
        whole, empty = (column(cell, f"soft_erasure_{name}_prob") for name in ("whole", "empty"))
        kept, removed = (stacked(cell, f"soft_erasure_{name}_probs") for name in ("kept", "removed"))
        for place, name in enumerate(shared(cell, "soft_erasure_measures")):
            if name not in wanted:
                continue
            falls = normalised_comprehensiveness(whole, removed[:, place], empty)
            results["soft_comprehensiveness"][name] = falls.clip(0, 1).mean(1)
            results["soft_sufficiency"][name] = normalised_sufficiency(whole, kept[:, place], empty).clip(0, 1).mean(1)
    if "rationale" in cell.table.column_names:
        gold = records.rows(cell.table, "rationale")
        for name in (name for name in names if name in wanted):
            for test, values in plausibility_results(token_scores(cell, name), gold).items():
                results[test][name] = values
    return {test: values for test, values in results.items() if values}


def token_scores(cell: Cell, name: str) -> list[np.ndarray]:
    """Scores [T] per instance of what is tested under this name."""
    if name.startswith(records.ABSOLUTE):
        return [np.abs(row) for row in cell.scores(name.removeprefix(records.ABSOLUTE))]
    return cell.scores(name)


def column(cell: Cell, name: str) -> np.ndarray:
    """A column of one number per instance, [N] float64."""
    return cell.table.column(name).to_numpy().astype(np.float64)


def stacked(cell: Cell, name: str) -> np.ndarray:
    """A column of arrays of one shape, [N, ...] float64."""
    return np.stack(records.rows(cell.table, name)).astype(np.float64)
