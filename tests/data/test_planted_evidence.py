"""The generator's promises: the gold words decide, everything else is silent, and a row stands on its own."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy import stats

from attnfaith.data import planted_evidence as planted
from attnfaith.data.generator_knobs import STREAMS
from attnfaith.data.loading import load_splits
from attnfaith.data.planted_evidence import generate
from attnfaith.data.registry import SPLITS
from attnfaith.data.tokenization import split_words
from attnfaith.errors import DatasetError


KNOBS = {
    "plain": {},
    "two together": {"n_evidence": 2},
    "three times over": {"redundancy": 3, "distractors": 2},
    "context": {"needs_context": True},
    "context, pairs, twice": {"needs_context": True, "n_evidence": 2, "redundancy": 2, "length": (14, 20)},
    "five classes": {"n_classes": 5, "n_evidence": 2},
    "few words": {"vocabulary_size": 12},
    "skewed": {"class_balance": [0.8, 0.2]},
}
knobs = pytest.mark.parametrize("arguments", KNOBS.values(), ids=list(KNOBS))


def gold(row):
    return [word for word, mark in zip(row["text"].split(), row["rationale"], strict=True) if mark]


def neutral(row):
    return [word for word, mark in zip(row["text"].split(), row["rationale"], strict=True) if not mark]


def value_of(word, n_classes):
    return next(v for v, group in enumerate(planted.evidence_words(n_classes)) if word in group)


@knobs
def test_rows_are_as_asked(arguments):
    low, high = arguments.get("length", (10, 30))
    lengths = set()
    for row in generate(200, 3, **arguments):
        tokens = row["text"].split()
        assert row["text"] == " ".join(tokens) and split_words([row["text"]], "whitespace") == [tokens]
        assert low <= len(tokens) <= high and len(row["rationale"]) == len(tokens)
        assert set(row["rationale"]) <= {0, 1}
        items = arguments.get("n_evidence", 1) * arguments.get("redundancy", 1)
        assert sum(row["rationale"]) == items * (2 if arguments.get("needs_context") else 1)
        assert sum(token in planted.DISTRACTORS for token in tokens) == arguments.get("distractors", 0)
        lengths.add(len(tokens))
    assert {low, high} <= lengths


def item_values(row, n_classes=2):
    """The values of the evidence items of a text, a negator turning the value after it; worked without `decide`."""
    values, turned = [], False
    for word in gold(row):
        if word in planted.NEGATORS or word in planted.AFFIRMERS:
            turned = word in planted.NEGATORS
        else:
            values.append((value_of(word, n_classes) + turned) % n_classes)
            turned = False
    return values


@pytest.mark.parametrize(
    "arguments", [a for a in KNOBS.values() if a.get("redundancy", 1) == 1], ids=lambda a: ",".join(a) or "plain"
)
def test_label_is_a_function_of_the_gold_words(arguments):
    """The gold words alone give the label, whatever else the text says."""
    n_classes = arguments.get("n_classes", 2)
    for row in generate(200, 1, **arguments):
        assert row["label"] == sum(item_values(row, n_classes)) % n_classes
        assert row["label"] == planted.decide(gold(row), n_classes=n_classes)


def test_each_redundant_item_decides_alone():
    for row in generate(100, 5, redundancy=4):
        assert [planted.decide([word]) for word in gold(row)] == [row["label"]] * 4


@pytest.mark.parametrize("needs_context", [False, True])
def test_redundant_groups_of_two_agree(needs_context):
    """The four items can be parted into two groups that each decide the label."""
    for row in generate(100, 5, n_evidence=2, redundancy=2, needs_context=needs_context):
        v = item_values(row)
        groupings = [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2)]
        assert any((v[a] + v[b]) % 2 == row["label"] == (v[c] + v[d]) % 2 for a, b, c, d in groupings)


@knobs
def test_neutral_words_carry_no_evidence(arguments):
    charged = {w for group in planted.evidence_words(arguments.get("n_classes", 2)) for w in group}
    charged |= {*planted.NEGATORS, *planted.AFFIRMERS}
    for row in generate(200, 2, **arguments):
        assert not charged & set(neutral(row))


def test_word_lists_do_not_overlap():
    slots = {word for group in planted._SLOTS.values() for word in group}
    literal = {part for pattern in planted._PATTERNS for part in pattern} - set(planted._SLOTS)
    lists = [
        slots,
        literal,
        planted.DISTRACTORS,
        planted.NEGATORS,
        planted.AFFIRMERS,
        *planted.EVIDENCE.values(),
        *planted.GENRES.values(),
    ]
    every = [word for group in lists for word in group]
    assert len(every) == len(set(every))
    assert planted.VOCABULARY_SIZE >= 150


@pytest.mark.parametrize("balance", [[1, 0], [0, 1]])
def test_neutral_text_is_drawn_without_the_label(balance):
    """By construction: forcing either label leaves every other word, the length and the positions as they were."""
    arguments = {"needs_context": True, "distractors": 1}
    for row, forced in zip(generate(50, 9, **arguments), generate(50, 9, class_balance=balance, **arguments), strict=True):
        assert forced["label"] == balance.index(1)
        assert neutral(forced) == neutral(row) and forced["rationale"] == row["rationale"]


def test_neutral_words_are_independent_of_the_label():
    rows = generate(3000, 11, distractors=1)
    counts = {}
    for row in rows:
        for word in neutral(row):
            counts.setdefault(word, [0, 0])[row["label"]] += 1
    table = np.array([pair for pair in counts.values() if sum(pair) >= 20])
    assert stats.chi2_contingency(table).pvalue > 1e-3
    # and the test can fail: the gold words
    by_evidence = np.array([[sum(r["label"] == c for r in rows if value_of(gold(r)[0], 2) == v) for c in (0, 1)]
                            for v in (0, 1)])  # fmt: skip
    assert stats.chi2_contingency(by_evidence).pvalue < 1e-100


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{"needs_context": True}, {"n_evidence": 2}, {"n_evidence": 3}])
def test_no_part_of_the_evidence_is_predictive(arguments):
    """Each gold word alone, and each pair of three items, is as frequent under one label as under the other."""
    rows = generate(4000, 7, **arguments)
    labels = np.array([row["label"] for row in rows])
    signs = np.array(
        [
            [w in planted.NEGATORS if w in planted.NEGATORS + planted.AFFIRMERS else value_of(w, 2) for w in gold(r)]
            for r in rows
        ]
    ).astype(int)
    columns = [signs[:, i] for i in range(signs.shape[1])]
    if arguments.get("n_evidence") == 3:
        columns += [(signs[:, i] + signs[:, j]) % 2 for i, j in ((0, 1), (0, 2), (1, 2))]
    for column in columns:
        table = np.array([[np.sum((column == v) & (labels == c)) for c in (0, 1)] for v in (0, 1)])
        assert stats.chi2_contingency(table).pvalue > 1e-3


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.integers(0, 2**40), st.integers(0, 3), st.integers(1, 12), st.sampled_from(sorted(KNOBS)))
def test_a_row_does_not_depend_on_how_many_are_made(seed, stream, n, case):
    arguments = KNOBS[case]
    assert generate(n, seed, stream=stream, **arguments) == generate(n + 5, seed, stream=stream, **arguments)[:n]


def test_seeds_and_streams_differ():
    texts = [row["text"] for seed in (0, 1) for stream in (0, 1) for row in generate(50, seed, stream=stream)]
    assert len(set(texts)) == len(texts)


@pytest.mark.slow
def test_class_balance_is_kept():
    labels = [row["label"] for row in generate(4000, 0, class_balance=[0.7, 0.3])]
    assert stats.binomtest(sum(labels), 4000, 0.3).pvalue > 1e-3
    five = np.bincount([row["label"] for row in generate(4000, 0, n_classes=5)], minlength=5)
    assert stats.chisquare(five).pvalue > 1e-3


def test_positions_cover_the_text():
    rows = generate(3000, 0, length=(10, 10))
    assert (np.sum([row["rationale"] for row in rows], axis=0) > 30).all()


def test_vocabulary_size_bounds_the_filler():
    words_of = {word for row in generate(300, 0, vocabulary_size=12) for word in neutral(row)}
    literal = {part for pattern in planted._PATTERNS for part in pattern} - set(planted._SLOTS)
    assert len(words_of - literal) == 12


def test_shortest_possible_text_is_all_evidence():
    for row in generate(20, 0, length=(4, 4), needs_context=True, n_evidence=2):
        assert row["rationale"] == [1] * 4
        assert planted.decide(row["text"].split()) == row["label"]


def test_decide_by_hand():
    assert planted.decide(["superb"]) == 1
    assert planted.decide(["not", "superb"]) == 0
    assert planted.decide(["hardly", "awful"]) == 1
    assert planted.decide(["truly", "awful"]) == 0
    assert planted.decide(["superb", "superb"]) == 0
    assert planted.decide(["orbital", "corrupt"], n_classes=6) == 3  # 4 + 5 modulo 6
    with pytest.raises(DatasetError, match="'table' is no planted evidence"):
        planted.decide(["table"])


@knobs
def test_removed_evidence_leaves_all_else(arguments):
    """Same labels, lengths and other words; nothing marked, no evidence word, and only the evidence's places differ."""
    rows = generate(100, 6, stream=1, **arguments)
    bare = generate(100, 6, stream=1, evidence_removed=["train", "validation"], **arguments)
    charged = {word for group in planted.evidence_words(arguments.get("n_classes", 2)) for word in group}
    charged |= {*planted.NEGATORS, *planted.AFFIRMERS}
    for row, without in zip(rows, bare, strict=True):
        before, after = row["text"].split(), without["text"].split()
        assert row["label"] == without["label"] and len(before) == len(after) and not any(without["rationale"])
        assert not charged & set(after)
        assert [old != new for old, new in zip(before, after, strict=True)] == [mark == 1 for mark in row["rationale"]]


