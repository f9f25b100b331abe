"""Training what to select: steps by hand, planted evidence, logs, multipliers in checkpoints, and runs of a recipe."""

import datasets
import numpy as np
import pytest
import torch

from attnfaith import RationaleClassifierConfig, RationaleClassifierForSequenceClassification, record, runs
from attnfaith.data.collation import pad_batch
from attnfaith.models.rationale_samplers import bernoulli_log_prob, expected_share, kuma_shape
from attnfaith.support.errors import AttnfaithError
from attnfaith.training import RationaleTrainer
from attnfaith.training.losses import classification_loss
from attnfaith.training.rationales import SelectionState, selection_price
from tests.tiny_trainings import make_trainer


pytestmark = pytest.mark.slow


KINDS = {
    "bernoulli": ({"sampler": "bernoulli"}, {"sparsity": 0.05, "coherence": 1.0, "baseline": "moving_average"}),
    "hardkuma": ({"sampler": "hardkuma"}, {"share": 0.3, "lasso": 0.2}),
    "budget": ({"sampler": "budget", "budget": 0.3}, {}),
}
"""Fields of the model, and options of the training, by sampler."""


def planted(count, seed):
    """Encoded texts in which word 5 or word 6 stands somewhere, and says the label."""
    random, rows = np.random.default_rng(seed), []
    for number in range(count):
        words = random.integers(7, 30, random.integers(4, 9)).tolist()
        words[random.integers(len(words))] = 5 + number % 2
        rows.append({"input_ids": [2, *words, 3], "labels": number % 2, "length": len(words) + 2})
    return datasets.Dataset.from_list(rows)


@pytest.fixture
def make(tmp_path):
    def trainer(kind="bernoulli", *, count=64, seed=5, **arguments):
        fields, usual = KINDS[kind]
        torch.manual_seed(seed)
        config = RationaleClassifierConfig(vocab_size=30, embedding_size=16, hidden_size=16, encoder="cnn", **fields)
        result = make_trainer(
            RationaleClassifierForSequenceClassification(config),
            planted(count, 1),
            planted(24, 2),
            tmp_path,
            kind=RationaleTrainer,
            **{"balance_classes": False, **usual, **arguments},
        )
        result.processing_class = None  # which checkpoints would hold
        return result

    return trainer


def batch_of(trainer, rows=8):
    return pad_batch(trainer.train_dataset.to_list()[:rows], 0)


def test_a_step_of_bernoulli_by_hand(make):
    """Cost and its gradient, after one batch has made the moving average."""
    trainer = make("bernoulli", decay=0.75)
    model, batch = trainer.model.train(), batch_of(trainer)
    trainer.current_gradient_accumulation_steps = 1
    with torch.no_grad():
        model.selector.score.weight.normal_()
    baseline = 0.0
    for step in range(2):
        torch.manual_seed(step)
        loss = trainer.compute_loss(model, dict(batch))
        own = torch.autograd.grad(loss, [model.selector.score.weight, model.decoder.context.weight])
        torch.manual_seed(step)
        outputs = model(batch["input_ids"], batch["attention_mask"])
        inside = model.attendable(batch["input_ids"], batch["attention_mask"])
        costs = classification_loss(outputs.logits, batch["labels"])
        costs = costs + selection_price(outputs.gates, inside, 0.05, 1.0)
        assert loss.item() == pytest.approx(costs.sum().item(), rel=1e-5)
        logs = bernoulli_log_prob(outputs.selection_scores.squeeze(-1), outputs.gates, inside)
        surrogate = (costs + (costs.detach() - baseline) * logs).sum()
        expected = torch.autograd.grad(surrogate, [model.selector.score.weight, model.decoder.context.weight])
        for slope, other in zip(own, expected, strict=True):
            torch.testing.assert_close(slope, other, rtol=1e-4, atol=1e-5)
        mean = costs.mean().item()
        baseline = mean if step == 0 else 0.75 * baseline + 0.25 * mean
        assert trainer.numbers["baseline"] == pytest.approx(baseline, rel=1e-5)


