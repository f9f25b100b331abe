"""The Space: predictions, other attentions, records and their page, refusals, and its command; without gradio."""

import re
from html import unescape

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith import cli, space
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.space import Service, framed, report, typed_weights
from attnfaith.support.errors import AttnfaithError
from tests.toy_subject import Toy


TEXT = "the old ship sank"
HOSTILE = "<img src=x onerror='hit()'>\"&amp;${hit}</iframe><script>hit()</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model):
    """The folder of a small model of this package, whose read-out is affine."""
    words = build_tokenizer([f"{TEXT} film was good bad never slowly"], preprocessing="default", max_length=400)
    path = tmp_path_factory.mktemp("affine") / "small"
    labels = {0: "<b>bad</b>", 1: "good"}
    tiny_model(seed=1, vocab_size=len(words), id2label=labels, dtype=torch.float32).save_pretrained(path)
    words.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def service(folder):
    return Service([str(folder)])


@pytest.mark.parametrize(
    ("open", "name", "message"),
    [
        (True, None, "no model was named"),
        (True, "/etc/passwd", "is no name of a model on the Hub"),
        (True, HOSTILE, "is no name"),
        (True, "owner/large", r"owner/large has 3.0 GB of weights, and this page takes 2 GB"),
        (False, "owner/model", "'owner/model' is not offered here: choose small"),
    ],
)
def test_a_model_that_may_not_be_named(folder, monkeypatch, open, name, message):
    monkeypatch.setattr(space, "_size_on_hub", {"owner/small": 10**9, "owner/large": 3 * 10**9}.get)
    service = Service([str(folder)], open=open)
    assert service.model("small") == str(folder) and (not open or service.model("owner/small") == "owner/small")
    with pytest.raises(AttnfaithError, match=message):
        service.model(name)
    monkeypatch.chdir(folder.parent.parent)
    with pytest.raises(AttnfaithError, match="is a folder of the server"):
        Service().model(f"{folder.parent.name}/small")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda service: service.record("small", " \n"), "no text"),
        (lambda service: service.record("small", "a" * 2001), "2,001 letters"),
        (lambda service: service.record("small", "the " * 300), "reads 300 tokens in this text: this page takes 1 to 256"),
        (lambda service: service.edit("small", TEXT, "the\n" * 65), r"6[57] texts: this page reads 64 at once"),
        (lambda service: service.without_words("small", "the " * 65), "6[57] texts"),
        (lambda service: service.edit("small", TEXT, " \n "), "there is no edited text"),
        (lambda service: service.without_words("small", "ship"), "the text has one word"),
    ],
)
def test_texts_are_refused_before_they_are_measured(service, monkeypatch, question, message):
    monkeypatch.setattr(space, "measure", lambda *_, **__: pytest.fail("it was measured"))
    with pytest.raises(AttnfaithError, match=message):
        question(service)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("1 2", "2 weights for 3 tokens"),
        ("1 2 __import__('os')", "numbers"),
        ("1 2 -1", "0 or more"),
        ("0 0 0", "one of them is above 0"),
        ("1e308 1e308 1e308", "finite"),
    ],
)
def test_weights_are_divided_by_their_sum_or_refused(typed, message):
    assert typed_weights("1 2, 5", 3).tolist() == [1 / 8, 2 / 8, 5 / 8]
    with pytest.raises(AttnfaithError, match=message):
        typed_weights(typed, 3)


def test_under_an_affine_read_out_predictions_mix_those_of_the_tokens(service):
    """Logits are sums of weights times what a token adds: those under mixed weights follow from one token at a time."""

    def odds(weights):
        predictions = service.under("small", TEXT, weights)
        return predictions, np.log(predictions.probs[:, 1] / predictions.probs[:, 0])

    alone = np.array([odds(" ".join("1" if place == token else "0" for place in range(4)))[1][-1] for token in range(4)])
    predictions, mixed = odds("1 2 3 4")
    table = attnfaith.measure(service.model("small"), [TEXT], measures=[], progress=False).table
    weights = np.array(table.column("attention")[0].as_py())
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
        expected = toy.intervene(batch, torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]])).softmax(-1)[0].numpy()
    assert names[0] == space.OWN and names[-1] == space.TYPED and len(names) == len(probs) == 4
    assert probs[0] == pytest.approx(toy.predict(batch).softmax(-1)[0].detach().numpy(), abs=1e-6)
    assert probs[-1] == pytest.approx(expected, abs=1e-6), "markers stand around the three tokens"


def test_edited_texts_are_predicted_beside_the_text(service):
    predictions = service.edit("small", TEXT, "the old film sank\n\n the  good film \nthe \ud800")
    assert predictions.names == ["the text", "the old film sank", "the good film", "the ?"]  # of half a letter
    for text, probs in zip([TEXT, *predictions.names[1:]], predictions.probs, strict=True):
        table = attnfaith.measure(service.model("small"), [text], measures=[], progress=False).table
        assert probs == pytest.approx(np.array(table.column("probs")[0].as_py()), abs=1e-6)
    predictions = service.without_words("small", TEXT)
    assert {int(name[-2]) for name in predictions.names[1:]} == {1, 2, 3, 4} and (np.diff(predictions.tvd[1:]) <= 0).all()
    (sank,) = (place for place, name in enumerate(predictions.names) if "sank" in name)
    assert predictions.probs[sank] == pytest.approx(service.edit("small", TEXT, "the old ship").probs[1], abs=1e-6)


@pytest.mark.slow
def test_the_record_is_kept_and_its_page_stands_in_a_frame(service, folder, monkeypatch):
    record = service.record("small", f"  {TEXT} ")
    assert record == attnfaith.measure(folder, [TEXT], name="typed", split="text", progress=False)
    monkeypatch.setattr(space, "measure", lambda *_, **__: pytest.fail("it was measured anew"))
    assert service.record("small", TEXT) is record
    page = report(record)
    assert page.lower().startswith("<!doctype html>") and "Content-Security-Policy" in page
    frame = framed(page)
    assert frame.count("<") == 2 and 'sandbox="allow-scripts"' in frame and "allow-same-origin" not in frame
    (source,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(source) == page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is neither a run, nor the folder of a model"),
        (["--only"], "no model is offered and none may be named"),
        (["--port", "70000"], "--port 70000: give a number from 1 to 65535"),
    ],
)
def test_the_command_refuses_what_it_cannot_serve(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(space, "require_gradio", lambda: None)
    monkeypatch.setattr(space, "serve", lambda *_, **__: pytest.fail("served"))
    assert cli.main(["space", *arguments]) == 2 and message in capsys.readouterr().err
