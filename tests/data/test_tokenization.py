"""Tokenizers: hand-worked splits and ids, saved and loaded without our code, and the encoding of a split."""

import string

import hypothesis
import hypothesis.strategies as st
import pytest
from transformers import AutoTokenizer

from attnfaith.data.tokenization import PREPROCESSING, build_tokenizer, encode, lacks_blanks, normalizer_of, split_words
from attnfaith.support.errors import DatasetError
from tests.splits import rows


WORDS = "do n't panic , it 's 3.50 ( not $ 1,000 ) : we 'll - lrb - see - rrb - mp3s . . . ' stay ' a _ b café"
RAW = "Don't PANIC, it's 3.50 (not $1,000): we'll -LRB- see -RRB- MP3s...  'Stay' a_b\tCafé"


def words_of(tokenizer, text):
    return split_words([text], tokenizer.backend_tokenizer.normalizer)[0]


@pytest.mark.parametrize(
    ("preprocessing", "text", "expected"),
    [
        ("default", RAW, WORDS.replace("3.50", "qqq").replace("1,000", "qqq").replace("mp3s", "qqq")),
        ("characters", RAW, WORDS),
        ("words", RAW, WORDS),
        ("imdb", RAW, "don't panic it's 3 50 not 1 000 we'll lrb see rrb mp3s 'stay' a b café"),
        ("sst", RAW, "don t panic it s 3 50 not 1 000 we ll see mp3s stay a_b café"),
        ("whitespace", RAW, "don't panic, it's 3.50 (not $1,000): we'll -lrb- see -rrb- mp3s... 'stay' a_b café"),
        ("default", "can't won't isn't", "ca n't wo n't is n't"),
        ("default", "'s n't 'tis rock'n'roll", "'s n't ' tis rock ' n ' roll"),
        ("default", "12-13 10:30 3,000.5 b2b 1st", "qqq - qqq qqq qqq qqq qqq"),
        ("default", "wait...what?!", "wait . . . what ? !"),
        ("default", "e\u0301te\u0301", "été"),  # composed, so that one word is one id
        ("words", "8/10, not 7.5/10.", "8/10 , not 7.5/10 ."),
        ("words", "1,000.5 at 10:30: 12-13", "1,000.5 at 10:30 : 12 - 13"),
        ("words", ".5 5. a.5 5.b 3..4", ". 5 5 . a . 5 5 . b 3 . . 4"),
        ("characters", "2023年BERT很好看。", "2023 年 bert 很 好 看 。"),
        ("characters", "か\u3099くせい コーヒー", "が く せ い コ ー ヒ ー"),
        ("characters", "ខ្មែរ", "ខ្មែ រ"),  # a letter that hangs below another stays with it
        ("characters", "it's 電影, don't", "it 's 電 影 , do n't"),
    ],
)
def test_split_by_hand(preprocessing, text, expected):
    assert split_words([text, "", " \t\n"], normalizer_of(preprocessing)) == [expected.split(), [], []]


# Letters whose lower case both libraries agree on; the dotted capital I, for one, differs.
plain_text = st.text(string.ascii_letters + string.digits + string.punctuation + " \t\néÉß", max_size=60)


@hypothesis.given(plain_text, st.sampled_from(sorted(PREPROCESSING)))
def test_words_are_stable_under_a_second_split(text, preprocessing):
    """Text that is split already keeps its words, so a rationale over them stays aligned."""
    split = split_words([text], normalizer_of(preprocessing))[0]
    assert split_words([" ".join(split)], normalizer_of(preprocessing))[0] == split


TEXTS = ["the cat saw the dog", "the dog ran", "a dog", ""]


def test_ids_are_alphabetical_after_the_special_ones():
    tokenizer = build_tokenizer(TEXTS, preprocessing="whitespace")
    assert tokenizer.get_vocab() == {
        "<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "a": 4, "cat": 5, "dog": 6, "ran": 7, "saw": 8, "the": 9,
    }  # fmt: skip
    assert tokenizer("The dog ate")["input_ids"] == [2, 9, 6, 1, 3]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.padding_side) == (0, 1, "right")
    assert tokenizer(["the dog", "a"], padding=True)["attention_mask"] == [[1, 1, 1, 1], [1, 1, 1, 0]]


@pytest.mark.parametrize("preprocessing", sorted(PREPROCESSING))
def test_saved_tokenizer_is_the_same_without_our_code(tmp_path, preprocessing):
    """And a text cannot forge markers."""
    forged = "<s> good </s> <pad> <unk> good"
    tokenizer = build_tokenizer([RAW, forged], preprocessing=preprocessing, max_length=12)
    ids = tokenizer(forged)["input_ids"]
    assert ids[0] == 2 and ids[-1] == 3 and not {0, 2, 3} & set(ids[1:-1])
    assert len(ids) == len(words_of(tokenizer, forged)) + 2
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in (RAW, forged, "", "nothing known 99"):
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert words_of(loaded, text) == words_of(tokenizer, text) == split_words([text], normalizer_of(preprocessing))[0]
    assert loaded.model_max_length == 12 and loaded.get_vocab() == tokenizer.get_vocab()
    assert not list(tmp_path.glob("*.py"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preprocessing": "spacy"}, "'spacy'. Known: characters, default, imdb, sst, whitespace"),
        ({"max_length": 2}, "max_length=2 must be at least 3"),
        ({"hierarchy": "word"}, "'word'. Known: none, sentence"),
    ],
)
def test_arguments_that_are_refused(arguments, message):
    with pytest.raises(DatasetError, match=message):
        build_tokenizer(TEXTS, **{"preprocessing": "whitespace", **arguments})


