"""Agreement with marked tokens, threshold by threshold, and against sets of tokens."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from attnfaith.metrics.attention_faithfulness.plausibility import (
    average_precision,
    constant_precision,
    mean_share,
    plausibility_results,
    random_precision,
    span_iou,
    spans,
    token_f1,
    top_tokens,
    trapezoid_auprc,
)


@st.composite
def marked(draw):
    """Marks of 1 to 30 tokens, at least a token marked, and a choice of tokens."""
    gold = draw(st.lists(st.integers(0, 1), min_size=1, max_size=30).filter(any))
    return gold, draw(st.lists(st.integers(0, 1), min_size=len(gold), max_size=len(gold)))


@settings(max_examples=60)
@given(st.lists(marked().filter(lambda row: 0 in row[0]), min_size=1, max_size=3), st.integers(0, 1000))
def test_areas_threshold_by_threshold(rows, seed):
    gold = [row[0] for row in rows]
    scores = [np.random.default_rng(seed).integers(-3, 4, len(row)).astype(float) for row in gold]  # with ties
    scores[0][0] = np.inf
    expected = np.array([areas(*row) for row in zip(scores, gold, strict=True)]).T
    np.testing.assert_allclose([average_precision(scores, gold), trapezoid_auprc(scores, gold)], expected, atol=1e-12)
    np.testing.assert_allclose(constant_precision(gold), average_precision([[0] * len(row) for row in gold], gold))


def areas(scores, gold):
    """Areas under precision over recall by steps and by lines, from their definition."""
    points = [(0, 1)]
    for threshold in np.unique(scores)[::-1]:
        passing = np.array(gold)[scores >= threshold]
        points.append((passing.sum() / sum(gold), passing.mean()))
    recall, precision = np.array(points).T
    return np.diff(recall) @ precision[1:], np.trapezoid(precision, recall)


@pytest.mark.parametrize("gold", [[1, 0], [1, 1, 0, 0], [1, 1, 1, 0, 0, 1]])
def test_random_precision_is_the_mean_over_all_orders(gold):
    orders = list(itertools.permutations(range(len(gold))))
    expected = average_precision(orders, [gold] * len(orders)).mean()
    assert random_precision([gold])[0] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.floats(0.01, 1))
def test_top_tokens(scores, share):
    (chosen,) = top_tokens([scores], share)
    values = np.array(scores)
    assert chosen.sum() == max(1, math.ceil(share * len(scores) - 1e-9))
    assert chosen.all() or values[chosen == 1].min() >= values[chosen == 0].max()


@settings(max_examples=100)
@given(marked(), st.sampled_from([0.3, 0.5, 0.75, 1.0]))
def test_tokens_and_spans_by_sets(rows, threshold):
    gold, chosen = rows
    precision, recall, f1 = (values[0] for values in token_f1([chosen], [gold]))
    assert f1 == pytest.approx(f1_score(gold, chosen, zero_division=0))
    hits = sum(g and c for g, c in zip(gold, chosen, strict=True))
    assert recall == pytest.approx(hits / sum(gold))
    assert math.isnan(precision) if not any(chosen) else precision == pytest.approx(hits / sum(chosen))
    runs = spans(chosen)
    assert {place for run in runs for place in range(*run)} == {place for place, mark in enumerate(chosen) if mark}
    assert (runs[1:, 0] > runs[:-1, 1]).all()  # a gap between any two: the runs are the longest
    if any(chosen):
        chosen_spans, gold_spans = ([set(range(*span)) for span in spans(row)] for row in (chosen, gold))

        def matched(spans, targets):
            return np.mean([max(len(a & b) / len(a | b) for b in targets) >= threshold - 1e-9 for a in spans])

        expected = matched(chosen_spans, gold_spans), matched(gold_spans, chosen_spans)
        precision, recall, f1 = (values[0] for values in span_iou([chosen], [gold], threshold))
        assert (precision, recall) == pytest.approx(expected)
        assert f1 == pytest.approx(2 * precision * recall / sum(expected) if sum(expected) else 0)


def test_share_of_the_marks_by_default(load):
    gold, scores = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]], [[4, 3, 2, 1], [1, 3, 4, 2], [1, 2, 3, 4]]
    assert mean_share(gold) == 0.375  # ceil(.375 x 4) = 2 tokens
    by_text = plausibility_results(scores, gold)
    np.testing.assert_allclose(by_text["token_f1"], [2 / 3, 0.5, np.nan])
    metric = load("plausibility")
    results = metric.compute(scores=scores, rationale=gold)
    assert results["n"] == 3 and results["token_f1"] == pytest.approx((2 / 3 + 0.5) / 2)
    assert {results[f"{name}_undefined"] for name in by_text} == {1}
    assert metric.compute(scores=scores, rationale=gold, share=0.25)["token_f1"] == pytest.approx(0.5)
    nothing = metric.compute(scores=scores[:1], rationale=[[0, 0, 0, 0]])
    assert math.isnan(nothing["span_iou_f1"]) and nothing["span_iou_f1_undefined"] == 1
