"""What every function over rows holds to: its range, undefined rows, and rows on their own."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.metrics.attention_faithfulness.divergences import (
    decision_flips,
    jensen_shannon_divergence,
    normalised_entropy,
    share_of_zeros,
    support_size,
    total_variation_distance,
)
from attnfaith.metrics.attention_faithfulness.plausibility import (
    average_precision,
    constant_precision,
    random_precision,
    span_iou,
    token_f1,
    trapezoid_auprc,
)
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau, tie_ceiling


WEIGHTS, SCORES, MARKS = "weights", "scores", "marks"
# function -> its columns, and the largest and smallest value
FUNCTIONS = {
    normalised_entropy: ([WEIGHTS], 0, 1),
    support_size: ([WEIGHTS], 0, 8),
    share_of_zeros: ([WEIGHTS], 0, 1),
    total_variation_distance: ([WEIGHTS, WEIGHTS], 0, 1),
    jensen_shannon_divergence: ([WEIGHTS, WEIGHTS], 0, math.log(2)),
    decision_flips: ([WEIGHTS, WEIGHTS], 0, 1),
    kendall_tau: ([SCORES, SCORES], -1, 1),
    tie_ceiling: ([SCORES, SCORES], 0, 1),
    average_precision: ([SCORES, MARKS], 0, 1),
    trapezoid_auprc: ([SCORES, MARKS], 0, 1),
    constant_precision: ([MARKS], 0, 1),
    random_precision: ([MARKS], 0, 1),
    token_f1: ([MARKS, MARKS], 0, 1),
    span_iou: ([MARKS, MARKS], 0, 1),
}
IN_ORDER = {span_iou, decision_flips}
"""Functions for which the order of a row's values counts."""
every_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)


def results(function, columns):
    """The results of a function, [k, N]."""
    values = function(*columns)
    return np.stack(values) if isinstance(values, tuple) else values[None]


def row(generator, kind, length):
    """A row with ties and zeros."""
    if kind == SCORES:
        return generator.integers(-3, 4, length).astype(float)
    marks = generator.integers(0, 2, length).astype(float)
    if kind == MARKS or length == 0:
        return marks
    weights = marks * generator.integers(1, 5, length)
    return weights / weights.sum() if weights.any() else np.full(length, 1 / length)


@every_function
@given(st.lists(st.integers(0, 8), max_size=6), st.integers(0, 10_000))
@settings(max_examples=25)
def test_range_and_rows_of_their_own(function, lengths, seed):
    """A row has the value that it has alone, in another container, and in another order of its tokens."""
    generator = np.random.default_rng(seed)
    kinds, least, most = FUNCTIONS[function]
    columns = [[row(generator, kind, length) for length in lengths] for kind in kinds]
    values = results(function, columns)
    assert values.shape[1] == len(lengths) and values.dtype == np.float64
    assert (np.isnan(values) | ((values >= least) & (values <= most))).all()
    np.testing.assert_array_equal(results(function, [tuple(map(tuple, rows)) for rows in columns]), values)
    orders = [generator.permutation(length) for length in lengths]
    for place, order in enumerate(orders):
        np.testing.assert_array_equal(results(function, [[rows[place]] for rows in columns])[:, 0], values[:, place])
        if function not in IN_ORDER:
            shuffled = results(function, [[rows[place][order]] for rows in columns])[:, 0]
            np.testing.assert_allclose(shuffled, values[:, place], rtol=0, atol=1e-12)


@every_function
def test_undefined_rows_are_nan_and_leave_the_others_alone(function):
    kinds = FUNCTIONS[function][0]
    good = {WEIGHTS: [0.5, 0.5, 0.0], SCORES: [1.0, 3.0, 2.0], MARKS: [1.0, 0.0, 0.0]}
    bad = {WEIGHTS: [np.nan, 1.0, 0.0], SCORES: [1.0, np.nan, 2.0], MARKS: [1.0, np.nan, 0.0]}
    columns = [[good[kind], good[kind], None, [], bad[kind], good[kind]] for kind in kinds]
    values = results(function, columns)
    assert np.isnan(values[:, 2:5]).all() and not np.isnan(values[0, [0, 1, 5]]).any()
    np.testing.assert_array_equal(values[:, 5], values[:, 0])
    for place in range(len(kinds)):  # a single side of a pair is enough
        columns = [[good[kind], bad[kind] if place == side else good[kind]] for side, kind in enumerate(kinds)]
        assert np.isnan(results(function, columns)[0]).tolist() == [False, True]
    assert results(function, [[]] * len(kinds)).shape[1] == 0
    assert np.isnan(results(function, [[[], []]] * len(kinds))).all()
