"""What may become of tokens that are taken away, each against the model called by hand."""

import numpy as np
import pytest
import torch

from attnfaith.data.classifier_text import without_tokens
from attnfaith.errors import DatasetError
from attnfaith.importance.perturbation import LeaveOneOut, Occlusion
from attnfaith.importance.surrogates import KernelShap
from attnfaith.measurement.registry import find
from attnfaith.subjects import Batch, SelfAttention, SubjectError
from attnfaith.subjects.removal import read_parts
from tests import subword_tokenizers
from tests.measuring import run
from tests.small_classifiers import classifier, texts, tokenizer


TEXTS = ["the old ships sailed slowly !", "a new ship sank"]  # ships is two tokens, ship is one


@pytest.fixture(scope="module")
def bert():
    return SelfAttention(classifier("bert", max_position_embeddings=24), tokenizer())


def by_hand(subject, text, **changed):
    """Logits (C,) of the model itself, given what a tokenizer makes of a text."""
    given = dict(subject.tokenizer(text, return_tensors="pt")) | changed
    with torch.no_grad():
        return subject.model(**given).logits[0].double().numpy()


def parts_without(batch, subject, token):
    """Of each text everything but one token."""
    counts = subject.attendable(batch).sum(1).tolist()
    return [np.arange(count)[None] != token for count in counts]


def test_a_mask_token_a_hidden_token_and_a_deleted_one(bert):
    batch = bert.encode(TEXTS)
    parts = parts_without(batch, bert, 2)
    ids = [bert.tokenizer(text, return_tensors="pt")["input_ids"] for text in TEXTS]
    masked, hidden, deleted = (read_parts(bert, batch, parts, absent) for absent in ("mask_token", "hidden", "deleted"))
    for row, text in enumerate(TEXTS):
        replaced, mask = ids[row].clone(), torch.ones_like(ids[row])
        replaced[0, 3], mask[0, 3] = bert.tokenizer.mask_token_id, 0  # behind [CLS]
        np.testing.assert_allclose(masked[row][0], by_hand(bert, text, input_ids=replaced), atol=1e-5)
        np.testing.assert_allclose(hidden[row][0], by_hand(bert, text, attention_mask=mask), atol=1e-5)
        rest = torch.cat([ids[row][:, :3], ids[row][:, 4:]], 1)
        kinds = torch.zeros_like(rest)
        by_ids = by_hand(bert, text, input_ids=rest, attention_mask=kinds + 1, token_type_ids=kinds)
        np.testing.assert_allclose(deleted[row][0], by_ids, atol=1e-5)


def test_a_text_is_tokenised_anew(bert):
    """Without 'ship' of 'ships' the rest is no '##s' but an 's', which is another token."""
    batch = bert.encode(TEXTS)
    (first, second) = read_parts(bert, batch, parts_without(batch, bert, 2), "retokenised")
    np.testing.assert_allclose(first[0], by_hand(bert, "the old s sailed slowly !"), atol=1e-5)
    np.testing.assert_allclose(second[0], by_hand(bert, "a new sank"), atol=1e-5)
    empty = read_parts(bert, batch, [np.zeros((1, len(row)), bool) for row in parts_of(batch, bert)], "retokenised")
    np.testing.assert_allclose(empty[0][0], by_hand(bert, ""), atol=1e-5)


def parts_of(batch, subject):
    return [[0] * count for count in subject.attendable(batch).sum(1).tolist()]


def test_pairs_are_tokenised_anew(bert):
    pairs = [("the old ship", "sailed slowly"), ("a ship", "was good")]
    batch = bert.encode(pairs)
    stays = np.array([[True, False, True, True, False]])  # without old, without slowly
    count = bert.attendable(batch).sum(1).tolist()
    said = read_parts(bert, batch, [stays[:, : count[0]], np.ones((1, count[1]), bool)], "retokenised")
    given = dict(bert.tokenizer("the ship", "sailed", return_tensors="pt"))
    with torch.no_grad():
        np.testing.assert_allclose(said[0][0], bert.model(**given).logits[0].double(), atol=1e-5)


def test_of_a_cut_text_only_what_was_read_is_there(bert):
    text = "the old ship " * 30
    batch = bert.encode([text])
    assert batch["input_ids"].shape[1] == 24
    stays = torch.ones_like(batch["input_ids"], dtype=torch.bool)
    stays[0, 2] = False
    again = bert.retokenised(batch, stays)
    assert again["input_ids"].shape[1] == 23
    expected = torch.cat([batch["input_ids"][0, :2], batch["input_ids"][0, 3:]])
    assert torch.equal(again["input_ids"][0], expected)


