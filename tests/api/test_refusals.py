"""Mistakes in the arguments of `attnfaith.measure`: one clear error, before any work."""

import datasets
import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertForTokenClassification, GPT2Config, GPT2LMHeadModel

import attnfaith
from attnfaith import AttnfaithError
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.loading import ModelError
from attnfaith.measurement import engine
from attnfaith.subjects import SubjectError
from tests.small_classifiers import classifier, tokenizer


@pytest.fixture
def idle(monkeypatch):
    """No model reads anything."""
    monkeypatch.setattr(engine, "_read_texts", lambda *a, **k: pytest.fail("work was done"))


@pytest.fixture
def model(tiny_model):
    def make(texts=("the old ship sank",), pair=False, **fields):
        words = build_tokenizer(texts, preprocessing="whitespace", pair=pair, hierarchy=fields.get("hierarchy", "none"))
        marks = {"sentence_token_id": words.sentence_token_id} if "hierarchy" in fields else {}
        fields |= {"vocab_size": len(words), "query": "text" if pair else "learned"}
        return {"model": tiny_model(**fields, **marks), "tokenizer": words}

    return make


FRAME = pd.DataFrame({"review": ["the ship", "a ship"], "topic": ["a", "b"]})
ROWS = datasets.Dataset.from_dict({"text": ["a"]})


@pytest.mark.parametrize(
    ("texts", "more", "message"),
    [
        ([], {}, "there are no texts"),
        ("the old ship", {}, r"texts is one string, 'the old ship': put it into a list, \[text\]"),
        ("ships.csv", {}, "no file at ships.csv"),
        (datasets.DatasetDict({"train": ROWS}), {}, "a DatasetDict: give one of its parts"),
        ([*ROWS], {}, "Dataset.from_list"),
        (["a", None], {}, "text 1 is None"),
        (["a", ("a", "b")], {}, "text 1 is"),
        (["", "  "], {}, "no text has a word"),
        (FRAME, {}, "no column 'text' for text; there are review, topic .say text="),
        (FRAME, {"text": "reveiw"}, "there is no column 'reveiw' for text; did you mean 'review'"),
        (FRAME, {"text": "review", "label": "topic", "labels": [0, 1]}, "labels are given twice"),
        (["the"], {"label": ["neg"]}, "label=.*labels="),
        (pd.DataFrame({"text": ["a", None]}), {}, "row 1 of column 'text' is missing"),
        (pd.DataFrame({"text": ["a", "b"], "instance_id": ["x", "x"]}), {}, "instance_id 'x' comes twice"),
        (["the"], {"labels": [0, 1]}, "2 labels for 1 text"),
        (["the"], {"labels": "0"}, "labels is '0': give a list with one for each text"),
        (["the"], {"labels": ["neutral"]}, "label 0 is 'neutral', no class of the model; there are 0, 1"),
        (["the"], {"measures": ["leave-one-out"]}, "'leave-one-out'.*'leave_one_out'"),
        (["the"], {"output": 3}, "output=3: give the path of a file"),
        (["the"], {"batch_tokens": "64"}, "batch_tokens='64': a whole number, 1 or more"),
        (["the"], {"measures": ["lime"], "options": {"lime": {"samplse": 3}}}, "options of 'lime': .*samplse"),
        (["the"], {"measures": ["lime"], "options": {"lrp": {}}}, "options for 'lrp', which is not measured"),
        ([("the", "ship")], {}, "these are pairs, and the model reads single texts"),
    ],
)
def test_texts_and_arguments(texts, more, message, idle, model):
    with pytest.raises(AttnfaithError, match=message) as raised:
        attnfaith.measure(**model(), texts=texts, progress=False, **more)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 700


def of_inference_mode():
    with torch.inference_mode():
        return classifier("bert")


def folder_of(*parts):
    for part in parts:
        part.save_pretrained("model")
    return "model"


def generator():
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2))


def tagger():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    return BertForTokenClassification(BertConfig(**sizes, vocab_size=40))


AUTO, WORDS = "AutoModelForSequenceClassification", {"tokenizer": tokenizer()}


@pytest.mark.parametrize(
    ("make", "more", "kind", "message"),
    [
        (lambda: None, {}, SubjectError, "NoneType cannot be measured; subjects are "),
        (lambda: "../../no such folder", {}, ModelError, "no model '../../no such folder'"),
        (lambda: "alice/none", {}, ModelError, "alice/none.*the Hub is not reached"),
        (lambda: "runs", WORDS, ModelError, "tokenizer: a folder, a run and a name on the Hub have their own"),
        (of_inference_mode, WORDS, SubjectError, "inference_mode"),
        (tagger, WORDS, SubjectError, f"BertForTokenClassification.*{AUTO}"),
        (lambda: folder_of(generator(), tokenizer()), {}, ModelError, f"GPT2LMHeadModel.*{AUTO}"),
        (lambda: classifier("bert"), {}, ModelError, "tokenizer="),
        (lambda: classifier("bert"), {"tokenizer": "alice/words"}, ModelError, "alice/words.*the Hub is not reached"),
        (lambda: folder_of(classifier("bert")), {}, ModelError, "no tokenizer.*save_pretrained"),
    ],
)
def test_models_that_cannot_be_measured(make, more, kind, message, idle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AttnfaithError, match=message) as raised:
        attnfaith.measure(make(), ["the"], progress=False, **more)
    assert isinstance(raised.value, kind) and len(str(raised.value)) < 700


@pytest.mark.slow
def test_pairs_and_documents(model, tmp_path, quick_figures):
    pairs = attnfaith.measure(**model(pair=True), texts=[("the old ship", "a ship"), ("the", "")], progress=False)
    assert pairs.table.column("query_tokens").to_pylist() == [["a", "ship"], []]
    assert "second text" in pairs._repr_html_() + str(pairs.show(0)) and "no words" in pairs.show(1)._repr_html_()
    documents = ["The old ship sank. It was new.", "A ship."]
    measured = attnfaith.measure(**model(documents, hierarchy="sentence"), texts=documents, progress=False)
    assert measured.per_text()["n_tokens"][0] == 2 and measured.cells[0].identity.level == "sentence"
    assert measured.report(tmp_path / "report").is_file()
    assert measured.show(0)._repr_html_().count("<span") >= 2
