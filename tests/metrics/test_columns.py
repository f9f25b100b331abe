"""What the metric takes as columns: every usual container, padding by a mask, and one error for all that is no numbers."""

import math
import random
from collections import deque

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from attnfaith.metrics.registration import METRIC_DIR


LENGTHS = (6, 3, 1, 5, 4)
ATTENTION = [np.random.default_rng(row).dirichlet(np.ones(length)).tolist() for row, length in enumerate(LENGTHS)]
IMPORTANCE = [np.random.default_rng(9 + row).normal(size=length).tolist() for row, length in enumerate(LENGTHS)]
PROBS = [[0.25, 0.75], [0.5, 0.5], [0.125, 0.875], [1.0, 0.0], [0.75, 0.25]]
SETTINGS = {"n_bootstrap": 20}


@pytest.fixture(scope="module")
def metric(evaluate):
    return evaluate.load(str(METRIC_DIR), keep_in_memory=True)


@pytest.fixture(scope="module")
def plausibility(evaluate):
    return evaluate.load(str(METRIC_DIR), "plausibility", keep_in_memory=True)


def padded(rows, width=8):
    return np.array([[*row, *[0.0] * (width - len(row))] for row in rows])


MASK = padded([[1] * length for length in LENGTHS])


def same(actual, expected):
    assert actual.keys() == expected.keys()
    np.testing.assert_array_equal(list(actual.values()), list(expected.values()))


@pytest.mark.parametrize("as_mask", [np.asarray, lambda mask: mask.astype(bool), torch.tensor, lambda mask: mask.tolist()])
def test_padded_rows_with_a_mask_are_ragged_rows(metric, as_mask):
    """To the bit, in one call, in batches, and one by one."""
    expected = metric.compute(attention=ATTENTION, importance=IMPORTANCE, probs=PROBS, **SETTINGS)
    attention, importance, mask = padded(ATTENTION), padded(IMPORTANCE), as_mask(MASK)
    same(metric.compute(attention=attention, importance=importance, probs=PROBS, mask=mask, **SETTINGS), expected)
    metric.add_batch(attention=attention[:2], importance=importance[:2], probs=PROBS[:2], mask=mask[:2])
    for row in range(2, 5):
        metric.add(attention=attention[row], importance=importance[row], probs=PROBS[row], mask=mask[row])
    same(metric.compute(**SETTINGS), expected)


def test_a_mask_leaves_out_what_stands_in_front_as_well(metric, plausibility):
    marked = [[0.0, *row] for row in ATTENTION]
    given = {"attention": marked, "importance": [[7.0, *row] for row in IMPORTANCE]}
    mask = [[0] + [1] * length for length in LENGTHS]
    same(
        metric.compute(**given, mask=mask, **SETTINGS),
        metric.compute(attention=ATTENTION, importance=IMPORTANCE, **SETTINGS),
    )
    rationale = [[float(place == 0) for place in range(length)] for length in LENGTHS]
    expected = plausibility.compute(scores=IMPORTANCE, rationale=rationale)
    same(plausibility.compute(scores=padded(IMPORTANCE), rationale=padded(rationale), mask=MASK), expected)


def test_rows_that_look_padded_are_refused(metric, plausibility):
    given = {"attention": padded(ATTENTION), "importance": padded(IMPORTANCE)}
    with pytest.raises(ValueError, match="5 of 5 rows end in zeros in both attention and importance, and all have 8 values"):
        metric.compute(**given)
    with pytest.raises(ValueError, match="4 of 5 rows end in zeros .* Give mask, 1 on tokens and 0 on padding"):
        metric.compute(**{name: rows[:, :6] for name, rows in given.items()})  # padded to the longest
    with pytest.raises(ValueError, match="rows end in zeros in both scores and rationale"):
        plausibility.compute(scores=padded(IMPORTANCE), rationale=padded([[1] * length for length in LENGTHS]))
    assert metric.compute(**given, mask=np.ones((5, 8)))["n"] == 5  # zeros that are tokens
    assert len(metric) == 0


