"""Padding by hand, against the tokenizer's own, and under a DataLoader and a Trainer."""

import pytest
import torch

from attnfaith.data.collation import keep_positions, pad_batch
from attnfaith.support.errors import DatasetError


def test_padding_by_hand():
    batch = pad_batch(
        [
            {"input_ids": [2, 7, 3], "labels": 1, "tokens": ["x"], "instance_id": "a"},
            {"input_ids": [2, 7, 8, 9, 3], "labels": 0, "tokens": ["x", "y", "z"], "instance_id": "b"},
        ],
        pad_token_id=5,
    )
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["input_ids"].tolist() == [[2, 7, 3, 5, 5], [2, 7, 8, 9, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch["labels"].tolist() == [1, 0]
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no instances"),
        ([{"input_ids": [2], "labels": 0}, {"input_ids": [2]}], "Only 1 of 2 instances have 'labels'"),
        ([{"ids": [2]}], "Only 0 of 1 instances have 'input_ids'"),
    ],
)
def test_refusals(rows, message):
    with pytest.raises(DatasetError, match=message):
        pad_batch(rows)


def test_positions_that_stay_move_up():
    """By lists: what is left of each text, padded anew; the batch is left as it was."""
    rows = [
        {"input_ids": [2, 7, 8, 9, 3], "token_type_ids": [0, 0, 0, 1, 1]},
        {"input_ids": [2, 3], "token_type_ids": [0, 0]},
        {"input_ids": [2, 5, 3], "token_type_ids": [0, 0, 1]},
    ]
    batch = pad_batch(rows)
    before = {name: values.clone() for name, values in batch.items()}
    stays = torch.tensor([[1, 0, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0]], dtype=torch.bool)
    remaining = [
        {name: [v for v, keep in zip(row[name], mask.tolist(), strict=False) if keep] for name in row}
        for row, mask in zip(rows, stays, strict=True)
    ]
    expected = pad_batch(remaining)
    actual = keep_positions(batch, stays)
    assert actual.keys() == expected.keys()
    for name in expected:
        assert torch.equal(actual[name], expected[name]) and actual[name].dtype == expected[name].dtype
        assert torch.equal(batch[name], before[name])
    assert keep_positions(batch, torch.zeros_like(stays))["input_ids"].tolist() == [[0], [0], [0]]
    assert keep_positions(batch, stays, pad_token_id=9)["input_ids"][1].tolist() == [2, 3, 9, 9]


def test_candidates_are_the_classes_that_may_be_answered():
    rows = [{"input_ids": [2, 3], "candidates": [0, 2]}, {"input_ids": [2, 5, 3], "candidates": [1]}]
    assert pad_batch(rows, 0, 3)["answer_mask"].tolist() == [[True, False, True], [False, True, False]]
    for listed, classes, message in (
        (rows, None, "need num_labels"),
        (rows, 2, r"candidates \[0, 2\]: give at least one of the classes 0 to 1"),
        ([rows[0], {**rows[1], "candidates": []}], 3, r"candidates \[\]"),
        ([rows[0], {"input_ids": [2, 3]}], 3, "Only 1 of 2 instances have 'candidates'"),
    ):
        with pytest.raises(DatasetError, match=message):
            pad_batch(listed, 0, classes)
