"""Padding by hand, and positions that are taken out."""

import pytest
import torch

from attnfaith.data.collation import keep_positions, pad_batch
from attnfaith.support.errors import DatasetError


def test_padding_by_hand():
    batch = pad_batch(
        [
            {"input_ids": [2, 7, 3], "labels": 1, "tokens": ["x"], "impermissible": [0, 1, 0]},
            {"input_ids": [2, 7, 8, 9, 3], "labels": 0, "impermissible": [0, 0, 0, 1, 0]},
        ],
        pad_token_id=5,
    )
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[2, 7, 3, 5, 5], [2, 7, 8, 9, 3]],
        "attention_mask": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
        "impermissible": [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]],
        "labels": [1, 0],
    }
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
        {name: [v for v, stay in zip(row[name], mask.tolist(), strict=False) if stay] for name in row}
        for row, mask in zip(rows, stays, strict=True)
    ]
    expected, actual = pad_batch(remaining), keep_positions(batch, stays)
    assert actual.keys() == expected.keys()
    for name in expected:
        assert torch.equal(actual[name], expected[name]) and actual[name].dtype == expected[name].dtype
        assert torch.equal(batch[name], before[name])
    assert keep_positions(batch, torch.zeros_like(stays))["input_ids"].tolist() == [[0], [0], [0]]
    assert keep_positions(batch, stays, pad_token_id=9)["input_ids"][1].tolist() == [2, 3, 9, 9]
