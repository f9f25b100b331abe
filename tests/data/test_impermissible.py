"""Marks of impermissible words: on texts, and on the input positions of every kind of tokenizer."""

import pytest
from transformers import AutoTokenizer

from attnfaith.data.impermissible import check_marks, mark_words
from attnfaith.data.subwords import encode_for_classifier
from attnfaith.data.tokenization import build_tokenizer, encode
from attnfaith.support.errors import DatasetError
from tests import subword_tokenizers
from tests.splits import rows


TEXTS = ["Mr. Ray said: she's THE surgeon, he isn't", "he sings"]
MARKS = [[1, 0, 0, 1, 0, 0, 1, 0], [1, 0]]


def marked_rows(texts=TEXTS, marks=MARKS):
    return rows(texts, impermissible=marks)


@pytest.mark.parametrize("preprocessing", ["whitespace", "words", "imdb", "sst"])
def test_words_have_the_marks_of_their_characters(preprocessing):
    first, second = encode(marked_rows(), build_tokenizer(TEXTS, preprocessing=preprocessing))
    assert len(first["impermissible"]) == len(first["input_ids"])
    marked = [word for word, mark in zip(first["tokens"], first["impermissible"][1:-1], strict=True) if mark]
    expected = {
        "whitespace": ["mr.", "she's", "he"],
        "imdb": ["mr", "she's", "he"],
        "sst": ["mr", "she", "s", "he"],
        "words": ["mr", ".", "she", "'s", "he"],
    }
    assert marked == expected[preprocessing]
    assert second["impermissible"] == [0, 1, 0, 0]


@pytest.mark.parametrize("kind", subword_tokenizers.KINDS)
def test_subwords_have_the_marks_of_their_characters(kind, tmp_path):
    texts, marks = ["unglaublich gut, unglaubliche Musik", "gut"], [[1, 0, 0, 1], [0]]
    tokenizer = AutoTokenizer.from_pretrained(subword_tokenizers.train(kind, tmp_path, texts=texts))
    encoded = encode_for_classifier(marked_rows(texts, marks), tokenizer, max_length=None)
    characters = {*range(len("unglaublich")), *range(texts[0].index("Musik"), len(texts[0]))}
    encoding = tokenizer(texts[0]).encodings[0]
    assert encoded[0]["impermissible"] == [
        int(sequence is not None and not characters.isdisjoint(range(*span)))
        for sequence, span in zip(encoding.sequence_ids, encoding.offsets, strict=True)
    ]
    assert 0 < sum(encoded[0]["impermissible"]) < len(encoded[0]["tokens"])
    assert not any(encoded[1]["impermissible"])


def test_words_of_sentences_are_marked_and_marks_between_are_not():
    texts = ["She left. The doctor said he ran."]
    tokenizer = build_tokenizer(texts, preprocessing="words", hierarchy="sentence")
    encoded = encode(marked_rows(texts, [[1, 0, 0, 0, 0, 1, 0]]), tokenizer)
    words = tokenizer.convert_ids_to_tokens(encoded[0]["input_ids"])
    assert [word for word, mark in zip(words, encoded[0]["impermissible"], strict=True) if mark] == ["she", "he"]


@pytest.mark.parametrize("marks", [[1], [0, 2], [0, None], "01", None])
def test_marks_that_are_refused(marks):
    with pytest.raises(DatasetError, match="^t/0: impermissible must be one 0 or 1 for each of its 2 words") as refusal:
        check_marks(marks, "a b", "t/0")
    assert f"{marks!r} was given" in str(refusal.value)


def test_a_list_of_words_marks_texts():
    assert mark_words(["(She said, \"Mr. he's", "HE, she"], ["she", "mr.", "He"]) == [[1, 0, 1, 0], [1, 1]]
    assert mark_words(["a - b"], ["-"]) == [[0, 1, 0]]