def test_encode_by_hand():
    """Empty text, only unknown words, a single word, too long a text."""
    tokenizer = build_tokenizer(TEXTS, preprocessing="whitespace", max_length=5)
    split = rows(
        ["", "Quick Fox", "dog", "the dog saw a cat"],
        label=[0, 1, 1, 0],
        rationale=[[], [0, 0], [1], [0, 1, 0, 1, 1]],
    )
    encoded = encode(split, tokenizer)
    assert encoded["instance_id"][:] == [f"set/train/{row}" for row in range(4)]
    assert encoded["input_ids"][:] == [[2, 3], [2, 1, 1, 3], [2, 6, 3], [2, 9, 6, 8, 3]]
    assert encoded["labels"][:] == [0, 1, 1, 0]
    assert encoded["tokens"][:] == [[], ["quick", "fox"], ["dog"], ["the", "dog", "saw"]]
    assert encoded["length"][:] == [2, 4, 3, 5]
    assert encoded["truncated"][:] == [False, False, False, True]
    assert encoded["n_unknown"][:] == [0, 2, 0, 0]
    assert encoded["rationale"][:] == [[], [0, 0], [1], [0, 1, 0]]
    assert "token_type_ids" not in encoded.column_names


def test_encode_pairs_cuts_the_text_only():
    tokenizer = build_tokenizer([*TEXTS, "where is the dog"], preprocessing="whitespace", pair=True)
    questions = ["where is", "where", "yy xx ww"]
    split = rows(["the dog ran", "", "dog zz"], text_pair=questions, rationale=[[0, 0, 1], [], [1, 0]])
    whole = encode(split, tokenizer)
    assert whole["length"][:] == [9, 5, 9] and whole["token_type_ids"][0] == [0] * 5 + [1] * 4
    cut = encode(split, tokenizer, max_length=8)
    assert cut["tokens"][:] == [["the", "dog"], [], ["dog"]]
    assert cut["truncated"][:] == [True, False, True] and cut["length"][:] == [8, 5, 8]
    assert cut["rationale"][:] == [[0, 0], [], [1]]
    assert cut["n_unknown"][:] == [0, 0, 0]  # of the words that can be attended to; the question has three
    with pytest.raises(DatasetError, match="max_length=7 leaves no room for the text of 'set/train/2'"):
        encode(split, tokenizer, max_length=7)


@hypothesis.settings(max_examples=30)
@hypothesis.given(st.lists(plain_text, min_size=1, max_size=6), st.integers(3, 12), st.sampled_from(sorted(PREPROCESSING)))
def test_encode_agrees_with_the_tokenizer(texts, max_length, preprocessing):
    tokenizer = build_tokenizer(texts[::2], preprocessing=preprocessing)
    vocabulary, encoded = tokenizer.get_vocab(), encode(rows(texts), tokenizer, max_length=max_length)
    for text, row in zip(texts, encoded, strict=True):
        assert row["input_ids"] == tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        assert row["length"] == len(row["input_ids"]) == len(row["tokens"]) + 2 <= max_length
        assert row["truncated"] == (len(words_of(tokenizer, text)) > len(row["tokens"]))
        assert row["input_ids"][1:-1] == [vocabulary.get(word, 1) for word in row["tokens"]]
        assert row["n_unknown"] == sum(word not in vocabulary or word == "<unk>" for word in row["tokens"])


UNSPACED = [
    "这部电影非常好看，演员也很棒。",
    "ภาพยนตร์เรื่องนี้ดีมากและนักแสดงก็เก่ง",
    "ဒီရုပ်ရှင်ကအရမ်းကောင်းတယ်သရုပ်ဆောင်တွေလည်းတော်တယ်",
]
SPACED = ["这 部 电影 非常 好看 ， 演员 也 很 棒 。", "ภาพยนตร์ เรื่อง นี้ ดี มาก และ นักแสดง ก็ เก่ง", "很好看，喜欢"]
WITHOUT_SUCH_LETTERS = [
    "Donaudampfschifffahrtsgesellschaftskapitän",
    "이 영화는 정말 재미있었어요",  # Korean has blanks
    "the film 霸王别姬再见我的妾 by Chen Kaige is the best of them",
]


def test_texts_without_blanks_are_refused_and_read_letter_by_letter():
    for texts, expected in ((UNSPACED, True), (SPACED, False), (WITHOUT_SUCH_LETTERS, None)):
        assert list(map(lacks_blanks, texts, split_words(texts, normalizer_of("words")))) == [expected] * len(texts)
    for text in UNSPACED:
        texts = [text, "a good film", text + "!"]
        with pytest.raises(DatasetError, match="2 of 2 .*--data.preprocessing characters.*--model.pretrained") as refusal:
            encode(rows(texts), build_tokenizer(texts, preprocessing="words"))
        assert text[:8] in str(refusal.value)
        (row,) = encode(rows([text]), build_tokenizer([text], preprocessing="characters"))
        assert len(row["tokens"]) > 10 and "".join(row["tokens"]) == text and row["n_unknown"] == 0
