"""The papers' training on tiny models: loss, optimiser, selection of a checkpoint, and trainings that stop."""

from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import PartialState
from safetensors.torch import load_file
from scipy.special import rel_entr
from transformers import TrainerCallback

from attnfaith import runs
from attnfaith.data.collation import pad_batch
from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.files import read_object
from attnfaith.training import AdversarialTrainer, AttentionTrainer, DivergedError, GuidedTrainer
from attnfaith.training.losses import adversarial_loss, classification_loss
from attnfaith.training.trainers import check_selection, collate, erase_tokens
from tests.tiny_trainings import moved, same, weights


pytestmark = pytest.mark.slow
SHORT = [5, 3, 8, 2] * 8


def twin(trainer):
    """A copy of the trainer's model before training."""
    model = type(trainer.model)(trainer.model.config).train()
    model.load_state_dict(trainer.model.state_dict())
    return model


def adam(model, *, decay=1e-5, factor=1.0, **options):
    """AMSGrad Adam with coupled L2 on everything but the alignment, which has a rate of its own."""
    alignment = [value for name, value in model.named_parameters() if "alignment" in name]
    rest = [value for name, value in model.named_parameters() if "alignment" not in name]
    groups = [{"params": rest, "weight_decay": decay}, {"params": alignment, "weight_decay": 0.0, "lr": 1e-2 * factor}]
    return torch.optim.Adam(groups, lr=1e-2, amsgrad=True, **options)


def logits_of(model, batch):
    return model(batch["input_ids"], batch["attention_mask"]).logits


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_an_epoch_by_hand_and_by_accumulated_gradients(make, reduction):
    """Two steps of Adam on losses weighed by the sizes of the classes; the logged loss is that of an instance."""
    options = {"loss_reduction": reduction, "attention_learning_rate_factor": 3.0, "weight_decay": 0.05, "adam_beta1": 0.8}
    trainer = make(**options, adam_epsilon=1e-7)
    model, rows, before = twin(trainer), trainer.train_dataset, weights(trainer)
    trainer.train()
    labels = torch.tensor(rows["labels"])
    balance = torch.tensor([1.0, float((labels == 0).sum() / (labels == 1).sum())])
    optimizer, means = adam(model, decay=0.05, factor=3.0, betas=(0.8, 0.999), eps=1e-7), []
    for start in (0, 32):
        batch = pad_batch([rows[index] for index in range(start, start + 32)])
        losses = classification_loss(logits_of(model, batch), batch["labels"], balance)
        optimizer.zero_grad()
        (losses.sum() if reduction == "sum" else losses.mean()).backward()
        optimizer.step()
        means.append(float(losses.detach().mean()))
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)
    logged = [entry.get("loss", entry.get("train_loss")) for entry in trainer.state.log_history]
    assert [value for value in logged if value is not None] == [pytest.approx(np.mean(means), abs=1e-4)] * 2
    parts = make(**options, adam_epsilon=1e-7, per_device_train_batch_size=8, gradient_accumulation_steps=4)
    parts.train()
    assert parts.state.global_step == 2 and moved(weights(parts), before) > 1e-3
    same(weights(parts), weights(trainer), atol=1e-5)


def test_erased_words(tiny_model, tiny_rows, tiny_batch):
    """Markers stay, words keep their order and marks, the label its text; the share that goes is uniform on 0..share."""
    model, rows = tiny_model(), tiny_rows([40] * 200 + [0, 1])
    batch = {**tiny_batch(rows), "labels": torch.arange(202)}
    batch["impermissible"] = (batch["input_ids"] % 3 == 1).long()
    for share in (0.5, 1.0):
        actual = erase_tokens(model, batch, share, seed=1, step=3)
        lengths = actual["attention_mask"].sum(1).tolist()
        for row, length, ids in zip(rows, lengths, actual["input_ids"].tolist(), strict=True):
            remaining, place = ids[:length], iter(row["input_ids"])
            assert all(word in place for word in remaining) and remaining[0] == 2 and remaining[-1] == 3
            assert not any(ids[length:])
        gone = 1 - (np.array(lengths[:200]) - 2) / 40
        assert abs(gone.mean() - share / 2) < 5 * share / np.sqrt(12 * 200)
        assert gone.min() < 0.1 * share and gone.max() > 0.8 * share
        assert torch.equal(actual["labels"], batch["labels"])
        assert torch.equal(actual["impermissible"], (actual["input_ids"] % 3 == 1).long())


