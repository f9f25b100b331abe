"""Meister et al.'s tables and figures, by scipy and by hand; variants stay out, what is missing is left out."""

from dataclasses import asdict
from importlib import import_module
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy as shannon
from scipy.stats import kendalltau, pearsonr, spearmanr

from attnfaith import record as records
from attnfaith.reporting.analysis import Settings, load_analysis
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.study import save_png
from tests.identities import typed


pytestmark = pytest.mark.slow


analysis = load_analysis(Path(__file__).parents[3] / "recipes" / "meister_2021" / "analysis.py")
figures = import_module(".sparsity.figures", analysis.__package__)
tables = import_module(".sparsity.tables", analysis.__package__)


MEASURES = (
    "gradient_norm",
    "leave_one_out",
    "gradient_norm_hidden",
    "leave_one_out_hidden",
    "leave_one_out_reproject_hidden",
)
PUBLISHED = Path(__file__).parents[3] / "recipes" / "meister_2021" / "published.csv"
TEXTS = 12


def make(rows, *, sizes=None, columns=(), **labels):
    """One cell of rows: dicts of id, attention, probs, label, and token scores of any of the columns."""
    identity = typed(**{"vectors": "random(1)", "seed": 10} | labels)
    values = {
        "instance_id": [row["id"] for row in rows],
        **records.as_columns(identity, len(rows)),
        "tokens": [[f"w{place}" for place in range(len(row["attention"]))] for row in rows],
        "attention": [row["attention"] for row in rows],
        "probs": [row.get("probs", [0.4, 0.6]) for row in rows],
        "label": [row.get("label", 1) for row in rows],
        "truncated": [False] * len(rows),
        **{name: [row[name] for row in rows] for name in columns},
    }
    table = records.build(values, {name: records.Column(("T",)) for name in columns})
    if sizes:
        table = records.with_settings(table, [{"identity": asdict(identity), "run": {"sizes": sizes}}])
    return split_cells(table)[0]


def attend(scores, projection):
    """Softmax, uniform, or the kept tokens of largest score sharing the weight: fewer, the larger lambda."""
    if projection == "uniform" or not len(scores):
        return np.full(len(scores), 1 / len(scores)) if len(scores) else scores
    weights = np.exp(scores)
    value = 0.0 if projection == "sparsemax" else float(projection[10:-1]) if projection.startswith("sparsegen") else None
    if value is not None:
        kept = max(1, int(len(scores) * (0.5 - 0.2 * np.sign(value) * min(1, abs(value)))))
        weights[np.argsort(-scores)[kept:]] = 0
    return weights / weights.sum()


def draw(count=TEXTS, *, columns=None, sizes=True, **identity):
    """A cell of random numbers on texts that depend on the data set alone: an empty one, one of one token, one unlabelled,
    one whose gradient norms are constant.
    """
    columns = [f"importance_{name}" for name in MEASURES] + ["hidden_to_input_entropy"] if columns is None else columns
    texts = np.random.default_rng(len(identity.get("dataset", "sst")))
    own = np.random.default_rng([identity.get("seed", 10), *map(ord, repr(sorted(identity.items())))])
    rows = []
    for place in range(count):
        length = {2: 0, 3: 1}.get(place, int(texts.integers(4, 12)))
        scores = texts.normal(size=length) + own.normal(size=length)
        row = {"id": f"t/{place:02d}", "attention": attend(scores, identity.get("projection", "softmax"))}
        row |= {"label": int(texts.integers(2)) if place != 4 else None, "probs": own.dirichlet([1, 1])}
        for name in columns:
            row[name] = own.gamma(1.0, size=length).astype(np.float32)
        if "importance_gradient_norm" in row and place == 5:
            row["importance_gradient_norm"] = np.ones(length, np.float32)
        if "hidden_to_input_entropy" in row:
            row["hidden_to_input_entropy"] = own.uniform(0.3, 1, length) if length > 1 else np.full(length, np.nan)
        rows.append(row)
    sizes = {"train": 100, "validation": 20, "test": 30} if sizes else None
    return make(rows, sizes=sizes, columns=columns, **identity)


SWEPT = ("softmax", "sparsegen(-10)", "sparsegen(-0.5)", "sparsemax", "sparsegen(0.5)", "uniform")


def study(seeds=(10, 11, 12), projections=SWEPT, **identity):
    return [draw(projection=projection, seed=seed, **identity) for projection in projections for seed in seeds]


