"""The analysis of Meister et al. (2021): closed forms by hand, every verdict, and a whole study at tiny size."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnfaith import record as records
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.cells import Cell, split_cells
from tests.records import build, draw_sparse


pytestmark = pytest.mark.slow


FOLDER = Path(__file__).parents[3] / "recipes" / "meister_2021"
analysis = load_analysis(FOLDER / "analysis.py")
claims, models, numbers, page, tables = (
    import_module(f".{name}", analysis.__package__) for name in ("claims", "models", "numbers", "page", "tables")
)
LAMBDAS = (-15.0, -7.0, -3.0, -1.0, 0.0, 0.5)
"""1 - lambda is 16, 8, 4, 2, 1, 1/2: scores twice as large move each to the next."""


def of_lambda(value):
    return "sparsemax" if value == 0 else f"sparsegen({value:g})"


def sweep(change=None, seeds=(10, 11, 12, 13), ends=("softmax",), **given):
    """Cells of each lambda and of the ends; `change(lambda)`, None for the ends, gives what is special in a cell."""
    given = {"texts": 22} | given
    levels = [(None, name) for name in ends] + [(value, of_lambda(value)) for value in LAMBDAS]
    special = {value: change(value) if change else {} for value, _ in levels}
    return [draw_sparse(name, seed, **given | special[value]) for value, name in levels for seed in seeds]


def one(table, **keys):
    """The only row with these values."""
    rows = table.loc[(table[list(keys)] == list(keys.values())).all(axis=1)]
    assert len(rows) == 1, f"{len(rows)} rows of {keys}"
    return rows.iloc[0]


def test_numbers_of_a_text_by_hand():
    text = {"attention": [0.5, 0.3, 0.2, 0, 0], "gradient_norm": [5.0, 4, 3, 2, 1]}
    text |= dict(zip(numbers.STATES[1:], ([1, 1, 1, 0, 0], [1.0, 1.00005, 1.2, 0, 0]), strict=True))
    found = numbers.of_cell(split_cells(build([text], measures=list(text)[1:]))[0])
    assert found["support"] == 3 and found["support_share"] == pytest.approx(0.6)
    assert found["tau_gradient_norm"] == pytest.approx(9 / np.sqrt(9 * 10)), "one pair of ten is tied, the others in order"
    assert found["tau_over_ceiling_gradient_norm"] == pytest.approx(1)
    assert found["overlap_above_chance_gradient_norm"] == found["auprc_above_chance_gradient_norm"] == 1
    assert found["tokens_that_differ"] == pytest.approx(1 / 5), "0.00005 is less than what counts"
    assert found["entropy_gradient_norm"] == pytest.approx(stats.entropy([5, 4, 3, 2, 1]) / np.log(5))
    assert "tau_leave_one_out" not in found
    chances = numbers.above_chance(np.array([1, 0.5, 0.2, 0.7]), np.array([0.5, 0.5, 0.5, 1]))
    assert chances == pytest.approx([1, 0, -0.6, np.nan], nan_ok=True)


def test_ties_alone_cut_the_dense_attention_to_the_support():
    dense, sparse = draw_sparse("softmax"), draw_sparse("sparsegen(-1)", scale=0.5)
    sparse = Cell(sparse.identity, sparse.table.slice(0, 20))
    taus = numbers.of_cut(sparse, dense)["cut_tau_leave_one_out"]
    assert len(taus) == 20 and np.isnan(taus[:2]).all()
    for text in range(2, 20):
        size, weights = np.count_nonzero(sparse.attention[text]), dense.attention[text]
        cut = np.where(weights >= np.sort(weights)[-size], weights, 0)
        assert taus[text] == pytest.approx(stats.kendalltau(cut, dense.scores("leave_one_out")[text]).statistic)


@pytest.mark.parametrize("measure", numbers.MEASURES)
def test_random_places_are_averaged_over_draws(measure):
    cell = draw_sparse("sparsemax")
    averages = numbers.of_cell(cell)[f"random_tau_{measure}"]
    draws = records.rows(cell.table, "random_support_attention")
    importance = records.rows(cell.table, numbers.null_of(measure))
    for text in range(2, len(cell)):
        others = importance[text] if measure in numbers.STATES else [importance[text]] * 2
        taus = [stats.kendalltau(row, other).statistic for row, other in zip(draws[text], others, strict=True)]
        assert averages[text] == pytest.approx(np.mean(taus))
    assert np.isnan(averages[:2]).all()


def test_slope_and_rank_correlation_against_numpy_and_scipy():
    x, y = np.array([-2.0, -1.0, 0.0, 0.3, 1.0]), np.random.default_rng(5).normal(size=(6, 5)).round(1)
    y[1] = [0.1, 0.1, 0.2, 0.2, 0.3]  # ties
    y[2, 2], y[3, 1:] = np.nan, np.nan
    slopes, taus = models.slope(x, y), models.rank_correlation(x, y)
    assert np.isnan([slopes[3], taus[3]]).all(), "one level"
    for place in (0, 1, 2, 4, 5):
        known = ~np.isnan(y[place])
        assert slopes[place] == pytest.approx(np.polyfit(x[known], y[place, known], 1)[0])
        assert taus[place] == pytest.approx(stats.kendalltau(x[known], y[place, known]).statistic)
    assert np.isnan(models.rank_correlation(x, np.ones(5)))
    assert models.sharpness([-99, -9, 0, 0.9]) == pytest.approx([-2, -1, 0, 1])


def test_levels_with_few_values_count_in_no_slope():
    values = np.full((3, 1, 20), np.nan)
    values[0, 0, 0], values[1, 0], values[2, 0] = 100.0, 1.0, 2.0
    levels = models.Levels(None, [{"lambda": value} for value in (-9.0, 0.0, 0.9)], [])
    row = levels.trend("tau", models.slope, models.Panel(values, np.ones(values.shape, bool)))
    assert list(row.values()) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(("power", "kept"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)])
def test_how_much_of_the_effect_of_lambda_free_scores_keep(power, kept):
    """Scores that grow as 1 - lambda undo it; those that are twice as large whatever it is do not."""
    cells = sweep(lambda value: {} if value is None else {"scale": 2 * (1 - value) ** power})
    cells += [draw_sparse(of_lambda(value), alignment="additive(scale 1)", texts=22) for value in LAMBDAS]
    row = one(tables.tables(cells, {})["effect_kept"], scale="free")
    assert row["kept"] == pytest.approx(kept, abs=0.01) and row["n_kept"] >= 2


def judged(cells, claim):
    table = claims.claims(models.models(cells), {})
    return table[table["claim"] == claim]


def by_lambda(name, *values):
    return lambda value: {name: dict(zip((None, *LAMBDAS), values, strict=True))[value]}


def at_sparsemax(name, dense, sparse):
    return lambda value: {name: sparse if value == 0 else dense}


def undone(value):
    """Scores that grow as lambda falls: attention stays as it is."""
    return {} if value is None else {"scale": 1 - value, "spread": 2.0 - value / 10, "relation": 0.5 - value / 40}


NO_NULL = {"without": ("random_support_attention",)}
HOLDS, FAILS, UNDECIDED, TIES, CONSTRUCTION = claims.HOLDS, claims.FAILS, claims.UNDECIDED, claims.TIES, claims.CONSTRUCTION
RISING, FALLING = by_lambda("spread", 1, 2.5, 2.2, 2, 1.8, 1.5, 0.5), by_lambda("spread", 1, 0.5, 1, 1.5, 1.8, 2, 2.5)
LESS, MORE = by_lambda("relation", 0.9, 0.9, 0.8, 0.7, 0.5, 0.3, 0), by_lambda("relation", 0.5, 0, 0.1, 0.3, 0.6, 0.9, 0.99)
VERDICTS = [
    *(("1", None, {"own": own}, verdict) for own, verdict in ((0.3, HOLDS), (0.8, FAILS), (0.5, UNDECIDED))),
    *(("2", at_sparsemax("entropy", 0.7, end), {}, verdict) for end, verdict in ((0.69, HOLDS), (0.5, FAILS))),
    *(("3a", change, {}, verdict) for change, verdict in ((RISING, HOLDS), (FALLING, FAILS), (undone, UNDECIDED))),
    *(("3b", change, {}, verdict) for change, verdict in ((RISING, FAILS), (FALLING, HOLDS), (undone, FAILS))),
    *(("4a", at_sparsemax("relation", *ends), {}, verdict) for ends, verdict in (((0.7, 0.7), HOLDS), ((0, 0.95), FAILS))),
    ("4a", at_sparsemax("relation", 0.8, 0.97), {"scale": 3, "texts": 60}, TIES),
    *(("4b", change, {}, verdict) for change, verdict in ((None, TIES), (LESS, HOLDS), (MORE, FAILS), (undone, UNDECIDED))),
    *(("5a", None, {"relation": 0.4} | given, verdict) for given, verdict in (({}, CONSTRUCTION), (NO_NULL, HOLDS))),
    *(("5b", None, given, verdict) for given, verdict in (({}, CONSTRUCTION), (NO_NULL, HOLDS))),
    ("6", None, {}, claims.MISSING),
    *(("7", at_sparsemax("accuracy", 0.8, end), {}, verdict) for end, verdict in ((0.8, HOLDS), (0.4, FAILS))),
]


@pytest.mark.parametrize(("claim", "change", "given", "verdict"), VERDICTS)
def test_a_verdict_follows_its_interval(claim, change, given, verdict):
    assert set(judged(sweep(change, **given), claim)["verdict"]) == {verdict}


def test_what_decides_a_verdict():
    table = judged(sweep(), "4b")
    left = table[table["statistic"] == "slope of tau less that of softmax so cut"]["value"]
    assert left.to_numpy() == pytest.approx([0, 0], abs=1e-9)
    table = judged(sweep(ends=()), "4b")
    assert set(table["statistic"]) == {"slope of tau per decade", "slope of tau over its ceiling"}
    untrained = [draw_sparse(name, objective="untrained", texts=22) for name in ("softmax", "sparsemax")]
    table = judged(sweep(relation=0.4, **NO_NULL) + untrained, "5a")
    assert set(table["verdict"]) == {CONSTRUCTION}
    assert "tau less that of an untrained model" in set(table["statistic"])


@pytest.mark.parametrize(
    ("scale", "accuracy", "verdict"), [(-1.0, 0.8, HOLDS), (-1.0, 0.3, FAILS), (1.0, 0.8, FAILS), (0.0, 0.8, UNDECIDED)]
)
def test_adversaries(scale, accuracy, verdict):
    given = {"texts": 22, "scale": scale, "accuracy": accuracy}
    cells = [*sweep(), draw_sparse("sparsemax", objective="adversarial(jsd, 1, frozen)", **given)]
    jsd, change = judged(cells, "6").to_dict("records")
    assert (jsd["verdict"], jsd["measure"], jsd["n"]) == (verdict, "frozen, weight 1 on JSD", 21)
    assert (jsd["value"] == 0) == (scale == 1) and jsd["value"] <= np.log(2) + 1e-9
    assert change["value"] == pytest.approx((round(accuracy * 22) - round(0.8 * 22)) / 22)
    row = one(tables.tables(cells, {})["with_adversaries"], statistic="accuracy_difference")
    assert row["mean"] == pytest.approx(change["value"])


def study():
    cells = sweep(ends=("softmax", "uniform")) + [draw_sparse("entmax(1.5)", seed, texts=22) for seed in (10, 11)]
    cells += [draw_sparse(name, objective="untrained", relation=0.0, texts=22) for name in ("softmax", "sparsemax")]
    cells += [draw_sparse(of_lambda(value), alignment="additive(scale 1)", texts=22) for value in LAMBDAS]
    adversaries = ("adversarial(jsd, 1)", "adversarial(jsd, 1, frozen)")
    cells += [draw_sparse("sparsemax", objective=name, scale=-1, texts=22) for name in adversaries]
    return [*cells, draw_sparse("softmax", dataset="a|b<c", texts=6)]


def test_a_study_end_to_end():
    made = analysis.tables(study(), Settings(published=FOLDER / "published.csv"))
    assert {f"{name}.md" for name in page.SHOWN} == set(made.texts) and set(page.SHOWN) <= set(made.tables)
    made.figures["meister_figure2"].canvas.draw()
    made.figures["meister_figure3"].canvas.draw()
    taus = []
    for seed in (10, 11, 12, 13):
        cell = draw_sparse("sparsegen(-3)", seed, texts=22)
        pairs = zip(cell.attention[2:], cell.scores("leave_one_out")[2:], strict=True)
        taus.append(np.mean([stats.kendalltau(*pair).statistic for pair in pairs]))
    table = made.tables["projections"]
    row = one(table, projection="sparsegen(-3)", statistic="tau attention–leave_one_out")
    assert row["mean"] == pytest.approx(np.mean(taus)) and row["sd_over_seeds"] == pytest.approx(np.std(taus, ddof=1))
    assert (row["n"], row["n_undefined"], row["n_seeds"]) == (80, 8, 4) and row["ci_low"] < row["mean"] < row["ci_high"]
    softmax = one(table, projection="softmax", statistic="tau attention–gradient_norm", dataset="sst")
    assert softmax["published"] == 0.25 and softmax["difference"] == pytest.approx(softmax["mean"] - 0.25)
    held = table[table["statistic"] == "tau attention–gradient_norm_detached_hidden"]["mean"]
    assert held.to_numpy() == pytest.approx(np.ones(len(held))), "twice the attention itself"
    points = table[(table["statistic"] == "tau attention–gradient_norm") & table["lambda"].notna()]
    row = one(made.tables["ties"], measure="gradient_norm")
    assert row["tau"] == pytest.approx(np.polyfit(models.sharpness(points["lambda"]), points["mean"], 1)[0])
    null = one(made.tables["against_nulls"], projection="sparsemax", measure="leave_one_out", null="untrained model")
    assert null["difference"] == pytest.approx(null["tau"] - null["null_tau"])
    assert (null["n_seeds"], null["exceeds"]) == (1, "yes")
    assert made.tables["verdicts"].iloc[:, 2:].sum().sum() == len(made.tables["claims"].drop_duplicates(claims.CASE))
    assert "a\\|b&lt;c" in made.texts["side_by_side.md"] and " / .82 |" in made.texts["side_by_side.md"]
    again = analysis.tables(study()[::-1], Settings()).tables["ties"]
    pd.testing.assert_frame_equal(again, made.tables["ties"], atol=1e-9)
    little = analysis.tables([draw_sparse("softmax", objective="untrained", texts=5)], Settings())
    assert set(little.tables) == {"claims", "verdicts"} and not little.figures


@pytest.mark.parametrize("column", ["importance_gradient_norm", "random_support_attention"])
def test_a_column_that_no_cell_has(column):
    made = analysis.tables(sweep(seeds=[10], texts=8, without=(column,)), Settings())
    assert len(made.tables["claims"]) and ("against_nulls" in made.tables) == (column != "random_support_attention")


def test_numbers_of_the_page():
    values = {0.8: ".80", -0.06: "−.06", 1.0: "1.00", 5175: "5,175", 10.0: "10", "sst": "SST"}
    assert {value: page.shown(value, 2) for value in values} == values
    assert page.shown(-0.0321, 3) == "−.032" and page.shown(np.nan, 2) == "—"


@pytest.mark.parametrize("broken", ["a column", "a number twice"])
def test_published_numbers_that_are_none(tmp_path, broken):
    published = pd.read_csv(FOLDER / "published.csv")
    published = published.drop(columns="mean") if broken == "a column" else pd.concat([published, published.head(1)])
    published.to_csv(tmp_path / "published.csv", index=False)
    with pytest.raises(StudyError, match="published"):
        analysis.tables([], Settings(published=tmp_path / "published.csv"))
    assert analysis.tables([], Settings(published=FOLDER / "published.csv")) == Analysis()
