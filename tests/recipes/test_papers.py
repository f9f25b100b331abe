"""The analyses of papers: each makes what its page includes; their own statistics by hand or by brute force."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon
from sklearn.metrics import roc_auc_score

from attnfaith import record as records
from attnfaith.recipes import folder as shipped
from attnfaith.reporting.cells import Cell, split_cells
from attnfaith.reporting.sections import selection
from attnfaith.stats import holm, over_seeds_and_texts
from attnfaith.verdict import DO_NOT_SHOW, MAY_SHOW, OUTCOMES, Losses
from recipes.any_classifier import analysis as any_classifier
from recipes.bastings_filippova_2020 import analysis as bastings
from recipes.interventions import analysis as interventions
from recipes.interventions import attention_tests
from recipes.meister_2021 import numbers
from recipes.mohankumar_2020 import analysis as mohankumar
from recipes.planted_evidence import analysis as planted
from recipes.pruthi_2020 import uncovered
from recipes.rationales import analysis as rationales
from recipes.verdict.analysis import SAMPLES, SIZES, calibration, samples
from recipes.wiegreffe_pinter_2019 import analysis as wiegreffe
from tests.deception import model, shuffled
from tests.identities import typed
from tests.recipes.cells import (
    BARE,
    NAN,
    NEAR,
    SEEDS,
    SIGNED,
    STUDIES,
    WHOLE,
    analysed,
    analysis_of,
    hits,
    parts_cell,
    planted_cell,
    texts_cell,
    tuned_cell,
    twins,
)
from tests.records import build, draw_sparse, with_columns


@pytest.mark.parametrize("study", STUDIES)
def test_an_analysis_makes_what_its_page_includes(study):
    module, settings = analysis_of(study)
    assert not any(map(len, module.tables([], settings).tables.values()))
    _, results = analysed(study)
    shown = {*results.grids} & {*results.tables}
    assert shown and all(len(results.tables[name]) and results.grids[name].rows for name in shown)
    results_of = "results_sequences" if study.endswith("sequences_analysis") else "results"
    folder = shipped() / study.partition(":")[0] / results_of
    if (folder / "made.json").is_file():  # written by the study itself, other tables of it beside those of the page
        stored = [path for path in folder.glob("*.csv") if path.stem in results.tables]
        assert {*shown} & {path.stem for path in stored}
        for path in stored:
            assert {*pd.read_csv(path, nrows=1).columns} == {*results.tables[path.stem].columns}, path.name


# ------------------------------------------------------------------------------------------------ measures against a rival


def test_measures_are_held_against_a_rival_and_beside_their_size(monkeypatch):
    monkeypatch.setattr(any_classifier.saliency, "RIVALS", ("absolute_signed",))
    groups = [{cell.identity.seed: cell for cell in (tuned_cell(seed) for seed in SEEDS)}]
    ranked = any_classifier.ranking(groups, any_classifier.per_text).set_index(["test", "measure"])
    verdicts = {"attention": "cannot be told", "absolute_signed": "undefined", "signed": "better", "random": "worse"}
    assert ranked.loc["aopc_removed"]["verdict"].to_dict() == verdicts
    row = ranked.loc[("aopc_removed", "signed")]
    assert row[["n_seeds", "n_texts", "n_undefined"]].tolist() == [5, 150, 0] and row["to_rival_ci_low"] > 0
    assert (row["mean"], row["to_rival"]) == pytest.approx((0.6, 0.3), abs=0.02)
    assert ranked.loc["aopc_kept"].loc[["signed", "random"], "verdict"].tolist() == ["better", "worse"]
    assert any_classifier.signs(groups).set_index("test").loc["aopc_removed", "mean"] == pytest.approx(0.3, abs=0.02)


def test_accuracy_of_parts():
    # .65, .7, .35 and .85 of class 1 without the first tokens; .55, .5, .85 and .35 by them
    falls = dict(zip(SIGNED, (0.3, 0.25, 0.6, 0.1), strict=True))
    results = any_classifier.per_text(tuned_cell(falls=falls, noise=0, texts=2))
    removed, left = ({name: list(row) for name, row in results[f"accuracy_{end}"].items()} for end in ("removed", "kept"))
    assert removed == {"attention": [1, 1], "absolute_signed": [1, 1], "signed": [0, 0], "random": [1, 1]}
    assert left == {"attention": [1, 1], "absolute_signed": [0, 0], "signed": [1, 1], "random": [0, 0]}


def test_parts_that_do_not_add_up():
    rows = bastings.completeness([parts_cell()]).set_index("measure")
    names = ["n", "n_undefined", "left_median", "left_max", "share_incomplete", "steps_median", "steps_max"]
    gradients, relevance = (rows.loc[name, names].astype(float) for name in ("integrated_gradients", "lrp"))
    np.testing.assert_allclose(gradients, [3, 1, 0.01 / 4.01, 0.2 / 2.2, 1 / 3, 40, 540], rtol=1e-6)
    np.testing.assert_allclose(relevance, [3, 1, 0, 0.1, 1 / 3, NAN, NAN], rtol=1e-6)


def test_tests_of_attention_by_hand():
    texts = [
        {"attention": [0.7, 0.2, 0.1], "gradient": [1, 3, 3], "probs": [0.2, 0.8]},
        {"attention": [0.5, 0.5], "gradient": [2, 2], "probs": [0.5, 0.5]},
        {"attention": [1.0], "gradient": [2], "probs": [0.0, 1.0]},
        {"attention": [], "gradient": [], "probs": [0.9, 0.1]},
        {"attention": [0.25, 0.75], "gradient": [NAN, 1], "probs": [0.3, 0.7]},
    ]
    columns = {
        "impermissible": [[1, 0, 0], [0, 0], [1], [], [1, 0]],
        "minimal_flip_size": [1, NAN, NAN, NAN, 2],
        "permissible_only_probs": [[0.7, 0.3], [NAN] * 2, [NAN] * 2, [NAN] * 2, [0.3, 0.7]],
        "conicity_absolute": [0.9, 0.1, NAN, NAN, 0.5],
        "group_mass_names": [["punctuation", "NOUN"]] * 5,
        "group_mass": [[0.3, 0.7], *[[NAN] * 2] * 4],
        "group_mass_tokens": [[1, 1], *[[0, 2]] * 4],
    }
    axes = dict.fromkeys(columns, ()) | {"impermissible": ("T",), "permissible_only_probs": ("C",)}
    axes |= {name: ("G",) for name in columns if "group" in name}
    expected = {
        "first_gradient": [0.2, NAN, NAN, NAN, NAN],
        "from_uniform": [0.7 - 1 / 3, 0, NAN, NAN, 0.25],
        "minimal_flip_set": [1 / 3, 1, NAN, NAN, 1],
        "impermissible": [0.7, NAN, NAN, NAN, 0.25],
        "hidden_influence": [0.5 - 0.7, NAN, NAN, NAN, 0 - 0.25],
        "conicity": [0.9, 0.1, NAN, NAN, 0.5],
        "punctuation": [0.3, NAN, NAN, NAN, NAN],
        "confidence": [np.log(4), 0, attention_tests.LARGEST_ODDS, np.log(9), np.log(7 / 3)],
    }
    results = attention_tests.numbers(split_cells(with_columns(build(texts, measures=("gradient",)), columns, axes))[0])
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], values, atol=1e-6, err_msg=name)
    assert set(results) == {*expected, "tau_gradient"}


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({}, ""),
        ({"projection": "sparsegen", "projection_parameter": 0.5}, "sparsegen(0.5)"),
        ({"encoder": "orthogonal_lstm", "diversity": 1.0, "projection": "uniform"}, "orthogonal_lstm, diversity 1, uniform"),
    ],
)
def test_an_intervention_is_named_and_its_twin_has_none(fields, label):
    identity = model(1, **fields).identity
    twin = interventions.plain_twin(identity)
    assert interventions.intervention_label(identity) == label and (twin == identity) == (label == "")
    assert interventions.intervention_label(twin) == "" and twin.encoder == ("lstm" if "encoder" in fields else "bilstm")
    other = typed(objective="adversarial(kl, 0.05)")
    assert interventions.plain_twin(other) == other, "a model of another task"


def test_an_intervention_is_better_or_worse_by_the_direction_of_each_test_and_accuracy_is_its_price():
    table = analysed("interventions")[1].tables["interventions"].set_index("test")
    assert table.loc["tau_gradient", "verdict"] == "worse" and table.loc["minimal_flip_set", "verdict"] == "cannot be told"
    cells = twins(projection="sparsemax", deceit=-2.0, accuracy=0.3)
    table = interventions.interventions_table(cells)
    row, tau = (table.set_index("test").loc[name] for name in ("from_uniform", "tau_gradient"))
    assert row["verdict"] == "better" and row["ci_low"] > 0
    taus = [cell.tau("attention", "gradient") for cell in cells]
    differences = [np.nanmean(changed - plain) for plain, changed in zip(taus[:5], taus[5:], strict=True)]
    assert tau["difference"] == pytest.approx(np.mean(differences)) and (tau["n_texts"], tau["n_left_out"]) == (290, 10)
    price, right = table.iloc[-1], [np.mean(cell.predicted == cell.labels) for cell in cells]
    assert (price["mean_plain"], price["mean_changed"]) == pytest.approx((np.mean(right[:5]), np.mean(right[5:])))
    assert price["kind"] == "price" and price["verdict"] == "worse" and price["p_holm"] == price["p_value"]
    np.testing.assert_allclose(table["p_holm"][:-1], holm(table["p_value"][:-1]))
    again = interventions.interventions_table([shuffled(cell, number) for number, cell in enumerate(cells)][::-1])
    pd.testing.assert_frame_equal(again, table)


# ------------------------------------------------------------------------------------------------ one paper each


def test_meister_numbers_of_a_text_by_hand():
    text = {"attention": [0.5, 0.3, 0.2, 0, 0], "gradient_norm": [5.0, 4, 3, 2, 1]}
    results = numbers.of_cell(split_cells(build([text], measures=["gradient_norm"]))[0])
    assert results["tau_gradient_norm"] == pytest.approx(9 / np.sqrt(9 * 10)), "one pair of ten is tied"
    assert results["entropy_gradient_norm"] == pytest.approx(stats.entropy([5, 4, 3, 2, 1]) / np.log(5))


def test_meister_ties_alone_cut_the_dense_attention_to_the_support():
    dense, sparse = draw_sparse("softmax"), draw_sparse("sparsegen(-1)", scale=0.5)
    sparse = Cell(sparse.identity, sparse.table.slice(0, 20))
    taus = numbers.cut_tau(sparse, dense, "leave_one_out")
    assert len(taus) == 20 and np.isnan(taus[:2]).all()
    for text in range(2, 20):
        size, weights = np.count_nonzero(sparse.attention[text]), dense.attention[text]
        cut = np.where(weights >= np.sort(weights)[-size], weights, 0)
        assert taus[text] == pytest.approx(stats.kendalltau(cut, dense.scores("leave_one_out")[text]).statistic)


@pytest.mark.parametrize("name", numbers.MEASURES)
def test_meister_random_places_are_averaged_over_draws(name):
    cell = draw_sparse("sparsemax")
    draws, importance = (records.rows(cell.table, column) for column in ("random_support_attention", numbers.null_of(name)))
    for text in range(2, len(cell)):
        rows = importance[text] if name in numbers.STATES else [importance[text]] * 2
        taus = [stats.kendalltau(places, row).statistic for places, row in zip(draws[text], rows, strict=True)]
        assert numbers.of_cell(cell)[f"random_tau_{name}"][text] == pytest.approx(np.mean(taus))


def claimed(test, **values):
    named = {"dataset": "sst", "encoder": "lstm", "objective": "diversity", "intervention": "diversity", "test": test}
    kind = "price" if test == "accuracy" else "test"
    return {**dict.fromkeys(mohankumar.COLUMNS, 0.0), **named, "kind": kind, "n_seeds": 5, "verdict": "", **values}


@pytest.mark.parametrize(
    ("test", "values", "expected"),
    [
        ("conicity", (-0.5, 0.01), "holds"),
        ("conicity", (0.5, 0.01), "goes against it"),
        ("conicity", (-0.5, 0.06), "cannot be told"),
        ("punctuation", (NAN, NAN), "undefined"),
        ("accuracy", (-0.029, -0.001), "holds"),
        ("accuracy", (-0.2, -0.031), "goes against it"),
        ("accuracy", (-0.2, -0.01), "cannot be told"),
    ],
)
def test_mohankumar_a_claim_holds_by_its_direction_and_accuracy_by_its_margin(test, values, expected):
    row = claimed(test, difference=values[0], p_value=values[1])
    if test == "accuracy":
        row = claimed(test, difference=np.mean(values), ci_low=values[0], ci_high=values[1], p_value=0.001)
        assert mohankumar.claims(pd.DataFrame([{**row, "n_seeds": 1}]))["verdict"].tolist() == ["cannot be told"]
    table = mohankumar.claims(pd.DataFrame([row, claimed("first_gradient")]))
    assert table[["verdict", "claim"]].to_numpy().tolist() == [[expected, mohankumar.CLAIMS[test]]]


def test_planted_evidence_tells_the_models_apart_that_differ_in_it_alone():
    cells, results = analysed("planted_evidence")
    assert planted.pairs([*cells[:5], planted_cell(BARE, 1, encoder="average")]) == [], "another encoder is no pair"
    assert planted.pairs([*cells[:5], planted_cell(BARE | {"distractors": 3}, 1)]) == [], "nor are other texts"
    assert len(planted.pairs([*cells, planted_cell(WHOLE, 9)])) == 1
    mass = results.tables["planted_tests"].set_index("statistic").loc["attention on the evidence"]
    assert mass["tells_apart"] == "yes" and mass["ci_low"] > 0 and mass["n_seeds"] == 5
    sides = [[planted.statistics(cell)["attention on the evidence"] for cell in part] for part in (cells[:5], cells[5:])]
    assert (mass["uses"], mass["cannot"]) == pytest.approx([np.nanmean(side) for side in sides])
    sides = [[values[~np.isnan(values)] for values in side] for side in sides]
    areas = [roc_auc_score(np.repeat([1, 0], [len(uses), len(cannot)]), [*uses, *cannot]) for uses, cannot in zip(*sides)]  # noqa: B905
    assert mass["auc"] == pytest.approx(np.mean(areas))
    same = results.tables["planted_tests"].set_index("statistic").loc["average precision of gradient"]
    assert (same["auc"], same["mean"], same["tells_apart"]) == (0.5, 0, "cannot be told"), "both hold the same gradient"


def test_pruthi_sequence_tasks():
    results = analysed("pruthi_2020:pruthi_2020.sequences_analysis")[1].tables
    dot, hidden, none = (f"gru sequence to sequence, {kind} attention" for kind in ("dot", "manipulated", "none"))
    measured = results["sequences"].set_index(["dataset", "encoder", "penalty", "statistic"])["measured"]
    assert measured["sequence_copy", dot, 0.0, "accuracy"] == pytest.approx(0.8)
    mass = measured["sequence_copy", dot, 0.0, "impermissible_mass"]
    assert mass == pytest.approx((1.0 + 1.4) / 2 / 3), "the end of the sentence counts"
    assert measured["sequence_copy", hidden, 1.0, "impermissible_mass"] == 0
    assert ("sequence_copy", none, 0.0, "impermissible_mass") not in measured
    rows = results["sequences_beside_published"].set_index(["dataset", "encoder", "penalty", "statistic"])
    assert rows.loc[("sequence_copy", dot, "0.0", "accuracy"), ["published", "n_seeds"]].tolist() == [0.999, 2]
    assert rows.loc[("multi30k_en_de", dot, "0.0", "bleu"), "measured"] == 20


def test_pruthi_a_deceiving_model_is_uncovered_by_the_tests_that_see_what_it_hides():
    table = uncovered.uncovered_table(twins(weight=1.0, deceit=3.0))
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
    # attention further from equal weights, where a test expects it to be nearer
    row = uncovered.uncovered_table(twins(weight=1.0, deceit=-2.0)).set_index("test").loc["from_uniform"]
    assert row["verdict"] == "misled" and row["ci_high"] < 0.5 and row["mean_deceiving"] > row["mean_honest"]


def test_pruthi_what_only_confidence_makes_is_gone_where_texts_are_matched():
    cells = [model(seed, weight, doubt=1.5 * weight, texts=120) for weight in (0.0, 1.0) for seed in SEEDS]
    rows = uncovered.uncovered_table(cells).set_index("test")
    assert rows.loc["permutation", ["verdict", "matched_verdict"]].tolist() == ["uncovers", "cannot be told"]
    assert abs(rows.loc["confidence", "matched_auc"] - 0.5) < 0.05 and rows.loc["confidence", "auc"] > 0.8
    (row,) = uncovered.models_table(cells).to_dict("records")
    assert row["imbalance"] < -1 and abs(row["imbalance_matched"]) < 0.05 and 0 < row["share_matched"] < 1


@pytest.mark.parametrize("stratified", [False, True])
def test_pruthi_the_area_and_its_interval_by_brute_force(stratified):
    generator = np.random.default_rng(0)
    shared = generator.normal(size=(1, 28))
    sides = [np.round(shared + generator.normal(size=(2, 28)) + gap, 1) for gap in (0.5, 0)]
    sides[0][0, :4] = sides[1][-1, 3:6] = NAN
    strata = [generator.integers(0, 3, side.shape) if stratified else np.zeros_like(side) for side in sides]

    def area(first, second, kinds, other_kinds):
        pairs = ~np.isnan(first[:, None] + second) & (kinds[:, None] == other_kinds)
        return ((first[:, None] > second) + (first[:, None] == second) / 2)[pairs].mean()

    rows = list(zip(*sides, *strata, strict=True))
    areas = np.array([area(*row) for row in rows])
    without = [np.mean([area(*(np.delete(part, text) for part in row)) for row in rows]) for text in range(28)]
    expected = over_seeds_and_texts(areas, np.array(without), chance=0.5, bounds=(0, 1))
    assert uncovered.separation(sides, strata if stratified else None).estimate == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_pruthi_two_models_of_one_kind_are_told_apart_no_more_often_than_stated(spread):
    generator, rounds, rejected = np.random.default_rng(int(spread)), 300, 0
    for _ in range(rounds):
        shared = generator.normal(size=(1, 40))
        sides = [shared + spread * generator.normal(size=(3, 1)) + generator.normal(size=(3, 40)) for _ in range(2)]
        rejected += uncovered.separation(sides).estimate.p_value <= 0.05
    assert rejected / rounds <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / rounds)


def estimated(values):
    """The mean over seeds and texts with its interval and p-value, by leaving out one text after the other."""
    without = [np.delete(values, text, axis=1).mean() for text in range(values.shape[1])]
    return over_seeds_and_texts(values.mean(1), np.array(without))


def test_rationales_a_selector_beside_attention_of_the_share_that_it_aims_at():
    budgets = analysed("rationales")[1].tables["budgets"].set_index(["model", "size", "statistic"])
    drawn = {kind: np.array([hits(kind, seed) for seed in SEEDS], float) for kind in ("attention", "hardkuma")}
    for kind, values in drawn.items():
        row = budgets.loc[(kind, "10%", "token_f1")]
        np.testing.assert_allclose(row[["mean", "ci_low", "ci_high"]].astype(float), estimated(values)[:3])
    gain = budgets.loc[("hardkuma", "10%", "token_f1")]
    columns = ["difference", "diff_low", "diff_high", "p_value"]
    np.testing.assert_allclose(gain[columns].astype(float), estimated(drawn["hardkuma"] - drawn["attention"]))
    equal = budgets.loc[("hardkuma", "10%", "sufficiency")]
    assert gain["verdict"] == "higher" and equal["difference"] == 0 and equal["verdict"] == "cannot be told"


def test_rationales_other_kinds_of_texts_do_not_change_what_stands():
    """With the least p-value of 999 permutations, six models of five seeds can be told; so they can beside other kinds."""
    kinds = [{"dataset": "planted_evidence", "evidence": kind, "of": of} for kind in "ab" for of in ("label", "class")]
    rows = pd.DataFrame([kind for kind in kinds for _ in range(6)] + [{"dataset": "sst", "of": "label"}] * 6)
    p_values = np.where(np.arange(len(rows)) < 6, 1 / (1 + selection.PERMUTATIONS), 0.5)
    tests = pd.DataFrame([(row, p) for row, p in enumerate(p_values) for _ in SEEDS], columns=["row", "p_value"])
    tests.loc[len(tests) - 1, "p_value"] = NAN
    assert rationales.tests_that_stand(rows, tests).tolist() == [5] * 6 + [0] * (len(rows) - 6)


def test_serrano_smith_shares_and_ratios():
    row = analysed("serrano_smith_2019")[1].tables["documents"].iloc[0]
    assert (row["n_seeds"], row["n"], row["items"], row["only_top"]) == (5, 3, 4, 1)
    assert row[["attention", "minimum", "ratio"]].tolist() == pytest.approx([(2 / 4 + 1) / 2, (1 / 4 + 1) / 2, (2 + 1) / 2])
    assert row["never_attention"] == row["all_minimum"] == pytest.approx(1 / 3)


def losses(ratio: float, n: int) -> Losses:
    classes, ones = np.arange(n) % 2, np.ones(n)
    sides = {"attention": ones + ratio, "reference": 2 * ones, "random": ones, "evidence": 2 * ones, "evidence_random": ones}
    names = {"class_names": ("no", "yes"), "reference_name": "integrated gradients"}
    return Losses(predicted=classes, labels=classes.astype(float), precision=np.zeros(n), **sides, **names)


@pytest.mark.slow
def test_calibration_of_the_verdict():
    """Rates are shares of samples without the deciding words: a precision of 0 would forbid showing any attention."""
    table = calibration(["good", "wrong", "wrong"], [losses(1.0, 250), losses(0.1, 250), losses(0.1, 150)])
    rows = table.set_index(["attention_is", "texts"])
    assert list(table["texts"].unique()) == list(SIZES)
    assert rows.loc[("good", 100), MAY_SHOW] == 1 and rows.loc[("wrong", 200), DO_NOT_SHOW] == 1
    assert rows.loc[("wrong", 100), ["models", "samples"]].tolist() == [2, 2 * SAMPLES]
    assert rows.loc[("good", 500), "samples"] == 0 and rows.loc[("good", 500), list(OUTCOMES)].isna().all()
    drawn = losses(1.0, 120)
    drawn.attention[:] = np.arange(120)
    assert all(len(set(sample.attention)) == 100 and np.isnan(sample.precision).all() for sample in samples(drawn, 100)[:3])


def test_wiegreffe_pinter_distances_by_hand():
    """Rows in another order: the JSD is ln 2 and 0, the TVD 0 and .4, and the empty text has no JSD."""
    base = [("a", [1.0, 0.0], [0.9, 0.1], 0), ("b", [0.5, 0.5], [0.2, 0.8], 1), ("c", [], [0.4, 0.6], None)]
    other = [("b", [0.5, 0.5], [0.6, 0.4], 1), ("c", [], [0.4, 0.6], None), ("a", [0.0, 1.0], [0.9, 0.1], 0)]
    other.append(("d", [1.0], [0.4, 0.6], 1))
    first, second = texts_cell(base), texts_cell(other, seed=50)
    np.testing.assert_allclose(wiegreffe.distance(first, second, "jsd"), [0, NAN, np.log(2), NAN], atol=1e-7)
    np.testing.assert_allclose(wiegreffe.distance(first, second, "tvd"), [0.4, 0, 0, NAN], atol=1e-7)


def test_wiegreffe_pinter_every_kind_of_model_beside_its_base():
    cells, results = analysed("wiegreffe_pinter_2019")
    (family,) = wiegreffe.families(cells)
    pairs = [(family["base"][seed], family[NEAR][seed]) for seed in (10, 11)]
    jsd = [[jensenshannon(a.attention[i], b.attention[i]) ** 2 for i in range(40) if i != 3] for a, b in pairs]
    tvd = [np.abs(base.probs - other.probs).sum(axis=1).mean() / 2 for base, other in pairs]
    table = results.tables["models"].set_index("model")
    row = table.loc[NEAR, ["jsd", "tvd", "tvd_std"]].tolist()
    assert row == pytest.approx([np.mean(jsd), np.mean(tvd), np.std(tvd, ddof=1)], abs=1e-6)
    first, second = family["base"].values()
    between = np.abs(first.probs - second.probs).sum(axis=1).mean() / 2
    assert table.loc["other seeds", "tvd"] == pytest.approx(between) and np.isnan(table.loc["MLP", "jsd"])
    claims = results.tables["claims"].set_index(["model", "claim"])["mean"]
    gap = claims[NEAR, "its predictions are nearer to the base's than another seed's"]
    assert gap == pytest.approx(between - np.mean(tvd))
    right = {name: np.nanmean([wiegreffe.correct(cell) for cell in models.values()]) for name, models in family.items()}
    worse = claims[NEAR, "its attention guides an MLP worse than the base's own"]
    assert worse == pytest.approx(right["MLP guided by base"] - right[f"MLP guided by {NEAR}"])
