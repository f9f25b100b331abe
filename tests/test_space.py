"""The Space: predictions of edited texts, records and their page, refusals, and its command; without gradio."""

import re
import sys
from html import unescape

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith import cli, space
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.space import Service, framed
from attnfaith.support.errors import AttnfaithError


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


@pytest.mark.parametrize("name", [None, "/etc/passwd", HOSTILE, "owner/model"])
def test_a_model_that_is_not_offered(folder, service, name):
    assert service.model("small") == str(folder)
    with pytest.raises(AttnfaithError, match="small"):
        service.model(name)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda service: service.record("small", " \n"), "no text"),
        (lambda service: service.record("small", "a" * 2001), "2,001 letters"),
        (lambda service: service.record("small", "the " * 300), "300 tokens .* 256"),
        (lambda service: service.edit("small", TEXT, "the\n" * 65), "65 edited texts.* 64"),
        (lambda service: service.edit("small", TEXT, " \n "), "0 edited texts"),
    ],
)
def test_texts_are_refused_before_they_are_measured(service, monkeypatch, question, message):
    monkeypatch.setattr(space, "measure", lambda *_, **__: pytest.fail("it was measured"))
    with pytest.raises(AttnfaithError, match=message):
        question(service)


def test_edited_texts_are_predicted_beside_the_text(service):
    table = service.edit("small", TEXT, "the old film sank\n\n the  good film \nthe \ud800")
    assert table["text"].tolist() == [TEXT, "the old film sank", "the good film", "the ?"]  # of half a letter
    classes = ["0 <b>bad</b>", "1 good"]
    for text, probs in zip(table["text"], table[classes].to_numpy(), strict=True):
        alone = attnfaith.measure(service.model("small"), [text], measures=[], progress=False).table
        assert probs == pytest.approx(np.array(alone.column("probs")[0].as_py()), abs=6e-4)
    assert table["TVD"].tolist() == pytest.approx(np.abs(table[classes[0]] - table[classes[0]][0]).tolist(), abs=2e-3)
    flips = table[classes].to_numpy().argmax(1) != table[classes].to_numpy()[0].argmax()
    assert table["decision"].str.endswith("(flips)").tolist() == flips.tolist()


@pytest.mark.slow
def test_the_record_is_kept_and_its_page_stands_in_a_frame(service, folder, monkeypatch):
    record = service.record("small", f"  {TEXT} ")
    assert record == attnfaith.measure(folder, [TEXT], name="typed", split="text", progress=False)
    monkeypatch.setattr(space, "measure", lambda *_, **__: pytest.fail("it was measured anew"))
    assert service.record("small", TEXT) is record
    frame = framed(record)
    assert frame.count("<") == 2 and 'sandbox="allow-scripts"' in frame and "allow-same-origin" not in frame
    (page,) = map(unescape, re.findall(r'srcdoc="([^"]*)"', frame))
    assert page.lower().startswith("<!doctype html>") and "Content-Security-Policy" in page


def test_the_command_refuses_what_it_cannot_serve(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(space, "serve", lambda *_, **__: pytest.fail("served"))
    assert cli.main(["space", "nowhere"]) == 2 and "'nowhere'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(AttnfaithError, match=r"pip install 'attnfaith\[space\]'"):
        space.build(Service(["nowhere"]))
