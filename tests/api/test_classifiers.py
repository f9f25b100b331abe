"""Classifiers of transformers as people have them: an object, a pipeline, a folder, a name on the Hub; and refusals."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, pipeline

import attnfaith
from attnfaith.loading import ModelError, load_subject
from attnfaith.subjects import SelfAttention
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ship sank slowly", "a film, and very good", "ship", ""]
HOW = {"measures": ["gradient"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plain BERT classifier, as `save_pretrained` leaves it."""
    path = tmp_path_factory.mktemp("models") / "plain"
    classifier("bert", id2label={0: "bad", 1: "fair", 2: "good"}, label2id={"bad": 0, "fair": 1, "good": 2}).save_pretrained(
        path
    )
    tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def expected(folder):
    return attnfaith.measure(folder, TEXTS, **HOW)


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def changed(path, **fields):
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return path


def same(made, expected):
    assert made.table.column("tokens") == expected.table.column("tokens")
    for name in ("probs", "attention", "importance_gradient"):
        assert made.table.column(name) == expected.table.column(name), name


def test_an_object_a_pipeline_and_a_subject_say_what_the_folder_says(folder, expected):
    loaded, made = load_subject(folder).model, pipeline("text-classification", model=str(folder))
    same(attnfaith.measure(loaded, TEXTS, tokenizer=tokenizer(), **HOW), expected)
    same(attnfaith.measure(made, TEXTS, **HOW), expected)
    same(attnfaith.measure(SelfAttention(loaded, tokenizer()), TEXTS, **HOW), expected)
    for text, probs in zip(TEXTS, expected.table.column("probs").to_pylist(), strict=True):
        (said,) = made(text) if isinstance(made(text), list) else [made(text)]
        assert said["score"] == pytest.approx(max(probs), abs=1e-6)
        assert said["label"] == ["bad", "fair", "good"][probs.index(max(probs))]


def rewritten(path, change):
    """The weights of a folder, changed."""
    save_file(change(load_file(path / "model.safetensors")), path / "model.safetensors", {"format": "pt"})


def without_safetensors(path):
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


def of_another_task(kind):
    def change(path):
        tokens = tokenizer()
        config = classifier("bert").config
        shutil.rmtree(path)
        kind.from_config(config).save_pretrained(path)
        tokens.save_pretrained(path)

    return change


def without_its_head(path):
    rewritten(path, lambda whole: {name: values for name, values in whole.items() if "classifier" not in name})


def with_another_head(path):
    rewritten(path, lambda whole: whole | {"classifier.weight": torch.zeros(2, 32)})


def with_its_own_code(path):
    (path / "mine.py").write_text("raise SystemExit('this code was run')\n")
    changed(path, auto_map={"AutoModelForSequenceClassification": "mine.Mine", "AutoConfig": "mine.Config"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_safetensors, "safetensors"),
        (of_another_task(AutoModel), "BertModel"),
        (without_its_head, r"lacks 2 weights .*classifier.bias, classifier.weight"),
        (with_another_head, "cannot be loaded|lacks 1 weights"),
        (with_its_own_code, "auto_map"),
        (lambda path: changed(path, model_type="never_heard_of"), "never_heard_of"),
        (lambda path: (path / "model.safetensors").write_bytes(b"\0" * 40), "cannot be loaded"),
    ],
)
def test_a_folder_that_cannot_be_trusted(change, message, copy):
    change(copy)
    with pytest.raises(ModelError, match=message) as refusal:
        attnfaith.measure(copy, TEXTS, **HOW)
    assert "\n" not in str(refusal.value)


# ---------------------------------------------------------------------- words whose id is that of a marker
