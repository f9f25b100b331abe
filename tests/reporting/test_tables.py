"""Tables of agreement, performance and plausibility by other routes; files; tables over seeds that people paste."""

import io

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from attnfaith import record as records
from attnfaith.reporting.cells import ReportError, one_cell, split_cells
from attnfaith.reporting.sections import agreement, performance, saliency
from attnfaith.reporting.seed_tables import overview, seed_table
from attnfaith.reporting.tables import Grid, over_seeds, table_files
from tests.records import build, draw, replaced


NAN = float("nan")
MEASURES = ("gradient", "leave_one_out")


@pytest.fixture(scope="module")
def tiny():
    """Four texts: tau with gradient by hand is 1, 1/3, undefined (constant) and undefined (empty)."""
    texts = (
        ([0.1, 0.2, 0.7], [1, 2, 3], [3, 2, 1], [0.9, 0.1], 0, False),
        ([0.2, 0.3, 0.5], [1, 3, 2], [1, 2, 3], [0.2, 0.8], 1, False),
        ([0.5, 0.5], [1, 2], [1, 2], [0.3, 0.7], 0, False),
        ([], [], [], [0.6, 0.4], None, True),
    )
    names = ("attention", *MEASURES, "probs", "label", "truncated")
    return build([dict(zip(names, text, strict=True)) for text in texts], measures=MEASURES)


def test_agreement_by_hand(tiny):
    table = agreement.TABLE.frame(split_cells(tiny))
    assert list(table["pair"].unique()) == ["attention–gradient", "attention–leave_one_out", "gradient–leave_one_out"]
    rows = table.set_index(["pair", "class"])
    row = rows.loc[("attention–gradient", "overall")]
    assert (row["n"], row["n_undefined"], row["tie_ceiling"]) == (2, 2, 1)
    assert row["share_significant"] == 0  # three tokens cannot reach p <= 0.05
    assert (row["tau_mean"], row["tau_std"]) == pytest.approx((2 / 3, 1 / 3))
    row = rows.loc[("attention–gradient", "1")]
    assert (row["n"], row["n_undefined"]) == (1, 1) and np.isnan(row["ci_low"])
    assert rows.loc[("gradient–leave_one_out", "0"), "tau_mean"] == -1


def test_agreement_against_scipy():
    record = draw(60)
    table, cell = agreement.TABLE.frame(split_cells(record)).set_index(["pair", "class"]), one_cell(record)
    pairs = zip(cell.attention, cell.scores("leave_one_out"), strict=True)
    tau, p = np.transpose([kendalltau(x, y) if len(x) > 1 else (np.nan, np.nan) for x, y in pairs])
    classes = {str(number): cell.predicted == number for number in (0, 1)}
    for name, members in {"overall": np.ones(60, bool), **classes}.items():
        row, defined = table.loc[("attention–leave_one_out", name)], members & ~np.isnan(tau)
        assert (row["n"], row["n"] + row["n_undefined"]) == (defined.sum(), members.sum())
        assert (row["tau_mean"], row["tau_std"]) == pytest.approx((tau[defined].mean(), tau[defined].std()))
        assert row["share_significant"] == pytest.approx((p[defined] <= 0.05).mean())
        assert row["ci_low"] < row["tau_mean"] < row["ci_high"]
    empty = agreement.TABLE.frame(split_cells(draw(5, measures=())))
    assert len(empty) == 0 and {"pair", "class", "tau_mean"} <= set(empty.columns)


def test_performance_by_hand(tiny):
    entropies = [-sum(p * np.log(p) for p in weights) / np.log(3) for weights in ([0.1, 0.2, 0.7], [0.2, 0.3, 0.5])]
    expected = {
        **{"n": 4, "n_without_label": 1, "n_truncated": 1, "n_empty": 1, "length_mean": 2, "length_median": 2.5},
        **{"accuracy": 2 / 3, "f1_class_0": 2 / 3, "f1_class_1": 2 / 3, "roc_auc": 1, "support_share": 1},
        **{"max_attention": (0.7 + 0.5 + 0.5) / 3, "normalised_entropy": (sum(entropies) + 1) / 3},
        "n_entropy_undefined": 1,
    }
    row = performance.TABLE.frame(split_cells(tiny)).iloc[0]
    assert row[list(expected)].to_dict() == pytest.approx(expected, abs=1e-6)


