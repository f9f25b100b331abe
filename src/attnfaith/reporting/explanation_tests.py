"""Each measure by each test of explanations that a record allows, text by text.

Tests by erasure, from `rationale_erasure` and `soft_erasure`: the prediction from the tokens that a measure ranks first, and
from the text without them. Tests against marked evidence, where the record has it: marked by people (plausibility), or, in
generated texts, the tokens that the label was made of (truth). Their units are those of
`metrics.attention_faithfulness.erasure_curves` and `plausibility`.

Shapes: N instances, M measures, S shares of the tokens.
"""

from collections.abc import Iterator, Sequence
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
from attnfaith.reporting.cells import Cell


NEEDS = tuple(
    f"rationale_erasure_{name}" for name in ("measures", "shares", "kept_probs", "removed_probs", "whole_prob", "empty_prob")
)
SOFT = tuple(f"soft_erasure_{name}" for name in ("measures", "kept_probs", "removed_probs", "whole_prob", "empty_prob"))


@dataclass(frozen=True)
class Criterion:
    """A test. label: for reading. better: 1 where large is good, -1 where small is. evidence: against marked tokens."""

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
    """The names of the tested measures, attention first, as the record has them; a signed measure by its size as well."""
    return cell.shared("rationale_erasure_measures")


def scores(cell: Cell, only: Sequence[str] | None = None) -> dict[str, dict[str, np.ndarray]]:
    """The result of each test for each measure, or for these only, {test: {measure: [N]}} in float64, NaN where undefined.

    comprehensiveness and sufficiency are AOPC over those of ERASER's five shares that were measured (over all shares where
    none was). The areas take every share measured, at the share of tokens that it came to. The soft forms are means over
    draws, each cut to 0..1 as in their published code. A cell has the tests that its columns allow.
    """
    names, shares = measures(cell), np.array(cell.shared("rationale_erasure_shares"))
    wanted = set(names if only is None else only)
    bins = np.isclose(shares[:, None], BINS).any(1)
    bins = bins if bins.any() else np.ones(len(shares), bool)
    counts = np.maximum(np.ceil(shares * cell.lengths[:, None] - 1e-9), 1)  # as the tokens of a share are counted
    true_shares = np.minimum(counts / np.maximum(cell.lengths, 1)[:, None], 1)
    results: dict[str, dict[str, np.ndarray]] = {name: {} for name in TESTS}
    for name, kept, removed, whole, empty in _erased(cell, "rationale_erasure", wanted):
        results["comprehensiveness"][name] = aopc(comprehensiveness(whole, removed[:, bins]))
        results["sufficiency"][name] = aopc(sufficiency(whole, kept[:, bins]))
        results["deletion_area"][name] = area_under_curve(true_shares, removed, whole, empty)
        results["insertion_area"][name] = area_under_curve(true_shares, kept, empty, whole)
    if cell.has(*SOFT):
        for name, kept, removed, whole, empty in _erased(cell, "soft_erasure", wanted):
            falls = normalised_comprehensiveness(whole, removed, empty)
            results["soft_comprehensiveness"][name] = falls.clip(0, 1).mean(1)
            results["soft_sufficiency"][name] = normalised_sufficiency(whole, kept, empty).clip(0, 1).mean(1)
    if cell.has("rationale"):
        gold = cell.rows("rationale")
        for name in (name for name in names if name in wanted):
            for test, values in plausibility_results(token_scores(cell, name), gold).items():
                results[test][name] = values
    return {test: values for test, values in results.items() if values}


def _erased(cell: Cell, start: str, wanted: set[str]) -> Iterator[tuple]:
    """Name and probabilities of each measure of a test by erasure: kept, removed [N, S]; whole, empty [N]."""
    whole, empty = (cell.column(f"{start}_{name}_prob") for name in ("whole", "empty"))
    kept, removed = (cell.stacked(f"{start}_{name}_probs") for name in ("kept", "removed"))
    for place, name in enumerate(cell.shared(f"{start}_measures")):
        if name in wanted:
            yield name, kept[:, place], removed[:, place], whole, empty


def token_scores(cell: Cell, name: str) -> list[np.ndarray]:
    """Scores [T] per instance of a tested measure, by its name in the test."""
    if name.startswith(records.ABSOLUTE):
        return [np.abs(row) for row in cell.scores(name.removeprefix(records.ABSOLUTE))]
    return cell.scores(name)
