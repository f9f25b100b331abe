"""The papers' training on tiny models: loss, optimiser, selection, and runs that are stopped and go on."""

from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from accelerate import PartialState
from safetensors.torch import load_file
from scipy.special import rel_entr
from transformers import TrainerCallback

from attnfaith import runs
from attnfaith.data.collation import pad_batch
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.support.errors import AttnfaithError
from attnfaith.training import AdversarialTrainer, AttentionTrainer, DivergedError, GuidedTrainer
from attnfaith.training.evaluation import check_selection
from attnfaith.training.losses import adversarial_loss, classification_loss
from attnfaith.training.trainers import collate, erase_tokens
from tests.tiny_trainings import make_trainer, moved, same, weights


pytestmark = pytest.mark.slow


def rows_of(count, tiny_rows, seed=1):
    generator = np.random.default_rng(seed)
    rows = tiny_rows([generator.integers(4, 60, int(generator.integers(2, 7))).tolist() for _ in range(count)])
    for row in rows:
        row["labels"] = max(row["input_ids"][1:-1]) % 2  # something to learn
    return datasets.Dataset.from_list(rows)


@pytest.fixture
def make(tiny_model, tiny_rows, tmp_path):
    """A Trainer on 64 tiny texts of the usual settings; keyword arguments change them. prepare: of the splits."""

    def trainer(*, kind=AttentionTrainer, count=64, prepare=lambda rows: rows, **arguments):
        splits = [rows_of(count, tiny_rows), rows_of(24, tiny_rows, seed=2)]
        return make_trainer(
            tiny_model(seed=5, scale=1.0, dtype=torch.float32),
            *(prepare(split.select_columns(["input_ids", "labels", "length"])) for split in splits),
            tmp_path,
            kind=kind,
            **{"weight_decay": 1e-5, **arguments},
        )

    return trainer


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


# ------------------------------------------------------------------------------------------------ loss and optimiser


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_accumulated_gradients_are_those_of_a_whole_batch(make, reduction):
    options = {"loss_reduction": reduction, "balance_classes": False}
    whole = make(**options)
    before = weights(whole)
    whole.train()
    parts = make(**options, per_device_train_batch_size=8, gradient_accumulation_steps=4)
    parts.train()
    assert whole.state.global_step == parts.state.global_step == 2
    assert moved(weights(whole), before) > 1e-3
    same(weights(parts), weights(whole), atol=1e-6)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_an_epoch_by_hand(make, reduction):
    """Two steps of Adam, on the sum or mean of losses that the classes' sizes weigh."""
    options = {"adam_beta1": 0.8, "adam_epsilon": 1e-7}
    trainer = make(loss_reduction=reduction, attention_learning_rate_factor=3.0, weight_decay=0.05, **options)
    model, rows = twin(trainer), trainer.train_dataset
    trainer.train()
    labels = torch.tensor(rows["labels"])
    balance = torch.tensor([1.0, float((labels == 0).sum() / (labels == 1).sum())])
    optimizer = adam(model, decay=0.05, factor=3.0, betas=(0.8, 0.999), eps=1e-7)
    for start in (0, 32):
        batch = pad_batch([rows[index] for index in range(start, start + 32)])
        losses = classification_loss(logits_of(model, batch), batch["labels"], balance)
        optimizer.zero_grad()
        (losses.sum() if reduction == "sum" else losses.mean()).backward()
        optimizer.step()
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)


def test_words_that_are_erased(tiny_model, tiny_rows, tiny_batch):
    """Markers stay, words keep their order, the label its text; the share that goes is uniform on 0..share."""
    model, rows = tiny_model(), tiny_rows([40] * 200 + [0, 1])
    batch = {**tiny_batch(rows), "labels": torch.arange(202)}
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


def test_training_with_erased_words_by_hand(make):
    """A step on what `erase_tokens` leaves; evaluation sees whole texts."""
    trainer = make(count=32, random_erasure=0.7, loss_reduction="mean", balance_classes=False, weight_decay=0.0)
    model = twin(trainer)
    before = trainer.evaluate()["eval_loss"]
    validation = pad_batch([*trainer.eval_dataset])
    with torch.no_grad():
        losses = classification_loss(logits_of(model.eval(), validation), validation["labels"])
    assert before == pytest.approx(losses.mean().item(), abs=1e-6)
    trainer.train()
    batch = erase_tokens(model.train(), pad_batch([*trainer.train_dataset]), 0.7, seed=0, step=0)
    classification_loss(logits_of(model, batch), batch["labels"]).mean().backward()
    adam(model, decay=0.0).step()
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)


