"""Marks of impermissible words: on texts, on the input positions of every kind of tokenizer, in batches."""

import pytest
import torch

from attnfaith.data.collation import keep_positions, pad_batch
from attnfaith.data.impermissible import check_marks, mark_words, without
from attnfaith.data.subwords import adopt_tokenizer, encode_for_classifier
from attnfaith.data.tokenization import build_tokenizer, by_words, encode
from attnfaith.support.errors import DatasetError
from tests import subword_tokenizers


TEXTS = ["Mr. Ray said: she's THE surgeon, he isn't", "he sings"]
MARKS = [[1, 0, 0, 1, 0, 0, 1, 0], [1, 0]]


def rows(texts=TEXTS, marks=MARKS, **columns):
    from datasets import Dataset

    return Dataset.from_dict(
        {"instance_id": [f"t/{row}" for row in range(len(texts))], "text": texts, "impermissible": marks, **columns}
    )


def marked_characters(text, marks):
    return {place for place in range(len(text)) if not text[place].isspace() and marks[len(text[: place + 1].split()) - 1]}


@pytest.mark.parametrize("preprocessing", ["whitespace", "words", "default", "imdb", "sst", "characters"])
def test_words_have_the_marks_of_the_characters_that_they_are_of(preprocessing):
    encoded = encode(rows(), build_tokenizer(TEXTS, preprocessing=preprocessing))
    for row in encoded:
        assert len(row["impermissible"]) == len(row["input_ids"])
        assert row["impermissible"][0] == row["impermissible"][-1] == 0
    of_first = [word for word, mark in zip(encoded[0]["tokens"], encoded[0]["impermissible"][1:-1], strict=True) if mark]
    assert of_first == {
        "whitespace": ["mr.", "she's", "he"],
        "imdb": ["mr", "she's", "he"],
        "sst": ["mr", "she", "s", "he"],
    }.get(preprocessing, ["mr", ".", "she", "'s", "he"])
    assert encoded[1]["impermissible"] == [0, 1, 0, 0]


@pytest.mark.parametrize("kind", subword_tokenizers.KINDS)
@pytest.mark.parametrize("reader", ["ours", "a classifier's"])
def test_subwords_have_the_marks_of_the_characters_that_they_are_of(kind, reader, tmp_path):
    from transformers import AutoTokenizer

    texts = ["unglaublich gut, unglaubliche Musik", "gut"]
    actual = rows(texts, [[1, 0, 0, 1], [0]])
    folder = subword_tokenizers.train(kind, tmp_path, texts=texts)
    if reader == "ours":
        tokenizer = adopt_tokenizer(str(folder))
        encoded = encode(actual, tokenizer)
    else:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        encoded = encode_for_classifier(actual, tokenizer, max_length=None)
    wanted = marked_characters(texts[0], [1, 0, 0, 1])
    encoding = tokenizer(texts[0]).encodings[0]
    assert encoded[0]["impermissible"] == [
        int(sequence is not None and not wanted.isdisjoint(range(*span)))
        for sequence, span in zip(encoding.sequence_ids, encoding.offsets, strict=True)
    ]
    assert 0 < sum(encoded[0]["impermissible"]) < len(encoded[0]["tokens"])
    assert not any(encoded[1]["impermissible"])


def test_of_sentences_words_are_marked_and_marks_between_are_not():
    texts = ["She left. The doctor said he ran."]
    tokenizer = build_tokenizer(texts, preprocessing="words", hierarchy="sentence")
    encoded = encode(rows(texts, [[1, 0, 0, 0, 0, 1, 0]]), tokenizer)
    words = tokenizer.convert_ids_to_tokens(encoded[0]["input_ids"])
    assert [word for word, mark in zip(words, encoded[0]["impermissible"], strict=True) if mark] == ["she", "he"]
    assert by_words(encoded)[0]["impermissible"] == encoded[0]["impermissible"]


def test_batches_are_padded_and_shortened_with_their_marks():
    batch = pad_batch(encode(rows(), build_tokenizer(TEXTS, preprocessing="whitespace")).to_list())
    assert batch["impermissible"].tolist() == [[0, *MARKS[0], 0], [0, 1, 0, 0, *[0] * 6]]
    stays = batch["attention_mask"].bool()
    stays[:, 1] = False
    stored = keep_positions(batch, stays)
    assert stored["impermissible"].tolist() == [[0, *MARKS[0][1:], 0], [0] * 9]
    assert stored["impermissible"].dtype == torch.int64
    with pytest.raises(DatasetError, match="Only 1 of 2 instances have 'impermissible'"):
        pad_batch([{"input_ids": [1], "impermissible": [0]}, {"input_ids": [1]}])


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ([1], "[1] was given"),
        ([0, 2], "[0, 2] was given"),
        ([0, None], "[0, None] was given"),
        ("01", "'01' was given"),
        (None, "None was given"),
    ],
)
def test_marks_that_are_none(marks, message):
    with pytest.raises(DatasetError) as refusal:
        check_marks(marks, "a b", "t/0")
    assert str(refusal.value).startswith("t/0: impermissible must be one 0 or 1 for each of its ") and message in str(
        refusal.value
    )


def test_a_list_of_words_marks_texts():
    assert mark_words(["(She said, \"Mr. he's", "HE, she"], ["she", "mr.", "He"]) == [[1, 0, 1, 0], [1, 1]]
    assert mark_words(["a - b"], ["-"]) == [[0, 1, 0]]
    assert without("he ran home", [1, 0, 0]) == "ran home" and without("he", [1]) == ""