def test_evidence_is_removed_from_the_named_splits_only():
    splits = load_splits(
        "planted_evidence", sizes={"train": 30, "test": 30}, evidence_removed=["train", "validation"]
    ).splits
    assert not any(map(sum, splits["train"]["rationale"])) and not any(map(sum, splits["validation"]["rationale"]))
    whole = load_splits("planted_evidence", sizes={"train": 30, "test": 30})
    assert splits["test"]["text"] == whole.splits["test"]["text"] and all(map(sum, splits["test"]["rationale"]))


def test_the_revision_tells_removed_evidence():
    loaded = load_splits("planted_evidence", sizes={"train": 5}, evidence_removed=["train"])
    assert loaded.revision == "generated-1(evidence_removed=['train'],seed=0)"


def test_streams_are_the_splits_in_order():
    assert list(STREAMS) == list(SPLITS) and list(STREAMS.values()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"evidence_removed": ["dev"]}, r"list of splits \(train, validation, test\); \['dev'\]"),
        ({"evidence_removed": "train"}, "list of splits .*; 'train'"),
        ({"length": (1, 5), "n_evidence": 2}, "at least 2 words"),
        ({"length": (9, 5)}, "length must be"),
        ({"n_classes": 1}, "2 to 6; 1 was given"),
        ({"n_classes": 3, "needs_context": True}, "needs 2 classes"),
        ({"n_evidence": 0}, "n_evidence must be at least 1"),
        ({"redundancy": 0}, "redundancy must be at least 1"),
        ({"distractors": -1}, "distractors must be at least 0"),
        ({"class_balance": [0.5, 0.6]}, "sum to 1"),
        ({"class_balance": [1.0]}, "2 probabilities"),
        ({"vocabulary_size": 10**6}, "vocabulary_size must be 5 to"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"n": -1}, "n must be at least 0"),
    ],
)
def test_knobs_out_of_range_are_refused(arguments, message):
    with pytest.raises(DatasetError, match=message):
        generate(arguments.pop("n", 3), arguments.pop("seed", 0), **arguments)
