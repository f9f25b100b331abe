"""Measures held against tests of explanations, on records whose truth is known."""

import itertools

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.plausibility import plausibility_results
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import saliency
from tests.records import draw, replaced
from tests.sections import SHARES, SIX, check_section, erasure_tested


FALLS = {"attention": 0.3, "good": 0.6, "random": 0.1}  # what a text loses without the first tokens of a measure
NAMES = tuple(FALLS)


def drawn(count=40, falls=FALLS, **fields):
    measures = [name for name in falls if name != "attention" and not name.startswith("absolute_")]
    return erasure_tested(draw(count, measures=measures, **fields), falls, noise=0.05, soft=True)


@pytest.fixture(scope="module")
def record():
    return drawn(rationale=True)


@pytest.fixture(scope="module")
def cell(record):
    return one_cell(record)


def rows_of(cell, name="comprehensiveness"):
    """The rows of one test, by measure."""
    table = saliency.SECTION.frames([cell])["saliency_tests"]
    return table[table["test"] == name].set_index("measure")


def test_every_test_by_hand(cell):
    results = saliency.scores(cell)
    assert list(results) == list(saliency.TESTS)
    row, place = 5, NAMES.index("good")
    (kept, removed), (soft_kept, soft_removed) = (
        [records.rows(cell.table, f"{start}_erasure_{name}_probs")[row][place] for name in ("kept", "removed")]
        for start in ("rationale", "soft")
    )
    bins = [0, 1, 2, 3, 5]  # 30 % is none of ERASER's
    at = [0, *(np.ceil(np.array(SHARES) * cell.lengths[row] - 1e-9) / cell.lengths[row]), 1]
    expected = {
        "comprehensiveness": np.mean(0.95 - removed[bins]),
        "sufficiency": np.mean(0.95 - kept[bins]),
        "deletion_area": np.trapezoid([0.95, *removed, 0.2], at),
        "insertion_area": np.trapezoid([0.2, *kept, 0.95], at),
        "soft_comprehensiveness": np.mean(np.clip((0.95 - soft_removed) / 0.75, 0, 1)),
        "soft_sufficiency": np.mean(1 - np.clip((0.95 - soft_kept) / 0.75, 0, 1)),
    }
    assert {name: results[name]["good"][row] for name in expected} == pytest.approx(expected)
    for name, values in plausibility_results(cell.scores("good"), cell.rows("rationale")).items():
        np.testing.assert_array_equal(results[name]["good"], values)
    assert np.isnan(results["comprehensiveness"]["good"][0])  # the empty text
    check_section(saliency.SECTION, cell)


def test_soft_tests_are_cut_to_the_unit_interval_draw_by_draw():
    """A whole text is at .6 and an empty one at .5: some draws fall by more than that .1, some rise."""
    table = drawn(2)
    values = {
        "kept_probs": [0.6, 0.55, 0.1, 0.9],
        "removed_probs": [0.1, 0.57, 0.6, 0.9],
        "whole_prob": 0.6,
        "empty_prob": 0.5,
    }
    for name, value in values.items():
        table = replaced(table, f"soft_erasure_{name}", [[value] * 3 if isinstance(value, list) else value] * 2)
    results = saliency.scores(one_cell(table))
    # falls of .5, .03, 0 and -.3 of .1; with the tokens alone of 0, .05, .5 and -.3 of .1
    assert results["soft_comprehensiveness"]["good"] == pytest.approx(np.mean([1, 0.3, 0, 0]))
    assert results["soft_sufficiency"]["good"] == pytest.approx(np.mean([1, 0.5, 0, 1]))


def test_the_better_measure_is_better_by_every_test(cell):
    """Paired differences are positive where the measure is better, whichever way the test runs."""
    for test in (name for name, criterion in saliency.TESTS.items() if not criterion.evidence):
        part, values = rows_of(cell, test), saliency.scores(cell)[test]
        assert part.loc["good", "to_attention"] > 0 > part.loc["random", "to_attention"]
        assert part.loc["good", "to_random"] > part.loc["attention", "to_random"] > 0
        assert part.loc["good", "to_attention_p_holm"] < 0.01 and np.isnan(part.loc["attention", "to_attention"])
        difference = saliency.TESTS[test].better * (values["good"] - values["attention"])
        assert part.loc["good", "to_attention"] == pytest.approx(np.nanmean(difference))
        assert part.loc["good", "mean"] == pytest.approx(np.nanmean(values["good"]))


def test_differences_are_paired_and_corrected_by_hand():
    """Holm by hand over the p-values of sign flips, which brute force gives: of six texts, 2 / 64 where all lie on one
    side.
    """
    mixed = np.array([0.1, -0.11, 0.12, -0.13, 0.14, -0.05])
    values = {"attention": np.full(6, 0.3), "a": 0.3 + SIX, "b": 0.3 - np.abs(mixed) * [1, 1, 1, 1, 1, -1], "c": 0.3 + mixed}

    def p_by_brute_force(name):
        differences = values[name] - values["attention"]
        sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=6)]
        return np.mean(np.array(sums) >= abs(differences.sum()) - 1e-12)

    raw = {name: p_by_brute_force(name) for name in "abc"}
    assert raw["a"] == 2 / 64 < raw["b"] < raw["c"]
    results = saliency.differences(values, 1, "attention")
    assert results["to_attention"][1:] == pytest.approx([SIX.mean(), np.mean(values["b"] - 0.3), mixed.mean()])
    assert results["to_attention_p_holm"][1:] == pytest.approx([3 * raw["a"], max(3 * raw["a"], 2 * raw["b"]), raw["c"]])
    assert np.isnan([numbers[0] for numbers in results.values()]).all()
    assert saliency.differences(values, -1, "attention")["to_attention"][1] == pytest.approx(-SIX.mean())
    assert np.isnan(list(saliency.differences(values, 1, "random").values())).all()


def test_the_rival_is_named_beforehand():
    """Not the best measure, but the first of a list, whatever its numbers are."""
    cell = one_cell(drawn(falls={"attention": 0.3, "gradient": 0.6, "leave_one_out": 0.3, "random": 0.1}))
    part = rows_of(cell)
    assert set(part["rival"]) == {"leave_one_out"} and np.isnan(part.loc["leave_one_out", "to_rival"])
    assert part.loc["gradient", "to_rival_p_holm"] < 0.01 < part.loc["attention", "to_rival_p_holm"]
    assert saliency.rival(["absolute_integrated_gradients", *part.index]) == "absolute_integrated_gradients"
    assert saliency.rival(["attention", "random"]) is None


def test_signed_measures_by_their_size():
    """Against marks, "absolute" is the size of the scores; it is no measure of the record's own in the matrix."""
    falls = {"attention": 0.2, "good": 0.6, "absolute_good": 0.4}
    table = drawn(20, falls, rationale=True)
    signed = [row * np.where(np.arange(len(row)) % 2, 1, -1) for row in records.rows(table, "importance_good")]
    cell = one_cell(replaced(table, "importance_good", signed))
    results = saliency.scores(cell)["average_precision"]
    by_size = plausibility_results([np.abs(row) for row in signed], cell.rows("rationale"))["average_precision"]
    np.testing.assert_array_equal(results["absolute_good"], by_size)
    assert not np.array_equal(results["absolute_good"], results["good"], equal_nan=True)
    frames = saliency.SECTION.frames([cell])
    assert set(frames["saliency_tests"]["measure"]) == set(falls)
