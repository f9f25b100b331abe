"""Diagnostics by plain loops over states, maps and positions."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from attnfaith.data.in_memory import texts_in_memory
from attnfaith.measurement.registry import find
from attnfaith.subjects import SelfAttention, SubjectError
from tests import tolerances
from tests.affine_subject import affine_texts
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "", "! . !", "never bad ."]


def cosines(states):
    """(absolute, signed) of one text (T,H), as the paper writes it."""
    if len(states) < 2:
        return np.nan, np.nan
    mean = sum(states) / len(states)
    values = [float(state @ mean) / (np.sqrt(state @ state) * np.sqrt(mean @ mean)) for state in states]
    return sum(map(abs, values)) / len(states), sum(values) / len(states)


class States:
    """A subject of two layers with states (B,T,H); a state of NaN is no token's."""

    kind, num_labels, level, pad_token_id, device = "states of the tests", 2, "token", 0, torch.device("cpu")
    can = capabilities = frozenset({"token states"})
    depth = 2

    def __init__(self, states):
        self.layers = [torch.ones_like(states), states]

    def attendable(self, batch):
        return ~self.layers[1].isnan().any(2)

    def states_by_layer(self, batch):
        return self.layers


def test_conicity_in_closed_form():
    texts = (
        (3 * np.eye(4)).tolist(),  # orthogonal
        [[1.0, 2, 0, 0], [2.0, 4, 0, 0]],  # of one direction
        [[1.0, 0, 0, 0], [-1.0, 0, 0, 0]],  # without a mean
        [[1.0, 0, 0, 0], [1.0, 0, 0, 0], [-1.0, 0, 0, 0]],
        [[3.0, 4, 0, 0], [3.0, -4, 0, 0], [0.0] * 4],  # cos 3/5 twice, and a state of zeros
    )
    states = torch.full((5, 4, 4), torch.nan, dtype=torch.float64)
    for row, text in enumerate(texts):
        states[row, : len(text)] = torch.tensor(text)
    ids = {"input_ids": torch.ones(5, 4, dtype=torch.long)}
    values = zip(*run("conicity", States(states), ids).values(), strict=True)
    np.testing.assert_allclose(list(values), [(0.5, 0.5), (1, 1), (0, 0), (1, 1 / 3), (0.4, 0.4)], atol=1e-12)


@pytest.mark.parametrize("kind", ["bert", "albert"])  # an albert's layers are one module
@torch.no_grad()
def test_conicity_of_states_that_a_classifier_returns(kind):
    """Those of the last layer, or of another, of tokens alone."""
    subject = SelfAttention(classifier(kind), tokenizer())
    batch = subject.encode(TEXTS)
    for layer in ("last", 0):
        columns = run("conicity", subject, batch, layer=layer)
        for row in range(len(TEXTS)):
            text = batch.alone(row)
            with subject.evaluating():
                states = subject.model(**subject.model_inputs(text), output_hidden_states=True).hidden_states
            states = states[-1 if layer == "last" else layer + 1][subject.attendable(text)].double().numpy()
            values = columns["conicity_absolute"][row], columns["conicity_signed"][row]
            np.testing.assert_allclose(values, cosines(states), atol=1e-5)


MARKED = [["ships", "slowly"], [], [], ["!"], ["never", "bad", "."]]
DEFINED = (0, 3)  # texts with impermissible tokens and others


def marked_texts(kind="bert", reduction="last"):
    """A subject and its batch as a measurement has it: with the tokens, their words, and marks."""
    subject = SelfAttention(classifier(kind), tokenizer(kind == "bert"), reduction)
    rows = [{**row, "instance_id": str(number)} for number, row in enumerate(subject.rows(texts_in_memory(TEXTS)).to_list())]
    batch = subject.collate(rows)
    batch |= {name: [row[name] for row in rows] for name in ("tokens", "word_of_token")}
    batch["impermissible"] = torch.zeros_like(batch["input_ids"])
    inside = subject.attendable(batch)
    for row, words in enumerate(MARKED):
        marks = [word in words for word in words_of_tokens(batch, row)]
        batch["impermissible"][row, inside[row]] = torch.tensor(marks, dtype=torch.long)
    return subject, batch


def words_of_tokens(batch, row):
    """The word that each token of a text is part of."""
    owners, words = batch["word_of_token"][row], {}
    for token, owner in zip(batch["tokens"][row], owners, strict=True):
        words[owner] = words.get(owner, "") + token.removeprefix("##")
    return [words[owner] for owner in owners]


