"""Systems without forks: workers that are spawned load the same batches."""

import pickle

import datasets
import pytest
import torch
from torch.utils.data import DataLoader

from tests.tiny_trainings import make_trainer


@pytest.fixture(params=["none", "sentence"])
def trainer(request, tiny_model, tiny_rows, tmp_path):
    texts = [row["input_ids"] for row in tiny_rows([5, 3, 7, 2])]
    columns = {"input_ids": texts, "labels": [0, 1, 0, 1], "length": [len(text) for text in texts]}
    given = datasets.Dataset.from_dict(columns)
    model = tiny_model(hierarchy=request.param)
    return make_trainer(model, given, given, tmp_path)


def test_workers_get_how_texts_become_batches(trainer):
    """Where processes are not forked (Windows, macOS), a worker of `dataloader_num_workers` gets this pickled."""
    rows = [trainer.train_dataset[place] for place in range(4)]
    one, other = trainer.data_collator(rows), pickle.loads(pickle.dumps(trainer.data_collator))(rows)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_workers_that_are_not_forked_load_data(trainer):
    here = next(iter(DataLoader(trainer.train_dataset, 4, collate_fn=trainer.data_collator)))
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    there = next(iter(DataLoader(trainer.train_dataset, 4, collate_fn=trainer.data_collator, **options)))
    assert here.keys() == there.keys() and all(torch.equal(here[name], there[name]) for name in here)
