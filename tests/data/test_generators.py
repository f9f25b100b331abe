"""What generators of exact evidence promise: the evidence decides, all else is silent, a row stands on its own."""

from collections import Counter

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy import stats

from attnfaith.data import planted_evidence
from attnfaith.data.planted_evidence import AFFIRMERS, DISTRACTORS, NEGATORS


PLANTED = {
    "planted": {},
    "planted, two together": {"n_evidence": 2},
    "planted, three times over": {"redundancy": 3, "distractors": 2},
    "planted, context, pairs, twice": {"needs_context": True, "n_evidence": 2, "redundancy": 2, "length": (14, 20)},
    "planted, few words": {"vocabulary_size": 12, "needs_context": True},
}
COUNTED = {"counting": {}, "counting, short": {"length": (3, 3)}}
CASES = PLANTED | COUNTED


def rows_of(case, n, seed=0, **options):
    generate = planted_evidence.count_digits if case in COUNTED else planted_evidence.generate
    return generate(n, seed, **CASES[case] | options)


def marked(row, mark=1):
    return [word for word, value in zip(row["text"].split(), row["rationale"], strict=True) if value == mark]


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.integers(0, 2**40), st.integers(0, 3), st.integers(1, 8), st.sampled_from(sorted(CASES)))
def test_a_row_does_not_depend_on_how_many_are_made(seed, stream, n, case):
    rows = rows_of(case, n, seed, stream=stream)
    assert rows == rows_of(case, n + 4, seed, stream=stream)[:n]
    assert rows_of(case, 30, seed, stream=stream) != rows_of(case, 30, seed, stream=stream + 1)
    assert all(len(row["rationale"]) == len(row["text"].split()) and 1 in row["rationale"] for row in rows)


@pytest.mark.parametrize(
    ("case", "arguments", "message"),
    [
        ("planted", {"evidence_removed": ["dev"]}, "evidence_removed"),
        ("planted", {"length": (1, 5), "n_evidence": 2}, "length"),
        ("planted", {"n_evidence": 0}, "n_evidence"),
        ("planted", {"vocabulary_size": 10**6}, "vocabulary_size"),
        ("planted", {"stream": -1}, "stream"),
        ("counting", {"length": (2, 5)}, "length"),
    ],
)
def test_arguments_out_of_range_are_refused(case, arguments, message):
    with pytest.raises(ValueError, match=message):  # of pydantic, or ours
        rows_of(case, 3, **arguments)


NEGATIVE, POSITIVE = planted_evidence.EVIDENCE.values()


def item_values(row):
    """The values of the evidence items of a text, a negator turning the value after it."""
    values, turned = [], False
    for word in marked(row):
        if word in NEGATORS + AFFIRMERS:
            turned = word in NEGATORS
        else:
            values.append(((word in POSITIVE) + turned) % 2)
            turned = False
    return values


@pytest.mark.parametrize("case", PLANTED)
def test_planted_words_are_as_asked_and_decide(case):
    """Removed evidence leaves labels and all other words."""
    arguments = PLANTED[case]
    redundancy, evidence = arguments.get("redundancy", 1), {*NEGATIVE, *POSITIVE, *NEGATORS, *AFFIRMERS}
    rows, lengths = rows_of(case, 200, 3), set()
    for row in rows:
        words = row["text"].split()
        items = arguments.get("n_evidence", 1) * redundancy
        assert sum(row["rationale"]) == items * (2 if arguments.get("needs_context") else 1)
        assert not evidence & set(marked(row, 0))
        assert sum(word in DISTRACTORS for word in words) == arguments.get("distractors", 0)
        lengths.add(len(words))
        values = item_values(row)
        if redundancy == 1:
            assert row["label"] == sum(values) % 2
        elif items == redundancy:
            assert values == [row["label"]] * redundancy
        else:  # the four items can be parted into two groups that each decide the label
            a, b, c, d = values
            sums = [(a + b, c + d), (a + c, b + d), (a + d, b + c)]
            assert any(item % 2 == row["label"] == other % 2 for item, other in sums)
    assert {*arguments.get("length", (10, 30))} <= lengths
    bare = rows_of(case, 100, 6, stream=1, evidence_removed=["train", "validation"])
    for row, without in zip(rows_of(case, 100, 6, stream=1), bare, strict=True):
        before, after, marks = row["text"].split(), without["text"].split(), row["rationale"]
        assert row["label"] == without["label"] and not any(without["rationale"])
        assert [old != new for old, new in zip(before, after, strict=True)] == [mark == 1 for mark in marks]


def test_neutral_words_are_independent_of_the_label():
    counts = {}
    for row in planted_evidence.generate(3000, 11, distractors=1):
        for word in marked(row, 0):
            counts.setdefault(word, [0, 0])[row["label"]] += 1
    table = np.array([pair for pair in counts.values() if sum(pair) >= 20])
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{"needs_context": True}, {"n_evidence": 3}])
def test_no_part_of_the_evidence_is_predictive(arguments):
    """Each gold word alone, and each pair of three items, is as frequent under one label as under the other."""
    rows = planted_evidence.generate(4000, 7, **arguments)
    labels = np.array([row["label"] for row in rows])
    signs = [[w in NEGATORS if w in NEGATORS + AFFIRMERS else w in POSITIVE for w in marked(row)] for row in rows]
    signs = np.array(signs, int)
    columns = list(signs.T)
    if "n_evidence" in arguments:
        columns += [(signs[:, i] + signs[:, j]) % 2 for i, j in ((0, 1), (0, 2), (1, 2))]
    for column in columns:
        table = np.array([[np.sum((column == value) & (labels == label)) for label in (0, 1)] for value in (0, 1)])
        assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("case", COUNTED)
def test_digits_are_counted_anew_from_the_text(case):
    lengths = set()
    for row in rows_of(case, 200, 3):
        first, second, *run = words = row["text"].split()
        counts = Counter(run)
        assert first != second and row["label"] == int(counts[first] > counts[second])
        assert row["rationale"] == [1, 1, *(int(word in (first, second)) for word in run)] and sum(row["rationale"]) > 2
        assert {*words} <= {*planted_evidence.DIGITS}
        lengths.add(len(words))
    assert {*COUNTED[case].get("length", (6, 14))} <= lengths