def variants():
    """Cells that are none of the paper's, of the same models and seeds, and of a seed of their own."""
    kinds = [
        {"objective": "untrained"},
        {"objective": "classification(attention rate x 10)", "projection": "sparsegen(-10)"},
        {"alignment": "additive(scale 1)", "projection": "sparsemax"},
        {"projection": "entmax(1.25)"},
        {"objective": "guided(bilstm+additive+softmax)"},
        {"objective": "adversarial(jsd, 1)", "alignment": "additive(scale 1)"},
    ]
    return [draw(seed=seed, **kind) for kind in kinds for seed in (10, 11, 77)]


def published(*rows):
    """Published numbers of dicts; what is not named is empty."""
    empty = {"table": 6, "dataset": "sst", "encoder": "bilstm", "alignment": "additive", "training": "", "std": np.nan}
    return pd.DataFrame([{**empty, "projection": "", "source": "a paper", **row} for row in rows])


def one(table, **values):
    """The only row of a table with these values."""
    rows = table[np.logical_and.reduce([table[name] == value for name, value in values.items()])]
    assert len(rows) == 1, f"{len(rows)} rows with {values}"
    return rows.iloc[0]


# -------------------------------------------------------------------------------------------------------- Table 6


def test_table6_is_what_scipy_gives():
    cells = study()
    table = tables.meister_table6(cells)
    assert list(dict.fromkeys(table["projection"])) == list(SWEPT)
    for projection in ("softmax", "sparsegen(-10)", "sparsemax"):
        for measure in MEASURES:
            row = one(table, projection=projection, statistic=f"tau attention–{measure}")
            seeds = []
            for cell in (cell for cell in cells if cell.heading["projection"] == projection):
                scores = cell.table.column(f"importance_{measure}").to_pylist()
                pairs = [pair for pair in zip(cell.attention, scores, strict=True) if len(pair[1]) > 1]
                taus = [kendalltau(*pair).statistic for pair in pairs if np.ptp(pair[1]) > 0]
                seeds.append(np.array(taus))
            assert row["mean"] == pytest.approx(np.mean([taus.mean() for taus in seeds]))
            assert row["std"] == pytest.approx(np.mean([taus.std() for taus in seeds]))
            assert row["sd_over_seeds"] == pytest.approx(np.std([taus.mean() for taus in seeds], ddof=1))
            assert row["n_seeds"] == 3 and row["n"] == sum(map(len, seeds)) and row["n"] + row["n_undefined"] == 3 * TEXTS
            assert row["ci_low"] < row["mean"] < row["ci_high"]
    constant = one(table, projection="softmax", statistic="tau attention–gradient_norm")
    assert constant["n_undefined"] == 3 * 3  # no token, one token, constant importance


def test_uniform_attention_has_no_tau():
    row = one(tables.meister_table6(study()), projection="uniform", statistic="tau attention–leave_one_out")
    assert np.isnan(row["mean"]) and row["n"] == 0 and row["n_undefined"] == 3 * TEXTS and row["n_seeds"] == 0
    number = {"projection": "uniform", "statistic": "tau attention–leave_one_out", "mean": 0.2}
    table = tables.meister_table6(study(), published(number))
    assert one(table, projection="uniform", statistic="tau attention–leave_one_out")["inside_seed_spread"] == "undefined"


# -------------------------------------------------------------------------------------------------------- Table 1


def test_table1_by_hand():
    def cell(seed, values):
        rows = [
            {"id": f"t/{place}", "attention": np.full(len(row), 1 / len(row)), "hidden_to_input_entropy": row}
            for place, row in enumerate(values)
        ]
        return make(rows, columns=["hidden_to_input_entropy"], seed=seed)

    nan = np.nan
    cells = [cell(1, [[0.2, 0.4], [0.9, nan, nan], [nan]]), cell(2, [[0.5, 0.5], [0.5, 0.5, 0.5], [nan]])]
    row = one(tables.meister_table1(cells), projection="softmax")
    assert row["mean"] == pytest.approx((0.6 + 0.5) / 2)  # (.3 + .9) / 2 and .5
    assert row["std"] == pytest.approx((0.3 + 0) / 2)
    assert row["sd_over_seeds"] == pytest.approx(0.1 / np.sqrt(2))
    assert (row["n"], row["n_undefined"], row["n_seeds"]) == (4, 2, 2)
    assert (row["n_states"], row["n_states_undefined"]) == (3 + 5, 3 + 1)
    assert row["mean_over_states"] == pytest.approx((0.5 + 0.5) / 2)
    assert row["std_over_states"] == pytest.approx((np.std([0.2, 0.4, 0.9]) + 0) / 2)


