"""Texts as a classifier of transformers reads them: its tokenizer's ids, and which of them are tokens of the text."""

import pytest
from datasets import Dataset

from attnfaith.data.subwords import encode_for_classifier
from attnfaith.errors import DatasetError
from tests.small_classifiers import tokenizer
from tests.subword_tokenizers import KINDS, TEXTS, train


def encoded(texts, of=None, max_length=None, others=None, labels=None):
    of = of or tokenizer()
    columns = {"instance_id": [f"t{row}" for row in range(len(texts))], "text": texts}
    columns |= {} if others is None else {"text_pair": others}
    columns |= {} if labels is None else {"label": labels}
    return encode_for_classifier(Dataset.from_dict(columns), of, max_length=max_length)


def test_ids_are_the_tokenizers_and_tokens_are_the_texts():
    texts = ["the old ship sank", "a sinking Film!", "", "   ", "ships sailed"]
    rows, of = encoded(texts, labels=[0, 1, 0, 1, 0]), tokenizer()
    assert rows["input_ids"][:] == of(texts)["input_ids"] and rows["labels"][:] == [0, 1, 0, 1, 0]
    assert rows["token_type_ids"][:] == of(texts)["token_type_ids"]
    assert rows["tokens"][0] == ["the", "old", "ship", "sank"] and rows["tokens"][1] == ["a", "sinking", "Film", "!"]
    assert rows["tokens"][2] == rows["tokens"][3] == []
    assert [len(row) for row in rows["tokens"]] == [len(row) - 2 for row in rows["input_ids"]]
    assert rows["length"][:] == [len(row) for row in rows["input_ids"]] and not any(rows["truncated"])


def test_pieces_know_their_word():
    (row,) = encoded(["ships sank"]).to_list()
    assert row["tokens"] == ["ship", "##s", "sank"] and row["word_of_token"] == [0, 0, 1]


def test_of_a_pair_tokens_of_the_second_stand_behind_those_of_the_first():
    (row,) = encoded(["the ships"], others=["a film !"]).to_list()
    assert row["tokens"] == ["the", "ship", "##s", "a", "film", "!"]
    assert row["text_of_token"] == [0, 0, 0, 1, 1, 1] and row["word_of_token"] == [0, 1, 1, 2, 3, 4]
    (empty,) = encoded([""], others=["film"]).to_list()
    assert empty["tokens"] == ["film"] and empty["text_of_token"] == [1] and empty["word_of_token"] == [0]


def test_long_texts_are_cut_at_the_limit_and_counted():
    rows = encoded(["the old ship sank", "a film"], max_length=4)
    assert rows["truncated"][:] == [True, False] and rows["length"][:] == [4, 4]
    assert rows["tokens"][0] == ["the", "old"]
    (row,) = encoded(["the old ship sank slowly"], others=["a film"], max_length=7).to_list()
    assert row["tokens"] == ["the", "old", "a", "film"] and row["truncated"]  # the longer one first


def test_markers_are_where_the_tokenizer_puts_them_whatever_the_text_spells():
    (row,) = encoded(["the [SEP] ship [MASK] [PAD] zzz"]).to_list()
    assert row["tokens"] == ["the", "[SEP]", "ship", "[MASK]", "[PAD]", "zzz"] and row["length"] == 8
    assert row["special_tokens_mask"] == [1, 0, 0, 0, 0, 0, 0, 1]
    (row,) = encoded(["the"], others=["ship"]).to_list()
    assert row["special_tokens_mask"] == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer(kind, tmp_path):
    """Tokens are pieces of their text, in order, and as many as there are ids beside markers."""
    from transformers import AutoTokenizer

    train(kind, tmp_path)
    of = AutoTokenizer.from_pretrained(tmp_path)
    for row, text in zip(encoded(TEXTS, of).to_list(), TEXTS, strict=True):
        places = len(row["input_ids"]) - of.num_special_tokens_to_add()
        assert len(row["tokens"]) == row["special_tokens_mask"].count(0) == len(row["word_of_token"]) == places > 0
        assert row["word_of_token"] == sorted(row["word_of_token"])
        assert row["input_ids"] == of(text)["input_ids"] and all(row["tokens"])


def test_no_texts_and_a_tokenizer_that_does_not_know_its_characters():
    from transformers import CanineTokenizer

    assert len(encoded([])) == 0 and "input_ids" in encoded([]).column_names
    with pytest.raises(DatasetError, match="the tokenizer is a CanineTokenizer, which does not say which characters"):
        encoded(["ship"], CanineTokenizer())
