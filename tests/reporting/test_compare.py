"""Records side by side: what is shared is compared, a known difference is told, none is never called equal."""

import re

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting.compare import compare
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.page.comparison import comparison_page, sentences
from attnfaith.stats import holm
from tests.records import build, draw


ROWS = ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])


def one(correct, gradient=(3.0, 2.0, 1.0), **fields):
    """A cell whose texts are right where `correct` says so; its tau is 1 of every other text, else -1."""
    instances = [
        {"label": int(right), "probs": [0.1, 0.9], "attention": ROWS[number % 2], "gradient": gradient}
        for number, right in enumerate(correct)
    ]
    return build(instances, measures=("gradient",), **fields)


def row(comparison, quantity):
    (only,) = comparison.frame[comparison.frame["quantity"] == quantity].to_dict("records")
    return only


def test_a_known_difference_is_told_with_its_sign():
    worse, better = one([0] * 30 + [1] * 10), one([1] * 30 + [0] * 10, projection="sparsemax")
    comparison = compare([worse, better], ["w", "b"])
    assert comparison.sides == ("w", "b") and comparison.n_texts == 40
    correct = row(comparison, "correct")
    assert (correct["mean_first"], correct["mean_second"], correct["difference"]) == (0.25, 0.75, 0.5)
    assert 0 < correct["ci_low"] < 0.5 < correct["ci_high"] and correct["verdict"] == "higher" and correct["over"] == "texts"
    assert row(compare([better, worse], ["b", "w"]), "correct")["verdict"] == "lower"
    same = row(comparison, "tau attention–gradient")
    assert same["difference"] == 0 and same["verdict"] == "cannot be told", "no difference shown is not called equal"


def test_the_whole_table_is_one_family():
    first, second = draw(40, seed=1), draw(40, seed=1, projection="sparsemax")
    frame = compare([first, second], ["a", "b"]).frame
    assert frame["p_holm"].tolist() == holm(frame["p_value"]).tolist() and len(frame) == 3
    weak = one([1, 1, 1, 1, 1, 1] + [0] * 30), one([0] * 36, projection="sparsemax")
    correct = row(compare(weak, ["a", "b"]), "correct")
    assert correct["p_value"] == pytest.approx(2 / 2**6) and correct["p_holm"] == pytest.approx(4 / 2**6)
    assert correct["ci_high"] < 0 and correct["verdict"] == "cannot be told", "significant alone, not among two numbers"


def test_texts_are_matched_by_id_and_words():
    first = build([{"id": f"t/{n}", "attention": [1.0], "tokens": [f"w{n}"], "label": 1} for n in range(6)])
    ids = {4: ["w4"], 3: ["other"], 2: ["w2"], 9: ["w9"]}
    second = build(
        [{"id": f"t/{n}", "attention": [1.0], "tokens": words, "label": 0} for n, words in ids.items()],
        projection="sparsemax",
    )
    comparison = compare([first, second], ["a", "b"])
    assert comparison.n_texts == 2, "t/2 and t/4; t/3 has other words, t/9 is in one only"
    assert row(comparison, "correct")["difference"] == -1.0
    assert "Texts left out, which not all have or read alike: a 4, b 2." in comparison.notes


def test_seeds_of_one_kind_are_one_side_and_paired():
    right = {1: [1, 1, 1, 0], 2: [1, 1, 0, 0], 3: [1, 0, 1, 0]}
    tables = [one(v * 5, seed=s) for s, v in right.items()]
    tables += [one([0] * 20, seed=s, projection="sparsemax") for s in (1, 2, 3)]
    comparison = compare(tables, list("abcdef"))
    assert comparison.sides == ("softmax", "sparsemax")
    correct = row(comparison, "correct")
    means = np.mean([np.mean(v) for v in right.values()])
    assert correct["over"] == "seeds and texts" and correct["mean_first"] == pytest.approx(means)
    assert correct["difference"] == pytest.approx(-means) and correct["verdict"] == "lower"
    assert correct["ci_low"] < -means < correct["ci_high"] < 0
    shuffled = compare(tables[::-1], list("fedcba"))
    assert row(shuffled, "correct")["difference"] == pytest.approx(means)