def test_table1_takes_the_cells_that_have_the_column():
    few = [draw(seed=10), draw(seed=11, columns=[]), draw(seed=12, projection="uniform", columns=[])]
    table = tables.meister_table1(few)
    assert len(table) == 1 and table["n_seeds"][0] == 1 and np.isnan(table["sd_over_seeds"][0])
    assert table["n"][0] + table["n_undefined"][0] == TEXTS
    assert not len(tables.meister_table1(few[1:]))


# -------------------------------------------------------------------------------------------------------- Table 2


def normalised(row):
    row = np.asarray(row, np.float64)
    return shannon(row) / np.log(len(row)) if len(row) > 1 else np.nan


def test_table2_is_what_scipy_gives():
    cells = study()
    table = tables.meister_table2(cells)
    swept = [cell for cell in cells if cell.heading["projection"] not in ("softmax", "uniform")]
    lambdas = np.array([{"sparsegen(-10)": -10, "sparsegen(-0.5)": -0.5, "sparsemax": 0, "sparsegen(0.5)": 0.5}
                        [cell.heading["projection"]] for cell in swept])  # fmt: skip
    support = np.array([np.mean([np.count_nonzero(row) for row in cell.attention if len(row)]) for cell in swept])
    share = np.array([np.mean([np.mean(row > 0) for row in cell.attention if len(row)]) for cell in swept])
    sides = {
        "lambda": lambdas,
        "-log10(1 - lambda)": -np.log10(1 - lambdas),
        "support size": support,
        "support share": share,
    }
    for measure in ("gradient_norm", "leave_one_out", "attention"):
        entropies = np.array([np.nanmean([normalised(row) for row in cell.scores(measure)]) for cell in swept])
        for against, values in sides.items():
            row = one(table, of=f"entropy of {measure}", against=against)
            for name, function in (("kendall", kendalltau), ("spearman", spearmanr), ("pearson", pearsonr)):
                assert row[name] == pytest.approx(function(values, entropies).statistic), (measure, against, name)
                assert row[f"{name}_ci_low"] <= row[name] <= row[f"{name}_ci_high"]
            seeds = np.array([cell.heading["seed"] for cell in swept])
            taus = [kendalltau(values[seeds == seed], entropies[seeds == seed]).statistic for seed in (10, 11, 12)]
            assert row["mean"] == pytest.approx(np.mean(taus)) and row["sd_over_seeds"] == pytest.approx(
                np.std(taus, ddof=1)
            )
            assert (row["n"], row["n_undefined"], row["n_lambdas"], row["n_seeds"]) == (12, 0, 4, 3)
    assert one(table, of="support size", against="lambda")["kendall"] < -0.8


def even(weight):
    """Gradient norms that grow more even with the weight."""
    return {"importance_gradient_norm": np.array([1.0, weight, weight, weight], np.float32)}


def sweep_of(weights, supports):
    """A sweep of four lambdas and three seeds, of one text each, with given evenness and support at each lambda."""
    names = ("sparsegen(-10)", "sparsegen(-1)", "sparsemax", "sparsegen(0.5)")
    cells = []
    for seed in (1, 2, 3):
        for name, weight, support in zip(names, weights, supports, strict=True):
            attention = np.where(np.arange(4) < support, 1 / support, 0)
            row = {"id": "a", "attention": attention, **even(weight + 0.001 * seed)}
            cells.append(make([row], columns=["importance_gradient_norm"], projection=name, seed=seed))
    return cells


