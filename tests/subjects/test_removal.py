"""Ways of taking tokens away, each against the model called by hand."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from attnfaith.data.subwords import without_tokens
from attnfaith.importance.perturbation import LeaveOneOut, Occlusion
from attnfaith.measurement.registry import find
from attnfaith.subjects import Batch, SelfAttention, SubjectError
from attnfaith.subjects.removal import read_parts
from attnfaith.support.errors import DatasetError
from tests import subword_tokenizers
from tests.measuring import run
from tests.small_classifiers import classifier, texts, tokenizer


TEXTS = ["the old ships sailed slowly !", "a new ship sank"]  # ships is two tokens, ship is one
WAYS = {"delete": "deleted", "retokenise": "retokenised", "mask_token": "mask_token", "hide": "hidden"}


@pytest.fixture(scope="module")
def bert():
    return SelfAttention(classifier("bert", max_position_embeddings=24), tokenizer())


def by_hand(subject, *text, **changed):
    """Logits (C,) of the model itself, for the inputs that a tokenizer makes of a text or a pair."""
    inputs = dict(subject.tokenizer(*text, return_tensors="pt")) | changed
    with torch.no_grad():
        return subject.model(**inputs).logits[0].double().numpy()


def parts_without(batch, subject, token):
    """Everything but one token, of each text."""
    return [np.arange(count)[None] != token for count in subject.attendable(batch).sum(1).tolist()]


def test_a_mask_token_a_hidden_token_and_a_deleted_one(bert):
    batch = bert.encode(TEXTS)
    parts = parts_without(batch, bert, 2)
    masked, hidden, deleted = (read_parts(bert, batch, parts, absent) for absent in ("mask_token", "hidden", "deleted"))
    for row, text in enumerate(TEXTS):
        ids = bert.tokenizer(text, return_tensors="pt")["input_ids"]
        replaced, mask = ids.clone(), torch.ones_like(ids)
        replaced[0, 3], mask[0, 3] = bert.tokenizer.mask_token_id, 0  # behind [CLS]
        rest = torch.cat([ids[:, :3], ids[:, 4:]], 1)
        shorter = {"input_ids": rest, "attention_mask": torch.ones_like(rest), "token_type_ids": torch.zeros_like(rest)}
        np.testing.assert_allclose(masked[row][0], by_hand(bert, text, input_ids=replaced), atol=1e-5)
        np.testing.assert_allclose(hidden[row][0], by_hand(bert, text, attention_mask=mask), atol=1e-5)
        np.testing.assert_allclose(deleted[row][0], by_hand(bert, text, **shorter), atol=1e-5)


def test_texts_and_pairs_are_tokenised_anew(bert):
    """Without 'ship' of 'ships' the rest is no '##s' but an 's', which is another token."""
    batch = bert.encode(TEXTS)
    first, second = read_parts(bert, batch, parts_without(batch, bert, 2), "retokenised")
    np.testing.assert_allclose(first[0], by_hand(bert, "the old s sailed slowly !"), atol=1e-5)
    np.testing.assert_allclose(second[0], by_hand(bert, "a new sank"), atol=1e-5)
    nothing = [np.zeros_like(part) for part in parts_without(batch, bert, 0)]
    np.testing.assert_allclose(read_parts(bert, batch, nothing, "retokenised")[0][0], by_hand(bert, ""), atol=1e-5)
    pair = bert.encode([("the old ship", "sailed slowly")])
    without_old_and_slowly = [np.array([[True, False, True, True, False]])]
    logits = read_parts(bert, pair, without_old_and_slowly, "retokenised")[0][0]
    np.testing.assert_allclose(logits, by_hand(bert, "the ship", "sailed"), atol=1e-5)


def test_a_cut_text_is_tokenised_anew_up_to_its_cut(bert):
    batch = bert.encode(["the old ship " * 30])
    assert batch["input_ids"].shape[1] == 24
    stays = torch.ones_like(batch["input_ids"], dtype=torch.bool)
    stays[0, 2] = False
    again = bert.retokenised(batch, stays)["input_ids"]
    assert again.tolist() == batch["input_ids"][stays].unsqueeze(0).tolist()


@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        ("a  great film", [1], "a  film"),
        ("great film", [0], "film"),
        ("great", [0], ""),
        ("a great film", [], "a great film"),
        ("a great film", [0, 1, 2], ""),
        ("très élégant 😀 !", [1], "très 😀 !"),
    ],
)
@pytest.mark.parametrize("kind", subword_tokenizers.KINDS)
def test_characters_of_tokens(kind, text, gone, left, tmp_path):
    """By words of a text; with all tokens of these words away the others' characters stay, in any kind of tokenizer."""
    corpus = ["a great film", "très élégant 😀 !"] * 3
    own = AutoTokenizer.from_pretrained(subword_tokenizers.train(kind, tmp_path, texts=corpus))
    encoding = own(text).encodings[0]
    words = [len(text[:end].split()) - 1 for _, end in encoding.offsets]
    stays = [word not in gone for word in words]
    ((result, marks),) = without_tokens([text], encoding.ids, stays, own, [int(word == 1) for word in words])
    assert result.split() == left.split()
    second = [] if 1 in gone else text.split()[1:2]
    assert "".join(letter for letter, mark in zip(result, marks, strict=True) if mark).split() == second


def test_texts_that_cannot_be_rebuilt(bert):
    plain, batch = Batch.of(texts(bert.model), bert), bert.encode(TEXTS)
    with pytest.raises(SubjectError, match="this batch holds tokens alone"):
        read_parts(bert, plain, parts_without(plain, bert, 0), "retokenised")
    batch["text"] = ["another text", "a new ship sank"]
    with pytest.raises(DatasetError, match="'another text'"):
        read_parts(bert, batch, parts_without(batch, bert, 0), "retokenised")


@pytest.mark.parametrize("measure", [Occlusion, LeaveOneOut])
@pytest.mark.parametrize(("by", "needed"), [("mask_token", "mask token"), ("hide", "token hiding"), ("retokenise", "texts")])
def test_a_way_that_a_subject_cannot_go_is_refused(measure, by, needed):
    subject = SelfAttention(classifier("gpt2"))
    with pytest.raises(SubjectError, match=f"needs '{needed}'"):
        run(measure, subject, Batch.of(texts(subject.model), subject), by=by)
    with pytest.raises(ValueError, match="by='blur'"):
        measure(by="blur")
    with pytest.raises(ValueError, match="absent='gone'"):
        find("rationale_erasure")(absent="gone")
    with pytest.raises(SubjectError, match="needs 'mask token'"):
        find("rationale_erasure")(absent="mask_token").check(subject, None)
