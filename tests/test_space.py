"""The Space: predictions, other attentions, records and their page, what it refuses, and its command; without gradio."""

import re
from html import unescape

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnfaith
from attnfaith import cli, space
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.space import Service, checked, framed, report, typed_weights
from attnfaith.support.errors import AttnfaithError
from tests.small_classifiers import classifier, tokenizer
from tests.toy_subject import Toy


TEXT = "the old ship sank"
HOSTILE = "<img src=x onerror='hit()'>\"&amp;${hit}</iframe><script>hit()</script>"


@pytest.fixture(scope="module")
def affine(tmp_path_factory):
    """The folder of a small model of this package, whose read-out is affine."""
    words = build_tokenizer(
        ["the old new ship sank film was good bad never slowly"], preprocessing="default", max_length=400
    )
    torch.default_generator.manual_seed(1)
    config = attnfaith.AttentionClassifierConfig(
        vocab_size=len(words), embedding_size=8, hidden_size=8, id2label={0: "<b>bad</b>", 1: "good"}
    )
    model = attnfaith.AttentionClassifierForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    path = tmp_path_factory.mktemp("affine") / "small"
    model.save_pretrained(path)
    words.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """The folder of a small classifier of transformers."""
    path = tmp_path_factory.mktemp("stack") / "small"
    classifier("bert").save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def service(affine, stack):
    return Service([str(affine), str(stack)])


@pytest.fixture(scope="module")
def names(service):
    return list(service.offered)


# ---------- models and texts


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "no model was named"),
        ("/etc/passwd", "is no name of a model on the Hub"),
        ("a/..", "is no name"),
        (HOSTILE, "is no name"),
    ],
)
def test_a_name_that_is_no_model_is_refused(service, name, message):
    with pytest.raises(AttnfaithError, match=message):
        service.model(name)


def test_a_folder_of_the_server_cannot_be_named(service, affine, monkeypatch):
    monkeypatch.chdir(affine.parent.parent)
    with pytest.raises(AttnfaithError, match="is a folder of the server"):
        Service().model(f"{affine.parent.name}/small")
    with pytest.raises(AttnfaithError, match="is no name"):
        service.model(str(affine))


def test_what_is_not_offered_is_refused_where_no_other_may_be_named(affine):
    closed = Service([str(affine)], open=False)
    with pytest.raises(AttnfaithError, match="'owner/model' is not offered here: choose small"):
        closed.model("owner/model")
    assert closed.model("small") == str(affine)
    with pytest.raises(AttnfaithError, match="no model is offered"):
        Service(open=False)


def test_a_model_on_the_hub_is_weighed_before_it_is_fetched(monkeypatch):
    monkeypatch.setattr(space, "_size_on_hub", {"owner/small": 10**9, "owner/large": 3 * 10**9}.get)
    assert Service().model("owner/small") == "owner/small"
    with pytest.raises(AttnfaithError, match=r"owner/large has 3.0 GB of weights, and this page takes 2 GB"):
        Service().model("owner/large")


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no text"), (" \n", "no text"), (None, "no text"), (7, "no text"), ("a" * 2001, "2,001 letters")],
)
def test_texts_are_checked(text, message):
    with pytest.raises(AttnfaithError, match=message):
        checked(text)


def test_a_text_of_too_many_tokens_is_refused_before_it_is_measured(service, names, monkeypatch):
    monkeypatch.setattr(space, "measure", lambda *_, **__: pytest.fail("it was measured"))
    with pytest.raises(AttnfaithError, match="reads 300 tokens in this text: this page takes 1 to 256"):
        service.record(names[0], "the " * 300)
    with pytest.raises(AttnfaithError, match=r"6[57] texts: this page reads 64 at once"):
        service.edit(names[0], TEXT, "the\n" * 65)
    with pytest.raises(AttnfaithError, match="6[57] texts"):
        service.without_words(names[0], "the " * 65)


# ---------- other weights


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=8).filter(lambda row: sum(row) > 0), st.sampled_from([" ", ", ", "\n"])
)
def test_weights_are_divided_by_their_sum(row, between):
    weights = typed_weights(between.join(map(repr, row)), len(row))
    assert weights.sum() == pytest.approx(1) and weights == pytest.approx(np.array(row) / sum(row))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("1 2", "2 weights for 3 tokens"),
        ("1 2 __import__('os')", "numbers"),
        ("1 2 -1", "0 or more"),
        ("0 0 0", "one of them is above 0"),
        ("1 2 nan", "finite"),
        ("1e308 1e308 1e308", "finite"),
    ],
)
def test_other_weights_are_refused(written, message):
    with pytest.raises(AttnfaithError, match=message):
        typed_weights(written, 3)