def test_genuine_sparse_attention_is_taken(metric):
    """Also where all texts have one length, most weights are 0, and importance is 0 wherever attention is."""
    generator = np.random.default_rng(0)
    for support in (1, 2, 5):
        attention = np.zeros((40, 20))
        for row in attention:
            row[generator.choice(19, support, replace=False)] = 1 / support  # never the last token, as a full stop
        importance = generator.random(attention.shape)
        assert metric.compute(attention=attention, importance=importance, **SETTINGS)["n"] == 40
        assert metric.compute(attention=attention, importance=importance * (attention > 0), **SETTINGS)["n"] == 40
    assert metric.compute(attention=[[0.5, 0.5, 0.0]], importance=[[1, 2, 0]])["n"] == 1  # one text is not padded
    assert metric.compute(attention=[[0.5, 0.5], [1.0, 0.0]], importance=[[1, 2], [1, 0]])["n"] == 2  # half of the rows


def containers():
    attention, importance = padded(ATTENTION, 6), padded(IMPORTANCE, 6) + 1
    table = pa.table({"attention": attention.tolist()})
    yield "lists", attention.tolist(), importance.tolist()
    yield "tuples and deques", tuple(map(tuple, attention.tolist())), deque(map(deque, importance.tolist()))
    yield "arrays", attention, list(importance)
    yield "an array of objects", np.array([*attention, None], object)[:-1], importance
    yield "tensors", torch.tensor(attention), list(torch.tensor(importance, requires_grad=True))
    yield (
        "lists of scalars",
        [list(row) for row in attention],
        [[torch.tensor(value) for value in row] for row in importance],
    )
    yield "pandas", pd.DataFrame({"a": attention.tolist()})["a"], pd.DataFrame(importance)
    yield "arrow", table.column("attention"), pa.array(importance.tolist())
    yield "datasets", datasets.Dataset.from_dict({"a": attention.tolist()})["a"], importance


@pytest.mark.parametrize(
    ("attention", "importance"), [given[1:] for given in containers()], ids=[c[0] for c in containers()]
)
def test_every_usual_container(metric, attention, importance):
    _, expected_attention, expected_importance = next(containers())
    expected = metric.compute(attention=expected_attention, importance=expected_importance, **SETTINGS)
    same(metric.compute(attention=attention, importance=importance, **SETTINGS), expected)