def test_seeds_without_a_partner_are_left_out_and_told():
    tables = [one([1, 0] * 5, seed=1), one([0, 0] * 5, seed=2), one([1, 1] * 5, seed=2, projection="sparsemax")]
    comparison = compare(tables, list("abc"))
    assert row(comparison, "correct")["difference"] == 1.0, "seed 2 against seed 2"
    assert "Seeds of the first side and of c that are paired: 2 and 2." in comparison.notes
    apart = compare([*tables[:2], *(one([1, 1] * 5, seed=s, projection="sparsemax") for s in (8, 9))], list("abcd"))
    assert row(apart, "correct")["difference"] == 0.75
    assert "Seeds of the first side and of sparsemax that are paired: 1 and 8, 2 and 9." in apart.notes


def test_seeds_of_one_model_alone_are_compared_with_each_other():
    comparison = compare([one([1] * 8, seed=1), one([0] * 8, seed=2)], ["a", "b"])
    assert comparison.sides == ("a", "b") and row(comparison, "correct")["difference"] == -1.0
    twice = compare([one([1] * 8), one([0] * 8)], ["run", "run"])
    assert twice.sides == ("run (1)", "run (2)"), "the same cell trained otherwise, such as with another learning rate"


def test_numbers_that_only_one_has_are_named():
    comparison = compare([draw(30, measures=("gradient", "lime")), draw(30, projection="sparsemax")], ["a", "b"])
    assert list(comparison.frame["quantity"]) == ["tau attention–gradient", "correct"]
    left = "Not compared, as not all have them: tau attention–lime, tau attention–leave_one_out."
    assert left in comparison.notes


def test_what_cannot_be_compared_is_one_line():
    table = one([1] * 4)
    with pytest.raises(ReportError, match="needs two models or more; given: a"):
        compare([table], ["a"])
    other = build([{"id": "x/1", "attention": [1.0]}], projection="sparsemax")
    with pytest.raises(ReportError, match="a and b have no text in common"):
        compare([table, other], ["a", "b"])
    other = build([{"id": "t/000", "attention": [1.0], "tokens": ["x"]}], projection="sparsemax")
    with pytest.raises(ReportError, match="no text in common"):
        compare([table, other], ["a", "b"])
    made = [
        records.with_settings(t, [{"version": version}])
        for t, version in ((table, "1.0.0"), (one([0] * 4, projection="sparsemax"), "1.1.0"))
    ]
    with pytest.raises(records.RecordError, match=r"1\.0, 1\.1"):
        compare(made, ["a", "b"])
    assert compare(made, ["a", "b"], mix_versions=True).n_texts == 4


def test_it_shows_itself_and_escapes_names():
    comparison = compare([one([1] * 4), one([0] * 4, projection="sparsemax")], ["<b>a</b>", "b\x1b[31m"])
    assert "<b>a</b>" not in comparison.html() and "&lt;b&gt;a&lt;/b&gt;" in comparison.html()
    assert "\x1b" not in str(comparison)
    assert re.search(r"1\.000 +0\.000 +-1\.000", str(comparison))


def test_the_page_tells_accuracy_first_then_two_taus():
    measures = ("gradient", "leave_one_out", "integrated_gradients", "lime")
    sides = [draw(40, measures=measures), draw(40, measures=measures, projection="sparsemax")]
    comparison = compare(sides, ["<b>a</b>", "b"])
    told = list(sentences(comparison, {"<b>a</b>": "A", "b": "B"}))
    assert [words for words, _ in told] == [
        "Which is right more often cannot be told.",
        "Whose attention orders words more as integrated gradients does cannot be told.",
        "Whose attention orders words more as leave-one-out does cannot be told.",
    ]
    html = comparison_page(comparison)
    assert html.count("<table") == html.count("<svg") == 1 and "<b>a</b>" not in html and "<script" not in html
    assert html.count("<circle") == 2 * len(measures), "a mark for each side"
    assert all(f"<td>{value}</td>" in html for line in comparison.grid.rows for value in line[2:])


def test_a_difference_is_told_in_a_sentence():
    comparison = compare([one([0] * 30 + [1] * 10), one([1] * 30 + [0] * 10, projection="sparsemax")], ["w", "b"])
    told = next(sentences(comparison, {"w": "A", "b": "B"}))
    assert told[0] == "B is right more often than A." and told[1].startswith("A 0.25, B 0.75; difference 0.50 [")
    three = compare([draw(40), draw(40, projection="sparsemax"), draw(40, projection="uniform")], ["a", "b", "c"])
    html = comparison_page(three)
    assert ">gradient, B<" in html and ">gradient, C<" in html and html.count("right more often") == 2
