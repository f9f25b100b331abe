"""Measures ranked by tests of explanations, on records whose truth is known."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import kendalltau

from attnfaith import cli
from attnfaith import record as records
from attnfaith.data.eraser import write_results
from attnfaith.metrics.attention_faithfulness.plausibility import plausibility_results, token_f1
from attnfaith.reporting import eraser, explanation_tests, render
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.sections import saliency
from tests.records import with_columns
from tests.sections import check_section


def tables(cells):
    return render.frames(saliency.SECTION, cells)


SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
NAMES = ("attention", "good", "random")
FALL = {"attention": 0.3, "good": 0.6, "random": 0.1}  # what removing a measure's first tokens costs


def erased(table, fall=FALL, *, seed=0, noise=0.05, soft=True, names=NAMES):
    """The record with tests by erasure in which a measure's rationale costs what `fall` says, with noise per text."""
    rng, count = np.random.default_rng(seed), table.num_rows
    falls = np.array([fall[name] for name in names])[:, None]
    kept_probs, removed, soft_kept, soft_removed = [], [], [], []
    for _ in range(count):
        draw = noise * rng.normal(size=(4, len(names), len(SHARES)))
        removed.append(np.clip(0.95 - falls + draw[0], 0, 1))
        kept_probs.append(np.clip(0.25 + falls + draw[1], 0, 1))
        soft_removed.append(np.clip(0.95 - falls + draw[2], 0, 1)[:, :4])
        soft_kept.append(np.clip(0.25 + falls + draw[3], 0, 1)[:, :4])
    empty = [records.rows(table, "tokens")[row].size == 0 for row in range(count)]
    for values in (kept_probs, removed):
        for row in np.flatnonzero(empty):
            values[row] = np.full((len(names), len(SHARES)), np.nan)
    columns = {
        "rationale_erasure_measures": [list(names)] * count,
        "rationale_erasure_shares": [list(SHARES)] * count,
        "rationale_erasure_kept_probs": kept_probs,
        "rationale_erasure_removed_probs": removed,
        "rationale_erasure_whole_prob": [0.95] * count,
        "rationale_erasure_empty_prob": [0.2] * count,
    }
    if soft:
        columns |= {
            "soft_erasure_measures": [list(names)] * count,
            "soft_erasure_kept_probs": soft_kept,
            "soft_erasure_removed_probs": soft_removed,
            "soft_erasure_whole_prob": [0.95] * count,
            "soft_erasure_empty_prob": [0.2] * count,
        }
    last = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    axes = {name: next((a for end, a in last.items() if name.endswith(end)), ()) for name in columns}
    return with_columns(table, columns, axes)


@pytest.fixture
def record(draw_record):
    return erased(draw_record(40, measures=("good", "random"), rationale=True))


@pytest.fixture
def cell(record):
    return split_cells(record)[0]


def test_every_test_by_hand(cell):
    results = explanation_tests.scores(cell)
    assert list(results) == list(explanation_tests.TESTS)
    row, place = 5, NAMES.index("good")
    kept_probs, removed = (
        records.rows(cell.table, f"rationale_erasure_{name}_probs")[row][place] for name in ("kept", "removed")
    )
    bins = [0, 1, 2, 3, 5]  # 30 % is none of ERASER's
    assert results["comprehensiveness"]["good"][row] == pytest.approx(np.mean(0.95 - removed[bins]))
    assert results["sufficiency"]["good"][row] == pytest.approx(np.mean(0.95 - kept_probs[bins]))
    length = cell.lengths[row]
    at = [0, *(np.ceil(np.array(SHARES) * length - 1e-9) / length), 1]
    assert results["deletion_area"]["good"][row] == pytest.approx(np.trapezoid([0.95, *removed, 0.2], at))
    assert results["insertion_area"]["good"][row] == pytest.approx(np.trapezoid([0.2, *kept_probs, 0.95], at))
    soft_kept, soft_removed = (records.rows(cell.table, f"soft_erasure_{n}_probs")[row][place] for n in ("kept", "removed"))
    scale = 0.75
    expected = np.mean(np.clip((0.95 - soft_removed) / scale, 0, 1))
    assert results["soft_comprehensiveness"]["good"][row] == pytest.approx(expected)
    assert results["soft_sufficiency"]["good"][row] == pytest.approx(np.mean(1 - np.clip((0.95 - soft_kept) / scale, 0, 1)))
    gold = records.rows(cell.table, "rationale")
    for name, values in plausibility_results(cell.scores("good"), gold).items():
        np.testing.assert_array_equal(results[name]["good"], values)
    assert np.isnan(results["comprehensiveness"]["good"][0])  # the empty text


