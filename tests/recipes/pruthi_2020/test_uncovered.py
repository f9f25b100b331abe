"""Which tests tell deceiving models from honest ones: where it is known who deceives, and where nobody does."""

import numpy as np
import pytest

from attnfaith.stats import holm, over_seeds_and_texts
from recipes.pruthi_2020 import uncovered
from tests.deception import model


SEEDS = (1, 2, 3, 4, 5)


def pair(seeds=SEEDS, **deceiving):
    return [model(seed) for seed in seeds] + [model(seed, 1.0, **deceiving) for seed in seeds]


def test_a_deceiving_model_is_uncovered_by_the_tests_that_see_what_it_hides():
    table = uncovered.uncovered_table(pair(deceit=3.0))
    rows = table.set_index("test")
    seen = rows.loc[["tau_gradient", "first_gradient"]]
    assert (seen[["verdict", "matched_verdict"]] == "uncovers").all(axis=None) and (seen["ci_low"] > 0.5).all()
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
    assert list(uncovered.figures(table)) == ["sst_wiki-uncovered"]


def test_a_test_that_is_led_astray_is_called_misled_and_not_turned_round():
    """Attention of these deceiving models is further from equal weights, where a test expects it to be nearer."""
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


def test_a_text_that_one_model_did_not_read_is_no_undefined_one():
    short = type(model(1))(model(1, 1.0).identity, model(1, 1.0).table.slice(0, 40))
    row = uncovered.uncovered_table([model(1), short]).set_index("test").loc["confidence"]
    assert (row["n_honest"], row["n_deceiving"], row["n_undefined_deceiving"]) == (60, 40, 0)
    assert uncovered.uncovered_table([model(1), model(2)]).empty


def draw(seeds=2, texts=28):
    generator = np.random.default_rng(0)
    shared = generator.normal(size=(1, texts))
    sides = [np.round(shared + generator.normal(size=(seeds, texts)) + gap, 1) for gap in (0.5, 0)]
    sides[0][0, :4] = sides[1][-1, 3:6] = np.nan
    return sides, [generator.integers(0, 3, side.shape) for side in sides]


@pytest.mark.parametrize("stratified", [False, True])
def test_the_area_and_its_interval_by_brute_force(stratified):
    sides, strata = draw()
    strata = strata if stratified else [np.zeros_like(part) for part in strata]

    def area(first, second, kinds, other_kinds):
        wins = [
            (x > y) + (x == y) / 2
            for x, kind in zip(first, kinds, strict=True)
            for y, other in zip(second, other_kinds, strict=True)
            if not np.isnan([x, y]).any() and kind == other
        ]
        return np.mean(wins)

    rows = list(zip(*sides, *strata, strict=True))
    areas = np.array([area(*row) for row in rows])
    without = [np.mean([area(*(np.delete(part, text) for part in row)) for row in rows]) for text in range(28)]
    expected = over_seeds_and_texts(areas, np.array(without), chance=0.5, bounds=(0, 1))
    assert uncovered.separation(sides, strata if stratified else None).estimate == pytest.approx(expected)


def test_closed_forms_of_the_area():
    rising, parts = np.arange(60.0)[None], (np.arange(60) // 30)[None]
    assert uncovered.separation([rising + 100, rising]).estimate[:3] == (1, 1, 1)
    assert uncovered.separation([rising, rising]).estimate.value == 0.5, "a text beside itself is a tie"
    assert uncovered.separation([np.ones((3, 40))] * 2).estimate == (0.5, 0.5, 0.5, 1)
    higher = rising + np.where(parts == 1, 100.0, 0.0)
    assert uncovered.separation([higher, rising], [parts, parts]).estimate.value == pytest.approx((0.5 + 1) / 2)
    alone = uncovered.separation([rising, rising], [parts, parts + 5])
    assert np.isnan(alone.estimate).all() and alone.partnered == 0
    few = np.where(np.arange(60) < uncovered.FEWEST_TEXTS - 1, rising, np.nan)
    assert uncovered.separation([few, rising]).n_seeds == 0


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_two_models_of_one_kind_are_told_apart_no_more_often_than_stated(spread):
    """Every model has a mean of its own by chance, and rows text; honest and deceiving ones are drawn alike."""
    generator, rounds, rejected = np.random.default_rng(int(spread)), 300, 0
    for _ in range(rounds):
        shared = generator.normal(size=(1, 40))
        sides = [shared + spread * generator.normal(size=(3, 1)) + generator.normal(size=(3, 40)) for _ in range(2)]
        rejected += uncovered.separation(sides).estimate.p_value <= 0.05
    assert rejected / rounds <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / rounds)
