"""The open questions of the sparsity study: closed forms by hand, each number by another route, and what may be missing."""

from importlib import import_module
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnfaith.metrics.attention_faithfulness.support_agreement import support_auprc, top_k_overlap
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.cells import Cell, split_cells


pytestmark = pytest.mark.slow


analysis = load_analysis(Path(__file__).parents[3] / "recipes" / "meister_2021" / "analysis.py")
numbers = import_module(".sparsity.numbers", analysis.__package__)
question_figures = import_module(".sparsity.question_figures", analysis.__package__)
questions = import_module(".sparsity.questions", analysis.__package__)


LAMBDAS = (-15.0, -7.0, -3.0, -1.0, 0.0, 0.5)
"""1 - lambda is 16, 8, 4, 2, 1, 1/2: scores twice as large move each to the next."""
TEXTS = 20
DEFINED = TEXTS - 2  # the first is empty, the second of one token


def of_lambda(value):
    return "sparsemax" if value == 0 else f"sparsegen({value:g})"


@pytest.fixture(scope="module")
def sweep(draw_sparse_cell):
    """Cells of lambda, with softmax and uniform; `change(lambda)` gives settings of a cell."""

    def draw(seeds=(10, 11), change=lambda value: {}, ends=("softmax", "uniform"), **given):
        given = {"texts": TEXTS} | given
        cells = [draw_sparse_cell(name, seed, **given) for name in ends for seed in seeds]
        swept = [(value, seed) for value in LAMBDAS for seed in seeds]
        return cells + [draw_sparse_cell(of_lambda(value), seed, **given, **change(value)) for value, seed in swept]

    return draw


@pytest.fixture(scope="module")
def study(draw_sparse_cell, sweep):
    """A whole study of one model, and softmax alone of another; variants have one seed."""
    draw, given = draw_sparse_cell, {"texts": TEXTS}
    cells = sweep() + [draw(f"entmax({alpha})", seed, **given) for alpha in (1.25, 1.5, 1.75) for seed in (10, 11)]
    cells += [draw(name, objective="untrained", relation=0.0, **given) for name in ("softmax", "sparsemax")]
    for value in LAMBDAS:
        cells.append(draw(f"sparsegen({value:g})", alignment="additive(scale 1)", **given))
        fast = "classification(attention rate x 10)"
        cells.append(draw(f"sparsegen({value:g})", objective=fast, scale=(1 - value) ** 0.5, **given))
    cells += [draw("sparsemax", objective=f"adversarial(jsd, 1{more})", scale=-1, **given) for more in ("", ", frozen")]
    return cells + [draw("softmax", 10, dataset="imdb", encoder="transformer", alignment="dot", texts=6)]


@pytest.fixture(scope="module")
def published():
    row = {"table": 6, "dataset": "sst", "encoder": "bilstm", "alignment": "additive", "training": np.nan, "source": "x"}
    values = [
        ("softmax", "gradient_norm", 0.25),
        ("sparsemax", "gradient_norm", 0.45),
        ("sparsemax", "gradient_norm_hidden", 0.1),
    ]
    rows = [
        row | {"projection": name, "statistic": f"tau attention–{measure}", "mean": mean, "std": 0.2}
        for name, measure, mean in values
    ]
    rows.append(rows[0] | {"dataset": "yelp"})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def answers(study, published):
    return questions.tables(study, published)


@pytest.fixture(scope="module")
def drawn(study, answers):
    return question_figures.figures(answers, study)


def one(table, **keys):
    """The only row with these values."""
    mine = table
    for name, value in keys.items():
        mine = mine[mine[name] == value]
    assert len(mine) == 1, f"{len(mine)} rows of {keys}"
    return mine.iloc[0]


def sst(table):
    return table[table["dataset"] == "sst"]


def cell_of(cells, projection, seed=10, objective="classification", alignment="additive", dataset="sst"):
    wanted = {"projection": projection, "seed": seed, "objective": objective, "alignment": alignment, "dataset": dataset}
    (only,) = [cell for cell in cells if all(cell.heading[name] == value for name, value in wanted.items())]
    return only