def test_soft_tests_are_cut_to_the_unit_interval_draw_by_draw(draw_record):
    """A whole text is at .6 and an empty one at .5: some draws fall by more than that .1, some rise."""
    table = erased(draw_record(2, measures=("good", "random")))
    kept_probs, removed = [0.6, 0.55, 0.1, 0.9], [0.1, 0.57, 0.6, 0.9]
    drawn = {"kept_probs": kept_probs, "removed_probs": removed, "whole_prob": 0.6, "empty_prob": 0.5}
    for name, values in drawn.items():
        place = table.column_names.index(f"soft_erasure_{name}")
        field = table.schema.field(place)
        rows = [[values] * len(NAMES)] * 2 if isinstance(values, list) else [values] * 2
        table = table.set_column(place, field, pa.array(rows, field.type))
    results = explanation_tests.scores(split_cells(table)[0])
    for name in NAMES:
        # falls of .5, .03, 0 and -.3 of .1; kept: of 0, .05, .5 and -.3 of .1
        assert results["soft_comprehensiveness"][name] == pytest.approx(np.mean([1, 0.3, 0, 0]))
        assert results["soft_sufficiency"][name] == pytest.approx(np.mean([1, 0.5, 0, 1]))


def test_the_better_measure_is_better_by_every_test(cell):
    table = tables([cell])["saliency_tests"]
    for test in (
        "comprehensiveness",
        "sufficiency",
        "deletion_area",
        "insertion_area",
        "soft_comprehensiveness",
        "soft_sufficiency",
    ):
        part = table[table["test"] == test].set_index("measure")
        assert saliency.by_mean(table, test)["measure"].tolist() == ["good", "attention", "random"]
        # paired differences are positive where the measure is better, whichever way the test runs
        assert part.loc["good", "to_attention"] > 0 > part.loc["random", "to_attention"]
        assert part.loc["good", "to_random"] > part.loc["attention", "to_random"] > 0
        assert part.loc["good", "to_attention_p_holm"] < 0.01 and np.isnan(part.loc["attention", "to_attention"])
        values = explanation_tests.scores(cell)[test]
        sign = explanation_tests.TESTS[test].better
        assert part.loc["good", "to_attention"] == pytest.approx(np.nanmean(sign * (values["good"] - values["attention"])))
        assert part.loc["good", "mean"] == pytest.approx(np.nanmean(values["good"]))
        assert part.loc["good", "to_attention_ci_low"] <= part.loc["good", "to_attention"]
    assert set(table["n"] + table["n_undefined"]) == {40}
    assert table.set_index(["test", "measure"]).loc[("comprehensiveness", "good"), "n_undefined"] == 1


def test_differences_are_paired_and_corrected_by_hand():
    """Holm by hand over the p-values of sign flips, which brute force gives: of six texts, 2 / 64 where all lie on one
    side.
    """
    six, mixed = np.array([0.1, 0.11, 0.12, 0.13, 0.14, 0.15]), np.array([0.1, -0.11, 0.12, -0.13, 0.14, -0.05])
    values = {"attention": np.full(6, 0.3), "a": 0.3 + six, "b": 0.3 - np.abs(mixed) * [1, 1, 1, 1, 1, -1], "c": 0.3 + mixed}

    def p_by_brute_force(name):
        differences = values[name] - values["attention"]
        sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=6)]
        return np.mean(np.array(sums) >= abs(differences.sum()) - 1e-12)

    raw = {name: p_by_brute_force(name) for name in "abc"}
    assert raw["a"] == 2 / 64 < raw["b"] < raw["c"]
    results = saliency._against(values, 1, "attention")
    assert results["to_attention"][1:] == pytest.approx([six.mean(), np.mean(values["b"] - 0.3), mixed.mean()])
    assert results["to_attention_p_holm"][1:] == pytest.approx([3 * raw["a"], max(3 * raw["a"], 2 * raw["b"]), raw["c"]])
    assert np.isnan([numbers[0] for numbers in results.values()]).all()
    assert saliency._against(values, -1, "attention")["to_attention"][1] == pytest.approx(-six.mean())
    assert np.isnan(list(saliency._against(values, 1, "random").values())).all()