@pytest.mark.parametrize(
    ("weights", "supports", "of", "against", "words"),
    [
        ([0.8, 0.6, 0.4, 0.2], [4, 3, 2, 1], "entropy of gradient_norm", "lambda",
         "entropy falls as lambda rises, that is as attention gets sparser"),
        ([0.2, 0.4, 0.6, 0.8], [4, 3, 2, 1], "entropy of gradient_norm", "lambda",
         "entropy rises as lambda rises, that is as attention gets sparser"),
        ([0.8, 0.6, 0.4, 0.2], [1, 2, 3, 4], "entropy of gradient_norm", "lambda",
         "entropy falls as lambda rises, though attention does not get sparser"),
        ([0.8, 0.6, 0.4, 0.2], [4, 3, 2, 1], "entropy of gradient_norm", "support size",
         "entropy rises as support size rises, that is falls as attention gets sparser"),
        ([0.2, 0.4, 0.6, 0.8], [4, 3, 2, 1], "entropy of gradient_norm", "support share",
         "entropy falls as support share rises, that is rises as attention gets sparser"),
        ([0.2, 0.8, 0.8, 0.2], [4, 3, 2, 1], "entropy of gradient_norm", "lambda", "no clear direction"),
        ([0.2, 0.8, 0.8, 0.2], [4, 3, 2, 1], "support size", "lambda",
         "support size falls as lambda rises: attention gets sparser"),
        ([0.2, 0.8, 0.8, 0.2], [1, 2, 3, 4], "support size", "lambda",
         "support size rises as lambda rises: attention gets less sparse"),
    ],
)  # fmt: skip
def test_the_sign_in_words(weights, supports, of, against, words):
    table = tables.meister_table2(sweep_of(weights, supports))
    assert one(table, of=of, against=against)["in_words"] == words


def test_a_constant_side_is_undefined():
    table = tables.meister_table2(sweep_of([0.8, 0.6, 0.4, 0.2], [2, 2, 2, 2]))
    row = one(table, of="entropy of gradient_norm", against="support size")
    assert np.isnan(row["kendall"]) and np.isnan(row["mean"]) and row["in_words"] == "undefined" and row["n"] == 12


def test_end_points_are_no_part_of_the_sweep():
    without = tables.meister_table2(study(projections=SWEPT[1:-1]))
    assert_frame_equal(tables.meister_table2(study()), without)


def test_one_seed_and_two_lambdas():
    table = tables.meister_table2(study((10,), ("sparsemax", "sparsegen(0.5)")))
    row = one(table, of="entropy of leave_one_out", against="lambda")
    assert row["n"] == 2 and row["n_seeds"] == 1 and abs(row["mean"]) == 1
    assert np.isnan(row["kendall"]) and np.isnan(row["sd_over_seeds"])
    assert not len(tables.meister_table2(study((10,), ("softmax", "uniform"))))


# -------------------------------------------------------------------------------------------------------- Table 3


def test_table3_by_hand():
    rows = [
        {"id": "a", "attention": [1.0], "probs": [0.9, 0.1], "label": 0},
        {"id": "b", "attention": [1.0], "probs": [0.9, 0.1], "label": 1},
        {"id": "c", "attention": [1.0], "probs": [0.2, 0.8], "label": 1},
        {"id": "d", "attention": [], "label": None},
    ]
    cells = [make(rows, seed=1, sizes={"train": 7, "test": 4}), make(rows[::-1][:3], seed=2)]
    numbers = [{"projection": "", "statistic": "accuracy", "mean": 0.6}, {"statistic": "n_train", "mean": 7}]
    numbers = published(*({"table": 3, **number} for number in numbers))
    numbers.loc[1, ["encoder", "alignment"]] = ""
    table = tables.meister_table3(cells, numbers)
    row = one(table, statistic="accuracy")
    assert row["mean"] == pytest.approx((2 / 3 + 1 / 2) / 2) and (row["n"], row["n_undefined"]) == (5, 2)
    assert row["difference"] == pytest.approx(row["mean"] - 0.6) and row["inside_seed_spread"] == "yes"
    size = one(table, statistic="n_train")
    assert (size["mean"], size["difference"], size["encoder"], size["inside_seed_spread"]) == (7, 0, "", "one seed")
    assert one(table, statistic="n_test")["mean"] == 4
    assert set(table["statistic"]) == {"n_train", "n_test", "accuracy"}


def test_published_accuracy_stands_beside_softmax_alone():
    number = published({"table": 3, "statistic": "accuracy", "mean": 0.5})
    table = tables.meister_table3(study(), number)
    assert list(table[table["published"].notna()]["projection"]) == ["softmax"]