def test_a_step_of_hardkuma_by_hand(make):
    with pytest.raises(AttnfaithError, match="give share or lasso"):
        make("hardkuma", share=None, lasso=None)
    options = {"multiplier": 2.0, "multiplier_rate": 0.5, "decay": 0.5, "lasso": None}
    trainer = make("hardkuma", loss_reduction="mean", **options)
    model, batch = trainer.model.train(), batch_of(trainer)
    torch.manual_seed(0)
    loss = trainer.compute_loss(model, dict(batch))
    torch.manual_seed(0)
    outputs = model(batch["input_ids"], batch["attention_mask"])
    inside = model.attendable(batch["input_ids"], batch["attention_mask"])
    share = expected_share(*kuma_shape(outputs.selection_scores), inside).mean().item()
    average = 0.5 * (share - 0.3)
    multiplier = 2.0 * np.exp(0.5 * average)
    cross_entropy = classification_loss(outputs.logits, batch["labels"]).mean().item()
    assert loss.item() == pytest.approx(cross_entropy + multiplier * average, rel=1e-5)
    assert trainer.numbers == pytest.approx({"share_multiplier": multiplier, "share_constraint": average})


@pytest.mark.parametrize("kind", KINDS)
def test_planted_evidence_is_selected(kind, make):
    """Of one class at least, for then what is missing tells the other; little else; and the label is learned by it alone."""
    options = {
        "bernoulli": {"coherence": 0.0},
        "hardkuma": {"share": 0.2, "lasso": None, "multiplier": 0.1, "multiplier_rate": 0.2, "decay": 0.9},
        "budget": {},
    }[kind]
    trainer = make(kind, count=256, num_train_epochs=25, eval_strategy="no", loss_reduction="mean", **options)
    trainer.train()
    model = trainer.model.eval()
    batch = pad_batch(trainer.eval_dataset.to_list(), 0)
    with torch.no_grad():
        outputs = model(batch["input_ids"], batch["attention_mask"])
    accuracy = (outputs.logits.argmax(1) == batch["labels"]).float().mean()
    evidence = (batch["input_ids"] == 5) | (batch["input_ids"] == 6)
    inside = model.attendable(batch["input_ids"], batch["attention_mask"])
    selected = outputs.gates.bool()
    assert accuracy > 0.9
    of_class = [selected[batch["input_ids"] == word].float().mean() for word in (5, 6)]
    assert max(of_class) > 0.9 and selected[inside & ~evidence].float().mean() < 0.25


@pytest.mark.parametrize("kind", ["bernoulli", "hardkuma"])
def test_a_training_that_goes_on_is_the_one_that_was_not_stopped(kind, make):
    """To the last bit: multipliers, averages and draws are in the checkpoint."""
    whole = make(kind, num_train_epochs=2, save_strategy="epoch")
    whole.train()
    again = make(kind, seed=9, num_train_epochs=2, save_strategy="epoch")
    again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-2")
    assert whole.numbers == again.numbers and whole.numbers
    assert sum(isinstance(callback, SelectionState) for callback in again.callback_handler.callbacks) == 1
    for name, values in whole.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], values, atol=0, rtol=0, msg=name)


# ------------------------------------------------------------------------------------------------ runs


SELECTORS = {
    "bernoulli": {"model__selector": {"kind": "bernoulli"}, "selection__sparsity": 0.01},
    "hardkuma": {"model__selector": {"kind": "hardkuma", "pooling": "max"}, "selection__lasso": 0.2},
    "budget": {"model__selector": {"kind": "budget", "budget": 0.4, "transition": 0.05, "contiguous": True}},
}


@pytest.mark.parametrize("kind", SELECTORS)
def test_a_recipe_is_trained_and_measured(kind, tiny_recipe, quick_report):
    """The record has what was selected, and says how, as the recipe does."""
    recipe = tiny_recipe(**SELECTORS[kind], measure__producers=["gradient", "permutation"])
    assert runs.run(recipe).is_file()
    table = record.load(f"{recipe.output_dir}/record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert identity.attention_kind == "selection" and identity.selection_kind == kind
    assert (identity.selection_sparsity is not None, identity.selection_target is not None) == (
        kind == "bernoulli",
        kind == "hardkuma",
    )
    if kind == "budget":
        assert all(chosen.sum() <= max(1, round(0.4 * len(chosen))) for chosen in record.rows(table, "selected"))