def test_the_rival_is_named_beforehand(draw_record):
    """Not the best measure, but the first of a list, whatever its numbers are."""
    names = ("attention", "gradient", "leave_one_out", "random")
    fall = {"attention": 0.3, "gradient": 0.6, "leave_one_out": 0.3, "random": 0.1}
    table = erased(draw_record(40, measures=("gradient", "leave_one_out", "random")), fall, names=names)
    (cell,) = split_cells(table)
    part = tables([cell])["saliency_tests"].query("test == 'comprehensiveness'").set_index("measure")
    assert set(part["rival"]) == {"leave_one_out"} and np.isnan(part.loc["leave_one_out", "to_rival"])
    assert part.loc["gradient", "to_rival_p_holm"] < 0.01 < part.loc["attention", "to_rival_p_holm"]
    (text,) = render.sentences(saliency.SECTION, cell)
    assert "better than random scores in 6 of 6 tests and worse in 0, better than leave-one-out in 0 of 6" in text
    assert saliency.rival(["absolute_integrated_gradients", *names]) == "absolute_integrated_gradients"
    assert saliency.rival(["attention", "random"]) is None


def test_a_measure_that_is_undefined_everywhere_has_no_number(draw_record):
    table = erased(draw_record(20, measures=("good", "random")))
    place = table.column_names.index("rationale_erasure_kept_probs")
    kept_probs = np.stack(records.rows(table, "rationale_erasure_kept_probs"))
    kept_probs[:, 1] = np.nan
    table = table.set_column(place, table.schema.field(place), pa.array(kept_probs.tolist(), table.schema.field(place).type))
    part = tables(split_cells(table))["saliency_tests"].query("test == 'sufficiency'").set_index("measure")
    assert part.loc["good", "n"] == 0 and part.loc["good", "n_undefined"] == 20
    assert part.loc["good", ["mean", "to_attention", "to_attention_p_holm"]].isna().all()


def test_agreement_of_every_two_measures(cell):
    table = tables([cell])["saliency_agreement"]
    assert list(zip(table["first"], table["second"], strict=True)) == list(itertools.combinations(NAMES, 2))
    taus = [
        kendalltau(a, b)[0] for a, b in zip(cell.attention, cell.scores("good"), strict=True) if len(a) > 1 and np.ptp(b) > 0
    ]
    row = table.iloc[0]
    assert row["tau"] == pytest.approx(np.mean(taus)) and row["n"] == len(taus) and row["n_undefined"] == 40 - len(taus)

    def first_fifth(values):
        return set(np.argsort(-values)[: int(np.ceil(0.2 * len(values)))])

    shares = [
        len(first_fifth(a) & first_fifth(b)) / len(first_fifth(a))
        for a, b in zip(cell.attention, cell.scores("good"), strict=True)
        if len(a) > 1 and np.ptp(b) > 0
    ]
    assert row["top_k_overlap"] == pytest.approx(np.mean(shares))


def test_signed_scores_and_zeros_are_ranked_as_they_are(build_record):
    """A token of negative score is a token, not one without weight."""
    item = {"attention": [0.1, 0.2, 0.3, 0.2, 0.2], "good": [-3.0, -2.0, -1.0, 0.0, -5.0], "random": [5.0, 4, 3, 2, 1]}
    (cell,) = split_cells(erased(build_record([item] * 2, measures=("good", "random")), soft=False))
    table = tables([cell])["saliency_agreement"].set_index(["first", "second"])
    assert table.loc[("good", "random"), "top_k_overlap"] == 0  # the fourth against the first
    assert table.loc[("attention", "good"), "n_overlap_undefined"] == 0


