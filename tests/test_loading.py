"""Every way in which people have a model is opened by one function, on the device that is named."""

import copy
import json
import os
import shutil

import pytest
import torch

import attnfaith
from attnfaith import recipes
from attnfaith.loading import ModelError, open_subject, written_recipe
from attnfaith.record import model_fields, objective_fields
from attnfaith.subjects import SubjectError
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["a good film", "the plot is bad"]
HOW = {"measures": ["gradient"], "progress": False}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    classifier("bert").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "bert")


@pytest.mark.parametrize("device", ["cpu", -1, torch.device("cpu")], ids=str)
def test_a_device_by_each_of_its_names(folder, device):
    subject = attnfaith.load_subject(folder, device=device)
    assert subject.device == torch.device("cpu") and not subject.model.training
    made = attnfaith.measure(folder, TEXTS, device=device, **HOW)
    expected = attnfaith.measure(folder, TEXTS, **HOW)
    assert made.table.column("importance_gradient") == expected.table.column("importance_gradient")


def test_an_opened_folder_is_kept_until_its_files_change(folder):
    subject = open_subject(folder)
    assert open_subject(folder).model is subject.model
    assert attnfaith.load_subject(folder).model is not subject.model  # it may be trained further by who asked for it
    weights = folder / "model.safetensors"
    model = classifier("bert")
    with torch.no_grad():
        model.classifier.bias += 1
    model.save_pretrained(folder)
    os.utime(weights, ns=(1, 1))
    assert torch.equal(open_subject(folder).model.classifier.bias, model.classifier.bias)


class Unmergeable(torch.nn.Module):
    """A PEFT model whose adapter is no update of weights, such as a prompt."""

    peft_config = None

    def __init__(self, model):
        super().__init__()
        self.model = model


class Adapted(torch.nn.Module):
    """What `merge_and_unload` of a PEFT model does, without PEFT: weight W and update U give W + U."""

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
    adapted = Adapted(model, torch.ones_like(model.classifier.weight))
    subject = attnfaith.load_subject(adapted, tokenizer=tokenizer())
    assert torch.equal(subject.model.classifier.weight, plain.classifier.weight + 1)
    assert torch.equal(model.classifier.weight, plain.classifier.weight)
    with pytest.raises(SubjectError, match="PEFT"):
        attnfaith.load_subject(Unmergeable(model), tokenizer=tokenizer())


CODE = """
from transformers import BertConfig, BertForSequenceClassification


class OwnConfig(BertConfig):
    model_type = "own_kind_of_bert"


class OwnForSequenceClassification(BertForSequenceClassification):
    config_class = OwnConfig
"""


def test_code_of_a_checkpoint_runs_only_if_asked_for(folder, monkeypatch, tmp_path):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    (folder / "own.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnForSequenceClassification"}
    config |= {"model_type": "own_kind_of_bert", "auto_map": own, "architectures": ["OwnForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="trust_remote_code"):
        attnfaith.load_subject(folder)
    assert type(attnfaith.load_subject(folder, trust_remote_code=True).model).__name__ == "OwnForSequenceClassification"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["--kind=adversarial", "--base=b", "--divergence=jsd", "--weight=1"],
        ["--model.projection=entmax", "--model.entmax_alpha=1.3", "--penalties.impermissible_mass=0.5"],
    ],
)
def test_a_recipe_that_is_read_as_it_was_written_says_what_the_recipe_says(overrides, tmp_path):
    """Without pydantic, whose import takes longer than opening a model."""
    recipe = recipes.parse("name: a\noutput_dir: b\n", overrides)
    (tmp_path / "recipe.yaml").write_text(recipes.dump(recipe))
    written = written_recipe(tmp_path / "recipe.yaml")
    assert objective_fields(written) == objective_fields(recipe)
    assert model_fields(written.model) == model_fields(recipe.model)
    assert [*map(type, objective_fields(written).values())] == [*map(type, objective_fields(recipe).values())]
