"""Penalties of pretrained classifiers: what is read of a training pass, against what models return, and trainings."""

import math

import datasets
import numpy as np
import pytest
import torch

from attnfaith import SelfAttentionClassifierForSequenceClassification
from attnfaith.data.collation import pad_batch
from attnfaith.support.errors import AttnfaithError
from attnfaith.training import Diversity, FineTuningTrainer, ImpermissibleMass
from attnfaith.training.penalties import drawn_words
from attnfaith.training.word_states import PretrainedReader
from tests.small_classifiers import classifier, texts, tokenizer
from tests.tiny_trainings import make_trainer, penalties_by_name


pytestmark = pytest.mark.slow


ALL = {"impermissible_mass": 0.7, "diversity": 0.4, "word_tying": 0.3, "masked_language_model": 0.2, "masked_share": 0.5}
LENGTHS = (9, 4, 6, 9)
MARKED = torch.tensor([[0, 1, 0, 1, 1, 0, 0, 1, 0], [0, 1, 0, 0] + [0] * 5, [0, 0, 1, 1, 1, 0] + [0] * 3, [0] * 9])


def apart(model, projection="softmax"):
    return SelfAttentionClassifierForSequenceClassification.of(model, projection, separate_impermissible=True).eval()


def read_words(model, inputs=None, tokens=None):
    """What is read of a pass, with what the model returned in it; the inputs."""
    penalties = [ImpermissibleMass(1.0), Diversity(1.0)]
    trained, inputs = PretrainedReader(model, tokens or tokenizer(), penalties), inputs or texts(model, LENGTHS)
    with trained.reading(inputs) as read:
        outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    return trained.word_states(inputs, None, read), outputs, inputs


