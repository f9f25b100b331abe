"""Attention or saliency? Every measure of a record by every test of explanations that the record allows, text by text.

Tests by erasure, from `rationale_erasure` and `soft_erasure`: the prediction from the tokens that a measure ranks first, and
from the text without them. Tests against marked evidence, where the record has it: marked by people (plausibility), or, in
generated texts, the tokens that the label was made of (truth). Their units are those of
`metrics.attention_faithfulness.erasure_curves` and `plausibility`.

Each measure is held against three: random scores, attention, and one rival that is named before anything is measured
(`RIVALS`). There is no winner: of many measures the best by chance looks better than it is.

Shapes: N instances, M measures, S shares of the tokens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness import erasure_curves
from attnfaith.metrics.attention_faithfulness.plausibility import (
    average_precision,
    constant_precision,
    plausibility_results,
    random_precision,
)
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.html import DECLARED
from attnfaith.reporting.spec import Row, counts, main, section, table
from attnfaith.reporting.tables import format_number, p_in_words
from attnfaith.stats import bca_interval, estimate, holm, mean, sign_flip_tests


RIVALS = (f"{records.ABSOLUTE}integrated_gradients", "leave_one_out", f"{records.ABSOLUTE}gradient_x_input", "gradient")
"""The measures that others are held against: the first of these that a record holds, whatever its numbers are."""
GENERATED = ("planted_evidence", "counting")  # data sets whose marked tokens are what decides the label
NEEDS = tuple(
    f"rationale_erasure_{name}" for name in ("measures", "shares", "kept_probs", "removed_probs", "whole_prob", "empty_prob")
)
SOFT = tuple(f"soft_erasure_{name}" for name in ("measures", "kept_probs", "removed_probs", "whole_prob", "empty_prob"))


class Criterion(NamedTuple):
    """A test. label: for reading. better: 1 where large is good, -1 where small is. evidence: against marked tokens."""

    label: str
    better: int
    evidence: bool = False


TESTS = {name: Criterion(**declared) for name, declared in DECLARED["saliency"].items()}


def measures(cell: Cell) -> list[str]:
    """The names of the tested measures, attention first, as the record has them; a signed measure by its size as well."""
    return cell.shared("rationale_erasure_measures")


def scores(cell: Cell, only: Sequence[str] | None = None) -> dict[str, dict[str, np.ndarray]]:
    """The result of each test for each measure, or for these only, {test: {measure: [N]}} in float64, NaN where undefined.

    comprehensiveness and sufficiency are AOPC over those of ERASER's five shares that were measured (over all shares where
    none was). The areas take every share measured, at the share of tokens that it came to. The soft forms are means over
    draws, each cut to 0..1 as in their published code. A cell has the tests that its columns allow.
    """
    curves, shares = erasure_curves, np.array(cell.shared("rationale_erasure_shares"))
    wanted = set(measures(cell) if only is None else only)
    bins = np.isclose(shares[:, None], curves.BINS).any(1)
    bins = bins if bins.any() else np.ones(len(shares), bool)
    taken = np.ceil(shares * cell.lengths[:, None] - 1e-9)  # as the tokens of a share are counted
    true_shares = np.minimum(taken / np.maximum(cell.lengths, 1)[:, None], 1)
    results: dict[str, dict[str, np.ndarray]] = {name: {} for name in TESTS}
    for name, kept, removed, whole, empty in _erased(cell, "rationale_erasure", wanted):
        results["comprehensiveness"][name] = curves.aopc(curves.falls(whole, removed[:, bins]))
        results["sufficiency"][name] = curves.aopc(curves.falls(whole, kept[:, bins]))
        results["deletion_area"][name] = curves.area_under_curve(true_shares, removed, whole, empty)
        results["insertion_area"][name] = curves.area_under_curve(true_shares, kept, empty, whole)
    if cell.has(*SOFT):
        for name, kept, removed, whole, empty in _erased(cell, "soft_erasure", wanted):
            without, alone = (curves.normalised_falls(whole, probs, empty).clip(0, 1) for probs in (removed, kept))
            results["soft_comprehensiveness"][name] = without.mean(1)
            results["soft_sufficiency"][name] = (1 - alone).mean(1)
    if cell.has("rationale"):
        for name in (name for name in measures(cell) if name in wanted):
            own = cell.scores(name.removeprefix(records.ABSOLUTE))
            own = [np.abs(row) for row in own] if name.startswith(records.ABSOLUTE) else own
            for test, values in plausibility_results(own, cell.rows("rationale")).items():
                results[test][name] = values
    return {test: values for test, values in results.items() if values}


def _erased(cell: Cell, start: str, wanted: set[str]) -> Iterator[tuple]:
    """Name and probabilities of each measure of a test by erasure: kept, removed [N, S]; whole, empty [N]."""
    whole, empty = (cell.column(f"{start}_{name}_prob") for name in ("whole", "empty"))
    kept, removed = (cell.stacked(f"{start}_{name}_probs") for name in ("kept", "removed"))
    for place, name in enumerate(cell.shared(f"{start}_measures")):
        if name in wanted:
            yield name, kept[:, place], removed[:, place], whole, empty


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """The tests by erasure of attention: "comprehensiveness of attention", ..."""
    results = scores(cell, ["attention"])
    return {f"{test} of attention": values["attention"] for test, values in results.items() if not TESTS[test].evidence}


def rival(names: Iterable[str]) -> str | None:
    """The measure that the others are held against; None where none of RIVALS was tested."""
    return next((name for name in RIVALS if name in set(names)), None)


def _test_rows(cell: Cell) -> Iterator[Row]:
    for test, values in scores(cell).items():
        other = rival(values)
        compared = [differences(values, TESTS[test].better, name) for name in ("attention", "random", other)]
        for place, name in enumerate(values):
            row = {"test": test, "measure": name} | counts(values[name]) | main("mean", values[name])
            row |= {key: numbers[place] for columns in compared for key, numbers in columns.items()}
            yield row | {"rival": other or ""}


def differences(values: Mapping[str, np.ndarray], better: int, other: str | None) -> dict[str, list[float]]:
    """Paired differences of {measure: [N]} to one of them, positive where the measure is better; NaN of itself, or where it
    is absent. Columns to_<other> with interval and p-value, by Holm over the measures.
    """
    key = "to_rival" if other not in ("attention", "random") else f"to_{other}"
    names = (key, f"{key}_ci_low", f"{key}_ci_high", f"{key}_p_holm")
    if other not in values:
        return {name: [np.nan] * len(values) for name in names}
    paired = np.stack([better * (own - values[other]) for own in values.values()], axis=1)
    paired[:, list(values).index(other)] = np.nan
    estimates = [list(estimate("", column, interval=bca_interval).values()) for column in paired.T]
    return dict(zip(names, [*zip(*estimates, strict=True), holm(sign_flip_tests(paired))], strict=True))


def _difference(key: str):
    """A difference with its p-value; a dash where there is none."""
    return lambda row: "–" if np.isnan(row[key]) else f"{format_number(row[key])} (p {p_in_words(row[f'{key}_p_holm'])})"


TESTS_TABLE = table(
    "saliency_tests",
    rows=_test_rows,
    words={
        "test": lambda row: f"{TESTS[row['test']].label} {'↑' if TESTS[row['test']].better > 0 else '↓'}",
        **{key: _difference(key) for key in ("to_attention", "to_random", "to_rival")},
    },
)
"""One row per cell x test x measure. n: texts where the test is defined for the measure; n_undefined: the others. mean,
ci_low, ci_high: over these texts, with its 95 % interval. to_attention, to_random, to_rival: mean paired difference to
attention, to random scores, or to the rival, over the texts where both are defined, positive where the measure is the better
one whether large or small is good, with its interval; <name>_p_holm: p of `sign_flip_tests`, corrected by Holm over the
measures of that cell and test. rival: which measure that is.
"""
SECTION = section("saliency", needs=(*NEEDS, "attention"), per_text=per_text, tables=(TESTS_TABLE,))


@per_cell
def precisions(cell: Cell) -> dict[str, np.ndarray]:
    """Average precision of attention and of each measure against the marked tokens, [N] each."""
    return {name: average_precision(cell.scores(name), cell.rows("rationale")) for name in ("attention", *cell.measures)}


def _evidence_rows(cell: Cell) -> Iterator[Row]:
    gold = cell.rows("rationale")
    chance = {"random_baseline": random_precision(gold), "uniform_baseline": constant_precision(gold)}
    for name, auprc in precisions(cell).items():
        baselines = {kind: mean(values[~np.isnan(values) & ~np.isnan(auprc)]) for kind, values in chance.items()}
        yield {"scores": name} | counts(auprc) | main("auprc_mean", auprc) | baselines


EVIDENCE = table("plausibility", rows=_evidence_rows)
"""One row per cell x score. auprc_mean: mean average precision, 0..1. random_baseline, uniform_baseline: what scores in
random order, and equal ones, reach on the same texts. Plausible is not faithful (Jacovi & Goldberg 2020).
"""
PLAUSIBILITY = section("plausibility", tables=(EVIDENCE,))
