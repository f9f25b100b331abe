import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score

from attnfaith import record as records
from attnfaith.reporting import (
    agreement_table,
    performance_table,
    plausibility_table,
    save_table,
    seed_summary,
)
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import performance
from attnfaith.reporting.tables import format_number


MEASURES = ("gradient", "leave_one_out")
IDENTITY = list(records.HEADING)


def row_of(table, **wanted):
    results = table[np.logical_and.reduce([table[name] == value for name, value in wanted.items()])]
    assert len(results) == 1
    return results.iloc[0]


@pytest.fixture
def tiny(build_record):
    """Four texts: tau with gradient by hand is 1, 1/3, undefined (constant) and undefined (empty)."""
    return build_record(
        [
            {
                "attention": [0.1, 0.2, 0.7],
                "gradient": [1, 2, 3],
                "leave_one_out": [3, 2, 1],
                "probs": [0.9, 0.1],
                "label": 0,
            },
            {
                "attention": [0.2, 0.3, 0.5],
                "gradient": [1, 3, 2],
                "leave_one_out": [1, 2, 3],
                "probs": [0.2, 0.8],
                "label": 1,
            },
            {"attention": [0.5, 0.5], "gradient": [1, 2], "leave_one_out": [1, 2], "probs": [0.3, 0.7], "label": 0},
            {"attention": [], "gradient": [], "leave_one_out": [], "probs": [0.6, 0.4], "truncated": True},
        ],
        measures=MEASURES,
    )


def test_agreement_by_hand(tiny):
    table = agreement_table(tiny)
    assert list(table["pair"].unique()) == [
        "attention–gradient",
        "attention–leave_one_out",
        "gradient–leave_one_out",
    ]
    assert list(table["class"].unique()) == ["overall", "0", "1"]
    overall = row_of(table, pair="attention–gradient", **{"class": "overall"})
    assert (overall["n"], overall["n_undefined"]) == (2, 2)
    assert overall["tau_mean"] == pytest.approx(2 / 3)
    assert overall["tau_std"] == pytest.approx(1 / 3)
    assert overall["share_significant"] == 0  # three tokens cannot reach p <= 0.05
    assert overall["tie_ceiling"] == 1
    class_1 = row_of(table, pair="attention–gradient", **{"class": "1"})
    assert (class_1["n"], class_1["n_undefined"]) == (1, 1)
    assert class_1["tau_mean"] == pytest.approx(1 / 3)
    assert np.isnan(class_1["ci_low"])
    assert row_of(table, pair="gradient–leave_one_out", **{"class": "0"})["tau_mean"] == -1
    assert row_of(table, pair="gradient–leave_one_out", **{"class": "overall"})["n"] == 3


def test_agreement_against_scipy(draw_record):
    record = draw_record(60)
    table = agreement_table(record)
    predicted = np.array([row.argmax() for row in records.rows(record, "probs")])
    for pair, first, second in [
        ("attention–leave_one_out", "attention", "importance_leave_one_out"),
        ("gradient–leave_one_out", "importance_gradient", "importance_leave_one_out"),
    ]:
        rows = zip(records.rows(record, first), records.rows(record, second), strict=True)
        results = [kendalltau(x, y) if len(x) > 1 else (np.nan, np.nan) for x, y in rows]
        tau, p = np.array([f[0] for f in results]), np.array([f[1] for f in results])
        for name, members in [("overall", predicted >= 0), ("0", predicted == 0), ("1", predicted == 1)]:
            row = row_of(table, pair=pair, **{"class": name})
            defined = members & ~np.isnan(tau)
            assert row["n"] == defined.sum()
            assert row["n"] + row["n_undefined"] == members.sum()
            assert row["tau_mean"] == pytest.approx(tau[defined].mean())
            assert row["tau_std"] == pytest.approx(tau[defined].std())
            assert row["share_significant"] == pytest.approx((p[defined] <= 0.05).mean())
            assert row["ci_low"] < row["tau_mean"] < row["ci_high"]


