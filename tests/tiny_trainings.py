"""Tiny trainings: their settings, which tests change one by one, and the trainers of them."""

from types import SimpleNamespace

import torch

from attnfaith.recipes import Model, Penalties, Recipe
from attnfaith.runs.train import penalties_of
from attnfaith.training import AttentionTrainer


TOKENIZER = SimpleNamespace(pad_token_id=0, unk_token_id=1, model_input_names=["input_ids"])


def settings(folder) -> dict:
    """Arguments of a training of one quiet epoch on tiny texts, whose checkpoints would lie in the folder."""
    return {
        "output_dir": str(folder / "checkpoints"),
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


def make_trainer(model, train, validation, folder, *, kind=AttentionTrainer, tokenizer=TOKENIZER, penalties=(), **arguments):
    """A trainer of some kind for encoded splits, with the settings above but for `arguments`."""
    arguments = kind.config_class(**{**settings(folder), **arguments})
    splits = {"train_dataset": train, "eval_dataset": validation}
    added = {"penalties": penalties} if penalties else {}
    return kind(model, arguments, **splits, processing_class=tokenizer, **added)


def penalties_by_name(**section):
    """Penalties, by the keys of a recipe."""
    model = Model(pretrained="any") if section.get("impermissible_heads") else Model()  # only such a model has several heads
    return penalties_of(Recipe("a", "b", model=model, penalties=Penalties(**section)))


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def same(state, expected, atol=0.0):
    """Check that two states of a model are equal."""
    assert state.keys() == expected.keys()
    for name in state:
        torch.testing.assert_close(state[name], expected[name], atol=atol, rtol=0, msg=name)


def moved(state, other):
    """The largest difference of two states of a model."""
    return max(float((state[name] - other[name]).abs().max()) for name in state)