def test_under_an_affine_read_out_predictions_mix_those_of_the_tokens(service, names):
    """Logits are sums of weights times what a token adds: those under mixed weights follow from one token at a time."""

    def odds(weights):
        predictions = service.under(names[0], TEXT, weights)
        return predictions, np.log(predictions.probs[:, 1] / predictions.probs[:, 0])

    alone = np.array([odds(" ".join("1" if place == token else "0" for place in range(4)))[1][-1] for token in range(4)])
    predictions, mixed = odds("1 2 3 4")
    own = attnfaith.measure(service.model(names[0]), [TEXT], measures=[], progress=False)
    weights = np.array(own.table.column("attention")[0].as_py())
    rest = np.where(np.arange(4) == weights.argmax(), 0, weights)
    expected = [alone @ weights, alone.mean(), alone @ rest / rest.sum(), alone @ [0.1, 0.2, 0.3, 0.4]]
    assert mixed == pytest.approx(expected, abs=1e-5)
    assert [predictions.names[place] for place in (0, 1, 3)] == [space.OWN, space.UNIFORM, space.TYPED]
    assert TEXT.split()[weights.argmax()] in predictions.names[2] and predictions.classes == ("0 <b>bad</b>", "1 good")


def test_a_read_out_that_is_not_affine_is_asked_itself():
    toy = Toy()
    batch = toy.encode(["7 12 9"])
    with torch.no_grad():
        names, probs = space.under_attentions(toy, batch, "0 1 0", ["7", "12", "9"])
    assert names[0] == space.OWN and names[-1] == space.TYPED and len(names) == len(probs) == 4
    assert probs[0] == pytest.approx(toy.predict(batch).softmax(-1)[0].detach().numpy(), abs=1e-6)
    alone = toy.intervene(batch, torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]])).softmax(-1)[0].detach().numpy()
    assert probs[-1] == pytest.approx(alone, abs=1e-6), "markers stand around the three tokens"
    assert probs.sum(1) == pytest.approx(1)


# ---------- edited texts


def test_edited_texts_are_predicted_beside_the_text(service, names):
    predictions = service.edit(names[0], TEXT, "the old film sank\n\n the  good film ")
    assert predictions.names == ["the text", "the old film sank", "the good film"] and len(predictions.classes) == 2
    for text, probs in zip([TEXT, *predictions.names[1:]], predictions.probs, strict=True):
        alone = attnfaith.measure(service.model(names[0]), [text], measures=[], progress=False)
        assert probs == pytest.approx(np.array(alone.table.column("probs")[0].as_py()), abs=1e-6)
    assert service.edit(names[0], TEXT, "the \ud800").names[1] == "the ?"  # half a letter
    for nothing in ("", " \n ", None):
        with pytest.raises(AttnfaithError, match="there is no edited text"):
            service.edit(names[0], TEXT, nothing)


def test_each_word_is_left_out_once_the_largest_change_first(service, names):
    predictions = service.without_words(names[0], TEXT)
    assert predictions.names[0] == "the text" and {int(name[-2]) for name in predictions.names[1:]} == {1, 2, 3, 4}
    assert (np.diff(predictions.tvd[1:]) <= 0).all()
    (sank,) = (place for place, name in enumerate(predictions.names) if "sank" in name)
    assert predictions.probs[sank] == pytest.approx(service.edit(names[0], TEXT, "the old ship").probs[1], abs=1e-6)
    with pytest.raises(AttnfaithError, match="the text has one word"):
        service.without_words(names[0], "ship")


# ---------- records and pages


@pytest.mark.slow
def test_the_record_is_that_of_measure_and_is_kept(service, names, affine, monkeypatch):
    record = service.record(names[0], f"  {TEXT} ")
    assert record == attnfaith.measure(affine, [TEXT], name="typed", split="text", progress=False)
    monkeypatch.setattr(space, "measure", lambda *_, **__: pytest.fail("it was measured anew"))
    assert service.record(names[0], TEXT) is record
    monkeypatch.setattr(space, "measure", lambda *_, **__: record)
    for number in range(space.MOST_RECORDS):
        service.record(names[0], "the ship " + "old " * number)
    assert service._cached.cache_info().currsize == space.MOST_RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_the_page_is_the_report_s_and_stands_in_a_frame(service, names, place):
    page = report(service.record(names[place], TEXT))
    assert page.lower().startswith("<!doctype html>") and "Content-Security-Policy" in page
    frame = framed(page)
    assert frame.count("<") == 2 and 'sandbox="allow-scripts"' in frame and "allow-same-origin" not in frame
    (source,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(source) == page


# ---------- the command and the page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["space", "nowhere"], "nowhere is neither a run, nor the folder of a model"),
        (["space", "."], ". is neither a run"),
        (["space", "--only"], "no model is offered and none may be named"),
        (["space", "--port", "70000"], "--port 70000: give a number from 1 to 65535"),
        (["space", "--port", "x"], "--port"),
    ],
)
def test_the_command_refuses_what_it_cannot_serve(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(space, "require_gradio", lambda: None)
    monkeypatch.setattr(space, "serve", lambda *_, **__: pytest.fail("served"))
    assert cli.main(arguments) == 2 and message in capsys.readouterr().err