def test_sizes_are_those_of_the_cells_own_run():
    cells = [draw(seed=1), draw(seed=2)]
    mixed = records.concatenate([cell.table for cell in cells])
    parts = [{**part, "run": {"sizes": {"train": 5 * place}}} for place, part in enumerate(records.settings(mixed))]
    first, second = split_cells(records.with_settings(mixed, parts))
    assert tables.split_sizes(first) == {"train": 0} and tables.split_sizes(second) == {"train": 5}
    assert tables.split_sizes(draw(sizes=False)) == {}


# -------------------------------------------------------------------------------------------------------- Table 5


def adversaries(seeds=(10, 11), **identity):
    kinds = ("adversarial(jsd, 1)", "adversarial(jsd, 1, frozen)")
    return [draw(seed=seed, projection="sparsemax", objective=kind, **identity) for kind in kinds for seed in seeds]


def test_table5_is_what_scipy_gives():
    attacks = adversaries((10, 11, 99))
    cells = [*study(), *attacks]
    table = tables.meister_table5(cells)
    assert set(table["projection"]) == {"sparsemax"} and len(table) == 2 * 4
    for training, chosen in (("unfrozen", attacks[:3]), ("frozen", attacks[3:])):
        expected = {"jsd": [], "tvd": [], "accuracy_difference": [], "accuracy": []}
        for cell in chosen:
            correct = (cell.predicted == cell.labels)[~np.isnan(cell.labels)]
            expected["accuracy"].append(np.mean(correct))
            bases = [base for base in cells if base.heading == {**cell.heading, "objective": "classification"}]
            for base in bases:
                pairs = [pair for pair in zip(cell.attention, base.attention, strict=True) if len(pair[0])]
                expected["jsd"].append(np.mean([jensenshannon(*pair) ** 2 for pair in pairs]))
                expected["tvd"].append(np.mean(np.abs(cell.probs - base.probs).sum(axis=1) / 2))
                mine, theirs = (np.mean((c.predicted == c.labels)[~np.isnan(c.labels)]) for c in (cell, base))
                expected["accuracy_difference"].append(mine - theirs)
        assert (len(expected["jsd"]), len(expected["accuracy"])) == (2, 3)  # seed 99 has no base
        for statistic, values in expected.items():
            row = one(table, training=training, statistic=statistic)
            assert row["mean"] == pytest.approx(np.mean(values), abs=1e-6), statistic
            assert row["sd_over_seeds"] == pytest.approx(np.std(values, ddof=1), abs=1e-6)
            assert row["n_seeds"] == len(values) and (row["weight"], row["divergence"]) == (1, "jsd")
    assert one(table, training="frozen", statistic="jsd")["n_undefined"] == 2  # the empty text of both seeds


def test_an_adversary_without_a_base_has_its_accuracy():
    other = draw(projection="softmax")  # of the seed, not of the projection
    assert set(tables.meister_table5([*adversaries((10,)), other])["statistic"]) == {"accuracy"}
    assert not len(tables.meister_table5(study()))


def test_adversaries_are_matched_by_instance():
    attack = adversaries((10,))[0]
    base = draw(projection="sparsemax")
    turned = split_cells(base.table.take(list(range(TEXTS))[::-1][:-3]))[0]
    whole, part = (one(tables.meister_table5([attack, b]), statistic="jsd") for b in (base, turned))
    assert whole["n"] == TEXTS - 1 and part["n"] == TEXTS - 3
    assert part["n"] + part["n_undefined"] == TEXTS


# ----------------------------------------------------------------------------------------------------- every table


def test_variants_do_not_reach_the_papers_tables():
    alone, mixed = (tables.tables(cells) for cells in (study(), [*variants(), *study()]))
    assert set(alone) == {"meister_table1", "meister_table2", "meister_table3", "meister_table6", "sparsity_sweep"}
    for name in alone:
        if name != "sparsity_sweep":
            assert_frame_equal(alone[name], mixed[name])
    assert len(mixed["sparsity_sweep"]) == len(alone["sparsity_sweep"]) + len(variants())


def test_nothing_depends_on_the_order_of_cells_or_rows():
    cells = [*study(), *adversaries()]
    turned = [split_cells(cell.table.take(list(range(len(cell)))[::-1]))[0] for cell in cells[::-1]]
    first, second = tables.tables(cells), tables.tables(turned)
    assert set(first) == set(second)
    for name in first:
        keys = [column for column in ("projection", "training", "statistic", "of", "against", "objective", "seed")
                if column in first[name]]  # fmt: skip
        one_way, other = (made[name].sort_values(keys, ignore_index=True) for made in (first, second))
        assert_frame_equal(one_way, other)


