"""Adversarial attention in reports: numbers by hand, of the exact way and of the search."""

import numpy as np
import pytest

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.reporting import sections
from attnfaith.reporting.cards import card_numbers
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import adversary
from tests.records import build, replaced
from tests.sections import NAN, appended, check_section, whole


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


MEANS = {
    "adversary_search_0.01": REACHED / 2,
    "adversary_search_0.01_feasible": (1 / 2 + 0) / 2,
    "adversary_search_0.01_reached": REACHED / MOST[0.01][0] / 2,
    "adversary_exact_0.01_bound": 0.67,
    "adversary_exact_0.01_one_token": 0.5,
    "adversary_exact_0.01_exact": 1,
}


def test_the_summary_by_hand(cell):
    rows = whole(adversary.SECTION, cell)
    assert len(rows) == 2 * 3 + 2 * 4 and (rows["n"] == 2).all() and (rows["n_undefined"] == 1).all()
    assert rows.loc[list(MEANS), "mean"].to_dict() == pytest.approx(MEANS)
    assert rows.loc["adversary_exact_0.05", "share_beyond"] == 0
    compared = [name for name in sections.numbers(cell) if name.startswith("adversary")]
    assert compared == [name for name in rows.index if name[-1].isdigit()]


def test_a_text_that_nothing_can_move_has_no_share_reached():
    table = cell_with(*COLUMNS).table
    still = [[0.0, 0.0], *COLUMNS["adversary_exact"]["jsd"][1:]]
    cell = one_cell(replaced(table, "adversary_exact_jsd", still))
    np.testing.assert_allclose(adversary.per_text(cell)["adversary_search_0.01_reached"], [NAN, 0, NAN])


def test_a_card_has_the_exact_maximum_at_the_smallest_epsilon(cell):
    assert card_numbers(cell)["jsd"]["mean"] == pytest.approx(np.mean(MOST[0.01]))


@pytest.mark.parametrize("measure", COLUMNS)
def test_one_way_alone(measure):
    cell = cell_with(measure)
    way = f"{measure}_0.01"
    assert way in whole(adversary.SECTION, cell).index and "adversary_search_0.01_reached" not in adversary.per_text(cell)
    first, *_ = adversary.SECTION.sentences(cell)
    assert f"{np.nanmean(adversary.per_text(cell)[way]):.3f} (95 %" in first
    check_section(adversary.SECTION, cell)