def taus(cell, measure, attention=None):
    """tau-b of each text by scipy; NaN below two tokens or where one row is constant."""
    rows = zip(cell.attention if attention is None else attention, cell.scores(measure), strict=True)
    return np.array([stats.kendalltau(*row).statistic if len(row[0]) > 1 else np.nan for row in rows])


def over_seeds(*values):
    return np.mean([np.nanmean(row) for row in values])


# -------------------------------------------------------------------------------------------------------- what is there


def test_without_cells_there_is_nothing():
    assert questions.tables([]) == {} and analysis.tables([], Settings()) == Analysis()


def test_every_question_has_its_table_and_figure(drawn, answers):
    assert set(answers) == {*questions.QUESTIONS, "question_b_published", "claims"}
    assert set(drawn) == {f"question_{name}" for name in (
        "a_tie_ceiling", "b_nulls", "c_detached", "d_removal", "e_without_ties", "f_temperature", "g_entmax")}  # fmt: skip
    for name, table in answers.items():
        text = table.select_dtypes(exclude="number")
        assert text.map(lambda value: isinstance(value, str)).all(axis=None), name
        assert not np.isinf(table.select_dtypes("number").to_numpy(float)).any(), name
        ends = [column.removesuffix("_ci_low") for column in table if column.endswith("_ci_low") and column != "ci_low"]
        for end in ends:
            low, value, high = (table[f"{end}{part}"] for part in ("_ci_low", "", "_ci_high"))
            assert ((low <= high) | low.isna()).all(), end
            assert (value.notna() | low.isna()).all(), end


def test_they_are_in_the_analysis_of_a_study(study, published, answers, drawn, tmp_path):
    published.to_csv(tmp_path / "published.csv", index=False)
    made = analysis.tables(study, Settings(published=tmp_path / "published.csv"))
    assert [name for name in made.tables if name in answers] == list(answers)
    for name, table in answers.items():
        pd.testing.assert_frame_equal(made.tables[name], table)
    assert list(made.texts) == ["summary.md"] and set(drawn) <= set(made.figures)


def test_the_order_of_cells_changes_nothing(study, answers):
    order = np.random.default_rng(1).permutation(len(study))
    again = questions.tables([study[place] for place in order])
    for name in ("question_a_tie_ceiling", "question_b_nulls", "question_e_trend", "question_f_undone", "question_g_trend"):
        keys = list(answers[name].columns[: answers[name].columns.get_loc("n")].drop(["n_seeds"], errors="ignore"))
        one_, other = (table.sort_values(keys).reset_index(drop=True) for table in (answers[name], again[name]))
        pd.testing.assert_frame_equal(one_, other, atol=1e-9)


def test_tables_are_of_the_cells_that_are_asked_for(sweep):
    cells = sweep(seeds=[10])
    alone = questions.tables(cells[:1])
    assert set(alone["question_a_tie_ceiling"]["projection"]) == {"softmax"}
    assert len(questions.tables(cells)["question_a_tie_ceiling"]) > len(alone["question_a_tie_ceiling"])


