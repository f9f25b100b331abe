"""What is said of interventions in cross-attention, from numbers that are given."""

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.render import frame, frames, numbers, sentences
from attnfaith.reporting.sections import cross_attention, figure_words
from tests.sections import check_section
from tests.sequence_records import columns


PAIRS = [(["a", "b"], ["x", "y"]), (["a", "b", "c"], ["z"])]
OWN = [[0.8, 0.6], [0.4]]
COLUMNS = {
    "cross_permuted_probs": (("K", "G"), [np.array([[0.4, 0.2], [0.6, 0.6]]), np.array([[0.3], [0.1]])]),
    "cross_permuted_tvd": (("K", "G"), [np.array([[0.5, 0.5], [0.1, 0.3]]), np.array([[0.2], [0.4]])]),
    "cross_uniform_probs": (("G",), [[0.7, 0.6], [0.11]]),
    "cross_uniform_tvd": (("G",), [[0.1, 0.0], [0.5]]),
    "cross_uniform_layer_probs": (("L", "G"), [np.array([[0.8, 0.6], [0.7, 0.6]]), np.array([[0.4], [0.2]])]),
    "cross_uniform_layer_tvd": (("L", "G"), [np.array([[0.0, 0.0], [0.1, 0.1]]), np.array([[0.0], [0.4]])]),
    "knock_out_probs": (("G",), [[0.3, np.nan], [0.4]]),
    "knock_out_tvd": (("G",), [[0.6, np.nan], [0.0]]),
    "knock_out_other_probs": (("G",), [[0.8, 0.5], [np.nan]]),
    "knock_out_other_tvd": (("G",), [[0.0, 0.2], [np.nan]]),
    "knock_out_removed_probs": (("G",), [[0.2, 0.1], [0.3]]),
    "knock_out_other_removed_probs": (("G",), [[0.9, 0.6], [0.4]]),
}
HEAD = ("L", "A", "R", "G", "T")


def built(given):
    made = columns(PAIRS, measures={name: values for name, (_, values) in given.items()})
    made["target_probs"] = OWN
    extra = {name: records.Column(axes, "float64") for name, (axes, _) in given.items()}
    return split_cells(records.build(made, extra))[0]


@pytest.fixture(scope="module")
def cell():
    return built(COLUMNS)


def test_by_hand(cell):
    df = frame(cross_attention.INTERVENTIONS_TABLE, [cell]).set_index("way")
    # permuted: pair 0 has 0.45 of 0.7, pair 1 0.2 of 0.4; of the words 2 in 4 and 1 in 2 fall by half or more
    row = df.loc["permutation"]
    assert row["probability_mean"] == pytest.approx((0.45 + 0.2) / 2) and row["before_mean"] == pytest.approx(0.55)
    assert row["drop_mean"] == pytest.approx((0.25 + 0.2) / 2) and row["tvd_mean"] == pytest.approx((0.35 + 0.3) / 2)
    assert row["fallen_mean"] == 0.5  # 0.4 of 0.8 and 0.2 of 0.6; 0.1 of 0.4
    # one word of pair 0 cannot be knocked out: neither its own probability nor its fall counts
    row = df.loc["best_weight"]
    assert row["before_mean"] == pytest.approx((0.8 + 0.4) / 2) and row["drop_mean"] == pytest.approx((0.5 + 0.0) / 2)
    assert (row["n"], row["n_undefined"]) == (2, 0)
    row = df.loc["other_weight"]
    assert (row["n"], row["n_undefined"]) == (1, 1) and row["drop_mean"] == pytest.approx(0.05)
    assert np.isnan(df.loc["best_word", "tvd_mean"]) and df.loc["best_word", "drop_mean"] == pytest.approx((0.55 + 0.1) / 2)
    assert df.loc["other_word", "drop_mean"] == pytest.approx(-0.025)  # one target word becomes more probable
    assert list(df.index) == [way.name for way in cross_attention.WAYS]


def test_by_layer(cell):
    df = frame(cross_attention.UNIFORM_BY_LAYER, [cell]).set_index("layer")
    assert df["drop_mean"].tolist() == pytest.approx([0, (0.05 + 0.2) / 2], abs=1e-7)
    assert df.loc["1", "tvd_mean"] == pytest.approx((0.1 + 0.4) / 2)


def test_numbers_of_each_pair(cell):
    check_section(cross_attention.CROSS_INTERVENTIONS, cell)
    values = numbers(cross_attention.CROSS_INTERVENTIONS, cell)
    np.testing.assert_allclose(values["cross_uniform_probability_drop"], [0.05, 0.29], atol=1e-7)
    np.testing.assert_allclose(values["cross_other_weight_tvd"], [0.1, np.nan], atol=1e-7)
    assert "cross_best_word_tvd" not in values