def test_performance_against_sklearn():
    cell = one_cell(draw(80))
    row, labelled = performance.TABLE.frame([cell]).iloc[0], ~np.isnan(cell.labels)
    labels, predicted, probs = cell.labels[labelled], cell.predicted[labelled], cell.probs[labelled]
    assert row["accuracy"] == pytest.approx((predicted == labels).mean())
    assert row["roc_auc"] == pytest.approx(roc_auc_score(labels, probs[:, 1]))
    f1 = f1_score(labels, predicted, average=None)
    assert [row["f1_class_0"], row["f1_class_1"]] == pytest.approx(list(f1))
    scores = f"(F1 of class 0: {f1[0]:.2f}, of class 1: {f1[1]:.2f}) over {labelled.sum()} texts with"
    assert performance.accuracy_in_words(cell).startswith(f"accuracy {row['accuracy']:.2f} {scores}")
    record = records.concatenate([draw(30, classes=3, dataset="three"), draw(30, dataset="two")])
    table = performance.TABLE.frame(split_cells(record)).set_index("dataset")
    assert np.isnan(table.loc["two", "f1_class_2"]) and not np.isnan(table.loc["three", "f1_class_2"])


def test_plausibility_against_sklearn():
    cell = one_cell(draw(40, rationale=True))
    table = saliency.EVIDENCE.frame([cell]).set_index("scores")
    assert list(table.index) == ["attention", *MEASURES]
    for name in ("attention", "gradient"):
        pairs = [(g, s) for g, s in zip(cell.rows("rationale"), cell.scores(name), strict=True) if 0 < g.sum() < len(g)]
        row = table.loc[name]
        assert (row["n"], row["n"] + row["n_undefined"]) == (len(pairs), 40)
        assert row["auprc_mean"] == pytest.approx(np.mean([average_precision_score(g, s) for g, s in pairs]))
        assert row["uniform_baseline"] == pytest.approx(np.mean([g.mean() for g, _ in pairs]))
        assert row["ci_low"] < row["auprc_mean"] < row["ci_high"]
        assert row["uniform_baseline"] < row["random_baseline"] < row["auprc_mean"]
    gold = [np.arange(len(row)) < 1.0 for row in cell.attention]
    gold[5], gold[6] = np.ones_like(gold[5]), np.zeros_like(gold[6])  # all marked, none marked
    marked = saliency.EVIDENCE.frame(split_cells(replaced(cell.table, "rationale", [np.float64(row) for row in gold])))
    assert set(marked["n"]) == {40 - 4} and set(marked["n_undefined"]) == {4}  # an empty text, and one of a token


# ---------- files, and the spread over seeds


def test_saved_tables_come_back(tiny):
    table = agreement.TABLE.frame(split_cells(tiny))
    files = table_files(table, "agreement.v1")
    assert list(files) == ["agreement.v1.csv", "agreement.v1.md", "agreement.v1.parquet"]
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(files["agreement.v1.parquet"])), table)
    csv = pd.read_csv(io.BytesIO(files["agreement.v1.csv"]), dtype=str, keep_default_na=False)
    assert list(csv.columns) == list(table.columns) and "NaN" in set(csv["ci_low"])
    for name in ("tau_mean", "tau_std", "ci_low"):
        np.testing.assert_array_equal(csv[name].astype(float), table[name])  # every digit
    lines = files["agreement.v1.md"].decode().replace("\\_", "_").splitlines()
    assert lines[0] == f"| {' | '.join(table.columns)} |" and "| 2 | 2 | 0.667 |" in lines[2] and "undefined" in lines[3]


def test_the_spread_over_seeds_counts_undefined_ones():
    table = pd.DataFrame({"pair": ["a", "a", "a", "b"], "seed": [0, 1, 2, 0], "n": 9, "tau_mean": [0.1, 0.3, np.nan, 0.5]})
    summary = over_seeds(table).query("statistic == 'tau_mean'").set_index("pair")
    expected = {"n_seeds": 3, "n_undefined": 1, "mean": 0.2, "std": np.std([0.1, 0.3], ddof=1), "min": 0.1, "max": 0.3}
    assert summary.loc["a", list(expected)].to_dict() == pytest.approx(expected)
    assert summary.loc["b", "n_seeds"] == 1 and np.isnan(summary.loc["b", "std"])
    with pytest.raises(ReportError, match="a seed comes twice"):
        over_seeds(table.assign(seed=0))


# ---------- tables that people paste


def cell_of(share, seed, **fields):
    """A cell of which this share of the texts is right."""
    text = {"probs": [0.1, 0.9], "attention": [0.6, 0.4], "gradient": [2.0, 1.0]}
    texts = [{**text, "label": int(number < share * 10)} for number in range(10)]
    return one_cell(build(texts, measures=("gradient",), seed=seed, **fields))


def lines(table):
    return list(map(list, table.grid.rows))


@pytest.fixture(scope="module")
def three():
    """Accuracy .5, .6, .7 of three seeds of bilstm; .8 of one of cnn."""
    return [*(cell_of(share, seed) for seed, share in ((1, 0.5), (2, 0.6), (3, 0.7))), cell_of(0.8, 1, encoder="cnn")]