COLUMNS = {
    "importance_gradient_norm": "a",
    "importance_leave_one_out_reproject_hidden": "d",
    "importance_gradient_norm_detached": "",
    "random_support_attention": "",
    "hidden_to_input_own": "",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_no_cell_has(sweep, column):
    cells = sweep(seeds=[10], without=(column,), texts=6)
    made = analysis.tables(cells, Settings())
    answers = made.tables
    assert made.texts["summary.md"]
    if column == "random_support_attention":
        assert "question_b_nulls" not in answers
    if column.endswith("reproject_hidden"):
        assert "question_d_removal" not in answers
    if column.endswith("norm_detached"):
        assert set(answers["question_c_detached"]["place"]) == {"states"}
    if column == "importance_gradient_norm":
        assert set(answers["question_c_detached"]["place"]) == {"states"}
        assert "gradient_norm" not in set(answers["question_a_tie_ceiling"]["measure"])
    if column == "hidden_to_input_own":
        assert set(answers["claims"].loc[answers["claims"]["claim"] == "1", "verdict"]) == {"not measured"}


def test_texts_that_define_nothing(build_record):
    cells = []
    for projection in ("softmax", "sparsemax"):
        texts = [{"attention": [0.25] * 4, "gradient_norm": [1.0] * 4}, {"attention": [1.0], "gradient_norm": [1.0]}]
        cells += split_cells(build_record(texts, projection=projection, measures=("gradient_norm",)))
    answers = questions.tables(cells)
    assert set(answers) == {"claims"} and question_figures.figures(answers, cells) == {}
    assert "Not measured." in analysis.tables(cells, Settings()).texts["summary.md"]


# ----------------------------------------------------------------------------------------------------------- (a) ties


def test_the_ceiling_by_hand(build_record):
    texts = [{"attention": [0.5, 0.3, 0.2, 0, 0], "gradient_norm": [5.0, 4, 3, 2, 1]}]
    row = one(questions.tables(split_cells(build_record(texts * 1, measures=["gradient_norm"])))["question_a_tie_ceiling"])
    assert row["tau"] == pytest.approx(9 / np.sqrt(9 * 10)), "one pair of ten is tied, the others are in order"
    assert row["ceiling"] == pytest.approx(np.sqrt(0.9)) and row["tau_over_ceiling"] == pytest.approx(1)
    assert row["tied_pairs"] == pytest.approx(0.1) and np.isnan(row["tau_ci_low"]), "one text has no interval"
    assert row["tau_ties_alone"] == pytest.approx(row["tau"]), "its own softmax model needs no cut"


@pytest.mark.parametrize("measure", ["gradient_norm", "leave_one_out_hidden"])
def test_tau_its_ceiling_and_tied_pairs_by_another_route(study, answers, measure):
    for name in ("softmax", "sparsegen(-3)", "sparsemax", "entmax(1.5)"):
        row = one(sst(answers["question_a_tie_ceiling"]), projection=name, measure=measure)
        cells = [cell_of(study, name, seed) for seed in (10, 11)]
        assert row["tau"] == pytest.approx(over_seeds(*(taus(cell, measure) for cell in cells)))
        tied = [
            [np.mean([a == b for a, b in combinations(row, 2)]) if len(row) > 1 else np.nan for row in cell.attention]
            for cell in cells
        ]
        assert row["tied_pairs"] == pytest.approx(over_seeds(*tied))
        sorted_ = [[stats.kendalltau(np.sort(a), np.sort(b)).statistic if len(a) > 1 else np.nan
                    for a, b in zip(cell.attention, cell.scores(measure), strict=True)] for cell in cells]  # fmt: skip
        assert row["ceiling"] >= over_seeds(*sorted_) - 1e-12
        if measure == "gradient_norm":
            assert row["ceiling"] == pytest.approx(over_seeds(*(np.sqrt(1 - np.array(rows)) for rows in tied)))
        assert (row["n_seeds"], row["n"], row["n_undefined"]) == (2, 2 * DEFINED, 4)


def test_no_tau_is_above_its_ceiling(answers):
    table = answers["question_a_tie_ceiling"]
    assert (table["tau"].abs() <= table["ceiling"] + 1e-12).all()
    assert (table["tau_over_ceiling"].abs() <= 1 + 1e-12).all()
    assert "uniform" not in set(table["projection"]), "tau is undefined under uniform attention"
    inputs = one_model(table, "gradient_norm")
    assert (np.diff(inputs["tied_pairs"]) > 0).all() and (np.diff(inputs["ceiling"]) < 0).all()
    assert table.loc[table["measure"].str.endswith("_hidden"), "tau_ties_alone"].isna().all()


def one_model(table, measure):
    return sst(table)[(sst(table)["measure"] == measure) & sst(table)["lambda"].notna()].sort_values("lambda")


def test_each_cell_has_its_own_row(study, answers):
    table = answers["question_a_cells"]
    measured = [cell for cell in study if cell.heading["projection"] != "uniform"]
    assert len(table) == 5 * len(measured) and not table.duplicated([*measured[0].heading, "measure"]).any()
    cell = cell_of(study, "sparsegen(0.5)", alignment="additive(scale 1)")
    row = one(table, **cell.heading, measure="leave_one_out")
    ratio = taus(cell, "leave_one_out") / numbers.ceiling(cell, "leave_one_out")
    assert row["tau"] == pytest.approx(np.nanmean(taus(cell, "leave_one_out")))
    assert row["tau_over_ceiling"] == pytest.approx(np.nanmean(ratio)) and (row["n"], row["n_undefined"]) == (DEFINED, 2)


def test_a_fall_that_ties_alone_explain(answers):
    """All cells of a seed have the scores and the importance of the softmax cell: only ties change."""
    row = one(sst(answers["question_a_fall"]), measure="gradient_norm")
    points = one_model(answers["question_a_tie_ceiling"], "gradient_norm")
    x = -np.log10(1 - points["lambda"])
    assert row["tau_slope"] == pytest.approx(np.polyfit(x, points["tau"], 1)[0]) and row["tau_slope_ci_high"] < 0
    assert row["tau_over_ceiling_slope"] == pytest.approx(np.polyfit(x, points["tau_over_ceiling"], 1)[0])
    assert row["tau_kendall"] == pytest.approx(stats.kendalltau(points["lambda"], points["tau"]).statistic)
    ratio = row["tau_over_ceiling_slope"] / row["tau_slope"]
    assert row["left_after_ceiling"] == pytest.approx(ratio)
    beyond = row[["left_beyond_ties", "left_beyond_ties_ci_low", "left_beyond_ties_ci_high"]].astype(float)
    assert beyond.to_numpy() == pytest.approx(np.zeros(3), abs=1e-9)
    assert (row["n_levels"], row["n_seeds"], row["n"]) == (6, 2, 6 * 2 * DEFINED)


def test_a_fall_that_ties_do_not_explain_and_none(sweep):
    falling = questions.tables(sweep(change=lambda value: {"relation": np.clip(0.4 * np.log10((1 - value) * 4), 0, 0.9)}))
    row = one(falling["question_a_fall"], measure="gradient_norm")
    assert row["left_beyond_ties_ci_low"] > 0.2
    rising = questions.tables(sweep(change=lambda value: {"relation": 0.9 if value > -1 else 0.0}))
    row = one(rising["question_a_fall"], measure="gradient_norm")
    assert row["tau_slope"] > 0 and row[["left_after_ceiling", "left_beyond_ties"]].isna().all()


# ---------------------------------------------------------------------------------------------------------- (b) nulls


def test_nulls_by_another_route(study, answers):
    table = answers["question_b_nulls"]
    row = one(table, projection="sparsemax", measure="leave_one_out", null="untrained model")
    trained, null = (cell_of(study, "sparsemax", objective=name) for name in ("classification", "untrained"))
    assert row["tau"] == pytest.approx(np.nanmean(taus(trained, "leave_one_out"))), "of seed 10 alone: the other has no null"
    assert row["null_tau"] == pytest.approx(np.nanmean(taus(null, "leave_one_out")))
    assert row["difference"] == pytest.approx(row["tau"] - row["null_tau"])
    assert (row["n_seeds"], row["n"], row["exceeds"], row["null_measure"]) == (1, DEFINED, "yes", "leave_one_out")
    row = one(table, projection="sparsemax", measure="leave_one_out_reproject_hidden", null="random places")
    assert (row["n_seeds"], row["null_measure"]) == (2, "random_support_leave_one_out_hidden")
    null = [numbers.random_support_tau(cell_of(study, "sparsemax", seed), "leave_one_out_hidden") for seed in (10, 11)]
    assert row["null_tau"] == pytest.approx(over_seeds(*null)) and row["null_tau"] > 0.8
    assert set(table.loc[table["null"] == "untrained model", "projection"]) == {"softmax", "sparsemax"}


def test_exceeds_follows_the_interval_of_the_difference(draw_sparse_cell, answers):
    table = answers["question_b_nulls"]
    assert (table["exceeds"] == np.where(table["difference_ci_low"] > 0, "yes", "no")).all()
    inputs = sst(table)[sst(table)["measure"].isin(["gradient_norm", "leave_one_out"])]
    assert (inputs["exceeds"] == "yes").all()
    cells = [draw_sparse_cell("softmax", relation=0.5), draw_sparse_cell("softmax", objective="untrained", relation=0.5)]
    same = one(questions.tables(cells)["question_b_nulls"], measure="gradient_norm", null="untrained model")
    assert same["difference"] == 0 and same["exceeds"] == "no"


def test_published_correlations_against_the_nulls(study, published, answers):
    table = answers["question_b_published"]
    assert set(table["dataset"]) == {"sst"} and len(table) == 2 * 3
    row = one(table, projection="sparsemax", measure="gradient_norm_hidden", null="random places")
    measured = one(answers["question_b_nulls"], projection="sparsemax", measure="gradient_norm_hidden", null="random places")
    assert row["null_tau"] == measured["null_tau"] and row["exceeds"] == "no"
    assert row["difference"] == pytest.approx(0.1 - measured["null_tau"])
    assert (table.loc[table["measure"] == "gradient_norm", "exceeds"] == "yes").all()
    higher = published.assign(mean=1.0, table="6")
    assert (questions.tables(study, higher)["question_b_published"]["exceeds"] == "yes").all()
    inside = published.assign(mean=(measured["null_tau"] + measured["null_tau_ci_high"]) / 2)
    row = one(
        questions.tables(study, inside)["question_b_published"],
        projection="sparsemax",
        measure="gradient_norm_hidden",
        null="random places",
    )
    assert row["difference"] > 0 and row["exceeds"] == "no", "within the interval of the null"


def test_a_published_table_that_is_none(study, published, tmp_path):
    with pytest.raises(ValueError, match="'mean'"):
        questions.tables(study, published.drop(columns="mean"))
    published.drop(columns="mean").to_csv(tmp_path / "published.csv", index=False)
    with pytest.raises(StudyError, match=r"lacks the columns \['mean'\]"):
        analysis.tables([], Settings(published=tmp_path / "published.csv"))


# ------------------------------------------------------------------------------------------------- (c), (d), (e)


def test_attention_held_fixed(study, answers):
    table = sst(answers["question_c_detached"])
    states = table[table["place"] == "states"]
    assert states["tau_detached"].to_numpy() == pytest.approx(np.ones(len(states))), "twice the attention itself"
    row = one(table, projection="softmax", place="inputs")
    cells = [cell_of(study, "softmax", seed) for seed in (10, 11)]
    fixed = over_seeds(*(taus(cell, "gradient_norm_detached") for cell in cells))
    assert row["tau_detached"] == pytest.approx(fixed)
    assert row["difference"] == pytest.approx(fixed - over_seeds(*(taus(cell, "gradient_norm") for cell in cells)))


def test_two_ways_to_remove_a_state_by_hand(build_record):
    ways = ("leave_one_out_hidden", "leave_one_out_reproject_hidden")
    texts = [
        {"attention": [0.5, 0.3, 0.2], ways[0]: [0.3, 0.2, 0.1], ways[1]: [0.3, 0.2, 0.1]},
        {"attention": [0.6, 0.4, 0.0], ways[0]: [0.3, 0.2, 0.0], ways[1]: [0.2, 0.3, 0.00001]},
    ]
    row = one(questions.tables(split_cells(build_record(texts, measures=ways)))["question_d_removal"])
    assert row["tau_renormalise"] == 1 and row["tau_reproject"] == pytest.approx((1 + 1 / 3) / 2)
    assert row["difference"] == pytest.approx(-1 / 3)
    assert row["importance_renormalise"] == pytest.approx((0.2 + 0.5 / 3) / 2)
    assert row["tokens_that_differ"] == pytest.approx((0 + 2 / 3) / 2), "0.00001 is less than what counts"
    assert row["texts_that_differ"] == 0.5 and row["tau_between"] == pytest.approx((1 + 1 / 3) / 2)


def test_agreement_without_ties_by_another_route(study, answers):
    row = one(answers["question_e_without_ties"], projection="sparsemax", measure="gradient_norm")
    for name, agreement in (("overlap", top_k_overlap), ("auprc", support_auprc)):
        pairs = [agreement(cell.attention, cell.scores("gradient_norm")) for cell in
                 (cell_of(study, "sparsemax", seed) for seed in (10, 11))]  # fmt: skip
        assert row[name] == pytest.approx(over_seeds(*(value for value, _ in pairs)))
        above = [(value - chance) / (1 - chance) for value, chance in pairs]
        assert row[f"{name}_above_chance"] == pytest.approx(over_seeds(*above))
        assert row[f"{name}_cut"] == pytest.approx(row[f"{name}_above_chance"]), "softmax cut alike has the same support"
    softmax = one(sst(answers["question_e_without_ties"]), projection="softmax", measure="gradient_norm")
    assert np.isnan(softmax["auprc"]) and np.isfinite(softmax["overlap"]), "every token is in the support"


def test_how_agreement_moves(sweep):
    falling = questions.tables(sweep(change=lambda value: {"relation": 0.9 if value < -1 else 0.0}))["question_e_trend"]
    rising = questions.tables(sweep(change=lambda value: {"relation": 0.0 if value < -1 else 0.9}))["question_e_trend"]
    for table, moves, sign in ((falling, "falls", -1), (rising, "rises", 1)):
        for name in ("tau", "overlap_above_chance"):
            row = one(table, measure="gradient_norm", agreement=name)
            assert row["moves"] == moves and sign * row["slope"] > 0
            assert sign * row["beyond_cut_slope"] > 0 and row["slope_ci_low"] * row["slope_ci_high"] > 0
    assert questions._in_words(-0.1, 0.1) == questions._in_words(np.nan, np.nan) == "unclear"


# ----------------------------------------------------------------------------------------- (f) temperature, (g) entmax


def variants(sweep, draw_sparse_cell, scale, seeds=(10, 11)):
    """A free sweep with scores of the given scale, and one of fixed scale 1 of seed 10."""
    free = sweep(seeds=seeds, change=lambda value: {"scale": scale(value)})
    fixed = {"alignment": "additive(scale 1)", "texts": TEXTS}
    return free + [draw_sparse_cell(f"sparsegen({value:g})", **fixed) for value in LAMBDAS]


def test_scores_twice_as_large_are_the_next_lambda(sweep, draw_sparse_cell):
    answers = questions.tables(variants(sweep, draw_sparse_cell, lambda value: 2.0, seeds=[10]))
    free = answers["question_f_temperature"].query("scale == 'free'").set_index("lambda")
    expected = [*LAMBDAS[1:], np.nan]
    assert free["effective_lambda"].to_numpy() == pytest.approx(expected, nan_ok=True), "1 - lambda is halved"
    for end in ("_ci_low", "_ci_high"):
        assert free[f"effective_lambda{end}"].to_numpy() == pytest.approx(expected, nan_ok=True), "draws are paired"
    row = one(answers["question_f_undone"], scale="free", statistic="entropy")
    assert row["kept"] == pytest.approx(1) and row["n_kept"] == 5
    assert answers["question_f_temperature"].query("scale != 'free'")["effective_lambda"].isna().all()


@pytest.mark.parametrize(("power", "kept"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)])
def test_what_the_model_undoes(sweep, draw_sparse_cell, power, kept):
    answers = questions.tables(variants(sweep, draw_sparse_cell, lambda value: (1 - value) ** power))
    row = one(answers["question_f_undone"], scale="free", statistic="entropy")
    assert row["kept"] == pytest.approx(kept, abs=0.01 if power == 0.5 else 1e-9)
    assert row["kept_ci_low"] - 1e-9 <= row["kept"] <= row["kept_ci_high"] + 1e-9
    moves = row["slope_ci_high"] < 0
    assert moves == (power < 1), "scores that grow as lambda shrinks leave the attention as it is"
    assert one(answers["question_f_undone"], scale="1", statistic="entropy")["n_kept"] == 0