# ------------------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize("kind", ["bert", "distilbert", "albert", "deberta-v2", "modernbert", "squeezebert"])
def test_the_first_row_and_last_states_are_those_that_a_model_returns(kind):
    model = classifier(kind)
    model.set_attn_implementation("eager")
    actual, outputs, inputs = read_words(model)
    returned = outputs.attentions[-1][:, :, 0]
    if kind == "squeezebert":  # which returns scores
        returned = returned.softmax(-1)
    torch.testing.assert_close(actual.attention, returned, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(actual.scores.softmax(-1), returned, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(actual.states, outputs.hidden_states[-1], rtol=1e-5, atol=1e-6)
    assert torch.equal(actual.vectors, model.get_input_embeddings().weight[inputs["input_ids"]])
    assert torch.equal(actual.attended, inputs["attention_mask"].bool())


def test_sparse_attention_a_last_row_and_a_mean_of_all_rows():
    model = apart(classifier("electra"), "sparsemax")
    actual, outputs, _ = read_words(model, {**texts(model, LENGTHS), "impermissible": MARKED})
    torch.testing.assert_close(actual.attention, outputs.attentions[-1][:, :, 0], rtol=1e-5, atol=1e-6)
    assert actual.scores is None and (actual.attention == 0).any()
    last, outputs, _ = read_words(classifier("gpt2", attn_implementation="eager"), tokens=tokenizer(False))
    mean, mean_outputs, _ = read_words(classifier("eurobert", attn_implementation="eager"))
    assert mean.scores is None
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(last.attention[row], outputs.attentions[-1][row, :, length - 1], rtol=1e-5, atol=1e-6)
        expected = mean_outputs.attentions[-1][row, :, :length].mean(1)
        torch.testing.assert_close(mean.attention[row], expected, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------ trainings


def rows_of(count=48, seed=1):
    """Texts of random words; the label is whether word 7 is there, and words 7 and 8, one of which is, are impermissible."""
    draws = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        words = draws.integers(10, 30, draws.integers(3, 8)).tolist()
        words[draws.integers(len(words))] = 7 + number % 2
        ids = [1, *words, 2]
        marks = [int(number in (7, 8)) for number in ids]
        rows.append({"input_ids": ids, "impermissible": marks, "labels": number % 2, "length": len(ids)})
    return rows


@pytest.fixture
def make(tmp_path):
    """A Trainer of a pretrained classifier."""

    def trainer(model, penalties=None, rows=None, **arguments):
        rows = datasets.Dataset.from_list(rows or rows_of())
        usual = {"per_device_train_batch_size": 64, "per_device_eval_batch_size": 64, "learning_rate": 1e-3}
        usual |= {"loss_reduction": "mean", "balance_classes": False, "eval_strategy": "epoch", **arguments}
        options = {"tokenizer": tokenizer(), "penalties": penalties_by_name(**penalties or {})}
        return make_trainer(model, rows, rows, tmp_path, kind=FineTuningTrainer, **options, **usual)

    return trainer


def conicity_by_hand(states):
    mean = states.mean(0)
    return np.mean([abs(state @ mean) / np.linalg.norm(state) / np.linalg.norm(mean) for state in states])


@pytest.mark.parametrize(("heads", "separate"), [("mean", False), ("max", True)])
def test_the_penalties_of_a_batch_by_hand(make, heads, separate):
    plain = classifier("bert", attn_implementation="eager")
    model = apart(plain) if separate else plain
    trainer, rows = make(model, ALL | {"impermissible_heads": heads, "word_tying_distance": "norm"}), rows_of(12)
    model.eval()
    batch = dict(pad_batch(rows, 0))
    labels, marks = batch.pop("labels"), batch["impermissible"]
    inputs = batch if separate else {name: value for name, value in batch.items() if name != "impermissible"}
    with torch.no_grad():
        losses, outputs = trainer.losses(model, {**batch, "labels": labels})
        forward = model(**inputs, output_attentions=True, output_hidden_states=True)
        words = batch["attention_mask"].bool() & (batch["input_ids"] > 2)
        masked = drawn_words(batch["input_ids"], batch["attention_mask"], words, 0.5, seed=0, step=-1)
        ids = batch["input_ids"].masked_fill(masked, tokenizer().mask_token_id)
        hidden = model(**{**inputs, "input_ids": ids}, output_hidden_states=True).hidden_states[-1]
        table = model.get_input_embeddings().weight.detach()
    for row in range(len(rows)):
        weights = forward.attentions[-1][row, :, 0].double()
        mass = [-math.log(1 - float((head * marks[row]).sum())) for head in weights]
        inside = words[row].numpy()
        states = forward.hidden_states[-1][row].double().numpy()[inside]
        vectors = table[batch["input_ids"][row]].double().numpy()[inside]
        log_probs = (hidden[row] @ table.T).log_softmax(-1)
        lost = [-float(log_probs[place, batch["input_ids"][row, place]]) for place in masked[row].nonzero().flatten()]
        expected = {
            "impermissible_mass": max(mass) if heads == "max" else sum(mass) / len(mass),
            "diversity": conicity_by_hand(states),
            "word_tying": np.linalg.norm(states - vectors, axis=1).mean(),
            "masked_language_model": sum(lost) / len(lost) if lost else math.nan,
        }
        for name, value in expected.items():
            assert float(outputs[name][row]) == pytest.approx(value, rel=1e-4, nan_ok=True), name
        loss = torch.nn.functional.cross_entropy(forward.logits[row], labels[row])
        added = sum(ALL[name] * value for name, value in expected.items() if not math.isnan(value))
        assert float(losses[row]) == pytest.approx(float(loss) + added, rel=1e-4)


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_mass_falls_while_the_labels_are_still_learned(make, projection):
    """All that tells the label is impermissible."""
    scores = {}
    for weight in (0.0, 1.0):
        model = apart(classifier("bert", num_labels=2), projection)
        penalties = {"impermissible_mass": weight} if weight else {"diversity": 1e-9}
        options = {"num_train_epochs": 25, "per_device_train_batch_size": 16, "learning_rate": 3e-3}
        make(model, penalties, **options, eval_strategy="no").train()
        batch = pad_batch(rows_of(40, seed=5), 0)
        labels = batch.pop("labels")
        with torch.no_grad():
            outputs = model.eval()(**batch, output_attentions=True)
        share = (outputs.attentions[-1][:, :, 0] * batch["impermissible"][:, None]).sum(-1).mean()
        scores[weight] = float((outputs.logits.argmax(-1) == labels).float().mean()), float(share)
    assert scores[0.0][0] >= 0.95 and scores[1.0][0] >= 0.95
    assert scores[0.0][1] > 0.2 and scores[1.0][1] < 0.02


def test_logs_and_evaluations_have_the_penalties(make):
    trainer = make(classifier("bert", num_labels=2), ALL)
    trainer.train()
    (logs,) = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(logs[name] > 0 for name in ("impermissible_mass", "diversity", "word_tying", "masked_language_model"))
    (scores,) = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert scores["eval_impermissible_mass"] > 0 and "eval_accuracy" in scores
    assert set(trainer.trained_model().state_dict()) == set(classifier("bert", num_labels=2).state_dict())


def test_checkpointed_layers_take_penalties(make):
    """Whose scores are made anew in the backward pass."""
    weights = []
    for checkpointing in (False, True):
        model = apart(classifier("bert", num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
        make(model, {"impermissible_mass": 1.0}, activation_checkpointing=checkpointing, eval_strategy="no").train()
        weights.append(model.get_input_embeddings().weight.detach().clone())
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "penalties", "message"),
    [
        ("bart", {"diversity": 1.0}, r"^penalties \(diversity\) with BartFor.*: it answers with a decoder"),
        ("xlnet", {"impermissible_mass": 0.1}, r"^penalties\.impermissible_mass=0\.1 with .*leave it out$"),
        ("unmarked", {"impermissible_mass": 0.1}, "the data mark no impermissible words"),
        ("separated", None, "the data mark no impermissible words"),
    ],
)
def test_refusals(make, kind, penalties, message):
    rows = rows_of(8)
    if kind in ("unmarked", "separated"):
        rows = [{name: value for name, value in row.items() if name != "impermissible"} for row in rows]
    model = classifier(kind if kind in ("bart", "xlnet") else "bert", num_labels=2)
    with pytest.raises(AttnfaithError, match=message):
        make(apart(model) if kind == "separated" else model, penalties, rows=rows)
