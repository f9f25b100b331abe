"""Which positions are impermissible stays with a batch: taken, alone, shortened, tokenised anew; and reaches the record."""

import numpy as np
import pytest
import torch

from attnfaith import record
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import MeasurementError
from attnfaith.record.words import by_word
from attnfaith.subjects import Batch, Pooled, SelfAttention
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "good music"]
MARKS = [[0, 0, 1, 0, 1, 0], [0, 0, 1, 1], [0, 0]]


def texts():
    from datasets import Dataset

    return Dataset.from_dict({"instance_id": ["0", "1", "2"], "text": TEXTS, "impermissible": MARKS})


@pytest.fixture(scope="module")
def bert():
    return SelfAttention(classifier("bert", max_position_embeddings=24), tokenizer())


@pytest.fixture
def pooled(tiny_model):
    def make(hierarchy="none"):
        made = build_tokenizer(TEXTS, preprocessing="words", hierarchy="none" if hierarchy == "none" else "sentence")
        return Pooled.of(tiny_model(hierarchy=hierarchy)), made

    def subject(hierarchy="none"):
        model, tokens = make(hierarchy)
        model.tokenizer = tokens
        return model

    return subject


def marked(subject, batch):
    """The tokens that are marked, a list a text."""
    words = [subject.tokenizer.convert_ids_to_tokens(ids) for ids in batch["input_ids"].tolist()]
    return [
        [word for word, mark in zip(of_text, marks, strict=True) if mark]
        for of_text, marks in zip(words, batch["impermissible"].tolist(), strict=True)
    ]


def test_of_a_classifier_of_transformers(bert):
    batch = bert.collate(bert.rows(texts()).to_list())
    assert marked(bert, batch) == [["ship", "##s", "slowly"], ["ship", "sank"], []]
    assert batch["impermissible"].shape == batch["input_ids"].shape
    assert marked(bert, batch.take(torch.tensor([1, 1]))) == [["ship", "sank"]] * 2
    assert marked(bert, batch.alone(1)) == [["ship", "sank"]]
    assert batch.alone(1)["impermissible"].shape == (1, 6)
    stays = batch["attention_mask"].bool()
    stays[:, 3] = False  # 'ship' of ships, and ship
    assert marked(bert, bert.keep(batch, stays)) == [["##s", "slowly"], ["sank"], []]
    new = bert.retokenised(batch, stays)
    assert bert.tokenizer.convert_ids_to_tokens(new["input_ids"][1].tolist())[1:4] == ["a", "new", "sank"]
    assert new["impermissible"].shape == new["input_ids"].shape
    assert marked(bert, new) == [["[UNK]", "slowly"], ["sank"], []]  # an 's', which the tokenizer does not know
    assert "impermissible" not in bert.encode(TEXTS)


def test_of_a_model_of_this_package(pooled):
    subject = pooled()
    batch = subject.collate(subject.rows(texts()).to_list())
    assert marked(subject, batch) == [["ships", "slowly"], ["ship", "sank"], []]
    assert marked(subject, batch.alone(0)) == [["ships", "slowly"]]
    stays = batch["attention_mask"].bool()
    stays[:, 3] = False
    assert marked(subject, subject.keep(batch, stays)) == [["slowly"], ["sank"], []]


def test_a_plain_batch_of_a_tokenizer_may_bring_them(bert):
    given = dict(bert.tokenizer(TEXTS[:1], return_tensors="pt"))
    given["impermissible"] = torch.zeros_like(given["input_ids"])
    assert Batch.of(given, bert)["impermissible"].sum() == 0


CELL = record.Identity("tiny", "1", "test", 0)


@pytest.mark.parametrize(("hierarchy", "level"), [("none", "sentence"), ("sentence", "sentence"), ("sentence", "word")])
def test_the_record_says_which_tokens(pooled, tmp_path, hierarchy, level):
    subject = pooled(hierarchy)
    table = record.load(measure(subject.stages, subject.rows(texts()), CELL, [], tmp_path / "a.parquet", level=level))
    assert table.schema.field("impermissible").type.value_type == "bool"
    column = table.column("impermissible").to_pylist()
    if hierarchy == "sentence" and level == "sentence":
        assert column == [[True], [True], [False]]  # each text is one sentence, two hold such a word
    else:
        assert column == [[bool(mark) for mark in marks] for marks in MARKS]


def test_the_record_of_subwords_and_of_their_words(bert, tmp_path):
    table = record.load(measure(bert, bert.rows(texts()), CELL, [], tmp_path / "a.parquet"))
    tokens, column = (table.column(name).to_pylist() for name in ("tokens", "impermissible"))
    assert [[t for t, m in zip(*row, strict=True) if m] for row in zip(tokens, column, strict=True)] == [
        ["ship", "##s", "slowly"],
        ["ship", "sank"],
        [],
    ]
    words = by_word(table)
    assert words.column("impermissible").to_pylist() == [[bool(mark) for mark in marks] for marks in MARKS]


def test_a_subject_that_forgets_them_is_refused(bert, tmp_path):
    class Forgets(SelfAttention):
        def collate(self, rows):
            batch = super().collate(rows)
            del batch["impermissible"]
            return batch

    subject = object.__new__(Forgets)
    subject.__dict__ |= bert.__dict__
    with pytest.raises(MeasurementError, match="says which words are impermissible, and the batches that this subject"):
        measure(subject, bert.rows(texts()), CELL, [], tmp_path / "a.parquet")


def test_measuring_marked_texts_changes_no_number(bert, tmp_path):
    plain = bert.rows(texts().remove_columns("impermissible"))
    one, two = (
        record.load(measure(bert, rows, CELL, ["gradient"], tmp_path / f"{name}.parquet"))
        for name, rows in (("plain", plain), ("marked", bert.rows(texts())))
    )
    for name in ("probs", "attention", "importance_gradient"):
        for first, second in zip(one.column(name).to_pylist(), two.column(name).to_pylist(), strict=True):
            np.testing.assert_array_equal(first, second)
