"""Records side by side: shared numbers are compared, a known difference is reported, none is never called equal."""

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting.cells import ReportError
from attnfaith.reporting.compare import compare, comparison_page, sentences
from attnfaith.stats import holm
from tests.records import build, draw
from tests.sequence_records import build as build_pairs


ROWS = ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])


def model(correct, **fields):
    """A cell whose texts are right where `correct` says so; its tau is 1 of every other text, else -1."""
    texts = [
        {"label": int(right), "probs": [0.1, 0.9], "attention": ROWS[number % 2], "gradient": (3.0, 2.0, 1.0)}
        for number, right in enumerate(correct)
    ]
    return build(texts, measures=("gradient",), **fields)


def sparse(correct, **fields):
    return model(correct, projection="sparsemax", **fields)


def row_of(comparison, quantity="correct"):
    (row,) = comparison.frame[comparison.frame["quantity"] == quantity].to_dict("records")
    return row


def test_a_known_difference_has_its_sign_and_none_is_not_called_equal():
    worse, better = model([0] * 30 + [1] * 10), sparse([1] * 30 + [0] * 10)
    comparison = compare([worse, better], ["w", "b"])
    assert comparison.sides == ("w", "b") and len(comparison.texts) == 40
    row = row_of(comparison)
    assert (row["mean_first"], row["mean_second"], row["difference"]) == (0.25, 0.75, 0.5)
    assert 0 < row["ci_low"] < 0.5 < row["ci_high"] and row["verdict"] == "higher" and row["over"] == "texts"
    assert row_of(compare([better, worse], ["b", "w"]))["verdict"] == "lower"
    same = row_of(comparison, "tau attention–gradient")
    assert same["difference"] == 0 and same["verdict"] == "cannot be told"
    sentence, numbers = next(sentences(comparison, {"w": "A", "b": "B"}))
    assert sentence == "B is right more often than A." and numbers.startswith("A 0.25, B 0.75; difference 0.500 [")


def test_the_whole_table_is_one_family():
    frame = compare([draw(40, seed=1), draw(40, seed=1, projection="sparsemax")], ["a", "b"]).frame
    assert frame["p_holm"].tolist() == holm(frame["p_value"]).tolist() and len(frame) == 3
    comparison = compare([model([1] * 6 + [0] * 30), sparse([0] * 36)], ["a", "b"])
    row = row_of(comparison)
    assert (row["p_value"], row["p_holm"]) == pytest.approx((2 / 2**6, 4 / 2**6))
    assert row["ci_high"] < 0 and row["verdict"] == "cannot be told", "significant alone, not among two numbers"
    _, numbers = next(sentences(comparison, {"a": "A", "b": "B"}))
    assert numbers.endswith(", corrected p 0.062, 36 texts.")


def test_texts_are_matched_by_id_and_words_and_numbers_by_name():
    first = build([{"id": f"t/{n}", "attention": [1.0], "tokens": [f"w{n}"], "label": 1} for n in range(6)])
    ids = {4: ["w4"], 3: ["other"], 2: ["w2"], 9: ["w9"]}
    texts = [{"id": f"t/{n}", "attention": [1.0], "tokens": words, "label": 0} for n, words in ids.items()]
    comparison = compare([first, build(texts, projection="sparsemax")], ["a", "b"])
    assert len(comparison.texts) == 2, "t/2 and t/4; t/3 has other words, t/9 is in one only"
    assert row_of(comparison)["difference"] == -1.0
    assert "Texts left out, which not all have or read alike: a 4, b 2." in comparison.notes
    pairs = [build_pairs([(["a"], ["x"]), (["b"], [word])], seed=seed) for seed, word in ((1, "y"), (2, "z"))]
    assert compare(pairs, ["a", "b"]).texts == ("pairs/0",), "the other pair has another target"
    comparison = compare([draw(30, measures=("gradient", "lime")), draw(30, projection="sparsemax")], ["a", "b"])
    assert list(comparison.frame["quantity"]) == ["tau attention–gradient", "correct"]
    assert "Not compared, as not all have them: tau attention–lime, tau attention–leave_one_out." in comparison.notes


