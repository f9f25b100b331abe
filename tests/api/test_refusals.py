"""What people give by mistake to `attnfaith.measure`: one clear error, before any work."""

import datasets
import pandas as pd
import pytest

import attnfaith
from attnfaith import AttnfaithError
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.measurement import engine


@pytest.fixture
def idle(monkeypatch):
    """No model reads anything."""
    monkeypatch.setattr(engine, "_read_texts", lambda *a, **k: pytest.fail("work was done"))


@pytest.fixture
def model(tiny_model):
    def make(texts=("the old ship sank",), pair=False, **fields):
        tokenizer = build_tokenizer(texts, preprocessing="whitespace", pair=pair, hierarchy=fields.get("hierarchy", "none"))
        marks = {"sentence_token_id": tokenizer.sentence_token_id} if "hierarchy" in fields else {}
        made = tiny_model(vocab_size=len(tokenizer), query="text" if pair else "learned", **fields, **marks)
        return {"model": made, "tokenizer": tokenizer}

    return make


FRAME = pd.DataFrame({"review": ["the ship", "a ship"], "topic": ["a", "b"]})


@pytest.mark.parametrize(
    ("texts", "more", "said"),
    [
        ([], {}, "there are no texts"),
        (pd.DataFrame({"text": []}), {}, "there are no texts"),
        ("the old ship", {}, r"texts is one string, 'the old ship': put it into a list, \[text\]"),
        ("ships.csv", {}, "no file at ships.csv"),
        (None, {}, "texts is None: give a list of strings"),
        ({"text": ["a"]}, {}, "texts is a dict: give one of its parts"),
        (datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})}), {}, "a DatasetDict: give"),
        (["a", None], {}, "text 1 is None"),
        (["a", 3.5], {}, "text 1 is 3.5"),
        ([b"a"], {}, "text 0 is b'a'"),
        (["a", "\ud800"], {}, r"text 1 is '\\ud800'"),
        (["a"], {"name": "\ud800"}, r"name='\\ud800': give a word"),
        (["a", ("a", "b")], {}, "text 1 is"),
        ([("a", None)], {}, "text 0 is .*None"),
        ([("a", "b", "c")], {}, "text 0 is"),
        (["", "  "], {}, "no text has a word"),
        (FRAME, {}, "no column 'text' for text; there are review, topic .say text="),
        (FRAME, {"text": "reveiw"}, "there is no column 'reveiw' for text; did you mean 'review'"),
        (FRAME, {"text": "review", "label": "tpic"}, "no column 'tpic' for label; did you mean 'topic'"),
        (FRAME, {"text": "review", "label": "topic", "labels": [0, 1]}, "labels are given twice"),
        (FRAME, {"text": 3}, "text=3: give the name of a column"),
        (pd.DataFrame({"text": ["a", None]}), {}, "row 1 of column 'text' is missing"),
        (pd.DataFrame({"text": [1, 2]}), {}, "row 0 of column 'text' is 1, no string"),
        (pd.DataFrame({"text": ["a", "b"], "label": [0, "x"]}), {}, "holds values of several kinds"),
        (pd.DataFrame({"text": ["a", "b"], "instance_id": ["x", "x"]}), {}, "instance_id 'x' comes twice"),
        (["the"], {"labels": [0, 1]}, "2 labels for 1 text"),
        (["the"], {"labels": "0"}, "labels is '0': give a list with one for each text"),
        (["the"], {"labels": ["neutral"]}, "label 0 is 'neutral', no class of the model; there are 0, 1"),
        (["the"], {"labels": [-1]}, "label 0 is '-1', no class"),
        (["the"], {"labels": [0.5]}, "label 0 is 0.5: give the number or"),
        (["the"], {"measures": 3}, "measures=3: give a list of names"),
        (["the"], {"add": 3}, "measures=3: give a list of names"),
        (["the"], {"options": "lime"}, "options: 'lime' is no mapping"),
        (["the"], {"output": "a\0b"}, r"output='a\\x00b': give the path of a file"),
        (["the"], {"batch_tokens": "64"}, "batch_tokens='64': a whole number, 1 or more"),
        (["the"], {"measures": ["lime"], "options": {"lime": {"samplse": 3}}}, "options of 'lime': .*samplse"),
        (["the"], {"measures": ["lime"], "options": {"lrp": {}}}, "options for 'lrp', which is not measured"),
        (["the"], {"measures": ["lime"], "options": {"lime": {"samples": 0}}}, "options of 'lime'"),
        (["the"], {"level": "word"}, "hierarchy='none'"),
        (["the"], {"level": "letter"}, "level='letter': choose"),
        ([("the", "ship")], {}, "these are pairs, and the model reads single texts"),
    ],
)
def test_texts_and_arguments(texts, more, said, idle, model):
    with pytest.raises(AttnfaithError, match=said) as raised:
        attnfaith.measure(**model(), texts=texts, progress=False, **more)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 700


@pytest.mark.slow
def test_pairs_and_documents(model):
    pairs = attnfaith.measure(**model(pair=True), texts=[("the old ship", "a ship"), ("the", "")], progress=False)
    assert pairs.table.column("query_tokens").to_pylist() == [["a", "ship"], []]
    assert "second text" in pairs._repr_html_() + str(pairs.show(0))
    assert "no words" in pairs.show(1)._repr_html_()
    documents = ["The old ship sank. It was new.", "A ship."]
    for level, tokens in (("sentence", 2), ("word", 6)):
        made = attnfaith.measure(**model(documents, hierarchy="sentence"), texts=documents, level=level, progress=False)
        assert made.per_text()["n_tokens"][0] == tokens + (level == "word")
        assert made.cells[0].identity.level == level and made.show(0)._repr_html_().count("<span") >= tokens


@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        (None, {}, "model is None: give a text classifier of transformers or an attention classifier"),
        (3, {}, "model is 3"),
        ("../../no such folder", {}, "no model '../../no such folder'"),
        ("x" * 5000, {}, "no model 'xxx"),
        ("runs", {"tokenizer": "y"}, "tokenizer: a folder, a run and a name on the Hub have their own"),
        (object(), {}, "object cannot be measured"),
    ],
)
def test_models_that_are_none(given, more, said, idle):
    with pytest.raises(AttnfaithError, match=said) as raised:
        attnfaith.measure(given, ["the"], progress=False, **more)
    assert len(str(raised.value)) < 500