def test_what_is_missing_is_left_out():
    assert tables.tables([]) == {} and figures.figures([]) == {}
    bare = study((10,), ("softmax", "sparsemax"), columns=[], sizes=False)
    made = tables.tables(bare, pd.read_csv(PUBLISHED))
    assert set(made) == {"meister_table2", "meister_table3", "sparsity_sweep"}  # attention alone: its entropy and support
    assert set(made["meister_table2"]["of"]) == {"entropy of attention", "support size"}
    assert figures.figures(bare) == {}
    assert set(tables.tables(variants())) == {"sparsity_sweep"} and figures.figures(variants()) == {}


def test_a_cell_without_the_columns_is_not_counted():
    cells = [*study((10, 11), ("softmax",)), draw(seed=12, columns=[])]
    row = one(tables.meister_table6(cells), statistic="tau attention–leave_one_out")
    assert row["n_seeds"] == 2 and row["n"] + row["n_undefined"] == 2 * TEXTS


def test_cells_of_texts_without_anything():
    rows = [{"id": "a", "attention": [], "label": None, **{f"importance_{name}": [] for name in MEASURES}}]
    cells = [make(rows, projection=name, columns=[f"importance_{name}" for name in MEASURES]) for name in SWEPT]
    made = tables.tables(cells, pd.read_csv(PUBLISHED))
    row = one(made["meister_table6"], projection="sparsemax", statistic="tau attention–leave_one_out")
    assert np.isnan(row["mean"]) and (row["n"], row["n_undefined"]) == (0, 1)
    assert row["inside_seed_spread"] == "undefined"
    assert figures.figures(cells) == {}


def test_sweep_by_hand():
    rows = [
        {"id": "a", "attention": [0.5, 0.5, 0.0, 0.0], "importance_gradient_norm": [3.0, 3.0, 0.0, 0.0], "label": 1,
         "hidden_to_input_entropy": [0.2, 0.4, np.nan, np.nan], "probs": [0.1, 0.9]},
        {"id": "b", "attention": [1.0], "importance_gradient_norm": [2.0], "label": 0,
         "hidden_to_input_entropy": [np.nan], "probs": [0.2, 0.8]},
    ]  # fmt: skip
    columns = ["importance_gradient_norm", "hidden_to_input_entropy"]
    cell = make(rows, columns=columns, projection="sparsegen(-3)", alignment="dot(scale 2)", seed=4)
    row = tables.sparsity_sweep([cell]).iloc[0]
    assert (row["lambda"], row["score_scale"], row["attention_rate"], row["seed"], row["n"]) == (-3, 2, 1, 4, 2)
    assert np.isnan(row["alpha"])
    assert (row["support_size"], row["support_share"], row["support_size_n_undefined"]) == (1.5, 0.75, 0)
    assert (row["entropy_attention"], row["entropy_gradient_norm"]) == (0.5, 0.5)
    assert row["entropy_attention_n_undefined"] == 1
    assert row["entropy_hidden_to_input"] == pytest.approx(0.3) and row["entropy_hidden_to_input_n_undefined"] == 1
    assert row["tau_gradient_norm"] == 1 and row["tau_gradient_norm_n_undefined"] == 1
    assert np.isnan(row["tau_leave_one_out"]) and row["tau_leave_one_out_n_undefined"] == 2
    assert (row["accuracy"], row["roc_auc"]) == (0.5, 1.0)


# ------------------------------------------------------------------------------------------------ published numbers


def test_inside_the_seed_spread():
    """Means of seeds .2 and .4: mean .3, sample standard deviation .1414, so that .018..0.582 is inside."""

    def cell(seed, entropy, projection="softmax"):
        row = {"id": "a", "attention": [0.5, 0.5], "hidden_to_input_entropy": [entropy, entropy]}
        return make([row], columns=["hidden_to_input_entropy"], seed=seed, projection=projection)

    cells = [
        cell(1, 0.2),
        cell(2, 0.4),
        cell(1, 0.2, "sparsemax"),
        cell(1, np.nan, "sparsegen(0.5)"),
        cell(1, 0.1, "uniform"),
    ]
    for value, inside in ((0.58, "yes"), (0.59, "no"), (0.02, "yes"), (0.01, "no")):
        numbers = [{"projection": name, "mean": value, "std": 0.07} for name in ("softmax", "sparsemax", "sparsegen(0.5)")]
        numbers = published(*({"table": 1, "statistic": "hidden_to_input_entropy", **row} for row in numbers))
        table = tables.meister_table1(cells, numbers)
        expected = {"softmax": inside, "sparsemax": "one seed", "sparsegen(0.5)": "undefined", "uniform": "not published"}
        assert dict(zip(table["projection"], table["inside_seed_spread"], strict=True)) == expected
        row = one(table, projection="softmax")
        assert (row["published"], row["published_std"]) == (value, 0.07) and row["difference"] == pytest.approx(0.3 - value)
        assert np.isnan(one(table, projection="uniform")[["published", "published_std", "difference"]].astype(float)).all()