def test_sentences_and_figure(cell):
    said = " ".join(sentences(cross_attention.CROSS_INTERVENTIONS, cell))
    assert "With uniform weights a target word has a probability of 0.38 in place of 0.55." in said
    assert (
        "When the source word of largest weight loses its weight, a target word’s probability falls by 0.25, of another"
        in said
    )
    assert "When the source word of largest weight is removed, a target word’s probability falls by 0.33, of another" in said
    alt, caption = figure_words(cell, "cross_interventions")
    assert "weights permuted: mean 0.225, n = 2" in alt and "A point for each pair" in caption
    assert cross_attention.drops(cell).axes[0].get_xlabel().startswith("fall of the mean probability")


def test_what_was_not_measured_is_not_said():
    cell = built({"cross_uniform_probs": COLUMNS["cross_uniform_probs"], "cross_uniform_tvd": COLUMNS["cross_uniform_tvd"]})
    assert list(frame(cross_attention.INTERVENTIONS_TABLE, [cell])["way"]) == ["uniform"]
    assert set(frames(cross_attention.CROSS_INTERVENTIONS, [cell])) == {"cross_interventions"}
    assert len(sentences(cross_attention.CROSS_INTERVENTIONS, cell)) == 1
    assert not cross_attention.CROSS_INTERVENTIONS.applies(built({})) and not cross_attention.CROSS_IDENTIFIABILITY.applies(
        cell
    )


def test_one_source_word_has_no_draws():
    """K = 0 draws of it: undefined, and no warning."""
    given = {
        "cross_permuted_probs": (("K", "G"), [np.zeros((0, 2)), np.array([[0.3], [0.1]])]),
        "cross_permuted_tvd": (("K", "G"), [np.zeros((0, 2)), np.array([[0.2], [0.4]])]),
    }
    row = frame(cross_attention.INTERVENTIONS_TABLE, [built(given)]).iloc[0]
    assert (row["n"], row["n_undefined"]) == (1, 1) and row["drop_mean"] == pytest.approx(0.2)


def identifiable(tvd, low, high, attention=None):
    """One layer, one head, both rows alike."""
    given = {
        "cross_identifiability_low": (HEAD, [np.array(one, float)[None, None, None].repeat(2, 2) for one in low]),
        "cross_identifiability_high": (HEAD, [np.array(one, float)[None, None, None].repeat(2, 2) for one in high]),
        "cross_identifiability_tvd": (HEAD[:-1], [np.array(one, float)[None, None, None].repeat(2, 2) for one in tvd]),
        "cross_identifiability_change": ((), [1e-7, 3e-7]),
        "cross_identifiability_change_double": ((), [1e-15, np.nan]),
    }
    if attention:
        given["alignment_attention"] = (HEAD, [np.array(one, float)[None, None, None].repeat(2, 2) for one in attention])
    return built(given)


LOW, HIGH = [[[0.0, 0.2], [0.5, 0.1]], [[0.1, 0.0, 0.0]]], [[[0.8, 1.0], [0.9, 0.5]], [[0.9, 0.5, 0.4]]]
ATTENTION = [[[0.6, 0.4], [0.7, 0.3]], [[0.3, 0.5, 0.2]]]


def test_identifiability_by_hand():
    cell = identifiable([[0.4, 0.2], [0.0]], LOW, HIGH, ATTENTION)
    check_section(cross_attention.CROSS_IDENTIFIABILITY, cell)
    row = frame(cross_attention.IDENTIFIABILITY_TABLE, [cell]).set_index(["layer", "row"]).loc[("0", "predicting")]
    assert row["tvd_mean"] == pytest.approx((0.3 + 0.0) / 2) and row["share_determined"] == 0.5
    assert row["weight_mean"] == pytest.approx((0.65 + 0.5) / 2)
    # of the heaviest words: 0..0.8 and 0.5..0.9 of the first pair, 0..0.5 of the second
    assert row["low_mean"] == pytest.approx((0.25 + 0) / 2) and row["high_mean"] == pytest.approx((0.85 + 0.5) / 2)
    assert row["share_low_zero"] == pytest.approx((0.5 + 1) / 2)
    assert row["width_mean"] == pytest.approx((0.6 + (0.8 + 0.5 + 0.4) / 3) / 2)
    change = frame(cross_attention.CHANGE_TABLE, [cell]).iloc[0]
    assert change["change_max"] == 3e-7 and change["change_double_max"] == 1e-15
    np.testing.assert_allclose(numbers(cross_attention.CROSS_IDENTIFIABILITY, cell)["cross_identifiability_tvd"], [0.3, 0.0])
    (said,) = sentences(cross_attention.CROSS_IDENTIFIABILITY, cell)
    assert "distance of 0.150 on average" in said and "0.57 on average, could be anything from 0.12 to 0.68" in said


def test_identifiability_without_attention_and_where_it_is_determined():
    cell = identifiable([[0.0, 0.0], [0.0]], ATTENTION, ATTENTION)
    df = frame(cross_attention.IDENTIFIABILITY_TABLE, [cell])
    assert (df["share_determined"] == 1).all() and df["weight_mean"].isna().all()
    assert sentences(cross_attention.CROSS_IDENTIFIABILITY, cell) == [
        "In every row that predicts a target word attention is the only one."
    ]