@torch.no_grad()
def test_groups_by_the_maps_that_a_model_returns():
    subject, batch = marked_texts()
    columns = run("group_mass", subject, batch)
    names = ["impermissible", "punctuation", "markers"]
    assert columns["group_mass_names"] == [names] * len(TEXTS)
    for row in range(len(TEXTS)):
        text = batch.alone(row)
        with subject.evaluating():
            maps = subject.model(**subject.model_inputs(text), output_attentions=True).attentions
        heads = maps[-1][0, :, 0].double().numpy()  # the last layer's rows of [CLS]
        inside, words = subject.attendable(text)[0].numpy(), words_of_tokens(batch, row)
        groups = {
            "impermissible": [word in MARKED[row] for word in words],
            "punctuation": [word in ("!", ".") for word in words],
        }
        for place, name in enumerate(names):
            marks = np.zeros(len(inside), bool)
            if name == "markers":
                marks = ~inside
            else:
                marks[inside] = groups[name]
            assert columns["group_mass_tokens"][row][place] == marks.sum()
            values = columns["group_mass"][row][place], columns["group_mass_head_max"][row][place]
            masses, defined = heads[:, marks].sum(1), marks.any() and (inside & ~marks).any()
            expected = (masses.mean(), masses.max()) if defined else (np.nan, np.nan)
            np.testing.assert_allclose(values, expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("reduction", ["last", {"layers": 0, "head": 1}])
@torch.no_grad()
def test_lengths_of_values(reduction):
    """As the authors' code has it: lengths by head, markers in the sum, the mean and the largest of heads."""
    subject, batch = marked_texts(reduction=reduction)
    columns, bert = run("value_norm_share", subject, batch), subject.model.bert
    layer = subject.reduction.chosen(subject.depth)[0]
    attention = bert.encoder.layer[layer].attention.self
    for row in range(len(TEXTS)):
        values = columns["value_norm_share"][row], columns["value_norm_share_head_max"][row]
        if row not in DEFINED:
            assert np.isnan(values).all()
            continue
        text = batch.alone(row)
        with subject.evaluating():
            states = bert(**subject.model_inputs(text), output_hidden_states=True).hidden_states[layer]
        heads = attention.value(states)[0].unflatten(1, (attention.num_attention_heads, -1)).double().norm(dim=2).T.numpy()
        shares = heads[:, np.flatnonzero(batch["impermissible"][row])].sum(1) / heads.sum(1)
        shares = shares if subject.reduction.head is None else shares[[subject.reduction.head]]
        np.testing.assert_allclose(values, (shares.mean(), shares.max()), atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@torch.no_grad()
def test_texts_without_impermissible_tokens_are_read(kind):
    """The same words written as a text of their own."""
    subject, batch = marked_texts(kind)
    columns = run("permissible_only", subject, batch)["permissible_only_probs"]
    for row in range(len(TEXTS)):
        if row not in DEFINED:
            assert np.isnan(columns[row]).all() and len(columns[row]) == subject.num_labels
            continue
        ids = batch["input_ids"][row][batch["attention_mask"][row].bool() & (batch["impermissible"][row] == 0)][None]
        with subject.evaluating():
            probs = subject.model(input_ids=ids, token_type_ids=torch.zeros_like(ids)).logits.double().softmax(-1)[0]
        tolerances.close(columns[row], probs, dtype=torch.float32, depth=4)


def test_refusals():
    subject = SelfAttention(classifier("bert"), tokenizer())
    for name in ("permissible_only", "value_norm_share"):
        with pytest.raises(SubjectError, match=f"^'{name}' needs marks"):
            run(name, subject, subject.encode(TEXTS))
        with pytest.raises(SubjectError, match=f"^'{name}' .* data.impermissible_words"):
            find(name)().check(subject, Dataset.from_dict({"tokens": [["a"]]}))
        find(name)().check(subject, Dataset.from_dict({"impermissible": [[0, 1]]}))


def test_token_logits_by_hand():
    """Values are what each token alone gives, and the bias what is left of nothing."""
    subject, batch = affine_texts([([3, 1], [[1.0, 0.0, 3.0], [0.0, 2.0, 3.0]]), ([], [])], [0.5, 0.25, -0.5])
    columns = run("token_logits", subject, batch)
    np.testing.assert_array_equal(columns["token_logits"][0], [[1.0, 0.0, 3.0], [0.0, 2.0, 3.0]])
    np.testing.assert_array_equal(columns["token_logits_bias"], [[0.5, 0.25, -0.5]] * 2)
    assert columns["token_logits"][1].shape == (0, 3)
