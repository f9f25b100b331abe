"""Hugging Face tokenizers taken over: what is read and shown, words, gold evidence, and loading without our code."""

import hypothesis
import hypothesis.strategies as st
import pytest
from transformers import AutoTokenizer, ByT5Tokenizer

from attnfaith.data.subwords import adopt_tokenizer, encode_for_classifier, read_tokens, spread, tokenizer_facts
from attnfaith.data.tokenization import encode, split_words
from attnfaith.record import CONTINUES, REPEATS, words_of
from attnfaith.support.errors import DatasetError
from tests.small_classifiers import tokenizer as small_tokenizer
from tests.splits import rows
from tests.subword_tokenizers import KINDS, TEXTS, train


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    return train(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return adopt_tokenizer(str(folder))


def encoded_rows(texts, tokenizer):
    return encode(rows(texts), tokenizer).to_list()


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


SPELLED = ["<s> a </s> <pad> [SEP][CLS] [PAD] <unk>", "<|endoftext|>", "<S></S>", "a<s>b</s>c"]


def test_a_text_stands_between_begin_and_end(tokenizer):
    """No letter is lost or comes twice, no word reaches over a blank, and a text that spells a marker is text."""
    empty, blank = encoded_rows(["", " \n"], tokenizer)
    assert empty["input_ids"] == [tokenizer.bos_token_id, tokenizer.eos_token_id] and empty["tokens"] == joined(blank) == []
    for text, row in zip(TEXTS + SPELLED, encoded_rows(TEXTS + SPELLED, tokenizer), strict=True):
        assert row["input_ids"][0] == tokenizer.bos_token_id and row["input_ids"][-1] == tokenizer.eos_token_id
        assert row["length"] == len(row["input_ids"]) == len(row["tokens"]) + 2 and not row["truncated"]
        assert not {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} & set(row["input_ids"][1:-1])
        assert "".join(joined(row)) == "".join(text.split()) and row["word_of_token"] == sorted(row["word_of_token"])
        for token in row["tokens"]:
            assert (token == token.strip() or token == " ") and not set(token) & set("Ġ▁\ufffd")


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=60)
@hypothesis.given(text=st.text("aé电ไ่😀\u0301 \n<s>/#", max_size=12))
def test_no_text_loses_or_doubles_a_letter(text, byte_level):
    (row,) = encoded_rows([text], byte_level)
    assert "".join(joined(row)) == "".join(text.split())
    assert row["length"] == len(row["tokens"]) + 2


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return adopt_tokenizer(str(train("byte_level", tmp_path_factory.mktemp("bytes"))))


def test_texts_and_pairs_are_cut_as_the_library_cuts_them(folder):
    tokenizer = adopt_tokenizer(str(folder), max_length=7)
    encoded = encoded_rows(TEXTS, tokenizer)
    assert [row["input_ids"] for row in encoded] == tokenizer(TEXTS, truncation=True)["input_ids"]
    for row, full in zip(encoded, encoded_rows(TEXTS, adopt_tokenizer(str(folder))), strict=True):
        assert row["tokens"] == full["tokens"][:5] and row["word_of_token"] == full["word_of_token"][:5]
        assert row["truncated"] == (len(full["tokens"]) > 5)
    tokenizer, question = adopt_tokenizer(str(folder), max_length=24, pair=True), "gut oder nicht"
    split = rows(TEXTS, text_pair=[question] * len(TEXTS), label=[1] * len(TEXTS))
    encoded = encode(split, tokenizer).to_list()
    expected = tokenizer(TEXTS, [question] * len(TEXTS), truncation="only_first")
    for column in ("input_ids", "token_type_ids"):
        assert [row[column] for row in encoded] == expected[column]
    for row in encoded:
        assert len(row["tokens"]) == row["token_type_ids"].count(0) - 2 and row["labels"] == 1
        assert "".join(token.removeprefix(CONTINUES) for token in row["query_tokens"]).replace(" ", "") == "gutodernicht"
    with pytest.raises(DatasetError, match="max_length=6 leaves no room for the text of row 0"):
        encode(split, tokenizer, max_length=6)


def test_saved_and_loaded_without_our_code(folder, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    assert encoded_rows(TEXTS, loaded) == encoded_rows(TEXTS, tokenizer)
    assert tokenizer_facts(loaded, str(tmp_path))["digest"] == tokenizer_facts(tokenizer, str(folder))["digest"]
    assert loaded.special_tokens_map == tokenizer.special_tokens_map


def test_padding_is_never_another_token(tmp_path):
    """GPT-2's way: one token is begin, end, unknown and, as many set it, padding."""
    folder = train("byte_level", tmp_path, special=("<|endoftext|>",), roles=("bos", "eos", "unk", "pad"))
    tokenizer = adopt_tokenizer(str(folder))
    assert tokenizer.bos_token == tokenizer.eos_token == "<|endoftext|>"
    assert (tokenizer.pad_token, tokenizer.unk_token) == ("<pad>", "<unk>")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no/such-tokenizer", {}, "data.tokenizer='no/such-tokenizer' cannot be loaded"),
        ("in python", {}, "is a ByT5Tokenizer, .* with a tokenizer.json"),
        ("of ours", {"max_length": 4, "pair": True}, "max_length=4 leaves no room for a token beside 4 markers"),
    ],
)
def test_tokenizers_that_cannot_be_taken_over(tmp_path, name, options, message):
    if name in ("in python", "of ours"):
        ByT5Tokenizer().save_pretrained(tmp_path / "in python")
        train("wordpiece", tmp_path / "of ours")
        name = str(tmp_path / name)
    with pytest.raises(DatasetError, match=message):
        adopt_tokenizer(name, **options)


def test_evidence_goes_to_the_tokens_of_its_words(tokenizer):
    text = "It isn't unglaublich, 3.50 is good!"
    marks = [int(word in ("unglaublich", "qqq", "n't")) for word in split_words([text], "default")[0]]
    (row,) = encode(rows([text], rationale=[marks], label=[0]), tokenizer, preprocessing="default").to_list()
    spans = [(text.index(part), text.index(part) + len(part)) for part in ("n't", "unglaublich", "3.50")]
    encoding = tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]
    expected = [int(any(a < stop and start < b for a, b in spans)) for start, stop in encoding]
    assert row["rationale"] == expected and 0 < sum(expected) < len(expected)
    with pytest.raises(DatasetError, match="Row 0 has 2 rationale values for 3 words under preprocessing 'default'"):
        encode(rows(["a b c"], rationale=[[0, 1]]), tokenizer)


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
