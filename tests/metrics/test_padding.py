"""Padding never enters a number: a masked batch is its ragged rows, and a padded batch without a mask is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.metrics.attention_faithfulness.columns import InputError


@st.composite
def padded_batches(draw):
    """Ragged rows of attention and importance, the same rows padded to one width, and the mask of their tokens.

    Importance is slightly off zero on padding, as gradients leave it.
    """
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    width = max(lengths) + draw(st.integers(0, 2))
    side = draw(st.sampled_from(["left", "right", "both"]))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    attention, importance = np.zeros((len(lengths), width)), generator.normal(size=(len(lengths), width)) * 1e-9
    mask = np.zeros((len(lengths), width), int)
    ragged = {"attention": [], "importance": []}
    for row, length in enumerate(lengths):
        room = width - length
        start = {"left": room, "right": 0, "both": int(generator.integers(0, room + 1))}[side]
        tokens = slice(start, start + length)
        attention[row, tokens], importance[row, tokens] = generator.dirichlet(np.ones(length)), generator.normal(size=length)
        mask[row, tokens] = 1
        ragged["attention"].append(attention[row, tokens])
        ragged["importance"].append(importance[row, tokens])
    return ragged, {"attention": attention, "importance": importance}, mask


@settings(max_examples=60)
@given(padded_batches())
def test_a_masked_batch_is_its_ragged_rows_and_an_unmasked_one_is_refused(metric, same, batch):
    ragged, padded, mask = batch
    same(
        metric.compute(**padded, mask=mask, n_bootstrap=5),
        metric.compute(**ragged, n_bootstrap=5, mask="none"),
    )
    if mask.all():
        same(metric.compute(**padded, n_bootstrap=5), metric.compute(**ragged, n_bootstrap=5))
    else:
        with pytest.raises(ValueError, match=r'mask.*"none"') as error:
            metric.compute(**padded)
        assert type(error.value).__name__ == InputError.__name__
    assert len(metric) == 0


@settings(max_examples=30)
@given(padded_batches())
def test_batches_and_single_rows_are_checked_alike(metric, same, batch):
    ragged, padded, mask = batch
    expected = metric.compute(**ragged, n_bootstrap=5, mask="none")
    metric.add_batch(**{name: rows[:1] for name, rows in padded.items()}, mask=mask[:1])
    for row in range(1, len(mask)):
        metric.add(**{name: rows[row] for name, rows in padded.items()}, mask=mask[row])
    same(metric.compute(n_bootstrap=5), expected)
    for row in np.flatnonzero(~mask.all(axis=1)):
        with pytest.raises(ValueError, match="mask"):
            metric.add(**{name: rows[row] for name, rows in padded.items()})
    assert len(metric) == 0


def test_sparse_attention_says_that_its_zeros_are_tokens(metric, same):
    sparse = {"attention": [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]], "importance": [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]}
    with pytest.raises(ValueError, match='row 0.*mask="none"'):
        metric.compute(**sparse)
    same(metric.compute(**sparse, mask="none"), metric.compute(**sparse, mask=np.ones((2, 3))))
    inner = {"attention": [[0.5, 0.0, 0.5], [0.2, 0.0, 0.8]], "importance": sparse["importance"]}
    assert metric.compute(**inner)["n"] == 2
    ragged = {"attention": [[0.0, 1.0], [0.2, 0.8, 0.0]], "importance": [[1.0, 2.0], [1.0, 2.0, 3.0]]}
    assert metric.compute(**ragged)["n"] == 2
    with pytest.raises(ValueError, match="mask is 'all'"):
        metric.compute(**sparse, mask="all")


def test_evaluate_combine_hands_on_no_mask(evaluate, load, same):
    """So the metric is loaded with one."""
    sparse = {"attention": [[0.0, 0.5, 0.5]], "importance": [[1.0, 2.0, 3.0]]}
    absent = dict.fromkeys(["probs", "counterfactual_attention", "counterfactual_probs"])
    both = evaluate.combine([load(mask="none")])
    both.add_batch(**sparse, **absent)
    same(both.compute(), load().compute(**sparse, mask="none"))


def test_scores_beside_a_rationale(load, same):
    plausibility = load("plausibility")
    ragged = {"scores": [[0.3, 0.7], [0.2, 0.5, 0.3]], "rationale": [[0, 1], [0, 1, 0]]}
    padded = {"scores": [[0, 0.3, 0.7], ragged["scores"][1]], "rationale": [[0, 0, 1], [0, 1, 0]]}
    with pytest.raises(ValueError, match="row 0: scores begins"):
        plausibility.compute(**padded)
    same(plausibility.compute(**padded, mask=[[0, 1, 1], [1, 1, 1]]), plausibility.compute(**ragged))
    marked = {"scores": [[0.0, 0.3, 0.7]], "rationale": [[1, 0, 1]]}
    assert plausibility.compute(**marked)["n"] == 1  # people marked the token, so it is one
