"""Texts without blanks between words: told apart, refused with what to do, and read letter by letter."""

import datasets
import pytest

from attnfaith.data.scripts import lacks_blanks
from attnfaith.data.tokenization import build_tokenizer, encode, split_words
from attnfaith.errors import DatasetError


UNSPACED = [
    "这部电影非常好看，演员也很棒。",
    "この映画はとても面白かったです。",
    "ภาพยนตร์เรื่องนี้ดีมากและนักแสดงก็เก่ง",
    "ຮູບເງົາເລື່ອງນີ້ດີຫຼາຍແລະນັກສະແດງກໍເກັ່ງ",
    "ភាពយន្តនេះល្អណាស់ហើយតារាសម្ដែងក៏ពូកែ",
    "ဒီရုပ်ရှင်ကအရမ်းကောင်းတယ်သရုပ်ဆောင်တွေလည်းတော်တယ်",
]
SPACED = [
    "这 部 电影 非常 好看 ， 演员 也 很 棒 。",
    "この 映画 は とても 面白かった です 。",
    "ภาพยนตร์ เรื่อง นี้ ดี มาก และ นักแสดง ก็ เก่ง",
    *("好", "电影", "很好看，喜欢", "ดีมาก"),
]
OTHERS = [
    *("", "!!! 12", "good", "#thebestmovieofalltimes", "Donaudampfschifffahrtsgesellschaftskapitän"),
    "이 영화는 정말 재미있었어요",  # Korean has blanks
    "هذا الفيلم رائع جدا",
    "the film 霸王别姬再见我的妾 by Chen Kaige is the best of them",
]


def encoded(texts, preprocessing="words"):
    split = datasets.Dataset.from_dict({"instance_id": list(map(str, range(len(texts)))), "text": texts})
    return encode(split, build_tokenizer(texts, preprocessing=preprocessing))


@pytest.mark.parametrize("preprocessing", ["default", "words"])
def test_texts_are_told_apart(preprocessing):
    for texts, expected in ((UNSPACED, True), (SPACED, False), (OTHERS, None)):
        split = split_words(texts, preprocessing)
        assert list(map(lacks_blanks, texts, split)) == [expected] * len(texts)


def test_letters_of_a_word_up_to_which_it_is_one():
    """By hand: four Chinese letters a word are words, five are not; a word without such letters does not count."""
    thai = "ก" * 12
    for text, expected in (
        ("电影好看 a", False),
        ("电影好看的 a", True),
        ("电影好看的 的", False),
        ("电a", None),  # no more than half
        (thai, False),
        (thai + "ก", True),
    ):
        assert lacks_blanks(text, text.split()) is expected


@pytest.mark.parametrize("text", UNSPACED)
def test_such_texts_are_refused_and_read_letter_by_letter(text):
    with pytest.raises(DatasetError, match="2 of 3.*--data.tokenizer.*--data.preprocessing characters") as refusal:
        encoded([text, "a good film", text + "!"])
    assert text[:8] in str(refusal.value)
    (row,) = encoded([text, text], "characters").select([0]).to_list()
    assert len(row["tokens"]) > 10 and "".join(row["tokens"]) == text and row["n_unknown"] == 0


def test_the_rule_is_of_the_texts_in_such_scripts():
    """Refused where more than half of them lack blanks, whatever other texts there are."""
    for texts in (SPACED, OTHERS, [UNSPACED[0], SPACED[0], *OTHERS]):
        assert len(encoded(texts)) == len(texts)
    with pytest.raises(DatasetError, match="2 of 19"):
        encoded([*UNSPACED[:2], SPACED[0], *OTHERS, *OTHERS])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023年BERT很好看。", "2023 年 bert 很 好 看 。"),
        ("ที่นี่ดี", "ที่ นี่ ดี"),
        ("か\u3099くせい コーヒー", "が く せ い コ ー ヒ ー"),
        ("ខ្មែរ", "ខ្មែ រ"),  # a letter that hangs below another stays with it
        ("it's 電影, don't", "it 's 電 影 , do n't"),
    ],
)
def test_letters_by_hand(text, expected):
    assert split_words([text], "characters") == [expected.split()]