def test_where_on_a_falling_curve():
    curve, x = np.array([0.9, 0.5, 0.1]), np.array([-1.0, 0.0, 2.0])
    assert questions._read(np.array([0.9, 0.7, 0.3, 0.1]), curve, x) == pytest.approx([-1, -0.5, 1, 2])
    assert np.isnan(questions._read(np.array([0.95, 0.05, np.nan]), curve, x)).all(), "outside"
    assert np.isnan(questions._read(np.array([0.5]), np.array([0.9, 0.9, 0.1]), x)).all(), "no falling curve"
    assert np.isnan(questions._read(np.array([0.5]), curve[:1], x[:1])).all()


def test_variants_are_told_apart(study, answers):
    table = answers["question_f_temperature"]
    assert list(dict.fromkeys(zip(table["scale"], table["attention_rate"], strict=True))) == [
        ("free", 1.0), ("free", 10.0), ("1", 1.0)]  # fmt: skip
    row = one(table, scale="free", attention_rate=10.0, **{"lambda": -3.0})
    cell = cell_of(study, "sparsegen(-3)", objective="classification(attention rate x 10)")
    sizes = np.array([np.count_nonzero(weights) for weights in cell.attention[1:]])
    assert row["support"] == pytest.approx(sizes.mean()), "an empty text has no support"
    assert row["accuracy"] == pytest.approx(np.mean(cell.predicted == cell.labels))
    assert np.isnan(row["effective_lambda"]), "no sweep of fixed scale learns at that rate"
    assert len(table) == 3 * len(LAMBDAS) and set(table["dataset"]) == {"sst"}


