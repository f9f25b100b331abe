"""Taggers by their names: those of other packages, the one that this package knows how to ask, and what is refused."""

import sys
from types import ModuleType

import pytest

from attnfaith.data.taggers import is_punctuation, tagger_of
from attnfaith.support.errors import DatasetError
from tests.taggers import BY_LETTER, offer


@pytest.fixture(autouse=True)
def _without_cache():
    tagger_of.cache_clear()
    yield
    tagger_of.cache_clear()


def test_a_tagger_of_another_package(tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, "by_letter", BY_LETTER)
    assert tagger_of("by_letter")(["the", "ship", "sank", "!"]) == ["DET", "NOUN", "NOUN", "PUNCT"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def tags(words): return ['NOUN']", "the tagger 'wrong' has 1 tag for 2 words; each needs one"),
        ("def tags(words): return [None, 'NN']", "has the tag None; tags are"),
        ("", "no tagger is called 'nltk'; .*denckring"),
    ],
)
def test_refusals(source, message, tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, "wrong", source)
    with pytest.raises(DatasetError, match=message):
        tagger_of("wrong" if source else "nltk")(["a", "ship"])


def test_denckring_is_asked_without_punctuation(monkeypatch):
    """It was trained so; and of its labels the form of the verb is left out."""
    monkeypatch.setitem(sys.modules, "denckring_en_pos", None)
    with pytest.raises(DatasetError, match="pip install 'attnfaith"):
        tagger_of("denckring")
    requests, module = [], ModuleType("denckring_en_pos")

    class Model:
        def tag(self, words):
            requests.append(words)
            return ["VERB|Fin" if word.endswith("ed") else "NOUN|-" for word in words]

    module.tagger = Model
    monkeypatch.setitem(sys.modules, "denckring_en_pos", module)
    tag = tagger_of("denckring")
    assert tag(["...", "ships", ",", "sailed", "!?"]) == ["PUNCT", "NOUN", "PUNCT", "VERB", "PUNCT"]
    assert requests == [["ships", "sailed"]]


def test_punctuation():
    assert all(map(is_punctuation, ("!", "...", "’", "--", "! ?", "。", "¿")))
    assert not any(map(is_punctuation, ("", " ", "a", "don't", "$", "1", "a .", "<unk>")))
