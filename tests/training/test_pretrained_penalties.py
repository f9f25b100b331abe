"""Penalties of pretrained classifiers: the words of a training pass against what models return, and trainings."""

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
from tests.tiny_trainings import ALL, make_trainer, planted_rows


pytestmark = pytest.mark.slow
LENGTHS = (9, 4, 6, 9)
MARKED = torch.tensor([[0, 1, 0, 1, 1, 0, 0, 1, 0], [0, 1, 0, 0] + [0] * 5, [0, 0, 1, 1, 1, 0] + [0] * 3, [0] * 9])


def separated(model, projection="softmax"):
    return SelfAttentionClassifierForSequenceClassification.of(model, projection, separate_impermissible=True).eval()


def read_words(model, inputs=None, tokens=None):
    """The words of a pass, the model's outputs in it, and its inputs."""
    reader = PretrainedReader(model, tokens or tokenizer(), [ImpermissibleMass(1.0), Diversity(1.0)])
    inputs = inputs or texts(model, LENGTHS)
    with reader.reading(inputs) as read:
        outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    return reader.word_states(inputs, None, read), outputs, inputs


def close(actual, expected, name=None):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["bert", "deberta-v2", "modernbert", "squeezebert"])
def test_first_row_and_last_states_are_those_of_the_outputs(kind):
    model = classifier(kind)
    model.set_attn_implementation("eager")
    words, outputs, inputs = read_words(model)
    returned = outputs.attentions[-1][:, :, 0]
    if kind == "squeezebert":  # which returns scores
        returned = returned.softmax(-1)
    close(words.attention, returned)
    close(words.scores.softmax(-1), returned)
    close(words.states, outputs.hidden_states[-1])
    assert torch.equal(words.vectors, model.get_input_embeddings().weight[inputs["input_ids"]])
    assert torch.equal(words.attended, inputs["attention_mask"].bool())


def test_sparse_attention_a_last_row_and_a_mean_of_all_rows():
    model = separated(classifier("electra"), "sparsemax")
    words, outputs, _ = read_words(model, {**texts(model, LENGTHS), "impermissible": MARKED})
    close(words.attention, outputs.attentions[-1][:, :, 0])
    assert words.scores is None and (words.attention == 0).any()
    last, outputs, _ = read_words(classifier("gpt2", attn_implementation="eager"), tokens=tokenizer(False))
    mean, mean_outputs, _ = read_words(classifier("eurobert", attn_implementation="eager"))
    assert mean.scores is None
    for row, length in enumerate(LENGTHS):
        close(last.attention[row], outputs.attentions[-1][row, :, length - 1])
        close(mean.attention[row], mean_outputs.attentions[-1][row, :, :length].mean(1))


@pytest.fixture
def train(tmp_path):
    """Factory of a trainer of a pretrained classifier."""

    def make(model, penalties=None, marked=True, **arguments):
        rows = planted_rows(48, words=(7, 8), markers=(1, 2))
        rows = rows if marked else rows.remove_columns("impermissible")
        options = {"per_device_train_batch_size": 64, "learning_rate": 1e-3, "loss_reduction": "mean", **arguments}
        options |= {"tokenizer": tokenizer(), "penalties": penalties, "kind": FineTuningTrainer, "balance_classes": False}
        return make_trainer(model, rows, rows, tmp_path, **options)

    return make


@pytest.mark.parametrize(("heads", "separate"), [("mean", False), ("max", True)])
def test_the_penalties_of_a_batch_are_those_of_the_outputs(train, heads, separate):
    model = classifier("bert", attn_implementation="eager")
    model = separated(model) if separate else model
    trainer = train(model, ALL | {"impermissible_heads": heads, "word_tying_distance": "norm"})
    model.eval()
    batch = dict(pad_batch(list(trainer.train_dataset)[:12], 0))
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
    added = sum(ALL[name] * values for name, values in expected.items())
    close(losses, cross_entropy(forward.logits, labels, reduction="none") + added)
    for name, values in expected.items():
        close(outputs[name].nan_to_num(0.0), values, name)


def test_checkpointed_layers_take_penalties(train):
    """The backward pass computes their scores again."""
    weights = []
    for checkpointing in (False, True):
        model = separated(classifier("bert", num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
        train(model, {"impermissible_mass": 1.0}, activation_checkpointing=checkpointing).train()
        weights.append(model.get_input_embeddings().weight.detach().clone())
    close(*weights)


@pytest.mark.parametrize(
    ("kind", "penalties", "message"),
    [
        ("bart", {"diversity": 1.0}, r"^penalties \(diversity\) with BartFor.*: it answers with a decoder"),
        ("xlnet", {"impermissible_mass": 0.1}, r"^penalties\.impermissible_mass=0\.1 with .*leave it out$"),
        ("bert", {"impermissible_mass": 0.1}, "the data mark no impermissible words"),
        ("separated", None, "the data mark no impermissible words"),
    ],
)
def test_refusals(train, kind, penalties, message):
    model = separated(classifier("bert", num_labels=2)) if kind == "separated" else classifier(kind, num_labels=2)
    with pytest.raises(AttnfaithError, match=message):
        train(model, penalties, marked=kind in ("bart", "xlnet"))