def test_training_with_erased_words_by_hand(make):
    """A step on what `erase_tokens` leaves; evaluation sees whole texts."""
    trainer = make(lengths=SHORT, random_erasure=0.7, loss_reduction="mean", balance_classes=False)
    model, validation = twin(trainer), pad_batch([*trainer.eval_dataset])
    with torch.no_grad():
        losses = classification_loss(logits_of(model.eval(), validation), validation["labels"])
    assert trainer.evaluate()["eval_loss"] == pytest.approx(losses.mean().item(), abs=1e-6)
    trainer.train()
    batch = erase_tokens(model.train(), pad_batch([*trainer.train_dataset]), 0.7, seed=0, step=0)
    classification_loss(logits_of(model, batch), batch["labels"]).mean().backward()
    adam(model, decay=0.0).step()
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)


@pytest.fixture
def against(make):
    """Trainers as `make` makes them, against the attention and predictions of a base."""

    def trainer(kind, *, sparse=False, **keywords):
        draws = np.random.default_rng(7)

        def with_base(row):
            attention = draws.dirichlet(np.ones(row["length"] - 2))
            attention = np.eye(len(attention))[0] if sparse else attention
            return {"base_attention": attention.tolist(), "base_probs": draws.dirichlet(np.ones(2)).tolist()}

        return make(kind, prepare=lambda rows: rows.map(with_base), **keywords)

    return trainer


def test_a_guided_step_reads_under_the_base_attention(against):
    trainer = against(GuidedTrainer, lengths=SHORT)
    model, batch = twin(trainer), collate(list(trainer.train_dataset), 0)
    hidden, _, query = model.encode(batch["input_ids"], batch["attention_mask"])
    logits = model.decode(hidden, batch["base_attention"], query)
    classification_loss(logits, batch["labels"], trainer.class_weights).sum().backward()
    assert all(p.grad is None for name, p in model.named_parameters() if "alignment" in name)
    adam(model, decay=0.0).step()
    trainer.train()
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)


@pytest.mark.parametrize("divergence", ["kl", "jsd"])
def test_an_adversarial_step(against, divergence):
    """Labels and their balance take no part."""
    trainer = against(AdversarialTrainer, lengths=SHORT, weight=0.1, divergence=divergence)
    assert trainer.class_weights is None
    model, batch = twin(trainer), collate(list(trainer.train_dataset), 0)
    output, base = model(batch["input_ids"], batch["attention_mask"]), batch["base_attention"]
    options = {"weight": 0.1, "divergence": divergence}
    adversarial_loss(output.logits, batch["base_probs"], output.attention, base, **options).sum().backward()
    adam(model, decay=0.0).step()
    trainer.train_dataset = trainer.train_dataset.map(lambda row: {"labels": 1 - row["labels"]})
    trainer.train()
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)


def test_validation_scores_of_an_adversary(against):
    trainer = against(AdversarialTrainer, weight=0.1, per_device_eval_batch_size=7)
    rows = trainer.eval_dataset
    batch = collate(list(rows), 0)
    with torch.no_grad():
        output = trainer.model(batch["input_ids"], batch["attention_mask"])
    attention = [row[1 : 1 + len(base)].numpy() for row, base in zip(output.attention, rows["base_attention"], strict=True)]
    tvd = total_variation_distance(output.logits.softmax(-1).numpy(), batch["base_probs"].numpy())
    kl = np.array([rel_entr(*pair).sum() for pair in zip(attention, rows["base_attention"], strict=True)])
    scores = trainer.evaluate()
    for name in ("objective", "loss"):
        assert scores[f"eval_{name}"] == pytest.approx((tvd - 0.1 * kl).mean(), abs=1e-4), name
    accuracy = (output.logits.argmax(-1) == batch["labels"]).float().mean().item()
    assert scores["eval_accuracy"] == pytest.approx(accuracy, abs=1e-4)


def test_a_sparse_base_needs_jsd(against):
    with pytest.raises(ValueError, match=r"exactly 0 in \d+ of 64 texts.*use divergence 'jsd' against a sparse base"):
        against(AdversarialTrainer, sparse=True, weight=0.1)
    trainer = against(AdversarialTrainer, sparse=True, weight=0.1, divergence="jsd")
    trainer.train()
    assert all(value.isfinite().all() for value in weights(trainer).values())
    assert np.isfinite(trainer.evaluate()["eval_objective"])


