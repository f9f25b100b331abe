"""Value norms of impermissible tokens, and what is said without them, by plain loops."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from attnfaith.measurement.registry import find
from attnfaith.subjects import SelfAttention, SubjectError, subject_of
from tests import tolerances
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer
from tests.toy_subject import Toy


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "", "good", "! never bad"]
MARKED = [(0, 2), (), (), (0,), (1, 2)]  # tokens of each text
DEFINED = (0, 4)


def of_texts(kind="bert", reduction="last"):
    subject = SelfAttention(classifier(kind), tokenizer(kind != "gpt2"), reduction)
    batch = subject.encode(TEXTS)
    places = [row.nonzero().squeeze(1) for row in subject.attendable(batch)]
    batch["impermissible"] = torch.zeros_like(batch["input_ids"])
    for row, tokens in enumerate(MARKED):
        batch["impermissible"][row, places[row][list(tokens)]] = 1
    return subject, batch


@torch.no_grad()
def values_of(subject, text, layer):
    """(H,L,D) of one text, by the layer's own linear module."""
    inner = subject.model.bert
    with subject.evaluating():
        states = inner(**subject.model_inputs(text), output_hidden_states=True).hidden_states[layer]
    attention = inner.encoder.layer[layer].attention.self
    return attention.value(states)[0].unflatten(1, (attention.num_attention_heads, -1)).transpose(0, 1).double().numpy()


@pytest.mark.parametrize("reduction", ["last", {"layers": 0}, {"layers": "last", "head": 1}])
def test_values_of_heads(reduction):
    """As the authors' code has it: lengths of values by head, markers in the sum, the mean and the largest of heads."""
    subject, batch = of_texts(reduction=reduction)
    made = run("value_norm_share", subject, batch)
    for row in range(len(TEXTS)):
        values = made["value_norm_share"][row], made["value_norm_share_head_max"][row]
        if row not in DEFINED:
            assert np.isnan(values).all()
            continue
        text = batch.alone(row)
        layer = subject.reduction.chosen(subject.depth)[0]
        lengths = np.linalg.norm(values_of(subject, text, layer), axis=2)
        shares = [sum(one[place] for place in np.flatnonzero(batch["impermissible"][row])) / sum(one) for one in lengths]
        shares = shares if subject.reduction.head is None else shares[subject.reduction.head :][:1]
        np.testing.assert_allclose(values, (np.mean(shares), np.max(shares)), atol=1e-6)


@pytest.mark.parametrize("hierarchy", ["none", "sentence", "word"])
def test_states_of_pooled_models(hierarchy, tiny_model, tiny_rows):
    subject = subject_of(tiny_model(encoder="bilstm", hierarchy=hierarchy))
    batch = subject.collate(tiny_rows((9, 0, 12, [9], 7), hierarchy=hierarchy))
    batch["impermissible"] = (batch["input_ids"] % 4 == 1).long()
    made = run("value_norm_share", subject, batch)
    assert list(made) == ["value_norm_share"]
    (hidden, mask, _), items, some = subject.encoded(batch), subject.items(batch), 0
    for row in range(5):
        lengths = [np.linalg.norm(state.double().numpy()) for state in hidden[row, mask[row]]]
        numbers = mask[row].nonzero().squeeze(1).tolist() if items is None else range(len(lengths))
        places = range(batch["input_ids"].shape[1]) if items is None else items[row].tolist()
        marked = {place for place, mark in zip(places, batch["impermissible"][row].tolist(), strict=True) if mark}
        marks = [number in marked for number in numbers]
        if not any(marks) or all(marks):
            assert np.isnan(made["value_norm_share"][row])
            continue
        some += 1
        share = sum(length for length, mark in zip(lengths, marks, strict=True) if mark) / sum(lengths)
        assert made["value_norm_share"][row] == pytest.approx(share, abs=1e-6)
    assert some


def test_closed_form():
    """Attention over one-hot embeddings of lengths 1, 2 and 5: the last, marked, has 5 of 8."""

    class Given(Toy):
        capabilities = can = Toy.can | {"weighed vectors"}

        def value_norms(self, batch):
            return torch.tensor([[[0.0, 1.0, 2.0, 5.0, 0.0]]], dtype=torch.float64)

    subject = Given()
    batch = subject.encode(["7 8 9"])
    batch["impermissible"] = torch.tensor([[0, 0, 0, 1, 0]])
    assert run("value_norm_share", subject, batch)["value_norm_share"] == [5 / 8]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@torch.no_grad()
def test_texts_without_them_are_read(kind):
    """The same words written as a text of their own."""
    subject, batch = of_texts(kind)
    made = run("permissible_only", subject, batch)["permissible_only_probs"]
    for row, text in enumerate(TEXTS):
        if row not in DEFINED:
            assert np.isnan(made[row]).all() and len(made[row]) == subject.num_labels
            continue
        ids = batch["input_ids"][row][batch["attention_mask"][row].bool() & (batch["impermissible"][row] == 0)]
        with subject.evaluating():
            given = {"input_ids": ids[None], "token_type_ids": torch.zeros_like(ids)[None]}
            probs = subject.model(**given).logits.double().softmax(-1)[0]
        assert len(ids) < batch["attention_mask"][row].sum(), text
        tolerances.close(made[row], probs, dtype=torch.float32, depth=4)


def test_an_absence_of_ones_choice():
    subject, batch = of_texts()
    deleted, masked = (run("permissible_only", subject, batch, absent=way) for way in ("deleted", "mask_token"))
    probs = [one["permissible_only_probs"][0] for one in (deleted, masked)]
    assert np.abs(probs[0] - probs[1]).max() > 1e-4
    hidden = batch.alone(0)
    marks = batch["impermissible"][:1, : hidden["input_ids"].shape[1]]
    hidden["input_ids"] = torch.where(marks == 1, subject.mask_token_id, hidden["input_ids"])
    np.testing.assert_allclose(probs[1], subject.predict(hidden).double().softmax(-1)[0].detach(), atol=1e-6)
    with pytest.raises(SubjectError, match="'permissible_only with absent='hidden'' needs 'token hiding'"):
        find("permissible_only")(absent="hidden").check(Toy(), Dataset.from_dict({"impermissible": [[1]]}))


def test_sentences_go_whole(tiny_model, tiny_rows):
    subject = subject_of(tiny_model(hierarchy="sentence"))
    batch = subject.collate(tiny_rows((9, 6), hierarchy="sentence"))
    batch["impermissible"] = torch.zeros_like(batch["input_ids"])
    batch["impermissible"][0, 1] = 1  # a word of the first sentence of three
    (probs, nothing) = run("permissible_only", subject, batch)["permissible_only_probs"]
    assert np.isnan(nothing).all()
    stays = batch["attention_mask"].bool() & (subject.items(batch) != 0)
    own = subject.predict(subject.keep(batch, stays))[0].double().softmax(-1).detach()
    np.testing.assert_allclose(probs, own, atol=1e-6)


@pytest.mark.parametrize("name", ["permissible_only", "value_norm_share"])
def test_nothing_is_marked(name):
    subject = SelfAttention(classifier("bert"), tokenizer())
    with pytest.raises(SubjectError, match=f"^'{name}' is about impermissible tokens, and this batch does not mark them"):
        run(name, subject, subject.encode(TEXTS))
    with pytest.raises(SubjectError, match=f"^'{name}' is about .* nothing says which these are: name the column of marks"):
        find(name)().check(subject, Dataset.from_dict({"tokens": [["a"]]}))
    find(name)().check(subject, Dataset.from_dict({"impermissible": [[0, 1]]}))
