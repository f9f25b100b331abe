"""Training a selection: steps by hand, planted evidence, numbers in checkpoints, and runs of a recipe."""

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
from tests.tiny_trainings import make_trainer, planted_rows, same, weights


pytestmark = pytest.mark.slow
SAMPLERS = {
    "bernoulli": ({"sampler": "bernoulli"}, {"sparsity": 0.05, "coherence": 1.0, "baseline": "moving_average"}),
    "hardkuma": ({"sampler": "hardkuma"}, {"share": 0.3}),
    "budget": ({"sampler": "budget", "budget": 0.3}, {}),
}
"""Fields of the model, and options of the training."""


@pytest.fixture
def make(tmp_path):
    """Factory of a trainer on texts in which a word decides the label."""

    def trainer(sampler="bernoulli", *, count=64, seed=5, **arguments):
        fields, options = SAMPLERS[sampler]
        torch.manual_seed(seed)
        config = RationaleClassifierConfig(vocab_size=30, embedding_size=16, hidden_size=16, encoder="cnn", **fields)
        options = {"kind": RationaleTrainer, "balance_classes": False, **options, **arguments}
        splits = [planted_rows(*texts).remove_columns("impermissible") for texts in ((count, 1), (24, 2))]
        trainer = make_trainer(RationaleClassifierForSequenceClassification(config), *splits, tmp_path, **options)
        trainer.processing_class = None  # which checkpoints would hold
        return trainer

    return trainer


def read(model, batch):
    """The outputs of a batch, and its tokens (B,L) bool."""
    inputs = batch["input_ids"], batch["attention_mask"]
    return model(*inputs), model.attendable(*inputs)


def test_steps_of_bernoulli_by_hand(make):
    """Cost and its gradient, after one batch has made the moving average."""
    trainer = make("bernoulli", decay=0.75)
    model, batch = trainer.model.train(), pad_batch(trainer.train_dataset.to_list()[:8], 0)
    trainer.current_gradient_accumulation_steps = 1
    with torch.no_grad():
        model.selector.score.weight.normal_()
    parameters, baseline = [model.selector.score.weight, model.decoder.context.weight], 0.0
    for step in range(2):
        torch.manual_seed(step)
        loss = trainer.compute_loss(model, dict(batch))
        slopes = torch.autograd.grad(loss, parameters)
        torch.manual_seed(step)
        outputs, inside = read(model, batch)
        costs = classification_loss(outputs.logits, batch["labels"]) + selection_price(outputs.gates, inside, 0.05, 1.0)
        assert loss.item() == pytest.approx(costs.sum().item(), rel=1e-5)
        logs = bernoulli_log_prob(outputs.selection_scores.squeeze(-1), outputs.gates, inside)
        expected = torch.autograd.grad((costs + (costs.detach() - baseline) * logs).sum(), parameters)
        for slope, other in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope, other, rtol=1e-4, atol=1e-5)
        mean = costs.mean().item()
        baseline = mean if step == 0 else 0.75 * baseline + 0.25 * mean
        assert trainer.numbers["baseline"] == pytest.approx(baseline, rel=1e-5)


def test_a_step_of_hardkuma_by_hand(make):
    with pytest.raises(AttnfaithError, match="give share"):
        make("hardkuma", share=None)
    options = {"multiplier": 2.0, "multiplier_rate": 0.5, "decay": 0.5}
    trainer = make("hardkuma", loss_reduction="mean", **options)
    model, batch = trainer.model.train(), pad_batch(trainer.train_dataset.to_list()[:8], 0)
    torch.manual_seed(0)
    loss = trainer.compute_loss(model, dict(batch))
    torch.manual_seed(0)
    outputs, inside = read(model, batch)
    share = expected_share(*kuma_shape(outputs.selection_scores), inside).mean().item()
    average = 0.5 * (share - 0.3)
    multiplier = 2.0 * np.exp(0.5 * average)
    cross_entropy = classification_loss(outputs.logits, batch["labels"]).mean().item()
    assert loss.item() == pytest.approx(cross_entropy + multiplier * average, rel=1e-5)
    assert trainer.numbers == pytest.approx({"share_multiplier": multiplier, "share_constraint": average})


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_planted_evidence_is_selected(sampler, make):
    """That of one class at least, since its absence tells the other; little else; and labels are learned by it alone."""
    options = {
        "bernoulli": {"coherence": 0.0},
        "hardkuma": {"share": 0.2, "multiplier": 0.1, "multiplier_rate": 0.2, "decay": 0.9},
        "budget": {},
    }[sampler]
    trainer = make(sampler, count=256, num_train_epochs=25, eval_strategy="no", loss_reduction="mean", **options)
    trainer.train()
    batch = pad_batch(trainer.eval_dataset.to_list(), 0)
    with torch.no_grad():
        outputs, inside = read(trainer.model.eval(), batch)
    assert (outputs.logits.argmax(1) == batch["labels"]).float().mean() > 0.9
    selected, evidence = outputs.gates.bool(), [batch["input_ids"] == word for word in (5, 6)]
    assert max(selected[places].float().mean() for places in evidence) > 0.9
    assert selected[inside & ~evidence[0] & ~evidence[1]].float().mean() < 0.25


@pytest.mark.parametrize("sampler", ["bernoulli", "hardkuma"])
def test_a_resumed_training_ends_as_a_whole_one(sampler, make):
    """To the last bit: multipliers, averages and draws are in the checkpoint."""
    whole = make(sampler, num_train_epochs=2, save_strategy="epoch")
    whole.train()
    resumed = make(sampler, seed=9, num_train_epochs=2, save_strategy="epoch")
    resumed.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-2")
    assert whole.numbers == resumed.numbers and whole.numbers
    assert sum(isinstance(callback, SelectionState) for callback in resumed.callback_handler.callbacks) == 1
    same(weights(resumed), weights(whole))


SELECTORS = {
    "bernoulli": {"model__selector": {"kind": "bernoulli"}, "selection__sparsity": 0.01},
    "hardkuma": {"model__selector": {"kind": "hardkuma"}},
    "budget": {"model__selector": {"kind": "budget", "budget": 0.4}},
}


@pytest.mark.parametrize("kind", SELECTORS)
def test_a_recipe_is_trained_and_measured(kind, tiny_recipe, quick_figures):
    """The record has the selection, and its identity names the sampler and its options."""
    recipe = tiny_recipe(**SELECTORS[kind], measure__producers=["gradient", "permutation"])
    assert runs.run(recipe).is_file()
    table = record.load(f"{recipe.output_dir}/record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert identity.attention_kind == "selection" and identity.selection_kind == kind
    options = identity.selection_sparsity is not None, identity.selection_target is not None
    assert options == (kind == "bernoulli", kind == "hardkuma")
    if kind == "budget":
        assert all(chosen.sum() <= max(1, round(0.4 * len(chosen))) for chosen in record.rows(table, "selected"))
