"""Models are opened by one function: folders, adapters, code of strangers, broken files."""

import copy
import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from attnfaith import recipes
from attnfaith.loading import ModelError, load_subject, open_subject, written_recipe
from attnfaith.record import model_fields, objective_fields
from attnfaith.subjects import SelfAttention, SubjectError
from tests.small_classifiers import classifier, tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a BERT classifier, as `save_pretrained` leaves it."""
    folder = tmp_path_factory.mktemp("models") / "bert"
    classifier("bert").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "bert")


def test_an_opened_folder_is_kept_until_its_files_change(folder):
    subject = open_subject(folder)
    assert open_subject(folder).model is subject.model
    assert load_subject(folder).model is not subject.model  # its user may train it further
    model = classifier("bert")
    with torch.no_grad():
        model.classifier.bias += 1
    model.save_pretrained(folder)
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert torch.equal(open_subject(folder).model.classifier.bias, model.classifier.bias)


@pytest.mark.parametrize("open_", [load_subject, open_subject])
def test_a_subject_takes_another_tokenizer(open_):
    subject, words = SelfAttention(classifier("bert")), tokenizer()
    other = open_(subject, tokenizer=words, device="cpu")
    assert (subject.tokenizer, other.tokenizer, other.model) == (None, words, subject.model)
    assert open_(other) is other


class Adapted(torch.nn.Module):
    """A PEFT model of weight W and update U, without PEFT: `merge_and_unload` gives W + U."""

    peft_config = None

    def __init__(self, model, update):
        super().__init__()
        self.model, self.update = model, update

    def merge_and_unload(self):
        with torch.no_grad():
            self.model.classifier.weight += self.update
        return self.model


def test_adapters_are_merged_in_a_copy():
    model = classifier("bert")
    plain = copy.deepcopy(model)
    subject = load_subject(Adapted(model, torch.ones_like(model.classifier.weight)), tokenizer=tokenizer())
    assert torch.equal(subject.model.classifier.weight, plain.classifier.weight + 1)
    assert torch.equal(model.classifier.weight, plain.classifier.weight)
    prompted = torch.nn.Sequential(model)  # an adapter that is no update of weights
    prompted.peft_config = None
    with pytest.raises(SubjectError, match="PEFT"):
        load_subject(prompted, tokenizer=tokenizer())


def configured(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def rewritten(folder, change):
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
        (lambda folder: AutoModel.from_config(classifier("bert").config).save_pretrained(folder), "BertModel"),
        (
            lambda folder: rewritten(folder, lambda weights: {n: w for n, w in weights.items() if "classifier" not in n}),
            r"lacks 2 weights .*classifier.bias, classifier.weight",
        ),
        (
            lambda folder: rewritten(folder, lambda weights: weights | {"classifier.weight": torch.zeros(2, 32)}),
            "cannot be loaded|lacks 1 weights",
        ),
        (lambda folder: configured(folder, model_type="never_heard_of"), "never_heard_of"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 40), "cannot be loaded"),
    ],
)
def test_a_folder_that_cannot_be_opened(change, message, folder):
    change(folder)
    with pytest.raises(ModelError, match=message) as refusal:
        load_subject(folder)
    assert "\n" not in str(refusal.value)


CODE = """
from transformers import BertConfig, BertForSequenceClassification


class OwnConfig(BertConfig):
    model_type = "own_kind_of_bert"


class OwnForSequenceClassification(BertForSequenceClassification):
    config_class = OwnConfig
"""


def test_code_of_a_checkpoint_runs_only_on_request(folder, monkeypatch, tmp_path):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    (folder / "own.py").write_text(CODE)
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnForSequenceClassification"}
    configured(folder, model_type="own_kind_of_bert", auto_map=classes, architectures=["OwnForSequenceClassification"])
    with pytest.raises(ModelError, match="trust_remote_code"):
        load_subject(folder)
    assert type(load_subject(folder, trust_remote_code=True).model).__name__ == "OwnForSequenceClassification"


def test_a_recipe_read_without_pydantic_has_the_fields_of_the_recipe(tmp_path):
    for overrides in (
        ["--kind=adversarial", "--base=b", "--divergence=jsd", "--weight=1"],
        ["--model.projection=entmax", "--model.entmax_alpha=1.3", "--penalties.impermissible_mass=0.5"],
    ):
        recipe = recipes.build({"name": "a", "output_dir": "b"}, overrides)
        (tmp_path / "recipe.yaml").write_text(recipes.dump(recipe))
        written = written_recipe(tmp_path / "recipe.yaml")
        assert repr(objective_fields(written)) == repr(objective_fields(recipe))
        assert model_fields(written.model) == model_fields(recipe.model)