def test_signed_measures_by_their_size(draw_record):
    """Against marks, "absolute" is the size of the scores; it is no measure of the record's own in the matrix."""
    names = ("attention", "good", "absolute_good")
    fall = {"attention": 0.2, "good": 0.6, "absolute_good": 0.4}
    table = draw_record(20, measures=("good",), rationale=True)
    place = table.column_names.index("importance_good")
    signed = [row * np.where(np.arange(len(row)) % 2, 1, -1) for row in records.rows(table, "importance_good")]
    table = table.set_column(
        place, table.schema.field(place), pa.array([row.tolist() for row in signed], table.schema.field(place).type)
    )
    (cell,) = split_cells(erased(table, fall, names=names))
    gold = records.rows(cell.table, "rationale")
    results = explanation_tests.scores(cell)["average_precision"]
    np.testing.assert_array_equal(
        results["absolute_good"], plausibility_results([np.abs(r) for r in signed], gold)["average_precision"]
    )
    assert not np.array_equal(results["absolute_good"], results["good"], equal_nan=True)
    result = tables([cell])
    assert set(result["saliency_tests"]["measure"]) == set(names)
    assert result["saliency_agreement"][["first", "second"]].to_numpy().tolist() == [["attention", "good"]]


def test_what_is_said_counts_the_tests_that_speak_of_the_model(draw_record):
    """People's marks do not say what a model used; planted ones do. Without random scores chance is not known."""
    for dataset, tests in (("sst", 6), ("planted_evidence", 7)):
        (cell,) = split_cells(erased(draw_record(40, measures=("good", "random"), rationale=True, dataset=dataset)))
        assert f"of {tests} tests and worse" in render.sentences(saliency.SECTION, cell)[0]
    names = ("attention", "leave_one_out")
    table = erased(draw_record(40, measures=("leave_one_out",)), {"attention": 0.2, "leave_one_out": 0.6}, names=names)
    text = " ".join(render.sentences(saliency.SECTION, split_cells(table)[0]))
    assert "worse in 6" in text and "measure random_scores too" in text


def test_instances_tested_in_two_ways(record):
    place = record.column_names.index("rationale_erasure_measures")
    other = [list(NAMES)] * 39 + [["attention", "random", "good"]]
    mixed = record.set_column(place, record.schema.field(place), pa.array(other, record.schema.field(place).type))
    with pytest.raises(records.RecordError, match="'rationale_erasure_measures'"):
        tables(split_cells(mixed))


def marks(spans, length):
    """0 or 1 for each token, from spans as ERASER writes them."""
    ends = [(span["start_token"], span["end_token"]) for span in spans]
    return [int(any(start <= place < stop for start, stop in ends)) for place in range(length)]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_written_for_erasers_evaluation(cell, tmp_path):
    """Their AOPC, by the loop of their code's definition, of the file is our mean over texts; their F1 our token F1."""
    path = write_results(tmp_path / "good.jsonl", eraser.results(cell, "good"))
    instances = lines(path)
    assert len(instances) == 39  # all but the empty text
    results = explanation_tests.scores(cell)
    for test in ("comprehensiveness", "sufficiency"):
        falls = []
        for item in instances:
            name = item["classification"]
            of = {part["threshold"]: part[f"{test}_classification_scores"][name] for part in item["thresholded_scores"]}
            falls += [item["classification_scores"][name] - of[share] for share in (0.01, 0.05, 0.1, 0.2, 0.5)]
        assert np.mean(falls) == pytest.approx(np.nanmean(results[test]["good"]))
    lengths = dict(zip(cell.instance_ids, cell.lengths.tolist(), strict=True))
    chosen = [
        marks(item["rationales"][0]["hard_rationale_predictions"], lengths[item["annotation_id"]]) for item in instances
    ]
    gold = dict(zip(cell.instance_ids, records.rows(cell.table, "rationale"), strict=True))
    f1 = token_f1(chosen, [gold[item["annotation_id"]] for item in instances])[2]
    assert np.nanmean(f1) == pytest.approx(np.nanmean(results["token_f1"]["good"]))
    with pytest.raises(ValueError, match="no tests of 'other'; the cell holds those of attention, good, random"):
        eraser.results(cell, "other")


