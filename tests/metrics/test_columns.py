"""What the metric takes as columns: usual containers, masks of padding, and one error that names column and row."""

from collections import deque

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st


TWO = {"attention": [[0.5, 0.5], [0.5, 0.5]]}
LINKS = {"links": ["0-0"], "gold_links": ["1-1"]}
ERASURE = {"whole_prob": [0.5], "kept_probs": [[0.5]], "removed_probs": [[0.5]], "empty_prob": [0.5]}


def containers():
    attention, importance = np.random.default_rng(0).dirichlet(np.ones(6), 5), np.random.default_rng(1).random((5, 6))
    yield attention.tolist(), importance.tolist()
    yield tuple(map(tuple, attention.tolist())), deque(map(deque, importance.tolist()))
    yield np.array([*attention, None], object)[:-1], importance
    yield torch.tensor(attention), list(torch.tensor(importance, requires_grad=True))
    yield [list(row) for row in attention], [[torch.tensor(value) for value in row] for row in importance]
    yield pd.DataFrame({"a": attention.tolist()})["a"], pd.DataFrame(importance)
    yield pa.table({"a": attention.tolist()}).column("a"), pa.array(importance.tolist())
    yield datasets.Dataset.from_dict({"a": attention.tolist()})["a"], importance


def test_every_usual_container(metric, same):
    lists, *forms = containers()
    expected = metric.compute(attention=lists[0], importance=lists[1])
    for attention, importance in forms:
        same(metric.compute(attention=attention, importance=importance), expected)


@pytest.mark.parametrize(
    ("configuration", "arguments", "names"),
    [
        ("default", {}, "attention"),
        ("default", {**TWO, "importances": [[1, 2], [1, 2]]}, "importances"),
        ("default", {**TWO, "importance": [[1, 2]]}, "'attention': 2, 'importance': 1"),
        ("default", {**TWO, "importance": [[1, 2], [1]]}, "row 1: attention"),
        ("default", {"attention": [[1.0], [1.5, -0.5]]}, "row 1: attention.*-0.5"),
        ("default", {"attention": [[1.0], [0.5, 0.4]]}, "row 1: attention sums to 0.9"),
        ("default", {"probs": [[0.5, 0.5]], "counterfactual_probs": [[0.9, 0.9]]}, "row 0: counterfactual_probs"),
        ("default", {"attention": [[1.0], "x" * 900]}, "row 1: attention"),
        ("default", {**TWO, "mask": [[1, 1], [2, 1]]}, "row 1: mask"),
        ("default", {**TWO, "mask": [[1, 1], [1]]}, "row 1: mask"),
        ("default", {**TWO, "mask": "all"}, "mask is 'all'"),
        ("default", {"probs": [[1.0]], "counterfactual_probs": [[1.0]], "mask": [[1]]}, "mask"),
        ("default", {**TWO, "alpha": 1.5}, "alpha is 1.5"),
        ("default", {**TWO, "share": 0.5}, "share is 0.5"),
        ("erasure", {"whole_prob": [0.5]}, "kept_probs"),
        ("erasure", {**ERASURE, "kept_probs": [[0.5, 0.5]]}, "row 0: removed_probs"),
        ("erasure", {**ERASURE, "whole_prob": [1.5]}, "row 0: 1.5"),
        ("plausibility", {"scores": [[1, 2]], "rationale": [[1, 0]], "share": 2}, "share is 2"),
        ("plausibility", {"scores": [[1, 2]], "rationale": [[1, 3]]}, "row 0: rationale.*3"),
        ("plausibility", {"scores": [[0, 0.3], [0.2, 0.5]], "rationale": [[0, 1], [0, 1]]}, "row 0: scores begins"),
        ("alignment", {**LINKS, "gold_from": 1}, "links is None"),
        ("alignment", {**LINKS, "links": [], "links_from": 0, "gold_from": 1}, "links of 0 sentences"),
        ("alignment", {**LINKS, "links_from": 0, "gold_from": 1, "mask": [[1]]}, "mask"),
        ("alignment", {**LINKS, "links_from": 0, "gold_from": 1, "source_length": ["a"]}, "row 0: source_length"),
    ],
)
def test_refusals(load, configuration, arguments, names):
    metric = load(configuration)
    with pytest.raises(ValueError, match=names) as error:
        metric.compute(**arguments)
    assert type(error.value).__name__ == "InputError" and len(str(error.value)) < 400
    assert len(metric) == 0


@st.composite
def padded_batches(draw):
    """Ragged rows of attention and importance, the same rows padded to one width, and the mask of their tokens.

    Importance is slightly off zero on padding, as gradients leave it.
    """
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    width = max(lengths) + draw(st.integers(0, 2))
    side = draw(st.sampled_from(["left", "right", "both"]))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    attention, importance = np.zeros((len(lengths), width)), generator.normal(size=(len(lengths), width)) * 1e-9
    mask = np.zeros((len(lengths), width), int)
    for row, length in enumerate(lengths):
        start = {"left": width - length, "right": 0, "both": int(generator.integers(0, width - length + 1))}[side]
        tokens = slice(start, start + length)
        attention[row, tokens], importance[row, tokens] = generator.dirichlet(np.ones(length)), generator.normal(size=length)
        mask[row, tokens] = 1
    padded = {"attention": attention, "importance": importance}
    ragged = {name: [row[keep == 1] for row, keep in zip(rows, mask, strict=True)] for name, rows in padded.items()}
    return ragged, padded, mask


@settings(max_examples=40)
@given(padded_batches())
def test_a_masked_batch_is_its_ragged_rows_and_an_unmasked_one_is_refused(metric, same, batch):
    ragged, padded, mask = batch
    expected = metric.compute(**ragged, mask="none")
    same(metric.compute(**padded, mask=mask), expected)
    metric.add_batch(**{name: rows[:1] for name, rows in padded.items()}, mask=mask[:1])
    for row in range(1, len(mask)):
        metric.add(**{name: rows[row] for name, rows in padded.items()}, mask=mask[row])
    same(metric.compute(), expected)
    if mask.all():
        same(metric.compute(**padded), expected)
    else:
        with pytest.raises(ValueError, match=r'mask.*"none"'):
            metric.compute(**padded)
    for row in np.flatnonzero(~mask.all(axis=1)):
        with pytest.raises(ValueError, match="mask"):
            metric.add(**{name: rows[row] for name, rows in padded.items()})
    assert len(metric) == 0


def test_zeros_that_are_tokens(evaluate, load, metric, same):
    """mask="none" takes them as tokens, also of a metric that was loaded with it, as `evaluate.combine` hands on no mask."""
    sparse = {"attention": [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]], "importance": [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]}
    expected = metric.compute(**sparse, mask="none")
    same(metric.compute(**sparse, mask=np.ones((2, 3))), expected)
    both = evaluate.combine([load(mask="none")])
    both.add_batch(**sparse, **dict.fromkeys(["probs", "counterfactual_attention", "counterfactual_probs"]))
    same(both.compute(), expected)
    inner = {"attention": [[0.5, 0.0, 0.5], [0.2, 0.0, 0.8]], "importance": sparse["importance"]}
    ragged = {"attention": [[0.0, 1.0], [0.2, 0.8, 0.0]], "importance": [[1.0, 2.0], [1.0, 2.0, 3.0]]}
    assert metric.compute(**inner)["n"] == metric.compute(**ragged)["n"] == 2
    marked = {"scores": [[0.0, 0.3, 0.7]], "rationale": [[1, 0, 1]]}
    assert load("plausibility").compute(**marked)["n"] == 1  # people marked the first token
