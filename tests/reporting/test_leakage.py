"""What places tell of the label: codes that it must see, selections that tell nothing, texts that cannot say."""

import numpy as np
import pytest

from attnfaith.reporting.leakage import ENDS, _exchanged, features, leakage


def texts(count, choose, seed=0, lengths=(8, 20)):
    """Selections of texts whose label is drawn first, and the labels; choose(row, label, random) marks what is selected."""
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=count)
    rows = []
    for label in labels:
        row = np.zeros(random.integers(*lengths), bool)
        choose(row, label, random)
        rows.append(row)
    return rows, labels.astype(float)


def by_first_place(row, label, random):
    row[0] = label


def by_count(row, label, random):
    row[random.permutation(len(row))[: 2 + 2 * label]] = True


def by_half(row, label, random):
    half = len(row) // 2
    row[random.integers(half) + half * label] = True


def at_random(row, label, random):
    row[random.random(len(row)) < 0.3] = True


@pytest.mark.parametrize("code", [by_first_place, by_count, by_half])
def test_a_code_in_places_is_seen(code):
    rows, labels = texts(300, code)
    result = leakage(rows, labels)
    assert result.places.mean() > 0.95 and result.majority.mean() < 0.6 and result.lengths.mean() < 0.65
    assert result.p_value == 1 / 1000


def test_selections_that_tell_nothing():
    p_values = []
    for seed in range(20):
        rows, labels = texts(120, at_random, seed)
        result = leakage(rows, labels, permutations=99)
        assert result.places.mean() < 0.7
        p_values.append(result.p_value)
    assert min(p_values) > 0.005 and np.mean(np.array(p_values) <= 0.05) <= 0.2 and np.mean(p_values) > 0.3


def test_what_length_tells_is_not_taken_for_a_code():
    """Longer texts are of class 1, and about a third of each is selected: places know the label by the length only."""
    random = np.random.default_rng(0)
    labels = random.integers(2, size=300)
    rows = [random.random(10 + 10 * label + random.integers(4)) < 0.3 for label in labels]
    result = leakage(rows, labels.astype(float))
    assert result.lengths.mean() > 0.95 and result.places.mean() > 0.9 and result.p_value > 0.05


def test_texts_that_cannot_say_are_left_out():
    rows, labels = texts(60, by_first_place)
    labels[3], rows[5] = np.nan, np.zeros(0, bool)
    result = leakage(rows, labels)
    assert np.isnan(result.places).nonzero()[0].tolist() == [3, 5] == np.isnan(result.majority).nonzero()[0].tolist()
    for few_rows, few_labels in ((rows[:19], labels[:19]), (rows, np.zeros(60)), (rows, np.full(60, np.nan))):
        result = leakage(few_rows, few_labels)
        assert np.isnan(result.places).all() and np.isnan(result.p_value) and len(result.places) == len(few_rows)


def test_features_by_hand():
    values = features([1, 1, 0, 0, 1])
    assert values[:4].tolist() == [3, 0.6, 2, 1.5] and values[4:6].tolist() == [0.1, 0.9]
    assert values[6:16].tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 1, 0]  # five tokens lie in every other of ten parts
    assert values[16:24].tolist() == [1, 1, 0, 0, 1, 0, 0, 0] and values[24:32].tolist() == [1, 0, 0, 1, 1, 0, 0, 0]
    assert ENDS == 8 and len(values) == 32
    nothing = features(np.zeros(20))
    assert nothing[:6].tolist() == [0, 0, 0, 0, -1, -1] and not nothing[6:].any()


def test_labels_are_exchanged_among_texts_of_about_one_length():
    random = np.random.default_rng(3)
    length, labels = random.permutation(np.repeat([4.0, 6.0, 9.0, 15.0, 30.0], 20)), random.integers(2, size=100)
    drawn = list(_exchanged(labels, length, 50, random))
    assert any((item != labels).any() for item in drawn)
    for item in drawn:
        assert all(item[length == size].sum() == labels[length == size].sum() for size in np.unique(length))
