"""Models that were trained to deceive: published numbers beside measured ones, and the tests that uncover them."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import split_cells
from attnfaith.stats import holm, over_seeds_and_texts
from recipes.pruthi_2020 import analysis, sequences_analysis, uncovered
from tests.deception import model
from tests.identities import typed
from tests.recipes.cells import cell_of


SETTINGS = Settings(published=Path(analysis.__file__).with_name("published.csv"))
SEEDS = (1, 2, 3, 4, 5)


def cell(masses, right, penalty=0.0, **identity):
    """A cell of texts of four tokens, one of them impermissible, with these masses; the first `right` texts are correct."""
    rows = []
    for number, mass in enumerate(masses):
        row = {"impermissible": [True, False, False, False], "attention": [mass, *[(1 - mass) / 3] * 3]}
        row["probs"] = [0.1, 0.9] if number < right else [0.9, 0.1]
        if "_permissible" not in identity["dataset"]:
            row |= {"group_mass_names": ["impermissible"], "group_mass": [mass], "group_mass_tokens": [1.0]}
            row |= {"group_mass_head_max": [min(1, 2 * mass)]} if "reduction" in identity else {}
        rows.append(row)
    groups = [name for name in rows[0] if "group" in name]
    kinds = {name: records.Column(("G",), "string" if "names" in name else "float64") for name in groups}
    kinds["impermissible"] = records.OPTIONAL_COLUMNS["impermissible"]
    return cell_of(replace(typed(**identity), impermissible_mass=penalty), rows, kinds)


def test_seeds_are_averaged_and_stand_beside_the_number_of_their_task_encoder_and_penalty():
    how = {"dataset": "pronoun", "encoder": "bilstm"}
    cells = [cell([0.2, 0.4], 2, 0.1, **how, seed=1), cell([0.4, 0.6], 1, 0.1, **how, seed=2)]
    cells += [
        cell([0.9, 0.7], 2, **how, seed=1),
        cell([0.0, 0.0], 1, dataset="pronoun_permissible", encoder="bilstm", seed=1),
    ]
    results = analysis.tables(cells, SETTINGS).tables
    models = results["accuracy_and_mass"].set_index(["penalty", "impermissible_removed"])
    row = models.loc[(0.1, False)]
    assert (row["accuracy"], row["n_seeds"], row["impermissible_mass_bound"]) == (0.75, 2, "below")
    assert (row["impermissible_mass"], row["impermissible_mass_published"]) == pytest.approx((0.4, 1e-8))
    honest, without = models.loc[(0.0, False)], models.loc[(0.0, True)]
    assert honest["accuracy"] == 1 and np.isnan(honest["accuracy_published"]) and honest["impermissible_mass"] == 0.8
    assert (without["accuracy"], without["accuracy_published"]) == (0.5, 0.633) and np.isnan(without["impermissible_mass"])
    assert len(results["uncovered_models"]) == 1 and results["uncovered"]["test"].is_unique


@pytest.mark.parametrize(("heads", "mass"), [("mean", 0.3), ("max", 0.6)])
def test_a_pretrained_encoder_stands_beside_bert_by_the_mean_and_by_the_head_with_most(heads, mass):
    how = {"dataset": "sst_wiki", "encoder": "bert", "reduction": "mean", "reduction_layers": "last"}
    table = analysis.tables([cell([0.2, 0.4], 2, **how)], SETTINGS).tables["accuracy_and_mass"]
    (row,) = table[table["impermissible_heads"] == heads].to_dict("records")
    assert row["model"] == "bert" and row["impermissible_mass"] == pytest.approx(mass)


def translator(dataset="copy", seed=1, penalty=0.0, projection="softmax", weight=0.5, accuracy=0.9, bleu=None):
    """A cell of one pair of two words each, whose linked words get `weight` in the row that predicts."""
    how = {"projection": projection, "impermissible_mass": penalty, "objective": "translation"}
    identity = records.Identity(dataset, "0" * 12, "test", seed, **how)
    weights = np.full((1, 2, 2, 2), 0.25, np.float32)
    weights[0, 0] = [[weight, 0.1], [0.1, weight]]
    columns = {"instance_id": ["a"], **records.as_columns(identity, 1), "tokens": [["x", "y"]], "truncated": [False]}
    columns |= {"target_tokens": [["X", "Y"]], "target_probs": [np.array([0.5, 0.5], np.float32)]}
    kinds = {}
    if projection != "none":
        columns |= {"alignment_attention_mean": [weights], "gold_links": [np.array([[2, 0], [0, 1]])]}
        kinds = {"alignment_attention_mean": records.Column(("L", "R", "G", "T"))}
        kinds["gold_links"] = records.OPTIONAL_COLUMNS["gold_links"]
    settings = {"identity": asdict(identity), "run": {"translation": {"word_accuracy": accuracy, "bleu": bleu}}}
    return split_cells(records.with_settings(records.build(columns, kinds), [settings]))[0]


def test_sequence_tasks_by_hand_and_beside_published_numbers():
    cells = [translator(), translator(seed=2, weight=0.7, accuracy=0.7), translator(projection="none")]
    cells += [translator(penalty=1.0, weight=0.0), translator("multi30k_links", bleu=20.0, weight=0.2)]
    results = sequences_analysis.tables(cells, SETTINGS).tables
    dot, hidden, none = (f"gru sequence to sequence, {kind} attention" for kind in ("dot", "manipulated", "none"))
    measured = results["sequences"].set_index(["dataset", "encoder", "penalty", "statistic"])["measured"]
    assert measured["sequence_copy", dot, 0.0, "accuracy"] == pytest.approx(0.8)
    mass = measured["sequence_copy", dot, 0.0, "impermissible_mass"]
    assert mass == pytest.approx((1.0 + 1.4) / 2 / 3), "the end of the sentence counts"
    assert measured["sequence_copy", hidden, 1.0, "impermissible_mass"] == 0
    assert ("sequence_copy", none, 0.0, "impermissible_mass") not in measured
    rows = results["sequences_beside_published"].set_index(["dataset", "encoder", "penalty", "statistic"])
    row = rows.loc[("sequence_copy", dot, "0.0", "accuracy")]
    assert (row["published"], row["n_seeds"]) == (0.999, 2) and row["difference"] == pytest.approx(0.8 - 0.999)
    assert rows.loc[("multi30k_en_de", dot, "0.0", "bleu"), "measured"] == 20


# ------------------------------------------------------------------------------------------------ uncovered


def pair(seeds=SEEDS, **deceiving):
    return [model(seed) for seed in seeds] + [model(seed, 1.0, **deceiving) for seed in seeds]


def test_a_deceiving_model_is_uncovered_by_the_tests_that_see_what_it_hides():
    table = uncovered.uncovered_table(pair(deceit=3.0))
    rows = table.set_index("test")
    shifted = rows.loc[["tau_gradient", "first_gradient"]]
    assert (shifted[["verdict", "matched_verdict"]] == "uncovers").all(axis=None) and (shifted["ci_low"] > 0.5).all()
    assert rows.loc["minimal_flip_set", "verdict"] == "cannot be told", "it is drawn alike in both"
    assert rows.loc["impermissible", "auc"] > 0.9 and rows.loc["impermissible", "verdict"] == "", "a control is no test"
    tests = rows[rows["kind"] == "test"]
    for start in ("", "matched_"):
        np.testing.assert_allclose(tests[f"{start}p_holm"], holm(tests[f"{start}p_value"]))
    assert rows.loc["tau_gradient", ["n_honest", "n_undefined_honest"]].tolist() == [5 * 58, 5 * 2]
    counts = uncovered.by_test(table).set_index("test")
    assert counts.loc["tau_gradient", ["n_pairs", "uncovers", "misled", "matched_uncovers"]].tolist() == [1, 1, 0, 1]
    alone = uncovered.uncovered_table(pair([2], deceit=3.0)).set_index("test")
    assert set(alone.loc[alone["kind"] == "test", "verdict"]) == {"cannot be told"}
    assert list(uncovered.figures(table)) == ["sst_wiki-uncovered"] and uncovered.uncovered_table(pair()[:2]).empty
    # attention further from equal weights, where a test expects it to be nearer
    row = uncovered.uncovered_table(pair(deceit=-2.0)).set_index("test").loc["from_uniform"]
    assert row["verdict"] == "misled" and row["ci_high"] < 0.5 and row["mean_deceiving"] > row["mean_honest"]


def test_what_only_confidence_makes_is_gone_where_texts_are_matched():
    cells = [model(seed, weight, doubt=1.5 * weight, texts=120) for weight in (0.0, 1.0) for seed in SEEDS]
    rows = uncovered.uncovered_table(cells).set_index("test")
    assert rows.loc["permutation", ["verdict", "matched_verdict"]].tolist() == ["uncovers", "cannot be told"]
    assert abs(rows.loc["confidence", "matched_auc"] - 0.5) < 0.05 and rows.loc["confidence", "auc"] > 0.8
    (row,) = uncovered.models_table(cells).to_dict("records")
    assert row["imbalance"] < -1 and abs(row["imbalance_matched"]) < 0.05 and 0 < row["share_matched"] < 1
    assert row["accuracy_honest"] == pytest.approx(0.8, abs=0.1) and row["n_texts"] == 120


@pytest.mark.parametrize("stratified", [False, True])
def test_the_area_and_its_interval_by_brute_force(stratified):
    generator = np.random.default_rng(0)
    shared = generator.normal(size=(1, 28))
    sides = [np.round(shared + generator.normal(size=(2, 28)) + gap, 1) for gap in (0.5, 0)]
    sides[0][0, :4] = sides[1][-1, 3:6] = np.nan
    strata = [generator.integers(0, 3, side.shape) if stratified else np.zeros_like(side) for side in sides]

    def area(first, second, kinds, other_kinds):
        pairs = ~np.isnan(first[:, None] + second) & (kinds[:, None] == other_kinds)
        return ((first[:, None] > second) + (first[:, None] == second) / 2)[pairs].mean()

    rows = list(zip(*sides, *strata, strict=True))
    areas = np.array([area(*row) for row in rows])
    without = [np.mean([area(*(np.delete(part, text) for part in row)) for row in rows]) for text in range(28)]
    expected = over_seeds_and_texts(areas, np.array(without), chance=0.5, bounds=(0, 1))
    assert uncovered.separation(sides, strata if stratified else None).estimate == pytest.approx(expected)


def test_closed_forms_of_the_area():
    rising, parts = np.arange(60.0)[None], (np.arange(60) // 30)[None]
    assert uncovered.separation([rising + 100, rising]).estimate[:3] == (1, 1, 1)
    assert uncovered.separation([rising, rising]).estimate.value == 0.5, "a text beside itself is a tie"
    higher = rising + np.where(parts == 1, 100.0, 0.0)
    assert uncovered.separation([higher, rising], [parts, parts]).estimate.value == pytest.approx((0.5 + 1) / 2)
    alone = uncovered.separation([rising, rising], [parts, parts + 5])
    assert np.isnan(alone.estimate).all() and alone.partnered == 0
    few = np.where(np.arange(60) < uncovered.FEWEST_TEXTS - 1, rising, np.nan)
    assert uncovered.separation([few, rising]).n_seeds == 0


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_two_models_of_one_kind_are_told_apart_no_more_often_than_stated(spread):
    generator, rounds, rejected = np.random.default_rng(int(spread)), 300, 0
    for _ in range(rounds):
        shared = generator.normal(size=(1, 40))
        sides = [shared + spread * generator.normal(size=(3, 1)) + generator.normal(size=(3, 40)) for _ in range(2)]
        rejected += uncovered.separation(sides).estimate.p_value <= 0.05
    assert rejected / rounds <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / rounds)