@pytest.mark.parametrize(("reduction", "accumulation"), [("sum", 4), ("mean", 1)])
def test_the_logged_loss_is_per_instance(make, reduction, accumulation):
    """At a learning rate of 0 it is the mean over all training texts."""
    sizes = {"per_device_train_batch_size": 32 // accumulation, "gradient_accumulation_steps": accumulation}
    trainer = make(loss_reduction=reduction, learning_rate=0.0, **sizes)
    batch = pad_batch(list(trainer.train_dataset))
    with torch.no_grad():
        losses = classification_loss(logits_of(trainer.model, batch), batch["labels"], trainer.class_weights)
    trainer.train()
    logged = [entry.get("loss", entry.get("train_loss")) for entry in trainer.state.log_history]
    assert [value for value in logged if value is not None] == [pytest.approx(float(losses.mean()), abs=1e-4)] * 2


# ------------------------------------------------------------------------------------------------ guided and adversarial


def with_base(rows, seed=7, sparse=False):
    """The rows with attention and predictions of some base."""
    generator = np.random.default_rng(seed)
    result = []
    for row in rows:
        attention = generator.dirichlet(np.ones(row["length"] - 2))
        attention = np.eye(len(attention))[0] if sparse else attention
        probs = generator.dirichlet(np.ones(2))
        result.append({**row, "base_attention": attention.tolist(), "base_probs": probs.tolist()})
    return datasets.Dataset.from_list(result)


@pytest.fixture
def against(make):
    """Trainers as `make` makes them, against a base."""

    def trainer(kind, *, sparse=False, **keywords):
        return make(kind=kind, prepare=lambda rows: with_base(rows, sparse=sparse), **keywords)

    return trainer


ADVERSARY = {"weight": 0.1, "divergence": "kl"}


def test_a_guided_step_reads_under_the_base_attention(against):
    trainer = against(GuidedTrainer, count=32)
    model, batch = twin(trainer), collate(list(trainer.train_dataset), 0)
    hidden, _, query = model.encode(batch["input_ids"], batch["attention_mask"])
    logits = model.decode(hidden, batch["base_attention"], query)
    classification_loss(logits, batch["labels"], trainer.class_weights).sum().backward()
    assert all(p.grad is None for name, p in model.named_parameters() if "alignment" in name)
    adam(model).step()
    trainer.train()
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)


@pytest.mark.parametrize("divergence", ["kl", "jsd"])
def test_an_adversarial_step(against, divergence):
    """Labels and their balance take no part."""
    trainer = against(AdversarialTrainer, count=32, weight=0.1, divergence=divergence)
    assert trainer.class_weights is None
    model, batch = twin(trainer), collate(list(trainer.train_dataset), 0)
    output, base = model(batch["input_ids"], batch["attention_mask"]), (batch["base_probs"], batch["base_attention"])
    losses = adversarial_loss(
        output.logits, base[0], output.attention, base[1], base[1] > 0, weight=0.1, divergence=divergence
    )
    losses.sum().backward()
    adam(model).step()
    trainer.train_dataset = trainer.train_dataset.map(lambda row: {"labels": 1 - row["labels"]})
    trainer.train()
    same(weights(trainer), dict(model.state_dict()), atol=2e-6)


@pytest.mark.parametrize("size", [7, 64])
def test_an_adversarys_validation_scores(against, size):
    trainer = against(AdversarialTrainer, **ADVERSARY, per_device_eval_batch_size=size)
    rows = trainer.eval_dataset
    batch = collate(list(rows), 0)
    with torch.no_grad():
        output = trainer.model(batch["input_ids"], batch["attention_mask"])
    attention = [row[1 : 1 + len(base)].numpy() for row, base in zip(output.attention, rows["base_attention"], strict=True)]
    tvd = total_variation_distance(output.logits.softmax(-1).numpy(), batch["base_probs"].numpy())
    kl = np.array([rel_entr(*pair).sum() for pair in zip(attention, rows["base_attention"], strict=True)])
    actual = trainer.evaluate()
    assert actual["eval_tvd"] == pytest.approx(tvd.mean(), abs=1e-5)
    assert actual["eval_jsd"] == pytest.approx(jensen_shannon_divergence(attention, rows["base_attention"]).mean(), abs=1e-5)
    assert actual["eval_kl"] == pytest.approx(kl.mean(), abs=1e-4)
    assert actual["eval_objective"] == pytest.approx((tvd - 0.1 * kl).mean(), abs=1e-5)
    assert actual["eval_loss"] == pytest.approx(actual["eval_objective"], abs=1e-5)
    accuracy = (output.logits.argmax(-1) == batch["labels"]).float().mean()
    assert actual["eval_accuracy"] == pytest.approx(float(accuracy))


def test_a_sparse_base_needs_jsd(against):
    with pytest.raises(ValueError, match=r"exactly 0.*use divergence 'jsd' against a sparse base \(\d+ of 64 texts\)"):
        against(AdversarialTrainer, sparse=True, **ADVERSARY)
    trainer = against(AdversarialTrainer, sparse=True, **{**ADVERSARY, "divergence": "jsd"})
    trainer.train()
    assert all(value.isfinite().all() for value in weights(trainer).values())
    actual = trainer.evaluate()
    assert np.isinf(actual["eval_kl"]) and 0 < actual["eval_jsd"] <= np.log(2) and np.isfinite(actual["eval_objective"])


# ------------------------------------------------------------------------------------------------ selection


