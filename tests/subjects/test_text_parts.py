"""Logits of parts of texts, each against the model called by hand on texts typed without the rest."""

import numpy as np
import pytest
import torch

from attnfaith.importance.perturbation import LeaveOneOut
from attnfaith.measurement.registry import find
from attnfaith.subjects import Batch, SelfAttention, SubjectError, opened
from attnfaith.subjects.protocol import read_parts
from tests.measuring import run
from tests.small_classifiers import classifier, texts, tokenizer
from tests.stages import embedded_of, logits_at, logits_of


TEXTS = ["the old ships sailed slowly !", "a new ship sank"]  # ships is two tokens, ship is one


@pytest.fixture(scope="module")
def bert():
    return SelfAttention(classifier("bert", max_position_embeddings=24), tokenizer())


def by_hand(subject, *text, **changed):
    """Logits (C,) of the model itself, for the inputs that a tokenizer makes of a text or a pair."""
    inputs = dict(subject.tokenizer(*text, return_tensors="pt")) | changed
    with torch.no_grad():
        return subject.model(**inputs).logits[0].double().numpy()


def test_a_mask_token_a_hidden_token_and_a_deleted_one(bert):
    batch = bert.encode(TEXTS)
    parts = [np.arange(count)[None] != 2 for count in bert.attendable(batch).sum(1).tolist()]  # all but one token
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


def test_refusals():
    decoder = SelfAttention(classifier("gpt2"))
    for by, needed in (("mask_token", "mask token"), ("hide", "token hiding")):
        with pytest.raises(SubjectError, match=f"needs '{needed}'"):
            run(LeaveOneOut, decoder, Batch.of(texts(decoder.model), decoder), by=by)
    with pytest.raises(SubjectError, match="needs 'mask token'"):
        find("rationale_erasure")(absent="mask_token").check(decoder, None)


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("encoder", ["bilstm", "transformer"])
def test_deleted_tokens_are_not_in_the_text_and_zeros_keep_their_place(encoder, query, tiny_model, tiny_rows, tiny_batch):
    model, rows = tiny_model(encoder=encoder, query=query), tiny_rows([5, 3], pair=query == "text")
    batch = tiny_batch(rows)
    parts = [np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool), np.array([[0, 1, 0]], bool)]
    deleted, zeroed = (read_parts(*opened(model, batch), parts, absent) for absent in ("deleted", "zero"))
    for number, (row, part) in enumerate(zip(rows, parts, strict=True)):
        for place, present in enumerate(part):
            stays = np.ones(len(row["input_ids"]), bool)
            stays[1 : 1 + len(present)] = present
            names = {"input_ids", "token_type_ids"} & set(row)
            shorter = {name: [v for v, stay in zip(row[name], stays, strict=True) if stay] for name in names}
            logits = logits_of(model, tiny_batch([{"instance_id": "one", **shorter}]))[0]
            np.testing.assert_allclose(deleted[number][place], logits, atol=1e-6)
            embedded = embedded_of(model, batch)
            embedded[number, 1 : 1 + len(present)] *= torch.tensor(present).unsqueeze(-1)
            logits = logits_at(model, batch, embedded)[number].detach()
            np.testing.assert_allclose(zeroed[number][place], logits, atol=1e-6)