def test_one_variant_alone_answers_nothing(sweep):
    assert not {"question_f_temperature", "question_f_undone"} & set(questions.tables(sweep(seeds=[10], texts=6)))


def test_entmax(study, answers, sweep):
    table = answers["question_g_entmax"]
    assert table["alpha"].tolist() == [1, 1.25, 1.5, 1.75, 2]
    row = one(table, alpha=1.5)
    cells = [cell_of(study, "entmax(1.5)", seed) for seed in (10, 11)]
    assert row["tau_gradient_norm"] == pytest.approx(over_seeds(*(taus(cell, "gradient_norm") for cell in cells)))
    trend = one(answers["question_g_trend"], statistic="support_share")
    assert trend["slope"] == pytest.approx(np.polyfit(table["alpha"], table["support_share"], 1)[0])
    assert trend["moves"] == "falls" and trend["kendall"] == -1
    assert not {"question_g_entmax", "question_g_trend"} & set(questions.tables(sweep(seeds=[10], texts=6))), "ends alone"


# ------------------------------------------------------------------------------------------------------------ figures


def labels_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_figures_of_a_whole_study(drawn, answers, study):
    assert labels_of(drawn["question_b_nulls"]) == ["random places", "untrained model", "trained model", "published"]
    assert "τ of softmax attention cut to the same support" in labels_of(drawn["question_a_tie_ceiling"])
    assert len(labels_of(drawn["question_f_temperature"])) == 3
    bare = question_figures.nulls(answers["question_b_nulls"], study)
    assert labels_of(bare) == ["random places", "untrained model", "trained model"]
    subjects = {name: " ".join(text.get_text() for text in figure.texts) for name, figure in drawn.items()}
    assert "imdb" in subjects["question_a_tie_ceiling"] and "imdb" not in subjects["question_f_temperature"]
    for name in ("question_b_nulls", "question_f_temperature"):
        drawn[name].canvas.draw()
    for name, figure in drawn.items():
        for axes in figure.axes:
            assert axes.get_ylabel() or axes.get_subplotspec().colspan.start, name
            assert np.isfinite(axes.get_ylim()).all()


