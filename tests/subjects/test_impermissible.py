"""Impermissible positions stay with a batch and reach the record; a model that keeps them apart is checked for it."""

import pytest
import torch
from datasets import Dataset

from attnfaith import SelfAttentionClassifierForSequenceClassification, record
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.measurement.engine import measure
from attnfaith.subjects import Pooled, SelfAttention, SubjectError
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "good music"]
MARKS = [[0, 0, 1, 0, 1, 0], [0, 0, 1, 1], [0, 0]]
MARKED_TEXTS = Dataset.from_dict({"instance_id": ["0", "1", "2"], "text": TEXTS, "impermissible": MARKS})
CELL = record.Identity("tiny", "1", "test", 0)


@pytest.fixture
def pooled(tiny_model):
    def subject(hierarchy="none"):
        return Pooled(tiny_model(hierarchy=hierarchy), build_tokenizer(TEXTS, preprocessing="words", hierarchy=hierarchy))

    return subject


def bert():
    return SelfAttention(classifier("bert", max_position_embeddings=24), tokenizer())


def marked(subject, batch):
    """The tokens that are marked, a list a text."""
    tokens = [subject.tokenizer.convert_ids_to_tokens(ids) for ids in batch["input_ids"].tolist()]
    pairs = zip(tokens, batch["impermissible"].tolist(), strict=True)
    return [[token for token, mark in zip(*pair, strict=True) if mark] for pair in pairs]


def test_marks_follow_their_tokens_through_a_batch(pooled):
    for subject, first in ((bert(), ["ship", "##s", "slowly"]), (pooled(), ["ships", "slowly"])):
        batch = subject.collate(subject.rows(MARKED_TEXTS).to_list())
        assert marked(subject, batch) == [first, ["ship", "sank"], []]
        assert marked(subject, batch.take(torch.tensor([1, 1]))) == [["ship", "sank"]] * 2
        assert marked(subject, batch.alone(1)) == [["ship", "sank"]]
        stays = batch["attention_mask"].bool()
        stays[:, 3] = False  # 'ship' of ships, or ships, and ship
        assert marked(subject, subject.keep(batch, stays)) == [first[1:], ["sank"], []]


@pytest.mark.parametrize("hierarchy", ["none", "sentence"])
def test_the_record_names_the_tokens(pooled, hierarchy):
    subject = pooled(hierarchy)
    table = measure(subject.model, subject.rows(MARKED_TEXTS), CELL, [], None)
    sentences = hierarchy == "sentence"  # each text is one sentence, two hold such a word
    expected = [[True], [True], [False]] if sentences else [[bool(mark) for mark in marks] for marks in MARKS]
    assert table.column("impermissible").to_pylist() == expected


def separating(kind="bert", reduction="last"):
    model = SelfAttentionClassifierForSequenceClassification.of(classifier(kind), separate_impermissible=True)
    return SelfAttention(model.eval(), tokenizer(), reduction)


def test_a_batch_without_marks_is_refused_and_a_record_tells_the_models_apart():
    subject = separating()
    with pytest.raises(SubjectError, match="keeps impermissible tokens apart"):
        subject.predict(subject.encode(["the old ship"]))
    plain = SelfAttention(SelfAttentionClassifierForSequenceClassification.of(classifier("bert")).eval())
    assert subject.identity()["separate_impermissible"] and not plain.identity()["separate_impermissible"]
    assert subject.digest() != plain.digest()


@pytest.mark.parametrize("kind", ["eurobert", "openai-gpt"])
def test_a_model_in_which_kinds_would_meet_is_refused(kind):
    SelfAttention(classifier(kind), tokenizer())
    with pytest.raises(SubjectError, match="fails the check 'separation'"):
        separating(kind)