def test_every_published_number_stands_beside_a_measured_one():
    cells, numbers = [], pd.read_csv(PUBLISHED)
    for dataset in ("imdb", "sst", "20news_sports"):
        for encoder, alignment in (("bilstm", "additive"), ("transformer", "dot")):
            model = {"dataset": dataset, "encoder": encoder, "alignment": alignment}
            cells += study((10,), ("softmax", "sparsegen(-10)", "sparsemax", "sparsegen(0.5)", "uniform"), **model)
            cells += adversaries((10,), **model)
    rows = pd.concat(tables.tables(cells, numbers).values())
    rows = rows[rows["published"].notna()]
    assert len(rows) == len(numbers) == 114
    assert sorted(rows["published"]) == sorted(numbers["mean"])
    assert sorted(rows["published_std"].dropna()) == sorted(numbers["std"].dropna())
    row = one(rows, dataset="imdb", projection="sparsemax", encoder="transformer", statistic="tau attention–gradient_norm")
    assert (row["published"], row["published_std"]) == (0.44, 0.08)
    row = one(rows, dataset="20news_sports", of="entropy of gradient_norm", encoder="bilstm")
    assert row["published"] == -0.675 and row["against"] == "lambda"
    row = one(rows, dataset="sst", training="frozen", encoder="bilstm", statistic="accuracy_difference")
    assert row["published"] == -0.06


def test_bad_published_numbers_are_refused():
    number = {"statistic": "tau attention–leave_one_out", "mean": 0.5, "projection": "softmax"}
    with pytest.raises(ValueError, match=r"columns \['training'\] are missing; needed: table, dataset"):
        tables.tables([], published(number).drop(columns="training"))
    with pytest.raises(ValueError, match="a published number comes twice: .*'table': '6'.*; keep one of the two"):
        tables.tables([], published(number, number))
    with pytest.raises(ValueError, match="the column 'mean' holds a value that is no number"):
        figures.figures([], published(number | {"mean": "high"}))


# --------------------------------------------------------------------------------------------------------- figures


def panels(figure):
    return [axes for axes in figure.axes if axes.axison]


def test_bars_are_table_6():
    cells = [*study(), *study((10,), dataset="imdb"), *variants()]
    table = tables.meister_table6(cells)
    number = {"projection": "sparsemax", "statistic": "tau attention–leave_one_out", "mean": 0.123}
    by_name = figures.figures(cells, published(number))
    for name, measures in (
        ("meister_figure1", ["gradient_norm", "leave_one_out"]),
        ("meister_figure4", ["gradient_norm_hidden", "leave_one_out_reproject_hidden"]),
    ):
        for axes, measure in zip(panels(by_name[name]), measures, strict=True):
            bars = {(round(bar.get_x() + bar.get_width() / 2, 3)): bar.get_height() for bar in axes.patches}
            for place, dataset in enumerate(("sst", "imdb")):
                for shift, projection in ((-0.2, "softmax"), (0.2, "sparsemax")):
                    row = one(table, dataset=dataset, projection=projection, statistic=f"tau attention–{measure}")
                    assert bars[round(place + shift, 3)] == pytest.approx(row["mean"])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["sst", "imdb"]
    drawn = [points.get_offsets() for points in panels(by_name["meister_figure1"])[1].collections]
    assert any(np.allclose(np.ma.filled(places[:, 1], np.nan), 0.123) for places in drawn if len(places))


def test_error_bars_are_standard_deviations_over_texts():
    cells = study((10,), ("softmax",))
    row = one(tables.meister_table6(cells), statistic="tau attention–gradient_norm")
    line = panels(figures.figures(cells)["meister_figure1"])[0].containers[1].lines[2][0]
    low, high = line.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((row["mean"] - row["std"], row["mean"] + row["std"]))