@pytest.mark.parametrize(
    ("metric", "classes", "labels", "allowed"),
    [
        *((name, None, None, False) for name in ("f1", "f1_class_x", "objective")),
        *((name, 2, [0, 1, 1], True) for name in ("roc_auc", "accuracy", "loss", "f1_class_1")),
        *(("roc_auc", *wrong, False) for wrong in ((3, [0, 1, 2]), (2, [1, 1]), (3, [0, 1]))),
        ("f1_class_2", 2, [0, 1], False),
        *(("f1_class_3", count, range(count), count == 20) for count in (20, 21)),
    ],
)
def test_metrics_that_select(metric, classes, labels, allowed):
    if allowed:
        return check_selection(metric, classes, labels)
    with pytest.raises(AttnfaithError, match=metric):
        check_selection(metric, classes, labels)
    return check_selection("objective", 3, [0, 1, 2], adversarial=True)


# ------------------------------------------------------------------------------------------------ stopping and going on


@pytest.fixture
def callbacks(monkeypatch):
    """Callbacks added to every Trainer that a run makes."""
    result, make = [], runs.train.make_trainer

    def spy(*args, **kwargs):
        trainer = make(*args, **kwargs)
        for callback in result:
            trainer.add_callback(callback)
        return trainer

    monkeypatch.setattr(runs.train, "make_trainer", spy)
    return result


def train_only(recipe, *, resume=False):
    """Carry out the training of a recipe; return the folder of the run and its final weights."""
    folder = Path(recipe.output_dir)
    state = PartialState(cpu=True)
    with runs.folder.opened(folder, recipe, state, resume=resume):
        texts, arguments = runs.texts.Texts(recipe, folder, state), runs.training_arguments(recipe)
        runs.train.train(recipe, arguments, folder, texts, None, state)
    return folder, load_file(folder / "model" / "model.safetensors")


class WeightsOfEpochs(TrainerCallback):
    def __init__(self):
        self.weights = []

    def on_epoch_end(self, args, state, control, model, **kwargs):
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})


def scripted_scores(monkeypatch, name, values):
    def evaluate(self, *args, **kwargs):
        epoch = round(self.state.epoch)
        metrics = {f"eval_{name}": values[epoch - 1], "epoch": self.state.epoch}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        evaluated.append(epoch)
        return metrics

    evaluated = []
    monkeypatch.setattr(AttentionTrainer, "evaluate", evaluate)
    return evaluated


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [("roc_auc", [0.5, 0.9, 0.7], 2), ("loss", [0.5, 0.9, 0.3], 3), ("accuracy", [0.9, 0.1, 0.9], 1)],
)
def test_the_best_checkpoint_by_validation_stays(tiny_recipe, callbacks, monkeypatch, metric, values, best):
    evaluated = scripted_scores(monkeypatch, metric, values)
    stored = WeightsOfEpochs()
    callbacks.append(stored)
    folder, final = train_only(tiny_recipe(training__num_train_epochs=3, training__metric_for_best_model=metric))
    assert evaluated == [1, 2, 3]
    same(final, stored.weights[best - 1])
    assert all(moved(final, state) > 0 for number, state in enumerate(stored.weights, 1) if number != best)
    state = runs.read_state(folder)
    assert state["best"] == {"metric": f"eval_{metric}", "value": values[best - 1]}
    assert state["status"] == "trained" and state["epochs"] == 3
    assert not (folder / "checkpoints").exists()


def test_early_stopping(tiny_recipe, monkeypatch):
    evaluated = scripted_scores(monkeypatch, "roc_auc", [0.5, 0.9, 0.7, 0.8, 0.99, 1.0])
    train_only(tiny_recipe(training__num_train_epochs=6, training__early_stopping_patience=2))
    assert evaluated == [1, 2, 3, 4]


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
    message = r"diverged in epoch 1, step 3 of 8: the loss is nan; try a lower .* \(now 0.01, and 3 times that for the align"
    with pytest.raises(DivergedError, match=message):
        trainer.train()
    assert len(recorded) == 3 and moved(recorded[1], recorded[2]) > 0
    same(weights(trainer), recorded[2])


class Kill(TrainerCallback):
    """Stops the program after an epoch, once its checkpoint is written."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_save(self, args, state, control, **kwargs):
        if round(state.epoch) == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("epoch", "strategy"), [(2, "random"), (1, "group_by_length")])
def test_a_killed_training_goes_on_to_the_same_weights(tiny_recipe, callbacks, tmp_path, epoch, strategy):
    settings = {"training__num_train_epochs": 3, "training__train_sampling_strategy": strategy, "model__dropout": 0.1}
    whole, expected = train_only(tiny_recipe(**settings))
    recipe = tiny_recipe(**settings, output_dir=str(tmp_path / "killed"))
    callbacks.append(Kill(epoch))
    with pytest.raises(KeyboardInterrupt):
        train_only(recipe)
    callbacks.clear()
    assert not (tmp_path / "killed" / "model").exists()
    folder, final = train_only(recipe, resume=True)
    same(final, expected)
    states = [runs.read_state(path) for path in (folder, whole)]
    assert states[0]["best"] == states[1]["best"] and states[0]["epochs"] == states[1]["epochs"] == 3