def test_the_command_writes_erasers_files(record, draw_record, tmp_path, capsys):
    """Texts, evidence, and each measure's results, read again as they were; empty texts have no results."""
    records.save(record, tmp_path / "record.parquet")
    assert cli.main(["eraser", str(tmp_path / "record.parquet"), "--output", str(tmp_path / "out"), "--share", "0.5"]) == 0
    (cell,) = split_cells(record)
    rows = lines(tmp_path / "out" / f"{cell.heading['split']}.jsonl")
    labelled_rows = [row for row in record.to_pylist() if row["label"] is not None]
    texts = {line["docid"]: line["document"].split() for line in lines(tmp_path / "out" / "docs.jsonl")}
    assert [texts[row["annotation_id"]] for row in rows] == [row["tokens"] for row in labelled_rows]
    for row, of_record in zip(rows, labelled_rows, strict=True):
        evidence = [span for group in row["evidences"] for span in group]
        assert marks(evidence, len(of_record["tokens"])) == of_record["rationale"]
    assert [row["classification"] for row in rows] == [str(row["label"]) for row in labelled_rows]
    for name in NAMES:
        lengths = {row["instance_id"]: len(row["tokens"]) for row in labelled_rows}
        results = lines(tmp_path / "out" / "results" / f"{name}.jsonl")
        assert [row["annotation_id"] for row in results] == [item for item, length in lengths.items() if length]
        scores = dict(zip(cell.instance_ids, cell.scores(name), strict=True))
        for row in results:
            (rationale,), length = row["rationales"], lengths[row["annotation_id"]]
            np.testing.assert_array_equal(rationale["soft_rationale_predictions"], scores[row["annotation_id"]])
            assert sum(marks(rationale["hard_rationale_predictions"], length)) == -(-length // 2)
    records.save(draw_record(5), tmp_path / "untested.parquet")
    for name, message in (("untested", "no measure was tested by erasure; measure"), ("absent", "absent.parquet")):
        assert cli.main(["eraser", str(tmp_path / f"{name}.parquet"), "--output", str(tmp_path / "no")]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_grids(record, draw_record):
    second = erased(draw_record(30, measures=("good", "random"), rationale=True, projection="sparsemax", seed=1))
    cells = split_cells(records.concatenate([record, second]))
    tests, agreement = render.grids(saliency.SECTION, tables(cells), cells)
    assert tests.columns[:4] == ("projection", "seed", "measure", "texts") and len(tests.rows) == 6
    assert tests.rows[1][2] == "good" and float(tests.rows[1][4]) > float(tests.rows[0][4])
    assert "↓" in tests.columns[5]
    assert [row[2] for row in agreement.rows[:3]] == list(NAMES)
    assert agreement.rows[0][3] == "—" and agreement.rows[1][4] == "—"
    assert render.grids(saliency.SECTION, {}, cells) == []


def test_the_contract_of_sections(cell):
    check_section(saliency.SECTION, cell)


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "x" * 300, ".x", "-x", "x y"])
def test_eraser_files_stay_in_their_folder(name, draw_record, tmp_path, capsys):
    """Neither a split nor a measure, which are texts of the record, leads out of the folder or names a hidden file."""
    hostile = {
        "split": erased(draw_record(6, measures=("good", "random"), rationale=True, split=name)),
        "measure": erased(
            draw_record(6, measures=("good", "random"), rationale=True), FALL | {name: 0.5}, names=(*NAMES, name)
        ),
    }
    for what, result in hostile.items():
        records.save(result, tmp_path / "hostile.parquet")
        assert cli.main(["eraser", str(tmp_path / "hostile.parquet"), "--output", str(tmp_path / "deep" / "out")]) == 2, what
        assert "no file is called" in capsys.readouterr().err
        assert [path.name for path in tmp_path.rglob("*")] == ["hostile.parquet"]
