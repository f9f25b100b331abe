"""Logits of parts of texts, each against the model called by hand on texts typed without the rest."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from attnfaith.data.subwords import without_tokens
from attnfaith.importance.perturbation import LeaveOneOut, Occlusion
from attnfaith.measurement.registry import find
from attnfaith.subjects import Batch, Pooled, SelfAttention, SubjectError, opened, text_parts
from attnfaith.subjects.text_parts import item_places, read_parts
from attnfaith.support.errors import DatasetError
from tests import subword_tokenizers, tolerances
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


def logits_of(model, batch):
    with torch.no_grad():
        encoded = model.encode(**{name: values for name, values in batch.items() if name != "instance_id"})
        return model.decode(encoded.hidden, model.attend(*encoded), encoded.query).double().numpy()


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "cnn"])
def test_deleted_tokens_are_not_in_the_text(encoder, query, tiny_model, tiny_rows, tiny_batch):
    model, rows = tiny_model(encoder=encoder, query=query), tiny_rows([5, 3], pair=query == "text")
    parts = [np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool), np.array([[0, 1, 0]], bool)]
    found = read_parts(*opened(model, tiny_batch(rows)), parts)
    for row, part, values in zip(rows, parts, found, strict=True):
        for kept, value in zip(part, values, strict=True):
            stays = np.ones(len(row["input_ids"]), bool)
            stays[1 : 1 + len(kept)] = kept
            shorter = {"instance_id": "one"}
            for name in ("input_ids", "token_type_ids"):
                if name in row:
                    shorter[name] = [number for number, stay in zip(row[name], stays, strict=True) if stay]
            np.testing.assert_allclose(value, logits_of(model, tiny_batch([shorter]))[0], atol=1e-6)


@pytest.mark.parametrize("hierarchy", ["sentence", "word"])
def test_items_of_hierarchical_models(hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Words a b | c d: without the first sentence, and word by word."""
    model = tiny_model(hierarchy=hierarchy, encoder="bigru")
    whole, first, second = ([10, 11], [12, 13])[0] + [4] + [12, 13], [4, 12, 13], [10, 11, 4]
    batch = tiny_batch([{"instance_id": "one", "input_ids": [2, *whole, 3]}])
    if hierarchy == "sentence":
        assert item_places(*opened(model, batch)).tolist() == [[-1, 0, 0, -1, 1, 1, -1]]
        parts = {(0, 1): first, (1, 0): second, (1, 1): whole}
    else:
        assert item_places(*opened(model, batch)).tolist() == [[-1, 0, 1, -1, 2, 3, -1]]
        parts = {(0, 0, 1, 1): first, (1, 1, 0, 0): second, (1, 0, 0, 1): [10, 4, 13], (1, 1, 1, 1): whole}
    (found,) = read_parts(*opened(model, batch), [np.array(list(parts), bool)])
    for value, ids in zip(found, parts.values(), strict=True):
        expected = logits_of(model, tiny_batch([{"instance_id": "one", "input_ids": [2, *ids, 3]}]))
        np.testing.assert_allclose(value, expected[0], atol=1e-6)


@pytest.mark.parametrize("query", ["learned", "text"])
def test_zeros_keep_their_place(query, tiny_model, tiny_rows, tiny_batch):
    model, rows = tiny_model(encoder="bilstm", query=query), tiny_rows([4, 2], pair=query == "text")
    batch = tiny_batch(rows)
    parts = [np.array([[1, 0, 0, 1], [1, 1, 1, 1]], bool), np.array([[0, 1]], bool)]
    found = read_parts(*opened(model, batch), parts, "zero")
    for row, part, values in zip(range(2), parts, found, strict=True):
        for kept, value in zip(part, values, strict=True):
            embedded = model.get_input_embeddings()(batch["input_ids"][row : row + 1]).detach().clone()
            embedded[0, 1 : 1 + len(kept)] *= torch.tensor(kept).unsqueeze(-1)
            given = {name: batch[name][row : row + 1] for name in ("attention_mask", "token_type_ids") if name in batch}
            encoded = model.encode(inputs_embeds=embedded, **given)
            expected = model.decode(encoded.hidden, model.attend(*encoded), encoded.query).detach()
            np.testing.assert_allclose(value, expected[0], atol=1e-6)


@pytest.mark.parametrize("absent", [absent for absent, needed in text_parts.ABSENT.items() if needed in Pooled.can])
def test_in_pieces_as_at_once(absent, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    model, batch = tiny_model(), tiny_batch(tiny_rows([6, 0, 4]))
    generator = np.random.default_rng(0)
    parts = [generator.random((9, length)) < 0.5 for length in (6, 0, 4)]
    at_once = read_parts(*opened(model, batch), parts, absent)
    monkeypatch.setattr(text_parts, "TOKENS_AT_ONCE", 12)
    for one, other in zip(read_parts(*opened(model, batch), parts, absent), at_once, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_texts_with_maps_of_attention_are_read_a_few_at_once_on_a_cpu(monkeypatch, tiny_model, tiny_rows, tiny_batch):
    stack = SelfAttention(classifier("bert"))
    subjects = [(stack, Batch.of(texts(stack.model, (12,)), stack)), opened(tiny_model(), tiny_batch(tiny_rows([10])))]
    sizes, real = [], text_parts._read
    monkeypatch.setattr(text_parts, "_read", lambda *given: sizes.append(len(given[2])) or real(*given))
    monkeypatch.setattr(text_parts, "MAPPED_AT_ONCE", 40)
    for (subject, batch), expected in zip(subjects, ([3, 3, 3, 1], [10]), strict=True):
        count = int(subject.attendable(batch).sum())
        sizes.clear()
        parts = [~np.eye(count, dtype=bool)[:10]]
        (pieces,) = read_parts(subject, batch, parts, "zero")
        assert sizes == expected
        monkeypatch.setattr(text_parts, "MAPPED_AT_ONCE", 4000)
        tolerances.close(pieces, read_parts(subject, batch, parts, "zero")[0], dtype=torch.float32, depth=4)
        monkeypatch.setattr(text_parts, "MAPPED_AT_ONCE", 40)


def test_answers_stay_masked(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(num_labels=3), tiny_batch(tiny_rows([4]))
    batch["answer_mask"] = torch.tensor([[True, False, True]])
    (found,) = read_parts(*opened(model, batch), [np.eye(4, dtype=bool)])
    assert (found[:, 1] < -9000).all() and (found[:, [0, 2]] > -100).all()
