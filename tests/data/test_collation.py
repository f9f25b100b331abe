"""Padding by hand, against the tokenizer's own, and under a DataLoader and a Trainer."""

import numpy as np
import pytest
import torch

from attnfaith.data.collation import data_collator, keep_positions, pad_batch
from attnfaith.data.planted_evidence import generate
from attnfaith.data.tokenization import build_tokenizer, encode
from attnfaith.errors import DatasetError


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


def test_types_and_the_other_name_of_labels():
    batch = pad_batch(
        [
            {"input_ids": [2, 3, 2, 8, 3], "token_type_ids": [0, 0, 1, 1, 1], "label": 4},
            {"input_ids": np.array([2, 3, 2, 3]), "token_type_ids": [0, 0, 1, 1], "label": 2},
        ]
    )
    assert batch["token_type_ids"].tolist() == [[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]]
    assert batch["labels"].tolist() == [4, 2]


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


@pytest.fixture
def encoded():
    import datasets

    made = generate(23, 0, length=(1, 9))
    split = datasets.Dataset.from_dict(
        {
            "instance_id": [f"x/{row}" for row in range(23)],
            "text": [row["text"] for row in made],
            "label": [row["label"] for row in made],
        }
    )
    tokenizer = build_tokenizer(split["text"], preprocessing="whitespace")
    return tokenizer, encode(split, tokenizer)


def test_batches_of_a_data_loader_agree_with_the_tokenizers_padding(encoded):
    tokenizer, split = encoded
    loader = torch.utils.data.DataLoader(split, batch_size=10, collate_fn=data_collator(tokenizer))
    batches = list(loader)
    assert [len(batch["labels"]) for batch in batches] == [10, 10, 3]
    assert torch.cat([batch["labels"] for batch in batches]).tolist() == split["labels"][:]
    theirs = tokenizer.pad([{"input_ids": ids} for ids in split["input_ids"][:10]], return_tensors="pt")
    assert torch.equal(batches[0]["input_ids"], theirs["input_ids"])
    assert torch.equal(batches[0]["attention_mask"], theirs["attention_mask"])


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
    left = [
        {name: [v for v, keep in zip(row[name], mask.tolist(), strict=False) if keep] for name in row}
        for row, mask in zip(rows, stays, strict=True)
    ]
    expected = pad_batch(left)
    found = keep_positions(batch, stays)
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]) and found[name].dtype == expected[name].dtype
        assert torch.equal(batch[name], before[name])
    assert keep_positions(batch, torch.zeros_like(stays))["input_ids"].tolist() == [[0], [0], [0]]
    assert keep_positions(batch, stays, pad_token_id=9)["input_ids"][1].tolist() == [2, 3, 9, 9]
