"""Interventions beside their plain twins: what they change in each test, and at what price."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from attnfaith.reporting.sections.interventions import COLUMNS, intervention_label, interventions_table, plain_twin
from attnfaith.reporting.study import save_png, study_figures, study_tables
from attnfaith.stats import holm
from tests.deception import model, shuffled
from tests.identities import typed


SEEDS = (1, 2, 3)


def cells(**changed):
    return [model(seed) for seed in SEEDS] + [model(seed, **changed) for seed in SEEDS]


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({}, ""),
        ({"projection": "sparsemax"}, "sparsemax"),
        ({"projection": "sparsegen", "projection_parameter": 0.5}, "sparsegen(0.5)"),
        ({"encoder": "orthogonal_lstm"}, "orthogonal_lstm"),
        ({"diversity": 0.5}, "diversity 0.5"),
        ({"impermissible_mass": 0.1, "impermissible_heads": "max"}, "impermissible mass 0.1 max"),
        ({"random_erasure": 0.5}, "tokens erased 0.5"),
        ({"score_scale": 1.0}, "additive(scale 1)"),
        ({"encoder": "orthogonal_lstm", "diversity": 1.0, "projection": "uniform"}, "orthogonal_lstm, diversity 1, uniform"),
    ],
)
def test_an_intervention_is_named_and_its_twin_has_none(fields, label):
    identity = model(1, **fields).identity
    assert intervention_label(identity) == label
    twin = plain_twin(identity)
    assert (twin == identity) == (label == "") and plain_twin(twin) == twin and intervention_label(twin) == ""
    assert twin.encoder == ("lstm" if "encoder" in fields else "bilstm") and twin.seed == 1


def test_models_of_another_task_are_no_intervention():
    identity = typed(objective="adversarial(kl, 0.05)")
    assert plain_twin(identity) == identity and intervention_label(identity) == ""


def test_better_and_worse_are_by_the_direction_of_each_test():
    table = interventions_table(cells(diversity=0.5, deceit=2.0)).set_index("test")
    assert table.loc["tau_gradient", "verdict"] == "worse" and table.loc["tau_gradient", "ci_high"] < 0
    assert table.loc["minimal_flip_set", "verdict"] == "cannot be told"
    table = interventions_table(cells(diversity=0.5, deceit=-2.0)).set_index("test")
    assert table.loc["from_uniform", "verdict"] == "better" and table.loc["from_uniform", "ci_low"] > 0
    assert list(table["intervention"].unique()) == ["diversity 0.5"]
    assert "impermissible" not in table.index and table.index[-1] == "accuracy"


def test_the_price_is_the_difference_in_accuracy():
    pair = cells(projection="sparsemax", accuracy=0.3)
    row = interventions_table(pair).set_index("test").loc["accuracy"]
    right = [np.mean(cell.predicted == cell.labels) for cell in pair]
    assert row["difference"] == pytest.approx(np.mean(right[3:]) - np.mean(right[:3]))
    assert (row["mean_plain"], row["mean_changed"]) == pytest.approx((np.mean(right[:3]), np.mean(right[3:])))
    assert row["kind"] == "price" and row["verdict"] == "worse" and np.isnan(row["p_holm"])


def test_the_tests_of_an_intervention_are_corrected_together_without_the_price():
    table = interventions_table(
        [*cells(projection="sparsemax", deceit=0.5), *(model(seed, diversity=1.0) for seed in SEEDS)]
    )
    for _, rows in table.groupby("intervention"):
        tests = rows[rows["kind"] == "test"]
        assert len(tests) == len(rows) - 1 == 5
        np.testing.assert_allclose(tests["p_holm"], holm(tests["p_value"]))


def test_a_difference_is_paired_over_texts_and_seeds():
    pair = cells(diversity=0.5, deceit=1.0)
    row = interventions_table(pair).set_index("test").loc["tau_gradient"]
    values = [cell.tau("attention", "gradient") for cell in pair]
    differences = np.array([changed - plain for plain, changed in zip(values[:3], values[3:], strict=True)])
    assert np.isnan(differences[:, :2]).all() and row["n_texts"] == 3 * 58 and row["n_left_out"] == 6
    without = np.array([np.nanmean(np.delete(differences, text, axis=1), axis=1).mean() for text in range(60)])
    of_texts = np.sqrt(59 / 60 * np.sum((without - without.mean()) ** 2))
    of_seeds = scipy_stats.sem(np.nanmean(differences, axis=1))
    half = np.hypot(scipy_stats.t.ppf(0.975, 2) * of_seeds, scipy_stats.t.ppf(0.975, 59) * of_texts)
    assert row["difference"] == pytest.approx(np.nanmean(differences))
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((row["difference"] - half, row["difference"] + half), rel=1e-6)


def test_one_seed_has_no_verdict_and_a_model_without_its_twin_no_row():
    table = interventions_table([model(1), model(1, diversity=0.5, deceit=3.0), model(2, diversity=0.5, deceit=3.0)])
    assert set(table["verdict"]) == {"one seed"} and set(table["n_seeds"]) == {1}
    assert list(interventions_table([model(2, diversity=0.5)]).columns) == list(COLUMNS)
    assert len(interventions_table([model(1), model(2)])) == 0


def test_no_order_of_rows_or_cells_matters():
    pair = cells(diversity=0.5, deceit=1.0)
    again = interventions_table([shuffled(cell, number) for number, cell in enumerate(pair)][::-1])
    pd.testing.assert_frame_equal(again, interventions_table(pair))


def test_models_of_one_kind_differ_no_more_often_than_stated():
    p_values, told, studies = [], 0, 10
    for study in range(studies):
        group = [
            model(seed, luck=0.7, name=1000 * study + place, texts=30, diversity=diversity)
            for place, diversity in enumerate((0.0, 0.5))
            for seed in SEEDS
        ]
        table = interventions_table(group).query("kind == 'test'")
        told += table["verdict"].isin(["better", "worse"]).any()
        p_values += table["p_value"].tolist()
    assert told <= 0.05 * studies + 3 * np.sqrt(0.05 * 0.95 * studies)
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(p_values))


def test_a_study_that_names_it_has_its_table_and_a_figure(tmp_path):
    group = [*cells(diversity=0.5, deceit=2.0), *(model(seed, projection="sparsemax") for seed in SEEDS)]
    tables = study_tables(group, ["interventions"])
    assert set(tables) == {"interventions"}
    assert (tables["interventions"]["projection"] == "sparsemax").sum() == 6
    figures = study_figures(group, ["interventions"], tables)
    (panel,) = figures["sst_wiki-interventions"].axes
    assert [label.get_text() for label in panel.get_xticklabels()] == ["diversity 0.5", "sparsemax"]
    assert len(panel.patches) == len(tables["interventions"]) == len(panel.texts)
    assert save_png(figures["sst_wiki-interventions"], tmp_path / "a.png").stat().st_size > 10_000