def test_half_precision_is_read_as_it_is(metric):
    given = torch.tensor([[0.25, 0.5, 0.25]], dtype=torch.bfloat16)
    same(metric.compute(attention=given), metric.compute(attention=[[0.25, 0.5, 0.25]]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"attention": (row for row in ATTENTION)},
            "attention is of type generator, which can be read only once: give list",
        ),
        ({"attention": 5}, "attention is of type int: give a list with one row of numbers per instance"),
        ({"attention": "0.5 0.5"}, "attention is of type str: give a list"),
        ({"attention": {"a": [1.0]}}, "attention is of type dict: give a list"),
        ({"attention": {1.0}}, "attention is of type set: give a list"),
        ({"attention": np.float64(1)}, "attention is of type float64: give a list"),
        ({"attention": torch.tensor(1.0)}, "attention is of type Tensor: give a list"),
        ({"attention": [1.0]}, "row 0: attention is 1.0; give a list of numbers, or None"),
        ({"attention": np.ones(3)}, "row 0: attention is np.float64.1.0.; give a list of numbers"),
        ({"attention": [[1.0], "x" * 900]}, r"row 1: attention is 'x{39}… \(str\); give a list of numbers"),
        ({"attention": [[1.0], iter([1.0])]}, "row 1: attention is .*; give a list of numbers"),
        ({"attention": [[1.0], {"a": 1}]}, "row 1: attention is {'a': 1}; give a list of numbers"),
        ({"attention": [[1.0], [[1.0]]]}, "row 1: attention holds a list within the row; a row is one-dimensional"),
        ({"attention": np.ones((2, 1, 1))}, "row 0: attention has 2 axes; a row is one-dimensional"),
        ({"attention": [[1.0], ["1.0"]]}, "row 1: attention holds '1.0'; give numbers"),
        ({"attention": [[1.0], [1j]]}, "row 1: attention holds 1j; give numbers"),
        ({"attention": [[1.0], [10**400]]}, "row 1: attention holds a whole number of 1329 bits, larger than any float"),
        ({"attention": [[1.0], [object]]}, "row 1: attention holds <class 'object'>; give numbers"),
        ({"attention": [[1.0], [math.inf, 0]]}, "row 1: attention sums to inf"),
        ({"attention": [[1.0]], "mask": [[2]]}, "row 0: mask holds something else than 0 and 1"),
        ({"attention": [[1.0]], "mask": [None]}, "row 0: mask holds something else than 0 and 1"),
        ({"attention": [[1.0]], "mask": [[1, 1]]}, "row 0: mask has 2 values and attention 1; give one per token"),
        ({"attention": [[1.0]], "mask": []}, "mask has 0 rows and attention 1: give one per instance"),
        (
            {"probs": [[1.0]], "counterfactual_probs": [[1.0]], "mask": [[1]]},
            "mask is of tokens, and the columns .* have none",
        ),
        ({"attention": [[1.0]], "alpha": "high"}, "alpha is 'high'; a level of significance lies in 0..1"),
        ({"attention": [[1.0]], "alpha": None}, "alpha is None; a level"),
        ({"attention": [[1.0]], "alpha": math.nan}, "alpha is nan; a level"),
        (
            {"attention": [[1.0]], "n_bootstrap": 10**400},
            "n_bootstrap is a whole number of 1329 bits; give a whole number of",
        ),
        ({"attention": [[1.0]], "n_bootstrap": True}, "n_bootstrap is True; give a whole number"),
        ({"attention": [[1.0]], "seed": "0"}, "seed is '0'; give a whole number"),
        ({"attention": [[1.0]], "share": "half"}, "share is 'half'; give it to the configuration"),
        ({"attention": [[1.0]], "x" * 500: [[1.0]]}, r"unknown columns \['x{40}'\]; the columns are"),
    ],
)
def test_one_error_that_names_column_and_row(metric, given, message):
    with pytest.raises(ValueError, match=message) as error:
        metric.compute(**given)
    assert type(error.value).__name__ == "InputError" and len(str(error.value)) < 400
    assert len(metric) == 0


HOSTILE = [
    *(
        None,
        True,
        0,
        -1,
        1.5,
        math.nan,
        math.inf,
        10**400,
        10**5000,
        1j,
        "",
        "a",
        b"a",
        {},
        set(),
        object(),
        type,
        ...,
        1e308,
    ),
    *([], [[]], [None], [[None]], [[0.5, 0.5]], [[[]]], [["a"]], [{}], np.zeros((2, 0)), np.zeros((0, 2)), np.array(3)),
    *(
        np.array(["a"]),
        np.ones((2, 2, 2)),
        np.array([1j]),
        pd.Series([[1.0]]),
        pd.NaT,
        torch.ones(2),
        range(3),
        deque([[1.0]]),
    ),
    *(np.datetime64("2020-01-01"), [[pd.NA]], [[np.datetime64("2020-01-01")]], [np.array([None])], [[np.str_("1")]]),
]


def nested(depth):
    value = [0.5]
    for _ in range(depth):
        value = [value]
    return value


def test_any_input_gives_a_result_or_the_metrics_own_error(metric):
    """Good columns with parts of them replaced by what nobody should give."""
    chance = random.Random(0)
    outcomes = {"result": 0, "InputError": 0}
    for number in range(400):
        columns = {"attention": list(ATTENTION), "importance": list(IMPORTANCE), "probs": list(PROBS)}
        settings = {"n_bootstrap": 5}
        value = chance.choice([*HOSTILE, nested(2000), (x for x in ([1.0],))])
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