def test_no_importance_gives_an_empty_table_with_its_columns(draw_record):
    table = agreement_table(draw_record(5, measures=()))
    assert len(table) == 0
    assert {"pair", "class", "tau_mean", "n_undefined"} <= set(table.columns)
    assert len(seed_summary(table)) == 0


def test_performance_by_hand(tiny):
    row = performance_table(tiny).iloc[0]
    assert (row["n"], row["n_without_label"], row["n_truncated"], row["n_empty"]) == (4, 1, 1, 1)
    assert row["accuracy"] == pytest.approx(2 / 3)
    assert row["f1_class_0"] == pytest.approx(2 / 3)
    assert row["f1_class_1"] == pytest.approx(2 / 3)
    assert row["roc_auc"] == 1
    assert row["length_mean"] == 2 and row["length_median"] == 2.5
    assert row["max_attention"] == pytest.approx((0.7 + 0.5 + 0.5) / 3)
    assert row["support_share"] == 1
    first, second = ([0.1, 0.2, 0.7], [0.2, 0.3, 0.5])
    entropies = [-sum(p * np.log(p) for p in row_) / np.log(3) for row_ in (first, second)]
    assert row["normalised_entropy"] == pytest.approx((sum(entropies) + 1) / 3, abs=1e-6)
    assert row["n_entropy_undefined"] == 1


def test_performance_against_sklearn(draw_record):
    record = draw_record(80)
    row = performance_table(record).iloc[0]
    labels = np.array(record.column("label").to_pylist(), dtype=float)
    labelled = ~np.isnan(labels)
    probs = np.stack(records.rows(record, "probs"))[labelled]
    labels = labels[labelled]
    assert row["accuracy"] == pytest.approx((probs.argmax(1) == labels).mean())
    assert row["roc_auc"] == pytest.approx(roc_auc_score(labels, probs[:, 1]))
    expected = f1_score(labels, probs.argmax(1), average=None)
    assert [row["f1_class_0"], row["f1_class_1"]] == pytest.approx(list(expected))
    text = performance.accuracy_in_words(one_cell(record))
    assert text.startswith(f"accuracy {accuracy_score(labels, probs.argmax(1)):.2f} (")
    assert f"(F1 of class 0: {expected[0]:.2f}, of class 1: {expected[1]:.2f}) over {labelled.sum()} texts with" in text


def test_cells_with_other_numbers_of_classes_share_one_table(draw_record):
    record = records.concatenate([draw_record(30, classes=3, dataset="three"), draw_record(30, dataset="two")])
    table = performance_table(record).set_index("dataset")
    assert np.isnan(table.loc["two", "f1_class_2"]) and not np.isnan(table.loc["three", "f1_class_2"])
    assert np.isnan(table.loc["three", "roc_auc"])


def test_plausibility_against_sklearn(draw_record):
    record = draw_record(40, rationale=True)
    table = plausibility_table(record)
    assert list(table["scores"]) == ["attention", *MEASURES]
    gold = records.rows(record, "rationale")
    for name, column in [("attention", "attention"), ("gradient", "importance_gradient")]:
        pairs = [(g, s) for g, s in zip(gold, records.rows(record, column), strict=True) if 0 < g.sum() < len(g)]
        row = row_of(table, scores=name)
        assert (row["n"], row["n"] + row["n_undefined"]) == (len(pairs), 40)
        assert row["n_undefined"] >= 1  # the empty text
        assert row["auprc_mean"] == pytest.approx(np.mean([average_precision_score(g, s) for g, s in pairs]))
        assert row["uniform_baseline"] == pytest.approx(np.mean([g.mean() for g, _ in pairs]))
        assert row["ci_low"] < row["auprc_mean"] < row["ci_high"]
        assert row["uniform_baseline"] < row["random_baseline"] < row["auprc_mean"]