def test_seeds_of_one_kind_are_one_side_and_paired():
    right = {1: [1, 1, 1, 0], 2: [1, 1, 0, 0], 3: [1, 0, 1, 0]}
    tables = [*(model(values * 5, seed=seed) for seed, values in right.items()), *(sparse([0] * 20, seed=s) for s in right)]
    comparison, mean = compare(tables, list("abcdef")), np.mean(list(right.values()))
    row = row_of(comparison)
    assert comparison.sides == ("softmax", "sparsemax") and row["over"] == "seeds and texts" and row["verdict"] == "lower"
    assert (row["mean_first"], row["difference"]) == pytest.approx((mean, -mean))
    assert row["ci_low"] < -mean < row["ci_high"] < 0
    assert row_of(compare(tables[::-1], list("fedcba")))["difference"] == pytest.approx(mean)
    far = [model([0] * 10, seed=seed) for seed in (1, 2)]
    far += [sparse([1] * right + [0] * (10 - right), seed=seed) for seed, right in ((1, 9), (2, 6))]
    assert row_of(compare(far, list("abcd")))["ci_high"] == 1, "no interval leaves the range of a difference of shares"
    tables = [model([1, 0] * 5, seed=1), model([0, 0] * 5, seed=2)]
    comparison = compare([*tables, sparse([1, 1] * 5, seed=2)], list("abc"))
    assert row_of(comparison)["difference"] == 1.0, "seed 2 against seed 2"
    assert "Seeds of the first side and of c that are paired: 2 and 2." in comparison.notes
    comparison = compare([*tables, *(sparse([1, 1] * 5, seed=s) for s in (8, 9))], list("abcd"))
    assert row_of(comparison)["difference"] == 0.75
    assert "Seeds of the first side and of sparsemax that are paired: 1 and 8, 2 and 9." in comparison.notes
    comparison = compare(tables, ["a", "b"])
    assert comparison.sides == ("a", "b") and row_of(comparison)["difference"] == -0.5, "seeds of one model alone"
    assert [note.rpartition("random(0.25)")[2] for note in comparison.notes[1:3]] == [" · seed 1", " · seed 2"]
    unknown = compare([model([1] * 8, seed=records.UNKNOWN_SEED), model([0] * 8)], ["a", "b"])
    assert unknown.notes[1].startswith("a: sst (test) · bilstm") and "seed" not in unknown.notes[1]
    assert compare([model([1] * 8), model([0] * 8)], ["run", "run"]).sides == ("run (1)", "run (2)"), "trained otherwise"


def test_records_that_cannot_be_compared():
    table = model([1] * 4)
    with pytest.raises(ReportError, match="needs two models or more; given: a"):
        compare([table], ["a"])
    for text in ({"id": "x/1", "attention": [1.0]}, {"id": "t/000", "attention": [1.0], "tokens": ["x"]}):
        with pytest.raises(ReportError, match="a and b have no text in common"):
            compare([table, build([text], projection="sparsemax")], ["a", "b"])
    versions = {"1.0.0": table, "1.1.0": sparse([0] * 4)}
    tables = [records.with_settings(side, [{"version": version}]) for version, side in versions.items()]
    with pytest.raises(records.RecordError, match=r"1\.0, 1\.1"):
        compare(tables, ["a", "b"])
    assert len(compare(tables, ["a", "b"], mix_versions=True).texts) == 4


def test_the_page_has_accuracy_first_then_two_taus_and_escapes_names():
    measures = ("gradient", "leave_one_out", "integrated_gradients", "lime")
    sides = [draw(40, measures=measures), draw(40, measures=measures, projection="sparsemax")]
    comparison = compare(sides, ["<b>a</b>", "b\x1b[31m"])
    assert [sentence for sentence, _ in sentences(comparison, {"<b>a</b>": "A", "b": "B"})] == [
        "Which is right more often cannot be told.",
        "Whose attention orders words more as integrated gradients does cannot be told.",
        "Whose attention orders words more as leave-one-out does cannot be told.",
    ]
    page = comparison_page(comparison)
    assert page.count("<table") == page.count("<svg") == 1 and "<script" not in page
    assert page.count("<circle") == 2 * len(measures), "a mark for each side"
    assert all(f"<td>{value}</td>" in page for line in comparison.grid.rows for value in line[2:])
    for html in (page, comparison.html()):
        assert "<b>a</b>" not in html and "&lt;b&gt;a&lt;/b&gt;" in html
    assert "\x1b" not in str(comparison)
    page = comparison_page(compare([*sides, draw(40, measures=measures, projection="uniform")], ["a", "b", "c"]))
    assert page.count("<circle") == 3 * len(measures) and page.count("right more often") == 2