@pytest.mark.parametrize(("name", "column"), [("meister_figure2", "entropy"), ("meister_figure3", "tau")])
def test_lines_are_the_sweep(name, column):
    cells = [*study(), *variants()]
    table = tables.sparsity_sweep(study())
    (axes,) = panels(figures.figures(cells)[name])
    swept = table.dropna(subset="lambda").sort_values("lambda")
    lines = [line for line in axes.lines if len(line.get_xdata())]
    for line, measure in zip(lines, ("gradient_norm", "leave_one_out"), strict=True):
        means = swept.groupby("lambda")[f"{column}_{measure}"].mean()
        assert line.get_ydata() == pytest.approx(means.to_numpy())
        assert line.get_xdata() == pytest.approx(-np.log10(1 - means.index.to_numpy()))
    words = [text.get_text() for text in axes.texts]
    assert words == (["no value"] if column == "tau" else [])  # under uniform attention
    places = dict(zip([label.get_text() for label in axes.get_xticklabels()], axes.get_xticks(), strict=True))
    assert places["uniform"] < places["softmax"] < places["−10"] < places["0"] < places[".5"] and places["0"] == 0


def test_published_taus_are_in_figure_3_alone():
    numbers = [{"projection": name, "mean": value} for name, value in (("softmax", 0.31), ("sparsemax", 0.42))]
    numbers = published(*({"statistic": "tau attention–leave_one_out", **number} for number in numbers))
    by_name = figures.figures(study((10,)), numbers)
    heights = {}
    for name in ("meister_figure2", "meister_figure3"):
        drawn = [np.ma.filled(points.get_offsets()[:, 1], np.nan) for points in panels(by_name[name])[0].collections[:-1]
                 if len(points.get_offsets())]  # fmt: skip
        heights[name] = np.concatenate(drawn)
    assert {0.31, 0.42} <= set(heights["meister_figure3"]) and not {0.31, 0.42} & set(heights["meister_figure2"])


def test_labels_keep_clear_of_one_another():
    grid = ("-1000", "-300", "-100", "-30", "-10", "-3", "-1", "-0.5", "-0.25", "0.25", "0.5", "0.75", "0.9", "0.95")
    projections = ("softmax", "uniform", "sparsemax", *(f"sparsegen({value})" for value in grid))
    cells = [*study((10,), projections), *study((10,), SWEPT, encoder="transformer", alignment="dot")]
    for name, figure in figures.figures(cells, pd.read_csv(PUBLISHED)).items():
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()
        for axes in panels(figure):
            labels = [label for label in axes.get_xticklabels() if label.get_text()]
            boxes = {label.get_text(): label.get_window_extent(renderer) for label in labels}
            for (first, one_box), (second, other) in combinations(boxes.items(), 2):
                assert not one_box.overlaps(other), f"{name}: {first} and {second}"


def test_models_and_data_sets_that_are_missing_leave_a_gap(tmp_path):
    cells = [*study((10,)), *study((10,), dataset="imdb", encoder="transformer", alignment="dot")]
    figure = figures.figures(cells)["meister_figure2"]
    titles = [axes.get_title(loc="left") for axes in panels(figure)]
    assert titles == [f"sst · bilstm + additive, n = {TEXTS}", f"imdb · transformer + dot, n = {TEXTS}"]
    assert len(figure.axes) == 4 and figure.axes[1].get_legend() is not None
    assert f"seed 10 · n = {2 * TEXTS}" in figure.texts[1].get_text()
    assert save_png(figure, tmp_path / "figure.png").stat().st_size > 1000


def test_data_sets_of_one_name_are_told_apart():
    cells = [*study((10,)), *study((10,), vectors="random(2)")]
    figure = figures.figures(cells)["meister_figure3"]
    assert [axes.get_title(loc="left").partition(" · ")[0] for axes in panels(figure)] == [
        "sst, random(1)",
        "sst, random(2)",
    ]


def test_they_are_in_the_analysis_of_a_study():
    cells = study((10,))
    made = analysis.tables(cells, Settings())
    assert set(tables.tables(cells)) <= set(made.tables)
    assert {f"meister_figure{number}" for number in (1, 2, 3, 4)} <= set(made.figures)
