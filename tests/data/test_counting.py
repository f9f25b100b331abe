"""The counting task's promises: its evidence decides, all else is silent, and a row stands on its own."""

from collections import Counter

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy import stats

from attnfaith.data.counting import DIGITS, decide, generate
from attnfaith.data.loading import load_splits
from attnfaith.errors import DatasetError


KNOBS = {
    "plain": {},
    "short": {"length": (3, 3)},
    "few digits": {"vocabulary_size": 3},
    "all asked": {"asked_share": 1.0},
    "rarely asked": {"asked_share": 0.01, "length": (20, 40)},
    "skewed": {"class_balance": [0.8, 0.2]},
}
knobs = pytest.mark.parametrize("arguments", KNOBS.values(), ids=list(KNOBS))


@knobs
def test_label_and_evidence_by_hand(arguments):
    """Counted anew from the text: label, length, and the marks on every place of either digit, none elsewhere."""
    low, high = arguments.get("length", (6, 14))
    lengths = set()
    for row in generate(200, 3, **arguments):
        words = row["text"].split()
        first, second, *run = words
        counts = Counter(run)
        assert first != second and row["label"] == int(counts[first] > counts[second])
        assert row["rationale"] == [1, 1, *(int(word in (first, second)) for word in run)]
        assert set(words) <= {*DIGITS[: arguments.get("vocabulary_size", 10)]} and sum(row["rationale"]) >= 3
        assert low <= len(words) <= high and row["text"] == " ".join(words)
        assert row["label"] == decide(words) == decide([w for w, m in zip(words, row["rationale"], strict=True) if m])
        lengths.add(len(words))
    assert {low, high} <= lengths


def test_decide_by_hand():
    assert decide(["3", "7", "3", "1", "7", "3"]) == 1
    assert decide(["3", "7", "3", "7", "3", "7"]) == 0  # as often is not more often
    assert decide(["3", "7", "7"]) == 0 and decide(["3", "7"]) == 0 and decide(["7", "3", "7"]) == 1
    for words in (["3"], ["3", "3", "1"], ["more", "3", "1"]):
        with pytest.raises(DatasetError, match="does not ask about two different digits"):
            decide(words)


@pytest.mark.parametrize("balance", [[1, 0], [0, 1]])
def test_all_but_the_counts_is_drawn_without_the_label(balance):
    """Forcing either label leaves question, length, places and every other digit as they were."""
    for row, forced in zip(generate(80, 9), generate(80, 9, class_balance=balance), strict=True):
        assert forced["label"] == balance.index(1) and forced["rationale"] == row["rationale"]
        pairs = zip(row["text"].split(), forced["text"].split(), row["rationale"], strict=True)
        assert all(one == other for place, (one, other, mark) in enumerate(pairs) if place < 2 or not mark)


def test_places_and_digits_say_nothing_of_the_label_and_counts_do():
    rows = generate(3000, 5)
    labels = np.array([row["label"] for row in rows])
    held, length = (np.array([of(row["rationale"]) for row in rows]) for of in (sum, len))
    asked = np.array([int(row["text"][0]) for row in rows])
    for column in (held, length, asked):
        table = np.array([[np.sum((column == v) & (labels == c)) for c in (0, 1)] for v in np.unique(column)])
        assert stats.chi2_contingency(table[table.sum(1) >= 20]).pvalue > 1e-3
    more = np.array([row["text"].split()[2:].count(row["text"][0]) for row in rows])
    assert stats.ttest_ind(more[labels == 1], more[labels == 0]).pvalue < 1e-100  # and such a test can fail


@pytest.mark.slow
def test_balance_and_share_are_kept():
    rows = generate(4000, 0, class_balance=[0.7, 0.3], asked_share=0.25, length=(42, 42))
    assert stats.binomtest(sum(row["label"] for row in rows), 4000, 0.3).pvalue > 1e-3
    held = sum(sum(row["rationale"]) - 2 for row in rows)
    assert stats.binomtest(held, 4000 * 40, 0.25).pvalue > 1e-3


@knobs
def test_removed_evidence_leaves_all_else(arguments):
    rows, bare = (
        generate(100, 6, stream=1, **arguments, **removed) for removed in ({}, {"evidence_removed": ["validation"]})
    )
    for row, without in zip(rows, bare, strict=True):
        before, after = row["text"].split(), without["text"].split()
        assert row["label"] == without["label"] and not any(without["rationale"]) and after[:2] == before[:2]
        assert not {*after[:2]} & {*after[2:]}
        assert [one != other for one, other in zip(before[2:], after[2:], strict=True)] == [
            m == 1 for m in row["rationale"][2:]
        ]


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.integers(0, 2**40), st.integers(0, 3), st.integers(1, 12), st.sampled_from(sorted(KNOBS)))
def test_a_row_does_not_depend_on_how_many_are_made(seed, stream, n, case):
    arguments = KNOBS[case]
    assert generate(n, seed, stream=stream, **arguments) == generate(n + 5, seed, stream=stream, **arguments)[:n]


def test_loaded_by_name():
    loaded = load_splits("counting", seed=4, asked_share=0.3, sizes={"train": 30, "test": 7})
    assert loaded.revision == "generated-1(asked_share=0.3,seed=4)" and loaded.label_names == ["not_more", "more"]
    assert {split: len(rows) for split, rows in loaded.splits.items()} == {"train": 30, "validation": 500, "test": 7}
    assert loaded.splits["test"]["rationale"][0] == generate(1, 4, stream=2, asked_share=0.3)[0]["rationale"]
    texts = [text for rows in loaded.splits.values() for text in rows["text"]]
    assert len(set(texts)) > 0.95 * len(texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"evidence_removed": ["dev"]}, r"list of splits \(train, validation, test\); \['dev'\]"),
        ({"length": (2, 5)}, r"at least 3 words, the two that ask and one digit; \(2, 5\)"),
        ({"length": (9, 5)}, "length must be"),
        ({"asked_share": 0}, "above 0 and at most 1; 0 was given"),
        ({"asked_share": 1.1}, "above 0 and at most 1; 1.1 was given"),
        ({"vocabulary_size": 2}, "3 to 10; 2 was given"),
        ({"vocabulary_size": 11}, "3 to 10; 11 was given"),
        ({"class_balance": [1.0]}, "2 probabilities"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"n": -1}, "n must be at least 0"),
    ],
)
def test_knobs_out_of_range_are_refused(arguments, message):
    with pytest.raises(DatasetError, match=message):
        generate(arguments.pop("n", 3), arguments.pop("seed", 0), **arguments)