def test_the_line_of_tau_is_the_table(drawn, answers):
    figure = drawn["question_a_tie_ceiling"]
    points = one_model(answers["question_a_tie_ceiling"], "gradient_norm")
    line = next(line for line in figure.axes[0].lines if line.get_label() == "τ")
    assert line.get_ydata() == pytest.approx(points["tau"].to_numpy())
    assert line.get_xdata() == pytest.approx(-np.log10(1 - points["lambda"].to_numpy()))


def test_cells_of_one_seed_without_an_interval_are_drawn(draw_sparse_cell):
    cells = [draw_sparse_cell(name, texts=3) for name in ("softmax", "sparsemax", "sparsegen(-10)")]
    drawn = question_figures.figures(questions.tables(cells), cells)
    assert {"question_a_tie_ceiling", "question_b_nulls"} <= set(drawn)
    drawn["question_b_nulls"].canvas.draw()


def test_texts_that_only_some_cells_hold(draw_sparse_cell):
    whole, part = draw_sparse_cell("softmax", texts=12), draw_sparse_cell("sparsemax", texts=12)
    part = Cell(part.identity, part.table.slice(0, 8))
    row = one(questions.tables([whole, part])["question_a_tie_ceiling"], projection="sparsemax", measure="gradient_norm")
    assert row["n"] == 6 and row["tau_ties_alone"] == pytest.approx(row["tau"])