def test_texts_with_all_or_none_marked_are_counted(draw_record):
    record = draw_record(12, rationale=True)
    place, gold = record.column_names.index("rationale"), records.rows(record, "rationale")
    long = [row for row in range(12) if len(gold[row]) > 1]
    for row in range(12):
        gold[row] = np.arange(len(gold[row])) < 1.0
    gold[long[0]], gold[long[1]] = np.ones_like(gold[long[0]]), np.zeros_like(gold[long[1]])
    kind = record.schema.field(place)
    marked = record.set_column(place, kind, pa.array([row.astype(float).tolist() for row in gold], kind.type))
    assert set(plausibility_table(marked)["n"]) == {len(long) - 2}
    assert set(plausibility_table(marked)["n_undefined"]) == {12 - len(long) + 2}


def test_seed_summary_counts_undefined_seeds():
    table = pd.DataFrame(
        {"dataset": "sst", "pair": ["a", "a", "a", "b"], "seed": [0, 1, 2, 0], "tau_mean": [0.1, 0.3, np.nan, 0.5]}
    )
    summary = seed_summary(table).set_index("pair")
    assert list(summary.columns) == ["dataset", "statistic", "n_seeds", "n_undefined", "mean", "std", "min", "max"]
    assert summary.loc["a", ["n_seeds", "n_undefined"]].tolist() == [3, 1]
    assert summary.loc["a", "mean"] == pytest.approx(0.2)
    assert summary.loc["a", "std"] == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert (summary.loc["a", "min"], summary.loc["a", "max"]) == (0.1, 0.3)
    assert summary.loc["b", "n_seeds"] == 1 and np.isnan(summary.loc["b", "std"])


def test_seed_summary_refuses_what_it_cannot_summarise():
    with pytest.raises(ValueError, match="needs a column 'seed'"):
        seed_summary(pd.DataFrame({"tau_mean": [1.0]}))
    with pytest.raises(ValueError, match="a seed comes twice"):
        seed_summary(pd.DataFrame({"pair": ["a", "a"], "seed": [0, 0], "tau_mean": [1.0, 2.0]}))


def test_saved_tables_come_back(tiny, tmp_path):
    table = agreement_table(tiny)
    paths = save_table(table, tmp_path / "sub" / "agreement.v1")
    assert [path.name for path in paths] == ["agreement.v1.csv", "agreement.v1.md", "agreement.v1.parquet"]
    pd.testing.assert_frame_equal(pd.read_parquet(paths[2]), table)
    csv = pd.read_csv(paths[0], dtype=str, keep_default_na=False)
    assert list(csv.columns) == list(table.columns)
    for name in ("tau_mean", "tau_std", "ci_low"):
        np.testing.assert_array_equal(csv[name].astype(float), table[name])  # every digit
    for name in ("pair", "class", "projection"):
        assert list(csv[name]) == list(table[name])
    assert "NaN" in set(csv["ci_low"])
    lines = paths[1].read_text().splitlines()
    assert len(lines) == len(table) + 2
    header = [part.strip().replace("\\_", "_") for part in lines[0].strip("|").split("|")]
    assert header == list(table.columns)
    first = dict(zip(header, (part.strip() for part in lines[2].strip("|").split("|")), strict=True))
    assert (first["n"], first["tau_mean"]) == ("2", "0.667")
    assert "undefined" in lines[3] and "nan" not in paths[1].read_text().lower()
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in save_table(table, tmp_path / "sub" / "agreement.v1")] == before
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == [path.name for path in paths]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (-0.0001, "0.000"), (float("nan"), "undefined"), (7, "7"), (True, "True"), (None, "undefined")]
    + [(np.int64(3), "3"), (np.float32(0.5), "0.500"), (float("inf"), "inf"), ("x", "x"), (-0.25, "-0.250")],
)
def test_numbers_for_reading(value, text):
    assert format_number(value) == text


def test_instances_with_other_numbers_of_classes_in_one_cell_are_refused(build_record):
    record = build_record([{"attention": [1.0], "probs": [0.5, 0.5]}, {"attention": [1.0], "probs": [0.2, 0.3, 0.5]}])
    with pytest.raises(records.RecordError, match=r"\[2, 3\] classes"):
        performance_table(record)
