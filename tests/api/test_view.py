"""A view of all self-attention holds what models compute and measures give, of every kind of model that has some."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith import AttnfaithError, cli, record
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.importance.context_mixing import Alti, Rollout, ValueZeroing
from attnfaith.reporting.view import STEPS, PairView
from attnfaith.subjects import SelfAttention, SubjectError
from tests import tolerances
from tests.records import draw
from tests.sequence_records import build as build_pairs
from tests.sequence_records import draw as draw_pairs
from tests.small_classifiers import classifier, tokenizer
from tests.small_translators import PAIRS, translator
from tests.small_translators import tokenizer as translator_tokenizer


TEXT = "the old ship never sank slowly and the film was very good"
MEASURES = {"rollout": Rollout, "alti": Alti, "value_zeroing": ValueZeroing}


@pytest.fixture(scope="module")
def bert():
    return classifier("bert", id2label={0: "bad", 1: "fair", 2: "good"}, label2id={"bad": 0, "fair": 1, "good": 2})


@pytest.fixture(scope="module")
def view_of_bert(bert):
    return attnfaith.view(bert, TEXT, tokenizer=tokenizer())


def test_heads_are_those_of_the_model(bert, view_of_bert):
    ids, view = tokenizer()(TEXT, return_tensors="pt")["input_ids"], view_of_bert
    bert.set_attn_implementation("eager")
    with torch.no_grad():
        expected = [layer[0].numpy() for layer in bert(ids, output_attentions=True).attentions]
    assert len(view.heads) == len(expected) > 1
    for heads, maps in zip(view.heads, expected, strict=True):
        np.testing.assert_allclose(heads, maps, atol=1e-6)
    np.testing.assert_allclose(view.matrices["attention"], np.stack(expected).mean(1), atol=1e-6)
    assert view.tokens == ("[CLS]", *TEXT.split(), "[SEP]") and not view.truncated
    assert view.inside.tolist() == [False, *[True] * 12, False] and view.words == (None, *range(12), None)
    assert view.classes == ("bad", "fair", "good") and view.reads.tolist() == [1.0, *[0.0] * 13]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("name", MEASURES)
def test_the_answer_is_the_measure_of_that_name(kind, name):
    model, words = classifier(kind), tokenizer(markers=kind == "bert")
    view = attnfaith.view(model, TEXT, name, tokenizer=words)
    subject = SelfAttention(model, words)
    (values,) = MEASURES[name]()(subject, subject.encode([TEXT])).values()
    np.testing.assert_allclose(view.answer(name)[view.inside], values[0], atol=1e-6)
    np.testing.assert_allclose(view.matrices[name].sum(2), 1, atol=1e-6)


def test_a_pair_has_the_tokens_of_both(bert):
    view = attnfaith.view(bert, ("the ship sank", "it was old"), "attention", tokenizer=tokenizer())
    assert view.tokens == ("[CLS]", "the", "ship", "sank", "[SEP]", "it", "was", "old", "[SEP]")
    assert view.words == (None, 0, 1, 2, None, 3, 4, 5, None)


def test_a_measure_that_a_model_lacks_is_left_out_with_the_reason_or_refused_by_name(bert, tiny_model, monkeypatch):
    model, words = classifier("bart"), tokenizer(eos_token="[SEP]")
    view = attnfaith.view(model, TEXT, tokenizer=words)
    assert list(view.matrices) == ["attention"] and set(view.lacks) == {*MEASURES}
    assert not view.stacked and view.lacks["alti"] == "attention is a decoder's over an encoder"
    tolerances.close(view.answer("attention"), view.reads @ view.matrices["attention"][-1], dtype=torch.float32)
    with pytest.raises(SubjectError, match="alti cannot be seen of this model: "):
        attnfaith.view(model, TEXT, ["attention", "alti"], tokenizer=words)
    with pytest.raises(AttnfaithError, match="the view does not hold 'rollout': .*; it holds attention"):
        view.answer("rollout")
    words = build_tokenizer([TEXT], preprocessing="whitespace")
    with pytest.raises(SubjectError, match="no self-attention to be seen .attention classifiers of this"):
        attnfaith.view(tiny_model(encoder="bilstm", vocab_size=len(words)), TEXT, tokenizer=words)
    monkeypatch.setattr("attnfaith.api.viewing.MOST_READ", 13)
    lacks = attnfaith.view(bert, TEXT, tokenizer=tokenizer()).lacks
    assert lacks["value_zeroing"] == "it reads a text of 14 positions 14 times: ask for it by name"
    assert list(attnfaith.view(bert, TEXT, "value_zeroing", tokenizer=tokenizer()).matrices) == ["value_zeroing"]


# ------------------------------------------------------------------------------- numbers, page and command


def test_through_the_layers_by_hand(view_of_bert):
    product = np.linalg.multi_dot([*view_of_bert.matrices["alti"][::-1]])
    np.testing.assert_allclose(view_of_bert.through("alti")[-1], product, atol=1e-6)
    np.testing.assert_allclose(view_of_bert.matrices["rollout"], (view_of_bert.matrices["attention"] + np.eye(14)) / 2)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="view">(.*?)</script>', page, re.S)[1])


def weights_of(page):
    """{measure: the weights that the page holds}, in the order of its measures."""
    data, place, weights = data_of(page), 0, {}
    steps = np.frombuffer(zlib.decompress(base64.b64decode(data["weights"])), "<i2").astype(float)
    words = data.get("words")
    shape = [len(words or data["target"]), len(words or data["source"])]
    for measure in data["measures"]:
        sizes = [size for size in measure["sizes"] if size] + shape
        weights[measure["name"]] = steps[place : place + np.prod(sizes)].reshape(sizes) * measure["largest"] / STEPS
        place += np.prod(sizes)
    assert place == len(steps)
    return weights


def test_the_page_keeps_weights_as_near_as_its_steps(view_of_bert):
    weights = weights_of(view_of_bert.page)
    np.testing.assert_allclose(weights.pop("attention"), np.stack(view_of_bert.heads), atol=1 / STEPS)
    assert list(weights) == [*MEASURES]
    for name, values in weights.items():
        np.testing.assert_allclose(values, view_of_bert.matrices[name], atol=1 / STEPS)
        np.testing.assert_allclose(data_of(view_of_bert.page)["answers"][name], view_of_bert.answer(name), atol=1e-6)


@pytest.mark.slow
def test_the_command_writes_the_page(bert, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for part in (bert, tokenizer()):
        part.save_pretrained(tmp_path / "models" / "small-bert")
    command = ["view", "models/small-bert", TEXT, "--measure"]
    assert cli.main([*command, "alti", "attention"]) == 0
    page = (tmp_path / "view.html").read_text()
    assert [measure["name"] for measure in data_of(page)["measures"]] == ["alti", "attention"]
    assert "small-bert" in page and str(tmp_path) not in page  # which is sent, and names no place
    assert cli.main([*command, "rollout"]) == 0  # over a page of its own
    assert data_of((tmp_path / "view.html").read_text())["measures"][0]["name"] == "rollout"


# ------------------------------------------------------------------------------- pairs of sentences


def test_a_record_of_pairs_shows_one_of_them(tmp_path, capsys):
    table = draw_pairs(4, seed=1)
    record.save(table, tmp_path / "record.parquet")
    view = attnfaith.view(attnfaith.load(tmp_path / "record.parquet"), 2)
    assert view.instance_id == "pairs/2" and view.target == tuple(table.column("target_tokens")[2].as_py())
    for name in view.measures:
        np.testing.assert_array_equal(view.measures[name], record.rows(table, f"alignment_{name}")[2])
    np.testing.assert_array_equal(view.links, record.rows(table, "gold_links")[2])
    for source in (tmp_path, tmp_path / "record.parquet"):  # a run, or its record
        page = tmp_path / "pair.html"
        assert cli.main(["view", str(source), "pairs/2", "--output", str(page)]) == 0
        assert page.read_text() == view.page
    for values, weights in zip(view.measures.values(), weights_of(view.page).values(), strict=True):
        np.testing.assert_allclose(weights, values, atol=np.abs(values).max() / STEPS)


def test_a_model_from_sequences_to_sequences_is_measured_on_the_pair():
    view = attnfaith.view(translator("marian"), PAIRS[0], ["attention", "occlusion"], tokenizer=translator_tokenizer())
    how = {"measures": ["attention", "occlusion"], "progress": False}
    expected = attnfaith.measure(translator("marian"), [PAIRS[0]], tokenizer=translator_tokenizer(), **how)
    assert (view.source, view.target) == tuple(tuple(side.split()) for side in PAIRS[0]) and view.links is None
    for name in ("attention", "occlusion"):
        np.testing.assert_array_equal(view.measures[name], expected.alignment(name)[0])


def viewed(model, text, measures=None, words=None):
    return attnfaith.view(model, text, measures, tokenizer=words or tokenizer())


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda bert: viewed(bert, ""), "has no word that the model's tokenizer knows of"),
        (lambda bert: viewed(bert, 7), "text 0 is 7"),
        (
            lambda bert: viewed(bert, TEXT, ["altI"]),
            "nothing to be seen is called 'altI'; there are attention, rollout, alti",
        ),
        (lambda _: attnfaith.view(attnfaith.Record(draw(3)), 0), "this is a record of texts, which keeps no maps"),
        (lambda _: PairView.of(build_pairs([(["a"], ["b"])])), "the record holds no measure of alignment"),
        (lambda _: PairView.of(draw_pairs(1), 7), "there is no text '7': the record holds 1"),
        (lambda _: attnfaith.view(attnfaith.Record(draw_pairs(1)), 0, "alti"), "shows all that it holds"),
        (
            lambda _: attnfaith.view(translator("marian"), "hund", tokenizer=translator_tokenizer()),
            "reads pairs of sentences",
        ),
    ],
)
def test_texts_measures_and_records_that_are_refused(bert, view, message):
    with pytest.raises(AttnfaithError, match=re.escape(message)):
        view(bert)
