"""Trainers on tiny texts, with the usual settings of tests."""

from types import SimpleNamespace

import datasets
import numpy as np
import torch

from attnfaith.recipes import Recipe
from attnfaith.recipes.schema import Model, Penalties
from attnfaith.runs.train import penalties_of
from attnfaith.training import AttentionTrainer


TOKENIZER = SimpleNamespace(pad_token_id=0, unk_token_id=1, model_input_names=["input_ids"])
ALL = {"impermissible_mass": 0.7, "diversity": 0.4, "word_tying": 0.3, "masked_language_model": 0.2, "masked_share": 0.5}
"""Weights of all four penalties, and the share of words that the last one masks."""
SETTINGS = {
    "seed": 0,
    "num_train_epochs": 1,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-2,
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
    "lr_scheduler_type": "constant",
    "train_sampling_strategy": "sequential",
    "remove_unused_columns": False,
    "length_column_name": "length",
    "metric_for_best_model": "eval_loss",
    "greater_is_better": False,
    "logging_strategy": "epoch",
    "report_to": "none",
    "use_cpu": True,
    "dataloader_pin_memory": False,
    "disable_tqdm": True,
    "save_strategy": "no",
}


def make_trainer(
    model, train, validation, folder, *, kind=AttentionTrainer, tokenizer=TOKENIZER, penalties=None, **arguments
):
    """A trainer for encoded splits. penalties: {key of a recipe: value}; arguments: in place of SETTINGS."""
    arguments = kind.config_class(output_dir=str(folder / "checkpoints"), **{**SETTINGS, **arguments})
    options = {"train_dataset": train, "eval_dataset": validation, "processing_class": tokenizer}
    if penalties:
        section = Model(pretrained="any") if "impermissible_heads" in penalties else Model()  # only these have several heads
        options["penalties"] = penalties_of(Recipe("a", "b", model=section, penalties=Penalties(**penalties)))
    return kind(model, arguments, **options)


def planted_rows(count, seed=1, words=(5, 6), markers=(2, 3)):
    """Texts in which one of two words stands somewhere and decides the label; both are impermissible."""
    draws, rows = np.random.default_rng(seed), []
    for number in range(count):
        text = draws.integers(10, 30, draws.integers(4, 9)).tolist()
        text[draws.integers(len(text))] = words[number % 2]
        ids = [markers[0], *text, markers[1]]
        marks = [int(word in words) for word in ids]
        rows.append({"input_ids": ids, "labels": number % 2, "length": len(ids), "impermissible": marks})
    return datasets.Dataset.from_list(rows)


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def same(state, expected, atol=0.0):
    """Check that two states of a model are equal."""
    assert state.keys() == expected.keys()
    for name in state:
        torch.testing.assert_close(state[name], expected[name], atol=atol, rtol=0, msg=name)


def moved(state, earlier):
    """The largest difference of two states of a model."""
    return max(float((state[name] - earlier[name]).abs().max()) for name in state)
