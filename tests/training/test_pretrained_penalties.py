"""Penalties of pretrained classifiers: what is read of a training pass, against what models return, and trainings."""

import datasets
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from attnfaith import SelfAttentionClassifierForSequenceClassification
from attnfaith.data.collation import pad_batch
from attnfaith.support.errors import AttnfaithError
from attnfaith.training import Diversity, FineTuningTrainer, ImpermissibleMass
from attnfaith.training.penalties import conicity, drawn_words, impermissible_mass, masked_language_model, word_tying
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


@pytest.mark.parametrize(("heads", "separate"), [("mean", False), ("max", True)])
def test_the_penalties_of_a_batch_are_those_of_the_models_outputs(make, heads, separate):
    plain = classifier("bert", attn_implementation="eager")
    model = apart(plain) if separate else plain
    trainer = make(model, ALL | {"impermissible_heads": heads, "word_tying_distance": "norm"})
    model.eval()
    batch = dict(pad_batch(rows_of(12), 0))
    labels, marks, present = batch.pop("labels"), batch["impermissible"], batch["attention_mask"].bool()
    inputs = batch if separate else {name: value for name, value in batch.items() if name != "impermissible"}
    with torch.no_grad():
        losses, outputs = trainer.losses(model, {**batch, "labels": labels})
        forward = model(**inputs, output_attentions=True, output_hidden_states=True)
        words, states = present & (batch["input_ids"] > 2), forward.hidden_states[-1]
        masked = drawn_words(batch["input_ids"], batch["attention_mask"], words, 0.5, seed=0, step=-1)
        ids = batch["input_ids"].masked_fill(masked, tokenizer().mask_token_id)
        hidden = model(**{**inputs, "input_ids": ids}, output_hidden_states=True).hidden_states[-1]
        table = model.get_input_embeddings().weight.detach()
        expected = {
            "impermissible_mass": impermissible_mass(forward.attentions[-1][:, :, 0], marks, present, heads=heads),
            "diversity": conicity(states, words),
            "word_tying": word_tying(states, table[batch["input_ids"]], words, "norm"),
            "masked_language_model": masked_language_model(hidden[masked] @ table.T, batch["input_ids"], masked),
        }
        added = sum(ALL[name] * value for name, value in expected.items())
        torch.testing.assert_close(
            losses, cross_entropy(forward.logits, labels, reduction="none") + added, rtol=1e-4, atol=1e-5
        )
    for name, value in expected.items():
        torch.testing.assert_close(outputs[name].nan_to_num(0.0), value, rtol=1e-4, atol=1e-5, msg=name)


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
