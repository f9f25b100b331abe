"""Hugging Face tokenizers: what is read and shown, and words."""

import hypothesis
import hypothesis.strategies as st
import pytest
from transformers import AutoTokenizer

from attnfaith.data.subwords import CONTINUES, REPEATS, encode_for_classifier, read_tokens, tokenizer_digest, words_of
from attnfaith.data.tokenization import spread
from tests.small_classifiers import tokenizer as small_tokenizer
from tests.splits import rows
from tests.subword_tokenizers import KINDS, TEXTS, train


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    return train(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def encoded_rows(texts, tokenizer, max_length=None):
    return encode_for_classifier(rows(texts), tokenizer, max_length=max_length).to_list()


def joined(row):
    """The words of an encoded row, put together again."""
    words = []
    for token, word in zip(row["tokens"], row["word_of_token"], strict=True):
        if word == len(words):
            words.append(token)
        else:
            assert word == len(words) - 1 and token.startswith(CONTINUES) and token != CONTINUES
            words[-1] += "" if token.startswith(REPEATS) else token.removeprefix(CONTINUES)
    assert words_of(row["tokens"], row["word_of_token"])[0] == [word.strip() or " " for word in words]
    return [word.strip() for word in words if word.strip()]


def test_no_letter_is_lost_and_no_word_reaches_over_a_blank(tokenizer):
    for text, row in zip(TEXTS, encoded_rows(TEXTS, tokenizer), strict=True):
        assert row["length"] == len(row["input_ids"]) == len(row["tokens"]) + sum(row["special_tokens_mask"])
        assert "".join(joined(row)) == "".join(text.split()) and row["word_of_token"] == sorted(row["word_of_token"])
        for token in row["tokens"]:
            assert (token == token.strip() or token == " ") and not set(token) & set("Ġ▁\ufffd")


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=60)
@hypothesis.given(text=st.text("aé电ไ่😀\u0301 \n<s>/#", max_size=12))
def test_no_text_loses_or_doubles_a_letter(text, byte_level):
    (row,) = encoded_rows([text], byte_level)
    assert "".join(joined(row)) == "".join(text.split())


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return AutoTokenizer.from_pretrained(train("byte_level", tmp_path_factory.mktemp("bytes")))


def test_texts_and_pairs_are_cut_as_the_library_cuts_them(tokenizer):
    encoded, full = encoded_rows(TEXTS, tokenizer, 7), encoded_rows(TEXTS, tokenizer)
    assert [row["input_ids"] for row in encoded] == tokenizer(TEXTS, truncation=True, max_length=7)["input_ids"]
    for row, whole in zip(encoded, full, strict=True):
        count = len(row["tokens"])
        assert row["tokens"] == whole["tokens"][:count] and row["word_of_token"] == whole["word_of_token"][:count]
        assert row["truncated"] == (len(whole["tokens"]) > count)


def test_digests_tell_tokenizers_apart(tmp_path):
    folders = [train(kind, tmp_path / kind) for kind in KINDS[:2]]
    assert len({tokenizer_digest(AutoTokenizer.from_pretrained(folder)) for folder in folders}) == 2


lengths = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@hypothesis.given(lengths, lengths, st.data())
def test_spread_by_brute_force(words, tokens, data):
    def as_spans(lengths):
        ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
        return [(end - length, end) for end, length in zip(ends, lengths, strict=True)]

    words, tokens = as_spans(words), as_spans(tokens)
    marks = data.draw(st.lists(st.integers(0, 1), min_size=len(words), max_size=len(words)))
    marked = {place for (start, stop), mark in zip(words, marks, strict=True) if mark for place in range(start, stop)}
    assert spread(marks, words, tokens) == [int(bool(marked & set(range(*span)))) for span in tokens]


def test_read_tokens_by_hand():
    """A blank of its own begins a word; a piece of a character that was shown shows it again, and no word has it twice."""
    tokens, words = read_tokens(
        "ab 😀c", ["a", "b", "▁", "x", "y", "c"], [(0, 1), (1, 2), (2, 3), (3, 4), (3, 4), (4, 5)], [0] * 6
    )
    assert tokens == ["a", "##b", " ", "##😀", "##⋯😀", "##c"] and words == [0, 0, 1, 1, 1, 1]
    assert words_of(tokens, words)[0] == ["ab", "😀c"]
    tokens, words = read_tokens("e\u0301", ["e", "x", "y"], [(0, 1), (1, 2), (1, 2)], [0] * 3)
    assert tokens == ["e\u0301", "##⋯e\u0301", "##⋯e\u0301"] and words_of(tokens, words)[0] == ["e\u0301"]


def test_a_classifiers_own_tokenizer():
    """Ids and markers are the tokenizer's, whatever a text spells; tokens are the texts', of a pair both."""
    texts, reader = ["the old ship sank", "a sinking Film!", "   ", "the [SEP] ship [MASK] [PAD] zzz"], small_tokenizer()
    encoded = encode_for_classifier(rows(texts, label=[0, 1, 0, 1]), reader, max_length=None)
    assert encoded["input_ids"][:3] == reader(texts[:3])["input_ids"] and encoded["labels"][:] == [0, 1, 0, 1]
    assert encoded["tokens"][:3] == [["the", "old", "ship", "sank"], ["a", "sinking", "Film", "!"], []]
    assert encoded["tokens"][3] == ["the", "[SEP]", "ship", "[MASK]", "[PAD]", "zzz"]
    assert encoded["special_tokens_mask"][3] == [1, 0, 0, 0, 0, 0, 0, 1]
    pair, empty = encode_for_classifier(rows(["the ships", ""], text_pair=["a film !", "film"]), reader, max_length=None)
    assert pair["tokens"] == ["the", "ship", "##s", "a", "film", "!"]
    assert pair["text_of_token"] == [0, 0, 0, 1, 1, 1] and pair["word_of_token"] == [0, 1, 1, 2, 3, 4]
    assert pair["special_tokens_mask"] == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert empty["tokens"] == ["film"] and empty["text_of_token"] == [1] and empty["word_of_token"] == [0]
