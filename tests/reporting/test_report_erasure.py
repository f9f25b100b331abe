"""Erased weights in reports, on records whose numbers are worked out by hand."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from attnfaith import record as records
from attnfaith.reporting import render, sections
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.sections import erasure
from tests.sections import check_section


def tables(cells):
    return render.frames(erasure.SECTION, cells)


RANKINGS = tuple(erasure.RANKINGS)
DRAWS = ("flip_size", "flip_mass", "flip_empty", "reprojected_flip_size")


def erased(instances, build_record, *, minimum=True, **identity):
    """One cell from dicts with attention, probs, and what erasing gives: without [T][C], gradient [T], order [K][T], sizes,
    masses, empties and again per ranking (random first), least (size, mass, empty).
    """
    table = build_record(instances, **identity)
    extra = {
        "erasure_probs": (records.Column(("T", "C"), distribution=True), [row["without"] for row in instances]),
        "erasure_gradient": (records.Column(("T",), "float64"), [row["gradient"] for row in instances]),
        "erasure_order": (records.Column(("K", "T"), "int32"), [row["order"] for row in instances]),
    }
    defaults = {"flip_size": np.nan, "flip_mass": np.nan, "flip_empty": False, "reprojected_flip_size": np.nan}
    for part, unset in defaults.items():
        dtype = "bool" if part == "flip_empty" else "float32"
        for place, name in enumerate(("random", *RANKINGS)):
            values = [row.get(part, [unset] * 4)[place] for row in instances]
            if name == "random":
                values = [[value] if len(row["order"]) else [] for value, row in zip(values, instances, strict=True)]
            extra[f"erasure_{part}_{name}"] = (records.Column(("K",) if name == "random" else (), dtype), values)
    if minimum:
        for place, (part, dtype) in enumerate({"size": "float32", "mass": "float32", "empty": "bool"}.items()):
            values = [row.get("least", (np.nan, np.nan, False))[place] for row in instances]
            extra[f"minimal_flip_{part}"] = (records.Column((), dtype), values)
        certainty = [row.get("certainty", "exact") for row in instances]
        extra["minimal_flip_certainty"] = (records.Column((), "category"), certainty)
    columns = {name: table.column(name).to_pylist() for name in table.column_names} | {k: v for k, (_, v) in extra.items()}
    (cell,) = split_cells(records.build(columns, {name: column for name, (column, _) in extra.items()}))
    return cell


P, KEPT, TURNED = [0.4, 0.6], [0.45, 0.55], [0.7, 0.3]
# attention ranks 0, 2, 1; gradient 1, 2, 0; attention x gradient 2, 1, 0
FIRST = {
    "attention": [0.6, 0.1, 0.3],
    "probs": P,
    "gradient": [-1.0, 4.0, 2.0],
    "without": [KEPT, TURNED, P],
    "order": [[0, 2, 1]],
    "flip_size": [3, 2, 1, 1],
    "flip_mass": [1.0, 0.9, 0.1, 0.1],
    "flip_empty": [True, False, False, False],
    "reprojected_flip_size": [2, 3, 1, np.nan],
    "least": (1, 0.1, False),
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
    "reprojected_flip_size": [2, 1, 1, 1],
    "least": (1, 0.8, False),
}
NEVER = {"attention": [0.5, 0.5], "probs": P, "gradient": [1.0, 1.0], "without": [P, KEPT], "order": [[0, 1]]}
ONE = {"attention": [1.0], "probs": P, "gradient": [2.0], "without": [TURNED], "order": [], "certainty": "undefined"}
NONE = {"attention": [], "probs": P, "gradient": [], "without": [], "order": [], "certainty": "undefined"}
TEXTS = [FIRST, SECOND, NEVER, ONE, NONE]


def jsd(p, q):
    return jensenshannon(p, q) ** 2


@pytest.fixture
def cell(build_record):
    return erased(TEXTS, build_record)


def test_single_weight_by_hand(cell):
    """i* by attention is 0, 1 and, on a tie, 0; r the first other one of the random order: 2, 0 and 1."""
    test = erasure.single_weight(cell, "attention")
    expected = [jsd(P, KEPT) - 0, jsd(P, TURNED) - jsd(P, KEPT), 0 - jsd(P, KEPT), np.nan, np.nan]
    np.testing.assert_allclose(test.delta, expected, atol=1e-7)
    np.testing.assert_allclose(test.difference, [0.3, 0.6, 0.0, np.nan, np.nan], atol=1e-7)
    np.testing.assert_array_equal(test.top_flips, [0, 1, 0, np.nan, np.nan])
    np.testing.assert_array_equal(test.random_flips, [0, 0, 0, np.nan, np.nan])
    test = erasure.single_weight(cell, "gradient")  # i* 1, 1, 0
    np.testing.assert_allclose(test.difference, [-0.5, 0.6, 0.0, np.nan, np.nan], atol=1e-7)
    np.testing.assert_array_equal(test.top_flips, [1, 1, 0, np.nan, np.nan])
    test = erasure.single_weight(cell, "attention_gradient")  # i* 2, 1, 0
    np.testing.assert_allclose(test.difference, [-0.3, 0.6, 0.0, np.nan, np.nan], atol=1e-7)
    np.testing.assert_allclose(test.delta[0], 0 - jsd(P, KEPT), atol=1e-7)


def test_decision_flips_by_hand(build_record):
    """One text of each outcome, by attention; i* is 0, r is 1."""
    pairs = {"both": (TURNED, TURNED), "only_top": (TURNED, KEPT), "only_random": (KEPT, TURNED), "neither": (KEPT, P)}
    base = {"attention": [0.7, 0.3], "probs": P, "gradient": [0, 1], "order": [[0, 1]]}
    for outcome, without in pairs.items():
        cell = erased([base | {"without": list(without)}, ONE, NONE], build_record)
        table = tables([cell])["erasure_decision_flips"]
        own_rows = table[table["ranking"] == "attention"].set_index("outcome")
        assert own_rows["share"].to_dict() == {name: float(name == outcome) for name in pairs}
        assert (own_rows["n"] == 1).all() and (own_rows["n_undefined"] == 2).all() and (own_rows["n_length1"] == 1).all()


def test_single_weight_table(cell):
    table = tables([cell])["erasure_single_weight"]
    own_rows = table[table["ranking"] == "attention"].set_index("weight_difference")
    assert list(own_rows.index) == ["all", *erasure.BINS]
    assert own_rows["n"].to_dict() == dict(zip(own_rows.index, [3, 0, 1, 1, 1, 0], strict=True))
    delta = erasure.single_weight(cell, "attention").delta[:3]
    assert own_rows.loc["all", "delta_jsd_mean"] == pytest.approx(delta.mean())
    assert own_rows.loc["all", "ci_low"] <= delta.mean() <= own_rows.loc["all", "ci_high"]
    assert own_rows.loc["all", "share_negative"] == pytest.approx(1 / 3)
    assert own_rows.loc["[0.5, 0.75)", "delta_jsd_mean"] == pytest.approx(delta[1])
    assert np.isnan(own_rows.loc["below 0", "delta_jsd_mean"])


def rows_of(table, **wanted):
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table


def test_multi_weight_by_hand(cell):
    table = tables([cell])["erasure_multi_weight"]
    assert set(table["removal"]) == {"renormalised"}
    (row,) = rows_of(table, ranking="attention").to_dict("records")
    counts = ("n", "n_length1", "n_undefined", "n_never", "n_averaged", "n_ratio")
    assert [row[name] for name in counts] == [3, 1, 2, 1, 2, 2]
    assert row["fraction_mean"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert row["censored_median"] == pytest.approx(2 / 3)
    assert row["mass_mean"] == pytest.approx(0.85) and row["ratio_mean"] == pytest.approx(1.5)
    (row,) = rows_of(table, ranking="random").to_dict("records")
    assert (row["n_never"], row["fraction_mean"], row["ratio_mean"]) == (1, 1, 2.5)
    assert row["share_empty"] == pytest.approx(2 / 3)
    (row,) = rows_of(table, ranking="minimum").to_dict("records")
    assert row["fraction_mean"] == pytest.approx((1 / 3 + 1 / 2) / 2) and row["share_exact"] == 1
    assert row["n_ratio"] == 0 and np.isnan(row["ratio_mean"])


def test_sparse_attention_is_also_projected_again(build_record):
    cell = erased(TEXTS, build_record, projection="sparsemax")
    table = tables([cell])["erasure_multi_weight"]
    (row,) = rows_of(table, ranking="attention", removal="reprojected").to_dict("records")
    assert row["fraction_mean"] == pytest.approx(0.75) and row["n_never"] == 1
    assert np.isnan(row["mass_mean"]) and np.isnan(row["ratio_mean"])
    assert row["share_empty"] == pytest.approx(1 / 3)  # all tokens are left out: the bias decides
    assert "attention, re-projected" in [line[0] for line in render.grids(erasure.SECTION, tables([cell]), [cell])[2].rows]


@pytest.mark.parametrize(
    ("identity", "again"),
    [
        ({"projection": "softmax"}, False),
        ({"projection": "uniform"}, False),
        ({"projection": "entmax15"}, True),
        ({"projection": "softmax", "alignment": "additive(scale 1)"}, True),  # the scale is that of what is left
        ({"projection": "softmax", "hierarchy": "sentence", "level": "word"}, True),  # a sentence becomes another
        ({"projection": "softmax", "hierarchy": "sentence", "level": "sentence"}, False),
    ],
)
def test_projected_again_wherever_it_is_not_renormalising(identity, again, build_record):
    table = tables([erased(TEXTS, build_record, **identity)])["erasure_multi_weight"]
    assert ("reprojected" in set(table["removal"])) == again


def test_numbers_per_text(cell):
    numbers = erasure.per_text(cell)
    np.testing.assert_allclose(numbers["erasure_flip_fraction_attention"], [2 / 3, 1 / 2, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(numbers["erasure_flip_ratio_random"], [3, 2, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(numbers["minimal_flip_fraction"], [1 / 3, 1 / 2, np.nan, np.nan, np.nan])
    delta = erasure.single_weight(cell, "gradient").delta
    np.testing.assert_allclose(numbers["erasure_delta_jsd_gradient"], delta, equal_nan=True)


def test_a_record_without_smallest_sets(build_record):
    cell = erased(TEXTS, build_record, minimum=False)
    assert not any("minimal" in name or "ratio" in name for name in erasure.per_text(cell))
    table = tables([cell])["erasure_multi_weight"]
    assert "minimum" not in set(table["ranking"]) and table["ratio_mean"].isna().all()


def test_the_figure_and_sentences(cell):
    alt, _ = sections.figure_words(cell, "erasure_multi_weight")
    assert "attention: mean 0.58, n = 2 (3 undefined)" in alt and "smallest set: mean 0.42" in alt
    first, second = render.sentences(erasure.SECTION, cell)
    assert "does not in 33.3% of 3 texts; the reverse holds in 0.0%, and in 66.7% neither" in first
    assert "attention 58% (1 never change)" in second and "smallest set 42%" in second


def test_a_bound_is_not_called_the_smallest(build_record):
    frames = tables([erased([FIRST | {"certainty": "upper bound"}, SECOND], build_record)])
    assert rows_of(frames["erasure_multi_weight"], ranking="minimum")["share_exact"].tolist() == [0.5]


@pytest.mark.parametrize("texts", [[ONE], [NONE, ONE], [NEVER]])
def test_nothing_to_show(texts, build_record):
    cell = erased(texts, build_record)
    frames = tables([cell])
    assert frames["erasure_multi_weight"]["fraction_mean"].isna().all()
    assert erasure.SECTION.figure.draw(cell).axes
    words = [text for grid in render.grids(erasure.SECTION, frames, [cell]) for row in grid.rows for text in row]
    words += render.sentences(erasure.SECTION, cell)
    assert all(isinstance(text, str) and "nan" not in text for text in words)


def test_the_contract_of_sections(cell):
    check_section(erasure.SECTION, cell)
