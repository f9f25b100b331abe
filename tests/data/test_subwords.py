"""Hugging Face tokenizers taken over: what is read and shown, words, gold evidence, and loading without our code."""

import datasets
import hypothesis
import hypothesis.strategies as st
import pytest
from transformers import AutoTokenizer, ByT5Tokenizer

from attnfaith.data.subwords import adopt_tokenizer, encode_for_classifier, read_tokens, spread, tokenizer_facts
from attnfaith.data.tokenization import encode, split_words
from attnfaith.record import CONTINUES, REPEATS, words_of
from attnfaith.support.errors import DatasetError
from tests.small_classifiers import tokenizer as small_tokenizer
from tests.subword_tokenizers import KINDS, TEXTS, train


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return train(kind, tmp_path_factory.mktemp(kind))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return adopt_tokenizer(str(folder))


def rows(texts, **columns):
    ids = [str(row) for row in range(len(texts))]
    return datasets.Dataset.from_dict({"instance_id": ids, "text": list(texts), **columns})


def whole(texts, tokenizer, **options):
    return encode(rows(texts), tokenizer, **options).to_list()


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


def test_a_text_stands_between_begin_and_end(tokenizer):
    empty, blank = whole(["", " \n"], tokenizer)
    assert empty["input_ids"] == [tokenizer.bos_token_id, tokenizer.eos_token_id] and empty["tokens"] == joined(blank) == []
    for row in whole(TEXTS, tokenizer):
        assert row["input_ids"][0] == tokenizer.bos_token_id and row["input_ids"][-1] == tokenizer.eos_token_id
        assert row["length"] == len(row["input_ids"]) == len(row["tokens"]) + 2
        assert not {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} & set(row["input_ids"][1:-1])
        assert not row["truncated"]


@pytest.mark.parametrize("text", ["<s> a </s> <pad> [SEP][CLS] [PAD] <unk>", "<|endoftext|>", "<S></S>", "a<s>b</s>c"])
def test_a_text_that_spells_a_marker_is_text(tokenizer, text):
    (row,) = whole([text], tokenizer)
    assert not {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} & set(row["input_ids"][1:-1])
    assert "".join(joined(row)) == text.replace(" ", "")


def test_words_are_those_between_blanks_at_least(tokenizer):
    """No letter of a text is lost or comes twice, and no word reaches over a blank."""
    for text, row in zip(TEXTS, whole(TEXTS, tokenizer), strict=True):
        words = joined(row)
        assert "".join(words) == "".join(text.split())
        assert row["word_of_token"] == sorted(row["word_of_token"])
        for token in row["tokens"]:
            assert token == token.strip() or token == " "
            assert not set(token) & set("Ġ▁\ufffd")


def test_a_text_is_cut_as_the_library_cuts_it(folder):
    tokenizer = adopt_tokenizer(str(folder), max_length=7)
    encoded = whole(TEXTS, tokenizer)
    assert [row["input_ids"] for row in encoded] == tokenizer(TEXTS, truncation=True)["input_ids"]
    uncut = whole(TEXTS, adopt_tokenizer(str(folder)))
    for row, full in zip(encoded, uncut, strict=True):
        assert row["tokens"] == full["tokens"][:5] and row["word_of_token"] == full["word_of_token"][:5]
        assert row["truncated"] == (len(full["tokens"]) > 5)
    assert any(row["truncated"] for row in encoded)


def test_pairs(folder):
    tokenizer = adopt_tokenizer(str(folder), max_length=24, pair=True)
    split = rows(TEXTS, text_pair=["gut oder nicht"] * len(TEXTS), label=[1] * len(TEXTS))
    encoded = encode(split, tokenizer).to_list()
    expected = tokenizer(TEXTS, ["gut oder nicht"] * len(TEXTS), truncation="only_first")
    assert [row["input_ids"] for row in encoded] == expected["input_ids"]
    assert [row["token_type_ids"] for row in encoded] == expected["token_type_ids"]
    for row in encoded:
        first = [i for i, kind in zip(row["input_ids"], row["token_type_ids"], strict=True) if not kind]
        assert len(row["tokens"]) == len(first) - 2 and row["labels"] == 1
        assert "".join(token.removeprefix(CONTINUES) for token in row["query_tokens"]).replace(" ", "") == "gutodernicht"
    with pytest.raises(DatasetError, match="max_length=6 leaves no room for the text of row 0"):
        encode(split, tokenizer, max_length=6)


def test_saved_and_loaded_without_our_code(folder, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    assert whole(TEXTS, loaded) == whole(TEXTS, tokenizer)
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
        ("", {}, "data.tokenizer='' cannot be loaded"),
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
    words = split_words([text], "default")[0]
    marks = [int(word in ("unglaublich", "qqq", "n't")) for word in words]
    assert sum(marks) == 3
    split = rows([text], rationale=[marks], label=[0])
    (row,) = encode(split, tokenizer, preprocessing="default").to_list()
    spans = [(text.index(part), text.index(part) + len(part)) for part in ("n't", "unglaublich", "3.50")]
    encoding = tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]
    expected = [int(any(a < stop and start < b for a, b in spans)) for start, stop in encoding]
    assert row["rationale"] == expected and 0 < sum(expected) < len(expected)
    with pytest.raises(DatasetError, match="Row 0 has 2 rationale values for 3 words under preprocessing 'default'"):
        encode(rows(["a b c"], rationale=[[0, 1]]), tokenizer)


