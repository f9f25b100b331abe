"""What places tell of the label: codes that must be seen, selections that tell nothing, texts that cannot be judged."""

import numpy as np
import pytest

from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections.selection import LEAKAGE, features, leakage
from tests.records import build
from tests.sections import with_selection


def texts(count, choose, seed=0):
    """Selections of texts whose label is drawn first, and the labels; choose(row, label, random) marks the selection."""
    random = np.random.default_rng(seed)
    labels, rows = random.integers(2, size=count), []
    for label in labels:
        row = np.zeros(random.integers(8, 20), bool)
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
    result = leakage(*texts(300, code))
    assert result.places.mean() > 0.95 and result.majority.mean() < 0.6 and result.lengths.mean() < 0.65
    assert result.p_value == 1 / 1000


def test_selections_that_tell_nothing():
    results = [leakage(*texts(120, at_random, seed), permutations=99) for seed in range(20)]
    p_values = np.array([result.p_value for result in results])
    assert max(result.places.mean() for result in results) < 0.7
    assert p_values.min() > 0.005 and np.mean(p_values <= 0.05) <= 0.2 and p_values.mean() > 0.3


def test_texts_that_cannot_be_judged_are_left_out():
    rows, labels = texts(60, by_first_place)
    labels[3], rows[5] = np.nan, np.zeros(0, bool)
    result = leakage(rows, labels)
    assert np.isnan(result.places).nonzero()[0].tolist() == [3, 5] == np.isnan(result.majority).nonzero()[0].tolist()
    for few_rows, few_labels in ((rows[:19], labels[:19]), (rows, np.zeros(60)), (rows, np.full(60, np.nan))):
        result = leakage(few_rows, few_labels)
        assert np.isnan(result.places).all() and np.isnan(result.p_value) and len(result.places) == len(few_rows)


def test_the_page_says_what_places_tell():
    rows, labels = texts(40, by_first_place)
    pairs = zip(rows, labels, strict=True)
    record = build([{"attention": np.full(len(row), 1 / len(row)), "label": int(label)} for row, label in pairs])
    (sentence,) = LEAKAGE.sentences(one_cell(with_selection(record, rows)))  # one class is predicted for all texts
    assert "gold label of 100%" in sentence and "p 0.001 " in sentence
    assert LEAKAGE.sentences(one_cell(with_selection(record, rows).slice(0, 19))) == []


def test_features_by_hand():
    values = features([1, 1, 0, 0, 1])
    assert values[:6].tolist() == [3, 0.6, 2, 1.5, 0.1, 0.9]
    assert values[6:16].tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 1, 0]  # five tokens lie in every other of ten parts
    assert values[16:].tolist() == [1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0]
