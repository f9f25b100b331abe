"""Impermissible mass of pretrained classifiers: the attention of a training pass against what models return."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from attnfaith import SelfAttentionClassifierForSequenceClassification
from attnfaith.data.collation import pad_batch
from attnfaith.support.errors import AttnfaithError
from attnfaith.training import FineTuningTrainer
from attnfaith.training.penalties import PretrainedReader, impermissible_mass
from tests.small_classifiers import classifier, texts, tokenizer
from tests.tiny_trainings import make_trainer, planted_rows


pytestmark = pytest.mark.slow
LENGTHS = (9, 4, 6, 9)
MARKED = torch.tensor([[0, 1, 0, 1, 1, 0, 0, 1, 0], [0, 1, 0, 0] + [0] * 5, [0, 0, 1, 1, 1, 0] + [0] * 3, [0] * 9])


def separated(model, projection="softmax"):
    return SelfAttentionClassifierForSequenceClassification.of(model, projection, separate_impermissible=True).eval()


def read_words(model, inputs=None, tokens=None):
    """The words of a pass, the model's outputs in it, and its inputs."""
    reader = PretrainedReader(model, tokens or tokenizer())
    inputs = inputs or texts(model, LENGTHS)
    with reader.reading(inputs) as read:
        outputs = model(**inputs, output_attentions=True)
    return reader.word_states(inputs, None, read), outputs, inputs


def close(actual, expected, name=None):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["bert", "deberta-v2", "modernbert", "squeezebert"])
def test_the_first_row_is_that_of_the_outputs(kind):
    model = classifier(kind)
    model.set_attn_implementation("eager")
    words, outputs, inputs = read_words(model)
    returned = outputs.attentions[-1][:, :, 0]
    if kind == "squeezebert":  # which returns scores
        returned = returned.softmax(-1)
    close(words.attention, returned)
    close(words.scores.softmax(-1), returned)
    assert torch.equal(words.attended, inputs["attention_mask"].bool())


def test_sparse_attention():
    model = separated(classifier("electra"), "sparsemax")
    words, outputs, _ = read_words(model, {**texts(model, LENGTHS), "impermissible": MARKED})
    close(words.attention, outputs.attentions[-1][:, :, 0])
    assert words.scores is None and (words.attention == 0).any()


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
def test_the_penalty_of_a_batch_is_that_of_the_outputs(train, heads, separate):
    model = classifier("bert", attn_implementation="eager")
    model = separated(model) if separate else model
    trainer = train(model, {"impermissible_mass": 0.7, "impermissible_heads": heads})
    model.eval()
    batch = dict(pad_batch(list(trainer.train_dataset)[:12], 0))
    labels, marks, present = batch.pop("labels"), batch["impermissible"], batch["attention_mask"].bool()
    inputs = batch if separate else {name: value for name, value in batch.items() if name != "impermissible"}
    with torch.no_grad():
        losses, outputs = trainer.losses(model, {**batch, "labels": labels})
        forward = model(**inputs, output_attentions=True)
    expected = impermissible_mass(forward.attentions[-1][:, :, 0], marks, present, heads=heads)
    close(losses, cross_entropy(forward.logits, labels, reduction="none") + 0.7 * expected)
    close(outputs["impermissible_mass"].nan_to_num(0.0), expected)


@pytest.mark.parametrize(
    ("kind", "penalties", "message"),
    [
        ("bart", {"impermissible_mass": 1.0}, "a pretrained encoder takes impermissible_mass alone"),
        ("bert", {"diversity": 1.0}, "a pretrained encoder takes impermissible_mass alone"),
        ("gpt2", {"impermissible_mass": 0.1}, "GPT2"),
        ("bert", {"impermissible_mass": 0.1}, "the data mark no impermissible words"),
        ("separated", None, "the data mark no impermissible words"),
    ],
)
def test_refusals(train, kind, penalties, message):
    model = separated(classifier("bert", num_labels=2)) if kind == "separated" else classifier(kind, num_labels=2)
    with pytest.raises(AttnfaithError, match=message):
        train(model, penalties, marked=kind in ("bart", "gpt2") or penalties == {"diversity": 1.0})