@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        ("a  great film", [1], "a  film"),
        ("great film", [0], "film"),
        ("a great", [1], "a"),
        ("great", [0], ""),
        ("a great film", [], "a great film"),
        ("a great film", [0, 1, 2], ""),
        ("très élégant 😀 !", [1], None),
    ],
)
@pytest.mark.parametrize("kind", subword_tokenizers.KINDS)
def test_characters_of_tokens(kind, text, gone, left, tmp_path):
    """By words of a text; with all tokens of these words away the others' characters stay, in any kind of tokenizer."""
    from transformers import AutoTokenizer

    corpus = ["a great film", "très élégant 😀 !"] * 3
    own = AutoTokenizer.from_pretrained(subword_tokenizers.train(kind, tmp_path, texts=corpus))
    encoding = own(text).encodings[0]
    words = [len(text[:end].split()) - 1 for _, end in encoding.offsets]
    stays = [word not in gone for word in words]
    ((result, marks),) = without_tokens([text], encoding.ids, stays, own, [int(word == 1) for word in words])
    expected = " ".join(word for number, word in enumerate(text.split()) if number not in gone) if left is None else left
    assert result.split() == expected.split()
    second = [] if 1 in gone else text.split()[1:2]
    assert "".join(letter for letter, mark in zip(result, marks, strict=True) if mark).split() == second


def test_texts_that_cannot_be_rebuilt(bert):
    batch = bert.encode(TEXTS)
    plain = Batch.of(texts(bert.model), bert)
    with pytest.raises(SubjectError, match="this batch holds tokens alone: make it from texts, by `encode`"):
        read_parts(bert, plain, parts_without(plain, bert, 0), "retokenised")
    batch["text"] = ["another text", "a new ship sank"]
    with pytest.raises(DatasetError, match="the tokenizer does not make these tokens of 'another text'"):
        read_parts(bert, batch, parts_without(batch, bert, 0), "retokenised")


def test_measures_and_tests_of_explanations_take_each_kind(bert):
    batch = bert.encode(TEXTS)
    names = {"delete": "deleted", "retokenise": "retokenised", "mask_token": "mask_token", "hide": "hidden"}
    probs = bert.predict(batch).double().softmax(-1).detach().numpy()
    logits = bert.predict(batch).double().detach().numpy()
    for by, absent in names.items():
        falls = run(Occlusion, bert, batch, target=1, by=by)["importance_occlusion"]
        distances = run(LeaveOneOut, bert, batch, by=by)["importance_leave_one_out"]
        for token in range(4):
            said = read_parts(bert, batch, parts_without(batch, bert, token), absent)
            for row in range(2):
                assert falls[row][token] == pytest.approx(logits[row, 1] - said[row][0, 1], abs=1e-5)
                exps = np.exp(said[row][0] - said[row][0].max())
                moved = np.abs(exps / exps.sum() - probs[row]).sum() / 2
                assert distances[row][token] == pytest.approx(moved, abs=1e-5)
    shares = {"shares": [0.2]}
    removed = {
        absent: run("rationale_erasure", bert, batch, absent=absent, **shares)["rationale_erasure_removed_probs"][0][0, 0]
        for absent in names.values()
    }
    assert len(set(removed.values())) >= 3  # deleting whole words and tokenising anew are alike
    masked = run(KernelShap, bert, batch, samples=64, absent="mask_token")["importance_kernel_shap"]
    assert len(masked[0]) == 7 and np.isfinite(masked[0]).all()


@pytest.mark.parametrize("module", [Occlusion, LeaveOneOut])
def test_a_kind_that_a_subject_has_not(module):
    """Each says what is lacking, and what to do."""
    subject = SelfAttention(classifier("gpt2"))
    batch = Batch.of(texts(subject.model), subject)
    for by, says in (
        ("mask_token", "needs 'mask token' .*where there is none take the unknown word, or hide tokens"),
        ("hide", "needs 'token hiding' .*its logits do not depend on a token whose attention_mask is 0"),
        ("retokenise", "needs 'texts' .*tokenised anew without some of their tokens"),
    ):
        with pytest.raises(SubjectError, match=says):
            run(module, subject, batch, by=by)
    with pytest.raises(ValueError, match="by='blur'"):
        module(by="blur")
    with pytest.raises(ValueError, match="absent='gone'"):
        find("rationale_erasure")(absent="gone")
    with pytest.raises(SubjectError, match="rationale_erasure with absent='mask_token'' needs 'mask token'"):
        find("rationale_erasure")(absent="mask_token").check(subject, None)
