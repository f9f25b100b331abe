"""A factory of trainers on tiny texts."""

import datasets
import numpy as np
import pytest
import torch

from attnfaith.training import AttentionTrainer
from tests.tiny_trainings import make_trainer


@pytest.fixture
def marked_texts(tiny_rows):
    """Factory of encoded texts of these lengths, about a third of whose words are impermissible, with a label to learn."""

    def make(lengths, seed=1, **layout):
        draws = np.random.default_rng(seed)
        rows = tiny_rows([draws.integers(5, 60, length).tolist() for length in lengths], **layout)
        for row in rows:
            row["impermissible"] = [int(word % 3 == 0) for word in row["input_ids"]]
            row["labels"] = sum(row["impermissible"]) % 2
        names = ["input_ids", "labels", "length", "impermissible", *(["token_type_ids"] if layout.get("pair") else [])]
        return datasets.Dataset.from_list(rows).select_columns(names)

    return make


@pytest.fixture
def make(tiny_model, marked_texts, tmp_path):
    """Factory of a trainer on 64 tiny texts. fields: of the model; prepare: what is done with each split."""

    def trainer(kind=AttentionTrainer, *, lengths=None, fields=None, pair=False, prepare=lambda rows: rows, **arguments):
        fields = fields or {}
        layout = {"pair": pair, "hierarchy": fields.get("hierarchy", "none")}
        lengths = lengths or np.random.default_rng(3).integers(2, 9, 64).tolist()
        model = tiny_model(seed=5, scale=1.0, dtype=torch.float32, query="text" if pair else "learned", **fields)
        splits = [prepare(marked_texts(*texts, **layout)) for texts in ((lengths, 1), (lengths[:24], 2))]
        if not arguments.get("penalties"):
            splits = [split.remove_columns("impermissible") for split in splits]
        return make_trainer(model, *splits, tmp_path, kind=kind, **arguments)

    return trainer