@pytest.mark.parametrize(
    ("metric", "classes", "labels"),
    [
        *((name, None, None) for name in ("f1", "f1_class_1", "objective")),
        *(("roc_auc", *wrong) for wrong in ((3, [0, 1, 2]), (2, [1, 1]))),
    ],
)
def test_metrics_that_select_no_checkpoint(metric, classes, labels):
    """Nor does what the next lines allow raise."""
    check_selection("roc_auc", 2, [0, 1, 1])
    check_selection("objective", 3, [0, 1, 2], adversarial=True)
    with pytest.raises(AttnfaithError, match=metric):
        check_selection(metric, classes, labels)


@pytest.mark.parametrize("kind", [AttentionTrainer, AdversarialTrainer])
def test_a_training_without_validation(against, kind):
    trainer = against(kind)
    before, data = weights(trainer), trainer.train_dataset
    data = data if kind is AdversarialTrainer else data.remove_columns(["base_attention", "base_probs"])
    alone = kind(trainer.model, trainer.args, train_dataset=data)
    alone.train()
    assert moved(weights(alone), before) > 1e-3


class WeightsOfEpochs(TrainerCallback):
    def __init__(self):
        self.weights = []

    def on_epoch_end(self, args, state, control, model, **kwargs):
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})


@pytest.mark.parametrize(
    ("metric", "scores", "best", "patience"),
    [
        ("roc_auc", [0.5, 0.9, 0.7, 0.8, 0.99], 2, 2),
        ("loss", [0.5, 0.9, 0.3], 3, None),
        ("accuracy", [0.9, 0.1, 0.9], 1, None),
    ],
)
def test_the_best_checkpoint_by_validation_stays(tiny_recipe, monkeypatch, metric, scores, best, patience):
    """Patience ends a training: two evaluations without improvement after the second."""
    evaluated, epochs, make = [], WeightsOfEpochs(), runs.train.make_trainer

    def evaluate(self, *args, **kwargs):
        epoch = round(self.state.epoch)
        metrics = {f"eval_{metric}": scores[epoch - 1], "epoch": self.state.epoch}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        evaluated.append(epoch)
        return metrics

    def observed(*args, **kwargs):
        trainer = make(*args, **kwargs)
        trainer.add_callback(epochs)
        return trainer

    monkeypatch.setattr(AttentionTrainer, "evaluate", evaluate)
    monkeypatch.setattr(runs.train, "make_trainer", observed)
    options = {"num_train_epochs": len(scores), "metric_for_best_model": metric, "early_stopping_patience": patience}
    recipe = tiny_recipe(**{f"training__{name}": value for name, value in options.items()})
    folder, process = Path(recipe.output_dir), PartialState(cpu=True)
    with runs.folder.held(folder, "a test", process):
        runs.folder.prepare(folder, recipe)
        work = runs.preparation.Run(recipe, folder, process)
        runs.train.train(work, runs.training_arguments(recipe))
    final, state = load_file(folder / "model" / "model.safetensors"), read_object(folder / "run.json")
    assert evaluated == list(range(1, (4 if patience else 3) + 1))
    same(final, epochs.weights[best - 1])
    assert all(moved(final, stored) > 0 for epoch, stored in enumerate(epochs.weights, 1) if epoch != best)
    assert state["best"] == {"metric": f"eval_{metric}", "value": scores[best - 1]}
    assert state["status"] == "trained" and state["epochs"] == len(evaluated)
    assert not (folder / "checkpoints").exists()


def test_a_training_that_diverges_stops_at_the_step(make, monkeypatch):
    """The third loss is NaN: the weights are those of the second step."""
    trainer = make(num_train_epochs=2, per_device_train_batch_size=16, attention_learning_rate_factor=3.0)
    recorded, losses = [], AttentionTrainer.losses

    def broken(self, model, inputs):
        actual, outputs = losses(self, model, inputs)
        if model.training:
            recorded.append(weights(trainer))
        return actual * (float("nan") if len(recorded) == 3 and model.training else 1.0), outputs

    monkeypatch.setattr(AttentionTrainer, "losses", broken)
    message = r"diverged in epoch 1, step 3 of 8: the loss is nan; try a lower .* \(now 0.01\)"
    with pytest.raises(DivergedError, match=message):
        trainer.train()
    assert len(recorded) == 3 and moved(recorded[1], recorded[2]) > 0
    same(weights(trainer), recorded[2])
