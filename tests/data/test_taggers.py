"""Taggers by their names: those of other packages, one that this package knows how to ask, and what is refused."""

import sys
from types import ModuleType

import pytest

from attnfaith.data.taggers import UNIVERSAL, is_punctuation, tagger_of
from attnfaith.support.errors import DatasetError
from tests.taggers import BY_LETTER, offer


@pytest.fixture(autouse=True)
def _asked_anew():
    tagger_of.cache_clear()
    yield
    tagger_of.cache_clear()


def test_a_tagger_of_another_package(tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, "by_letter", BY_LETTER)
    tag = tagger_of("by_letter")
    assert tag(["the", "ship", "sank", "!"]) == ["DET", "NOUN", "NOUN", "PUNCT"]
    assert tag([]) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def tags(words): return ['NOUN']", "the tagger 'wrong' has 1 tag for 2 words; each needs one"),
        ("def tags(words): return ['NN', 'NN']", "has the tag 'NN'; tags are those of"),
        ("def tags(words): return [None, None]", "has the tag None; tags are"),
    ],
)
def test_what_a_tagger_must_say(source, message, tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, "wrong", source)
    with pytest.raises(DatasetError, match=message):
        tagger_of("wrong")(["a", "ship"])


def test_taggers_that_there_are_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "denckring_en_pos", None)
    for name, message in (
        ("nltk", "no tagger is called 'nltk'; .*denckring"),
        ("denckring", "pip install 'attnfaith"),
    ):
        with pytest.raises(DatasetError, match=message):
            tagger_of(name)


def test_denckring_is_asked_without_punctuation(monkeypatch):
    """It was trained so; and of its labels the form of the verb is left out."""
    questions = []

    class Model:
        def tag(self, words):
            questions.append(words)
            return ["VERB|Fin" if word.endswith("ed") else "NOUN|-" for word in words]

    module = ModuleType("denckring_en_pos")
    module.tagger = Model
    monkeypatch.setitem(sys.modules, "denckring_en_pos", module)
    tag = tagger_of("denckring")
    assert tag(["...", "ships", ",", "sailed", "!?"]) == ["PUNCT", "NOUN", "PUNCT", "VERB", "PUNCT"]
    assert questions == [["ships", "sailed"]]


def test_punctuation():
    for word in ("!", "...", "’", "--", "! ?", "。", "¿"):
        assert is_punctuation(word), word
    for word in ("", " ", "a", "don't", "$", "+", "1", "a .", "<unk>"):
        assert not is_punctuation(word), word
    assert len(set(UNIVERSAL)) == 17