def test_mean_and_spread_over_seeds_and_none_of_one(three):
    table = seed_table(three, ["encoder"], "quantity", where={"quantity": "correct"})
    assert table.grid.columns == ("encoder", "accuracy")
    assert lines(table) == [["bilstm", "0.600 ± 0.100"], ["cnn", "0.800 (n = 1)"]]
    assert "over 3 seeds" in table.grid.note
    numbers = pd.read_csv(io.StringIO(table.formatted("csv")))
    assert list(numbers.columns) == ["encoder", "quantity", "mean", "std", "n_seeds", "n_undefined"]
    np.testing.assert_allclose(numbers["std"], [np.std([0.5, 0.6, 0.7], ddof=1), np.nan])
    alone = seed_table(three[-1:], ["encoder"], "measure")
    assert lines(alone) == [["cnn", "1.000"]] and "one seed, so no spread" in alone.grid.note


def test_the_wide_tables_tell_texts_of_one_data_set_apart():
    """A model on texts without some words, of another seed than one on whole texts: these are no two seeds of one kind."""
    cells = [one_cell(draw(20, seed=1)), one_cell(draw(20, seed=2, training_texts="without"))]
    for table in overview(cells):
        assert table.grid.columns[:3] == ("dataset", "encoder", "training_texts")
        assert [row[2] for row in lines(table)] == [cells[0].identity.training_texts, "without"]


def test_numbers_over_seeds_are_those_of_the_reports_tables():
    cells = [one_cell(draw(40, seed=seed)) for seed in (1, 2, 3)]
    taus = agreement.TABLE.frame(cells).query("`class` == 'overall' and pair == 'attention–gradient'")["tau_mean"]
    expected = f"{taus.mean():.3f} ± {taus.std():.3f}"
    assert lines(seed_table(cells, ["encoder"], "measure"))[0][1] == expected
    assert lines(seed_table(cells, ["measure"], "encoder"))[0] == ["gradient", expected]
    each = lines(seed_table(cells, ["seed"], "measure"))
    assert [line[:2] for line in each] == [[str(seed), f"{tau:.3f}"] for seed, tau in zip((1, 2, 3), taus, strict=True)]


def test_undefined_and_not_measured_are_told_apart():
    flat = [{"attention": [0.5, 0.5], "gradient": [1.0, 1.0]}]
    cells = [one_cell(build(flat, measures=("gradient",), seed=seed, encoder="cnn")) for seed in (1, 2)]
    cells += [cell_of(1.0, 1), one_cell(build(flat, measures=("gradient",), seed=2))]
    cells.append(one_cell(build([{"attention": [0.6, 0.4], "lime": [2.0, 1.0]}], measures=("lime",), encoder="average")))
    table = seed_table(cells, ["encoder"], "measure")
    assert table.grid.columns == ("encoder", "gradient", "LIME")
    assert lines(table) == [["cnn", "undefined", "–"], ["bilstm", "1.000 (n = 1)", "–"], ["average", "–", "1.000 (n = 1)"]]


def test_a_place_holds_one_number(three):
    cells = [*three, cell_of(1.0, 1, projection="sparsemax")]
    message = r"2 numbers would stand at bilstm, gradient: they differ in projection \(softmax, spa"
    with pytest.raises(ReportError, match=message):
        seed_table(cells, ["encoder"], "measure")
    both = seed_table(cells, ["encoder", "projection"], "measure")
    assert [line[:2] for line in lines(both)] == [["bilstm", "softmax"], ["cnn", "softmax"], ["bilstm", "sparsemax"]]
    assert lines(seed_table(cells, ["encoder"], "measure", where={"projection": "sparsemax"})) == [["bilstm", "1.000"]]


@pytest.mark.parametrize(
    ("rows", "column", "where", "message"),
    [
        (["encodr"], "measure", {}, "no 'encodr' to name rows or columns by; choose from dataset, "),
        (["encoder"], "encoder", {}, "name one key or more for rows, another here"),
        (["encoder"], "measure", {"encoder": "x"}, "no number has encoder 'x'; there are bilstm, cnn"),
    ],
)
def test_names_that_are_not_there_are_refused_with_those_that_are(three, rows, column, where, message):
    with pytest.raises(ReportError, match=message):
        seed_table(three, rows, column, where)


@pytest.fixture
def hostile():
    text = r"a_b & 50 % $x$ #1 {y} \z ~ ^ | <i> τ"
    return Grid("a & b", ("encoder", "m|_"), ((text, "0.500 ± 0.100 (n = 3)"),), 1, "a note")


def test_names_are_escaped(hostile):
    line = hostile.formatted("markdown").splitlines()[2]
    assert line.count(" | ") == 1 and "&lt;i&gt;" in line
    latex = hostile.formatted("latex")
    assert (
        r"a\_b \& 50 \% \$x\$ \#1 \{y\} \textbackslash z \textasciitilde \space \textasciicircum \space | <i> $\tau$ &"
        in latex
    )
    assert "0.500 ± 0.100 (n = 3)" in latex
