"""Erased weights in reports, on records whose numbers are worked out by hand."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import changes
from tests.records import build
from tests.sections import NAN, appended, check_section, whole


RANKINGS = ("random", *changes.RANKINGS)
UNSET = {"flip_size": NAN, "flip_mass": NAN, "flip_empty": False}
P, KEPT, TURNED = [0.4, 0.6], [0.45, 0.55], [0.7, 0.3]
# attention ranks 0, 2, 1; gradient 1, 2, 0; attention x gradient 2, 1, 0. Numbers of RANKINGS, in their order
FIRST = {
    "attention": [0.6, 0.1, 0.3],
    "probs": P,
    "gradient": [-1.0, 4.0, 2.0],
    "without": [KEPT, TURNED, P],
    "order": [[0, 2, 1]],
    "flip_size": [3, 2, 1, 1],
    "flip_mass": [1.0, 0.9, 0.1, 0.1],
    "flip_empty": [True, False, False, False],
    "minimal": (1, 0.1, False),
}
SECOND = {
    "attention": [0.2, 0.8],
    "probs": P,
    "gradient": [1.0, 3.0],
    "without": [KEPT, TURNED],
    "order": [[1, 0]],
    "flip_size": [2, 1, 1, 1],
    "flip_mass": [1.0, 0.8, 0.8, 0.8],
    "flip_empty": [True, False, False, False],
    "minimal": (1, 0.8, False),
}
NEVER = {"attention": [0.5, 0.5], "probs": P, "gradient": [1.0, 1.0], "without": [P, KEPT], "order": [[0, 1]]}
ONE = {"attention": [1.0], "probs": P, "gradient": [2.0], "without": [TURNED], "order": [], "certainty": "undefined"}
NONE = {"attention": [], "probs": P, "gradient": [], "without": [], "order": [], "certainty": "undefined"}
TEXTS = [FIRST, SECOND, NEVER, ONE, NONE]


def erased(texts):
    """One cell from dicts with attention, probs, and the results of erasing: without [T][C], gradient [T], order [K][T]; for
    each of RANKINGS flip_size, …; minimal (size, mass, empty).
    """
    columns = {
        "erasure_probs": [text["without"] for text in texts],
        "erasure_gradient": [text["gradient"] for text in texts],
        "erasure_order": [text["order"] for text in texts],
    }
    for part, unset in UNSET.items():
        for place, name in enumerate(RANKINGS):
            values = [text.get(part, [unset] * 4)[place] for text in texts]
            if name == "random":
                values = [[value] * len(text["order"]) for value, text in zip(values, texts, strict=True)]
            columns[f"erasure_{part}_{name}"] = values
    table = appended(build(texts), "erasure", **columns)
    sets = zip(*(text.get("minimal", (NAN, NAN, False)) for text in texts), strict=True)
    columns = {f"minimal_flip_{part}": values for part, values in zip(("size", "mass", "empty"), sets, strict=True)}
    columns["minimal_flip_certainty"] = [text.get("certainty", "exact") for text in texts]
    return one_cell(appended(table, "minimal_flip_set", **columns))


@pytest.fixture(scope="module")
def cell():
    return erased(TEXTS)


def jsd(p, q):
    return jensenshannon(p, q) ** 2


SINGLE = {  # by attention i* is 0, 1 and, on a tie, 0; r the first other one of the random order: 2, 0 and 1
    "attention": {
        "delta_jsd": [jsd(P, KEPT) - 0, jsd(P, TURNED) - jsd(P, KEPT), 0 - jsd(P, KEPT), NAN, NAN],
        "top_flips": [0, 1, 0, NAN, NAN],
        "random_flips": [0, 0, 0, NAN, NAN],
    },
    "gradient": {"top_flips": [1, 1, 0, NAN, NAN]},  # i* 1, 1, 0
    "attention_gradient": {  # i* 2, 1, 0; r 0, 0, 1
        "delta_jsd": [0 - jsd(P, KEPT), jsd(P, TURNED) - jsd(P, KEPT), 0 - jsd(P, KEPT), NAN, NAN],
        "top_flips": [0, 1, 0, NAN, NAN],
    },
}


@pytest.mark.parametrize("ranking", SINGLE)
def test_a_single_weight_by_hand(cell, ranking):
    test = changes.single_weight(cell, ranking)
    for name, expected in SINGLE[ranking].items():
        np.testing.assert_allclose(test[name], expected, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    ("outcome", "without"),
    [("both", (TURNED, TURNED)), ("only_top", (TURNED, KEPT)), ("only_random", (KEPT, TURNED)), ("neither", (KEPT, P))],
)
def test_decision_flips_by_hand(outcome, without):
    """By attention i* is 0, r is 1."""
    text = {"attention": [0.7, 0.3], "probs": P, "gradient": [0, 1], "order": [[0, 1]], "without": list(without)}
    numbers = changes.erasure(erased([text, ONE, NONE]))
    for name in ("only_top", "only_random"):
        np.testing.assert_array_equal(numbers[f"erasure_{name}_attention"], [name == outcome, NAN, NAN])


MEANS = {
    "erasure_flip_fraction_attention": (2 / 3 + 1 / 2) / 2,
    "erasure_flip_never_attention": 1 / 3,
    "erasure_flip_mass_attention": 0.85,
    "erasure_flip_ratio_attention": 1.5,
    "erasure_flip_fraction_random": 1,
    "erasure_flip_ratio_random": 2.5,
    "erasure_flip_empty_random": 2 / 3,
    "minimal_flip_fraction": (1 / 3 + 1 / 2) / 2,
    "minimal_flip_exact": 1,
}


def test_several_weights_by_hand(cell):
    rows = whole(changes.ERASURE, cell)
    assert rows.loc[list(MEANS), "mean"].to_dict() == pytest.approx(MEANS)
    assert rows.loc["erasure_flip_fraction_attention", ["n", "n_undefined"]].tolist() == [2, 3]
    assert rows.loc["erasure_delta_jsd_attention", "share_beyond"] == pytest.approx(1 / 3)
    check_section(changes.ERASURE, cell)


def test_numbers_of_each_text(cell):
    numbers = changes.erasure(cell)
    np.testing.assert_allclose(numbers["erasure_flip_fraction_attention"], [2 / 3, 1 / 2, NAN, NAN, NAN])
    np.testing.assert_allclose(numbers["erasure_flip_ratio_random"], [3, 2, NAN, NAN, NAN])
    np.testing.assert_allclose(numbers["minimal_flip_fraction"], [1 / 3, 1 / 2, NAN, NAN, NAN])
    np.testing.assert_allclose(numbers["erasure_delta_jsd_attention"], SINGLE["attention"]["delta_jsd"], atol=1e-7)
    check_section(changes.ERASURE, cell)


@pytest.mark.parametrize("texts", [[NONE, ONE], [NEVER]])
def test_texts_without_anything_to_erase(texts):
    cell = erased(texts)
    check_section(changes.ERASURE, cell)
    assert np.isnan(changes.erasure(cell)["erasure_flip_fraction_attention"]).all()