spans_of = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@hypothesis.given(spans_of, spans_of, st.data())
def test_spread_by_brute_force(words, tokens, data):
    def as_spans(lengths):
        ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
        return [(end - length, end) for end, length in zip(ends, lengths, strict=True)]

    words, tokens = as_spans(words), as_spans(tokens)
    marks = data.draw(st.lists(st.integers(0, 1), min_size=len(words), max_size=len(words)))
    marked = {place for (start, stop), mark in zip(words, marks, strict=True) if mark for place in range(start, stop)}
    assert spread(marks, words, tokens) == [int(bool(marked & set(range(*span)))) for span in tokens]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return adopt_tokenizer(str(train("byte_level", tmp_path_factory.mktemp("bytes"))))


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(text=st.text("aé电ไ่😀\u0301 \n<s>/#", max_size=12))
def test_no_text_loses_or_doubles_a_letter(text, byte_level):
    tokenizer = byte_level
    (row,) = whole([text], tokenizer)
    assert "".join(joined(row)) == "".join(text.split())
    assert row["length"] == len(row["tokens"]) + 2


def test_read_tokens_by_hand():
    """A blank of its own begins a word; a piece of a character that was shown shows it again, and no word has it twice."""
    tokens, words = read_tokens(
        "ab 😀c", ["a", "b", "▁", "x", "y", "c"], [(0, 1), (1, 2), (2, 3), (3, 4), (3, 4), (4, 5)], [0] * 6
    )
    assert tokens == ["a", "##b", " ", "##😀", "##⋯😀", "##c"] and words == [0, 0, 1, 1, 1, 1]
    assert words_of(tokens, words)[0] == ["ab", "😀c"]
    spans = [(0, 1), (1, 2), (2, 3), (2, 3), (2, 3)]
    assert read_tokens("e\u0301😀", ["e", "x", "y", "z", "z"], spans, [0, 1, 2, 2, 2])[0] == [
        *("e\u0301", "##⋯e\u0301", "😀", "##⋯😀", "##⋯😀"),
    ]


# ------------------------------------------------------------------------------------------------ any classifier


def for_classifier(texts, of=None, max_length=None, rest=None, labels=None):
    of = of or small_tokenizer()
    columns = {"instance_id": [f"t{row}" for row in range(len(texts))], "text": texts}
    columns |= {} if rest is None else {"text_pair": rest}
    columns |= {} if labels is None else {"label": labels}
    return encode_for_classifier(datasets.Dataset.from_dict(columns), of, max_length=max_length)


def test_ids_are_the_tokenizers_and_tokens_are_the_texts():
    texts = ["the old ship sank", "a sinking Film!", "", "   ", "ships sailed"]
    rows, of = for_classifier(texts, labels=[0, 1, 0, 1, 0]), small_tokenizer()
    assert rows["input_ids"][:] == of(texts)["input_ids"] and rows["labels"][:] == [0, 1, 0, 1, 0]
    assert rows["token_type_ids"][:] == of(texts)["token_type_ids"]
    assert rows["tokens"][0] == ["the", "old", "ship", "sank"] and rows["tokens"][1] == ["a", "sinking", "Film", "!"]
    assert rows["tokens"][2] == rows["tokens"][3] == []
    assert [len(row) for row in rows["tokens"]] == [len(row) - 2 for row in rows["input_ids"]]
    assert rows["length"][:] == [len(row) for row in rows["input_ids"]] and not any(rows["truncated"])


def test_of_a_pair_tokens_of_the_second_stand_behind_those_of_the_first():
    (row,) = for_classifier(["the ships"], rest=["a film !"]).to_list()
    assert row["tokens"] == ["the", "ship", "##s", "a", "film", "!"]
    assert row["text_of_token"] == [0, 0, 0, 1, 1, 1] and row["word_of_token"] == [0, 1, 1, 2, 3, 4]
    (empty,) = for_classifier([""], rest=["film"]).to_list()
    assert empty["tokens"] == ["film"] and empty["text_of_token"] == [1] and empty["word_of_token"] == [0]


def test_markers_are_where_the_tokenizer_puts_them_whatever_the_text_spells():
    (row,) = for_classifier(["the [SEP] ship [MASK] [PAD] zzz"]).to_list()
    assert row["tokens"] == ["the", "[SEP]", "ship", "[MASK]", "[PAD]", "zzz"] and row["length"] == 8
    assert row["special_tokens_mask"] == [1, 0, 0, 0, 0, 0, 0, 1]
    (row,) = for_classifier(["the"], rest=["ship"]).to_list()
    assert row["special_tokens_mask"] == [1, 0, 1, 0, 1]
