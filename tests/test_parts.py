"""What a model says of parts of texts is what it says of texts typed without the rest."""

import numpy as np
import pytest
import torch

from attnfaith.subjects import Batch, Pooled, SelfAttention, opened
from attnfaith.subjects import removal as subject_parts
from attnfaith.subjects.removal import item_places, read_parts
from tests import tolerances
from tests.small_classifiers import classifier, texts


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


@pytest.mark.parametrize("absent", [absent for absent, needed in subject_parts.ABSENT.items() if needed in Pooled.can])
def test_in_pieces_as_at_once(absent, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    model, batch = tiny_model(), tiny_batch(tiny_rows([6, 0, 4]))
    generator = np.random.default_rng(0)
    parts = [generator.random((9, length)) < 0.5 for length in (6, 0, 4)]
    at_once = read_parts(*opened(model, batch), parts, absent)
    monkeypatch.setattr(subject_parts, "TOKENS_AT_ONCE", 12)
    for one, other in zip(read_parts(*opened(model, batch), parts, absent), at_once, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_texts_with_maps_of_attention_are_read_a_few_at_once_on_a_cpu(monkeypatch, tiny_model, tiny_rows, tiny_batch):
    stack = SelfAttention(classifier("bert"))
    subjects = [(stack, Batch.of(texts(stack.model, (12,)), stack)), opened(tiny_model(), tiny_batch(tiny_rows([10])))]
    sizes, real = [], subject_parts._read
    monkeypatch.setattr(subject_parts, "_read", lambda *given: sizes.append(len(given[2])) or real(*given))
    monkeypatch.setattr(subject_parts, "MAPPED_AT_ONCE", 40)
    for (subject, batch), expected in zip(subjects, ([3, 3, 3, 1], [10]), strict=True):
        count = int(subject.attendable(batch).sum())
        sizes.clear()
        parts = [~np.eye(count, dtype=bool)[:10]]
        (pieces,) = read_parts(subject, batch, parts, "zero")
        assert sizes == expected
        monkeypatch.setattr(subject_parts, "MAPPED_AT_ONCE", 4000)
        tolerances.close(pieces, read_parts(subject, batch, parts, "zero")[0], dtype=torch.float32, depth=4)
        monkeypatch.setattr(subject_parts, "MAPPED_AT_ONCE", 40)


def test_answers_stay_masked(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(num_labels=3), tiny_batch(tiny_rows([4]))
    batch["answer_mask"] = torch.tensor([[True, False, True]])
    (found,) = read_parts(*opened(model, batch), [np.eye(4, dtype=bool)])
    assert (found[:, 1] < -9000).all() and (found[:, [0, 2]] > -100).all()
