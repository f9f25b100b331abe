"""What the metric takes as columns: every usual container, and one error naming column and row for everything else."""

import math
import random
from collections import deque

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch


LENGTHS = (6, 3, 1, 5, 4)
ATTENTION = [np.random.default_rng(row).dirichlet(np.ones(length)).tolist() for row, length in enumerate(LENGTHS)]
IMPORTANCE = [np.random.default_rng(9 + row).normal(size=length).tolist() for row, length in enumerate(LENGTHS)]
PROBS = [[0.25, 0.75], [0.5, 0.5], [0.125, 0.875], [1.0, 0.0], [0.75, 0.25]]
TWO = {"attention": [[0.5, 0.5], [0.5, 0.5]]}
LINKS = {"links": ["0-0"], "gold_links": ["1-1"]}
ERASURE = {"whole_prob": [0.5], "kept_probs": [[0.5]], "removed_probs": [[0.5]], "empty_prob": [0.5]}


def containers():
    attention, importance = np.random.default_rng(0).dirichlet(np.ones(6), 5), np.random.default_rng(1).random((5, 6))
    table = pa.table({"attention": attention.tolist()})
    yield "lists", attention.tolist(), importance.tolist()
    yield "tuples and deques", tuple(map(tuple, attention.tolist())), deque(map(deque, importance.tolist()))
    yield "arrays", attention, list(importance)
    yield "an array of objects", np.array([*attention, None], object)[:-1], importance
    yield "tensors", torch.tensor(attention), list(torch.tensor(importance, requires_grad=True))
    yield "scalars", [list(row) for row in attention], [[torch.tensor(value) for value in row] for row in importance]
    yield "pandas", pd.DataFrame({"a": attention.tolist()})["a"], pd.DataFrame(importance)
    yield "arrow", table.column("attention"), pa.array(importance.tolist())
    yield "datasets", datasets.Dataset.from_dict({"a": attention.tolist()})["a"], importance


@pytest.mark.parametrize(("attention", "importance"), [case[1:] for case in containers()], ids=[c[0] for c in containers()])
def test_every_usual_container(metric, same, attention, importance):
    _, lists, other_lists = next(containers())
    same(metric.compute(attention=attention, importance=importance), metric.compute(attention=lists, importance=other_lists))


@pytest.mark.parametrize(
    ("configuration", "arguments", "names"),
    [
        ("default", {}, "attention"),
        ("default", {"attention": ATTENTION, "importances": IMPORTANCE}, "importances"),
        ("default", {"attention": ATTENTION, "importance": IMPORTANCE[:3]}, "'attention': 5, 'importance': 3"),
        ("default", {**TWO, "importance": [[1, 2], [1]]}, "row 1: attention"),
        ("default", {"attention": [[1.0], [1.5, -0.5]]}, "row 1: attention.*-0.5"),
        ("default", {"attention": [[1.0], [0.5, 0.4]]}, "row 1: attention sums to 0.9"),
        ("default", {"probs": [[0.5, 0.5]], "counterfactual_probs": [[0.9, 0.9]]}, "row 0: counterfactual_probs"),
        ("default", {"attention": [[1.0], "x" * 900]}, "row 1: attention"),
        ("default", {**TWO, "mask": [[1, 1], [2, 1]]}, "row 1: mask"),
        ("default", {**TWO, "mask": [[1, 1], [1]]}, "row 1: mask"),
        ("default", {"probs": [[1.0]], "counterfactual_probs": [[1.0]], "mask": [[1]]}, "mask"),
        ("default", {**TWO, "alpha": 1.5}, "alpha is 1.5"),
        ("default", {**TWO, "n_bootstrap": 0.5}, "n_bootstrap is 0.5"),
        ("default", {**TWO, "seed": -1}, "seed is -1"),
        ("default", {**TWO, "share": 0.5}, "share is 0.5"),
        ("erasure", {"whole_prob": [0.5]}, "kept_probs"),
        ("erasure", {**ERASURE, "kept_probs": [[0.5, 0.5]]}, "row 0: removed_probs"),
        ("erasure", {**ERASURE, "whole_prob": [1.5]}, "row 0: 1.5"),
        ("plausibility", {"scores": [[1, 2]], "rationale": [[1, 0]], "share": 2}, "share is 2"),
        ("plausibility", {"scores": [[1, 2]], "rationale": [[1, 3]]}, "row 0: rationale.*3"),
        ("alignment", {**LINKS, "gold_from": 1}, "links is None"),
        ("alignment", {**LINKS, "links": [], "links_from": 0, "gold_from": 1}, "links of 0 sentences"),
        ("alignment", {**LINKS, "links_from": 0, "gold_from": 1, "mask": [[1]]}, "mask"),
        ("alignment", {**LINKS, "links_from": 0, "gold_from": 1, "source_length": ["a"]}, "row 0: source_length"),
    ],
)
def test_one_error_that_names_the_offender(load, configuration, arguments, names):
    metric = load(configuration)
    with pytest.raises(ValueError, match=names) as error:
        metric.compute(**arguments)
    assert type(error.value).__name__ == "InputError" and len(str(error.value)) < 400
    assert len(metric) == 0


HOSTILE = [
    *(None, True, 0, -1, 1.5, math.nan, math.inf, 10**400, 1j, "", "a", b"a", {}, set(), object(), type, 1e308),
    *([], [[]], [None], [[None]], [[0.5, 0.5]], [[[]]], [["a"]], [{}], np.zeros((2, 0)), np.zeros((0, 2)), np.array(3)),
    *(np.array(["a"]), np.ones((2, 2, 2)), np.array([1j]), pd.Series([[1.0]]), pd.NaT, torch.ones(2), range(3)),
    *(deque([[1.0]]), np.datetime64("2020-01-01"), [[pd.NA]], [np.array([None])], [[np.str_("1")]]),
]


def test_any_input_gives_a_result_or_the_metrics_own_error(metric):
    """Good columns with parts of them replaced by what nobody should give."""
    chance = random.Random(0)
    outcomes = {"result": 0, "InputError": 0}
    for number in range(400):
        columns = {"attention": list(ATTENTION), "importance": list(IMPORTANCE), "probs": list(PROBS)}
        settings = {"n_bootstrap": 5}
        value = chance.choice([*HOSTILE, (x for x in ([1.0],))])
        where = chance.choice([*columns, "mask", "alpha", "n_bootstrap", "seed", "share", "unknown"])
        if where in columns and (depth := chance.randrange(3)):
            columns[where] = [list(row) for row in columns[where]]
            row = columns[where][chance.randrange(5)]
            if depth == 2:
                row[chance.randrange(len(row))] = value
            else:
                columns[where][chance.randrange(5)] = value
        else:
            (columns if where in columns else settings)[where] = value
        try:
            metric.compute(**columns, **settings)
            outcomes["result"] += 1
        except ValueError as error:
            assert type(error).__name__ == "InputError", (number, where, error)
            assert len(str(error)) < 500 and "\n" not in str(error)
            outcomes["InputError"] += 1
        assert len(metric) == 0
    assert outcomes["result"] > 10 and outcomes["InputError"] > 300
