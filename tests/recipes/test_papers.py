"""The analyses of papers: each makes what its page includes, and its main numbers by a second route."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon
from sklearn.metrics import average_precision_score, roc_auc_score

from attnfaith import record as records
from attnfaith.recipes import folder as shipped
from attnfaith.reporting.cells import Cell, one_cell
from attnfaith.reporting.sections import selection
from attnfaith.stats import holm, over_seeds_and_texts
from attnfaith.verdict import DO_NOT_SHOW, MAY_SHOW, OUTCOMES, Losses
from recipes.interventions import analysis as interventions
from recipes.interventions import attention_tests
from recipes.meister_2021 import numbers
from recipes.mohankumar_2020 import analysis as mohankumar
from recipes.planted_evidence import analysis as planted_evidence
from recipes.pruthi_2020 import uncovered
from recipes.rationales import analysis as rationales
from recipes.verdict.analysis import SAMPLES, SIZES, calibration, samples
from recipes.wiegreffe_pinter_2019 import analysis as wiegreffe
from tests.deception import model, shuffled
from tests.identities import identity
from tests.recipes.cells import BARE, SEEDS, STUDIES, WHOLE, analysed, analysis_of, planted, twins
from tests.records import build, replaced
from tests.sections import appended


NAN = np.nan


@pytest.mark.parametrize("study", STUDIES)
def test_an_analysis_makes_what_its_page_includes(study):
    module, settings = analysis_of(study)
    assert not any(map(len, module.tables([], settings).tables.values()))
    _, results = analysed(study)
    assert results.texts and all(text.endswith("\n") for text in results.texts.values())
    assert all(len(results.tables[name]) == 0 or results.grids[name].rows for name in {*results.grids} & {*results.tables})
    results_of = "results_sequences" if study.endswith("sequences_analysis") else "results"
    stored = sorted((shipped() / study.partition(":")[0] / results_of).glob("*.csv"))
    assert stored or study in ("roar", "interventions"), "written by the study itself"
    for path in stored:
        assert {*pd.read_csv(path, nrows=1).columns} == {*results.tables[path.stem].columns}, path.name


@pytest.mark.parametrize("study", STUDIES)
def test_an_analysis_makes_its_tables_while_one_cell_alone_is_complete(study):
    module, settings = analysis_of(study)
    cells, results = analysed(study)
    for cell in cells[0], cells[-1]:
        alone = module.tables([cell], settings)
        assert alone.tables and {*alone.tables} <= {*results.tables}


def over(cells, number):
    """The mean over seeds of the mean over texts of a number per text."""
    return np.mean([np.nanmean(number(cell)) for cell in cells])


def precision(cell, scores="attention"):
    """The average precision of each text with marked words."""
    pairs = zip(cell.scores(scores), cell.rows("rationale"), strict=True)
    return [average_precision_score(gold, own) if gold.any() else NAN for own, gold in pairs]


def correct(cell):
    return cell.predicted == cell.labels


def marked_mass(cell):
    return [weights @ marks for weights, marks in zip(cell.attention, cell.rows("rationale"), strict=True)]


def kendall(cell, first="attention", second="gradient"):
    pairs = zip(cell.scores(first), cell.scores(second), strict=True)
    return [stats.kendalltau(*pair).statistic if len(pair[0]) > 1 else NAN for pair in pairs]


# ------------------------------------------------------------------------------------------------ measures and tests


def test_any_classifier_measures_by_what_is_lost_without_their_first_words():
    cells, results = analysed("any_classifier")
    means = results.tables["measures_ranking"].set_index(["test", "measure"])
    row = means.loc[("aopc_removed", "gradient")]

    def probs(cell, name="gradient"):
        place = cell.shared("rationale_erasure_measures").index(name)
        return cell.stacked("rationale_erasure_removed_probs")[:, place]

    def right(cell):  # the probability is that of the class predicted from the whole text
        return ((probs(cell) > 0.5) == correct(cell)[:, None]).mean(1)

    assert row["mean"] == pytest.approx(over(cells, lambda cell: cell.probs.max(1) - probs(cell).mean(1)))
    assert row["to_rival"] == pytest.approx(over(cells, lambda cell: (probs(cell, row["rival"]) - probs(cell)).mean(1)))
    assert means.loc[("accuracy_removed", "gradient"), "mean"] == pytest.approx(over(cells, right))
    signed, size = (means["mean"]["aopc_removed", f"{start}integrated_gradients"] for start in ("", "absolute_"))
    signs = results.tables["signs"].set_index(["test", "measure"])["mean"]
    assert signs["aopc_removed", "integrated_gradients"] == pytest.approx(signed - size)


def test_bastings_filippova_and_diffmask_against_marked_words():
    cells, results = analysed("bastings_filippova_2020")
    row = results.tables["saliency_twins"].set_index("test").loc["average_precision"]
    assert row["attention_plain"] == pytest.approx(over(cells[:2], precision))
    ranked = results.tables["saliency_ranking"].query("test == 'average_precision'")
    plain, erased = (part.set_index("measure")["mean"] for _, part in ranked.groupby("objective"))
    assert row["tau"] == pytest.approx(stats.kendalltau(plain, erased[plain.index]).statistic)
    cells, results = analysed("diffmask")
    means = results.tables["counting"].set_index("scores")["mean"]
    assert means["diffmask"] == pytest.approx(over(cells, lambda cell: precision(cell, "diffmask")))


def test_tests_of_attention_by_hand():
    texts = [
        {"attention": [0.7, 0.2, 0.1], "gradient": [1, 3, 3], "probs": [0.2, 0.8]},
        {"attention": [0.5, 0.5], "gradient": [2, 2], "probs": [0.5, 0.5]},
        {"attention": [1.0], "gradient": [2], "probs": [0.0, 1.0]},
        {"attention": [], "gradient": [], "probs": [0.9, 0.1]},
        {"attention": [0.25, 0.75], "gradient": [NAN, 1], "probs": [0.3, 0.7]},
    ]
    marks = [[True, False, False], [False, False], [True], [], [True, False]]
    record = build(texts, measures=("gradient",))
    record = appended(record, records.OPTIONAL_COLUMNS, impermissible=marks)
    record = appended(record, "minimal_flip_set", minimal_flip_size=[1, NAN, NAN, NAN, 2])
    undefined = [NAN, NAN]
    probs = [[0.7, 0.3], undefined, undefined, undefined, [0.3, 0.7]]
    record = appended(record, "permissible_only", permissible_only_probs=probs)
    expected = {
        "first_gradient": [0.2, NAN, NAN, NAN, NAN],
        "from_uniform": [0.7 - 1 / 3, 0, NAN, NAN, 0.25],
        "minimal_flip_set": [1 / 3, 1, NAN, NAN, 1],
        "impermissible": [0.7, NAN, NAN, NAN, 0.25],
        "hidden_influence": [0.5 - 0.7, NAN, NAN, NAN, 0 - 0.25],
        "confidence": [np.log(4), 0, attention_tests.LARGEST_ODDS, np.log(9), np.log(7 / 3)],
    }
    results = attention_tests.numbers(one_cell(record))
    assert set(results) == {*expected, "tau_gradient"}
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], values, atol=1e-6, err_msg=name)


def test_an_intervention_is_named_and_its_twin_has_none():
    changed = {"encoder": "orthogonal_lstm", "diversity": 1.0, "projection": "sparsegen", "projection_parameter": 0.5}
    own = model(1, **changed).identity
    assert interventions.intervention_label(own) == "orthogonal_lstm, diversity 1, sparsegen(0.5)"
    assert interventions.plain_twin(own) == model(1, encoder="lstm").identity
    for plain in (model(1).identity, identity(objective="adversarial", adversary_divergence="kl", adversary_weight=0.05)):
        assert interventions.plain_twin(plain) == plain and interventions.intervention_label(model(1).identity) == ""


def test_an_intervention_is_better_or_worse_by_the_direction_of_each_test_and_accuracy_is_its_price():
    cells = twins(projection="sparsemax", deceit=-2.0, accuracy=0.3)
    table = interventions.interventions_table(cells)
    row, tau = (table.set_index("test").loc[name] for name in ("from_uniform", "tau_gradient"))
    assert row["verdict"] == "better" and row["ci_low"] > 0
    assert tau["difference"] == pytest.approx(over(cells[5:], kendall) - over(cells[:5], kendall))
    assert (tau["n_texts"], tau["n_left_out"]) == (290, 10)
    price, right = table.iloc[-1], [np.mean(cell.predicted == cell.labels) for cell in cells]
    assert (price["mean_plain"], price["mean_changed"]) == pytest.approx((np.mean(right[:5]), np.mean(right[5:])))
    assert price["kind"] == "price" and price["verdict"] == "worse" and price["p_holm"] == price["p_value"]
    np.testing.assert_allclose(table["p_holm"][:-1], holm(table["p_value"][:-1]))
    again = interventions.interventions_table([shuffled(cell, number) for number, cell in enumerate(cells)][::-1])
    pd.testing.assert_frame_equal(again, table)
    assert analysed("interventions")[1].tables["interventions"].set_index("test").loc["tau_gradient", "verdict"] == "worse"


# ------------------------------------------------------------------------------------------------ one paper each


def test_jain_wallace():
    cells, results = analysed("jain_wallace_2019")
    row = results.tables["side_by_side"].set_index("encoder").loc["bilstm"]
    assert row["tau attention–gradient"] == pytest.approx(over(cells[:2], kendall))
    assert row["accuracy"] == pytest.approx(over(cells[:2], correct))
    gaps = results.tables["differences"].set_index("pair").loc["attention–gradient"]
    table = results.tables["side_by_side"]
    expected = table["tau attention–gradient"] - table["published tau attention–gradient"]
    assert (gaps["mean"], gaps["mean_size"]) == pytest.approx((expected.mean(), expected.abs().mean()))
    reach = results.tables["reach"].set_index("encoder").loc["bilstm"]
    exact = [[row[0] if len(row) else NAN for row in cell.rows("adversary_exact_jsd")] for cell in cells[:2]]
    assert cells[0].rows("adversary_exact_epsilon")[0][0] == 0.01
    assert reach["exact"] == pytest.approx(np.nanmean(exact, axis=1).mean())


@pytest.mark.parametrize("name", numbers.MEASURES)
def test_meister_numbers_of_texts(name):
    dense, other = analysed("meister_2021")[0][:2]
    results = numbers.of_cell(dense)
    np.testing.assert_allclose(results[f"tau_{name}"], kendall(dense, "attention", name))
    draws, importance = (dense.rows(column) for column in ("random_support_attention", numbers.null_of(name)))
    for text in range(len(dense)):
        rows = importance[text] if name in numbers.STATES else [importance[text]] * len(draws[text])
        taus = [stats.kendalltau(places, row).statistic for places, row in zip(draws[text], rows, strict=True)]
        assert results[f"random_tau_{name}"][text] == pytest.approx(np.mean(taus))
    largest = [row * (row >= np.sort(row)[-2]) for row in other.attention]
    sparse = Cell(other.identity, replaced(other.table, "attention", largest).slice(0, 20))
    cut = [weights * (weights >= np.sort(weights)[-2]) for weights in dense.attention[:20]]
    pairs = zip(cut, dense.scores(name), strict=False)
    np.testing.assert_allclose(numbers.cut_tau(sparse, dense, name), [stats.kendalltau(*pair).statistic for pair in pairs])


def test_meister_the_entropy_of_importance_over_lambdas():
    cells, results = analysed("meister_2021")
    row = results.tables["sweep"].set_index("measure").loc["gradient norm"]

    def entropy(cell):
        return over([cell], lambda cell: [stats.entropy(own, base=len(own)) for own in cell.scores("gradient_norm")])

    entropies = [[entropy(cell) for cell in cells[2 + seed : 8 : 2]] for seed in (0, 1)]
    taus = [stats.kendalltau([0.0, -3.0, 0.5], part).statistic for part in entropies]
    assert (row["n_lambdas"], row["n_seeds"]) == (3, 2) and taus[0] != taus[1]
    assert (row["tau"], row["tau_std"]) == pytest.approx((np.mean(taus), np.std(taus, ddof=1)))


@pytest.mark.parametrize(
    ("test", "low", "high", "p_value", "expected"),
    [
        ("conicity", -0.5, -0.5, 0.01, "holds"),
        ("conicity", 0.5, 0.5, 0.01, "goes against it"),
        ("conicity", -0.5, -0.5, 0.06, "cannot be told"),
        ("accuracy", -0.029, -0.001, 0.001, "holds"),
        ("accuracy", -0.2, -0.031, 0.001, "goes against it"),
        ("accuracy", -0.2, -0.01, 0.001, "cannot be told"),
    ],
)
def test_mohankumar_a_claim_holds_by_its_direction_and_accuracy_by_its_margin(test, low, high, p_value, expected):
    row = dict.fromkeys(mohankumar.COLUMNS, "") | {"kind": "price" if test == "accuracy" else "test", "n_seeds": 5}
    row |= {"test": test, "difference": (low + high) / 2, "ci_low": low, "ci_high": high, "p_value": p_value}
    table = mohankumar.claims(pd.DataFrame([row, row | {"test": "first_gradient"}]))
    assert table[["verdict", "claim"]].to_numpy().tolist() == [[expected, mohankumar.CLAIMS[test]]]


def test_mohankumar_beside_published():
    cells, results = analysed("mohankumar_2020")
    rows = results.tables["beside_published"].query("by == 'authors'").set_index(["model", "statistic"])
    conicity = over(cells[:2], lambda cell: cell.column("conicity_absolute"))
    assert rows.loc[("vanilla", "conicity_absolute"), ["measured", "n_seeds"]].tolist() == pytest.approx([conicity, 2])
    row = rows.loc[("diversity", "accuracy")]
    assert row["difference"] == pytest.approx(over(cells[2:], correct) - row["published"])


def test_planted_evidence_tells_the_models_apart_that_differ_in_it_alone():
    uses, cannot = [planted(1, WHOLE), planted(2, WHOLE)], [planted(2, BARE, seed=1), planted(3, BARE, seed=2)]
    assert planted_evidence.pairs([*uses, planted(1, BARE, encoder="average")]) == [], "another encoder is no pair"
    assert planted_evidence.pairs([*uses, planted(1, BARE | {"distractors": 3})]) == [], "nor are other texts"
    row = planted_evidence.planted_tests([*uses, *cannot]).set_index("statistic").loc["attention on the evidence"]
    uses, cannot = ([marked_mass(cell) for cell in side] for side in (uses, cannot))
    assert (row["uses"], row["cannot"], row["n_seeds"]) == pytest.approx((np.mean(uses), np.mean(cannot), 2))
    areas = [roc_auc_score([1] * 24 + [0] * 24, [*first, *second]) for first, second in zip(uses, cannot, strict=True)]
    assert row["auc"] == pytest.approx(np.mean(areas))


def test_pruthi_accuracy_and_mass_and_sequence_tasks():
    cells, results = analysed("pruthi_2020")
    row = results.tables["accuracy_and_mass"].set_index("penalty").loc[0.1]
    expected = (over(cells[2:], marked_mass), over(cells[2:], correct))
    assert (row["impermissible_mass"], row["accuracy"]) == pytest.approx(expected)
    cells, results = analysed("pruthi_2020:pruthi_2020.sequences_analysis")
    rows = results.tables["sequences_beside_published"].set_index(["dataset", "statistic"])["measured"].dropna()

    def linked(cell):  # of all target words and the end of the sentence
        pairs = zip(cell.rows("alignment_attention_mean"), cell.rows("gold_links"), strict=True)
        mass = sum(weights[0, 0][links > 0].sum() for weights, links in pairs)
        return mass / sum(len(links) + 1 for links in cell.rows("gold_links"))

    assert rows["sequence_copy", "impermissible_mass"] == pytest.approx(over(cells[:2], linked))
    assert rows["sequence_copy", "accuracy"] == pytest.approx(0.85) and rows["multi30k_en_de", "bleu"] == 20


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
    assert uncovered.separation(sides, strata if stratified else None)[:4] == pytest.approx(expected)


def test_rationales_a_selector_beside_attention_of_the_share_that_it_aims_at():
    cells, results = analysed("rationales")
    budgets = results.tables["budgets"].set_index(["model", "size", "scores", "statistic"])

    def correct(cell):
        places = zip(cell.shared("selection_measures"), cell.shared("selection_shares"), strict=True)
        place = next(place for place, pair in enumerate(places) if pair == ("attention", 0.1))
        return cell.stacked("selection_kept_probs")[:, place].argmax(1) == cell.labels

    row = budgets.loc[("hardkuma", "10%", "attention", "correct")]
    expected = over(cells[2:], correct)
    assert (row["mean"], row["difference"]) == pytest.approx((expected, expected - over(cells[:2], correct)))
    models = results.tables["models"].set_index(["model", "statistic"])["mean"]
    assert models["attention", "auprc_attention"] == pytest.approx(over(cells[:2], precision))


def test_rationales_other_kinds_of_texts_do_not_change_what_stands():
    """With the least p-value of 999 permutations, six models of five seeds can be told; so they can beside other kinds."""
    kinds = [{"dataset": "planted_evidence", "evidence": kind, "of": of} for kind in "ab" for of in ("label", "class")]
    rows = [kind for kind in kinds for _ in range(6)] + [{"dataset": "sst", "evidence": "", "of": "label"}] * 6
    p_values = np.where(np.arange(len(rows)) < 6, 1 / (1 + selection.PERMUTATIONS), 0.5)
    tests = pd.DataFrame([rows[row] | {"row": row, "p_value": p} for row, p in enumerate(p_values) for _ in SEEDS])
    tests.loc[len(tests) - 1, "p_value"] = NAN
    assert rationales.tests_that_stand(tests).tolist() == [5] * 6 + [0] * (len(rows) - 6)


def test_serrano_smith_shares_and_ratios():
    cells, results = analysed("serrano_smith_2019")
    (row,) = results.tables["documents"].to_dict("records")
    assert (row["n_seeds"], row["n"]) == (2, 24) and row["items"] == over(cells, lambda cell: cell.lengths)
    for order, column in {"attention": "erasure_flip_size_attention", "minimum": "minimal_flip_size"}.items():
        assert row[order] == pytest.approx(over(cells, lambda cell, column=column: cell.column(column) / cell.lengths))
        never = over(cells, lambda cell, column=column: np.isnan(cell.column(column)))
        assert row[f"never_{order}"] == pytest.approx(never)
    ratio = over(cells, lambda cell: cell.column("erasure_flip_size_attention") / cell.column("minimal_flip_size"))
    assert row["ratio"] == pytest.approx(ratio)


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


def test_wiegreffe_pinter_every_kind_of_model_beside_its_base():
    cells, results = analysed("wiegreffe_pinter_2019")
    near = "adversarial(kl, 0.002)"
    bases, others = cells[:2], cells[2:4]
    jsd = [
        jensenshannon(*rows) ** 2
        for pair in zip(bases, others, strict=True)
        for rows in zip(*(cell.attention for cell in pair), strict=True)
    ]
    tvd = np.mean([np.abs(base.probs - other.probs).sum(1).mean() / 2 for base, other in zip(bases, others, strict=True)])
    between = np.abs(bases[0].probs - bases[1].probs).sum(1).mean() / 2
    table = results.tables["models"].set_index("model")
    assert table.loc[near, ["jsd", "tvd"]].tolist() == pytest.approx([np.mean(jsd), tvd], abs=1e-6)
    assert table.loc["other seeds", "tvd"] == pytest.approx(between) and np.isnan(table.loc["MLP", "jsd"])
    claims = results.tables["claims"].set_index(["model", "claim"])["mean"]
    assert claims[near, "its predictions are nearer to the base's than another seed's"] == pytest.approx(between - tvd)
    right = {name: over(models.values(), correct) for name, models in wiegreffe.families(cells)[0].items()}
    worse = claims[near, "its attention guides an MLP worse than the base's own"]
    assert worse == pytest.approx(right["MLP guided by base"] - right[f"MLP guided by {near}"]) and worse != 0
    places = np.random.default_rng(0).permutation(24)[:20]  # texts are matched by their ids
    for name in ("jsd", "tvd"):
        distance = wiegreffe.distance(Cell(bases[0].identity, bases[0].table.take(places)), others[0], name)
        assert np.isnan(distance).sum() == 4
        np.testing.assert_allclose(np.nanmean(distance), np.mean(wiegreffe.distance(bases[0], others[0], name)[places]))
