"""Adversarial attention in reports: numbers by hand, of the exact way and of the search."""

import numpy as np
import pytest

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.reporting import render
from attnfaith.reporting.cards import card_numbers
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import adversary
from tests.records import build
from tests.sections import NAN, appended, check_section


OWN = [[0.5, 0.3, 0.2], [0.1, 0.9], [1.0]]


def jsd(x, y):
    return float(jensen_shannon_divergence([x], [y])[0])


REACHED = jsd([0, 1, 0], OWN[0])
MOST = {0.05: [jsd([0, 0, 1], OWN[0]), jsd([1, 0], OWN[1])], 0.01: [jsd([0, 0, 1], OWN[0]), jsd([0.2, 0.8], OWN[1])]}
COLUMNS = {
    "adversary_search": {  # the restarts move the predictions by 0.005 and 0.2, by 0.015 and 0.04
        "attention": [[[0, 1, 0], [0, 0, 1]], [[1, 0], [0.5, 0.5]], []],
        "probs": [[[0.205, 0.795], [0.4, 0.6]], [[0.685, 0.315], [0.66, 0.34]], []],
    },
    "adversary_exact": {
        "epsilon": [[0.05, 0.01], [0.05, 0.01], []],
        "attention": [[[0, 0, 1], [0, 0, 1]], [[1, 0], [0.2, 0.8]], []],
        "probs": [[[0.24, 0.76], [0.21, 0.79]], [[0.65, 0.35], [0.69, 0.31]], []],
        "jsd": [*np.transpose(list(MOST.values())).tolist(), []],
        "bound": [[0.69, 0.68], [0.67, 0.66], []],
        "one_token": [[2, 0], [1, 1], []],
        "certainty": ["exact", "exact", "undefined"],
    },
}


def cell_with(*measures):
    """Three texts: an exact maximum, one where the search found nothing within .01, and one of a single token."""
    probs = [[0.2, 0.8], [0.7, 0.3], [0.4, 0.6]]
    table = build([{"attention": a, "probs": p} for a, p in zip(OWN, probs, strict=True)])
    for measure in measures:
        columns = {f"{measure}_{name}": values for name, values in COLUMNS[measure].items()}
        table = appended(table, measure, **columns)
    return one_cell(table)


@pytest.fixture(scope="module")
def cell():
    return cell_with(*COLUMNS)


def test_the_largest_restart_within_epsilon_counts(cell):
    numbers = adversary.per_text(cell)
    np.testing.assert_allclose(numbers["adversary_search_0.01"], [REACHED, 0, NAN])
    np.testing.assert_allclose(numbers["adversary_search_0.05"], [REACHED, MOST[0.05][1], NAN])
    for epsilon, values in MOST.items():
        np.testing.assert_allclose(numbers[f"adversary_exact_{epsilon}"], [*values, NAN])
    check_section(adversary.SECTION, cell)


ROWS = {
    ("search", 0.01, "overall"): {
        **{"n": 2, "n_undefined": 1, "n_nothing_found": 1, "jsd_mean": REACHED / 2, "jsd_std": REACHED / 2},
        **{"share_feasible": (1 / 2 + 0) / 2, "gap_mean": np.mean(MOST[0.01]) - REACHED / 2},
        **{"share_of_exact": REACHED / MOST[0.01][0] / 2, "bound_mean": NAN, "share_one_token": NAN},
    },
    ("exact", 0.01, "overall"): {
        **{"bound_mean": 0.67, "share_one_token": 0.5, "share_exact": 1, "share_bounded": 0, "share_lower_bound": 0},
        **{"gap_mean": NAN, "share_feasible": NAN},
    },
    ("exact", 0.05, "overall"): {"share_above_0.6": 0},
    ("search", 0.05, "1"): {"n": 1, "n_undefined": 1, "ci_low": NAN},
}


@pytest.mark.parametrize(("method", "epsilon", "label"), ROWS)
def test_the_table_by_hand(cell, method, epsilon, label):
    table = render.frames(adversary.SECTION, [cell])["adversary"]
    assert len(table) == 2 * 2 * 3  # methods, epsilons, "overall" and two predicted classes
    row = table.set_index(["method", "epsilon", "class"]).loc[(method, epsilon, label)]
    expected = ROWS[method, epsilon, label]
    assert row[list(expected)].to_dict() == pytest.approx(expected, nan_ok=True)


def test_a_text_that_nothing_can_move_has_no_share_reached():
    """An exact maximum of 0 is in the mean gap, not in the share of it that the search reaches."""
    nothing = np.full(2, np.nan)
    way = adversary.Way("search", 0.01, np.array([0.0, 0.3]), nothing, nothing, np.ones(2), np.full(2, ""))
    row = adversary.numbers(way, {0.01: np.array([0.0, 0.6])}, np.ones(2, bool))
    assert row["gap_mean"] == pytest.approx(0.15) and row["share_of_exact"] == pytest.approx(0.5)


def test_a_card_has_the_exact_maximum_at_the_smallest_epsilon(cell):
    assert card_numbers(cell)["jsd"]["mean"] == pytest.approx(np.mean(MOST[0.01]))


@pytest.mark.parametrize("measure", COLUMNS)
def test_one_way_alone(measure):
    cell = cell_with(measure)
    table = render.frames(adversary.SECTION, [cell])["adversary"]
    assert set(table["method"]) == {measure.removeprefix("adversary_")} and table["gap_mean"].isna().all()
    assert ("at least" in render.sentences(adversary.SECTION, cell)[0]) == (measure == "adversary_search")
    check_section(adversary.SECTION, cell)
